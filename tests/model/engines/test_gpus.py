"""GPUs of a machine, also those that TensorFlow does not find; this machine needs none."""

from __future__ import annotations

import io
import os
import platform
import sys

import pytest
import tensorflow as tf

from tt.cli.main import main
from tt.model.engines import machine as machine_module
from tt.model.engines.machine import (
    cores,
    describe_machine,
    explain_missing_gpu,
    let_memory_grow,
)

THERE = "this machine has an NVIDIA GPU, but TensorFlow finds none. Install its libraries "


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with a GPU that TensorFlow does not find, and nothing to hide it."""
    (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(machine_module, "_NVIDIA", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    explain_missing_gpu.cache_clear()
    yield monkeypatch
    explain_missing_gpu.cache_clear()


def test_a_gpu_that_is_not_found_is_explained(machine):
    assert explain_missing_gpu() == (
        f"{THERE}with {sys.executable} -m pip install 'tensorflow[and-cuda]==2.21.*', or see "
        "`tt doctor -v`"
    )


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_the_user_hides_are_not_missed(machine, hidden):
    machine.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert explain_missing_gpu() is None


def test_a_gpu_that_is_found_is_not_missed(machine):
    machine.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0"])
    assert explain_missing_gpu() is None


def test_a_machine_without_a_gpu_misses_none(machine, tmp_path):
    (tmp_path / "gpus/0000:01:00.0").rmdir()
    assert explain_missing_gpu() is None


def refusal(capsys, *arguments):
    """Returns what a command that is refused prints, line by line."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("strategy", ["auto", "one-device", "mirrored"])
def test_training_on_the_cpu_beside_a_gpu_is_said(strategy, toy_dataset, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "vocabulary").write_text("")  # no folder, so that it ends behind the warning
    options = ["--dataset", toy_dataset, "--run", run, "--strategy", strategy]
    *lines, error = refusal(capsys, "train", *options)
    (warning,) = [line for line in lines if THERE in line]
    assert warning.startswith(f"tt: warning: {THERE}")
    assert warning.endswith("`. The CPU computes; with --devices GPU:0, nothing but a GPU would")
    assert error.startswith(f"tt: error: the run folder {run} cannot be written: ")


@pytest.mark.usefixtures("machine")
def test_a_gpu_can_be_insisted_on(toy_dataset, tmp_path, capsys):
    run = tmp_path / "run"
    *_, error = refusal(
        capsys, "train", "--dataset", toy_dataset, "--run", run, "--devices", "GPU:0"
    )
    assert error.startswith(
        "tt: error: this machine has no device 'GPU:0', only CPU:0, CPU:1; this machine has an "
        "NVIDIA GPU, but TensorFlow finds none. Install its libraries with "
    )
    assert not run.exists()


@pytest.mark.usefixtures("machine")
def test_translating_on_the_cpu_beside_a_gpu_is_said(trained_toy, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--model", str(trained_toy.run)])
    assert ended.value.code == 0
    assert "`. The CPU computes\n" in capsys.readouterr().err


# Memory


def test_memory_grows_on_all_gpus(monkeypatch):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    let_memory_grow()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    let_memory_grow()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false", "the user's choice stands"


def test_a_gpu_is_called_by_its_name_and_nothing_tells_whose_machine_it_is(monkeypatch):
    gpus_here = ["the first", "the second"]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus_here)
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"device_name": f"Make of {gpu}"}
    )
    found = describe_machine(["/device:GPU:1", "/job:worker/replica:0/task:0/device:CPU:0"])
    assert found["devices"] == ["GPU:1 Make of the second", "CPU:0"]
    assert found.keys() == {"processor", "cores", "devices", "system"}
    assert found["cores"] == cores()
    assert platform.node() not in str(found)
