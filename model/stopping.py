"""Stopping in good order: SIGTERM, and what a run that was saved ends with."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Terminated(Exception):  # noqa: N818 (it is no error)
    """SIGTERM came; the run is saved."""


@contextlib.contextmanager
def on_sigterm(told: threading.Event) -> Iterator[None]:
    """Notes a SIGTERM instead of dying of it; only a main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: Any) -> None:
        told.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
