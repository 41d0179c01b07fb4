"""Encoded texts to batches of like length, and how many of them this process has translated.

Each thread declares its task, and its batches count towards that task. Only one thread writes to a
task, once per batch, so counting costs nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from tt.model.engines.translator import Work
from tt.model.text.vocabulary import PAD_ID

Result = TypeVar("Result")
MOST_PADDING = 0.1  # of the positions of a batch
_SMALL = 2048  # padded positions; a smaller batch for less padding would take longer


class TokenBudget:
    """The most padded source positions of a batch, at least 1, for all threads; it only shrinks."""

    def __init__(self, tokens: int) -> None:
        self.tokens = max(1, tokens)
        self._lock = threading.Lock()

    def shrink(self, tokens: int) -> None:
        """Lowers the budget; one that is lower already stays."""
        with self._lock:
            self.tokens = max(1, min(self.tokens, tokens))


def translate_in_batches(
    rows: list[list[int]],
    *,
    budget: TokenBudget,
    translate_batch: Callable[[list[list[int]]], tuple[list[Result], Work]],
    is_memory_error: Callable[[Exception], bool],
    most_padding: float = MOST_PADDING,
) -> tuple[list[Result], Work]:
    """Translates rows in batches of like length, the longest first, and puts them back in order.

    A batch ends where the budget (rows times the longest length; one row always fits) does, or
    before more than `most_padding` of it would be padding if it is large. One for which memory runs
    out is cut in half, and the budget with it: later batches, and those of other threads, keep to
    what fits. `translate_batch` gives a result for each row of a batch, and what it took.

    Raises:
      Exception: What `translate_batch` raised, if it was no lack of memory or one row's.
    """
    order = sorted(range(len(rows)), key=lambda i: (-len(rows[i]), i))
    results: dict[int, Result] = {}
    work = Work()
    while len(results) < len(rows):
        first = len(results)
        longest = max(1, len(rows[order[first]]))
        candidates = order[first : first + max(1, budget.tokens // longest)]
        lengths = [len(rows[i]) for i in candidates]
        batch = candidates[: _rows_with_little_padding(lengths, most_padding=most_padding)]
        try:
            found, took = translate_batch([rows[i] for i in batch])
        except Exception as error:
            if len(batch) == 1 or not is_memory_error(error):
                raise
            budget.shrink(len(batch) * longest // 2)
            work += Work(memory_backoffs=1)
            continue
        results.update(zip(batch, found, strict=True))
        add_done(len(batch))
        work += took
    return [results[i] for i in range(len(rows))], work


def _rows_with_little_padding(lengths: list[int], *, most_padding: float) -> int:
    """Returns how many of the rows, whose lengths fall, make a batch with no more padding."""
    ids = 0
    for rows, length in enumerate(lengths, 1):
        ids += length
        positions = rows * lengths[0]
        if positions > _SMALL and ids < (1 - most_padding) * positions:
            return rows - 1
    return len(lengths)


def count_work(rows: list[list[int]], *, target_tokens: int) -> Work:
    """Returns what a batch of rows took.

    >>> count_work([[2, 7, 3], [2, 3]], target_tokens=4).padded_tokens
    6
    """
    return Work(
        sources=len(rows),
        source_tokens=sum(map(len, rows)),
        padded_tokens=len(rows) * max(map(len, rows)),
        target_tokens=target_tokens,
    )


def pad(rows: list[list[int]]) -> np.ndarray:
    """Returns the rows as int32 [B, S], PAD at the end.

    >>> pad([[2, 3], [2, 7, 3]])
    array([[2, 3, 0],
           [2, 7, 3]], dtype=int32)
    """
    padded = np.full([len(rows), max(map(len, rows))], PAD_ID, np.int32)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded


@dataclasses.dataclass(eq=False)
class _Task:
    """A run of rows that a thread works on."""

    rows: int
    sources: int = 0  # texts of theirs that are translated; 0 before that is known
    done: int = 0  # texts of theirs that are done


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
    """Return how many rows of unfinished tasks are done, by the share of their sources.

    >>> with begin_rows(100):
    ...     begin_sources(8)
    ...     add_done(2)
    ...     rows_under_way()
    25
    """
    return sum(
        task.rows * min(task.done, task.sources) // task.sources
        for task in _tasks.copy()
        if task.sources
    )
