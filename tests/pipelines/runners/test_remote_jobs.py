"""A job is described as soon as a runner has accepted it, and Ctrl-C cancels it."""

from __future__ import annotations

import threading
import time

import held_runner
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from command_line import TEXTS, run, write_corpus
from held_runner import HeldResult

import tt.cli.main
from tt.pipelines.runners import remote_jobs

pytestmark = pytest.mark.slow

HELD = ("--", "--runner=held_runner.HeldRunner")
GOES_ON = "; run the same command again to resume"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    pq.write_table(pa.table({"text": ["one"]}), "in.parquet")
    monkeypatch.setattr(HeldResult, "cancelled", 0)

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(tt.cli.main.os, "_exit", leave)  # an interrupted command ends with it
    return tmp_path


@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
def test_ctrl_c_cancels_the_job(folder, capsys, command, random_model):
    commands = {"preprocess": TEXTS, "translate-batch": ("in.parquet", "--model", random_model)}
    arguments = commands[command]
    assert run(command, *arguments, *HELD) == 130
    lines = capsys.readouterr().err.splitlines()
    assert lines[-3:] == [
        "Job held-1 runs on HeldRunner",
        "Canceling the job held-1, for at most 60 s",
        f"tt: interrupted, and the job held-1 is canceled{GOES_ON}",
    ]
    assert HeldResult.cancelled == 1


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"ends_as": PipelineState.DONE}, "the job held-1 had already ended as DONE"),
        ({"ends_as": None}, "the job held-1 has not ended yet, and may still run"),
        ({"refuses": OSError("no\nright")},
         "the job held-1 may still run, because it cannot be canceled (no)"),
    ],
)  # fmt: skip
def test_failed_cancellations_are_reported(folder, capsys, monkeypatch, result, said):
    for name, value in result.items():
        monkeypatch.setattr(HeldResult, name, value)
    monkeypatch.setattr(remote_jobs, "CANCEL_SECONDS", 1)
    assert run("preprocess", *TEXTS, *HELD) == 130
    assert capsys.readouterr().err.splitlines()[-1] == f"tt: interrupted, and {said}{GOES_ON}"


def test_a_second_ctrl_c_ends_the_wait(monkeypatch):
    monkeypatch.setattr(HeldResult, "ends_as", None)
    monkeypatch.setattr(HeldResult, "cancelled", 0)
    joins, came_twice = [], threading.Event()

    class Impatient(remote_jobs.threading.Thread):
        def join(self, timeout=None):
            joins.append(HeldResult.cancelled)
            if len(joins) == 2:
                came_twice.set()
            time.sleep(0.02)
            raise KeyboardInterrupt

    def report(line):  # before the runner is asked
        assert came_twice.wait(30)

    monkeypatch.setattr(remote_jobs.threading, "Thread", Impatient)
    interrupt = remote_jobs.cancel(HeldResult(), report=report)
    assert str(interrupt) == "the job held-1 has not ended yet, and may still run"
    assert joins[:2] == [0, 0], "these interrupts are too early to end the wait"
    assert HeldResult.cancelled == 1
    assert str(remote_jobs.cancel(None, report=pytest.fail)) == "", "there was no job"


def test_a_runner_that_does_not_answer_does_not_block_the_user(monkeypatch):
    monkeypatch.setattr(HeldResult, "cancel", lambda result: time.sleep(5))
    monkeypatch.setattr(remote_jobs, "CANCEL_SECONDS", 0.2)
    interrupt = remote_jobs.cancel(HeldResult(), report=lambda line: None)
    assert str(interrupt) == "the job held-1 may still run, because the runner does not answer"


def test_the_launch_of_a_template_is_not_a_failure(folder, capsys):
    runner = ("--", "--runner=held_runner.TemplateRunner")
    assert run("preprocess", *TEXTS, *runner) == 0
    assert capsys.readouterr().err.splitlines()[-1] == (
        "tt: TemplateRunner wrote the job's template and does not start the job. The launcher of "
        "the template starts it"
    )
    assert not (folder / "dataset/dataset.json").exists()


def test_a_job_is_described_with_its_page():
    def describe(runner, *arguments):
        return remote_jobs.describe_job(
            HeldResult(), runner=runner, options=PipelineOptions(list(arguments))
        )

    assert describe("DataflowRunner", "--region=r1", "--project=p") == (
        "Job held-1 runs on DataflowRunner: "
        "https://console.cloud.google.com/dataflow/jobs/r1/held-1?project=p"
    )
    flink = "Job held-1 runs on FlinkRunner"
    assert describe("FlinkRunner", "--flink_master=host:8081") == f"{flink}: http://host:8081"
    assert describe("FlinkRunner", "--flink_master=https://h") == f"{flink}: https://h"
    assert describe("FlinkRunner") == flink
    nameless = held_runner.PipelineResult(PipelineState.DONE)
    line = remote_jobs.describe_job(nameless, runner="FnApiRunner", options=PipelineOptions([]))
    assert line is None
