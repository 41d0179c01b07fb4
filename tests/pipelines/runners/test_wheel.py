"""The wheel for workers contains the checkout that runs here, and can be installed."""

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


def build_files():
    """Return the files that a build may leave in the checkout, with their times."""
    paths = [path for name in ("build", "*.egg-info") for path in ROOT.glob(name)]
    paths += [path for folder in paths for path in folder.rglob("*")]
    return {path: path.stat().st_mtime_ns for path in paths}


BEFORE = build_files()  # an editable installation of this checkout has left some


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_contains_this_tt(built):
    assert built.name == "tt_translate-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        for name in ("pipelines/runners/wheel.py", "model/recipes/multi30k-en-de.yaml"):
            assert archive.read(f"tt/{name}") == (ROOT / name).read_bytes()
    code = {f"tt/{path.relative_to(ROOT)}" for package in ("cli", "model", "pipelines")
            for path in (ROOT / package).rglob("*.py")}  # fmt: skip
    assert code == {name for name in names if name.endswith(".py")}


def test_a_wheel_leaves_no_files_in_the_checkout(built):
    assert build_files() == BEFORE


def test_the_wheel_contains_all_files_of_the_packages_in_git(built):
    packages = ("cli", "model", "pipelines")
    listed = subprocess.run(
        ["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("this folder is not a Git checkout")
    names = set(zipfile.ZipFile(built).namelist())
    assert {f"tt/{name}" for name in listed.stdout.split() if (ROOT / name).exists()} <= names


def test_pip_installs_the_wheel(built, tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, built], check=True)
    [installed] = importlib.metadata.distributions(path=[str(target)])
    assert installed.version == importlib.metadata.version("tt-translate")
    assert installed.requires == importlib.metadata.requires("tt-translate")
    assert (target / "bin/tt").exists()
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import tt.pipelines.runners.wheel as wheel; print(wheel.__file__)
try: wheel.describe_wheel(sys.argv[2:])
except wheel.UserError as error: print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, target, *DATAFLOW],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    path, message = done.stdout.splitlines()
    assert path == str(target / "tt/pipelines/runners/wheel.py")
    assert f"{target}/tt is not a clone of tt. Set `worker_image`" in message


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


def test_a_wheel_that_pip_cannot_build_is_reported_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[build-system]")
    monkeypatch.setattr(wheel, "_ROOT", tmp_path)
    message = rf"pip cannot build a wheel of {tmp_path} for .+ `requires` .+ set `worker_image`"
    with pytest.raises(UserError, match=message) as error, with_own_wheel(DATAFLOW):
        pass
    assert "\n" not in str(error.value)
