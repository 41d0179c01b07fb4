"""Installed packages, against what this tt requires, its extras and its lock."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from model.extras import PROJECT

LOCK = "requirements/runtime.lock"
_ROOT = Path(__file__).parents[2]  # of a checkout, or site-packages
_LOCKS = "extra_metadata"  # where an installed wheel has what a checkout has at its root


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A package that is required, or locked."""

    name: str
    wanted: str  # its versions, such as "==2.21.*"
    installed: str  # its version; "" where it is not installed

    @property
    def suits(self) -> bool:
        """Whether the installed version is one that is wanted."""
        return bool(self.installed) and Requirement(self.name + self.wanted).specifier.contains(
            self.installed, prereleases=True
        )


def required_packages(extra: str = "") -> list[Package]:
    """Returns what this tt requires, or what one of its extras adds; nothing if not installed."""
    try:
        declared = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = map(Requirement, declared)
    return [_package(each) for each in found if _is_of(each, extra)]


def _is_of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    if not extra:
        return marker is None or marker.evaluate({"extra": ""})
    return marker is not None and marker.evaluate({"extra": extra}) and not _is_of(requirement, "")


def extras() -> list[str]:
    """Returns the names of the extras of this tt."""
    try:
        return importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def locked_packages() -> list[Package]:
    """Returns what the lock has for this machine; nothing where there is no lock."""
    return [_package(each) for each in _read_lock()]


def _read_lock() -> Iterator[Requirement]:
    path = _ROOT / LOCK
    if path.is_file() and (_ROOT / "pyproject.toml").is_file():  # a checkout
        text = path.read_text("utf-8")
    else:
        try:
            text = importlib.metadata.distribution(PROJECT).read_text(f"{_LOCKS}/{LOCK}") or ""
        except importlib.metadata.PackageNotFoundError:
            return
    for line in text.splitlines():
        try:
            requirement = Requirement(line.removesuffix("\\").strip())
        except InvalidRequirement:
            continue  # a comment, or a hash
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def _package(requirement: Requirement) -> Package:
    try:
        installed = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    return Package(
        name=requirement.name, wanted=str(requirement.specifier), installed=installed or ""
    )
