"""Training and translation on real GPUs; only `make test-gpu` runs this test.

The test suite hides all GPUs from its own process, so the test starts a program that sees them. A
second test runs the program on two logical CPU devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_smoke import SCORE_LIMITS, Table, add_engine

SCRIPT = Path(__file__).parents[2].joinpath("support", "gpu_smoke.py")
VERSIONS = ["tt-translate", "tensorflow", "ctranslate2", "CUDA and cuDNN of tensorflow", "driver",
            "devices", "processor"]  # fmt: skip
ENGINES = {"TensorFlow": ["float32", "bfloat16", "float16"], "CTranslate2": ["float32", "int8"]}


def run_program(kind, folder):
    """Run the program with the GPUs that were visible when pytest started; return its table."""
    hidden = ("CUDA_VISIBLE_DEVICES", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    if visible := os.environ.get("TT_VISIBLE_GPUS"):
        environment["CUDA_VISIBLE_DEVICES"] = visible
    environment["PYTHONPATH"] = str(SCRIPT.parents[2])
    program = [sys.executable, str(SCRIPT), kind, str(folder)]
    subprocess.run(program, env=environment, timeout=5400, check=True)
    return read_rows(folder / "table.md")


def read_rows(path):
    """Return the value, the limit and the result of each measurement, in the table's order."""
    rows = [line.strip("|").split("|") for line in path.read_text().splitlines()[2:]]
    return {name.strip(): [value.strip() for value in values] for name, *values in rows}


@pytest.mark.skipif(
    os.environ.get("TT_REQUIRE_GPU") != "1", reason="`make test-gpu` tests the GPUs of a machine"
)
def test_gpus_compute_like_the_cpu(tmp_path):
    assert "GPU:0 " in run_program("GPU", tmp_path)["devices"][0]


def test_two_cpu_devices_replace_gpus(tmp_path):
    rows = run_program("CPU", tmp_path)
    assert list(rows)[: len(VERSIONS)] == VERSIONS
    assert rows["devices"][0] == "CPU:0, CPU:1"
    assert {result for *_, result in rows.values()} == {"ok"}
    speeds = {name for name, (value, *_) in rows.items() if value.endswith("/s")}
    assert speeds == {
        f"training, {devices}, {compute_type}"
        for devices in ("CPU:1", "CPU:0, CPU:1")
        for compute_type in ("float32", "mixed_bfloat16")
    } | {
        f"translation, {engine}, {compute_type}, 1 device"
        for engine, compute_types in ENGINES.items()
        for compute_type in compute_types
    }


@pytest.mark.parametrize(("difference", "result"), [(0.9, "ok"), (1.1, "FAIL")])
def test_only_scores_within_the_limit_pass(tmp_path, difference, result):
    def load(compute_type, *, is_cpu):
        score = -1.0 if is_cpu else -1.0 - difference * SCORE_LIMITS[compute_type]
        return SimpleNamespace(
            prepare=list,
            score=lambda pairs: [SimpleNamespace(scores=[score, score])] * len(pairs),
            translate=lambda inputs: None,
        )

    table = Table(tmp_path / "table.md")
    add_engine(table, "fake", compute_types=["bfloat16"], sentences=3, load=load)
    results = [values[-1] for values in read_rows(tmp_path / "table.md").values()]
    assert results == [result, "ok"]
    assert table.is_passed == (result == "ok")
