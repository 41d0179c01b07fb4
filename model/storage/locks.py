"""Locks of folders on object stores, by an object that only one process can create or renew."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tt.model.errors import UnfinishedError, UserError
from tt.model.storage.files import delete
from tt.model.storage.stores import open_store

LEASE_SECONDS = 180.0  # without a sign of life for this time, another process may take the lock
_RENEW_SECONDS = 30.0


def _this_process() -> dict[str, Any]:
    """Return the content of a lock that this process holds.

    The value of `machine` identifies the kernel and its namespace of processes; "" if unknown.
    """
    machine = ""
    with contextlib.suppress(OSError):  # other systems than Linux
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        machine = f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    return {"host": socket.gethostname(), "process": os.getpid(), "machine": machine}


def _is_dead(holder: Mapping[str, Any]) -> bool:
    """Return whether a process ran on this machine and has ended."""
    machine = _this_process()["machine"]
    if not (machine and machine == holder.get("machine")):
        return False
    try:
        os.kill(holder["process"], 0)
    except OSError as error:  # PermissionError: the process of another user
        return isinstance(error, ProcessLookupError)
    return False


@contextlib.contextmanager
def lock_object(path: str, *, folder: str, remedy: str) -> Iterator[bool]:
    """Lock a folder on an object store; yield whether the store supports locks.

    A killed process leaves its lock. The next process takes it at once if the killed process ran on
    the same machine, and otherwise `LEASE_SECONDS` after its last sign of life.

    Args:
      path: The object of the lock, which exists only inside the block.
      folder: The locked folder, for messages.
      remedy: What the user can do instead of waiting.

    Raises:
      UserError: Another process has locked the folder.
      UnfinishedError: Another process took the lock, because this one was stopped for minutes.
    """
    lock = _Lock(path)
    try:
        is_taken = lock.take()
    except NotImplementedError:  # an old service that is compatible with S3
        yield False
        return
    if not is_taken:
        raise UserError(
            f"another process works in {folder} ({lock.holder}). Wait until it ends, or {remedy}"
        )
    ended = threading.Event()
    renewing = threading.Thread(
        target=lock.renew_until, args=(ended,), name="renew lock", daemon=True
    )
    renewing.start()
    try:
        yield True
    finally:
        ended.set()
        renewing.join()
        lock.release()
    if lock.is_lost:
        raise UnfinishedError(
            f"another process took over {folder}, because this process was stopped for more than "
            f"{LEASE_SECONDS / 60:g} minutes. Wait until it ends, and run the same command again"
        )


class _Lock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._content = json.dumps(_this_process()).encode()
        self._version: Any = "create"  # the mode of the next PUT
        self.is_lost = False
        self.holder = ""  # a description of the other process that holds the lock

    def take(self) -> bool:
        """Create the object, or replace the object of a process that has ended."""
        if self._put():
            return True
        try:
            with open_store(self._path) as (store, key):
                found = store.get(key)
                content = bytes(found.bytes())
        except FileNotFoundError:  # the other process has just ended
            return self._put()
        holder: dict[str, Any] = {}
        with contextlib.suppress(ValueError, TypeError, KeyError):  # another program wrote it
            values = json.loads(content)
            holder = {name: values[name] for name in _this_process()}
        age = max(0.0, time.time() - found.meta["last_modified"].timestamp())
        name = f"process {holder['process']} on {holder['host']}, " if holder else ""
        self.holder = f"{name}last sign of life {age:.0f} s ago"
        if age <= LEASE_SECONDS and not _is_dead(holder):
            return False
        self._version = _version(found.meta)
        return self._put()

    def _put(self) -> bool:
        """Write the object; return whether nobody else has written it since `_version`."""
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            with open_store(self._path) as (store, key):
                put = store.put(key, self._content, mode=self._version)
            self._version = _version(put)
            return True
        return False

    def renew_until(self, ended: threading.Event) -> None:
        """Renew the lock regularly, until the event is set or another process has the lock."""
        while not self.is_lost and not ended.wait(_RENEW_SECONDS):
            with contextlib.suppress(UserError):  # the store may answer the next time
                self.is_lost = not self._put()

    def release(self) -> None:
        """Delete the object, unless another process has taken it."""
        if not self.is_lost:
            delete([self._path])


def _version(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of an object that the next PUT may replace."""
    return {name: found[name] for name in ("e_tag", "version") if found[name] is not None}
