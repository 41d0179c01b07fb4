"""What Beam and other services raise becomes a line, and nothing that looks like a bug does."""

from __future__ import annotations

import google.api_core.exceptions
import google.auth.exceptions
import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from apache_beam.io.aws.clients.s3.messages import S3ClientError
from apache_beam.runners.portability import portable_runner
from command_line import TEXTS, last_error, run, write_corpus

from model.errors import ServiceError
from pipelines.runners.foreign_errors import explain, explain_submission
from pipelines.runners.runner import make_pipeline

pytestmark = pytest.mark.slow

LOOPBACK = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
NOWHERE = "http://127.0.0.1:1/job-server.jar"  # nothing listens there


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    return tmp_path


@pytest.mark.parametrize("runner", ["flink", "spark"])
def test_a_runner_without_its_jar_says_which_goes_where(folder, capsys, runner):
    name, option = f"{runner.title()}Runner", f"--{runner}_job_server_jar"
    beam = ("--", f"--runner={name}", "--environment_type=LOOPBACK")
    beam = (*beam, f"--jar_cache_dir={folder}/jars")
    assert run("preprocess", *TEXTS, *beam, f"{option}={NOWHERE}") == 2
    assert last_error(capsys) == (
        f"tt: error: {name} needs a jar of Beam's, which could not be fetched from {NOWHERE} "
        "(<urlopen error [Errno 111] Connection refused>): put it at "
        f"{folder}/jars/job-server.jar, or name it behind -- with {option}"
    )
    assert not (folder / "dataset").exists(), "nothing stands in the way of the mended command"
    assert run("preprocess", *TEXTS, *beam, f"{option}=no.jar") == 2
    assert f"there is no jar at no.jar: name that of Beam's job server with {option}" in (
        last_error(capsys)
    )


def test_a_runner_without_java_says_so(folder, capsys):
    (folder / "a.jar").touch()
    beam = ("--", "--runner=FlinkRunner", "--environment_type=LOOPBACK")
    beam = (*beam, "--flink_job_server_jar=a.jar")
    assert run("preprocess", *TEXTS, *beam, "--job_server_java_launcher=./java") == 2
    assert "FlinkRunner needs Java, and there is no program ./java: install it, or" in (
        last_error(capsys)
    )
    assert run("preprocess", *TEXTS, *beam, "--job_server_java_launcher=false") == 2
    assert "the job server of FlinkRunner ended at once, with exit code 1: see that false is" in (
        last_error(capsys)
    )


def test_the_portable_runner_works_in_this_process_if_asked(folder, capsys):
    portable = portable_runner.PortableOptions
    assert make_pipeline(LOOPBACK).options.view_as(portable).job_endpoint == "embed"
    given = make_pipeline([*LOOPBACK, "--job_endpoint=host:1"]).options
    assert given.view_as(portable).job_endpoint == "host:1"
    assert run("preprocess", *TEXTS, "--output", "o", "--", LOOPBACK[0]) == 2
    assert "PortableRunner needs --job_endpoint=HOST:PORT of a job service, or " in (
        last_error(capsys)
    )
    assert not (folder / "o").exists()


def test_a_job_service_that_does_not_answer_keeps_what_is_finished(folder, capsys):
    beam = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
    beam = (*beam, "--job_endpoint=127.0.0.1:1", "--job_server_timeout=1")
    assert run("preprocess", *TEXTS, "--", *beam) == 2
    assert last_error(capsys) == (
        "tt: error: no job service answers at --job_endpoint (FutureTimeoutError): start it, or "
        "name where it listens"
    )
    assert (folder / "dataset/_work").is_dir(), "a job that was lost sight of may still run"
    assert run("preprocess", *TEXTS) == 0


class Lost(grpc.RpcError):
    """As grpc makes one: its text has many lines."""

    def __str__(self):
        return "<_InactiveRpcError of RPC that terminated with:\n\tstatus = UNAVAILABLE\n>"

    def details(self):
        return "Socket\nclosed"


def like(name, text):
    """Makes an error of a class of this name, whose package may not be installed."""
    module, _, kind = name.rpartition(".")
    return type(kind, (Exception,), {"__module__": module})(text)


SERVICES = [
    (google.auth.exceptions.DefaultCredentialsError("no\nkey"), "Google Cloud wants to know who "
     "you are (no key): run `gcloud auth application-default login`, or set "
     "GOOGLE_APPLICATION_CREDENTIALS"),
    (google.auth.exceptions.TransportError("lost"), "Google Cloud cannot be reached (lost): check "
     "the network, and run the same command again"),
    (google.api_core.exceptions.Forbidden("no"), "Google Cloud refused the request (403 no): "
     "check project, bucket and your rights there, and run the same command again"),
    (S3ClientError("Access\nDenied", 403), "Amazon S3 refused the request (Access Denied): "
     "check the bucket and your rights there, and run the same command again"),
    (like("botocore.exceptions.ClientError", "AccessDenied"), "Amazon S3 refused the request "
     "(AccessDenied): check the bucket and your rights there, and run the same command again"),
    (like("botocore.exceptions.BotoCoreError", "no endpoint"), "Amazon S3 cannot be used (no "
     "endpoint): check keys and network, and run the same command again"),
    (requests.ConnectionError("lost"), "a server cannot be reached (lost): check the network, and "
     "run the same command again"),
]  # fmt: skip
JOB_SERVICES = [
    (Lost(), "the job service failed (Socket closed): see that the one at --job_endpoint "
     "runs, and what it has logged"),
    (grpc.FutureTimeoutError(), "no job service answers at --job_endpoint (FutureTimeoutError): "
     "start it, or name where it listens"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "line"), SERVICES + JOB_SERVICES)
def test_services_are_told_by_the_type_of_their_errors(error, line):
    found = explain_submission(error, runner="DataflowRunner", java="java")
    assert isinstance(found, ServiceError)
    assert str(found) == line
    wrapped = RuntimeError("the job failed")
    wrapped.__cause__ = error
    assert str(explain_submission(wrapped, runner="DataflowRunner", java="java")) == line
    if (error, line) in SERVICES:
        assert str(explain(error)) == line
    else:
        assert explain(error) is None, "without a job service it is a bug"


@pytest.mark.parametrize("module", ["pipelines", "pipelines.preprocess", "model", "cli"])
def test_workers_without_tt_are_one_line(module):
    text = f"Traceback ...\nModuleNotFoundError: No module named '{module}'\n\nDuring handling ..."
    found = explain_submission(RuntimeError(text), runner="FlinkRunner", java="java")
    assert str(found).startswith(
        "the workers of FlinkRunner have no tt: build the image of deploy/Dockerfile from this "
    )
    other = RuntimeError(text.replace(f"'{module}'", "'modeling'"))
    assert explain_submission(other, runner="FlinkRunner", java="java") is None


@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
def test_a_job_that_a_runner_refuses_is_one_line(folder, capsys, monkeypatch, command, trained_toy):
    pq.write_table(pa.table({"text": ["one"]}), "in.parquet")
    arguments = {
        "preprocess": TEXTS,
        "translate-batch": ("in.parquet", "--model", trained_toy.run),
    }[command]
    beam = ("--", "--runner=PortableRunner", "--environment_type=LOOPBACK")
    for error, line in (
        (NotImplementedError("no such\nstep"), "PortableRunner cannot take the job (no such step): "
         "choose another --runner"),
        *SERVICES,
        *JOB_SERVICES,
    ):  # fmt: skip

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(portable_runner.PortableRunner, "run_pipeline", fail)
        assert run(command, *arguments, *beam) == 2
        assert last_error(capsys) == f"tt: error: {line}"


def test_what_is_not_known_keeps_its_traceback(folder, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("pipelines.jobs.running.run_pipeline", fail)
    for error in (KeyError("x"), NotImplementedError("a bug of ours"), OSError(5, "disk"), Lost()):
        with pytest.raises(type(error)) as caught:
            run("preprocess", *TEXTS)
        assert caught.value is error


def test_workers_of_another_python_or_beam_are_told_of():
    error = RuntimeError(
        "Pipeline construction environment and pipeline runtime environment are not compatible. "
        "Submission environment: beam:version:sdk_base:apache/beam_python3.11_sdk:2.77.0. Runtime "
        "environment: beam:version:sdk_base:apache/beam_python3.12_sdk:2.76.0."
    )
    assert str(explain_submission(error, runner="FlinkRunner", java="java")) == (
        "the workers of FlinkRunner have Python 3.12 and Beam 2.76.0, and the job was submitted by "
        "Python 3.11 and Beam 2.77.0: give them the same, as by an image of deploy/Dockerfile"
    )


@pytest.mark.parametrize(
    ("runner", "text", "state"),
    [
        ("FlinkRunner", "Pipeline tt-j_1 failed in state FAILED: org.apache.flink.runtime.client."
         "JobCancellationException: Job was cancelled.", "CANCELLED"),
        ("FlinkRunner", "Pipeline tt-j_1 failed in state CANCELLED: ", "CANCELLED"),
        ("DataflowRunner", "Dataflow pipeline failed. State: DRAINED, Error:\nNone", "DRAINED"),
    ],
)  # fmt: skip
def test_a_job_that_somebody_ended_at_its_runner_is_no_bug(runner, text, state):
    found = explain_submission(RuntimeError(text), runner=runner, java="java")
    assert str(found) == (
        f"the job was ended at {runner} ({state}): run the same command again to go on"
    )


def test_a_job_that_failed_by_itself_is_not_taken_for_one_that_was_ended():
    error = RuntimeError("Pipeline tt-j_1 failed in state FAILED: java.lang.RuntimeException: x")
    assert explain_submission(error, runner="FlinkRunner", java="java") is None
