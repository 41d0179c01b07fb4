"""Normalize and compare paths on this machine and on object stores."""

from __future__ import annotations

import os
import re

from tt.model.errors import UserError

JOB_FOLDER = "_tt"  # the folder of the job's own files, in the output folder
SCHEMES = {"s3", "gs", "az", "abfss"}  # of the object stores that `tt` supports
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_PATH = re.compile(r"(?P<root>[^:]+://[^/]+)(/(?P<key>.*))?", re.DOTALL)


def scheme_of(path: str) -> str:
    """Return the scheme of a path, such as "s3"; "" for a path on this machine."""
    found = _SCHEME.match(path)
    return found[1].lower() if found else ""


def is_local(path: str) -> bool:
    """Return whether a path is on this machine, which means that it has no scheme."""
    return not scheme_of(path)


def join(folder: str, *names: str) -> str:
    """Join a folder on any storage with the names below it."""
    return "/".join([folder.rstrip("/"), *names]) if folder else "/".join(names)


def folder_of(path: str) -> str:
    """Return the folder of a path; "" if the path has none."""
    return os.path.dirname(path)  # noqa: PTH120 -- paths stay strings: they may be s3://


def real_path(path: str) -> str:
    """Return a path without links, and without a slash at its end unless it is the root."""
    return os.path.realpath(path) if is_local(path) else path.rstrip("/")


def contains(folder: str, path: str) -> bool:
    """Return whether a path is a folder or is inside it; the folder comes from `real_path`."""
    return f"{real_path(path)}/".startswith(f"{folder.rstrip('/')}/")


def is_known(path: str) -> bool:
    """Return whether `tt` supports the scheme of a path."""
    return is_local(path) or scheme_of(path) in SCHEMES


def normalize_path(path: str) -> str:
    """Make a local path absolute, so that it is valid in workers with another working directory.

    Raises:
      UserError: `tt` does not support the scheme of a remote path, or the path is invalid.
    """
    if is_local(path):
        return os.path.abspath(path)  # noqa: PTH100 -- paths stay strings: they may be s3://
    _, key = split_path(path)
    if any(part in ("", ".", "..") for part in key.split("/") if key):
        raise UserError(
            f"{path} must have names that are not empty, . or .. between its slashes. Choose "
            "another path"
        )
    return path.rstrip("/")


def split_path(path: str) -> tuple[str, str]:
    """Return the root of a remote path, such as "s3://bucket", and the key of its object.

    Raises:
      UserError: `tt` does not support the scheme, or the path has no bucket.
    """
    if scheme_of(path) not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in sorted(SCHEMES))
        raise UserError(
            f"{path} cannot be looked up: tt does not support {scheme_of(path)}://. Choose a local "
            f"path, or a path on {known}"
        )
    found = _PATH.fullmatch(path)
    if found is None:
        raise UserError(f"{path} must contain a bucket. Choose another path")
    return found["root"], (found["key"] or "").rstrip("/")


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
