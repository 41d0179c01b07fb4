"""Store the job of a folder in a file, so that no second job starts while it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from typing import Any

import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult
from apache_beam.runners.portability.portable_runner import TERMINAL_STATES
from apache_beam.runners.runner import PipelineResult, PipelineState
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import dataflow

from tt.model.errors import ServiceError, UserError, first_line
from tt.model.storage import files, listing
from tt.pipelines.runners.flink import FlinkCluster, FlinkResult, cluster_at
from tt.pipelines.runners.remote_jobs import JobHandedOver

JOB_FILE = "job.json"
_TIMEOUT = 15.0  # seconds for a runner to answer
_POLL_SECONDS = 0.5
_EMBEDDED = "embed"  # a job service in this process
_GOOGLE = ("project", "region", "dataflow_endpoint", "no_auth")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerJob:
    """A job that was submitted to a runner.

    Attributes:
      runner: Name of the runner, such as FlinkRunner.
      name: Name of the job.
      id: ID that the runner assigned; None until the runner has accepted the job.
      url: Page of the job.
      place: Beam's options with the address of the service that knows the job, by name.
    """

    runner: str
    name: str
    id: str | None = None
    url: str | None = None
    place: dict[str, Any] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Return the job's ID, its runner and its page."""
        return f"{self.id or self.name} on {self.runner}" + (f" ({self.url})" if self.url else "")

    def is_running(self) -> bool:
        """Ask the runner whether the job runs or is about to run.

        Raises:
          Exception: The runner does not answer. The error is a ServiceError or comes from its
            client.
        """
        if self.cluster is not None:
            found = self.cluster.find_job(self.name)
            return found is not None and not found.has_ended
        if self.runner == "DataflowRunner":
            return _runs_on_dataflow(self)
        return _runs_on_job_service(self)

    @property
    def cluster(self) -> FlinkCluster | None:
        """The Flink cluster that runs the job, or None."""
        return cluster_at(self.place["flink_master"]) if "flink_master" in self.place else None

    def check(self, result: PipelineResult) -> PipelineResult:
        """Return a result that has the true state of the job and whose `cancel` ends the job."""
        if self.cluster is None:
            return result
        return FlinkResult(result, cluster=self.cluster, name=self.name)

    def find(self) -> RunnerJob | None:
        """Return the job with its page, or None if it still depends on this process."""
        if self.cluster is None:
            return self
        found = self.cluster.find_job(self.name)
        if found is None:
            return None
        return dataclasses.replace(self, url=self.cluster.page(found))


def new_job(options: PipelineOptions, *, runner: str) -> RunnerJob | None:
    """Return the job that a runner is about to get, or None if the job ends with this process."""
    portable, google = options.view_as(PortableOptions), options.view_as(GoogleCloudOptions)
    master = options.view_as(FlinkRunnerOptions).flink_master
    endpoint = portable.job_endpoint
    if runner == "DataflowRunner":
        place = {name: getattr(google, name) for name in _GOOGLE}
    elif endpoint and endpoint != _EMBEDDED:
        place = {"job_endpoint": endpoint}
    elif runner == "FlinkRunner" and not endpoint and cluster_at(master):
        place = {"flink_master": master}
    else:
        return None
    return RunnerJob(runner=runner, name=str(google.job_name), place=place)


def _runs_on_job_service(job: RunnerJob) -> bool:
    endpoint = job.place["job_endpoint"]
    if job.id is None:
        return False  # A service assigns an ID before it starts a job.
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.GetJobStateRequest(job_id=job.id)
        try:
            state = service.GetState(request, timeout=_TIMEOUT).state
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise ServiceError(f"no job service answers at {endpoint}") from error
            return False  # The service restarted, and no longer knows the job.
    return state not in TERMINAL_STATES


def _runs_on_dataflow(job: RunnerJob) -> bool:
    endpoint = (job.place["dataflow_endpoint"] or "").strip().rstrip("/")
    is_here = "localhost" in endpoint  # Beam also uses REST for this name.
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


@dataclasses.dataclass(frozen=True)
class JobFile:
    """The file that stores the job of a folder."""

    folder: str  # the folder of the job's own files

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self.folder}/{JOB_FILE}"

    def write(self, job: RunnerJob) -> None:
        """Write the job atomically."""
        text = json.dumps(dataclasses.asdict(job), indent=2) + "\n"
        files.write_text(self.path, text, temporary_folder=self.folder)

    def read(self) -> RunnerJob | None:
        """Read the job, or return None if there is no file.

        Raises:
          UserError: The file is damaged.
        """
        if not listing.exists(self.path):
            return None
        try:
            return RunnerJob(**json.loads(files.read_bytes(self.path)))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{self.path} is damaged. Check that no job runs for its folder, delete the "
                "file, and run the same command again"
            ) from error

    def delete(self) -> None:
        """Delete the file, if it exists."""
        if listing.exists(self.path):
            files.delete([self.path])

    def check_no_job_runs(self) -> None:
        """Check that no job runs for the folder.

        Raises:
          UserError: The job runs, or its runner does not answer.
        """
        job = self.read()
        if job is None:
            return
        try:
            is_running = job.is_running()
        except Exception as error:  # each client has its own errors
            raise ServiceError(
                f"the job {job.describe()} may still write to the folder, but its runner does not "
                f"answer: {first_line(error)}. If the job has ended, delete {self.path} and run "
                "the same command again"
            ) from error
        if is_running:
            raise UserError(
                f"the job {job.describe()} still runs for this folder. Wait for its end or cancel "
                "it, then run the same command again"
            )


class JobNote:
    """Stores a job in its file while the job may run; the `with` block is the run.

    Args:
      job: The job, or None if it ends with this process and therefore needs no file.
      file: The file, or None to store nothing.
    """

    def __init__(self, job: RunnerJob | None, *, file: JobFile | None) -> None:
        self.job = job
        self._file = file

    def __enter__(self) -> JobNote:
        self._write()  # before the runner has the job, so that no second job can start in between
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.job is None or self._file is None or isinstance(error, JobHandedOver):
            return
        with contextlib.suppress(Exception):  # on an error, the next run asks the runner
            if error is None or not self.job.is_running():
                self._file.delete()

    def set_id(self, name: str | None) -> None:
        """Store the runner's ID of the job, unless Flink knows the job by its name."""
        if self.job is not None and self.job.cluster is None:
            self.job = dataclasses.replace(self.job, id=name)
            self._write()

    def leave(self, result: PipelineResult) -> None:
        """Wait until the job no longer depends on this process; return only if the job ends first.

        Raises:
          JobHandedOver: The runner has the job.
        """
        assert self.job is not None
        while not PipelineState.is_terminal(result.state):
            if found := self.job.find():
                self.job = found
                self._write()
                then = "Run the same command later to see whether the job is finished"
                if self._file is None:
                    then = "To end the job, cancel it on its runner"
                raise JobHandedOver(
                    f"the job {self.job.describe()} continues without this process. {then}"
                )
            time.sleep(_POLL_SECONDS)

    def _write(self) -> None:
        if self.job is not None and self._file is not None:
            self._file.write(self.job)
