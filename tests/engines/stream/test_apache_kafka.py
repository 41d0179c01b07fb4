"""Streams through Apache Kafka itself, with features that other brokers lack."""

from __future__ import annotations

import os
import signal

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


def test_wrong_credentials_give_a_one_line_error_without_secrets(kafka, tmp_path):
    good = kafka.client_settings()
    topics = [kafka.secure_url(kafka.make_topic()) for _ in range(2)]
    config = tmp_path / "config"
    for changed, said in (
        ({"sasl.password": "hush-hush"}, "do not know this user"),
        ({"ssl.ca.location": ""}, "do not agree on TLS"),
        (None, "no Kafka broker answers"),
    ):
        settings = {} if changed is None else {**good, **changed}
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if value))
        options = {"input": topics[0], "output": topics[1], "group": "g"}
        ended = Child(run_stream, {**options, "kafka_config": str(config)}).wait(PATIENCE)
        assert ended.code == 2
        assert said in ended.lines[-1]
        for secret in ("hush-hush", good["sasl.password"]):
            assert not any(secret in line for line in ended.lines)


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
