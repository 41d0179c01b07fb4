"""Training and translation on real GPUs, if there are any; `make test-gpu` requires them.

The test suite hides all GPUs from its own process, so these tests start another process that sees
them. A second test uses two logical CPU devices instead, to check the test itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tt.model.training.options import COMPUTE_TYPES

SCRIPT = Path(__file__).parents[2].joinpath("support", "gpu_smoke.py")
SECONDS = 1800
# Relative tolerance of losses. GPUs multiply float32 with fewer digits (TensorFloat-32).
TOLERANCE = {"float32": 2e-3, "mixed_bfloat16": 2e-2}
# Absolute tolerance of log-probabilities.
SCORE_TOLERANCE = {"float32": 0.01, "bfloat16": 0.2, "float16": 0.05}


def run_python(*arguments):
    """Run Python in a process that sees the GPUs that were visible when pytest started."""
    environment = {
        name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"
    }
    if visible := os.environ.get("TT_VISIBLE_GPUS"):
        environment["CUDA_VISIBLE_DEVICES"] = visible
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[2])])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip


def check(kind, folder, *compute_types):
    """Train and translate on all devices of a kind, and compare the results with the CPU."""
    ended = run_python(SCRIPT, kind, folder, *compute_types)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads((folder / "found.json").read_text())
    assert found["losses"].keys() == set(compute_types)
    for compute_type, losses in found["losses"].items():
        assert len(set(losses["cpu"])) == 6
        for place in ("one", "all"):
            expected = pytest.approx(losses["cpu"], rel=TOLERANCE[compute_type])
            assert losses[place] == expected, (compute_type, place)
    for compute_type, by_device in found["translations"].items():
        cpu, device = by_device["CPU:0"], by_device[found["devices"][-1]]
        same = [(a[1], b[1]) for a, b in zip(cpu, device, strict=True) if a[0] == b[0]]
        assert len(same) >= 0.8 * len(cpu), compute_type
        for expected, score in same:
            assert score == pytest.approx(expected, abs=SCORE_TOLERANCE[compute_type])
    return found


def test_gpus_train_and_translate_like_the_cpu(tmp_path):
    is_required = os.environ.get("TT_REQUIRE_GPU") == "1"
    if not is_required and not shutil.which("nvidia-smi"):
        pytest.skip("no NVIDIA GPU on this machine: no GPU has been tested")
    ended = run_python(
        "-c", "from tt.model.engines.machine import count_gpus, explain_missing_gpu as explain\n"
        "print(count_gpus(), explain() or 'TensorFlow finds no GPU', sep='|')",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    count, reason = ended.stdout.strip().splitlines()[-1].split("|", 1)
    if not int(count):
        (pytest.fail if is_required else pytest.skip)(f"no GPU has been tested: {reason}")
    found = check("GPU", tmp_path, *COMPUTE_TYPES)
    assert len(found["devices"]) == int(count)


def test_two_cpu_devices_train_and_translate_like_a_single_device(tmp_path):
    found = check("CPU", tmp_path, "mixed_bfloat16")
    assert found["devices"] == ["CPU:0", "CPU:1"]
