"""GPUs that are built in, and why TensorFlow does not find them; this machine needs none."""

from __future__ import annotations

import io
import logging
import platform
import subprocess
import sys

import pytest
import tensorflow as tf

from cli.main import main
from model.engines import gpus
from model.engines.gpus import describe_missing, explain_missing_gpu, find_nvidia, let_memory_grow
from model.engines.machine import cores, describe_machine

# What TensorFlow 2.21 printed without its CUDA libraries, over a driver that says it has a GPU.
WITHOUT_LIBRARIES = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795367316.466137   24513 cudart_stub.cc:31] Could not find cuda drivers on your \
machine, GPU will not be used.
I0000 00:00:1795367318.784596   24513 dso_loader.cc:133] Successfully opened dynamic library \
libcuda.so.1
I0000 00:00:1795367388.212523   27818 dso_loader.cc:144] Could not load dynamic library \
'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open shared object file: No such file or directory
I0000 00:00:1795367388.226552   27292 dso_loader.cc:144] Could not load dynamic library \
'libcudart.so.12'; dlerror: libcudart.so.12: cannot open shared object file: No such file or \
directory
I0000 00:00:1795367388.226595   27292 dso_loader.cc:144] Could not load dynamic library \
'libcublas.so.12'; dlerror: libcublas.so.12: cannot open shared object file: No such file or \
directory
I0000 00:00:1795367388.229128   27292 dso_loader.cc:144] Could not load dynamic library \
'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open shared object file: No such file or directory
W0000 00:00:1795367388.229132   27292 gpu_device.cc:2365] Cannot dlopen some GPU libraries. Please \
make sure the missing libraries mentioned above are installed properly if you would like to use GPU.
Skipping registering GPU devices...
"""
# The same without a driver, which needs no stand-in.
WITHOUT_DRIVER = """\
I0000 00:00:1795367240.249330   21878 cudart_stub.cc:31] Could not find cuda drivers on your \
machine, GPU will not be used.
I0000 00:00:1795367241.077000   21878 dso_loader.cc:144] Could not load dynamic library \
'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such file or directory
E0000 00:00:1795367241.077043   21878 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA \
error: Failed call to cuInit: UNKNOWN ERROR (303)
"""
# All libraries are there, and the driver does not answer.
WITHOUT_ANSWER = """\
I0000 00:00:1795367318.784596   24513 dso_loader.cc:133] Successfully opened dynamic library \
libcuda.so.1
E0000 00:00:1795367241.077043   21878 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA \
error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def on_pci(root, place, *, vendor, kind):
    write(root / f"sys/bus/pci/devices/{place}/vendor", vendor)
    write(root / f"sys/bus/pci/devices/{place}/class", kind)


def test_a_machine_without_nvidia_has_none(tmp_path):
    assert find_nvidia(tmp_path) == []
    on_pci(tmp_path, "0000:00:02.0", vendor="0x8086", kind="0x030000")  # another's display
    on_pci(tmp_path, "0000:01:00.1", vendor="0x10de", kind="0x040300")  # NVIDIA's sound
    (tmp_path / "sys/bus/pci/devices/0000:00:03.0").mkdir()  # of which nothing may be read
    write(tmp_path / "dev/nvidiactl", "")
    assert find_nvidia(tmp_path) == []


def test_gpus_are_found_on_pci(tmp_path):
    on_pci(tmp_path, "0000:01:00.0", vendor="0x10de", kind="0x030000")
    on_pci(tmp_path, "0000:02:00.0", vendor="0x10de", kind="0x030200")
    assert find_nvidia(tmp_path) == [
        "an NVIDIA GPU (0000:01:00.0)",
        "an NVIDIA GPU (0000:02:00.0)",
    ]


def test_the_driver_knows_their_names(tmp_path):
    on_pci(tmp_path, "0000:01:00.0", vendor="0x10de", kind="0x030000")
    information = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 115"
    write(tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information", information)
    assert find_nvidia(tmp_path) == ["NVIDIA A100-SXM4-40GB (0000:01:00.0)"]


def test_a_container_has_their_files(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        write(tmp_path / "dev" / name, "")
    assert find_nvidia(tmp_path) == ["an NVIDIA GPU (/dev/nvidia0)", "an NVIDIA GPU (/dev/nvidia1)"]


def test_nvidias_tool_lists_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.find_nvidia_by_tool() == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['-L']\n"
        "print('GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)')\n"
        "print('GPU 1: NVIDIA H100 (UUID: GPU-2)')\n"
    )
    tool.chmod(0o755)
    assert gpus.find_nvidia_by_tool() == ["NVIDIA GeForce RTX 3090", "NVIDIA H100"]
    tool.write_text(f"#!{sys.executable}\nraise SystemExit('no driver')\n")
    assert gpus.find_nvidia_by_tool() == []


THERE = "this machine has NVIDIA H100 (1), but TensorFlow finds no GPU: "


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            WITHOUT_LIBRARIES,
            "it cannot open libcudnn.so.9, libcudart.so.12, libcublas.so.12; install them with "
            f"{sys.executable} -m pip install 'tensorflow[and-cuda]==2.21.*'",
        ),
        (
            WITHOUT_DRIVER,
            "it cannot open libcuda.so.1, which comes with NVIDIA's driver; install that, or start "
            "the container with the machine's GPUs",
        ),
        (
            WITHOUT_ANSWER,
            "it says 'failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
            "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected'",
        ),
        ("", "it does not say why"),
    ],
)
def test_what_is_missing_is_said(words, expected, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert describe_missing(["NVIDIA H100 (1)"], words=words) == THERE + expected


@pytest.fixture
def machine(monkeypatch):
    """A machine with a GPU that TensorFlow does not find, and nothing to hide it."""
    monkeypatch.setattr(gpus, "find_nvidia", lambda: ["NVIDIA H100 (1)"])
    monkeypatch.setattr(gpus, "_ask_tensorflow", lambda: WITHOUT_LIBRARIES)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    explain_missing_gpu.cache_clear()
    yield monkeypatch
    explain_missing_gpu.cache_clear()


def test_a_gpu_that_is_not_found_is_explained(machine):
    assert explain_missing_gpu().startswith(THERE + "it cannot open libcudnn.so.9, ")


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_the_user_hides_are_not_missed(machine, hidden):
    machine.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert explain_missing_gpu() is None


def test_a_gpu_that_is_found_is_not_missed(machine):
    machine.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0"])
    assert explain_missing_gpu() is None


def test_a_machine_without_a_gpu_misses_none(machine):
    machine.setattr(gpus, "find_nvidia", list)
    machine.setattr(gpus, "find_nvidia_by_tool", list)
    machine.setattr(gpus, "_ask_tensorflow", lambda: pytest.fail("asked without need"))
    assert explain_missing_gpu() is None


def test_tensorflow_names_the_libraries_that_it_cannot_open():
    # Here it is asked itself: its words may change from version to version.
    found = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"])
    if found.returncode == 0:
        pytest.skip("this machine has NVIDIA's driver")
    assert "libcuda.so.1, which comes with NVIDIA's driver" in describe_missing(
        ["NVIDIA H100 (1)"], words=gpus._ask_tensorflow()
    )


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
    assert warning.startswith(f"tt: warning: {THERE}it cannot open libcudnn.so.9, ")
    assert warning.endswith("'. The CPU computes; with --devices GPU:0, nothing but a GPU would")
    assert error.startswith(f"tt: error: the run folder {run} cannot be written: ")


@pytest.mark.usefixtures("machine")
def test_a_gpu_can_be_insisted_on(toy_dataset, tmp_path, capsys):
    run = tmp_path / "run"
    *_, error = refusal(
        capsys, "train", "--dataset", toy_dataset, "--run", run, "--devices", "GPU:0"
    )
    assert error.startswith(
        "tt: error: no device 'GPU:0' on this machine: there are CPU:0, CPU:1; this machine has "
        "NVIDIA H100 (1), but TensorFlow finds no GPU: it cannot open libcudnn.so.9, "
    )
    assert not run.exists()


@pytest.mark.usefixtures("machine")
def test_translating_on_the_cpu_beside_a_gpu_is_said(trained_toy, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--model", str(trained_toy.run)])
    assert ended.value.code == 0
    assert "'. The CPU computes\n" in capsys.readouterr().err


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
