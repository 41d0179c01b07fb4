"""Build a wheel of this checkout of tt for workers without an image that contains tt."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from apache_beam.options.pipeline_options import WorkerOptions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tt.model.errors import UserError
from tt.pipelines.runners.beam_options import is_dataflow, parse_arguments
from tt.pipelines.runners.dataflow import has_packages

_PROJECT = "tt-translate"
_ROOT = Path(__file__).resolve().parents[2]  # a checkout, or a folder of installed packages
_REASON = 300  # the maximum number of characters of pip's output to show, the last ones


@contextlib.contextmanager
def with_own_wheel(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Add flags that install this tt on Dataflow's workers, unless other flags provide tt.

    Args:
      arguments: Beam's own flags.

    Yields:
      Beam's flags for a job that is submitted before the block ends.

    Raises:
      UserError: Beam cannot read a flag, or the wheel cannot be built.
    """
    if not is_needed(arguments):
        yield list(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="tt-") as name:
        folder = Path(name)
        requirements = folder / "requirements.txt"
        requirements.write_text(read_requirements(), "utf-8")
        yield [
            *arguments,
            f"--extra_package={build_wheel(folder)}",
            f"--requirements_file={requirements}",
            # Otherwise Beam downloads gigabytes of packages here, and uploads them.
            "--requirements_cache=skip",
        ]


def describe_wheel(arguments: Sequence[str]) -> list[str]:
    """Return a warning if the workers need a wheel.

    Raises:
      UserError: Beam cannot read a flag, or the workers need a wheel and this is no checkout.
    """
    if not is_needed(arguments):
        return []
    _find_checkout()
    return [
        "`worker_image` is not set, so each worker first installs tt and its requirements, which "
        "takes minutes. To avoid this, set `worker_image` to an image from deploy/Dockerfile"
    ]


def is_needed(arguments: Sequence[str]) -> bool:
    """Return whether a job runs on Dataflow, and no Beam flag provides tt to its workers.

    Raises:
      UserError: Beam cannot read a flag.
    """
    options = parse_arguments(arguments)
    has_image = options.view_as(WorkerOptions).sdk_container_image
    return is_dataflow(arguments) and not has_image and not has_packages(options)


def read_requirements() -> str:
    """Return all packages that tt requires, with the versions that are installed here."""
    versions: dict[str, str] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(_PROJECT, frozenset())]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # The package is for another platform.
            continue
        versions[canonicalize_name(name)] = distribution.version
        for requirement in map(Requirement, distribution.requires or ()):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
                continue
            found = (requirement.name, frozenset(requirement.extras))
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    del versions[_PROJECT]
    return "".join(sorted(f"{name}=={version}\n" for name, version in versions.items()))


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout in a folder, without network access.

    Raises:
      UserError: tt does not run from a checkout, or pip cannot build the wheel.
    """
    checkout, config = _find_checkout(), folder / "setuptools.cfg"
    # Without these folders, setuptools leaves files in the checkout.
    config.write_text(
        f"[build]\nbuild_base={folder}/build\n[egg_info]\negg_base={folder}\n", "utf-8"
    )
    command = [
        *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"),
        *("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(checkout)),
    ]
    environment = {**os.environ, "DIST_EXTRA_CONFIG": str(config)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        reason = " ".join(done.stderr.split())[-_REASON:]
        raise UserError(
            f"pip cannot build a wheel of {checkout} for the workers: {reason}. Repair the "
            "installation, or set `worker_image` to an image from deploy/Dockerfile"
        )
    [path] = folder.glob("*.whl")
    return path


def _find_checkout() -> Path:
    if not (_ROOT / "pyproject.toml").is_file():
        raise UserError(
            f"the workers need tt, but {_ROOT} is not a clone of tt. Set `worker_image` to an "
            "image from deploy/Dockerfile, or run tt from its clone"
        )
    return _ROOT
