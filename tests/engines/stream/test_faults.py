"""Streams with faulty brokers, topics, messages or models."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation, ResourceType
from kafka_broker import PATIENCE, free_port
from streaming import end, stream, topic_of, values


def error_of(child, code):
    """Return the one-line error of a stream that ends by itself with an exit code."""
    ended = child.wait(PATIENCE)
    assert ended.code == code, ended.lines
    assert not any("Traceback" in line for line in ended.lines)
    [line] = [line for line in ended.lines if "tt: error: " in line]
    return line


def metrics_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"
    }


def health_of(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return None


def wait_until(condition, *, process, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Slow models.


def test_a_member_whose_batch_takes_90_seconds_stays_in_the_group(kafka, start, tmp_path):
    """A second member joins in the middle of the batch, and no message is written twice."""
    config = tmp_path / "config"
    config.write_text("session.timeout.ms=6000\n")
    port = free_port()
    options = stream(kafka, partitions=2, kafka_config=str(config))
    kafka.put(topic_of(options["input"]), values(4), partitions=2)
    watch = kafka.watch(topic_of(options["output"]), partitions=2)
    first = start({**options, "metrics_port": port}, model="sluggish", BATCH_SECONDS="90")
    kafka.wait_for_reader(topic_of(options["input"]), "g", process=first)
    time.sleep(3)  # The batch has begun, and takes much longer.
    second = start(options)
    watch.wait_for(4, process=first, seconds=180)
    kafka.wait_for_members("g", 2)
    kafka.put(topic_of(options["input"]), values(2, 4), partitions=2, first=4)
    watch.wait_for(6, process=second, seconds=180)
    assert metrics_of(port)["tt_aborted_transactions_total"] == 0
    assert metrics_of(port)["tt_rebalances_total"] <= 4
    assert set(watch.keys().values()) == {1}
    os.kill(first.pid, signal.SIGTERM)
    end(second)
    assert first.wait(PATIENCE).code == 0
    assert watch.look(1) == 6
    assert set(watch.keys().values()) == {1}


def test_a_member_that_was_suspended_beyond_its_session_writes_nothing_twice(
    kafka, start, tmp_path
):
    config = tmp_path / "config"
    config.write_text("session.timeout.ms=6000\ntransaction.timeout.ms=2000\n")
    options = stream(kafka, partitions=2, kafka_config=str(config), max_batch=64)
    kafka.put(topic_of(options["input"]), values(4000), partitions=2)
    watch = kafka.watch(topic_of(options["output"]), partitions=2)
    first = start(options, model="paced")
    watch.wait_for(1, process=first)
    os.kill(first.pid, signal.SIGSTOP)
    second = start(options, model="paced")
    seen = watch.look()
    watch.wait_for(seen + 500, process=second)  # the second member has the first one's partitions
    os.kill(first.pid, signal.SIGCONT)
    watch.wait_for_keys(4000, process=first)
    ended = [end(first), end(second)]
    assert watch.look(1) == 4000
    assert set(watch.keys().values()) == {1}
    assert sum(each["messages"] for each in ended) == 4000


# Brokers.


def test_no_message_is_lost_when_a_broker_is_down_for_a_minute(own_kafka, start):
    port = free_port()
    options = stream(own_kafka, partitions=2, max_batch=64, metrics_port=port)
    own_kafka.put(topic_of(options["input"]), values(2000), partitions=2)
    watch = own_kafka.watch(topic_of(options["output"]), partitions=2)
    assert health_of(port) is None
    child = start(options, model="paced")
    watch.wait_for(1, process=child)
    assert health_of(port) == 200
    own_kafka.kill()
    wait_until(lambda: health_of(port) == 503, process=child)
    time.sleep(60)
    own_kafka.come_back()
    watch.wait_for_keys(2000, process=child, seconds=3 * PATIENCE)
    wait_until(lambda: health_of(port) == 200, process=child)
    end(child)
    assert watch.look(1) == 2000
    assert set(watch.keys().values()) == {1}
    committed = own_kafka.committed(topic_of(options["input"]), group="g", partitions=2)
    assert committed == [1000, 1000]


def test_a_transaction_that_the_broker_aborted_is_repeated(kafka, start, tmp_path):
    """The pause between the write and the commit is longer than a transaction may take."""
    config = tmp_path / "config"
    config.write_text("transaction.timeout.ms=1000\n")
    port = free_port()
    options = stream(kafka, kafka_config=str(config), metrics_port=port)
    kafka.put(topic_of(options["input"]), values(100))
    watch = kafka.watch(topic_of(options["output"]))
    child = start(options, PAUSE_BEFORE_COMMIT="15")
    watch.wait_for(100, process=child, seconds=2 * PATIENCE)
    assert metrics_of(port)["tt_aborted_transactions_total"] >= 1
    end(child)
    assert watch.look(1) == 100
    assert set(watch.keys().values()) == {1}


# Topics.


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_topic_deleted_during_a_run_gives_a_one_line_error(kafka, start, which):
    options = stream(kafka)
    kafka.put(topic_of(options["input"]), values(10))
    child = start(options)
    kafka.watch(topic_of(options["output"])).wait_for(10, process=child)
    kafka.delete_topic(topic_of(options[which]))
    if which == "output":
        kafka.put(topic_of(options["input"]), values(10))
    line = error_of(child, 1)
    assert "there is no topic" in line or "no longer have a topic" in line, line


def test_messages_that_the_brokers_deleted_unread_are_counted(kafka, start):
    options = stream(kafka)
    topic = topic_of(options["input"])
    kafka.put(topic, values(100))
    watch = kafka.watch(topic_of(options["output"]))
    child = start(options)
    watch.wait_for(100, process=child)
    end(child)
    kafka.put(topic, values(50, 100), first=100)
    kafka.delete_before(topic, 130)
    child = start(options)
    watch.wait_for(120, process=child)
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code == 0
    assert any("deleted 30 messages of partition 0" in line for line in ended.lines), ended.lines
    assert [int(each.key()) for each in watch.messages] == [*range(100), *range(130, 150)]


def test_a_new_group_that_starts_at_the_end_loses_no_message(kafka, start, tmp_path):
    config = tmp_path / "config"
    config.write_text("auto.offset.reset=latest\n")
    options = stream(kafka, kafka_config=str(config))
    topic = topic_of(options["input"])
    kafka.put(topic, values(10))
    child = start(options)
    kafka.wait_for_reader(topic, "g", process=child)
    end(child)  # before it has committed a batch
    kafka.put(topic, values(10, 10), first=10)
    watch = kafka.watch(topic_of(options["output"]))
    child = start(options)
    watch.wait_for(10, process=child)
    end(child)
    watch.look(0.5)
    assert [int(each.key()) for each in watch.messages] == list(range(10, 20))


# Messages.


@pytest.mark.parametrize(
    ("delivery", "has_dead_letter"), [("exactly-once", True), ("at-least-once", False)]
)
def test_no_message_blocks_a_partition(kafka, start, tmp_path, delivery, has_dead_letter):
    """The client does not know the limit of the topics, so the broker refuses messages."""
    config = tmp_path / "config"
    config.write_text("message.max.bytes=1000000\n")
    limit = {"max.message.bytes": "3000"}
    output, dead = kafka.make_topic(**limit), kafka.make_topic(**limit)
    fields = {"dead_letter": kafka.url(dead)} if has_dead_letter else {}
    options = stream(
        kafka, output=output, fields=("t",), delivery=delivery, kafka_config=str(config), **fields
    )
    topic = topic_of(options["input"])
    large = b"x" * 4000
    kafka.put_all(
        topic,
        [
            {"value": b'{"t": "a b"}', "key": b"0"},
            {"value": b"no json", "key": b"1"},
            {"value": b'{"t": "a b", "more": "' + large + b'"}', "key": b"2"},
            {"value": b'{"t": "a b"}', "key": large},
            {"value": b'{"t": "a b"}', "key": b"4", "headers": [("own", large)]},
            {"value": b'{"t": "c d"}', "key": b"5"},
        ],
    )
    child = start(options)
    written = kafka.watch(output)
    written.wait_for(2 if has_dead_letter else 6, process=child)
    failed = written
    if has_dead_letter:
        failed = kafka.watch(dead)
        failed.wait_for(4, process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (6, 4)
    bad = [each for each in failed.messages if dict(each.headers())["tt-status"] == b"failed"]
    of_source = {dict(each.headers())["tt-source"].decode(): each for each in bad}
    assert of_source.keys() == {f"{topic}/0/{offset}" for offset in (1, 2, 3, 4)}
    assert all(dict(each.headers())["tt-error"] for each in bad)
    assert of_source[f"{topic}/0/2"].key() == b"2"
    assert of_source[f"{topic}/0/3"].key() is None
    assert of_source[f"{topic}/0/4"].key() == b"4"
    assert committed_of(kafka, topic) == 6


def committed_of(broker, topic):
    [offset] = broker.committed(topic, group="g")
    return offset


# Signals.


def test_a_second_signal_stops_at_once_and_the_batch_is_not_visible(kafka, start):
    options = stream(kafka)
    topic = topic_of(options["input"])
    kafka.put(topic, values(10))
    child = start(options, model="sluggish", BATCH_SECONDS="30")
    kafka.wait_for_reader(topic, "g", process=child)
    time.sleep(2)
    begin = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code != 0
    assert time.monotonic() - begin < 25, "the stream waited for the batch"
    assert kafka.watch(topic_of(options["output"])).look(2) == 0
    assert committed_of(kafka, topic) < 0


# Static members.


def test_a_restarted_static_member_causes_no_rebalance(kafka, start):
    ports = [free_port() for _ in range(2)]
    options = stream(kafka, partitions=2)
    members = [
        start({**options, "instance_id": f"m{i}", "metrics_port": port})
        for i, port in enumerate(ports)
    ]
    kafka.wait_for_members("g", 2)
    kafka.put(topic_of(options["input"]), values(10), partitions=2)
    watch = kafka.watch(topic_of(options["output"]), partitions=2)
    watch.wait_for(10, process=members[0])
    before = metrics_of(ports[0])["tt_rebalances_total"]
    os.kill(members[1].pid, signal.SIGKILL)
    members[1].wait(PATIENCE)
    members[1] = start({**options, "instance_id": "m1"})
    kafka.put(topic_of(options["input"]), values(10, 10), partitions=2, first=10)
    watch.wait_for(20, process=members[1])
    assert metrics_of(ports[0])["tt_rebalances_total"] == before
    for each in members:
        end(each)
    assert set(watch.keys().values()) == {1}


def test_a_second_process_with_the_same_instance_id_ends_the_first(kafka, start):
    options = stream(kafka, instance_id="m0")
    first = start(options)
    kafka.wait_for_reader(topic_of(options["input"]), "g", process=first)
    second = start(options)
    assert "another process with the same `instance_id`" in error_of(first, 2)
    kafka.put(topic_of(options["input"]), values(10))
    kafka.watch(topic_of(options["output"])).wait_for(10, process=second)
    end(second)


def test_missing_rights_are_named(secure_kafka, start):
    def refused(**fields):
        urls = {"input": "in", "output": "out"}
        options = {name: secure_kafka.secure_url(topic) for name, topic in urls.items()}
        config = {"kafka_config": str(secure_kafka.config), "group": "g"}
        return error_of(start({**options, **config, **fields}), 2)

    for topic in ("in", "out", "closed", "hidden"):
        secure_kafka.make_topic(topic)
    secure_kafka.allow_only(ResourceType.TOPIC, "closed", AclOperation.DESCRIBE)
    secure_kafka.allow_only(ResourceType.TOPIC, "hidden", AclOperation.CREATE)
    secure_kafka.allow_only(ResourceType.GROUP, "closed", AclOperation.DESCRIBE)
    secure_kafka.allow_only(ResourceType.GROUP, "hidden", AclOperation.DELETE)
    closed, hidden = (secure_kafka.secure_url(topic) for topic in ("closed", "hidden"))
    secure_kafka.put("in", values(1))
    assert "do not let this user use a topic" in refused(input=closed)
    assert "do not let this user use a topic" in refused(output=closed)
    assert "check its name and your permissions" in refused(input=hidden)
    assert "do not let this user join `group`" in refused(group="closed")
    assert "do not let this user join `group`" in refused(group="hidden")
    assert secure_kafka.watch("out").look(1) == 0


def test_a_group_with_another_protocol_is_refused(kafka, start):
    options = stream(kafka, group="ranged")
    topic = topic_of(options["input"])
    kafka.put(topic, values(1))
    other = Consumer(
        {
            **kafka._settings, "group.id": "ranged", "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
        }
    )  # fmt: skip
    other.subscribe([topic])
    deadline = time.monotonic() + PATIENCE
    while not [each for each in other.consume(1, 0.5) if each.error() is None]:
        assert time.monotonic() < deadline
    assert "does not use the cooperative-sticky protocol" in error_of(start(options), 2)
    other.close()


def test_brokers_without_transactions_get_at_least_once_with_a_notice(kafka, start):
    options = stream(kafka)
    kafka.put(topic_of(options["input"]), values(10))
    child = start(options, NO_TRANSACTIONS="1")
    watch = kafka.watch(topic_of(options["output"]))
    watch.wait_for(10, process=child)
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code == 0
    notice = "messages are delivered at-least-once: the brokers do not support transactions"
    assert notice in ended.lines
    assert committed_of(kafka, topic_of(options["input"])) == 10


@pytest.fixture
def secure_kafka(tmp_path):
    """Apache Kafka that checks rights; only the user who logs in can lack rights."""
    from apache_kafka import running

    yield from running(
        tmp_path / "kafka",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
        allow_everyone_if_no_acl_found="true",
    )
