"""What a job of tt wants of Dataflow, where no flag of Beam's says otherwise."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Sequence

from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)

from model.errors import UserError
from model.formats.model_card import versions_of
from pipelines.runners.beam_options import is_dataflow, parse_arguments
from pipelines.runners.machines import Accelerator, count_cores, has_bucket
from pipelines.storage.object_stores import look_first

# Else Beam stages the output of `pip freeze`, and the interpreter's path, with every job.
NO_FREEZE = "disable_logging_submission_environment"
# Else Dataflow starts a container for each core, and each loads a model of its own.
_ONE_CONTAINER = "no_use_multiple_sdk_containers"

_MACHINE_TYPE = "n2-standard-4"  # a container with TensorFlow takes more than 1 core's 4 GB
# To which one GPU can be attached; n2 takes none.
_MACHINE_TYPES = {"nvidia-l4": "g2-standard-8", "nvidia-tesla-t4": "n1-standard-4"}
_LONGEST_LABEL = 63  # characters
_GB = 10**9
_PROGRAM_BYTES = 2 * _GB  # of Python with TensorFlow and Beam, without a model
_BYTES_OF_WEIGHTS = 3  # that weights and what is computed take in memory, for each of the file's


def check_options(arguments: Sequence[str]) -> None:
    """Checks that Dataflow is told where to run a job, if it is to run there.

    Raises:
      UserError: It is not, or Beam cannot read a flag.
    """
    if not is_dataflow(arguments):
        return
    options = parse_arguments(arguments)
    google = options.view_as(GoogleCloudOptions)
    where = google.temp_location or google.staging_location
    for name, value, example in (
        ("project", google.project, "PROJECT"),
        ("region", google.region, "europe-west4"),
        ("staging", where, "gs://BUCKET/staging"),
    ):
        if not value:
            raise UserError(f"Dataflow needs `{name}`: give one, such as {example}")
    if not has_bucket(where):
        raise UserError(
            f"Dataflow keeps what it needs of a job at gs://BUCKET/FOLDER. Received: {where}"
        )


def check_staging(arguments: Sequence[str]) -> None:
    """Checks that the bucket is there which Dataflow is to keep a job's program in.

    Beam would try for minutes to write there.

    Raises:
      UserError: It is not, or Beam cannot read a flag.
    """
    if not is_dataflow(arguments):
        return
    options = parse_arguments(arguments)
    google = options.view_as(GoogleCloudOptions)
    folders = [folder for folder in (google.temp_location, google.staging_location) if folder]
    look_first(folders)
    from apache_beam.io.gcp.gcsio import GcsIO, parse_gcs_path

    for bucket in dict.fromkeys(parse_gcs_path(f"{folder}/")[0] for folder in folders):
        if GcsIO(pipeline_options=options).get_bucket(bucket) is None:
            raise UserError(
                f"there is no bucket gs://{bucket}: make it, or choose another `staging`"
            )


def has_tt(options: PipelineOptions) -> bool:
    """Says whether Beam's flags give workers an image, or packages, that may have tt."""
    setup = options.view_as(SetupOptions)
    return bool(
        options.view_as(WorkerOptions).sdk_container_image
        or setup.setup_file
        or setup.extra_packages
        or setup.requirements_file
    )


def with_settings(
    arguments: Sequence[str], *, job: str, shares_model: bool, accelerator: str | None = None
) -> list[str]:
    """Adds what a job of tt wants of Dataflow, where no argument says otherwise.

    Args:
      arguments: Beam's own flags.
      job: What the job is called: "preprocess".
      shares_model: Whether the threads of a worker share a model: then it has one process, with a
        thread for each core or GPU. Else it has a process for each core, with one thread.
      accelerator: GPUs of the workers that translate, "nvidia-l4".

    Raises:
      UserError: Beam cannot read a flag, or no machine type goes with the accelerator by itself.
    """
    if not is_dataflow(arguments):
        return list(arguments)
    options = parse_arguments(arguments)
    added = []
    gpus = Accelerator.parse(accelerator) if accelerator else None
    machine_type = options.view_as(WorkerOptions).machine_type
    if machine_type is None:
        machine_type = _choose_machine_type(gpus)
        added.append(f"--machine_type={machine_type}")
    debug = options.view_as(DebugOptions)
    threads: int | None = 1
    if shares_model:
        threads = gpus.count if gpus else count_cores(machine_type)
    if threads and debug.number_of_worker_harness_threads is None:
        added.append(f"--number_of_worker_harness_threads={threads}")
    given = debug.experiments or []
    experiments = [NO_FREEZE] if NO_FREEZE not in given else []
    is_said = any(name.removeprefix("no_") == _ONE_CONTAINER.removeprefix("no_") for name in given)
    if shares_model and not is_said:
        experiments.append(_ONE_CONTAINER)
    added += [f"--experiments={name}" for name in experiments]
    google = options.view_as(GoogleCloudOptions)
    if google.job_name is None:
        added.append(f"--job_name=tt-{job}-{uuid.uuid4().hex[:8]}")
    version = _as_label(versions_of(["tt-translate"])["tt-translate"])
    labels = {label.partition("=")[0] for label in google.labels or []}
    for name, value in (("tt-job", job), ("tt-version", version)):
        if name not in labels:
            added.append(f"--labels={name}={value}")
    return [*arguments, *added]


def _as_label(text: str) -> str:
    """Returns a text as a label of Google Cloud may be.

    See https://cloud.google.com/resource-manager/docs/labels-overview#requirements.

    >>> _as_label("0.1.0+Local")
    '0_1_0_local'
    """
    return re.sub(r"[^a-z0-9_-]", "_", text.lower())[:_LONGEST_LABEL]


def _choose_machine_type(gpus: Accelerator | None) -> str:
    if gpus is None:
        return _MACHINE_TYPE
    if gpus.count > 1 or gpus.kind not in _MACHINE_TYPES:
        raise UserError(
            f"`accelerator={gpus.kind}:{gpus.count}` needs `machine_type`: name one that takes "
            "such GPUs, as g2-standard-24 does two nvidia-l4"
        )
    return _MACHINE_TYPES[gpus.kind]


def translating_hints(
    arguments: Sequence[str], *, model_bytes: Callable[[], int], accelerator: str | None
) -> dict[str, str]:
    """Returns Beam's resource hints for the step that translates: of no other runner.

    Dataflow has no such hints for jobs of Flexible Resource Scheduling
    (https://cloud.google.com/dataflow/docs/guides/right-fitting).

    Args:
      arguments: Beam's own flags.
      model_bytes: Returns the size of the model's files; called for Dataflow alone.
      accelerator: GPUs of a worker, "nvidia-l4".

    Raises:
      UserError: Beam cannot read a flag.
    """
    if not is_dataflow(arguments):
        return {}
    if parse_arguments(arguments).view_as(GoogleCloudOptions).flexrs_goal:
        return {}
    gigabytes = math.ceil((_PROGRAM_BYTES + _BYTES_OF_WEIGHTS * model_bytes()) / _GB)
    hints = {"min_ram": f"{gigabytes}GB"}
    if accelerator:
        hints["accelerator"] = Accelerator.parse(accelerator).hint
    return hints
