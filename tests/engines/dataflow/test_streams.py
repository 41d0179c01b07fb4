"""The requests of streams to Dataflow: a fused graph, all files and options, and no secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from command_line import last_error, run
from dataflow_service import DATAFLOW, IMAGE, JOB_ID
from engine_jobs import upload
from fusion import find_fusion_breaks
from google.cloud.dataflow_v1beta3.types import JobType

from tt.pipelines.streams import connectors

ROOT = Path(__file__).parents[3]
CONFIG = "gs://bucket/kafka.properties"
SECRET = "hush-hush"


@pytest.fixture
def model(object_store, model_folder, tmp_path, monkeypatch):
    """A model in the bucket."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for path in model_folder.iterdir():
        upload(f"{object_store.bucket}/model/{path.name}", path.read_bytes())
    return f"{object_store.bucket}/model"


@pytest.fixture
def service(dataflow_service):
    dataflow_service.is_run, dataflow_service.state = False, "JOB_STATE_RUNNING"
    return dataflow_service


def submit(service, model, *arguments, options=(*DATAFLOW, *IMAGE), beam=()):
    more = ("--model", model, "--max-decoding-length", "12", *options)
    return run("translate-stream", *arguments, *more, "--detach", "--", *service.arguments, *beam)


def check_request(service, tmp_path):
    """Check the parts that all streams share, and that all steps can run as one stage."""
    check_service(service, tmp_path)
    [pool] = service.job.environment.worker_pools
    assert len(pool.sdk_harness_container_images) == 1
    # Dataflow does not fuse steps with different environments, so all steps must have equal hints.
    steps = service.steps()
    assert len({each.SerializeToString() for each in steps.values()}) == 1
    assert set(map(str, service.hints().values())) == {"{'min_ram_bytes': '3000000000'}"}
    assert service.hints().keys() == steps.keys()
    assert find_fusion_breaks(service.program) == []


def check_service(service, tmp_path):
    """Check the job's environment, and that it contains no data of this machine."""
    assert service.job.type_ == JobType.JOB_TYPE_STREAMING
    assert service.options["streaming"] is True
    assert service.options["enable_streaming_engine"] is True
    [pool] = service.job.environment.worker_pools
    assert "image:1" in {image.container_image for image in pool.sdk_harness_container_images}
    # One process with one model, and one thread per core of the machine.
    assert pool.num_threads_per_worker == 4
    assert pool.machine_type == "n2-standard-4"
    experiments = service.job.environment.experiments
    assert "no_use_multiple_sdk_containers" in experiments
    assert "use_multiple_sdk_containers" not in experiments
    assert service.job.labels["tt-job"] == "translate-stream"
    assert set(service.staged) == {"pipeline.pb"}
    for text in (service.body, *service.staged.values()):
        for private in (SECRET, str(tmp_path), str(ROOT), sys.prefix, str(Path.home() / ".")):
            assert private.encode() not in text, private
    assert len(service.body) < 20_000
    assert len(service.staged["pipeline.pb"]) < 200_000


class Connector(beam.PTransform):
    """A stand-in for Beam's Kafka connectors, which start a Java program.

    Attributes:
      asked: The arguments of each connector.
    """

    asked: ClassVar[list] = []

    def __init__(self, *given, **named):
        super().__init__()
        self.asked.append((*given, named))

    def expand(self, given):
        if isinstance(given, beam.pvalue.PBegin):
            given = given | beam.Impulse()
        return given | beam.Map(lambda row: None)


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_a_topic_is_read_and_written_by_beams_own_connectors(
    broker, object_store, service, model, tmp_path, capsys, monkeypatch, has_dead_letter
):
    monkeypatch.setattr(Connector, "asked", [])
    for name in ("ReadFromKafka", "WriteToKafka"):
        monkeypatch.setattr(connectors, name, Connector)
    upload(CONFIG, b"client.id=titles\n")
    source, output, dead = (broker.make_topic(partitions=3) for _ in range(3))
    more = ("--dead-letter", broker.url(dead)) if has_dead_letter else ()
    code = submit(
        service, model, broker.url(source), broker.url(output), "--group", "g", *more,
        "--kafka-config", CONFIG,
    )  # fmt: skip
    printed = capsys.readouterr().err
    assert code == 0, printed
    assert "messages are delivered at-least-once" in printed
    assert printed.splitlines()[-1].startswith(f"tt: the job {JOB_ID} on DataflowRunner")
    check_request(service, tmp_path)
    [[read], *written] = Connector.asked
    shared = {"client.id": "titles", "bootstrap.servers": broker.address}
    own = {
        "group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        "enable.auto.commit": "false",
    }  # fmt: skip
    assert read == {
        "consumer_config": {**shared, **own}, "topics": [source], "with_metadata": True,
        "commit_offset_in_finalize": True,
    }  # fmt: skip
    config = {**shared, "max.request.size": "1048576"}
    topics = [output, *([dead] if has_dead_letter else [])]
    assert written == [(config, topic, {"with_headers": True}) for topic in topics]


def test_java_expands_its_connectors_once(
    broker, service, model, tmp_path, capsys, expansion_service
):
    """The request contains the two connectors that Beam's Java program expands, and its jar."""
    jar = tmp_path / "service.jar"
    jar.symlink_to(expansion_service)
    source, output, dead = (broker.url(broker.make_topic(partitions=3)) for _ in range(3))
    services = json.dumps({connectors._EXPANSION_SERVICE: str(jar)})
    code = submit(
        service, model, source, output, "--group", "g", "--dead-letter", dead,
        beam=[f"--beam_services={services}"],
    )  # fmt: skip
    assert code == 0, capsys.readouterr().err
    program = service.program
    names = [each.unique_name for each in program.components.transforms.values()]
    for step in (
        "Read/KafkaIO.Read/KafkaIO.Read.ReadFromKafkaViaSDF/",
        "Write/KafkaIO.WriteRecords/",
        "Write dead letters/KafkaIO.WriteRecords/",
    ):
        assert any(name.startswith(step) for name in names), step
    # Each worker has two containers: Python with tt, and Beam's own container with Java.
    [pool] = service.job.environment.worker_pools
    images = {image.container_image for image in pool.sdk_harness_container_images}
    assert len(images) == 2
    assert "image:1" in images
    # Only Beam's own offsets are grouped, but nothing between reading and writing.
    commit = "KafkaIO.ReadSourceDescriptors/KafkaCommitOffset/"
    assert [name for name in find_fusion_breaks(program) if commit not in name] == []
    files = {name.rpartition(".")[2]: len(content) for name, content in service.staged.items()}
    assert files == {"jar": jar.stat().st_size, "pb": len(service.staged["pipeline.pb"])}
    assert files["pb"] < 200_000
    assert len(service.body) < 20_000


def test_a_password_is_not_stored_in_the_job(broker, object_store, service, model, capsys):
    upload(CONFIG, f"sasl.mechanism=PLAIN\nsasl.password={SECRET}\n".encode())
    source, output = (broker.url(broker.make_topic()) for _ in range(2))
    assert submit(service, model, source, output, "--group", "g", "--kafka-config", CONFIG) == 2
    line = last_error(capsys)
    assert "would store a secret in the job" in line
    assert "sasl.password" in line
    assert SECRET not in line
    assert service.body is None


def payloads(program, kind, urn):
    return [
        kind.FromString(each.spec.payload)
        for each in program.components.transforms.values()
        if each.spec.urn == urn
    ]


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_pubsub_is_read_and_written_by_dataflow_itself(
    pubsub, service, model, tmp_path, capsys, has_dead_letter
):
    source, output, dead = (pubsub.make_topic() for _ in range(3))
    subscription = pubsub.make_subscription(source)
    more = ("--dead-letter", dead) if has_dead_letter else ()
    assert submit(service, model, subscription, output, *more) == 0, capsys.readouterr().err
    check_request(service, tmp_path)
    [read] = payloads(
        service.program, beam_runner_api_pb2.PubSubReadPayload,
        common_urns.composites.PUBSUB_READ.urn,
    )  # fmt: skip
    project, name = subscription.removeprefix("pubsub://").split("/")
    assert read.subscription == f"projects/{project}/subscriptions/{name}"
    assert read.with_attributes
    written = payloads(
        service.program, beam_runner_api_pb2.PubSubWritePayload,
        common_urns.composites.PUBSUB_WRITE.urn,
    )  # fmt: skip
    expected = [each.removeprefix("pubsub://").split("/") for each in (output, *more[1:])]
    assert {each.topic for each in written} == {
        f"projects/{project}/topics/{name}" for project, name in expected
    }


def test_without_an_image_tt_is_sent_with_the_job(pubsub, service, model, capsys):
    subscription, output = pubsub.make_subscription(pubsub.make_topic()), pubsub.make_topic()
    assert submit(service, model, subscription, output, options=DATAFLOW) == 0
    assert "--worker-image is not set" in capsys.readouterr().err
    assert any(name.endswith(".whl") for name in service.staged)


def test_all_steps_request_the_gpu(pubsub, service, model):
    subscription, output = pubsub.make_subscription(pubsub.make_topic()), pubsub.make_topic()
    options = (*DATAFLOW, *IMAGE, "--accelerator", "nvidia-l4")
    assert submit(service, model, subscription, output, options=options) == 0
    [hint] = {each["accelerator"] for each in service.hints().values()}
    assert hint == "type:nvidia-l4;count:1;install-nvidia-driver"
    assert service.hints().keys() == service.steps().keys()


def test_mistakes_give_a_one_line_error(broker, pubsub, service, model, model_folder, capsys):
    source, output = (broker.url(broker.make_topic()) for _ in range(2))
    subscription, topic = pubsub.make_subscription(pubsub.make_topic()), pubsub.make_topic()
    of_kafka, google = (source, output, "--group", "g"), (subscription, topic)
    for arguments, options, said in (
        (of_kafka, (*DATAFLOW, *IMAGE, "--instance-id", "a"), "is only for a stream on this"),
        (google, (*DATAFLOW, *IMAGE, "--metrics-port", "1234"), "is only for a stream on this"),
        (google, (*DATAFLOW[2:], "--runner", "flink"), "--project needs --runner dataflow"),
        (google, (*DATAFLOW, *IMAGE, "--model", model_folder), "is a path on this machine"),
        (("in", "out"), (*DATAFLOW, *IMAGE), "use `tt translate-batch --watch 30s`"),
    ):
        code = submit(service, model, *arguments, options=options)
        line = last_error(capsys)
        assert code == 2, line
        assert said in line, line
    assert service.body is None
