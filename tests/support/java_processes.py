"""Java processes that outlive the script that starts them: found again by their ids, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine at which nothing listens."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def is_there(process: int, *, command: bytes, is_new: bool = False) -> bool:
    """Says whether a process runs that has this in its command: the id may be another's by now.

    The command of one that has just begun (`is_new`) may be empty: Java's start replaces it once.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)  # if it is a child that has ended
    try:
        found = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return command in found or (is_new and not found)


def end(processes: Sequence[int], *, command: bytes, seconds: float) -> None:
    """Ends those processes that are still there, by force where they take longer than `seconds`."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if is_there(process, command=command):
                os.kill(process, sign)
        last = time.monotonic() + seconds
        while any(is_there(each, command=command) for each in processes):
            if time.monotonic() > last:
                break
            time.sleep(0.1)
