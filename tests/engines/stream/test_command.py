"""`tt translate-stream` as a command, with a real model, and its one-line errors."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request

import pytest
from commands import Child, run_tt
from kafka_broker import PATIENCE, free_port
from toy import toy_sentences


def tt(*arguments, **options):
    return Child(run_tt, ["translate-stream", *map(str, arguments)], **options)


def refused(*arguments):
    """Return the one-line error of a refused command."""
    ended = tt(*arguments).wait(PATIENCE)
    assert ended.code == 2, ended.lines
    [line] = [line for line in ended.lines if "tt: error: " in line]
    assert not any("Traceback" in line for line in ended.lines)
    return line


def metrics_of(port):
    """Return the values that a stream serves to Prometheus, by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())


def test_messages_are_translated_as_they_arrive(kafka, trained_toy, tmp_path):
    topics = [kafka.make_topic(partitions=2) for _ in range(3)]
    source, output, dead = map(kafka.url, topics)
    port, metrics = free_port(), tmp_path / "metrics.jsonl"
    sources, targets = zip(*toy_sentences(40, seed=7), strict=True)
    values = [json.dumps({"title": text, "n": n}).encode() for n, text in enumerate(sources)]
    kafka.put(topics[0], [*values, b"no json"], partitions=2)
    child = tt(
        source, output, "--group", "g", "--model", trained_toy.run, "--field", "title",
        "--dead-letter", dead, "--metrics-port", port, "--metrics-file", metrics,
        "--beam-size", "1",
    )  # fmt: skip
    watch, failed = (kafka.watch(topic, partitions=2) for topic in topics[1:])
    watch.wait_for(40, process=child)
    failed.wait_for(1, process=child)
    end = time.monotonic() + PATIENCE  # messages are counted shortly after they are written
    while metrics_of(port).get('tt_messages_total{status="ok"}') != "40.0":
        assert child.is_alive()
        assert time.monotonic() < end, metrics_of(port)
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended.lines
    assert ended.lines[0] == (f"Reading {source} as group g: 2 partitions, exactly-once")
    assert ended.lines[-1] == "Ended: 41 messages written, 1 of them failed"
    made = {each["n"]: each for each in (json.loads(message.value()) for message in watch.messages)}
    assert len(made) == 40
    agreeing = sum(made[n]["translation"] == target for n, target in enumerate(targets))
    assert agreeing > 30  # the toy model is not perfect
    assert {each["translation_status"] for each in made.values()} == {"ok"}
    last = json.loads(metrics.read_text().splitlines()[-1])
    assert (last["messages"], last["failed"]) == (41, 1)
    assert set(last["lag"].values()) == {0}


@pytest.mark.headline
def test_no_message_is_lost_when_a_real_model_is_killed(kafka, trained_toy):
    topics = [kafka.make_topic(partitions=2) for _ in range(2)]
    arguments = [
        *map(kafka.url, topics), "--group", "g", "--model", trained_toy.run, "--max-batch", "50"
    ]  # fmt: skip
    watch = kafka.watch(topics[1], partitions=2)
    texts = [b"one two three four"] * 3000
    count = 0
    for _ in range(2):
        kafka.put(topics[0], texts, partitions=2, first=count)
        child = tt(*arguments)
        watch.wait_for_keys(count + 300, process=child)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(PATIENCE)
        count += len(texts)
    kafka.put(topics[0], texts, partitions=2, first=count)
    count += len(texts)
    assert sum(kafka.committed(topics[0], group="g", partitions=2)) < count
    child = tt(*arguments)
    watch.wait_for_keys(count, process=child)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(PATIENCE).code == 0
    watch.look(0.5)
    assert set(watch.keys().values()) == {1}


def test_mistakes_give_a_one_line_error(kafka, trained_toy, tmp_path):
    source, output = (kafka.url(kafka.make_topic()) for _ in range(2))
    good = [source, output, "--group", "g", "--model", trained_toy.run]
    config = tmp_path / "kafka.properties"
    config.write_text("sasl.password=hush-hush\nno.such=hush-hush\n")
    nobody = f"kafka://127.0.0.1:{free_port()}/t"
    for arguments, said in (
        ([source, output], "--group is missing"),
        ([source, "--group", "g"], "OUTPUT"),
        ([source, kafka.url("none"), "--group", "g"], "there is no topic none"),
        ([*good, "--dead-letter", kafka.url("dead")], "but --dead-letter names it"),
        ([*good, "--dead-letter", f"{nobody}x"], "must have the same brokers as OUTPUT"),
        ([nobody, output, "--group", "g"], "no Kafka broker answers"),
        ([source, output, "--group", "g", "--model", tmp_path], "contains no exported model"),
        ([*good, "--kafka-config", config], "librdkafka does not accept no.such"),
        ([*good, "--metrics-port", kafka.address.rpartition(":")[2]], "--metrics-port"),
        ([*good, "--metrics-file", tmp_path], "--metrics-file"),
    ):
        line = refused(*arguments)
        assert said in line, line
        assert "hush-hush" not in line
