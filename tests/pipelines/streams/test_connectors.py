"""Messages between Beam's connectors and the translation."""

from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue

from model.errors import UserError
from pipelines.streams import connectors
from pipelines.streams.addresses import PubsubName
from pipelines.streams.connectors import _MakePubsub, _MakeRecord, _ReadPubsub, _ReadRecord
from pipelines.streams.kafka.clients import Cluster
from pipelines.streams.kafka.writer import Outputs
from pipelines.streams.messages import TOO_LARGE, Answer, Message
from pipelines.streams.options import StreamOptions
from pipelines.streams.pubsub.messages import PubsubTarget

KAFKA = StreamOptions(input="kafka://a:1/in", output="kafka://a:1/out", group="g")
DATAFLOW = ["--runner=DataflowRunner", "--region=r", "--project=p", "--temp_location=gs://b/t"]
OUTPUTS = Outputs(
    cluster=Cluster("a:1"), output="out", dead_letter="dead", partitions={"out": 2, "dead": 1}
)


def test_a_row_of_the_kafka_connector_is_a_message():
    row = SimpleNamespace(
        topic="in", partition=3, offset=7, timestamp=1234, key=None, value=b"one",
        headers=[SimpleNamespace(key="a", value=b"1")],
    )  # fmt: skip
    assert list(_ReadRecord().process(row)) == [
        Message(
            value=b"one", headers=(("a", b"1"),), source="in/3/7", partition=3, offset=7,
            milliseconds=1234,
        )
    ]  # fmt: skip


def record_of(**fields):
    given = {"value": b"one", "key": b"k", "source": "in/3/7", "partition": 3, "milliseconds": 5}
    message = Message(**{**given, **fields})
    [made] = _MakeRecord(OUTPUTS).process(Answer(message=message, value=b"eno", status="ok"))
    return made


def test_an_answer_is_a_row_with_its_partition_time_and_headers():
    row = record_of(headers=(("a", None),))
    assert (row.topic, row.partition, row.timestamp) == ("out", 1, 5)
    assert (row.key, row.value) == (b"k", b"eno")
    assert [tuple(each) for each in row.headers] == [
        ("a", b""), ("tt-source", b"in/3/7"), ("tt-status", b"ok"),
    ]  # fmt: skip


def test_an_answer_that_no_retry_makes_smaller_is_a_dead_letter():
    made = record_of(headers=(("a", b"x" * 2_000_000),))
    assert made.tag == "dead_letters"
    row = made.value
    assert (row.topic, row.partition, row.key, row.value) == ("dead", 0, b"k", b"")
    assert dict(row.headers)["tt-error"] == TOO_LARGE.encode()


def test_a_pubsub_message_without_time_and_id_has_the_time_of_its_element():
    message = PubsubMessage(b"one", {"a": "1"})
    with beam.Pipeline() as pipeline:
        found = (
            pipeline
            | beam.Create([TimestampedValue(message, 12.5)])
            | beam.ParDo(_ReadPubsub(PubsubName("p", "titles")))
        )
        expected = Message(
            value=b"one", headers=(("a", b"1"),), source="titles/", milliseconds=12_500
        )
        assert_that(found, equal_to([expected]))


def test_a_failed_message_of_pubsub_is_tagged():
    target = PubsubTarget(output=PubsubName("p", "out"), dead_letter=PubsubName("p", "dead"))
    message = Message(value=b"one", key=b"k", source="titles/7")
    make = _MakePubsub(target)
    [made] = make.process(Answer(message=message, value=b"eno", status="ok"))
    assert (made.data, made.ordering_key) == (b"eno", "k")
    [failed] = make.process(Answer(message=message, value=b"", status="failed", error="why"))
    assert failed.tag == "dead_letters"
    assert failed.value.attributes["tt-error"] == "why"


@pytest.mark.parametrize(
    ("flags", "elsewhere"),
    [
        (DATAFLOW, True),
        (["--runner=FlinkRunner"], True),
        (["--runner=FnApiRunner"], False),
        ([], False),
    ],
)
def test_other_runners_than_that_of_this_machine_work_elsewhere(flags, elsewhere):
    assert connectors.is_elsewhere(flags) == elsewhere


def test_kafka_needs_java_where_the_job_is_submitted(monkeypatch):
    monkeypatch.setattr(connectors.shutil, "which", lambda program: None)
    with pytest.raises(UserError, match="needs Java"):
        connectors.check_runner(KAFKA, arguments=DATAFLOW, accelerator=None)


def test_settings_that_are_secret_or_unknown_to_java_are_refused_without_values(tmp_path):
    config = tmp_path / "config"
    config.write_text("client.id=tt\nsasl.password=hush\nssl.ca.location=/ca\n")
    with pytest.raises(UserError, match=r"sasl.password, ssl.ca.location") as refused:
        connectors._read_shared_settings(str(config))
    assert "hush" not in str(refused.value)


def test_hints_are_of_the_whole_job_and_do_not_replace_the_users():
    def with_hints(*more):
        given = [*DATAFLOW, *more]
        found = connectors.with_hints(given, model_bytes=lambda: 10, accelerator=None)
        return found[len(given) :]

    assert with_hints() == ["--resource_hint=min_ram=3GB"]
    assert with_hints("--resource_hint=min_ram=8GB") == []
    assert with_hints("--resource_hints=cpu_count=2") == ["--resource_hint=min_ram=3GB"]
