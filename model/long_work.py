"""Progress of long tasks, and calls in threads.

A task registers itself here and counts its progress, and the command line reads the counts.
Therefore, functions need no parameter for a progress reporter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

BYTES = "bytes"
_Result = TypeVar("_Result")


def call_in_thread(function: Callable[[], _Result], *, name: str) -> Future[_Result]:
    """Call a function in a daemon thread, which does not keep the process alive.

    >>> call_in_thread(lambda: 6 * 7, name="multiply").result()
    42
    """
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # the caller of `result` gets it
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


@dataclasses.dataclass(eq=False)
class Work:
    """A task of known size."""

    name: str  # such as "scoring"
    total: int
    unit: str  # unit of `total` and `done`: `BYTES`, or a plural such as "sentences"
    done: int = 0
    began: float = dataclasses.field(default_factory=time.monotonic)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def add(self, count: int) -> None:
        """Add to the finished work; this is thread-safe."""
        with self._lock:
            self.done += count


_works: list[Work] = []


@contextlib.contextmanager
def long_work(name: str, *, total: int, unit: str = BYTES) -> Iterator[Work]:
    """Register the `with` block as a task, and yield the task to count its progress.

    >>> with long_work("scoring", total=10, unit="sentences") as work:
    ...     work.add(4)
    ...     current_work().done
    4
    >>> current_work()
    """
    work = Work(name, total, unit)
    _works.append(work)
    try:
        yield work
    finally:
        _works.remove(work)


def current_work() -> Work | None:
    """Return the most recent unfinished task, or None."""
    return next(iter(_works.copy()[::-1]), None)
