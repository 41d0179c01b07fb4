"""One run alone works for a group, known by signs beside its offsets: with a broker's stand-in."""

import contextlib
import dataclasses
import itertools
import os
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from model.errors import UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients, signs
from pipelines.streams.kafka.committing import close_committer, committer_of
from pipelines.streams.kafka.signs import Sign, check_alone
from pipelines.streams.kafka.source import KafkaSource
from pipelines.streams.live_run import forget_run

OTHER = Sign(run="other", start=1, host="elsewhere", process=7, term=1)
BEAT = 0.02


class Group:
    """What a broker keeps for a group, for all its clients."""

    def __init__(self):
        self.kept = {}

    def commit(self, offsets, asynchronous):
        self.kept.update({each.partition: (each.offset, each.metadata) for each in offsets})

    def committed(self, partitions, timeout):
        return [
            SimpleNamespace(
                partition=each.partition,
                offset=self.kept.get(each.partition, (-1, None))[0],
                metadata=self.kept.get(each.partition, (-1, None))[1],
            )
            for each in partitions
        ]

    def close(self):
        pass


@pytest.fixture
def group(monkeypatch):
    group = Group()
    monkeypatch.setattr(clients, "make_consumer", lambda *_, **__: group)
    return group


@pytest.fixture
def committer(group):
    source = KafkaSource(
        topic=KafkaTopic("a:1", "t"), group="g", run="mine", term=2, beat_seconds=BEAT
    )
    yield committer_of(source)
    with contextlib.suppress(UserError):
        close_committer(source)
    forget_run("mine")


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize(
    "text",
    [
        "", "tt", "tt a b host 1 1", "sha256 4f 1 host 12 3", "tt 1 2 3",
        "tt a 1 host 12 3 4 place 5 sleeps", "tt a 1 host 12 3 x place 5 works",
    ],
)  # fmt: skip
def test_what_others_leave_is_no_sign(text):
    assert Sign.parse(text) is None


def test_a_sign_reads_as_it_was_written():
    assert Sign.parse(str(OTHER)) == OTHER


def test_a_sign_of_before_there_were_terms_is_one():
    sign = Sign.parse("tt 4f 1700000000000 host 12 3")
    assert (sign.run, sign.process, sign.beat, sign.term) == ("4f", 12, 3, 0)
    assert not sign.is_over  # of which machine's processes it is, nobody knows


def test_a_process_of_this_machine_is_known_to_be_dead():
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(ended, 0)
    here = Sign.of_this_process("4f", term=1)
    assert dataclasses.replace(here, process=ended).is_over
    parent = os.getppid()
    assert not dataclasses.replace(here, process=parent, born=signs._born(parent)).is_over
    assert dataclasses.replace(here, process=parent, born=1).is_over, "another had its id before"
    assert not OTHER.is_over
    assert dataclasses.replace(OTHER, is_ended=True).is_over


def test_a_run_of_this_process_lives_until_it_is_closed(group):
    source = KafkaSource(topic=KafkaTopic("a:1", "t"), group="g", run="4f")
    committer_of(source).commit({0: 5})
    sign = Sign.parse(group.kept[0][1])
    assert sign.process == os.getpid()
    assert not sign.is_over
    assert dataclasses.replace(sign, run="another").is_over  # an earlier one, which is not here
    close_committer(source)
    assert sign.is_over
    forget_run("4f")


def test_a_container_of_the_same_name_and_process_is_not_taken_for_this_one():
    here = Sign.of_this_process("4f", term=1)
    for place in ("another", "-"):
        assert not dataclasses.replace(here, run="5e", place=place).is_over
        assert not dataclasses.replace(here, run="5e", place=place, process=2**22 + 1).is_over


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on while somebody sleeps, and at no other time."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(signs, "time", clock)
    return clock


def test_who_finds_a_sign_that_is_renewed_does_not_begin(clock):
    looks = iter([str(OTHER), str(OTHER), str(dataclasses.replace(OTHER, beat=1))])
    said = []
    with pytest.raises(UserError, match=r"another tt works as group g \(process 7 of elsewhere\)"):
        check_alone(lambda: {0: next(looks)}, group="g", report=said.append, beat_seconds=BEAT)
    assert len(said) == 1


def test_who_is_suspended_beyond_the_wait_looks_once_more(clock):
    looks = iter([str(OTHER), str(OTHER), str(dataclasses.replace(OTHER, beat=1))])

    def look():
        found = next(looks)
        clock.sleep(1000 * BEAT)
        return {0: found}

    with pytest.raises(UserError, match="another tt works as group g"):
        check_alone(look, group="g", report=lambda line: None, beat_seconds=BEAT)


def test_who_finds_one_that_is_not_renewed_begins_after_a_while():
    said = []
    begin = time.monotonic()
    term = check_alone(
        lambda: {0: str(OTHER), 1: ""}, group="g", report=said.append, beat_seconds=BEAT
    )
    assert term == 2
    assert time.monotonic() - begin >= 2 * BEAT
    assert "did not say that it ended" in said[0]


@pytest.mark.parametrize(
    ("text", "term"),
    [("", 1), ("of another program", 1), (str(dataclasses.replace(OTHER, is_ended=True)), 2)],
)
def test_who_finds_none_begins_at_once(text, term):
    found = check_alone(lambda: {0: text}, group="g", report=pytest.fail, beat_seconds=1000)
    assert found == term


def test_who_finds_one_that_ends_meanwhile_begins_after_it():
    ended = dataclasses.replace(OTHER, term=4, beat=9, is_ended=True)
    looks = itertools.chain([str(OTHER)], itertools.repeat(str(ended)))
    found = check_alone(
        lambda: {0: next(looks)}, group="g", report=lambda line: None, beat_seconds=BEAT
    )
    assert found == 5


def test_a_sign_is_renewed_while_nothing_comes_and_gone_at_the_end(group, committer):
    committer.commit({0: 5, 1: 0})
    committer.start_beats()
    wait_until(lambda: Sign.parse(group.kept[1][1]).beat >= 2)
    assert [offset for offset, _ in group.kept.values()] == [5, 0]
    close_committer(committer._source)
    assert [offset for offset, _ in group.kept.values()] == [5, 0]
    for _, text in group.kept.values():
        assert (Sign.parse(text).run, Sign.parse(text).is_ended) == ("mine", True)


@pytest.mark.parametrize(("start", "ends"), [(1, True), (2**60, False)])
def test_of_two_runs_the_later_ends(group, committer, start, ends):
    committer.commit({0: 5})
    committer.start_beats()
    wait_until(lambda: Sign.parse(group.kept[0][1]).beat >= 1)
    other = dataclasses.replace(OTHER, start=start, term=2)
    group.kept[0] = (3, str(other))
    if ends:
        wait_until(lambda: committer.fault is not None)
        assert "another tt works as group g" in str(committer.fault)
        assert group.kept[0] == (3, str(other))
    else:
        wait_until(lambda: Sign.parse(group.kept[0][1]).run == "mine")
        assert committer.fault is None


def test_another_process_of_the_run_that_has_gone_on_is_not_set_back(group, committer):
    committer.commit({0: 5, 1: 2})
    committer.start_beats()
    group.kept[0] = (9, str(Sign(run="mine", start=1, host="elsewhere", process=7)))
    wait_until(lambda: Sign.parse(group.kept[0][1]).host != "elsewhere")
    assert group.kept[0][0] == 9
    committer.commit({0: 7, 1: 3})
    assert [offset for offset, _ in group.kept.values()] == [9, 3]


def test_what_a_run_left_that_was_killed_ends_no_other(group, committer):
    group.kept[0] = (5, str(OTHER))
    committer.note({0: 5})
    committer.start_beats()
    wait_until(lambda: Sign.parse(group.kept[0][1]).run == "mine")
    assert committer.fault is None


def test_a_run_that_slept_leaves_its_successors_offsets_alone_and_ends(group, committer):
    committer.commit({0: 5})
    successor = dataclasses.replace(OTHER, start=2**60, term=3)
    group.kept[0] = (90, str(successor))  # while this one slept
    committer.commit({0: 6})
    assert group.kept == {0: (90, str(successor))}
    with pytest.raises(UserError, match=r"another tt has taken over the group g \(process 7 of"):
        close_committer(committer._source)
    assert group.kept == {0: (90, str(successor))}


def test_a_run_that_slept_ends_also_if_its_successor_has_ended(group, committer):
    committer.commit({0: 5})
    group.kept[0] = (90, str(dataclasses.replace(OTHER, term=3, is_ended=True)))
    committer.start_beats()
    wait_until(lambda: committer.fault is not None)
    assert "has taken over" in str(committer.fault)
    assert group.kept[0][0] == 90


def test_a_successor_takes_over_from_one_that_sleeps(group, committer):
    group.kept[0] = (5, str(OTHER))  # of term 1
    committer.note({0: 5})
    committer.commit({0: 6})
    assert committer.fault is None
    assert group.kept[0][0] == 6
    assert Sign.parse(group.kept[0][1]).term == 2


def test_what_cannot_be_looked_at_is_not_committed(group, committer, monkeypatch):
    def fail(partitions, timeout):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(group, "committed", fail)
    committer.commit({0: 5})
    assert group.kept == {}
    monkeypatch.undo()
    monkeypatch.setattr(clients, "make_consumer", lambda *_, **__: group)
    close_committer(committer._source)
    assert group.kept[0][0] == 5
