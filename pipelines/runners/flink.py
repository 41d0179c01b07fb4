"""Complete Beam's flags for a job on Flink, and query a Flink cluster's REST interface."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Sequence
from typing import Any

import requests
from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PortableOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from tt.model.errors import ServiceError, UserError
from tt.pipelines.runners.beam_options import find_runner_name, parse_arguments
from tt.pipelines.runners.dataflow import NO_FREEZE

_CACHE_MILLIS = 600_000  # how long a worker keeps its model between two stages of a job
_TIMEOUT = 15.0  # seconds for a cluster to answer
_ENDED = {
    "FINISHED": PipelineState.DONE,
    "CANCELED": PipelineState.CANCELLED,
    "FAILED": PipelineState.FAILED,
}
_SUBMIT_SECONDS = 5.0  # A job may still appear this long after an interrupted submission.
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class FlinkJob:
    """A job of a Flink cluster."""

    id: str
    state: str  # Flink's own name for the state, such as RUNNING

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in _ENDED


@dataclasses.dataclass(frozen=True)
class FlinkCluster:
    """A Flink cluster, by the address of its job manager's REST interface."""

    url: str

    def overview(self) -> dict[str, Any]:
        """Return the cluster's task managers, slots and version.

        Raises:
          ServiceError: The cluster does not answer.
        """
        return dict(self._ask("GET", "overview"))

    def find_job(self, name: str) -> FlinkJob | None:
        """Return the newest job with a name, or None.

        Raises:
          ServiceError: The cluster does not answer.
        """
        jobs = [job for job in self._ask("GET", "jobs/overview")["jobs"] if job["name"] == name]
        last = max(jobs, key=lambda job: job["start-time"], default=None)
        return FlinkJob(last["jid"], last["state"]) if last else None

    def page(self, job: FlinkJob) -> str:
        """Return the address of a job's page."""
        return f"{self.url}/#/job/running/{job.id}/overview"

    def cancel(self, job: FlinkJob) -> None:
        """Ask the cluster to cancel a job, without waiting for the end of the job.

        Raises:
          ServiceError: The cluster does not answer.
        """
        self._ask("PATCH", f"jobs/{job.id}?mode=cancel")

    def _ask(self, method: str, path: str) -> Any:
        try:
            reply = requests.request(method, f"{self.url}/{path}", timeout=_TIMEOUT)
            reply.raise_for_status()
            return reply.json()
        except requests.RequestException as error:  # including an answer that is not JSON
            raise ServiceError(
                f"there is no Flink cluster at {self.url} ({type(error).__name__}). Start it, or "
                "set `flink_master` to the HOST:PORT of its job manager's page"
            ) from error


def find_cluster(arguments: Sequence[str]) -> FlinkCluster | None:
    """Return the cluster in Beam's flags, or None if Flink runs in the job server's own process.

    Raises:
      UserError: Beam cannot read a flag.
    """
    if find_runner_name(arguments) != "flinkrunner":
        return None
    return cluster_at(parse_arguments(arguments).view_as(FlinkRunnerOptions).flink_master)


def cluster_at(flink_master: str) -> FlinkCluster | None:
    """Return the cluster of Beam's option `flink_master`; see `find_cluster`."""
    master = flink_master.strip()
    if master.startswith("["):  # such as [local]
        return None
    return FlinkCluster((master if "://" in master else f"http://{master}").rstrip("/"))


class FlinkResult(PipelineResult):
    """The result of Beam's job server, corrected by the state of the job on the Flink cluster.

    After a request to cancel a job, the server reports it as canceled at once, although the
    job still runs on Flink.
    """

    def __init__(self, result: PipelineResult, *, cluster: FlinkCluster, name: str) -> None:
        super().__init__(PipelineState.UNKNOWN)
        self._result = result
        self._cluster = cluster
        self._name = name
        self._job_id = result._job_id

    def cancel(self) -> None:
        """Cancel the job on the server and on the cluster."""
        self._result.cancel()
        end = time.monotonic() + _SUBMIT_SECONDS
        while (job := self._cluster.find_job(self._name)) is None and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        if job is not None and not job.has_ended:
            self._cluster.cancel(job)

    @property
    def state(self) -> str:
        """The state in Beam's terms: the cluster's state as soon as the cluster has the job."""
        job = self._cluster.find_job(self._name)
        if job is None:
            return str(self._result.state)
        return str(_ENDED.get(job.state, PipelineState.RUNNING))


def with_settings(arguments: Sequence[str], *, job: str, shares_model: bool) -> list[str]:
    """Add the settings for a tt job on Flink, except settings that the flags already have.

    Args:
      arguments: Beam's own flags.
      job: Name of the job, such as "preprocess".
      shares_model: Whether the threads of a worker share a model. If so, a task manager has one
        worker. Otherwise it has one worker per slot, because threads would share Python's lock.

    Raises:
      ServiceError: The cluster does not answer.
      UserError: The cluster has no slots, or Beam cannot read a flag.
    """
    if find_runner_name(arguments) != "flinkrunner":
        return list(arguments)
    options = parse_arguments(arguments)
    wanted: dict[str, int | str] = {
        "--sdk_worker_parallelism": 1 if shares_model else 0,  # with 0, Beam starts one per core
        "--environment_cache_millis": _CACHE_MILLIS,
    }
    if options.view_as(GoogleCloudOptions).job_name is None:
        wanted["--job_name"] = f"tt-{job}-{uuid.uuid4().hex[:8]}"
    given = {argument.partition("=")[0] for argument in arguments}
    cluster = find_cluster(arguments)
    if cluster is not None and not options.view_as(PortableOptions).job_endpoint:
        found = cluster.overview()
        # Beam itself refuses a version that it does not support.
        wanted["--flink_version"] = ".".join(str(found["flink-version"]).split(".")[:2])
        slots, machines = found["slots-total"], found["taskmanagers"]
        if not slots and "--parallelism" not in given:
            raise UserError(
                f"the Flink cluster at {cluster.url} has no task slots. Start task managers, or "
                "set the number of tasks that the cluster may start with --parallelism after --"
            )
        # Other jobs may keep their slots for hours. If no slot is free, Flink lets this job wait.
        wanted["--parallelism"] = found["slots-available"] or slots
        if slots and not shares_model:
            wanted["--sdk_worker_parallelism"] = -(-slots // machines)
    added = [f"{name}={value}" for name, value in wanted.items() if name not in given]
    if NO_FREEZE not in (options.view_as(DebugOptions).experiments or []):
        added.append(f"--experiments={NO_FREEZE}")
    return [*arguments, *added]
