"""A stand-in for Dataflow's service, which accepts a job like Google's API and runs its program.

It implements the REST form of `google.dataflow.v1beta3.JobsV1Beta3`, as far as Beam's client needs
it. It reads the program from the folder to which the client staged it, so that the job fails if the
client did not stage a file.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.environments import EmbeddedPythonEnvironment
from google.cloud.dataflow_v1beta3.types import Job

# Flags that submit a job to Dataflow, and flags that run its workers in an image.
DATAFLOW = (
    "--runner", "dataflow", "--project", "my-project", "--region", "europe-west4",
    "--staging", "gs://bucket/staging",
)  # fmt: skip
IMAGE = ("--worker-image", "image:1")

JOB_ID = "2026-01-02_03_04_05-678"


class DataflowService:
    """A service with one job at a time.

    Attributes:
      endpoint: The address of the service, for `--dataflow_endpoint`.
      arguments: Flags with which `tt` finds the service.
      body: The job that the client requested, as JSON; None before the request.
      refuses: The status and message with which the service refuses a job; None to accept it.
      is_run: Whether the service runs the job before it answers.
    """

    def __init__(self, objects: Callable[[str], dict[str, bytes]]) -> None:
        self._objects = objects
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        # Beam's client uses REST if the host is called localhost.
        self.endpoint = f"http://localhost:{self._server.server_port}"
        self.arguments = (f"--dataflow_endpoint={self.endpoint}",)
        self.body: bytes | None = None
        self.asked: list[str] = []  # methods and paths
        self.refuses: tuple[int, str] | None = None
        self.is_run = True
        self.state = "JOB_STATE_DONE"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def job(self) -> Job:
        """The requested job as the API's own message, which accepts no unknown fields."""
        assert self.body is not None, "no job was submitted"
        return Job(Job.from_json(self.body.decode()))

    @property
    def options(self) -> dict[str, object]:
        """Beam's flags, as the workers get them."""
        return json.loads(self.body)["environment"]["sdkPipelineOptions"]["options"]

    @property
    def staged(self) -> dict[str, bytes]:
        """The files that the client staged, by name."""
        folder = str(self.options["staging_location"])
        return {
            path.rpartition("/")[2]: content
            for path, content in self._objects(folder + "/").items()
        }

    @property
    def program(self) -> beam_runner_api_pb2.Pipeline:
        """The staged program."""
        return beam_runner_api_pb2.Pipeline.FromString(self.staged["pipeline.pb"])

    def steps(self) -> dict[str, beam_runner_api_pb2.Environment]:
        """Return the environment of each step that calls a worker, by the step's name."""
        components = self.program.components
        return {
            step.unique_name: components.environments[step.environment_id]
            for step in components.transforms.values()
            if step.environment_id and not step.subtransforms
        }

    def hints(self) -> dict[str, dict[str, str]]:
        """Return Beam's resource hints by step, for steps with hints."""
        return {
            name: {
                urn.split(":")[2]: value.decode()
                for urn, value in environment.resource_hints.items()
            }
            for name, environment in self.steps().items()
            if environment.resource_hints
        }

    def _run(self) -> None:
        program = self.program
        embedded = EmbeddedPythonEnvironment.default().to_runner_api(None)
        for environment in program.components.environments.values():
            assert environment.urn == common_urns.environments.DOCKER.urn
            environment.CopyFrom(embedded)
        result = FnApiRunner().run_via_runner_api(program, PipelineOptions([]))
        assert result.wait_until_finish() == "DONE"

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, object]]:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        if "/messages" in path:
            return 200, {}
        if method == "POST":
            if self.refuses is not None:
                status, message = self.refuses
                return status, {"error": {"code": status, "message": message}}
            self.body = body
            if self.is_run:
                self._run()
        if method == "PUT":
            self.state = json.loads(body)["requestedState"]
        if self.body is None:  # there is no job
            if path.partition("?")[0].endswith("/jobs"):
                return 200, {}
            return 404, {"error": {"code": 404, "message": "no such job"}}
        asked = json.loads(self.body)
        names = ("name", "clientRequestId")
        known = {name: asked[name] for name in names if name in asked}
        return 200, {"id": JOB_ID, "currentState": self.state, **known}

    def _handler(service) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, content = service._answer(self.command, self.path, body)
                answer = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                """Log nothing."""

        return Handler


def environment_files(environment: beam_runner_api_pb2.Environment) -> Iterator[tuple[str, str]]:
    """Yield the name on the worker, and the location, of each file of an environment."""
    for file in environment.dependencies:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(file.role_payload)
        place = beam_runner_api_pb2.ArtifactUrlPayload.FromString(file.type_payload)
        yield role.staged_name, place.url
