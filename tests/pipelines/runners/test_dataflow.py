"""The settings of a tt job on Dataflow, unless Beam's flags already have them."""

from __future__ import annotations

import pytest
from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, WorkerOptions

from tt.model.errors import UserError
from tt.pipelines.runners.beam_options import parse_arguments
from tt.pipelines.runners.dataflow import count_cores, translating_hints, with_settings

DATAFLOW = ("--runner=DataflowRunner", "--sdk_container_image=image", "--temp_location=gs://b/t")
NO_FREEZE = "disable_logging_submission_environment"
ONE = "no_use_multiple_sdk_containers"


def settings(arguments, kind, **job):
    return parse_arguments(with_settings(arguments, **job)).view_as(kind)


def test_translation_has_a_thread_per_core_and_a_shared_model():
    translate = {"job": "translate-batch", "shares_model": True}
    debug = settings(DATAFLOW, DebugOptions, **translate)
    assert debug.number_of_worker_harness_threads == 4
    assert debug.experiments == [NO_FREEZE, ONE]
    assert settings(DATAFLOW, WorkerOptions, **translate).machine_type == "n2-standard-4"
    larger = (*DATAFLOW, "--machine_type=n2-highmem-16", "--experiments=mine")
    debug = settings(larger, DebugOptions, **translate)
    assert debug.number_of_worker_harness_threads == 16
    assert debug.experiments == ["mine", NO_FREEZE, ONE]
    unknown = (*DATAFLOW, "--machine_type=mine")
    assert settings(unknown, DebugOptions, **translate).number_of_worker_harness_threads is None


def test_preprocessing_has_a_single_threaded_process_per_core():
    debug = settings(DATAFLOW, DebugOptions, job="preprocess", shares_model=False)
    assert debug.number_of_worker_harness_threads == 1
    assert debug.experiments == [NO_FREEZE]


def test_gpus_get_a_thread_each_and_a_fitting_machine_type():
    def choose(name, *more):
        job = {"job": "translate-batch", "shares_model": True, "accelerator": name}
        return with_settings([*DATAFLOW, *more], **job)

    assert {"--machine_type=g2-standard-8", "--number_of_worker_harness_threads=1"} <= {
        *choose("nvidia-l4")
    }
    assert "--machine_type=n1-standard-4" in choose("nvidia-tesla-t4")
    two = choose("nvidia-l4:2", "--machine_type=g2-standard-24")
    assert "--number_of_worker_harness_threads=2" in two
    for name in ("nvidia-l4:2", "nvidia-tesla-a100"):
        with pytest.raises(UserError, match=r"needs `machine_type`\. Choose a type that supports"):
            choose(name)


def test_the_job_gets_a_name_and_labels():
    google = settings(DATAFLOW, GoogleCloudOptions, job="preprocess", shares_model=False)
    assert google.job_name.startswith("tt-preprocess-")
    assert google.labels == ["tt-job=preprocess", "tt-version=0_1_0"]


def test_given_flags_are_kept():
    given = [
        *DATAFLOW, "--machine_type=e2-standard-2", "--number_of_worker_harness_threads=7",
        f"--experiments={NO_FREEZE},use_multiple_sdk_containers", "--job_name=mine",
        "--labels=tt-job=mine", "--labels=tt-version=mine",
    ]  # fmt: skip
    assert with_settings(given, job="translate-batch", shares_model=True) == given
    for other in ([], ["--runner=FlinkRunner"]):
        assert with_settings(other, job="preprocess", shares_model=False) == other


def test_the_translation_step_requests_memory_and_gpus():
    def hints(*more, model_bytes, accelerator=None):
        arguments, size = [*DATAFLOW, *more], lambda: model_bytes
        return translating_hints(arguments, model_bytes=size, accelerator=accelerator)

    assert hints(model_bytes=0) == {"min_ram": "2GB"}
    assert hints(model_bytes=300_000_000, accelerator="nvidia-l4") == {
        "min_ram": "3GB",
        "accelerator": "type:nvidia-l4;count:1;install-nvidia-driver",
    }
    assert hints("--flexrs_goal=COST_OPTIMIZED", model_bytes=9) == {}
    assert translating_hints([], model_bytes=None, accelerator=None) == {}, (
        "the model's size is not needed"
    )


def test_cores_are_read_from_machine_types():
    known = {
        "n1-standard-1": 1, "n2-standard-4": 4, "e2-highcpu-32": 32, "c3d-highmem-360-lssd": 360,
        "custom-2-4096": 2, "n2-custom-6-8192-ext": 6, "e2-medium": None, "g2-standard-24": 24,
    }  # fmt: skip
    assert {name: count_cores(name) for name in known} == known
    assert count_cores("projects/p/machine") is None
