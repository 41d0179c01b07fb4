"""Beam's Java connectors with the steps of a stream between them, on Apache Kafka."""

from __future__ import annotations

import time

import apache_beam as beam
from apache_beam.io.kafka import ReadFromKafka, WriteToKafka
from confluent_kafka import Producer
from kafka_broker import PATIENCE

from tt.pipelines.streams import connectors
from tt.pipelines.streams.kafka_clients import Cluster
from tt.pipelines.streams.kafka_commits import KafkaOutputs
from tt.pipelines.streams.messages import Answer, fail
from tt.pipelines.texts.results import TextFields


def shout(message):
    if message.value == b"bad":
        return fail(message, "why", form=TextFields())
    return Answer(message=message, value=message.value and message.value.upper(), status="ok")


def test_rows_pass_through_java(kafka, java_worker):
    """Beam's Java connectors read from and write to Apache Kafka, with our steps in between."""
    source, output, dead = (kafka.make_topic(partitions=3) for _ in range(3))
    producer = Producer({"bootstrap.servers": kafka.address})
    headers = [("a", b"1"), ("b", None)]
    now = int(time.time()) * 1000  # the broker deletes messages that are older than a week
    producer.produce(source, b"one", b"k", headers=headers, partition=2, timestamp=now)
    producer.produce(source, None, b"k", partition=1, timestamp=now + 1)
    producer.produce(source, b"bad", partition=0, timestamp=now + 2)
    assert producer.flush(PATIENCE) == 0
    outputs = KafkaOutputs(
        cluster=Cluster(kafka.address, None),
        output=output,
        dead_letter=dead,
        partitions={output: 3, dead: 3},
    )
    row = connectors._Record
    make = beam.Map(connectors._make_record, outputs=outputs, most_bytes=1_000_000)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        made = (
            pipeline
            | ReadFromKafka(
                {"bootstrap.servers": kafka.address, "auto.offset.reset": "earliest"},
                [source], max_num_records=3, with_metadata=True, expansion_service=java_worker,
            )
            | beam.Map(connectors._read_record)
            | beam.Map(shout)
            | make.with_output_types(row, dead_letters=row).with_outputs(
                "dead_letters", main="answers"
            )
        )  # fmt: skip
        for rows, topic in ((made["answers"], output), (made["dead_letters"], dead)):
            _ = rows | topic >> WriteToKafka(
                {"bootstrap.servers": kafka.address}, topic, with_headers=True,
                expansion_service=java_worker,
            )  # fmt: skip
    found = sorted(
        (
            (each.partition(), each.key(), each.value(), each.headers(), each.timestamp()[1])
            for topic, count in ((output, 2), (dead, 1))
            for each in kafka.watch(topic, partitions=3).wait_for(count)
        )
    )
    failed = [("tt-status", b"failed"), ("tt-error", b"why")]
    assert found == [
        (0, None, b"bad", [("tt-source", f"{source}/0/0".encode()), *failed], now + 2),
        (1, b"k", None, [("tt-source", f"{source}/1/0".encode()), ("tt-status", b"ok")], now + 1),
        (
            2, b"k", b"ONE",
            [
                # Java cannot write a header without a value.
                ("a", b"1"), ("b", b""),
                ("tt-source", f"{source}/2/0".encode()), ("tt-status", b"ok"),
            ],
            now,
        ),
    ]  # fmt: skip
