"""Check and complete Beam's flags for a job on Dataflow.

See https://cloud.google.com/compute/docs/general-purpose-machines for machine types, and
https://cloud.google.com/dataflow/docs/gpu/use-gpus for accelerators.
"""

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

from tt.model.errors import UserError
from tt.model.formats.model_card import versions_of
from tt.model.storage.stores import check_buckets
from tt.pipelines.runners.beam_options import is_dataflow, parse_arguments
from tt.pipelines.runners.options import check_staging_folder, parse_accelerator

# Without this experiment, Beam stages the output of `pip freeze`, and the interpreter's path, with
# every job.
NO_FREEZE = "disable_logging_submission_environment"
# Without this experiment, Dataflow starts a container per core, and each container loads its own
# model.
_ONE_CONTAINER = "no_use_multiple_sdk_containers"

# This type has 16 GB. A container with TensorFlow needs more than 4 GB, the memory per core.
_MACHINE_TYPE = "n2-standard-4"
# Machine types to which one GPU can be attached. n2 machines cannot have GPUs.
_MACHINE_TYPES = {"nvidia-l4": "g2-standard-8", "nvidia-tesla-t4": "n1-standard-4"}
# Finds the cores of a machine type, such as "n2-standard-8" and "n2-custom-6-8192".
_CORES = re.compile(r"(?:^|-)(?:custom-)?(\d+)(?:-\d+)?(?:-[a-z]+)?$")
_LONGEST_LABEL = 63  # characters
_GB = 10**9
_PROGRAM_BYTES = 2 * _GB  # memory for Python with TensorFlow and Beam, without a model
_BYTES_OF_WEIGHTS = 3  # bytes of weights and activations in memory, per byte of the model's files


def check_options(arguments: Sequence[str]) -> None:
    """Check that a job on Dataflow has a project, a region and a staging folder.

    Raises:
      UserError: An option is missing or wrong, or Beam cannot read a flag.
    """
    if not is_dataflow(arguments):
        return
    google = parse_arguments(arguments).view_as(GoogleCloudOptions)
    staging = google.temp_location or google.staging_location
    for name, value, example in (
        ("project", google.project, "PROJECT"),
        ("region", google.region, "europe-west4"),
        ("staging", staging, "gs://BUCKET/staging"),
    ):
        if not value:
            raise UserError(f"Dataflow needs `{name}`. Set it, for example to {example}")
    check_staging_folder(staging)


def check_staging(arguments: Sequence[str]) -> None:
    """Check that the bucket for the job's program exists; otherwise Beam would retry for minutes.

    Raises:
      UserError: There is no such bucket, or Beam cannot read a flag.
    """
    if not is_dataflow(arguments):
        return
    options = parse_arguments(arguments)
    google = options.view_as(GoogleCloudOptions)
    folders = [folder for folder in (google.temp_location, google.staging_location) if folder]
    check_buckets(folders)


def has_packages(options: PipelineOptions) -> bool:
    """Return whether Beam's flags make workers install packages, which may include tt."""
    setup = options.view_as(SetupOptions)
    return bool(setup.setup_file or setup.extra_packages or setup.requirements_file)


def with_settings(
    arguments: Sequence[str], *, job: str, shares_model: bool, accelerator: str | None = None
) -> list[str]:
    """Add the settings for a tt job on Dataflow, except settings that the flags already have.

    Args:
      arguments: Beam's own flags.
      job: Name of the job, such as "preprocess".
      shares_model: Whether the threads of a worker share a model. If so, a worker has one process
        with a thread per core or GPU. Otherwise it has a process per core, with one thread each.
      accelerator: GPUs of each worker that translates, such as "nvidia-l4".

    Raises:
      UserError: Beam cannot read a flag, or the accelerator needs a machine type.
    """
    if not is_dataflow(arguments):
        return list(arguments)
    options = parse_arguments(arguments)
    google, debug = options.view_as(GoogleCloudOptions), options.view_as(DebugOptions)
    kind, gpus = parse_accelerator(accelerator) if accelerator else (None, 0)
    added = []
    machine_type = options.view_as(WorkerOptions).machine_type
    if machine_type is None:
        if gpus > 1 or (kind and kind not in _MACHINE_TYPES):
            raise UserError(
                f"`accelerator={kind}:{gpus}` needs `machine_type`. Choose a type that supports "
                "these GPUs, such as g2-standard-24 for two nvidia-l4"
            )
        machine_type = _MACHINE_TYPES[kind] if kind else _MACHINE_TYPE
        added.append(f"--machine_type={machine_type}")
    threads = (gpus or count_cores(machine_type)) if shares_model else 1
    if threads and debug.number_of_worker_harness_threads is None:
        added.append(f"--number_of_worker_harness_threads={threads}")
    for experiment in [NO_FREEZE, *([_ONE_CONTAINER] if shares_model else [])]:
        given = {name.removeprefix("no_") for name in debug.experiments or []}
        if experiment.removeprefix("no_") not in given:
            added.append(f"--experiments={experiment}")
    if google.job_name is None:
        added.append(f"--job_name=tt-{job}-{uuid.uuid4().hex[:8]}")
    version = _as_label(versions_of(["tt-translate"])["tt-translate"])
    labels = {label.partition("=")[0] for label in google.labels or []}
    for name, value in (("tt-job", job), ("tt-version", version)):
        if name not in labels:
            added.append(f"--labels={name}={value}")
    return [*arguments, *added]


def count_cores(machine_type: str) -> int | None:
    """Return the virtual cores of a machine type, or None if its name has no number of cores.

    >>> count_cores("n2-standard-8"), count_cores("n2-custom-6-8192"), count_cores("e2-medium")
    (8, 6, None)
    """
    found = _CORES.search(machine_type)
    return int(found[1]) if found else None


def _as_label(text: str) -> str:
    """Convert a text to a label of Google Cloud.

    See https://cloud.google.com/resource-manager/docs/labels-overview#requirements.

    >>> _as_label("0.1.0+Local")
    '0_1_0_local'
    """
    return re.sub(r"[^a-z0-9_-]", "_", text.lower())[:_LONGEST_LABEL]


def translating_hints(
    arguments: Sequence[str], *, model_bytes: Callable[[], int], accelerator: str | None
) -> dict[str, str]:
    """Return Beam's resource hints for the step that translates; only Dataflow gets hints.

    Dataflow does not support these hints for jobs of Flexible Resource Scheduling
    (https://cloud.google.com/dataflow/docs/guides/right-fitting).

    Args:
      arguments: Beam's own flags.
      model_bytes: Returns the size of the model's files; called only for Dataflow.
      accelerator: GPUs per worker, such as "nvidia-l4".

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
        kind, count = parse_accelerator(accelerator)
        hints["accelerator"] = f"type:{kind};count:{count};install-nvidia-driver"
    return hints
