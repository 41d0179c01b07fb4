"""Dataflow's workers get a wheel of the checkout that runs here."""

from __future__ import annotations

import importlib.metadata
import re
import zipfile
from pathlib import Path

import pytest

from tt.model.errors import UserError
from tt.pipelines.runners import wheel
from tt.pipelines.runners.wheel import describe_wheel, with_own_wheel

ROOT = Path(__file__).parents[3]
DATAFLOW = ("--runner=DataflowRunner", "--project=p")


def test_dataflow_gets_the_wheel_and_the_installed_versions():
    with with_own_wheel(DATAFLOW) as arguments:
        assert arguments[:2] == list(DATAFLOW)
        package, requirements, cache = arguments[2:]
        assert cache == "--requirements_cache=skip"
        made = Path(package.removeprefix("--extra_package="))
        assert made.name.startswith("tt_translate-")
        with zipfile.ZipFile(made) as archive:
            names = archive.namelist()
            recipe = "model/recipes/multi30k-en-de.yaml"
            assert archive.read(f"tt/{recipe}") == (ROOT / recipe).read_bytes()
        code = {f"tt/{path.relative_to(ROOT)}" for package in ("cli", "model", "pipelines")
                for path in (ROOT / package).rglob("*.py")}  # fmt: skip
        assert code == {name for name in names if name.endswith(".py")}
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
