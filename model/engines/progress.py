"""How much of what the threads of this process translate is done, for whoever watches.

A thread says that it begins a task, and the batches that it translates are counted to it. Each task
is written to by one thread alone, once a batch, so that counting costs nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator


@dataclasses.dataclass(eq=False)
class _Task:
    """A run of rows that a thread works on."""

    rows: int
    sources: int = 0  # texts of theirs that are translated; 0 before that is known
    done: int = 0  # texts of theirs that are done

    def rows_done(self) -> int:
        """Returns the rows by the share of the sources that is done."""
        if self.sources == 0:
            return 0
        return self.rows * min(self.done, self.sources) // self.sources


_tasks: set[_Task] = set()
_of_thread = threading.local()


@contextlib.contextmanager
def begin_rows(rows: int) -> Iterator[None]:
    """Counts what this thread translates in the `with` block towards so many rows."""
    task = _of_thread.task = _Task(rows)
    _tasks.add(task)
    try:
        yield
    finally:
        _of_thread.task = None
        _tasks.discard(task)


def begin_sources(sources: int) -> None:
    """Says how many sources the rows of this thread have."""
    task = getattr(_of_thread, "task", None)
    if task is not None:
        task.sources, task.done = sources, 0


def add_done(sources: int) -> None:
    """Counts sources that this thread has translated."""
    task = getattr(_of_thread, "task", None)
    if task is not None:
        task.done += sources


def rows_under_way() -> int:
    """Returns how many rows of unfinished tasks are done.

    >>> with begin_rows(100):
    ...     begin_sources(8)
    ...     add_done(2)
    ...     rows_under_way()
    25
    """
    return sum(task.rows_done() for task in _tasks.copy())
