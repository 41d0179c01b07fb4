"""A job is refused before it starts if its workers cannot reach its files or lack tt."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import TEXTS, last_error, run, write_corpus

from tt.model.errors import UserError
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.runners.beam_options import find_runner_name, with_local_defaults
from tt.pipelines.runners.workers import check_places, check_workers, count_slots

FLINK = ("--runner=FlinkRunner", "--environment_config=image")
DATAFLOW = (
    "--runner", "DataflowRunner", "--sdk_container_image=image", "--project=p", "--region=r",
    "--temp_location=gs://b/t",
)  # fmt: skip
REFUSED = "is a path on this machine, which Dataflow's workers cannot reach. Choose a gs:// path"
NO_TT = (
    "would not have tt. Build an image from deploy/Dockerfile, push it to a registry, and set "
    "`worker_image` to it"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        *([f"--runner={name}"] for name in ("FnApiRunner", "DirectRunner", "prismrunner",
          "BundleBasedDirectRunner", "apache_beam.runners.direct.direct_runner.DirectRunner",
          "SwitchingDirectRunner", "direct", "Prism", "fnapi")),
        ("--runner", "PortableRunner", "--environment_type=LOOPBACK"),
        ("--runner=FlinkRunner", "--environment_type", "LOOPBACK"),
    ],
)  # fmt: skip
def test_workers_on_this_machine_have_its_files_and_tt(arguments):
    assert check_places(arguments, places={"INPUT": ["gs://b/in", "out"]}) == []
    check_workers(arguments)


def test_workers_on_other_machines_have_no_local_files():
    remote = {"`input`": ["gs://b/in"], "`output`": ["s3://b/out"]}
    for arguments in (FLINK, DATAFLOW):
        assert check_places(arguments, places=remote) == []
    [warning] = check_places(FLINK, places=remote | {"`output`": ["/data/out"]})
    assert warning.startswith(
        "`output` /data/out is a path on this machine. The workers of this `runner` must have "
    )
    for loopback in ([], ["--environment_type=LOOPBACK"]):
        with pytest.raises(UserError, match=rf"^`model` run {REFUSED}$"):
            check_places([*DATAFLOW, *loopback], places=remote | {"`model`": ["run"]})


@pytest.mark.parametrize(
    "arguments",
    [
        ("--runner=FlinkRunner",),
        ("--runner=SparkRunner", "--environment_type=docker"),
        ("--runner=PortableRunner", "--job_endpoint=host:1"),
        ("--runner=flink",),
        ("--runner", "Spark"),
    ],
)
def test_beams_own_images_have_no_tt(arguments):
    with pytest.raises(UserError, match=f"^the workers of this `runner` {NO_TT}$"):
        check_workers(arguments)
    for brings_it in ("--setup_file=setup.py", "--extra_package=tt.whl", "--requirements_file=r"):
        check_workers([*arguments, brings_it])


def test_short_names_of_runners_are_completed():
    names = ("flink", "Spark", "direct", "DATAFLOW", "FlinkRunner", "my.module.OtherRunner")
    found = [find_runner_name([f"--runner={name}"]) for name in names]
    assert found == [
        "flinkrunner", "sparkrunner", "directrunner", "dataflowrunner", "flinkrunner",
        "otherrunner",
    ]  # fmt: skip
    assert with_local_defaults(["--runner=direct", "--direct_num_workers=3"])[2:] == [
        "--direct_running_mode=multi_threading"
    ]


def test_workers_may_get_tt_in_many_ways():
    check_workers(DATAFLOW)
    check_workers(FLINK)
    check_workers(["--runner=FlinkRunner", "--environment_options=docker_container_image=image"])
    for environment in ("LOOPBACK", "PROCESS", "EXTERNAL"):
        check_workers(["--runner=FlinkRunner", f"--environment_type={environment}"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (TEXTS, "--output dataset"),
        ((*TEXTS, "--output", "gs://b/o"), "the corpus a.en"),
        ((*TEXTS, "--output", "gs://b/o", "--exclude", "a.en"), "--exclude a.en"),
        (("tfds:x/y", "--output", "gs://b/o", "--data-dir", "d"), "--data-dir d"),
        (("tfds:x/y", "--output", "gs://b/o"), "--data-dir ~/tensorflow_datasets"),
    ],
)
def test_preprocess_on_dataflow_refuses_local_paths(folder, capsys, monkeypatch, arguments, named):
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setattr(
        "tt.pipelines.preprocess.request.check_buckets", lambda paths: None
    )  # no network
    if named.startswith("the corpus"):
        named = f"the corpus {folder}/a.en"  # the path is resolved before the check
    before = sorted(folder.rglob("*"))
    assert run("preprocess", *arguments, "--", *DATAFLOW) == 2
    assert last_error(capsys) == f"tt: error: {named} {REFUSED}"
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
def test_jobs_without_an_image_are_refused_before_they_start(folder, capsys, command):
    arguments = {
        "preprocess": ("gs://b/a.tsv", "--output", "gs://b/o"),
        "translate-batch": ("gs://b/a.parquet", "--model", "gs://b/m", "--output", "gs://b/o"),
    }[command]
    assert run(command, *arguments, "--runner", "flink") == 2
    said = NO_TT.replace("`worker_image`", "--worker-image")
    assert last_error(capsys) == f"tt: error: the workers of this --runner {said}"
    if command == "translate-batch":
        pq.write_table(pa.table({"text": ["one"]}), "in.parquet")
        assert run(command, "in.parquet", "--", *DATAFLOW) == 2
        assert last_error(capsys) == f"tt: error: INPUT in.parquet {REFUSED}"


def test_other_machines_get_absolute_paths_and_the_user_a_warning(folder):
    options = PreprocessOptions(output="dataset", exclude=("a.en",), vocabulary_size=36)

    def plan(*beam):
        request = PreprocessRequest(
            source=("*.en",), target=("a.xx",), options=options, beam_arguments=beam
        )
        return request.plan().plan

    whole = plan(*FLINK)
    assert whole.options.output == f"{folder}/dataset"
    assert whole.options.exclude == (f"{folder}/a.en",)
    assert whole.sources[0].paths() == [f"{folder}/a.en", f"{folder}/a.xx"]
    assert whole.notices[0].startswith("`output` dataset is a path on this machine. The workers")
    here = plan("--runner=PortableRunner", "--environment_type=LOOPBACK")
    assert here.sources[0].paths() == ["a.en", "a.xx"], "relative paths stay relative"
    assert here.fingerprint == plan().fingerprint
    assert not here.notices


def test_slots_are_workers_times_threads():
    dataflow = ("--runner=DataflowRunner", "--max_num_workers=25")
    assert count_slots(["--direct_num_workers=2"]) == 2
    assert count_slots(["--runner=FlinkRunner", "--parallelism=6"]) == 6
    assert count_slots(dataflow) == 25
    assert count_slots((*dataflow, "--number_of_worker_harness_threads=2")) == 50
    assert count_slots(["--runner=PortableRunner", "--job_endpoint=h:1"]) == 1
