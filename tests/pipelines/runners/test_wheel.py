"""The wheel for workers contains the tt that runs here, and can be installed."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tt.model.errors import UserError
from tt.pipelines.runners import wheel
from tt.pipelines.runners.wheel import build_wheel, describe_wheel, with_own_wheel

ROOT = Path(__file__).parents[3]
DATAFLOW = ("--runner=DataflowRunner", "--project=p")


def test_the_wheel_contains_this_tt_and_is_reproducible(tmp_path):
    path = build_wheel(tmp_path)
    assert path.name == "tt_translate-0.1.0-py3-none-any.whl"
    content = path.read_bytes()
    assert build_wheel(tmp_path).read_bytes() == content
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert not archive.testzip()
        for name in ("pipelines/runners/wheel.py", "model/recipes/multi30k-en-de.yaml"):
            assert archive.read(f"tt/{name}") == (ROOT / name).read_bytes()
    code = {f"tt/{path.relative_to(ROOT)}" for package in ("cli", "model", "pipelines")
            for path in (ROOT / package).rglob("*.py")}  # fmt: skip
    assert code == {name for name in names if name.endswith(".py")}
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_contains_all_files_of_the_packages_in_git():
    packages = ("cli", "model", "pipelines")
    listed = subprocess.run(
        ["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("this folder is not a Git checkout")
    found = {name for name, _ in wheel._package_files()}
    assert {f"tt/{name}" for name in listed.stdout.split() if (ROOT / name).exists()} <= found


def test_the_wheel_contains_no_other_files_of_a_checkout(tmp_path, monkeypatch):
    names = ("cli/main.py", "cli/py.typed", "model/recipes/r.yaml", "model/.secret.env",
             "model/weights.h5", "pipelines/notes.txt", "pipelines/__pycache__/a.py")  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(wheel, "_ROOT", tmp_path)
    assert [name for name, _ in wheel._package_files()] == [f"tt/{name}" for name in names[:3]]


def test_pip_installs_the_wheel(tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, build_wheel(tmp_path)], check=True)
    [installed] = importlib.metadata.distributions(path=[str(target)])
    assert installed.version == importlib.metadata.version("tt-translate")
    assert installed.requires == importlib.metadata.requires("tt-translate")
    assert (target / "bin/tt").exists()
    code = "import tt.pipelines.runners.wheel as w; print(w.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(target)!r}); {code}"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split()[0] == str(target / "tt/pipelines/runners/wheel.py")


def test_dataflow_gets_the_wheel_and_the_installed_versions():
    with with_own_wheel(DATAFLOW) as arguments:
        assert arguments[:2] == list(DATAFLOW)
        package, requirements, cache = arguments[2:]
        assert cache == "--requirements_cache=skip"
        made = Path(package.removeprefix("--extra_package="))
        assert made.name.startswith("tt_translate-")
        versions = Path(requirements.removeprefix("--requirements_file="))
        assert versions.parent == made.parent
        lines = versions.read_text().splitlines()
        for name in ("apache-beam", "tensorflow", "google-cloud-storage"):  # the last by an extra
            assert f"{name}=={importlib.metadata.version(name)}" in lines
        assert all(re.fullmatch(r"[a-z0-9-]+==[\w.+]+", line) for line in lines)
        assert lines == sorted(set(lines))
        assert "tt-translate" not in versions.read_text()
    assert not made.parent.exists()
    assert describe_wheel(DATAFLOW)[0].startswith(
        "`worker_image` is not set, so each worker first installs"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--runner=FlinkRunner",),
        *((*DATAFLOW, more) for more in ("--sdk_container_image=i", "--setup_file=setup.py",
          "--extra_package=tt.whl", "--requirements_file=r")),
    ],
)  # fmt: skip
def test_workers_that_already_get_tt_get_no_wheel(arguments):
    with with_own_wheel(arguments) as same:
        assert same == list(arguments)
    assert describe_wheel(arguments) == []


def test_a_missing_installation_of_tt_is_reported_before_a_job_starts(monkeypatch):
    def refuse(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(wheel.importlib.metadata, "distribution", refuse)
    message = r"tt-translate is not installed here\. Install it with pip"
    with pytest.raises(UserError, match=message):
        describe_wheel(DATAFLOW)
