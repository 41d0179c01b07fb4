"""A job that a runner was given, and the runner asked whether it still runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.runner import PipelineResult

from model.errors import ServiceError
from pipelines.runners.flink_cluster import FlinkCluster, FlinkResult, find_cluster

_TIMEOUT = 15.0  # seconds that a runner has to answer
_EMBEDDED = "embed"  # a job service in this process
_GOOGLE = ("project", "region", "dataflow_endpoint", "no_auth")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerJob:
    """A job that a runner was given.

    Attributes:
      runner: Name of the runner, such as FlinkRunner.
      name: Name that the job was given.
      id: Name that the runner gave it; None until it has taken it.
      url: Page that shows it.
      place: What the runner is asked by: Beam's options by name.
    """

    runner: str
    name: str
    id: str | None = None
    url: str | None = None
    place: dict[str, Any] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Names the job, its runner and its page."""
        return f"{self.id or self.name} on {self.runner}" + (f" ({self.url})" if self.url else "")

    def is_running(self) -> bool:
        """Asks the runner whether the job still runs, or is about to.

        Raises:
          Exception: The runner cannot be asked: what its client raises, or a ServiceError.
        """
        ask = _ASKED.get(self.runner, _ask_job_service)
        return ask(self)

    @property
    def is_asked_by_id(self) -> bool:
        """Whether the runner knows the job by the name that it gave it."""
        return self.cluster is None

    @property
    def cluster(self) -> FlinkCluster | None:
        """The Flink cluster that it runs on, if it is known."""
        if "flink_master" not in self.place:
            return None
        return find_cluster(
            ["--runner=FlinkRunner", f"--flink_master={self.place['flink_master']}"]
        )

    def check(self, result: PipelineResult) -> PipelineResult:
        """Returns a result that says what has become of the job, and cancels it in earnest."""
        if self.cluster is None:
            return result
        return FlinkResult(result, cluster=self.cluster, name=self.name)

    def find(self) -> RunnerJob | None:
        """Returns the job with its page once it goes on without this process; else None.

        Its runner has said that it has it.
        """
        if self.cluster is None:
            return self
        found = self.cluster.find_job(self.name)
        if found is None:
            return None
        return dataclasses.replace(self, url=self.cluster.page(found))


def new_job(options: PipelineOptions, *, runner: str) -> RunnerJob | None:
    """Returns the job that a runner is about to be given; None if it ends with this process."""
    place = _find_place(options, runner=runner)
    if place is None:
        return None
    name = str(options.view_as(GoogleCloudOptions).job_name)
    return RunnerJob(runner=runner, name=name, place=place)


def _find_place(options: PipelineOptions, *, runner: str) -> dict[str, Any] | None:
    """Returns what a runner is asked by for its jobs; None if they end with this process."""
    portable = options.view_as(PortableOptions)
    if runner == "DataflowRunner":
        google = options.view_as(GoogleCloudOptions)
        return {name: getattr(google, name) for name in _GOOGLE}
    if runner == "FlinkRunner" and not portable.job_endpoint:
        master = str(options.view_as(FlinkRunnerOptions).flink_master)
        return {"flink_master": master} if not master.startswith("[") else None
    if portable.job_endpoint and portable.job_endpoint != _EMBEDDED:
        return {"job_endpoint": portable.job_endpoint}
    return None


def _ask_flink(job: RunnerJob) -> bool:
    if job.cluster is None:
        return _ask_job_service(job)
    found = job.cluster.find_job(job.name)
    return found is not None and not found.has_ended


def _ask_job_service(job: RunnerJob) -> bool:
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
    from apache_beam.runners.portability.portable_runner import TERMINAL_STATES

    endpoint = job.place["job_endpoint"]
    if job.id is None:
        return False  # it has given the job no name, and starts none without
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.GetJobStateRequest(job_id=job.id)
        try:
            state = service.GetState(request, timeout=_TIMEOUT).state
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise ServiceError(f"no job service answers at {endpoint}") from error
            return False  # the service, started anew, does not know the job
    return state not in TERMINAL_STATES


def _ask_dataflow(job: RunnerJob) -> bool:
    from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult
    from apache_beam.runners.runner import PipelineState
    from google.api_core.client_options import ClientOptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import dataflow

    endpoint = (job.place["dataflow_endpoint"] or "").strip().rstrip("/")
    is_here = "localhost" in endpoint  # as Beam tells it: a stand-in, which speaks no gRPC
    client = dataflow.JobsV1Beta3Client(
        credentials=AnonymousCredentials() if job.place["no_auth"] else None,
        client_options=ClientOptions(
            api_endpoint=endpoint if is_here else endpoint.removeprefix("https://") or None
        ),
        transport="rest" if is_here else None,
    )
    place = {"project_id": job.place["project"], "location": job.place["region"]}
    if job.id is None:
        active = dataflow.ListJobsRequest(filter=dataflow.ListJobsRequest.Filter.ACTIVE, **place)
        found = client.list_jobs(active, timeout=_TIMEOUT, retry=None)
        return any(each.name == job.name for each in found)
    asked = dataflow.GetJobRequest(job_id=job.id, **place)
    found = client.get_job(asked, timeout=_TIMEOUT, retry=None)
    state = DataflowPipelineResult.api_jobstate_to_pipeline_state(found.current_state)
    return not PipelineState.is_terminal(state)


_ASKED: dict[str, Callable[[RunnerJob], bool]] = {
    "FlinkRunner": _ask_flink,
    "DataflowRunner": _ask_dataflow,
}
