"""Stopping in good order: SIGTERM and Ctrl-C, and what a run that was saved ends with."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(Exception):  # noqa: N818 (it is no error)
    """The run was told to stop, and is saved."""


class StopRequest:
    """Whether a run is to stop where it can go on later, and what said so.

    Attributes:
      signal: Number of the first signal that said so; None where no signal did.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._made = threading.Event()

    def make(self, number: int | None = None) -> None:
        """Tells the run to stop; `number` is that of a signal."""
        if not self._made.is_set():
            self.signal = number
            self._made.set()

    def is_made(self) -> bool:
        """Says whether the run is to stop."""
        return self._made.is_set()

    @contextlib.contextmanager
    def from_signals(
        self, *, on_interrupt: Callable[[], None], on_second: Callable[[], None]
    ) -> Iterator[None]:
        """Takes SIGTERM and SIGINT for requests instead of dying of them; only a main thread can.

        One that this process ignores, as jobs in the background do SIGINT, it goes on ignoring.

        Args:
          on_interrupt: Called at a SIGINT that is the first of all signals.
          on_second: Called at a SIGINT that is not, at once: from a thread of its own, as Python
            hears of a signal only when TensorFlow is through with what it computes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            self.make(number)

        def watch() -> None:
            is_first = True
            while received := heard.recv(1):
                self.make(received[0])
                if received[0] == signal.SIGINT:
                    (on_interrupt if is_first else on_second)()
                is_first = False

        heard, told = socket.socketpair()
        told.setblocking(False)
        watcher = threading.Thread(target=watch, name="signals", daemon=True)
        taken = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        handlers = {number: signal.signal(number, note) for number in taken}
        descriptor = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        watcher.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            told.close()
            watcher.join()
            heard.close()
