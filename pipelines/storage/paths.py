"""Paths of any file system that Beam knows, and why one cannot be looked up."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any

from tt.model.errors import ServiceError, UserError
from tt.model.extras import install_extra, pip_install
from tt.pipelines.storage.object_stores import share_clients

JOB_FOLDER = "_tt"  # in a translated folder: what is the job's own

# What Beam lacks for file systems that it knows, by scheme: the module, and what installs it.
_PACKAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "s3": ("boto3", functools.partial(install_extra, "s3")),
    "hdfs": ("hdfs", functools.partial(pip_install, "hdfs")),
    "azfs": ("azure", functools.partial(pip_install, "apache-beam[azure]")),
}
_NO_RIGHT = re.compile(r"\bForbidden\b|\b403\b|\bAccessDenied\b")
# Google's client asks for the bucket's place, to name it in traces that nobody records: with each
# file that Beam opens, as that has a client of its own.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")


def file_systems() -> Any:
    """Imports Beam where a path is looked at: it takes seconds, and many commands need none."""
    from apache_beam.io.filesystems import FileSystems

    share_clients()
    return FileSystems


def join(folder: str, *names: str) -> str:
    """Joins a folder of any file system and names in it to a path."""
    return str(file_systems().join(folder, *names))


def folder_of(path: str) -> str:
    """Returns the folder that a path names a file in; "" where it names none."""
    return str(file_systems().split(path)[0])


def is_local(path: str) -> bool:
    """Says whether a path is on this machine."""
    return file_systems().get_scheme(path) is None


def is_known(path: str) -> bool:
    """Says whether a path is of a file system that Beam knows here."""
    try:
        file_systems().get_filesystem(path)
    except ValueError:
        return False
    return True


def check_no_glob(path: str) -> None:
    """Checks that an object store does not take a name for a glob, by which Beam deletes there.

    Raises:
      UserError: The path is not local and has a character of globs.
    """
    if not is_local(path) and re.search(r"[*?[\]]", path):
        raise UserError(
            f"{path} has one of the characters * ? [ ], by which other files of an object store "
            "might be deleted: choose another name"
        )


def lookup_error(path: str, error: Exception) -> UserError:
    """Returns what to tell the user of a path that Beam's file systems cannot find.

    Where a file system is there and does not answer, it is a `ServiceError`: that may pass.
    """
    text = f"{path} cannot be looked up: {lookup_reason(path, error)}"
    if isinstance(error, OSError) and not _missing_package(path):
        return ServiceError(text)
    return UserError(text)


def lookup_reason(path: str, error: Exception) -> str:
    """Says why Beam's file systems cannot find a path."""
    scheme = file_systems().get_scheme(path)
    if install := _missing_package(path):
        return f"it needs a package that is not installed: {install()}"
    if isinstance(error, ValueError) and scheme not in (None, "gs", *_PACKAGES):
        known = ", ".join(f"{name}://" for name in _PACKAGES)
        return f"{scheme}:// is no file system that tt knows, which are local paths, gs://, {known}"
    if scheme is not None and _NO_RIGHT.search(str(error)):  # somewhere in Beam's wrapping
        return "your account has no right to read there: ask its owner for one, or name another"
    return " ".join(str(error).split())


def _missing_package(path: str) -> Callable[[], str] | None:
    """Returns what says how to install the package that a path's file system lacks, or None."""
    module, install = _PACKAGES.get(file_systems().get_scheme(path), ("", None))
    return install if module and importlib.util.find_spec(module) is None else None


def check_is_open(path: str) -> None:
    """Checks that this user may search the folders on the way to a local path or glob.

    A file behind a folder that may not be searched looks as if it did not exist.

    Raises:
      UserError: A folder may not be searched.
    """
    if is_local(path):
        fixed = re.split(r"[*?[]", path, maxsplit=1)[0]
        try:
            if fixed == path:
                os.stat(path)  # noqa: PTH116 (a glob is no Path)
            else:
                os.scandir(os.path.dirname(fixed) or ".").close()  # noqa: PTH120
        except PermissionError as error:
            raise UserError(f"{path} cannot be looked up: permission denied") from error
        except OSError:
            return


def normalize_path(path: str) -> str:
    """Makes a local path absolute, so that workers with another folder agree on it.

    Raises:
      UserError: The file system is not known, or not installed.
    """
    if file_systems().get_scheme(path) is None:
        return os.path.abspath(path)  # noqa: PTH100 -- paths stay strings: they may be gs://
    try:
        file_systems().get_filesystem(path)
    except (ValueError, OSError) as error:
        raise lookup_error(path, error) from error
    return path.rstrip("/")
