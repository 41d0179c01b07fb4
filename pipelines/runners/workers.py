"""Workers of other machines: what they must have and reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    PortableOptions,
    SetupOptions,
    WorkerOptions,
)

from model.engines.machine import cores
from model.errors import UserError
from pipelines.runners.beam_options import (
    LOCAL_RUNNERS,
    LOOPBACK,
    find_runner_name,
    has_direct_workers,
    is_dataflow,
    local_workers,
    parse_arguments,
)
from pipelines.storage.paths import is_local

DOCKER = "DOCKER"  # the environment of workers where none is named


def are_elsewhere(arguments: Sequence[str]) -> bool:
    """Says whether the workers of a job are of other machines, or may be.

    Raises:
      UserError: Beam cannot read a flag.
    """
    runner = find_runner_name(arguments)
    if "dataflow" in runner:  # which knows no other environment than its own
        return True
    return runner not in LOCAL_RUNNERS and find_environment(arguments) != LOOPBACK


def count_slots(arguments: Sequence[str]) -> int:
    """Return how many elements a job works on at the same time: its workers times their threads.

    Args:
      arguments: Beam's own flags, with those that the job adds.

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


def check_places(arguments: Sequence[str], *, places: Mapping[str, Sequence[str]]) -> str | None:
    """Checks that the workers of a job can reach its files, at the paths that the user named.

    Args:
      arguments: Beam's own flags.
      places: Paths by what they are, as messages name it: "`output`", "the corpus".

    Returns:
      A warning where other workers may have no such local path, else None.

    Raises:
      UserError: A path is local and the job runs on Dataflow, or Beam cannot read a flag.
    """
    if not are_elsewhere(arguments):
        return None
    local = (f"{what} {path}" for what, paths in places.items() for path in paths if is_local(path))
    found = next(local, None)
    if found is None:
        return None
    if is_dataflow(arguments):
        raise UserError(
            f"{found} is of this machine, and the workers of Dataflow are others: name a path of "
            "gs://"
        )
    return (
        f"{found} is of this machine: the workers of this `runner` must have the same file under "
        "the same path, else name one of another file system"
    )


def check_workers(arguments: Sequence[str]) -> None:
    """Checks that the workers of a job get `tt`: Beam's own images do not have it.

    Those of Dataflow get it in any case: see `pipelines.runners.wheel`.

    Raises:
      UserError: They do not, or Beam cannot read a flag.
    """
    options = parse_arguments(arguments)
    setup, portable = options.view_as(SetupOptions), options.view_as(PortableOptions)
    if setup.setup_file or setup.extra_packages or setup.requirements_file:
        return  # by which tt may come, too
    runner = find_runner_name(arguments)
    has_cluster = runner in ("flinkrunner", "sparkrunner") or portable.job_endpoint
    has_image = portable.environment_config or portable.lookup_environment_option(
        "docker_container_image"
    )
    if has_cluster and find_environment(arguments) == DOCKER and not has_image:
        raise UserError(
            "the workers of this `runner` would have no tt: build the image of deploy/Dockerfile, "
            "push it to a registry, and name it with `worker_image`"
        )


def find_environment(arguments: Sequence[str]) -> str:
    """Returns in what the workers of a runner that has a choice run, such as DOCKER.

    Raises:
      UserError: Beam cannot read a flag.
    """
    portable = parse_arguments(arguments).view_as(PortableOptions)
    return str(portable.environment_type or DOCKER).upper()
