"""Pip commands that install optional packages, for a clone and for an installed `tt`."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys

PROJECT = "tt-translate"


def pip_install(*requirements: str) -> str:
    """Return the command that installs packages into the environment of this `tt`.

    The command names this interpreter, because `pip` on the PATH may belong to another environment.

    Args:
      *requirements: The packages, such as "ctranslate2>=4.6".
    """
    python = shlex.quote(sys.executable or "python")
    return f"{python} -m pip install " + " ".join(f"'{each}'" for each in requirements)


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra of `pyproject.toml`.

    The command lists the packages, because this project is not on a package index, and pip cannot
    look up its extras.
    """
    try:
        declared = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:  # a source tree that is not installed
        return pip_install(f".[{extra}]")
    found = [requirement.partition(";") for requirement in declared]
    marker = f'extra=="{extra}"'
    return pip_install(
        *(
            name.strip()
            for name, _, condition in found
            if marker in condition.replace("'", '"').replace(" ", "")
        )
    )
