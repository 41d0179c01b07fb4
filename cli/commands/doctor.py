"""`tt doctor`: a table of packages, extras and devices."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer
from packaging.requirements import Requirement

from tt.cli.decorators import command
from tt.model.errors import counted
from tt.model.extras import PROJECT, install_extra, pip_install

_OK, _MISSING, _FAILURE = "ok", "-", "FAIL"


class _Check(NamedTuple):
    """A row of the table."""

    group: str
    state: str  # _OK, _MISSING (something optional) or _FAILURE
    name: str
    value: str
    remedy: str = ""


@command()
def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Check the installed packages, extras and devices.

    The command works without a network. The exit code is 1 if a required package is missing or has
    a wrong version.

    Example: tt doctor
    """
    from tt.cli.commands.blocks import print_blocks
    from tt.model.inspection.blocks import Folded, Table

    checks = [*_packages(), *_extras(), *_devices()]
    works = all(check.state != _FAILURE for check in checks)
    if as_json:
        content = {"works": works, "checks": [check._asdict() for check in checks]}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        header = ["", "name", "found", "remedy"]
        for group, found in itertools.groupby(checks, lambda check: check.group):
            print_blocks([Folded(group, [Table(header, [check[1:] for check in found])])])
    if not works:
        raise typer.Exit(1)


def _packages() -> Iterator[_Check]:
    yield _Check("Packages", _OK, "python", f"{platform.python_version()}, {sys.executable}")
    for requirement in _requirements():
        value, fits = _find(requirement)
        remedy = "" if fits else pip_install(requirement.name + str(requirement.specifier))
        yield _Check("Packages", _OK if fits else _FAILURE, requirement.name, value, remedy)


def _extras() -> Iterator[_Check]:
    for extra in importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or []:
        added = list(_requirements(extra))
        for package, name in [(each.name, part) for each in added for part in each.extras]:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                added += _requirements(name, project=package)
        found = {each.name: _find(each) for each in added}
        fits = all(fits for _, fits in found.values())
        value = ", ".join(f"{name} {value}" for name, (value, _) in found.items())
        remedy = "" if fits else install_extra(extra)
        yield _Check("Extras", _OK if fits else _MISSING, extra, value, remedy)


def _devices() -> Iterator[_Check]:
    from tt.cli.libraries import import_tensorflow
    from tt.model.engines.machine import cores

    yield _Check("Devices", _OK, "cores", str(cores()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield _Check("Devices", _OK, "memory", f"{memory / 1e9:.1f} GB")
    yield _Check("Devices", _OK, "disk", f"{shutil.disk_usage('.').free / 1e9:.1f} GB free here")
    try:
        import_tensorflow()
        import tensorflow as tf

        gpus = [each.name for each in tf.config.list_physical_devices("GPU")]
    except ImportError as error:
        yield _Check("Devices", _FAILURE, "GPU", f"TensorFlow cannot be imported: {error}")
    else:
        value = ", ".join(gpus) or "TensorFlow finds no GPU; see `tt doctor -v`"
        yield _Check("Devices", _OK if gpus else _MISSING, "GPU", value)
    yield _ctranslate2()
    java = shutil.which("java")
    value = java or "not found; required for Flink, and for Kafka on Dataflow"
    yield _Check("Devices", _OK if java else _MISSING, "java", value)


def _ctranslate2() -> _Check:
    """Check whether CTranslate2 finds GPUs, and the library that it needs to compute on them."""
    from tt.model.engines.machine import explain_missing_cublas

    try:
        import ctranslate2
    except ImportError as error:
        return _Check("Devices", _FAILURE, "CTranslate2", f"cannot be imported: {error}")
    gpus = ctranslate2.get_cuda_device_count()
    if not gpus:
        return _Check("Devices", _MISSING, "CTranslate2", "finds no GPU")
    found = f"finds {counted(gpus, 'GPU')}"
    if reason := explain_missing_cublas():
        value = f"{found}, but cannot use cuBLAS: {reason}"
        return _Check("Devices", _MISSING, "CTranslate2", value, install_extra("gpu"))
    return _Check("Devices", _OK, "CTranslate2", f"{found} and cuBLAS")


def _requirements(extra: str = "", *, project: str = PROJECT) -> Iterator[Requirement]:
    """Yield the requirements of a package, or the requirements that an extra adds."""
    for requirement in map(Requirement, importlib.metadata.requires(project) or []):
        marker = requirement.marker
        is_basic = marker is None or marker.evaluate({"extra": ""})
        is_added = marker is not None and not is_basic and marker.evaluate({"extra": extra})
        if is_added if extra else is_basic:
            yield requirement


def _find(requirement: Requirement) -> tuple[str, bool]:
    """Return a description of the installed version, and whether the version is suitable."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"not installed, {requirement.specifier or 'any version'} required", False
    if requirement.specifier.contains(version, prereleases=True):
        return version, True
    return f"{version}, {requirement.specifier} required", False
