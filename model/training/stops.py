"""Why a training stops early: signals, and errors that end it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.errors import UserError
from tt.model.remote_files import plain_reason
from tt.model.training.strategies import Workers

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(Exception):  # noqa: N818 (it is no error)
    """The run was told to stop, and is saved."""


class StopRequest:
    """Whether a run shall stop at a point where it can resume, and the signal that said so."""

    def __init__(self) -> None:
        self.signal: int | None = None  # number of the first signal that said so
        self._made = threading.Event()

    def make(self, number: int | None = None) -> None:
        """Tell the run to stop, because of the signal `number` or without one."""
        if not self._made.is_set():
            self.signal = number
            self._made.set()

    def is_made(self) -> bool:
        """Say whether the run shall stop."""
        return self._made.is_set()

    def check(self, workers: Workers) -> None:
        """Raise `Terminated` if any worker shall stop; all must call this."""
        told: float = self.is_made()
        if workers.are_several:  # so all of them stop at the same place
            told = workers.sum(np.array([told]))[0]
        if told:
            raise Terminated

    @contextlib.contextmanager
    def from_signals(
        self, *, on_interrupt: Callable[[], None], on_second: Callable[[], None]
    ) -> Iterator[None]:
        """Treat SIGTERM and SIGINT as requests, if called in the main thread.

        Signals that this process ignores stay ignored, such as SIGINT in a background job. The
        handlers of all other signals work as before. `on_interrupt` is called at the first signal
        if it is SIGINT, and `on_second` at each later SIGINT. A thread calls them at once, because
        Python runs its own handlers only when TensorFlow returns.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            self.make(number)

        def watch() -> None:
            is_first = True
            while received := heard.recv(1):
                if received[0] not in taken:  # Python writes all signals that it handles
                    continue
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
                # Python has no object for a handler of another library.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            told.close()
            watcher.join()
            heard.close()


def not_finite(what: str, *, step: int, last_good: str) -> UserError:
    """Return the error for a value that is no number."""
    return UserError(
        f"the {what} at step {step}, so training stopped (last good checkpoint: {last_good}). In a "
        "new `run`, lower `peak_learning_rate`, raise `warmup_steps` or set `clip_norm`"
    )


def out_of_memory(
    error: tf.errors.ResourceExhaustedError, *, where: str, last_good: str = "none"
) -> UserError:
    """Return the error for a device without memory."""
    return UserError(
        f"out of memory {where} ({plain_reason(error)}; last good checkpoint: {last_good}): lower "
        "`batch_tokens` in a new `run` (`effective_batch_size` keeps updates as large), choose a "
        "smaller `preset`, or skip translations of a validation with `score_every` 0"
    )
