"""One run alone works for a group, known by signs beside its offsets: with a broker's stand-in."""

import contextlib
import os
import time
from types import SimpleNamespace

import pytest

from model.errors import UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.committing import (
    Sign,
    check_alone,
    close_committer,
    committer_of,
)
from pipelines.streams.kafka.source import KafkaSource
from pipelines.streams.live_run import forget_run

OTHER = Sign("other", 1, "elsewhere", 7)
BEAT = 0.02


class Group:
    """What a broker keeps for a group, for all its clients."""

    def __init__(self):
        self.kept = {}

    def commit(self, offsets, asynchronous):
        self.kept.update({each.partition: (each.offset, each.metadata) for each in offsets})

    def committed(self, partitions, timeout):
        return [
            SimpleNamespace(partition=each.partition, metadata=self.kept[each.partition][1])
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
    source = KafkaSource(topic=KafkaTopic("a:1", "t"), group="g", run="mine", beat_seconds=BEAT)
    yield committer_of(source)
    with contextlib.suppress(UserError):
        close_committer(source)
    forget_run("mine")


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("text", ["", "tt", "tt a b host 1 1", "sha256 4f 1 host 12 3", "tt 1 2 3"])
def test_what_others_leave_is_no_sign(text):
    assert Sign.parse(text) is None


def test_a_sign_reads_as_it_was_written():
    assert Sign.parse(str(OTHER)) == OTHER


def test_a_process_of_this_machine_is_known_to_be_dead():
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(ended, 0)
    here = Sign.parse(f"tt r 1 {os.uname().nodename} {ended} 0")
    assert here.is_dead
    assert not Sign("r", 1, here.host, os.getppid()).is_dead
    assert not OTHER.is_dead


def test_who_finds_a_sign_that_is_renewed_does_not_begin():
    looks = iter([str(OTHER), str(OTHER), str(OTHER).replace(" 0", " 1")])
    said = []
    with pytest.raises(UserError, match=r"another tt works as group g \(process 7 of elsewhere\)"):
        check_alone(lambda: {0: next(looks)}, group="g", report=said.append, beat_seconds=BEAT)
    assert len(said) == 1


def test_who_finds_one_that_is_not_renewed_begins_after_a_while():
    said = []
    begin = time.monotonic()
    check_alone(lambda: {0: str(OTHER), 1: ""}, group="g", report=said.append, beat_seconds=BEAT)
    assert time.monotonic() - begin >= 2 * BEAT
    assert "did not say that it ended" in said[0]


@pytest.mark.parametrize("text", ["", "of another program"])
def test_who_finds_none_begins_at_once(text):
    check_alone(lambda: {0: text}, group="g", report=pytest.fail, beat_seconds=1000)


def test_a_sign_is_renewed_while_nothing_comes_and_gone_at_the_end(group, committer):
    committer.commit({0: 5, 1: 0})
    committer.start_beats()
    wait_until(lambda: Sign.parse(group.kept[1][1]).beat >= 2)
    assert [offset for offset, _ in group.kept.values()] == [5, 0]
    close_committer(committer._source)
    assert group.kept == {0: (5, ""), 1: (0, "")}


@pytest.mark.parametrize(("start", "ends"), [(1, True), (2**60, False)])
def test_of_two_runs_the_later_ends(group, committer, start, ends):
    committer.commit({0: 5})
    committer.start_beats()
    wait_until(lambda: Sign.parse(group.kept[0][1]).beat >= 1)
    other = Sign("other", start, "elsewhere", 7)
    group.kept[0] = (3, str(other))
    if ends:
        wait_until(lambda: committer.fault is not None)
        assert "another tt works as group g" in str(committer.fault)
        assert group.kept[0] == (3, str(other))
    else:
        wait_until(lambda: Sign.parse(group.kept[0][1]).run == "mine")
        assert committer.fault is None


def test_what_a_run_left_that_was_killed_ends_no_other(group, committer):
    group.kept[0] = (5, str(OTHER))
    committer.note({0: 5})
    committer.start_beats()
    wait_until(lambda: Sign.parse(group.kept[0][1]).run == "mine")
    assert committer.fault is None
