"""Streams on a stand-in for Pub/Sub with leases: no message is lost, in spite of faults."""

from __future__ import annotations

import collections
import functools
import json
import os
import random
import signal
import time

import pytest
from commands import Child
from fakes import reverse
from pubsub_service import PATIENCE, PROJECT
from streaming import WAITING, end, memory_of, run_stream, run_tt_with, values

MEGABYTES = 2**20


@pytest.fixture
def service(pubsub):
    return pubsub


@pytest.fixture
def start(service):
    """Start streams, and kill all streams that a test leaves running."""
    children = []

    def start(options, **settings):
        child = Child(
            functools.partial(run_stream, **settings, PUBSUB_EMULATOR_HOST=service.address), options
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill_group()


class Stream:
    """New topics and a subscription, and the options of a stream between them."""

    def __init__(
        self, service, *, seconds=10, dead_letter=False, exactly_once=False, ordered=False, **fields
    ):
        self.input, self.output, self.dead = (service.make_topic() for _ in range(3))
        self.subscription = service.make_subscription(
            self.input, seconds=seconds, enable_exactly_once_delivery=exactly_once,
            enable_message_ordering=ordered,
        )  # fmt: skip
        self.options = {"input": self.subscription, "output": self.output, **fields}
        if dead_letter:
            self.options["dead_letter"] = self.dead


def times_of(messages):
    """Count how often each message was written, by its number."""
    return collections.Counter(int(each.attributes["n"]) for each in messages)


def test_all_messages_are_written_once_and_acknowledged(service, start):
    stream = Stream(service, max_batch=100)
    service.put(stream.input, values(1500), attributes={"topic": "a", "timeout": "b"})
    child = start(stream.options)
    service.wait_for(stream.output, 1500, process=child)
    done = end(child)
    found = service.messages(stream.output)
    assert times_of(found) == dict.fromkeys(range(1500), 1)
    for each in found:
        attributes = dict(each.attributes)
        assert each.data == reverse(f"text {attributes['n']}").encode()
        subscription, _, number = attributes.pop("tt-source").partition("/")
        assert f"pubsub://{PROJECT}/{subscription}" == stream.subscription
        assert int(number) == int(attributes.pop("n")) + 1
        assert attributes == {"topic": "a", "timeout": "b", "tt-status": "ok"}
    assert service.unacknowledged(stream.subscription) == 0
    assert (done["messages"], done["failed"], done["trouble"]) == (1500, 0, "")


def test_messages_of_an_ordering_key_keep_their_order(service, start):
    stream = Stream(service, max_batch=50, ordered=True)
    service.put(stream.input, values(400), keys=[f"k{n % 3}" for n in range(400)])
    child = start(stream.options)
    service.wait_for(stream.output, 400, process=child)
    end(child)
    found = service.messages(stream.output)
    for key in range(3):
        numbers = [int(each.attributes["n"]) for each in found if each.ordering_key == f"k{key}"]
        assert numbers == list(range(key, 400, 3))


def test_a_drain_returns_messages_that_are_not_in_progress(service, start):
    stream = Stream(service, seconds=600, max_batch=20)  # so that no message returns by itself
    service.put(stream.input, values(1000))
    child = start(stream.options, model="very slow")
    # The first batch is in progress or written. Another batch is fetched ahead of the model, which
    # takes 2 s per batch.
    service.wait_until(lambda: service.leased(stream.subscription) >= 40, process=child)
    done = end(child)
    written = len(service.messages(stream.output))
    assert 0 < written == done["messages"] < 1000
    assert service.unacknowledged(stream.subscription) == 1000 - written
    assert service.leased(stream.subscription) == 0
    assert service.returned > 0
    child = start(stream.options)
    service.wait_for(stream.output, 1000, process=child)
    end(child)
    assert times_of(service.messages(stream.output)) == dict.fromkeys(range(1000), 1)


def test_two_processes_killed_at_20_moments_lose_nothing(service, start):
    most, count, kills = 32, 0, 20
    stream = Stream(service, seconds=10, max_batch=most)
    moments = random.Random(21)
    children = [start(stream.options, model="slow") for _ in range(2)]
    for kill in range(kills):
        written = service.messages(stream.output)
        while count - len(times_of(written)) < WAITING:  # more than they translate before the kill
            service.put(stream.input, values(1000, count), first=count)
            count += 1000
        if kill % 5:  # in other rounds, the process is killed during its start
            service.wait_for(stream.output, len(written) + 1, process=children[1])
        time.sleep(moments.uniform(0, 0.25))
        victim = children.pop(0)
        os.kill(victim.pid, signal.SIGKILL)
        assert victim.wait(PATIENCE).code == -signal.SIGKILL
        assert len(times_of(service.messages(stream.output))) < count, "no message was left to lose"
        children.append(start(stream.options, model="slow"))
    service.wait_for(stream.output, count, process=children[0], distinct=True)
    # Messages that a killed process had written but not acknowledged return after their lease.
    service.wait_until_acknowledged(stream.subscription, process=children[0])
    for child in children:
        end(child)
    found = times_of(service.messages(stream.output))
    assert len(found) == count
    # The batch that is being published, and the previous one, which may not be acknowledged yet.
    assert found.total() - count <= kills * 2 * most
    print(f"{kills} kills: 0 of {count} lost, {found.total() - count} twice")


def test_a_subscription_with_exactly_once_delivery_is_acknowledged(service, start):
    stream = Stream(service, seconds=600, exactly_once=True)
    service.put(stream.input, values(300))
    child = start(stream.options)
    service.wait_for(stream.output, 300, process=child)
    ended = end(child)
    assert ended["messages"] == 300
    assert service.unacknowledged(stream.subscription) == 0


def test_a_subscription_deleted_during_a_run_gives_a_one_line_error(service, start):
    stream = Stream(service)
    service.put(stream.input, values(10))
    child = start(stream.options)
    service.wait_for(stream.output, 10, process=child)
    service.delete(stream.subscription)
    ended = child.wait(PATIENCE)
    assert ended.code == 1, ended.lines
    [line] = [line for line in ended.lines if "tt: error: " in line]
    assert "does not exist" in line
    assert not any("Traceback" in line for line in ended.lines)


def test_bad_messages_are_dead_letters_with_a_reason(service, start):
    stream = Stream(service, dead_letter=True, fields=("title",))
    good = [json.dumps({"title": f"t {n}"}).encode() for n in range(20)]
    bad = [b"no json", b"{}", b'{"title": "x!"}', b""]
    service.put(stream.input, [*good[:10], *bad, *good[10:]])
    child = start(stream.options, model="poisoned")
    service.wait_for(stream.output, 20, process=child)
    service.wait_for(stream.dead, len(bad), process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (24, 4)
    found = {each.data: each.attributes["tt-error"] for each in service.messages(stream.dead)}
    assert found.keys() == set(bad)
    assert [found[each].partition(":")[0] for each in bad] == [
        "not JSON", "the message has no field title", "ValueError", "not JSON",
    ]  # fmt: skip
    assert len(service.messages(stream.output)) == 20


LONG = b"w is long. " * 2500


def test_only_translations_too_large_for_a_message_fail(service, start):
    stream = Stream(service, dead_letter=True)
    service.put(stream.input, [b"a b", LONG, b"c d"])
    child = start(stream.options, model="wordy")  # 500 times as long: 12 MB
    service.wait_for(stream.output, 2, process=child)
    service.wait_for(stream.dead, 1, process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (3, 1)
    [failed] = service.messages(stream.dead)
    assert failed.data == LONG
    assert "larger than the topic allows" in failed.attributes["tt-error"]


def test_a_slow_model_keeps_its_leases_and_uses_constant_memory(service, start):
    stream = Stream(service, seconds=1, max_batch=16)  # a batch takes two seconds
    service.put(stream.input, [b"word " * 2000] * 10_000)  # 100 MB
    child = start(stream.options, model="very slow")
    service.wait_for(stream.output, 16, process=child)
    before = memory_of(child.pid)
    service.wait_for(stream.output, 64, process=child)
    assert memory_of(child.pid) - before < 64 * MEGABYTES
    end(child)
    assert service.extended > 0
    assert set(times_of(service.messages(stream.output)).values()) == {1}


def test_no_message_is_lost_when_the_service_restarts(service, start):
    stream = Stream(service, seconds=2, max_batch=20)
    service.put(stream.input, values(600))
    child = start(stream.options, model="slow")
    service.wait_for(stream.output, 100, process=child)
    service.stop()
    time.sleep(4)
    assert child.is_alive()
    service.start()
    service.wait_for(stream.output, 600, process=child, distinct=True)
    end(child)
    assert set(times_of(service.messages(stream.output))) == set(range(600))


def test_a_topic_without_rights_gives_a_one_line_error(service, start):
    stream = Stream(service, seconds=600)
    service.refused.add(f"projects/{PROJECT}/topics/{stream.output.rpartition('/')[2]}")
    service.put(stream.input, values(10))
    child = start(stream.options)
    ended = child.wait(PATIENCE)
    assert ended.code == 2
    assert any("you have no permission to use" in line for line in ended.lines), ended.lines
    assert service.unacknowledged(stream.subscription) == 10


def test_mistakes_give_a_one_line_error_before_any_message_is_read(service):
    stream, missing = Stream(service), f"pubsub://{PROJECT}/missing"
    good = [stream.subscription, stream.output]

    def refused(*arguments):
        run = functools.partial(run_tt_with, PUBSUB_EMULATOR_HOST=service.address)
        ended = Child(run, ["translate-stream", *arguments, "--model", "m"]).wait(PATIENCE)
        assert ended.code == 2, ended.lines
        assert not any("Traceback" in line for line in ended.lines)
        [line] = [line for line in ended.lines if "tt: error: " in line]
        return line

    line = refused(missing, stream.output)
    assert f"INPUT ({missing}) does not exist" in line
    assert "gcloud pubsub subscriptions create" in line
    assert f"OUTPUT ({missing}) does not exist" in refused(stream.subscription, missing)
    line = refused(*good, "--dead-letter", missing)
    assert f"--dead-letter ({missing}) does not exist" in line
    line = refused(stream.subscription, stream.input)
    assert "OUTPUT is the topic of the subscription" in line
    service.stop()
    assert "Pub/Sub does not answer for INPUT" in refused(*good)
