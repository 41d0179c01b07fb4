"""Signals and errors that stop a training early."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.errors import UserError, plain_reason
from tt.model.training.strategies import Workers

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(Exception):  # noqa: N818 (not an error)
    """Raised when a run stops on request, after it was saved."""


class StopRequest:
    """A request to stop a run at the next point from which it can resume."""

    def __init__(self) -> None:
        self.signal: int | None = None  # number of the signal that made the request
        self._made = threading.Event()

    def make(self, number: int | None = None) -> None:
        """Request a stop; `number` is the signal that caused the request, if there is one."""
        if not self._made.is_set():
            self.signal = number
            self._made.set()

    def is_made(self) -> bool:
        """Return whether a stop was requested."""
        return self._made.is_set()

    def check(self, workers: Workers) -> None:
        """Raise `Terminated` if any worker has a request; all workers must call this method."""
        told: float = self.is_made()
        if workers.are_several:  # all workers must stop at the same point
            told = workers.sum(np.array([told]))[0]
        if told:
            raise Terminated

    @contextlib.contextmanager
    def from_signals(
        self, *, on_interrupt: Callable[[], None], on_second: Callable[[], None]
    ) -> Iterator[None]:
        """Return a context in which SIGTERM and SIGINT request a stop.

        Outside of the main thread, the context does nothing. Signals that this process ignores stay
        ignored, for example SIGINT in a background job. The handlers of other signals do not
        change.

        Args:
          on_interrupt: Called at the first signal if it is SIGINT.
          on_second: Called at each later SIGINT. A separate thread makes both calls without delay,
            because Python runs its signal handlers only after TensorFlow returns.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            self.make(number)

        def watch() -> None:
            is_first = True
            while received := heard.recv(1):
                if received[0] not in taken:  # Python writes every signal that it handles
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
                # `signal.signal` returned None for a handler that a C library had installed.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            told.close()
            watcher.join()
            heard.close()


def batches_per_look(devices: Sequence[str]) -> int:
    """Return after how many batches several workers look for requests to stop.

    A look waits for the queued work of a GPU. CPUs queue nothing, and their batches take longer.

    >>> batches_per_look(["/job:worker/task:0/device:GPU:0"]), batches_per_look(["/cpu:0"])
    (10, 1)
    """
    return 10 if "GPU" in str(devices).upper() else 1


def not_finite(what: str, *, step: int, last_good: str) -> UserError:
    """Return the error for a value that is infinite or not a number.

    Args:
      what: The quantity and its value, for example "loss is nan".
      step: Step at which the value occurred.
      last_good: Path of the last checkpoint.
    """
    return UserError(
        f"training stopped, because the {what} at step {step} (last good checkpoint: {last_good}). "
        "In a new `run`, lower `peak_learning_rate`, raise `warmup_steps` or set `clip_norm`"
    )


def out_of_memory(
    error: tf.errors.ResourceExhaustedError, *, where: str, last_good: str = "none", fix: str = ""
) -> UserError:
    """Return the error for a device that ran out of memory.

    Args:
      error: TensorFlow's error.
      where: Where in the training it occurred, for example "at step 5 of 10".
      last_good: Path of the last checkpoint.
      fix: Advice with options that fit into memory, if they are known.
    """
    others = (
        "lower `batch_tokens` (`effective_batch_size` keeps the size of updates), choose a smaller "
        "`preset`, or skip translations in validations with `score_every=0`"
    )
    return UserError(
        f"out of memory {where} ({plain_reason(error)}; last good checkpoint: {last_good}). In a "
        f"new `run`, {fix or others}"
    )
