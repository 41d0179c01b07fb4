"""What is found to work on a machine, on machines that stand in for it."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from pipelines.summaries import doctor, machine, packages, probes
from pipelines.summaries.packages import Package
from pipelines.summaries.probes import Answer

GOOD = {
    "tensorflow": Answer(found={"version": "2.21.0", "gpus": []}),
    "apache_beam": Answer(found={"version": "2.77.0"}),
    "sentencepiece": Answer(found={"version": "0.2.1"}),
    "pyarrow": Answer(found={"version": "20"}),
    "ctranslate2": Answer(found={"version": "4.6", "gpus": 0, "types": ["float32"]}),
}


@pytest.fixture
def there(monkeypatch, tmp_path):
    """A machine without GPU, Java, Maven and credentials, on which the main job works."""
    answers = dict(GOOD)
    monkeypatch.setattr(probes, "probe_libraries", lambda names: {n: answers[n] for n in names})
    monkeypatch.setattr(probes, "gpu_memory", list)
    monkeypatch.setattr(probes, "java_version", str)
    monkeypatch.setattr(probes, "find_program", lambda name: "")
    monkeypatch.setattr(doctor, "find_nvidia", list)
    monkeypatch.setattr(doctor, "find_nvidia_by_tool", list)
    monkeypatch.setattr(packages, "required_packages", lambda extra="": [])
    monkeypatch.setattr(packages, "locked_packages", list)
    monkeypatch.setattr(machine, "memory", lambda: (8 << 30, 4 << 30))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "AWS_ACCESS_KEY_ID",
                 "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE",
                 "CUDA_VISIBLE_DEVICES"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    return answers


def checks(folder="."):
    return {(c.group, c.name): c for c in doctor.diagnose(folder=Path(folder)).checks}


def test_a_machine_that_lacks_what_is_optional_works(there):
    found = doctor.diagnose()
    assert found.works
    states = {check.name: check.state for check in found.checks}
    for name in ("GPU", "dataflow", "flink", "gs://", "s3://"):
        assert states[name] == doctor.MISSING
    for check in found.checks:
        assert check.value
        assert check.rule
        assert bool(check.remedy) == (check.state != doctor.OK), check


@pytest.mark.parametrize("module", ["tensorflow", "apache_beam", "sentencepiece", "pyarrow"])
def test_without_a_library_of_the_main_job_no_command_works(there, module):
    there[module] = Answer(found={}, error="ImportError: no such file")
    found = checks()
    name = {"tensorflow": "TensorFlow", "apache_beam": "Apache Beam", "pyarrow": "Arrow",
            "sentencepiece": "SentencePiece"}[module]  # fmt: skip
    assert found["Packages", name].state == doctor.FAILURE
    assert found["Packages", name].value == "ImportError: no such file"
    assert "pip install" in found["Packages", name].remedy
    assert found["Commands", "train"].state == doctor.FAILURE
    assert name in found["Commands", "train"].value
    assert not doctor.diagnose().works


def test_a_broken_engine_ends_that_engine_alone(there):
    there["ctranslate2"] = Answer(found={}, error="ended by signal 4")
    found = checks()
    assert found["Extras", "ctranslate2"].value == "ended by signal 4"
    assert found["Commands", "--engine ctranslate2"].state == doctor.MISSING
    assert doctor.diagnose().works


def test_the_gpus_of_tensorflow_have_their_memory(there, monkeypatch):
    there["tensorflow"] = Answer(found={"version": "2.21.0", "gpus": ["NVIDIA L4"]})
    monkeypatch.setattr(probes, "gpu_memory", lambda: [("NVIDIA L4", 23034, 22000)])
    found = checks()["Machine", "GPU"]
    assert (found.state, found.value) == (doctor.OK, "NVIDIA L4, 22,000 of 23,034 MiB free")


def test_a_gpu_that_tensorflow_does_not_find_is_told_with_the_reason(there, monkeypatch):
    log = "I0000 dso_loader.cc:59] Could not load dynamic library 'libcuda.so.1'; dlerror"
    there["tensorflow"] = Answer(found={"version": "2.21.0", "gpus": []}, log=log)
    monkeypatch.setattr(doctor, "find_nvidia", lambda: ["NVIDIA L4 (0000:00:04.0)"])
    found = checks()["Machine", "GPU"]
    assert found.state == doctor.WARNING
    assert "NVIDIA L4 (0000:00:04.0), but TensorFlow finds no GPU" in found.value
    assert "libcuda.so.1" in found.value
    assert doctor.diagnose().works
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert checks()["Machine", "GPU"].remedy == "unset CUDA_VISIBLE_DEVICES"


def test_versions_that_differ_are_named(there, monkeypatch):
    odd = Package(name="numpy", wanted="==2.1.0", installed="2.0.0")
    gone = Package(name="keras", wanted="==3.15.0", installed="")
    monkeypatch.setattr(packages, "locked_packages", lambda: [odd, gone])
    found = checks()["Packages", "lock"]
    assert found.state == doctor.WARNING
    assert found.value == "2 differ: numpy 2.0.0 (2.1.0), keras is missing (3.15.0)"
    monkeypatch.setattr(packages, "required_packages", lambda extra="": [] if extra else [odd])
    found = checks()["Packages", "required"]
    assert found.state == doctor.FAILURE
    assert found.remedy.endswith("-m pip install 'numpy==2.1.0'")


@pytest.mark.parametrize(
    ("total", "free", "state"),
    [(8, 4, "ok"), (8, 2, "warning"), (0.5, 0.5, "failure"), (0, 0, "ok")],
)
def test_little_memory(there, monkeypatch, total, free, state):
    monkeypatch.setattr(machine, "memory", lambda: (int(total * 2**30), int(free * 2**30)))
    assert checks()["Machine", "memory"].state == state


def test_a_full_disk_and_one_that_may_not_be_written(there, monkeypatch, tmp_path):
    def disk(free, *, is_writable=True):
        found = machine.Disk(folder="x", free=free, total=100 << 30, is_writable=is_writable)
        monkeypatch.setattr(machine, "disk_of", lambda folder: found)
        each = checks()
        return each["Machine", "this folder"].state, each["Machine", "cache"].state

    assert disk(50 << 30) == ("ok", "ok")
    assert disk(1 << 30) == ("warning", "warning")
    assert disk(1 << 20) == ("failure", "warning")
    assert disk(50 << 30, is_writable=False) == ("failure", "warning")


@pytest.mark.parametrize(
    ("java", "state"), [("", "missing"), ("1.8.0_402", "missing"), ("11.0.2", "ok"), ("21", "ok")]
)
def test_flink_needs_a_java_that_is_new_enough(there, monkeypatch, java, state):
    monkeypatch.setattr(probes, "java_version", lambda: java)
    assert checks()["Runners", "flink"].state == state


def test_credentials_are_found_and_never_shown(there, monkeypatch, tmp_path):
    path = tmp_path / "key.json"
    path.write_text("secret-of-google")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id-of-amazon")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-amazon")
    found = checks()
    assert found["Storage", "gs://"].state == doctor.OK
    assert found["Storage", "s3://"].value.startswith("AWS_ACCESS_KEY_ID")
    assert "secret" not in str(found)
    assert "id-of-amazon" not in str(found)
    path.unlink()
    assert checks()["Storage", "gs://"].state == doctor.MISSING


def test_a_container_has_its_own_memory_and_cores(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.memory() == (8_192_000_000, 6_144_000_000)
    assert machine.core_quota() is None
    (tmp_path / "memory.max").write_text("2000000000\n")
    (tmp_path / "memory.current").write_text("500000000\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.memory() == (2_000_000_000, 1_500_000_000)
    assert machine.core_quota() == 1.5
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.memory() == (8_192_000_000, 6_144_000_000)
    assert machine.core_quota() is None


def test_a_program_that_does_not_work_says_why():
    def said(code):
        return probes.run([sys.executable, "-c", code])

    assert said("print(1); print('{\"a\": 2}')").found == {"a": 2}
    assert said("import no_such_module").error.startswith("ModuleNotFoundError: No module named")
    assert said("import os; os.kill(os.getpid(), 9)").error == "ended by signal 9"
    assert said("print('?')").error == "an answer that cannot be read"
    assert probes.run(["/no/such/program"]).error == "No such file or directory"


def test_the_lock_is_read_with_its_markers(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "requirements").mkdir(exist_ok=True)
    (tmp_path / "requirements/runtime.lock").write_text(
        "# a comment\npytest==0.1 \\\n    --hash=sha256:00\n"
        "pywin32==1 ; sys_platform == 'win32'\nno-such-thing==2 ; python_version > '3'\n"
    )
    monkeypatch.setattr(packages, "_ROOT", tmp_path)
    installed = importlib.metadata.version("pytest")
    assert packages.locked_packages() == [
        Package(name="pytest", wanted="==0.1", installed=installed),
        Package(name="no-such-thing", wanted="==2", installed=""),
    ]


@pytest.mark.slow
def test_the_libraries_that_are_here_answer():
    """Those of the environment of the tests, in which the main job works."""
    found = probes.probe_libraries(["tensorflow", "apache_beam", "sentencepiece", "ctranslate2"])
    assert all(answer.found["version"] for answer in found.values()), found
    required = packages.required_packages()
    assert {"tensorflow", "sentencepiece"} <= {each.name for each in required}
    assert packages.required_packages("ctranslate2")[0].name == "ctranslate2"
