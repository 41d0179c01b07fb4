"""The job: one worker, one stage, and no secret on its way."""

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms import environments
from apache_beam.utils.counters import CounterFactory
from fakes import Reverser
from fusion import what_breaks_fusion

from model.errors import UserError
from pipelines.inference.model_loading import CustomModel, FoundModel
from pipelines.runners.runner import make_pipeline
from pipelines.streams.ends import Ends
from pipelines.streams.job import (
    StreamJob,
    StreamRequest,
    _bundles_ended_at_once,
    check_beam,
    with_one_worker,
)
from pipelines.streams.kafka.source import KafkaSource
from pipelines.streams.kafka.writer import KafkaTarget
from pipelines.streams.messages import MessageTexts
from pipelines.streams.options import StreamOptions

MODEL = CustomModel(load=Reverser, fingerprint="reverser")


def job_of(**fields):
    given = {"input": "kafka://a:1/in", "output": "kafka://a:1/out", "group": "g"}
    options = StreamOptions(**{**given, **fields})
    return StreamJob(
        request=StreamRequest(options=options, model=MODEL),
        name="test",
        arguments=tuple(with_one_worker(())),
        ends=Ends(
            sources=(
                KafkaSource(
                    topic=options.source, group="g", config=options.kafka_config, run="test"
                ),
            ),
            target=KafkaTarget(
                output=options.target, dead_letter=options.failed, config=options.kafka_config
            ),
        ),
        model=FoundModel(folder=None, fingerprint="reverser", engine={"name": "custom"}),
        texts=MessageTexts(),
    )


def proto_of(job):
    return job.build(make_pipeline(with_one_worker(()))).to_runner_api(
        default_environment=environments.EmbeddedPythonEnvironment.default()
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--runner=DirectRunner"], ["--runner", "SparkRunner"], ["--runner=DataflowRunner"],
        ["--direct_num_workers=2"], ["--direct_num_workers", "0"],
        ["--direct_running_mode=multi_processing"], ["--direct_runner_bundle_repeat=1"],
    ],
)  # fmt: skip
def test_flags_by_which_messages_would_be_lost_are_refused(arguments, monkeypatch):
    monkeypatch.setattr("pipelines.runners.beam_options.cores", lambda: 2)
    with pytest.raises(UserError, match="leave out --"):
        check_beam(arguments)


@pytest.mark.parametrize(
    "arguments", [[], ["--runner=FnApiRunner"], ["--direct_num_workers=1"], ["--s3_region_name=x"]]
)
def test_other_flags_are_beams(arguments):
    check_beam(arguments)
    assert "--direct_num_workers=1" in with_one_worker(arguments)


def test_the_n_best_need_fields():
    from model.decoding.options import Decoding

    request = StreamRequest(
        options=job_of().request.options, model=MODEL, decoding=Decoding(beam_size=4, n_best=2)
    )
    with pytest.raises(UserError, match="`n_best` needs `fields`"):
        request.plan()


# All from reading to writing is one stage: what is not written is not committed.


def stages_of(proto):
    runner = fn_runner.FnApiRunner()
    _, stages = runner.create_stages(proto)
    return [
        {transform.unique_name for transform in stage.transforms}
        for stage in stages
        if any(t.spec.urn != common_urns.primitives.IMPULSE.urn for t in stage.transforms)
    ]


def test_nothing_between_read_and_write_breaks_their_fusion():
    proto = proto_of(job_of(dead_letter="kafka://a:1/dead"))
    behind_read = [name for name in what_breaks_fusion(proto) if "Create" not in name]
    assert behind_read == []


def test_all_from_read_to_write_is_one_stage_here():
    [stage] = [
        stage
        for stage in stages_of(proto_of(job_of()))
        if any("Write answers" in name for name in stage)
    ]
    for step in ("Messages/Read", "Batch", "Translate messages/Translate", "Write answers/Write"):
        assert any(step in name for name in stage), step


@pytest.mark.parametrize(
    "breaker", [beam.Reshuffle(), beam.GroupByKey()], ids=["reshuffle", "group"]
)
def test_what_breaks_it_is_seen(breaker):
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([(1, 2)]) | "Breaker" >> breaker
    names = what_breaks_fusion(pipeline.to_runner_api())
    assert any("Breaker" in name for name in names)


def test_a_pipeline_is_made_without_a_look_at_the_secrets(tmp_path):
    """What is not read cannot be in it, however it is packed."""
    assert proto_of(job_of(kafka_config=str(tmp_path / "not there"))).components.transforms


def test_the_end_of_a_bundle_waits_for_milliseconds_alone():
    def period():
        return bundle_processor.statesampler.StateSampler("", CounterFactory()).sampling_period_ms

    before = period()
    with _bundles_ended_at_once():
        assert period() <= 5
    assert period() == before == 200
