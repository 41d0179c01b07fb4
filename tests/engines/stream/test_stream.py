"""Streams through a real broker: all messages arrive in order, in spite of faults."""

from __future__ import annotations

import json
import signal
import time

from fakes import reverse
from kafka_broker import PATIENCE
from streaming import end, memory_of, seconds_of, stream, topic_of, values

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


def test_a_signal_finishes_the_batch_and_the_next_run_resumes(broker, start):
    options = stream(broker, partitions=2, max_batch=20)
    broker.put(topic_of(options["input"]), values(2000), partitions=2)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    child = start(options, model="very slow")
    watch.wait_for(20, process=child)
    done = end(child, signal.SIGINT)
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


def test_only_translations_above_the_brokers_limit_fail(broker, start):
    limit = {"max.message.bytes": "2000"}
    output, dead = broker.make_topic(**limit), broker.make_topic(**limit)
    options = stream(broker, output=output, dead_letter=broker.url(dead))
    broker.put(topic_of(options["input"]), [b"a b", b"w is long", b"c d"])
    child = start(options, model="wordy")
    [failed] = broker.watch(dead).wait_for(1, process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (3, 1)
    assert (failed.key(), failed.value()) == (b"1", b"w is long")
    assert b"larger than the topic allows" in dict(failed.headers())["tt-error"]


def test_an_idle_stream_needs_no_more_memory_and_little_time_and_handles_a_burst(broker, start):
    options = stream(broker, partitions=2)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    child = start(options)
    broker.put(topic_of(options["input"]), values(1))
    watch.wait_for(1, process=child)
    time.sleep(5)
    before, seconds = memory_of(child.pid), seconds_of(child.pid)
    time.sleep(20)
    assert memory_of(child.pid) - before < 8 * MEGABYTES
    assert seconds_of(child.pid) - seconds < 10
    begin = time.monotonic()
    broker.put(topic_of(options["input"]), values(1000, 2), partitions=2, first=2)
    watch.wait_for(1001, process=child)
    assert time.monotonic() - begin < 20
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
