"""Find and end Java processes by ID, which outlive the script that starts them."""

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
    """Return free ports of this machine."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def is_there(process: int, *, command: bytes, is_new: bool = False) -> bool:
    """Return whether a process with this ID runs and has this text in its command.

    The ID may belong to another process by now. With `is_new`, the command may also be empty,
    because Java replaces it once during its start.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)  # if it is a child that has ended
    try:
        found = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return command in found or (is_new and not found)


def end(processes: Sequence[int], *, command: bytes, seconds: float) -> None:
    """End the processes that still run, by force if they take longer than `seconds`."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if is_there(process, command=command):
                os.kill(process, sign)
        last = time.monotonic() + seconds
        while any(is_there(each, command=command) for each in processes):
            if time.monotonic() > last:
                break
            time.sleep(0.1)
