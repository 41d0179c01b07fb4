"""Streams through Apache Kafka itself, with features that other brokers lack."""

from __future__ import annotations

import os
import signal
import time

import pytest
from commands import Child
from kafka_broker import PATIENCE
from streaming import end, run_stream, stream, topic_of, values


def test_a_login_with_sasl_and_tls_does_not_show_its_secrets(kafka, start, tmp_path):
    settings = kafka.client_settings()
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanism"].startswith("SCRAM-")
    topics = [kafka.make_topic() for _ in range(2)]
    metrics = tmp_path / "metrics.jsonl"
    options = {
        "input": kafka.secure_url(topics[0]), "output": kafka.secure_url(topics[1]), "group": "g",
        "kafka_config": str(kafka.config), "metrics_file": str(metrics),
    }  # fmt: skip
    kafka.put(topics[0], [b"a b", b"c d"])
    child = start(options)
    watch = kafka.watch(topics[1])
    watch.wait_for(2, process=child)
    with open(f"/proc/{child.pid}/environ", "rb") as file:  # noqa: PTH123
        environment = file.read()
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended.lines
    assert [each.value() for each in watch.messages] == [b"b a", b"d c"]
    shown = "\n".join([*ended.lines, metrics.read_text(), str(watch.messages[0].headers())])
    assert "Ready" in shown
    password = settings["sasl.password"]
    assert password not in shown
    assert password.encode() not in environment
    assert kafka.committed(topics[0], group="g") == [2]


def test_a_wrong_password_gives_a_one_line_error(kafka, tmp_path):
    wrong = {**kafka.client_settings(), "sasl.password": "hush-hush"}
    config = tmp_path / "config"
    config.write_text("".join(f"{name}={value}\n" for name, value in wrong.items()))
    options = {
        "input": kafka.secure_url(kafka.make_topic()),
        "output": kafka.secure_url(kafka.make_topic()),
        "group": "g",
        "kafka_config": str(config),
    }
    ended = Child(run_stream, options).wait(PATIENCE)
    assert ended.code == 2
    assert "do not know this user" in ended.lines[-1]
    assert not any("hush-hush" in line for line in ended.lines)


def test_a_partition_added_during_a_stream_is_read_from_its_beginning(kafka, start):
    options = stream(kafka, partitions=2)
    topic = topic_of(options["input"])
    kafka.put(topic, values(100), partitions=2)
    child = start(options)
    watch = kafka.watch(topic_of(options["output"]), partitions=2)
    watch.wait_for(100, process=child)
    kafka.add_partitions(topic, 4)
    kafka.put(topic, values(400, 100), partitions=4, first=100)
    watch.wait_for(500, process=child)
    end(child)
    assert watch.look(0.5) == 500
    assert set(watch.keys().values()) == {1}
    for partition in (2, 3):  # in the right partition and order
        found = [each for each in watch.messages if int(each.key()) % 4 == partition]
        numbers = [int(each.key()) for each in found if int(each.key()) >= 100]
        assert numbers == [number for number in range(100, 500) if number % 4 == partition]
        assert {each.partition() for each in found if int(each.key()) >= 100} == {partition % 2}
    assert kafka.committed(topic, group="g", partitions=4) == [150, 150, 100, 100]


def test_no_message_is_lost_when_a_broker_is_killed_and_restarted(own_kafka, start):
    options = stream(own_kafka, partitions=2, max_batch=20)
    own_kafka.put(topic_of(options["input"]), values(600), partitions=2)
    watch = own_kafka.watch(topic_of(options["output"]), partitions=2)
    child = start(options, model="slow")
    watch.wait_for(100, process=child)
    own_kafka.kill()
    time.sleep(2)
    assert child.is_alive()
    own_kafka.come_back()
    own_kafka.put(topic_of(options["input"]), values(100, 600), partitions=2, first=600)
    watch.wait_for_keys(700, process=child)
    end(child)
    watch.look(0.5)
    assert watch.keys().total() == len(watch.keys()) == 700
    assert own_kafka.committed(topic_of(options["input"]), group="g", partitions=2) == [350, 350]


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_only_messages_that_the_broker_finds_too_large_fail(
    kafka, start, tmp_path, has_dead_letter
):
    """The client has a larger limit, so that it sends messages that the broker refuses."""
    config = tmp_path / "config"
    config.write_text("message.max.bytes=1000000\n")
    limit = {"max.message.bytes": "2000"}
    output, dead = kafka.make_topic(**limit), kafka.make_topic(**limit)
    fields = {"dead_letter": kafka.url(dead)} if has_dead_letter else {}
    options = stream(kafka, output=output, kafka_config=str(config), **fields)
    texts = [b"a b", b"c d", b"w is long", b"e f", b"g h"]
    kafka.put(topic_of(options["input"]), texts)
    child = start(options, model="wordy")
    watch = kafka.watch(output)
    watch.wait_for(4 if has_dead_letter else 5, process=child)
    failed = watch
    if has_dead_letter:
        failed = kafka.watch(dead)
        failed.wait_for(1, process=child)
    done = end(child)
    assert (done["messages"], done["failed"]) == (5, 1)
    [message] = [each for each in failed.messages if dict(each.headers())["tt-status"] == b"failed"]
    assert message.key() == b"2"
    assert b"larger than the topic allows" in dict(message.headers())["tt-error"]
    assert message.value() == (b"w is long" if has_dead_letter else b"")
    good = {each.key(): each.value() for each in watch.messages if each.key() != b"2"}
    assert good == {b"0": b"b a", b"1": b"d c", b"3": b"f e", b"4": b"h g"}
