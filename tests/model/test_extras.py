"""What to install is said by commands that work."""

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
def test_an_extra_is_its_packages_with_their_bounds(extra):
    python, *arguments = shlex.split(install_extra(extra))
    assert python == sys.executable
    assert arguments == ["-m", "pip", "install", *EXTRAS[extra]]


def test_a_source_tree_that_is_not_installed_has_the_extra_itself(monkeypatch):
    def not_there(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", not_there)
    assert install_extra("gpu") == pip_install(".[gpu]")


def test_paths_with_spaces_are_quoted(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    assert pip_install("a>1", "b") == "'/my env/bin/python' -m pip install 'a>1' 'b'"


def test_no_hint_names_a_package_that_is_not_ours_to_name():
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.suffix != ".pyc"]
    texts = [*ROOT.glob("*.md"), ROOT / "Makefile", *filter(Path.is_file, deployed)]
    code = [path for part in ("model", "pipelines", "cli") for path in (ROOT / part).rglob("*.py")]
    assert len(code) > 80
    for path in (*texts, *code):
        content = path.read_text()
        assert "tt-translate[" not in content, path
        assert not re.search(r"pip install '?tt-translate", content), path
        if path in code and path.name != "extras.py":
            assert "pip install" not in content, f"{path}: by model.extras"
