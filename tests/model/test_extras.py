"""The pip commands in messages work."""

from __future__ import annotations

import importlib.metadata
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
