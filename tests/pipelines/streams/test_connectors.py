"""Beam's connectors read and write all parts of Kafka and Pub/Sub messages."""

import dataclasses
import datetime
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.portability.api import schema_pb2
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue
from apache_beam.typehints.schemas import typing_to_runner_api
from fakes import Reverser

from tt.model.errors import UserError
from tt.pipelines.runners.transforms import versions_here
from tt.pipelines.streams import connectors
from tt.pipelines.streams.connectors import TranslateMessages
from tt.pipelines.streams.kafka_clients import Cluster
from tt.pipelines.streams.kafka_commits import KafkaOutputs
from tt.pipelines.streams.messages import TOO_LARGE, Answer, Message, Outputs
from tt.pipelines.streams.options import PubsubName, StreamOptions

DATAFLOW = ("--runner=DataflowRunner", "--region=r")
KAFKA = {"input": "kafka://h:9092/in", "output": "kafka://h:9092/out", "group": "g"}
PUBSUB = {"input": "pubsub://some-project/titles", "output": "pubsub://some-project/translated"}
NAME = PubsubName("some-project", "titles")
OUTPUT, DEAD = PubsubName("some-project", "output"), PubsubName("some-project", "dead")
WHEN = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
MSEC = int(WHEN.timestamp() * 1000)


def check(*more, options=None, arguments=DATAFLOW, **changed):
    return connectors.check_runner(
        StreamOptions(**(options or KAFKA), **changed),
        arguments=[*arguments, *more],
        accelerator=None,
    )


def test_kafka_streams_on_dataflow_are_at_least_once():
    arguments, [notice] = check()
    assert arguments[:2] == list(DATAFLOW)
    assert arguments[-1] == "--streaming"
    assert "at-least-once" in notice
    assert check("--streaming")[0].count("--streaming") == 1
    assert check(delivery="at-least-once")[1] == []
    assert check(options=PUBSUB)[1] == []


@pytest.mark.parametrize(
    ("arguments", "options", "changed", "said"),
    [
        (("--runner=FlinkRunner",), KAFKA, {}, "on Dataflow or on this machine.*flinkrunner"),
        (("--runner=PrismRunner",), KAFKA, {}, "on Dataflow or on this machine.*prismrunner"),
        (DATAFLOW, PUBSUB, {"metrics_port": 1234}, "`metrics_port` is only for a stream on this"),
        (DATAFLOW, PUBSUB, {"metrics_file": "m"}, "`metrics_file` is only for a stream on this"),
        (DATAFLOW, KAFKA, {"instance_id": "a"}, "`instance_id` is only for a stream on this"),
    ],
)
def test_unsupported_runners_and_options_are_refused(arguments, options, changed, said):
    with pytest.raises(UserError, match=said):
        check(arguments=arguments, options=options, **changed)


@pytest.mark.parametrize("setting", ["sasl.password=hush", "ssl.ca.location=/ca.pem"])
def test_kafka_settings_that_java_cannot_have_are_refused(tmp_path, setting):
    path = tmp_path / "kafka"
    path.write_text(f"security.protocol=SSL\n{setting}\n")
    with pytest.raises(UserError, match="your own machines") as error:
        check(kafka_config=str(path))
    assert setting.partition("=")[0] in str(error.value)
    assert "hush" not in str(error.value)


def test_java_can_read_each_field_of_a_row():
    """Beam writes types that it does not understand as Python objects, without an error."""
    fields = {
        field.name: field.type
        for field in typing_to_runner_api(connectors._Record).row_type.schema.fields
    }
    assert {name: each.atomic_type for name, each in fields.items() if name != "headers"} == {
        "key": schema_pb2.BYTES,
        "value": schema_pb2.BYTES,
        "partition": schema_pb2.INT32,
        "timestamp": schema_pb2.INT64,
    }
    assert {name for name, each in fields.items() if each.nullable} == {"key", "value", "timestamp"}
    header = fields["headers"].array_type.element_type.row_type.schema.fields
    assert [(each.name, each.type.atomic_type) for each in header] == [
        ("key", schema_pb2.STRING),
        ("value", schema_pb2.BYTES),
    ]


def read_record(**changed):
    """Return the message for a row of Beam's connector."""
    row = {
        "topic": "in", "partition": np.int32(2), "offset": np.int64(7), "timestamp": np.int64(MSEC),
        "key": b"k", "value": b"one", "headers": [SimpleNamespace(key="a", value=b"1")],
    }  # fmt: skip
    return connectors._read_record(SimpleNamespace(**(row | changed)))


def test_every_field_of_a_row_is_read():
    assert read_record() == Message(
        value=b"one", key=b"k", headers=(("a", b"1"),), source="in/2/7", partition=2, offset=7,
        milliseconds=MSEC,
    )  # fmt: skip
    found = read_record(key=None, value=None, headers=None, timestamp=np.int64(-1))
    assert found == Message(value=None, source="in/2/7", partition=2, offset=7)


def make_record(answer, *, most_bytes=1_000_000, dead_letter=None):
    """Return the row for an answer, and whether it is a dead letter."""
    outputs = KafkaOutputs(
        cluster=Cluster("h:9092", None),
        output="out",
        dead_letter=dead_letter,
        partitions={"out": 2, "dead": 1},
    )
    made = connectors._make_record(answer, outputs=outputs, most_bytes=most_bytes)
    is_tagged = isinstance(made, beam.pvalue.TaggedOutput)
    return (made.value if is_tagged else made), is_tagged


def test_every_field_of_an_answer_is_written():
    message = dataclasses.replace(read_record(), headers=(("a", None),), partition=3)
    row, is_dead_letter = make_record(Answer(message=message, value=b"eins", status="ok"))
    assert not is_dead_letter
    assert row == (
        b"k", b"eins", [("a", b""), ("tt-source", b"in/2/7"), ("tt-status", b"ok")], 1, MSEC,
    )  # fmt: skip
    assert isinstance(row.partition, np.int32)
    row, _ = make_record(Answer(message=Message(value=None, source="s"), value=None, status="null"))
    assert (row.key, row.value, row.partition, row.timestamp) == (None, None, 0, None)


def test_failed_messages_are_dead_letters_with_their_original_value():
    answer = Answer(message=read_record(), value=b"", status="failed", error="why")
    row, is_dead_letter = make_record(answer, dead_letter="dead")
    assert is_dead_letter
    assert (row.value, row.partition) == (b"one", 0)
    row, is_dead_letter = make_record(answer)
    assert not is_dead_letter
    assert row.value == b""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"value": b"x" * 500}, (b"k", b"x" * 500, 1)),
        ({"value": b"x" * 1000}, (b"k", b"", 1)),
        # Kafka counts at most 10 bytes per header in addition to its name and value.
        ({"headers": [SimpleNamespace(key="ü", value=b"")] * 100}, (b"k", b"", 0)),
        ({"key": b"k" * 1000}, (None, b"", 0)),
    ],
)
def test_answers_too_large_for_the_topic_get_a_smaller_form(changed, expected):
    answer = Answer(message=read_record(**changed), value=b"x" * 2000, status="ok")
    row, is_dead_letter = make_record(answer, most_bytes=1000, dead_letter="dead")
    assert is_dead_letter
    own = [(name, value) for name, value in row.headers if name.startswith("tt-")]
    assert own == [
        ("tt-source", b"in/2/7"), ("tt-status", b"failed"), ("tt-error", TOO_LARGE.encode()),
    ]  # fmt: skip
    assert (row.key, row.value, len(row.headers) - len(own)) == expected


def test_pubsub_messages_without_a_timestamp_get_the_timestamp_of_their_element():
    messages = [PubsubMessage(b"one", {"a": "1"}, "7", WHEN, "k"), PubsubMessage(b"two", {})]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = (
            pipeline
            | beam.Create([TimestampedValue(each, 5) for each in messages])
            | beam.Map(connectors._read_pubsub, subscription=NAME)
        )
        one = Message(
            value=b"one", key=b"k", headers=(("a", b"1"),), source="titles/7", milliseconds=MSEC
        )
        two = Message(value=b"two", source="titles/", milliseconds=5000)
        assert_that(found, equal_to([one, two]))


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_beam_can_encode_pubsub_answers(has_dead_letter):
    target = Outputs(output=OUTPUT, dead_letter=DEAD if has_dead_letter else None)
    message = Message(value=b"one", key=b"k", headers=(("a", b"1"),), source="titles/7")
    for answer, value, status in (
        (Answer(message=message, value=b"eins", status="ok"), b"eins", "ok"),
        (
            Answer(message=message, value=b"", status="failed", error="why"),
            b"one" if has_dead_letter else b"",
            "failed",
        ),
    ):
        made = connectors._make_pubsub(answer, target=target)
        is_tagged = isinstance(made, beam.pvalue.TaggedOutput)
        assert is_tagged == (has_dead_letter and status == "failed")
        found = PubsubMessage._from_proto_str(
            (made.value if is_tagged else made)._to_proto_str(for_publish=True)
        )
        assert (found.data, found.ordering_key) == (value, "k")
        assert found.attributes.items() >= {"a": "1", "tt-status": status}.items()


def test_workers_with_another_version_fail_messages_instead_of_bundles():
    translate = TranslateMessages(
        load_translator=Reverser, max_batch=8, versions=versions_here() | {"tt": "7.0"}
    )
    message = Message(value=b"one", source="in/2/7")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        answers = pipeline | beam.Create([message]) | translate
        found = answers | beam.Map(lambda each: (each.message, each.status, "7.0" in each.error))
        assert_that(found, equal_to([(message, "failed", True)]))
