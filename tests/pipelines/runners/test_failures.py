"""Failures of Beam and other services give one-line errors, and bugs keep their traceback."""

from __future__ import annotations

import google.api_core.exceptions
import google.auth.exceptions
import grpc
import pytest
import requests
from apache_beam.runners.portability import portable_runner
from command_line import TEXTS, last_error, run, write_corpus

from tt.model.errors import (
    BadFileError,
    DiskFullError,
    NoAccessError,
    NotFiniteError,
    ServiceError,
    UserError,
)
from tt.pipelines.runners.failures import explain, explain_failure, find_user_error
from tt.pipelines.runners.runner import make_pipeline

pytestmark = pytest.mark.slow

LOOPBACK = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
NOWHERE = "http://127.0.0.1:1/job-server.jar"  # no server listens there


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    return tmp_path


def test_a_runner_without_its_jar_gives_the_reason(folder, capsys):
    beam = ("--", "--runner=FlinkRunner", "--environment_type=LOOPBACK")
    beam = (*beam, f"--jar_cache_dir={folder}/jars", f"--flink_job_server_jar={NOWHERE}")
    assert run("preprocess", *TEXTS, *beam) == 2
    line = last_error(capsys)
    assert line.startswith(
        "tt: error: FlinkRunner did not accept the job (Unable to fetch remote job "
    )
    assert "Connection refused" in line
    assert not (folder / "dataset").exists(), "no folder blocks the corrected command"
    assert run("preprocess", "--verbose", *TEXTS, *beam) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_runner_without_java_gives_a_one_line_error(folder, capsys):
    (folder / "a.jar").touch()
    beam = ("--", "--runner=FlinkRunner", "--environment_type=LOOPBACK")
    beam = (*beam, "--flink_job_server_jar=a.jar")
    assert run("preprocess", *TEXTS, *beam, "--job_server_java_launcher=./java") == 2
    line = last_error(capsys)
    assert line.startswith("tt: error: the job server of FlinkRunner does not start (")
    assert "./java: " in line
    assert run("preprocess", *TEXTS, *beam, "--job_server_java_launcher=false") == 2
    assert "does not start (no reason given). Check --job_server_java_launcher and " in (
        last_error(capsys)
    )


def test_the_portable_runner_can_work_in_this_process(folder, capsys):
    portable = portable_runner.PortableOptions
    assert make_pipeline(LOOPBACK).options.view_as(portable).job_endpoint == "embed"
    given = make_pipeline([*LOOPBACK, "--job_endpoint=host:1"]).options
    assert given.view_as(portable).job_endpoint == "host:1"
    assert run("preprocess", *TEXTS, "--output", "o", "--", LOOPBACK[0]) == 2
    assert "PortableRunner needs a job service, or must work" in last_error(capsys)
    assert not (folder / "o").exists()


def test_a_job_service_that_does_not_answer_keeps_finished_work(folder, capsys):
    beam = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
    beam = (*beam, "--job_endpoint=127.0.0.1:1", "--job_server_timeout=1")
    assert run("preprocess", *TEXTS, "--", *beam) == 2
    assert last_error(capsys) == (
        f"tt: error: the job service cannot be used (FutureTimeoutError). {REMEDY}"
    )
    assert (folder / "dataset/_work").is_dir(), "the job may still run"
    assert run("preprocess", *TEXTS) == 0


class Lost(grpc.RpcError):
    """A gRPC error, whose text has many lines."""

    def __str__(self):
        return "<_InactiveRpcError of RPC that terminated with:\n\tstatus = UNAVAILABLE\n>"

    def details(self):
        return "Socket closed"


def like(name, text):
    """Return an error of a class with this name, whose package may not be installed."""
    module, _, kind = name.rpartition(".")
    return type(kind, (Exception,), {"__module__": module})(text)


REMEDY = (
    "Check the address, the network, your credentials and your permissions, and run the same "
    "command again"
)
SERVICES = [
    (google.auth.exceptions.DefaultCredentialsError("no key"), "Google Cloud", "no key"),
    (google.auth.exceptions.TransportError("lost"), "Google Cloud", "lost"),
    (google.api_core.exceptions.Forbidden("no"), "Google Cloud", "403 no"),
    (requests.ConnectionError("lost"), "a server", "lost"),
    (Lost(), "the job service", "Socket closed"),
    (grpc.FutureTimeoutError(), "the job service", "FutureTimeoutError"),
]


@pytest.mark.parametrize(("error", "service", "reason"), SERVICES)
def test_services_are_recognized_by_the_type_of_their_errors(error, service, reason):
    line = f"{service} cannot be used ({reason}). {REMEDY}"
    found = explain_failure(error, runner="DataflowRunner", is_taken=False)
    assert isinstance(found, ServiceError)
    assert str(found) == line
    wrapped = RuntimeError("the job failed")
    wrapped.__cause__ = error
    assert str(explain_failure(wrapped, runner="DataflowRunner", is_taken=True)) == line
    assert str(explain(error)) == line


def test_unknown_errors_keep_their_traceback(folder, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("tt.pipelines.jobs.running.run_pipeline", fail)
    for error in (KeyError("x"), OSError(5, "disk")):
        with pytest.raises(type(error)) as caught:
            run("preprocess", *TEXTS)
        assert caught.value is error


def test_failed_jobs_are_explained_but_bugs_are_not():
    error = RuntimeError("Traceback ...\nModuleNotFoundError: No module named 'model'\n")
    found = explain_failure(error, runner="FlinkRunner", is_taken=True)
    assert isinstance(found, ServiceError)
    assert str(found) == (
        "the job failed on FlinkRunner or was stopped there (ModuleNotFoundError: No module named "
        "'model'). Run the same command with -v for details"
    )
    assert explain_failure(KeyError("x"), runner="FlinkRunner", is_taken=True) is None


def test_user_errors_are_found_inside_other_errors():
    trace = "Traceback ...\nmodel.errors.{}: why [while running 'Translate-ptransform-1']\n"
    for kind in (UserError, DiskFullError, NoAccessError, NotFiniteError, ServiceError):
        found = find_user_error(RuntimeError(trace.format(kind.__name__)))
        assert (type(found), str(found)) == (kind, "why")
    inner = ValueError("outer")
    inner.__cause__ = UserError("inside")
    assert str(find_user_error(inner)) == "inside"
    assert find_user_error(RuntimeError("ValueError: something else")) is None


def test_user_errors_of_modules_that_are_imported_later_are_recognized():
    class LaterError(BadFileError):
        pass

    error = RuntimeError("Traceback ...\ntt.later.LaterError: a.csv is damaged [while running 'x']")
    found = find_user_error(error)
    assert (type(found), str(found)) == (LaterError, "a.csv is damaged")
    assert find_user_error(RuntimeError("Traceback ...\ntt.later.OtherError: a.csv")) is None
