"""Locks of folders on object stores, by an object that only one process can create or renew."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tt.model.errors import UnfinishedError, UserError
from tt.model.storage.stores import explain, open_store

LEASE_SECONDS = 180.0  # without a sign of life for this time, another process may take the lock
_RENEW_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class _Holder:
    """The process that holds a lock."""

    host: str
    process: int
    machine: str  # identifies the kernel and its namespace of processes; "" if unknown

    @classmethod
    def of_this_process(cls) -> _Holder:
        machine = ""
        with contextlib.suppress(OSError):  # other systems than Linux
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            machine = f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
        return cls(socket.gethostname(), os.getpid(), machine)

    def is_dead(self) -> bool:
        """Return whether the process ran on this machine and has ended."""
        here = _Holder.of_this_process()
        if not (here.machine and here.machine == self.machine):
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # the process of another user
            return False
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
    from obstore.exceptions import NotSupportedError

    lock = _Lock(path)
    try:
        is_taken = lock.take()
    except NotSupportedError:  # an old service that is compatible with S3
        yield False
        return
    if not is_taken:
        raise UserError(
            f"another process works in {folder} ({lock.describe()}). Wait until it ends, or "
            f"{remedy}"
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
        self._store, self._key = open_store(path)
        self._content = json.dumps(dataclasses.asdict(_Holder.of_this_process())).encode()
        self._version: Any = "create"  # the mode of the next PUT
        self.is_lost = False
        self._found: tuple[_Holder | None, float] = (None, 0.0)

    def take(self) -> bool:
        """Create the object, or replace the object of a process that has ended."""
        import obstore

        with contextlib.suppress(FileExistsError):
            self._put()
            return True
        with contextlib.suppress(FileNotFoundError), explain(self._path):
            found = obstore.get(self._store, self._key)
            meta = found.meta
            holder = None
            with contextlib.suppress(ValueError, TypeError):
                holder = _Holder(**json.loads(bytes(found.bytes())))
            age = time.time() - meta["last_modified"].timestamp()
            self._found = holder, age
            if age <= LEASE_SECONDS and not (holder and holder.is_dead()):
                return False
            self._version = _version(meta)
        return self._replace()

    def _replace(self) -> bool:
        from obstore.exceptions import PreconditionError

        with contextlib.suppress(FileExistsError, PreconditionError):  # another process was faster
            self._put()
            return True
        return False

    def _put(self) -> None:
        import obstore

        with explain(self._path):
            put = obstore.put(self._store, self._key, self._content, mode=self._version)
        self._version = _version(put)

    def describe(self) -> str:
        """Describe the process that holds the lock."""
        holder, age = self._found
        name = f"process {holder.process} on {holder.host}, " if holder else ""
        return f"{name}last sign of life {max(0.0, age):.0f} s ago"

    def renew_until(self, ended: threading.Event) -> None:
        """Renew the lock regularly, until the event is set or another process has the lock."""
        from obstore.exceptions import PreconditionError

        while not self.is_lost and not ended.wait(_RENEW_SECONDS):
            try:
                self._put()
            except (PreconditionError, FileNotFoundError):
                self.is_lost = True
            except UserError:  # the store does not answer; the next attempt may succeed
                continue

    def release(self) -> None:
        """Delete the object, unless another process has taken it."""
        import obstore

        if not self.is_lost:
            with contextlib.suppress(FileNotFoundError), explain(self._path):
                obstore.delete(self._store, self._key)


def _version(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of an object that the next PUT may replace."""
    return {name: found[name] for name in ("e_tag", "version") if found[name] is not None}
