"""Run Beam's job server for Flink in a process that Ctrl-C in a terminal does not reach.

Beam would start the server in the process group of tt, so Ctrl-C would also end the server. Without
the server, tt could not cancel the job.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner

from tt.model.errors import UserError

_START_SECONDS = 120.0  # for Java to start the server
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1

# A shell script that runs a command. It kills the command if stdin closes, which also happens if
# the parent process is killed.
_RUN_UNTIL_STDIN_CLOSES = (
    'exec 3<&0; "$@" 3<&- & child=$!; { cat <&3; kill "$child"; } >/dev/null 2>&1 & wait "$child"'
)


@contextlib.contextmanager
def job_server(options: PipelineOptions) -> Iterator[None]:
    """Start Beam's job server if a Flink job has none, and add its address to the options.

    Raises:
      UserError: The server does not start.
      Exception: Beam does not find the jar.
    """
    portable, flink = options.view_as(PortableOptions), options.view_as(FlinkRunnerOptions)
    if portable.job_endpoint or flink.flink_submit_uber_jar or portable.output_executable_path:
        yield  # Beam needs no server
        return
    flink.flink_master = FlinkRunner.add_http_scheme(flink.flink_master)
    with tempfile.TemporaryDirectory(prefix="tt-flink-") as folder:
        server = options.view_as(JobServerOptions)
        server.artifacts_dir = server.artifacts_dir or f"{folder}/artifacts"
        command, endpoint = FlinkJarJobServer(options).subprocess_cmd_and_endpoint()
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", _RUN_UNTIL_STDIN_CLOSES, "sh", *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait(process, endpoint=endpoint, log=log)
            portable.job_endpoint = endpoint
            yield
        finally:
            portable.job_endpoint = None
            _stop(process)


def _wait(process: subprocess.Popen[bytes], *, endpoint: str, log: Path) -> None:
    host, _, port = endpoint.rpartition(":")
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(_POLL_SECONDS)
    last_line = log.read_text("utf-8", errors="replace").strip().rpartition("\n")[2]
    raise UserError(
        f"the job server of FlinkRunner does not start ({last_line or 'no reason given'}). Check "
        "--job_server_java_launcher and --flink_job_server_jar after --"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # the server has its own process group
        process.wait()
