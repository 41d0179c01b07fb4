"""What a job of tt wants of Flink, where no flag of Beam's says otherwise."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PortableOptions,
)

from model.errors import UserError
from pipelines.runners.beam_options import find_runner_name, parse_arguments
from pipelines.runners.dataflow import NO_FREEZE
from pipelines.runners.flink_cluster import find_cluster

_CACHE_MILLIS = 600_000  # that a worker stays between two stages of a job, with its model


def with_settings(arguments: Sequence[str], *, job: str, shares_model: bool) -> list[str]:
    """Adds what a job of tt wants of Flink, where no argument says otherwise.

    Args:
      arguments: Beam's own flags.
      job: What the job is called: "preprocess".
      shares_model: Whether the threads of a worker share a model: then a task manager has one
        worker, else one for each of its slots, since threads of Python take turns.

    Raises:
      ServiceError: The cluster does not answer.
      UserError: It has no slots, or a version that Beam does not know, or Beam cannot read a flag.
    """
    if find_runner_name(arguments) != "flinkrunner":
        return list(arguments)
    options = parse_arguments(arguments)
    wanted: dict[str, int | str] = {
        "--sdk_worker_parallelism": 1 if shares_model else 0,  # 0: Beam goes by the cores
        "--environment_cache_millis": _CACHE_MILLIS,
    }
    if options.view_as(GoogleCloudOptions).job_name is None:
        wanted["--job_name"] = f"tt-{job}-{uuid.uuid4().hex[:8]}"
    given = {argument.partition("=")[0] for argument in arguments}
    cluster = find_cluster(arguments)
    if cluster is not None and not options.view_as(PortableOptions).job_endpoint:
        found = cluster.overview()
        wanted["--flink_version"] = _find_version(found, url=cluster.url)
        slots, machines = found["slots-total"], found["taskmanagers"]
        if not slots and "--parallelism" not in given:
            raise UserError(
                f"the Flink cluster at {cluster.url} has no task slots: start task managers, or "
                "say behind -- how many tasks it may start by itself, with --parallelism"
            )
        # Other jobs use the rest, maybe for long. If they use all slots, Flink lets the job wait.
        wanted["--parallelism"] = found["slots-available"] or slots
        if slots and not shares_model:
            wanted["--sdk_worker_parallelism"] = -(-slots // machines)
    added = [f"{name}={value}" for name, value in wanted.items() if name not in given]
    if NO_FREEZE not in (options.view_as(DebugOptions).experiments or []):
        added.append(f"--experiments={NO_FREEZE}")
    return [*arguments, *added]


def _find_version(overview: dict[str, Any], *, url: str) -> str:
    version = str(overview["flink-version"])
    known = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    minor = ".".join(version.split(".")[:2])
    if minor not in known:
        raise UserError(
            f"the cluster at {url} is Flink {version}, and this Beam knows {', '.join(known)}: use "
            "a cluster of one of these versions"
        )
    return minor
