"""Normalize and check paths of any file system that Beam supports."""

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

JOB_FOLDER = "_tt"  # the folder of the job's own files, in the output folder

# Packages that Beam needs for a file system but does not install, by scheme: the module, and a
# function that returns the install command.
_PACKAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "s3": ("boto3", functools.partial(install_extra, "s3")),
    "hdfs": ("hdfs", functools.partial(pip_install, "hdfs")),
    "azfs": ("azure", functools.partial(pip_install, "apache-beam[azure]")),
}
_NO_RIGHT = re.compile(r"\bForbidden\b|\b403\b|\bAccessDenied\b")
# Google's client requests the location of a bucket for traces, which `tt` does not record. Beam
# creates a client per file, so this would cost a request per file.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")


def file_systems() -> Any:
    """Return Beam's FileSystems; the import takes seconds, so it happens only when needed."""
    from apache_beam.io.filesystems import FileSystems

    share_clients()
    return FileSystems


def join(folder: str, *names: str) -> str:
    """Join a folder on any file system with the names below it."""
    return str(file_systems().join(folder, *names))


def folder_of(path: str) -> str:
    """Return the folder part of a path; "" if the path has none."""
    return str(file_systems().split(path)[0])


def is_local(path: str) -> bool:
    """Return whether a path is on a local file system, which means that it has no scheme."""
    return file_systems().get_scheme(path) is None


def real_path(path: str) -> str:
    """Return a path without links, and without a slash at its end unless it is the root."""
    return os.path.realpath(path) if is_local(path) else path.rstrip("/")


def contains(folder: str, path: str) -> bool:
    """Return whether a path is a folder or is inside it; the folder comes from `real_path`."""
    return f"{real_path(path)}/".startswith(f"{folder.rstrip('/')}/")


def is_known(path: str) -> bool:
    """Return whether this installation of Beam supports the file system of a path."""
    try:
        file_systems().get_filesystem(path)
    except ValueError:
        return False
    return True


def check_no_glob(path: str) -> None:
    """Check that a remote path has no glob character, because Beam deletes all files that match.

    Raises:
      UserError: The path is remote and contains a glob character.
    """
    if not is_local(path) and re.search(r"[*?[\]]", path):
        raise UserError(
            f"{path} contains one of the characters * ? [ ], so tt could delete other files on the "
            "object store. Choose another name"
        )


def lookup_error(path: str, error: Exception) -> UserError:
    """Return the error to raise for a path that Beam's file systems cannot look up.

    The error is a `ServiceError` if the file system is supported but does not answer, because a
    later attempt may succeed.
    """
    text = f"{path} cannot be looked up: {lookup_reason(path, error)}"
    if isinstance(error, OSError) and not _missing_package(path):
        return ServiceError(text)
    return UserError(text)


def lookup_reason(path: str, error: Exception) -> str:
    """Return the reason why Beam's file systems cannot look up a path."""
    scheme = file_systems().get_scheme(path)
    if install := _missing_package(path):
        return f"it needs a package that is not installed: {install()}"
    if isinstance(error, ValueError) and scheme not in (None, "gs", *_PACKAGES):
        known = ", ".join(f"{name}://" for name in _PACKAGES)
        return f"tt does not support {scheme}://. Choose a local path, or a path on gs://, {known}"
    if scheme is not None and _NO_RIGHT.search(str(error)):  # Beam wraps the original error
        return (
            "your account has no permission to read it. Ask its owner for access, or choose "
            "another path"
        )
    return " ".join(str(error).split())


def _missing_package(path: str) -> Callable[[], str] | None:
    """Return a function that returns the install command of a missing package, or None."""
    module, install = _PACKAGES.get(file_systems().get_scheme(path), ("", None))
    return install if module and importlib.util.find_spec(module) is None else None


def check_searchable(path: str) -> None:
    """Check that the user may search all folders of a local path or glob.

    Without this check, a file in a folder that the user may not search seems not to exist.

    Raises:
      UserError: The user may not search a folder.
    """
    if is_local(path):
        fixed = re.split(r"[*?[]", path, maxsplit=1)[0]
        try:
            if fixed == path:
                os.stat(path)  # noqa: PTH116 -- paths stay strings
            else:
                os.scandir(os.path.dirname(fixed) or ".").close()  # noqa: PTH120
        except PermissionError as error:
            raise UserError(f"{path} cannot be looked up: permission denied") from error
        except OSError:
            return


def normalize_path(path: str) -> str:
    """Make a local path absolute, so that it is valid in workers with another working directory.

    Raises:
      UserError: The file system of a remote path is unknown or not installed.
    """
    if file_systems().get_scheme(path) is None:
        return os.path.abspath(path)  # noqa: PTH100 -- paths stay strings: they may be gs://
    try:
        file_systems().get_filesystem(path)
    except (ValueError, OSError) as error:
        raise lookup_error(path, error) from error
    return path.rstrip("/")
