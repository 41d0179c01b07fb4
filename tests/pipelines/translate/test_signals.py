"""`tt translate-batch` after Ctrl-C and SIGTERM: exit codes, and the work that is kept."""

from __future__ import annotations

import json
import signal

import pytest
from commands import Child
from slow_translation import run_tt_slowly
from translation_jobs import files_below, numbered, output_bytes, outputs, read_all, turned, write

IN_A_UNIT = {"where": "fakes:Reverser.translate", "call": 8, "seconds": 1}


@pytest.fixture
def command(tmp_path, random_model):
    source = write(tmp_path / "in.parquet", numbered(100))
    flags = ("--model", str(random_model), "--unit-rows", "5", "--model-copies", "1")
    return ["translate-batch", str(source), *flags]


def run(command, output, *more, **options):
    return Child(run_tt_slowly, [*command, "--output", str(output), *more], **options).wait()


@pytest.mark.parametrize(
    ("name", "codes"), [("SIGINT", {130}), ("SIGTERM", {143, -signal.SIGTERM})]
)
def test_a_stopped_command_resumes_with_the_same_bytes(tmp_path, command, name, codes):
    """The shell turns the end by SIGTERM into the exit code 143."""
    output = tmp_path / "out"
    hook = {**IN_A_UNIT, "signals": [name]}
    ended = run(command, output, hook=hook)
    assert ended.code in codes, ended.lines
    assert not [line for line in ended.lines if "Traceback" in line]
    kept = outputs(output)
    assert 0 < len(kept) < 20
    assert "_tt/manifest.json" not in files_below(output)
    times = {name: (output / name).stat().st_mtime_ns for name in kept}
    assert run(command, output).code == 0
    assert {name: (output / name).stat().st_mtime_ns for name in kept} == times
    assert read_all(output)["translation"].to_pylist() == turned(100)
    assert run(command, tmp_path / "fresh").code == 0
    assert output_bytes(output) == output_bytes(tmp_path / "fresh")


def test_a_watch_finishes_its_run_and_a_second_signal_stops_it(tmp_path, command):
    output = tmp_path / "out"
    hook = {**IN_A_UNIT, "signals": ["SIGTERM", "SIGINT"]}
    ended = run(command, output, "--watch", "0.1s", hook=hook)
    assert ended.code == 130, ended.lines
    assert 0 < len(outputs(output)) < 20
    hook = {**IN_A_UNIT, "signals": ["SIGTERM"]}
    ended = run(command, output, "--watch", "0.1s", hook=hook)
    assert ended.code == 0, ended.lines
    assert json.loads((output / "_tt/manifest.json").read_text())["rows"] == 100
