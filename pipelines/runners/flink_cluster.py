"""A Flink cluster, asked over its REST interface."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import requests
from apache_beam.options.pipeline_options import FlinkRunnerOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from model.errors import ServiceError
from pipelines.runners.beam_options import find_runner_name, parse_arguments

# The master is the job server itself: a cluster in its own process, which ends with it.
_OWN_MASTERS = ("[local]", "[auto]", "[collection]")
_TIMEOUT = 15.0  # seconds that a cluster has to answer
_ENDED = {
    "FINISHED": PipelineState.DONE,
    "CANCELED": PipelineState.CANCELLED,
    "FAILED": PipelineState.FAILED,
}
_SUBMIT_SECONDS = 5.0  # in which a job that was being submitted may still come
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class FlinkJob:
    """A job of a cluster."""

    id: str
    state: str  # Flink's own word, such as RUNNING

    @property
    def has_ended(self) -> bool:
        """Whether it will do nothing more."""
        return self.state in _ENDED


@dataclasses.dataclass(frozen=True)
class FlinkCluster:
    """A cluster, by the address of its job manager's REST interface."""

    url: str

    def overview(self) -> dict[str, Any]:
        """Returns what the cluster has: task managers, slots, version.

        Raises:
          ServiceError: It does not answer.
        """
        return dict(self._ask("GET", "overview"))

    def find_job(self, name: str) -> FlinkJob | None:
        """Returns the job of a name, of several the one that began last; None if there is none.

        Raises:
          ServiceError: The cluster does not answer.
        """
        jobs = [job for job in self._ask("GET", "jobs/overview")["jobs"] if job["name"] == name]
        if not jobs:
            return None
        last = max(jobs, key=lambda job: job["start-time"])
        return FlinkJob(last["jid"], last["state"])

    def page(self, job: FlinkJob) -> str:
        """Returns the address of the page that shows a job."""
        return f"{self.url}/#/job/running/{job.id}/overview"

    def cancel(self, job: FlinkJob) -> None:
        """Asks for the end of a job.

        Raises:
          ServiceError: The cluster does not answer.
        """
        self._ask("PATCH", f"jobs/{job.id}?mode=cancel")

    def _ask(self, method: str, path: str) -> Any:
        try:
            reply = requests.request(method, f"{self.url}/{path}", timeout=_TIMEOUT)
            reply.raise_for_status()
            return reply.json()
        except (requests.RequestException, ValueError) as error:  # no JSON: it is another server
            raise ServiceError(
                f"there is no Flink cluster at {self.url} ({_reason(error)}): start it, or name "
                "the address of its job manager's page, HOST:PORT"
            ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer in {_TIMEOUT:g} s"
    if isinstance(error, requests.ConnectionError):  # whose text is long and says no more
        return "no connection"
    return " ".join(str(error).split())


def find_cluster(arguments: Sequence[str]) -> FlinkCluster | None:
    """Returns the cluster that Beam's flags name, or None where they name none.

    Raises:
      UserError: Beam cannot read a flag.
    """
    if find_runner_name(arguments) != "flinkrunner":
        return None
    master = str(parse_arguments(arguments).view_as(FlinkRunnerOptions).flink_master).strip()
    if master in _OWN_MASTERS:
        return None
    return FlinkCluster((master if "://" in master else f"http://{master}").rstrip("/"))


class FlinkResult(PipelineResult):
    """What Beam's job server says of a job, corrected by the cluster that runs it.

    The server says that a job is cancelled as soon as it is asked to, and Flink goes on with it.
    """

    def __init__(self, result: PipelineResult, *, cluster: FlinkCluster, name: str) -> None:
        super().__init__(PipelineState.UNKNOWN)
        self._result = result
        self._cluster = cluster
        self._name = name
        self._job_id = result._job_id

    def cancel(self) -> None:
        """Asks both for the end of the job."""
        self._result.cancel()
        end = time.monotonic() + _SUBMIT_SECONDS
        while (job := self._cluster.find_job(self._name)) is None and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        if job is not None and not job.has_ended:
            self._cluster.cancel(job)

    @property
    def state(self) -> str:
        """The state in Beam's words: the cluster's, once it has the job."""
        job = self._cluster.find_job(self._name)
        if job is None:
            return str(self._result.state)
        return str(_ENDED.get(job.state, PipelineState.RUNNING))
