"""GPUs of a machine, also those that TensorFlow does not find; this machine needs none."""

from __future__ import annotations

import io
import logging
import platform
import sys

import pytest
import tensorflow as tf

from cli.main import main
from model.engines import gpus
from model.engines.gpus import explain_missing_gpu, find_nvidia, let_memory_grow
from model.engines.machine import cores, describe_machine


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_the_driver_knows_their_names(tmp_path):
    information = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 115"
    write(tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information", information)
    assert find_nvidia(tmp_path) == ["NVIDIA A100-SXM4-40GB (0000:01:00.0)"]


def test_nvidias_tool_lists_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_nvidia(tmp_path) == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['-L']\n"
        "print('GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)')\n"
        "print('GPU 1: NVIDIA H100 (UUID: GPU-2)')\n"
    )
    tool.chmod(0o755)
    assert find_nvidia(tmp_path) == ["NVIDIA GeForce RTX 3090", "NVIDIA H100"]
    tool.write_text(f"#!{sys.executable}\nraise SystemExit('no driver')\n")
    assert find_nvidia(tmp_path) == []


THERE = "this machine has NVIDIA H100 (1), but TensorFlow finds no GPU. Install its libraries "


@pytest.fixture
def machine(monkeypatch):
    """A machine with a GPU that TensorFlow does not find, and nothing to hide it."""
    monkeypatch.setattr(gpus, "find_nvidia", lambda: ["NVIDIA H100 (1)"])
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


def test_a_machine_without_a_gpu_misses_none(machine):
    machine.setattr(gpus, "find_nvidia", list)
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
        "tt: error: no device 'GPU:0' on this machine: there are CPU:0, CPU:1; this machine has "
        "NVIDIA H100 (1), but TensorFlow finds no GPU. Install its libraries with "
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


def test_memory_grows_on_all_gpus(monkeypatch, caplog):
    devices = [tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(2)]
    grown = {}
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: devices if kind == "GPU" else []
    )
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", grown.__setitem__)
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", grown.get)
    let_memory_grow()
    assert grown == {devices[0]: True, devices[1]: True}

    def fail(device, enable):
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    # In a process that computes already: no word where it is set, one where it is not.
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", fail)
    grown[devices[1]] = False
    with caplog.at_level(logging.WARNING):
        let_memory_grow()
    assert [record.getMessage() for record in caplog.records] == [
        "TensorFlow takes all memory of /physical_device:GPU:1: Physical devices cannot be "
        "modified after being initialized"
    ]


def test_a_gpu_is_called_by_its_name_and_nothing_tells_whose_machine_it_is(monkeypatch):
    gpus_here = ["the first", "the second"]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus_here)
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"device_name": f"Make of {gpu}"}
    )
    found = describe_machine(["/device:GPU:1", "/job:worker/replica:0/task:0/device:CPU:0"])
    assert found["devices"] == ["GPU:1 Make of the second", "CPU:0"]
    assert found.keys() == {"processor", "cores", "memory_gb", "devices", "system"}
    assert found["cores"] == cores()
    assert platform.node() not in str(found)
