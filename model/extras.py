"""How a user installs a package that is not there, as a clone and an installed `tt` both can."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys

PROJECT = "tt-translate"


def pip_install(*requirements: str) -> str:
    """Returns the command that installs packages, such as "ctranslate2>=4.6", beside this `tt`.

    It names this interpreter: the `pip` of a user's path may be that of another environment.
    """
    python = shlex.quote(sys.executable or "python")
    return f"{python} -m pip install " + " ".join(f"'{each}'" for each in requirements)


def install_extra(extra: str) -> str:
    """Returns the command that installs the packages of an extra of `pyproject.toml`.

    They are named, as in "ctranslate2": there is no package of this project to fetch the extra of.
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
