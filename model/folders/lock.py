"""One process at a time works in a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from model.errors import UserError
from model.folders.durable import make_folder

_TRY_SECONDS = 1.0  # much longer than `check_lock` holds a lock
_PAUSE_SECONDS = 0.01
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # of a file system without locks


@contextlib.contextmanager
def lock_folder(
    folder: str | Path,
    *,
    name: str,
    activity: str = "works",
    remedy: str,
    subject: str | None = None,
) -> Iterator[bool]:
    """Lock a local folder, which is made if it is missing; yield whether its file system can lock.

    `check_lock` locks the folder for a moment, so this function tries for a second before it
    refuses.

    Args:
      folder: The folder.
      name: A file in the folder that exists only inside the block. The kernel releases the lock
        when this process ends, however it ends.
      activity: A verb for what another process does in the folder.
      remedy: Advice besides waiting.
      subject: What the message says of the other process, in place of `activity` and the folder.

    Raises:
      UserError: Another process has locked it.
      OSError: The file cannot be written.
    """
    make_folder(folder)
    path = Path(folder, name)
    deadline = time.monotonic() + _TRY_SECONDS
    while True:
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    path.unlink(missing_ok=True)
                    yield False
                    return
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                if time.monotonic() < deadline:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                file.seek(0)
                raise _locked(
                    file.read(), subject=subject or f"{activity} in {folder}", remedy=remedy
                ) from error
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
            raise _locked(file.read(), subject=f"{activity} in {folder}", remedy=remedy) from error


def _locked(holder: str, *, subject: str, remedy: str) -> UserError:
    return UserError(f"another process {subject} ({holder}): wait until it has ended, or {remedy}")


def _is_file(descriptor: int, path: Path) -> bool:
    """Says whether an open file is still the one of that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
