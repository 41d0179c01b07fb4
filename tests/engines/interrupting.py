"""Ctrl-C as a user presses it: repeatedly, until the program answers."""

from __future__ import annotations

import os
import signal
import threading

PRESSES = 10
WAIT_SECONDS = 3


def interrupt(process, *, is_group=False):
    """Send SIGINT until `tt` reports that it cancels its job; return its stderr until its end.

    A signal can be lost while gRPC's own code runs.

    Args:
      process: A `tt` whose stderr is a text pipe.
      is_group: Whether all processes of its group get the signal, as from a terminal.
    """
    asked = threading.Event()

    def press():
        for _ in range(PRESSES):
            if process.poll() is not None:
                return
            (os.killpg if is_group else os.kill)(process.pid, signal.SIGINT)
            if asked.wait(WAIT_SECONDS):
                return

    presses = threading.Thread(target=press)
    presses.start()
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith("Canceling "):
            asked.set()
    asked.set()
    presses.join()
    process.wait(timeout=120)
    return said
