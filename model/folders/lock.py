"""One process at a time works in a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from model.errors import UserError
from model.folders.durable import make_folder

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # of a file system without locks


@contextlib.contextmanager
def lock_folder(
    folder: str | Path, *, name: str, activity: str = "works", remedy: str
) -> Iterator[bool]:
    """Keeps other processes from locking a folder of this machine, which is made if need be.

    The file `name` in it is there only inside the block; the kernel gives the lock back when this
    process ends, however that happens. `activity` is a verb for what another process does in it,
    `remedy` is advice beside waiting. It yields whether the file system can lock.

    Raises:
      UserError: Another process has locked it.
      OSError: The file cannot be written.
    """
    make_folder(folder)
    path = Path(folder, name)
    while True:
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    yield False
                    return
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                file.seek(0)
                raise _locked(file.read(), folder=folder, activity=activity, remedy=remedy) from (
                    error
                )
            if not _is_file(file.fileno(), path):
                continue  # its holder deleted it before it let go
            file.truncate(0)
            file.write(f"process {os.getpid()} of {socket.gethostname()}")
            file.flush()
            try:
                yield True
            finally:
                # If a job deleted its folder, another process may have locked a new file since.
                if _is_file(file.fileno(), path):
                    path.unlink(missing_ok=True)
            return


def check_lock(folder: str | Path, *, name: str, activity: str = "works", remedy: str) -> None:
    """Checks that no process has locked a folder of this machine; writes nothing.

    Raises:
      UserError: One has.
    """
    path = Path(folder, name)
    try:
        opened = path.open()
    except FileNotFoundError:  # it is there only while it is locked, or if its holder was killed
        return
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back at once
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return  # a file system without locks
            raise _locked(file.read(), folder=folder, activity=activity, remedy=remedy) from error


def _locked(holder: str, *, folder: str | Path, activity: str, remedy: str) -> UserError:
    return UserError(
        f"another process {activity} in {folder} ({holder}): wait until it has ended, or {remedy}"
    )


def _is_file(descriptor: int, path: Path) -> bool:
    """Says whether an open file is still the one of that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
