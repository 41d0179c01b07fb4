"""Build a wheel of this tt for workers without an image that contains tt.

The wheel contains the Python files, the data files and the metadata of this installation, which may
be a checkout or an installed wheel. Building it therefore needs no build tool and no network.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from apache_beam.options.pipeline_options import WorkerOptions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tt.model.errors import UserError
from tt.pipelines.runners.beam_options import is_dataflow, parse_arguments
from tt.pipelines.runners.dataflow import has_packages

_PROJECT = "tt-translate"
_ROOT = Path(__file__).parents[2]  # the folder of the packages, in a checkout or an installation
_PACKAGES = ("cli", "model", "pipelines")
_SUFFIXES = (".py", ".yaml", ".css", ".html", ".js", ".tsv", ".gz")  # of code and data files
_TAG = "py3-none-any"
_TIME = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same files give the same bytes


@contextlib.contextmanager
def with_own_wheel(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Add flags that install this tt on Dataflow's workers, unless other flags provide tt.

    Args:
      arguments: Beam's own flags.

    Yields:
      Beam's flags for a job that is submitted before the block ends.

    Raises:
      UserError: Beam cannot read a flag, or tt is not installed here.
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
    """Return a warning if the workers need a wheel, and check that it can be built.

    Raises:
      UserError: Beam cannot read a flag, or tt is not installed here.
    """
    if not is_needed(arguments):
        return []
    _find_distribution()
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
    """Return all packages that tt requires, with the versions that are installed here.

    Raises:
      UserError: tt is not installed here, so its requirements are unknown.
    """
    _find_distribution()
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
    """Write the wheel to a folder; the same installation gives the same bytes.

    Raises:
      UserError: tt is not installed here, so its requirements are unknown.
    """
    distribution = _find_distribution()
    name = f"{_PROJECT.replace('-', '_')}-{distribution.version}"
    information = f"{name}.dist-info"
    contents = dict(_package_files())
    # A checkout has only PKG-INFO.
    metadata = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO")
    contents[f"{information}/METADATA"] = str(metadata).encode()
    if text := distribution.read_text("entry_points.txt"):
        contents[f"{information}/entry_points.txt"] = text.encode()
    contents[f"{information}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tt\nRoot-Is-Purelib: true\nTag: {_TAG}\n".encode()
    )
    contents[f"{information}/RECORD"] = _record(contents) + f"{information}/RECORD,,\n".encode()
    path = folder / f"{name}-{_TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in contents.items():
            archive.writestr(zipfile.ZipInfo(member, _TIME), content, zipfile.ZIP_DEFLATED)
    return path


def _find_distribution() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(_PROJECT)
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(
            f"{_PROJECT} is not installed here. Install it with pip, or set `worker_image`"
        ) from error


def _package_files() -> Iterator[tuple[str, bytes]]:
    """Yield the files that belong to the project's own wheel, but no other file of a checkout."""
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            is_ours = path.suffix in _SUFFIXES or path.name == "py.typed"
            if is_ours and path.is_file() and "__pycache__" not in path.parts:
                yield f"tt/{path.relative_to(_ROOT).as_posix()}", path.read_bytes()


def _record(contents: dict[str, bytes]) -> bytes:
    """Return the list of a wheel's files, with digests (PEP 427)."""
    lines = []
    for member, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
        lines.append(f"{member},sha256={digest.decode()},{len(content)}\n")
    return "".join(lines).encode()
