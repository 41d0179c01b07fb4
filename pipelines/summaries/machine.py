"""This machine: its cores, memory, disks and credentials, as a process here may use them."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disk:
    """The disk that a folder lies on."""

    folder: str
    free: int  # bytes
    total: int  # bytes
    is_writable: bool


def disk_of(folder: Path) -> Disk:
    """Returns the disk of a folder, which need not be there yet.

    Raises:
      OSError: It cannot be looked at.
    """
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    usage = shutil.disk_usage(there)
    is_writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return Disk(folder=str(folder), free=usage.free, total=usage.total, is_writable=is_writable)


def memory() -> tuple[int, int]:
    """Returns the memory that processes here may use, and what of it is free; bytes, 0 if unknown.

    A container's limit counts, where it is less than the machine's memory.
    """
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text("ascii").splitlines())
        total, free = (1024 * int(lines[n].split()[0]) for n in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return 0, 0
    limit, used = _number("memory.max"), _number("memory.current")
    if limit is None or limit >= total:
        return total, free
    return int(limit), int(min(free, limit - (used or 0)))


def core_quota() -> float | None:
    """Returns how many cores' time a container may use; None where it has no such limit."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text("ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # "max": no limit
        return None


def _number(name: str) -> float | None:
    try:
        return int((_CGROUP / name).read_text("ascii"))
    except (OSError, ValueError):
        return None


def google_credentials() -> str:
    """Returns where credentials of Google's lie, never what is in them; "" where there are none.

    Machines of Google's have an account of their own, of which only the network knows.
    """
    if named := os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return "GOOGLE_APPLICATION_CREDENTIALS" if Path(named).is_file() else ""
    given = os.environ.get("CLOUDSDK_CONFIG")
    folder = Path(given) if given else Path.home() / ".config/gcloud"
    path = folder / "application_default_credentials.json"
    return "gcloud auth application-default login" if path.is_file() else ""


def amazon_credentials() -> str:
    """Returns where credentials for S3 are found, never what they are; "" where there are none.

    Machines of Amazon's have a role of their own, of which only the network knows.
    """
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        return "AWS_ACCESS_KEY_ID"
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return "AWS_WEB_IDENTITY_TOKEN_FILE"
    given = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(given) if given else Path.home() / ".aws/credentials"
    return "the shared credentials file of `aws configure`" if path.is_file() else ""
