"""`tt doctor`: a table of versions, devices and extras."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cli.decorators import command
from model.extras import PROJECT, install_extra, pip_install

_OK, _MISSING, _FAILURE = "ok", "-", "FAIL"


@dataclasses.dataclass(frozen=True)
class _Check:
    """A row of the table."""

    group: str
    name: str
    state: str  # _OK, _MISSING (only one extra does not work) or _FAILURE
    value: str
    remedy: str = ""


@command()
def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show versions, devices and extras of this machine.

    Needs no network. The exit code is 1 if a required package is missing or has a wrong version.

    Example: tt doctor
    """
    checks = [*_python(), *_packages(), *_extras(), *_devices()]
    works = all(check.state != _FAILURE for check in checks)
    if as_json:
        content = {"works": works, "checks": list(map(dataclasses.asdict, checks))}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        _print(checks)
    if not works:
        raise typer.Exit(1)


def _print(checks: list[_Check]) -> None:
    from rich.table import Table

    from cli.commands.blocks import make_console, plain, print_heading

    console = make_console()
    for group in dict.fromkeys(check.group for check in checks):
        print_heading(console, group)
        table = Table.grid(padding=(0, 2))
        for check in checks:
            if check.group == group:
                remedy = f" (run {check.remedy})" if check.remedy else ""
                table.add_row(check.state, plain(check.name), plain(check.value + remedy))
        console.print(table)


def _python() -> Iterator[_Check]:
    wanted = SpecifierSet(_metadata().get("Requires-Python") or "")
    state = _OK if wanted.contains(platform.python_version()) else _FAILURE
    value = f"{platform.python_version()}, {sys.executable}"
    yield _Check("Packages", "python", state, value + ("" if state == _OK else f", not {wanted}"))


def _packages() -> Iterator[_Check]:
    for requirement in _requirements():
        value, fits = _find(requirement)
        remedy = "" if fits else pip_install(requirement.name + str(requirement.specifier))
        yield _Check("Packages", requirement.name, _OK if fits else _FAILURE, value, remedy)


def _extras() -> Iterator[_Check]:
    for extra in _metadata().get_all("Provides-Extra") or []:
        added = list(_requirements(extra))
        added += [part for each in added for name in each.extras for part in _parts(each, name)]
        found = {each.name: _find(each) for each in added}
        fits = all(fits for _, fits in found.values())
        value = ", ".join(f"{name} {value}" for name, (value, _) in found.items())
        remedy = "" if fits else install_extra(extra)
        yield _Check("Extras", extra, _OK if fits else _MISSING, value, remedy)


def _devices() -> Iterator[_Check]:
    from cli.libraries import import_tensorflow
    from model.engines.machine import cores

    yield _Check("Devices", "cores", _OK, str(cores()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield _Check("Devices", "memory", _OK, f"{memory / 1e9:.1f} GB")
    yield _Check("Devices", "disk", _OK, f"{shutil.disk_usage('.').free / 1e9:.1f} GB free here")
    try:
        import_tensorflow()
        import tensorflow as tf

        gpus = [each.name for each in tf.config.list_physical_devices("GPU")]
    except ImportError as error:
        yield _Check("Devices", "GPU", _FAILURE, f"TensorFlow cannot be imported: {error}")
    else:
        value = ", ".join(gpus) or "none that TensorFlow finds; see `tt doctor -v`"
        yield _Check("Devices", "GPU", _OK if gpus else _MISSING, value)
    java = shutil.which("java")
    value = java or "none; jobs on Flink and Kafka topics on Dataflow need it"
    yield _Check("Devices", "java", _OK if java else _MISSING, value)


def _metadata() -> Any:
    return importlib.metadata.metadata(PROJECT)


def _parts(package: Requirement, extra: str) -> Iterator[Requirement]:
    """Yield the requirements of an extra of another package."""
    try:
        yield from _requirements(extra, project=package.name)
    except importlib.metadata.PackageNotFoundError:
        return


def _requirements(extra: str = "", *, project: str = PROJECT) -> Iterator[Requirement]:
    """Yield the requirements of a package, or those that an extra adds."""
    for requirement in map(Requirement, importlib.metadata.requires(project) or []):
        marker = requirement.marker
        is_basic = marker is None or marker.evaluate({"extra": ""})
        is_added = marker is not None and not is_basic and marker.evaluate({"extra": extra})
        if is_added if extra else is_basic:
            yield requirement


def _find(requirement: Requirement) -> tuple[str, bool]:
    """Return the installed version of a package, and whether it is a wanted one."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"not installed, {requirement.specifier or 'any version'} is wanted", False
    if requirement.specifier.contains(version, prereleases=True):
        return version, True
    return f"{version}, {requirement.specifier} is wanted", False
