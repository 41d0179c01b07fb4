"""Batches of sources with similar lengths, and counts of the sources that are translated.

Each thread registers its task, and its batches count towards that task. Only this thread writes to
the task, so counting needs no locks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import TypeVar

import numpy as np

from tt.model.engines.translator import Work
from tt.model.errors import UserError
from tt.model.text.vocabulary import PAD_ID

_LOGGER = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Sized)
Result = TypeVar("Result")
MOST_PADDING = 0.1  # the greatest share of a batch's positions that may be padding
_SMALL = 2048  # positions; cutting smaller batches because of padding would take longer
_may_warn = threading.Semaphore(1)  # a process warns only once that its memory ran out


class TokenBudget:
    """The maximum number of padded source positions per batch, shared by all threads.

    The budget is at least 1, and can only shrink.

    Args:
      batch_tokens: The maximum number of positions per batch, times the beam size.
      beam_size: The beam size.
      is_option: Whether the user can set `batch_tokens`.
    """

    def __init__(self, batch_tokens: int, *, beam_size: int = 1, is_option: bool = True) -> None:
        self.tokens = max(1, batch_tokens // beam_size)
        self.is_option = is_option
        self._beam_size = beam_size
        self._lock = threading.Lock()

    def shrink(self, tokens: int) -> None:
        """Lower the budget to `tokens`, unless it is already lower."""
        with self._lock:
            self.tokens = max(1, min(self.tokens, tokens))

    def warn(self, fitting: int) -> None:
        """Log which `batch_tokens` fits into memory, unless this process has logged it before.

        Args:
          fitting: Positions of a batch that fits.
        """
        if self.is_option and _may_warn.acquire(blocking=False):
            _LOGGER.warning(
                "the memory ran out, so tt translates smaller batches. Next time, set "
                "`batch_tokens=%d`, which fits",
                fitting * self._beam_size,
            )


def translate_in_batches(
    rows: Sequence[Row],
    *,
    budget: TokenBudget,
    translate_batch: Callable[[list[Row]], tuple[list[Result], Work]],
    is_memory_error: Callable[[Exception], bool],
    most_padding: float = MOST_PADDING,
) -> tuple[list[Result], Work]:
    """Translate rows in batches of similar lengths, longest first, and return them in order.

    A batch has as many rows as the budget allows for its longest row, and at least one. A large
    batch has fewer rows if more than `most_padding` of its positions would be padding. If memory
    runs out for a batch, the budget of all threads shrinks to half the size of the batch, the rows
    are batched again, and the first batch that fits logs a warning.

    Args:
      rows: The encoded sources; the length of a row is its number of positions.
      budget: The maximum number of positions per batch.
      translate_batch: Function that returns the result of each row in a batch, and the work done.
      is_memory_error: Function that returns whether an error of `translate_batch` is a lack of
        memory.
      most_padding: The greatest share of a large batch's positions that may be padding.

    Returns:
      The result of each row, and the work for all batches.

    Raises:
      UserError: The memory is too small for a single row.
      Exception: `translate_batch` failed for another reason, or the budget is not an option.
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
            if not is_memory_error(error) or (len(batch) == 1 and not budget.is_option):
                raise
            if len(batch) == 1:
                raise UserError(
                    f"out of memory for a single source of {longest:,} tokens. Free memory on the "
                    "device, or lower `beam_size`, `max_decoding_length` or `max_source_tokens`"
                ) from error
            budget.shrink(len(batch) * longest // 2)
            work += Work(memory_backoffs=1)
            continue
        if work.memory_backoffs:
            budget.warn(len(batch) * longest)
        results.update(zip(batch, found, strict=True))
        add_done(len(batch))
        work += took
    return [results[i] for i in range(len(rows))], work


def _rows_with_little_padding(lengths: list[int], *, most_padding: float) -> int:
    """Return how many of the first rows fit into a batch without too much padding.

    Args:
      lengths: Lengths of the rows in descending order.
      most_padding: The greatest share of positions that may be padding.
    """
    ids = 0
    for rows, length in enumerate(lengths, 1):
        ids += length
        positions = rows * lengths[0]
        if positions > _SMALL and ids < (1 - most_padding) * positions:
            return rows - 1
    return len(lengths)


def count_work(rows: Sequence[Sized], *, target_tokens: int) -> Work:
    """Return the work for a batch of rows.

    >>> count_work([[2, 7, 3], [2, 3]], target_tokens=4).padded_tokens
    6
    """
    return Work(
        sources=len(rows),
        source_tokens=sum(map(len, rows)),
        padded_tokens=len(rows) * max(map(len, rows)),
        target_tokens=target_tokens,
    )


def cut_batches(sizes: Sequence[int], *, most: int) -> Iterator[list[int]]:
    """Yield batches of indices, longest first, with at most `most` padded positions per batch.

    >>> [*cut_batches([3, 5, 2], most=6)]
    [[1], [0, 2]]
    """
    batch: list[int] = []
    longest = 0
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if batch and (len(batch) + 1) * longest > most:
            yield batch
            batch = []
        longest = longest if batch else sizes[i]
        batch.append(i)
    if batch:
        yield batch


def find_ends(prefixes: Sequence[str], text: str) -> list[int]:
    """Return where the tokens of a text end, given the decoded prefixes of its tokens.

    >>> find_ends(["Ein", "Ein Hund", "Ein Hund."], "Ein Hund.")
    [3, 8, 9]
    """
    ends = itertools.accumulate((min(len(each), len(text)) for each in prefixes), max)
    return [*ends]


def pad(rows: list[list[int]]) -> np.ndarray:
    """Return rows as int32 [B, S], with PAD at the end.

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
    """The rows that a thread translates."""

    rows: int
    sources: int = 0  # texts to translate in these rows; 0 before the number is known
    done: int = 0  # translated texts


_tasks: set[_Task] = set()
_thread_local = threading.local()


@contextlib.contextmanager
def begin_rows(rows: int) -> Iterator[None]:
    """Register a task with this number of rows for this thread, during the `with` block."""
    task = _thread_local.task = _Task(rows)
    _tasks.add(task)
    try:
        yield
    finally:
        _thread_local.task = None
        _tasks.discard(task)


def begin_sources(sources: int) -> None:
    """Set the number of sources in this thread's task."""
    task = getattr(_thread_local, "task", None)
    if task is not None:
        task.sources, task.done = sources, 0


def add_done(sources: int) -> None:
    """Add to the translated sources of this thread's task."""
    task = getattr(_thread_local, "task", None)
    if task is not None:
        task.done += sources


def rows_in_progress() -> int:
    """Return the number of finished rows in unfinished tasks, estimated from finished sources.

    >>> with begin_rows(100):
    ...     begin_sources(8)
    ...     add_done(2)
    ...     rows_in_progress()
    25
    """
    return sum(
        task.rows * min(task.done, task.sources) // task.sources
        for task in _tasks.copy()
        if task.sources
    )
