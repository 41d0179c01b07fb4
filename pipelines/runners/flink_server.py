"""Beam's job server for Flink, in a process that a terminal's Ctrl-C does not reach.

Beam starts it in the process group of `tt` and ends it on Ctrl-C: then there is nobody left to
cancel the job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner

from model.errors import UserError

_START_SECONDS = 120.0  # that Java has to start it
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1

# Runs a command until it ends or the pipe of this shell's input does, which is when whoever started
# it has ended, in whatever way.
_WATCHED = (
    'exec 3<&0; "$@" 3<&- & child=$!; { cat <&3; kill "$child"; } >/dev/null 2>&1 & wait "$child"'
)


@contextlib.contextmanager
def job_server(options: PipelineOptions) -> Iterator[None]:
    """Starts Beam's job server, if a Flink job has none, and puts its address into the options.

    Raises:
      UserError: There is no Java, or it cannot run the jar.
      Exception: Beam does not find the jar.
    """
    portable, flink = options.view_as(PortableOptions), options.view_as(FlinkRunnerOptions)
    if portable.job_endpoint or flink.flink_submit_uber_jar or portable.output_executable_path:
        yield  # Beam needs none
        return
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if shutil.which(java) is None:
        raise UserError(
            f"FlinkRunner needs Java, and there is no program {java}: install it, or name it "
            "behind -- with --job_server_java_launcher"
        )
    flink.flink_master = FlinkRunner.add_http_scheme(flink.flink_master)
    with tempfile.TemporaryDirectory(prefix="tt-flink-") as folder:
        server = options.view_as(JobServerOptions)
        server.artifacts_dir = server.artifacts_dir or f"{folder}/artifacts"
        command, endpoint = FlinkJarJobServer(options).subprocess_cmd_and_endpoint()
        log = Path(folder) / "log"
        process = _start(command, log=log)
        try:
            _wait(process, endpoint=endpoint, log=log, java=java)
            portable.job_endpoint = endpoint
            yield
        finally:
            portable.job_endpoint = None
            _stop(process)


def _start(command: list[Any], *, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            ["sh", "-c", _WATCHED, "sh", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], *, endpoint: str, log: Path, java: str) -> None:
    host, _, port = endpoint.rpartition(":")
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise UserError(
                f"the job server of FlinkRunner ended at once, with exit code {process.returncode}"
                f"{_last_line(log)}: see that {java} is a Java that runs it, and "
                "--flink_job_server_jar its jar"
            )
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(_POLL_SECONDS)
    raise UserError(
        f"the job server of FlinkRunner does not answer at {endpoint}{_last_line(log)}: run the "
        "same command again"
    )


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return f" ({lines[-1].strip()})" if lines else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # a group of its own
        process.wait()
