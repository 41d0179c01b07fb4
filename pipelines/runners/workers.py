"""Check that the workers of a job have tt and can reach its files, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    PortableOptions,
    WorkerOptions,
)

from tt.model.engines.machine import cores
from tt.model.errors import UserError, require_text
from tt.model.storage.paths import is_local
from tt.pipelines.runners import dataflow
from tt.pipelines.runners.beam_options import (
    LOCAL_RUNNERS,
    LOOPBACK,
    find_runner_name,
    has_direct_workers,
    is_dataflow,
    local_workers,
    parse_arguments,
)
from tt.pipelines.runners.wheel import describe_wheel

_DOCKER = "DOCKER"  # the default environment of workers


def are_elsewhere(arguments: Sequence[str]) -> bool:
    """Return whether the workers of a job are, or may be, on other machines.

    Raises:
      UserError: Beam cannot read a flag.
    """
    if is_dataflow(arguments):  # Dataflow ignores the environment flags.
        return True
    runner = find_runner_name(arguments)
    return runner not in LOCAL_RUNNERS and _environment(arguments) != LOOPBACK


def count_slots(arguments: Sequence[str]) -> int:
    """Return how many elements a job processes at the same time: its workers times their threads.

    Args:
      arguments: Beam's own flags, including the flags that the job adds.

    Raises:
      UserError: Beam cannot read a flag.
    """
    options = parse_arguments(arguments)
    if has_direct_workers(arguments):
        return local_workers(arguments) or cores()
    if is_dataflow(arguments):
        worker, debug = options.view_as(WorkerOptions), options.view_as(DebugOptions)
        workers = worker.max_num_workers or worker.num_workers or 1
        return int(workers * (debug.number_of_worker_harness_threads or 1))
    return max(1, int(options.view_as(FlinkRunnerOptions).parallelism))


def check_job(arguments: Sequence[str], *, places: Mapping[str, Sequence[str]]) -> list[str]:
    """Check the files, the workers and the runner's options of a job.

    Args:
      arguments: Beam's own flags.
      places: Paths by their names in error messages, such as "`output`" or "the corpus".

    Returns:
      Warnings.

    Raises:
      UserError: Workers cannot reach a file or do not get tt, an option is missing, Beam cannot
        read a flag, or a path is not UTF-8.
    """
    for name, paths in places.items():
        for path in paths:
            require_text(name, path)
    warnings = check_places(arguments, places=places)
    check_workers(arguments)
    dataflow.check_options(arguments)
    return [*warnings, *describe_wheel(arguments)]


def check_places(arguments: Sequence[str], *, places: Mapping[str, Sequence[str]]) -> list[str]:
    """Check that the workers of a job can reach its files; see `check_job`.

    Returns:
      A warning if workers may not have a local path.

    Raises:
      UserError: A path is local and the job runs on Dataflow, or Beam cannot read a flag.
    """
    local = [f"{name} {path}" for name, paths in places.items() for path in paths if is_local(path)]
    if not local or not are_elsewhere(arguments):
        return []
    if is_dataflow(arguments):
        raise UserError(
            f"{local[0]} is a path on this machine, which Dataflow's workers cannot reach. Choose "
            "a gs:// path"
        )
    return [
        f"{local[0]} is a path on this machine. The workers of this `runner` must have the same "
        "file at the same path; otherwise choose a path on a shared file system"
    ]


def check_workers(arguments: Sequence[str]) -> None:
    """Check that the workers of a job have tt, which Beam's own images lack.

    Dataflow's workers always get tt; see `tt.pipelines.runners.wheel`.

    Raises:
      UserError: The workers do not get tt, or Beam cannot read a flag.
    """
    options = parse_arguments(arguments)
    portable = options.view_as(PortableOptions)
    has_image = portable.environment_config or portable.lookup_environment_option(
        "docker_container_image"
    )
    runner = find_runner_name(arguments)
    has_cluster = runner in ("flinkrunner", "sparkrunner") or portable.job_endpoint
    is_docker = _environment(arguments) == _DOCKER
    if has_cluster and is_docker and not has_image and not dataflow.has_packages(options):
        raise UserError(
            "the workers of this `runner` would not have tt. Build an image from "
            "deploy/Dockerfile, push it to a registry, and set `worker_image` to it"
        )


def _environment(arguments: Sequence[str]) -> str:
    """Return the environment of the workers, for runners that offer a choice."""
    portable = parse_arguments(arguments).view_as(PortableOptions)
    return str(portable.environment_type or _DOCKER).upper()
