"""Beam's job server ends with the process that started it, but not with Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from commands import Child

from tt.model.errors import UserError
from tt.pipelines.runners.flink_server import job_server

# A fake for Java: writes its process ID, and then listens on the given port.
JAVA = f"""#!{sys.executable}
import os, pathlib, socket, sys, time
arguments = sys.argv
if "broken" in arguments[2]:
    sys.exit("Error: Invalid or corrupt jarfile broken.jar")
port = int(arguments[arguments.index("--job-port") + 1])
pathlib.Path(__file__ + ".pid").write_text(str(os.getpid()))
server = socket.create_server(("127.0.0.1", port))
time.sleep(600)
"""


@pytest.fixture
def java(tmp_path):
    path = tmp_path / "java"
    path.write_text(JAVA)
    path.chmod(0o755)
    (tmp_path / "server.jar").touch()
    (tmp_path / "broken.jar").touch()
    return path


def options(java, jar="server.jar", *more):
    return PipelineOptions(
        ["--runner=FlinkRunner", "--flink_master=host:8081", *more,
         f"--job_server_java_launcher={java}", f"--flink_job_server_jar={java.parent / jar}"]
    )  # fmt: skip


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(process):
    end = time.monotonic() + 20
    while is_running(process):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_server_runs_during_the_block(java):
    given = options(java)
    with job_server(given):
        assert given.view_as(PortableOptions).job_endpoint.startswith("localhost:")
        process = int(java.with_name("java.pid").read_text())
        assert is_running(process)
        assert os.getpgid(process) != os.getpgid(0), "Ctrl-C in a terminal does not reach it"
    assert given.view_as(PortableOptions).job_endpoint is None
    wait_for_end(process)


def test_a_given_job_service_is_used(java):
    given = options(java, "server.jar", "--job_endpoint=host:1")
    with job_server(given):
        assert not java.with_name("java.pid").exists()
    assert given.view_as(PortableOptions).job_endpoint == "host:1"


def serve(java):
    with job_server(options(java)):
        java.with_name("up").touch()
        time.sleep(600)


@pytest.mark.slow
def test_a_server_ends_when_its_parent_is_killed(java):
    starter = Child(serve, java)
    end = time.monotonic() + 60
    while not java.with_name("up").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    process = int(java.with_name("java.pid").read_text())
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    wait_for_end(process)


def test_a_server_that_does_not_start_gives_a_one_line_error(java, tmp_path):
    with pytest.raises(UserError) as told, job_server(options(java, "broken.jar")):
        pass
    assert str(told.value) == (
        "the job server of FlinkRunner does not start (Error: Invalid or corrupt jarfile "
        "broken.jar). Check --job_server_java_launcher and --flink_job_server_jar after --"
    )
    absent = tmp_path / "absent"
    with (
        pytest.raises(UserError, match=rf"{absent}: (No such|not found)"),
        job_server(options(absent)),
    ):
        pass
