"""Ctrl-C as a user presses it: again, as long as nothing answers."""

from __future__ import annotations

import os
import signal
import threading

PRESSES = 10
WAIT_SECONDS = 3


def interrupt(process, *, is_group=False):
    """Sends SIGINT until `tt` says that it cancels its job; returns what it printed till its end.

    A signal that meets gRPC's own code may be lost there.

    Args:
      process: A `tt`, whose stderr is a pipe of text.
      is_group: Whether all processes of its group get the signal, as a terminal does it.
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
        if line.startswith("Cancelling "):
            asked.set()
    asked.set()
    presses.join()
    process.wait(timeout=120)
    return said
