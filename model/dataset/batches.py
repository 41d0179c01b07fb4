"""TFRecords to batches of like length under a token budget, in an order that can be resumed.

The order is a function of (seed, epoch): shards are read in a shuffled order, in windows of 8192
records, or more where batches are large; a window is sorted by length, equal lengths shuffled, cut
into batches, and these are shuffled. A position says where its window begins: resuming there reads
that window again and no more. Lengths, and the rows of a batch that is not full, are rounded up to
a few, about eight an octave, so that the same few shapes come again and again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from model.dataset.subword_dropout import SubwordDropout
from model.dataset.windows import Position, Side, Window, read_windows
from model.errors import UserError
from model.text.vocabulary import PAD_ID

WINDOW = 8192  # records, at the least
RECORDS_A_TOKEN = 2  # of a window, for each token of a batch: that is tens of batches
_SUBWORDS = 1  # of a window, tells its segmentation's random numbers from its order's


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A batch for all replicas together."""

    source: np.ndarray  # int32 [B, S], BOS and EOS included, PAD at the end
    target: np.ndarray  # int32 [B, T], the same
    # (shard, number of the record in it) of each pair; rows of PAD alone, at the end, have none.
    records: Sequence[tuple[str, int]]
    start: Position  # where this batch stands
    following: Position  # where the batch after this one stands


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenBatches:
    """The batches of a split."""

    files: list[Path]  # TFRecord shards
    max_tokens: int  # a replica's rows times the longer side's length in a batch, at the most
    seed: int  # of the order
    vocabulary_sizes: tuple[int, int] = (2**31 - 1, 2**31 - 1)  # source and target ids are below
    replicas: int = 1  # that share a batch, each an equal part of its rows
    shuffle: bool = True  # without it, an epoch goes from long to short
    records: int | None = None  # of an epoch; None does not check
    subword_dropout: tuple[SubwordDropout, SubwordDropout] | None = None  # of source and target

    def epoch(self, start: Position) -> Iterator[Batch]:
        """Yields the batches of the epoch of `start`, from there to its end.

        Raises:
          UserError: A shard is missing, cut off or damaged, a record is no pair of ids of the
            vocabularies, or a pair is longer than the budget.
        """
        first = start.batch
        windows = map(self._drop_subwords, self._windows(start._replace(batch=0)))
        for window in _one_ahead(windows):
            cuts = self._cut(window)
            for i, rows in enumerate(cuts[first:], first):
                is_last = i + 1 == len(cuts)
                source, target = self._pad(window, rows)
                yield Batch(
                    source,
                    target,
                    [window.records[row] for row in rows],
                    start=window.start._replace(batch=i),
                    following=window.following if is_last else window.start._replace(batch=i + 1),
                )
            first = 0

    def forever(self, start: Position) -> Iterator[Batch]:
        """Yields batches epoch after epoch."""
        while True:
            found = False
            for batch in self.epoch(start):
                found = True
                yield batch
            if not found and start == Position(start.epoch):
                raise UserError(f"no records in {[str(file) for file in self.files]}")
            start = Position(start.epoch + 1)

    def count(self, *, records: int) -> int:
        """Returns how many batches an epoch has; if it has more records than so many, about.

        Raises:
          UserError: A shard is missing, cut off or damaged, or a record is no pair.
        """
        batches = seen = 0
        for window in map(self._drop_subwords, self._windows(Position(), computes=False)):
            batches += len(self._cut(window))
            seen += len(window.records)
            if seen >= records:
                break
        return round(batches * max(self.records or 0, seen) / max(seen, 1))

    def next_window(self, position: Position) -> Position:
        """Returns where the window after that of a position begins.

        Raises:
          UserError: A shard is missing, cut off or damaged, or a record is no pair.
        """
        window = next(self._windows(position._replace(batch=0)), None)
        return window.following if window else position

    def _windows(self, start: Position, *, computes: bool = True) -> Iterator[Window]:
        files = self.files
        if self.shuffle:
            order = np.random.default_rng([self.seed, start.epoch]).permutation(len(files))
            files = [files[i] for i in order]
        return read_windows(
            files,
            start,
            size=max(WINDOW, RECORDS_A_TOKEN * self.max_tokens * self.replicas),
            vocabulary_sizes=self.vocabulary_sizes,
            records=self.records,
            computes=computes,
        )

    def _drop_subwords(self, window: Window) -> Window:
        if not self.subword_dropout:
            return window
        start = window.start
        key = [self.seed, start.epoch, start.window, _SUBWORDS]
        generator = np.random.default_rng(key)
        source, target = (
            Side(*dropout(*side, generator=generator, longest=self.max_tokens))
            for dropout, side in zip(
                self.subword_dropout, (window.source, window.target), strict=True
            )
        )
        return dataclasses.replace(window, source=source, target=target)

    def _cut(self, window: Window) -> list[np.ndarray]:
        lengths = np.maximum(np.diff(window.source.starts), np.diff(window.target.starts))
        generator = np.random.default_rng([self.seed, window.start.epoch, window.start.window])
        order = np.arange(len(lengths))
        if self.shuffle:
            order = generator.permutation(order)
        order = order[np.argsort(-lengths[order], kind="stable")]  # the longest first
        longest = lengths[order[0]]
        if longest > self.max_tokens:
            shard, record = window.records[order[0]]
            raise UserError(
                f"a pair of {longest} tokens (record {record} of {shard}) does not fit into a "
                f"batch of {self.max_tokens}: raise `batch_tokens`, or lower "
                "`tt preprocess --max-tokens`"
            )
        batches, first = [], 0
        while first < len(order):
            rows = self._full_rows(lengths[order[first]])
            batches.append(order[first : first + rows])
            first += rows
        if self.shuffle:
            batches = [batches[i] for i in generator.permutation(len(batches))]
        return batches

    def _full_rows(self, length: int) -> int:
        """Returns the rows of a full batch whose longest pair has `length` tokens."""
        return self.replicas * (self.max_tokens // self._rounded(length))

    def _rounded(self, length: int) -> int:
        return min(rounded_length(int(length)), self.max_tokens)

    def _pad(self, window: Window, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gathers rows as int32 [B, S] and [B, T], PAD at the end."""
        sides = (window.source, window.target)
        lengths = [side.starts[rows + 1] - side.starts[rows] for side in sides]
        # The last rows of a window make one batch that is not full.
        full = self._full_rows(max(side.max() for side in lengths))
        count = min(full, rounded_length(len(rows)))
        source, target = (
            _padded(side.ids, side.starts[rows], own, shape=(count, self._rounded(own.max())))
            for side, own in zip(sides, lengths, strict=True)
        )
        return source, target


def rounded_length(length: int) -> int:
    """Rounds a length up to one of a few: even ones up to 32, then eight an octave.

    >>> [rounded_length(n) for n in (1, 2, 31, 32, 33, 37, 64, 65, 129)]
    [2, 2, 32, 32, 36, 40, 64, 72, 144]
    """
    step = max(2, 1 << max(0, (length - 1).bit_length() - 4))
    return -(-length // step) * step


def _padded(
    ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, *, shape: tuple[int, int]
) -> np.ndarray:
    matrix = np.full(shape, PAD_ID, np.int32)
    columns = np.arange(shape[1])
    inside = columns < lengths[:, None]
    matrix[: len(lengths)][inside] = ids[(starts[:, None] + columns)[inside]]
    return matrix


def _one_ahead(windows: Iterator[Window]) -> Iterator[Window]:
    """Yields windows, while a thread works on the next one."""
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        following = pool.submit(next, windows, None)
        while (window := following.result()) is not None:
            following = pool.submit(next, windows, None)
            yield window
