"""Messages about GPUs that TensorFlow does not find. The tests need no GPU."""

from __future__ import annotations

import io
import os
import platform
import sys

import pytest
import tensorflow as tf

from tt.cli.main import main
from tt.model.engines import machine as machine_module
from tt.model.engines.machine import cores, describe_machine, explain_missing_gpu, let_memory_grow

THERE = "this machine has an NVIDIA GPU, but TensorFlow finds none. Install the GPU libraries "


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with a visible GPU that TensorFlow does not find."""
    (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(machine_module, "_NVIDIA", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    explain_missing_gpu.cache_clear()
    yield monkeypatch
    explain_missing_gpu.cache_clear()


def test_missing_gpu_is_explained(machine):
    assert explain_missing_gpu() == (
        f"{THERE}with {sys.executable} -m pip install 'tensorflow[and-cuda]==2.21.*', or check "
        "`tt doctor -v`"
    )


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_not_reported(machine, hidden):
    machine.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert explain_missing_gpu() is None


def refusal(capsys, *arguments):
    """Run a command that must fail with exit code 2, and return the lines on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.usefixtures("machine")
def test_training_warns_of_an_unused_gpu(toy_dataset, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "vocabulary").write_text("")  # a file instead of a folder stops the command
    options = ["--dataset", toy_dataset, "--run", run]
    *lines, error = refusal(capsys, "train", *options)
    (warning,) = [line for line in lines if THERE in line]
    assert warning.startswith(f"tt: warning: {THERE}")
    assert warning.endswith(
        "`. tt uses the CPU. To make a missing GPU an error, set --devices GPU:0"
    )
    assert error.startswith(f"tt: error: the run folder {run} cannot be written: ")


@pytest.mark.usefixtures("machine")
def test_devices_option_requires_the_gpu(toy_dataset, tmp_path, capsys):
    run = tmp_path / "run"
    *_, error = refusal(
        capsys, "train", "--dataset", toy_dataset, "--run", run, "--devices", "GPU:0"
    )
    assert error.startswith(
        "tt: error: this machine has no device 'GPU:0', only CPU:0, CPU:1; this machine has an "
        "NVIDIA GPU, but TensorFlow finds none. Install the GPU libraries with "
    )
    assert not run.exists()


@pytest.mark.usefixtures("machine")
def test_translating_warns_of_an_unused_gpu(trained_toy, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--model", str(trained_toy.run)])
    assert ended.value.code == 0
    assert "`. tt uses the CPU\n" in capsys.readouterr().err


# Memory


def test_memory_grows_on_all_gpus(monkeypatch):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    let_memory_grow()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    let_memory_grow()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false", "the user's setting was replaced"


def test_machine_description_names_gpus_but_not_the_host(monkeypatch):
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
