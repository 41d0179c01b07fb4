"""The pip commands in messages work."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from tt.model.extras import install_extra, pip_install

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_extra_is_installed_as_packages_with_version_bounds(extra):
    python, *arguments = shlex.split(install_extra(extra))
    assert python == sys.executable
    assert arguments == ["-m", "pip", "install", *EXTRAS[extra]]


def test_source_tree_without_installation_uses_the_extra(monkeypatch):
    def not_there(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", not_there)
    assert install_extra("gpu") == pip_install(".[gpu]")


def test_paths_with_spaces_are_quoted(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    assert pip_install("a>1", "b") == "'/my env/bin/python' -m pip install 'a>1' 'b'"


def test_no_text_installs_this_project_from_a_package_index():
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.suffix != ".pyc"]
    texts = [*ROOT.glob("*.md"), ROOT / "Makefile", *filter(Path.is_file, deployed)]
    code = [path for part in ("model", "pipelines", "cli") for path in (ROOT / part).rglob("*.py")]
    assert len(code) > 80
    for path in (*texts, *code):
        content = path.read_text()
        assert "tt-translate[" not in content, path
        assert not re.search(r"pip install '?tt-translate", content), path
        if path in code and path.name != "extras.py":
            assert "pip install" not in content, f"{path} must use model.extras"
