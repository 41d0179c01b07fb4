"""The requests of both jobs to Dataflow are complete, and contain no data of this machine."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from command_line import last_error, run
from dataflow_service import DATAFLOW, IMAGE, JOB_ID, environment_files
from engine_jobs import preprocess_arguments, translate_arguments, upload
from google.cloud.dataflow_v1beta3.types import FlexResourceSchedulingGoal
from object_store import SECRET

ROOT = Path(__file__).parents[3]
NO_FREEZE = "disable_logging_submission_environment"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def preprocess(folder, object_store):
    return preprocess_arguments(object_store.bucket)


@pytest.fixture
def translate(folder, object_store, model_folder):
    return translate_arguments(object_store.bucket, model_folder)


def submit(arguments, service, *, output="gs://bucket/out", beam=(), options=(*DATAFLOW, *IMAGE)):
    return run(*arguments, "--output", output, *options, "--", *service.arguments, *beam)


def outputs(store, folder, suffix):
    """Return the files below a folder of the bucket, by their names in the folder."""
    return {
        path.removeprefix(folder): content
        for path, content in store.objects(folder).items()
        if path.endswith(suffix)
    }


def check_nothing_of_this_machine(service, folder):
    sent = [service.body, *service.staged.values()]
    for private in (SECRET, str(folder), str(ROOT), sys.prefix, str(Path.home() / ".")):
        assert not [text[:80] for text in sent if private.encode() in text], private
    assert set(service.staged) == {"pipeline.pb"}
    assert len(service.body) < 20_000
    assert len(service.staged["pipeline.pb"]) < 200_000


def check_workers(service, *, threads, experiments):
    [pool] = service.job.environment.worker_pools
    assert {image.container_image for image in pool.sdk_harness_container_images} == {"image:1"}
    images = {
        beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image
        for environment in service.steps().values()
    }
    assert images == {"image:1"}
    assert pool.num_threads_per_worker == threads
    assert pool.machine_type == "n2-standard-4"
    assert set(experiments) <= set(service.job.environment.experiments)
    multiple = "use_multiple_sdk_containers" in service.job.environment.experiments
    assert multiple != ("no_use_multiple_sdk_containers" in experiments)


def test_preprocess(preprocess, folder, object_store, dataflow_service, capsys):
    assert submit(preprocess, dataflow_service) == 0
    said = capsys.readouterr().err
    assert (
        f"Job {JOB_ID} runs on DataflowRunner: https://console.cloud.google.com/dataflow/jobs/"
        f"europe-west4/{JOB_ID}?project=my-project\n"
    ) in said
    check_nothing_of_this_machine(dataflow_service, folder)
    check_workers(dataflow_service, threads=1, experiments=[NO_FREEZE])
    assert dataflow_service.hints() == {}
    assert dict(dataflow_service.job.labels) == {"tt-job": "preprocess", "tt-version": "0_1_0"}
    assert dataflow_service.job.name.startswith("tt-preprocess-")
    assert dataflow_service.asked == ["POST /v1b3/projects/my-project/locations/europe-west4/jobs"]
    assert run(*preprocess, "--output", folder / "here") == 0
    here = {f"/{path.name}": path.read_bytes() for path in (folder / "here").glob("*.tfrecord*")}
    assert len(here) >= 3
    assert outputs(object_store, "gs://bucket/out", "").keys() >= {"/dataset.json"}
    there = outputs(object_store, "gs://bucket/out", "")
    assert {name: there[name] for name in here} == here
    assert not [name for name in there if "_work" in name]


@pytest.mark.headline
def test_translate_batch(translate, folder, object_store, dataflow_service, capsys):
    assert (
        submit(translate, dataflow_service, options=(*DATAFLOW, *IMAGE, "--max-workers", "7")) == 0
    )
    assert "300 of 3 files in 6 units" in capsys.readouterr().err
    check_nothing_of_this_machine(dataflow_service, folder)
    experiments = [NO_FREEZE, "no_use_multiple_sdk_containers"]
    check_workers(dataflow_service, threads=4, experiments=experiments)
    [pool] = dataflow_service.job.environment.worker_pools
    assert pool.autoscaling_settings.max_num_workers == 7
    [(step, hints)] = dataflow_service.hints().items()
    assert step.startswith("Translate units")
    assert int(hints["min_ram_bytes"]) == 3 * 10**9
    assert dict(dataflow_service.job.labels)["tt-job"] == "translate-batch"
    assert run(*translate, "--output", folder / "here") == 0
    here = {f"/{path.name}": path.read_bytes() for path in (folder / "here").glob("*.parquet")}
    assert len(here) == 6
    assert outputs(object_store, "gs://bucket/out", ".parquet") == here


def test_the_model_is_converted_once_and_stored_in_the_bucket_during_the_job(
    translate, folder, object_store, dataflow_service
):
    upload("gs://bucket/terms.tsv", b"one term\tein Begriff\n")
    engine = ("--engine", "ctranslate2", "--glossary", "gs://bucket/terms.tsv")
    assert submit((*translate, *engine), dataflow_service) == 0
    check_nothing_of_this_machine(dataflow_service, folder)
    asked = [request.path for request in object_store.requests if request.kind == "upload"]
    weights = {path for path in asked if path.endswith("/model.bin")}
    assert len(weights) == 1
    assert weights.pop().startswith("gs://bucket/out/_tt/model/")
    assert not [path for path in object_store.objects("gs://bucket/out") if "/_tt/model/" in path]
    assert run(*translate, *engine, "--output", folder / "here") == 0
    here = {f"/{path.name}": path.read_bytes() for path in (folder / "here").glob("*.parquet")}
    assert outputs(object_store, "gs://bucket/out", ".parquet") == here


def test_only_the_translation_step_gets_gpus(translate, dataflow_service):
    dataflow_service.is_run = False
    submit(translate, dataflow_service, options=(*DATAFLOW, *IMAGE, "--accelerator", "nvidia-l4"))
    [(step, hints)] = dataflow_service.hints().items()
    assert step.startswith("Translate units")
    assert hints["accelerator"] == "type:nvidia-l4;count:1;install-nvidia-driver"
    [pool] = dataflow_service.job.environment.worker_pools
    assert (pool.machine_type, pool.num_threads_per_worker) == ("g2-standard-8", 1)


def test_spot_uses_flexible_scheduling_without_hints(translate, dataflow_service):
    dataflow_service.is_run = False
    submit(translate, dataflow_service, options=(*DATAFLOW, *IMAGE, "--spot"))
    environment = dataflow_service.job.environment
    wanted = FlexResourceSchedulingGoal.FLEXRS_COST_OPTIMIZED
    assert environment.flex_resource_scheduling_goal == wanted
    assert dataflow_service.hints() == {}


def test_without_an_image_workers_get_this_tt_and_its_requirements(
    preprocess, folder, dataflow_service, capsys
):
    dataflow_service.is_run = False
    submit(preprocess, dataflow_service, options=DATAFLOW)
    assert (
        "tt: warning: --worker-image is not set, so each worker first installs tt"
        in capsys.readouterr().err
    )
    staged = dataflow_service.staged
    wheel = "tt_translate-0.1.0-py3-none-any.whl"
    assert set(staged) == {"pipeline.pb", "requirements.txt", wheel, "extra_packages.txt"}
    beam = f"apache-beam=={importlib.metadata.version('apache-beam')}"
    assert beam in staged["requirements.txt"].decode().splitlines()
    assert staged["extra_packages.txt"].decode().split() == [wheel]
    with zipfile.ZipFile(BytesIO(staged[wheel])) as archive:
        for name in ("cli/main.py", "pipelines/translate/job.py"):
            assert archive.read(f"tt/{name}") == (ROOT / name).read_bytes()
    for environment in dataflow_service.steps().values():
        files = dict(environment_files(environment))
        assert set(files) == set(staged) - {"pipeline.pb"}
        assert all(place.startswith("gs://bucket/staging/") for place in files.values())
        payload = beam_runner_api_pb2.DockerPayload.FromString(environment.payload)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert payload.container_image.endswith(f"beam_python{version}_sdk:2.77.0")
    sent = [dataflow_service.body, staged["pipeline.pb"]]
    for private in (str(folder), str(ROOT), sys.prefix):
        assert not [text[:80] for text in sent if private.encode() in text], private


def test_refusals_of_the_service_give_a_one_line_error(
    preprocess, object_store, dataflow_service, capsys
):
    message = "(abc): Current user cannot act as service account worker@project"
    dataflow_service.refuses = (403, message)
    assert submit(preprocess, dataflow_service) == 2
    line = last_error(capsys)
    assert message in line
    assert line.endswith(
        "Check the address, the network, your credentials and your permissions, and run the same "
        "command again"
    )
    assert "gs://bucket/out/dataset.json" not in object_store.objects("gs://bucket/out")


def test_a_missing_service_gives_a_one_line_error(preprocess, dataflow_service, capsys):
    endpoint = ("--dataflow_endpoint=http://localhost:1",)
    assert run(*preprocess, "--output", "gs://bucket/o", *DATAFLOW, *IMAGE, "--", *endpoint) == 2
    assert "a server cannot be used (" in last_error(capsys)


def test_a_launched_template_starts_no_job(preprocess, object_store, dataflow_service, capsys):
    template = ("--template_location=gs://bucket/templates/preprocess.json",)
    assert submit(preprocess, dataflow_service, beam=template) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith("tt: DataflowRunner wrote the job's")
    assert dataflow_service.asked == []
    assert "gs://bucket/templates/preprocess.json" in object_store.objects("gs://bucket/templates")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--output", "here"), "--output here is a path on this machine, which Dataflow's workers "
         "cannot reach. Choose a gs:// path"),
        (("--model", "run"), "--model run is a path on this machine, which Dataflow's workers "
         "cannot reach. Choose a gs:// path"),
        (("--staging", "gs://absent/s"), "the bucket gs://absent does not exist. Create it, or "
         "choose another bucket"),
    ],
)  # fmt: skip
def test_refusals_write_nothing(translate, object_store, dataflow_service, capsys, changed, said):
    before = object_store.objects()
    arguments = ["--output", "gs://bucket/out", *DATAFLOW, *IMAGE, *changed]
    assert run(*translate, *arguments, "--", *dataflow_service.arguments) == 2
    assert said in last_error(capsys)
    assert dataflow_service.body is None
    assert object_store.objects() == before
