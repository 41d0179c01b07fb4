"""The options for runners become Beam's flags, and Beam's own flags take precedence."""

from __future__ import annotations

import pytest
from apache_beam.options.pipeline_options import WorkerOptions
from command_line import last_error, run

from tt.model.errors import UserError
from tt.pipelines.runners.beam_options import parse_arguments
from tt.pipelines.runners.options import RunnerOptions

DATAFLOW = {"runner": "dataflow", "project": "p", "region": "r", "staging": "gs://b/s/"}


def test_without_options_no_flags_are_added():
    assert RunnerOptions().arguments() == ()
    assert RunnerOptions().arguments(["--direct_num_workers=2"]) == ("--direct_num_workers=2",)


@pytest.mark.parametrize("command", ["preprocess", "translate-batch", "translate-stream"])
@pytest.mark.parametrize("given", [("--runner", "foo"), ("--", "--runner=foo")])
def test_an_unknown_runner_is_refused_first(capsys, command, given):
    topics = ("kafka://a:1/in", "kafka://a:1/out", "--group", "g")
    places = topics if command == "translate-stream" else ("in.tsv",)
    assert run(command, *places, *given) == 2
    assert capsys.readouterr().err == (
        "tt: error: there is no runner foo. Set --runner to dataflow, flink, another Beam runner "
        "such as portable, or MODULE.CLASS, or remove it to run the job on this machine\n"
    )


def test_a_runner_may_include_its_module():
    runner = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
    assert RunnerOptions(runner=runner).arguments() == (f"--runner={runner}",)


def test_dataflow_options_become_beams_flags():
    options = RunnerOptions(
        **DATAFLOW, worker_image="image", max_workers=9, machine_type="n2-standard-8", spot=True
    )
    assert options.arguments(["--subnetwork=s"]) == (
        "--runner=DataflowRunner",
        "--project=p",
        "--region=r",
        "--temp_location=gs://b/s/temp",
        "--staging_location=gs://b/s/staging",
        "--max_num_workers=9",
        "--machine_type=n2-standard-8",
        "--flexrs_goal=COST_OPTIMIZED",
        "--sdk_container_image=image",
        "--subnetwork=s",
    )


def test_flink_options_become_beams_flags():
    options = RunnerOptions(runner="Flink", flink_master="host:8081", worker_image="image")
    assert options.arguments() == (
        "--runner=FlinkRunner",
        "--flink_master=host:8081",
        "--environment_type=DOCKER",
        "--environment_config=image",
    )


def test_beams_own_flags_take_precedence():
    options = RunnerOptions(**DATAFLOW, machine_type="n2-standard-8", worker_image="image")
    beam = (
        "--runner=DataflowRunner", "--region", "other", "--worker_machine_type=e2-standard-2",
        "--temp_location=gs://mine", "--sdk_container_image=mine",
    )  # fmt: skip
    assert options.arguments(beam) == (
        "--project=p",
        "--staging_location=gs://b/s/staging",
        "--machine_type=n2-standard-8",
        *beam,
    )
    worker = parse_arguments(options.arguments(beam)).view_as(WorkerOptions)
    assert worker.machine_type == "e2-standard-2", "Beam uses the last value"
    flink = RunnerOptions(runner="flink", worker_image="image")
    beam = ("--environment_type=EXTERNAL", "--environment_config=host:1")
    assert flink.arguments(beam) == ("--runner=FlinkRunner", *beam)
    assert RunnerOptions(project="p").arguments(["--runner=dataflowrunner"])[0] == "--project=p"


@pytest.mark.parametrize(
    "docker", [("--environment_type=DOCKER",), ("--environment_type", "docker")]
)
def test_the_worker_image_is_used_unless_beams_flags_have_one(docker):
    flink = RunnerOptions(runner="flink", worker_image="image")
    assert flink.arguments(docker) == (
        "--runner=FlinkRunner",
        "--environment_config=image",
        *docker,
    )
    for own in ("--environment_config=mine", "--environment_options=docker_container_image=mine"):
        assert flink.arguments((*docker, own)) == ("--runner=FlinkRunner", *docker, own)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"region": "r"}, "`region` needs `runner=dataflow`, but the job has another runner. "
         "Choose that runner, or remove `region`"),
        ({"runner": "flink", "spot": True}, "`spot` needs `runner=dataflow`"),
        ({**DATAFLOW, "flink_master": "h:1"}, "`flink_master` needs `runner=flink`"),
        ({"worker_image": "image"}, "`worker_image` is only for other machines"),
        ({"runner": "FnApiRunner", "max_workers": 2}, "`max_workers` needs `runner=dataflow`"),
        ({**DATAFLOW, "spot": True, "accelerator": "nvidia-l4"},
         "`spot` machines have no GPUs. Remove `spot`"),
    ],
)  # fmt: skip
def test_options_for_another_runner_are_refused(fields, said):
    with pytest.raises(UserError) as refused:
        RunnerOptions(**fields).arguments()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max-workers", "0"), "--max-workers must be at least 1. Received: 0"),
        *((("--staging", place), "--staging must be a folder on Google Cloud Storage, "
           f"gs://BUCKET/FOLDER. Received: {place}") for place in ("here", "gs://", "gs:///x")),
        (("--runner", "dataflow", "--project", "p", "--", "--runner=FnApiRunner"), "--project "
         "needs --runner dataflow, but the job has another runner. Choose that runner, or "
         "remove --project"),
        (("--accelerator", "l4"), "--accelerator must be GPU or GPU:NUMBER, such as nvidia-l4 or "
         "nvidia-tesla-t4:2. Received: l4"),
        (("--runner", "dataflow"), "Dataflow needs --project. Set it, for example to PROJECT"),
        (("--runner", "dataflow", "--project", "p"), "Dataflow needs --region. Set it, for example "
         "to europe-west4"),
        (("--runner", "dataflow", "--project", "p", "--region", "r"), "Dataflow needs --staging. "
         "Set it, for example to gs://BUCKET/staging"),
        (("--runner", "dataflow", "--project", "p", "--region", "r", "--", "--temp_location=here"),
         "--staging must be a folder on Google Cloud Storage, gs://BUCKET/FOLDER. Received: here"),
        (("--runner", "dataflow", "--project", "p", "--region", "r", "--", "--temp_location=gs://"),
         "--staging must be a folder on Google Cloud Storage, gs://BUCKET/FOLDER. Received: gs://"),
    ],
)  # fmt: skip
def test_wrong_options_give_a_one_line_error(capsys, flags, said):
    arguments = ("gs://b/in.parquet", "--model", "gs://b/run", "--output", "gs://b/out")
    assert run("translate-batch", *arguments, *flags) == 2
    assert last_error(capsys) == f"tt: error: {said}"
