"""Streams as Dataflow gets them: one fused graph, no secret, and all that its workers need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from command_line import last_error, run
from dataflow_service import DATAFLOW, IMAGE, JOB_ID
from engine_jobs import upload
from fusion import what_breaks_fusion
from google.cloud.dataflow_v1beta3.types import JobType

from pipelines.streams.kafka.source import KafkaSource

ROOT = Path(__file__).parents[3]
CONFIG = "gs://bucket/kafka.properties"
SECRET = "hush-hush"


@pytest.fixture
def model(object_store, model_folder, tmp_path, monkeypatch):
    """A model in the bucket; the service takes jobs, and runs none."""
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
    """Checks what all streams have in common."""
    assert service.job.type_ == JobType.JOB_TYPE_STREAMING
    assert service.options["streaming"] is True
    assert service.options["enable_streaming_engine"] is True
    [pool] = service.job.environment.worker_pools
    assert {image.container_image for image in pool.sdk_harness_container_images} == {"image:1"}
    # One process with one model, whose threads are the machine's cores.
    assert pool.num_threads_per_worker == 4
    assert pool.machine_type == "n2-standard-4"
    experiments = service.job.environment.experiments
    assert "no_use_multiple_sdk_containers" in experiments
    assert "use_multiple_sdk_containers" not in experiments
    assert service.job.labels["tt-job"] == "translate-stream"
    # Dataflow fuses no steps of two environments: hints are those of all.
    program = service.program
    steps = service.steps()
    assert len({each.SerializeToString() for each in steps.values()}) == 1
    assert set(map(str, service.hints().values())) == {"{'min_ram_bytes': '3000000000'}"}
    assert service.hints().keys() == steps.keys()
    assert what_breaks_fusion(program) == []
    assert set(service.staged) == {"pipeline.pb"}
    for text in (service.body, *service.staged.values()):
        for private in (SECRET, str(tmp_path), str(ROOT), sys.prefix, str(Path.home() / ".")):
            assert private.encode() not in text, private
    assert len(service.body) < 20_000
    assert len(service.staged["pipeline.pb"]) < 200_000


def test_a_topic_of_kafka_is_read_by_our_source_in_one_stage(
    broker, object_store, service, model, tmp_path, capsys
):
    upload(CONFIG, f"sasl.password={SECRET}\n".encode())
    source, output, dead = (broker.make_topic(partitions=3) for _ in range(3))
    code = submit(
        service, model, broker.url(source), broker.url(output), "--group", "g",
        "--dead-letter", broker.url(dead), "--kafka-config", CONFIG,
    )  # fmt: skip
    printed = capsys.readouterr().err
    assert code == 0, printed
    assert f"workers read --kafka-config themselves, and the job does not hold it: {CONFIG}" in (
        printed
    )
    assert printed.splitlines()[-1].startswith(f"tt: the job {JOB_ID} on DataflowRunner")
    assert printed.splitlines()[-1].endswith("goes on by itself: end it there")
    check_request(service, tmp_path)
    names = [each.unique_name for each in service.program.components.transforms.values()]
    for step in ("Messages/Read", "Translate messages/Translate", "Write answers/Write"):
        assert any(name.startswith(step) for name in names), step


def test_a_topic_is_read_in_shares_of_its_partitions(broker):
    from pipelines.streams.kafka.connecting import connect_topics
    from pipelines.streams.messages import MessageFormat
    from pipelines.streams.options import StreamOptions

    topics = [broker.url(broker.make_topic(partitions=3)) for _ in range(2)]
    options = StreamOptions(input=topics[0], output=topics[1], group="g")
    ends = connect_topics(options, form=MessageFormat(), run="r", most_shares=100)
    assert all(isinstance(each, KafkaSource) for each in ends.sources)
    assert [each.choose(range(3)) for each in ends.sources] == [[0], [1], [2]]


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


def test_without_an_image_tt_comes_with_the_job(pubsub, service, model, capsys):
    subscription, output = pubsub.make_subscription(pubsub.make_topic()), pubsub.make_topic()
    assert submit(service, model, subscription, output, options=DATAFLOW) == 0
    assert "there is no --worker-image" in capsys.readouterr().err
    assert any(name.endswith(".whl") for name in service.staged)


def test_a_gpu_is_asked_for_by_all_steps(pubsub, service, model):
    subscription, output = pubsub.make_subscription(pubsub.make_topic()), pubsub.make_topic()
    options = (*DATAFLOW, *IMAGE, "--accelerator", "nvidia-l4")
    assert submit(service, model, subscription, output, options=options) == 0
    [hint] = {each["accelerator"] for each in service.hints().values()}
    assert hint == "type:nvidia-l4;count:1;install-nvidia-driver"
    assert service.hints().keys() == service.steps().keys()


def test_what_cannot_work_is_told_in_a_line(broker, pubsub, service, model, model_folder, capsys):
    source, output = (broker.url(broker.make_topic()) for _ in range(2))
    subscription, topic = pubsub.make_subscription(pubsub.make_topic()), pubsub.make_topic()
    kafka, google = (source, output, "--group", "g"), (subscription, topic)
    for arguments, options, said in (
        (kafka, DATAFLOW, "would have no client of Kafka"),
        (google, (*DATAFLOW, *IMAGE, "--spot"), "for jobs that end"),
        (google, (*DATAFLOW, *IMAGE, "--metrics-port", "1234"), "that this machine translates"),
        (google, (*DATAFLOW[2:], "--runner", "flink"), "--project is for --runner dataflow"),
        (google, (*DATAFLOW, *IMAGE, "--model", model_folder), "is of this machine"),
        (("in", "out"), (*DATAFLOW, *IMAGE), "a folder is watched from this machine"),
    ):
        code = submit(service, model, *arguments, options=options)
        line = last_error(capsys)
        assert code == 2, line
        assert said in line, line
    assert service.body is None
