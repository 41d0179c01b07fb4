"""TFRecords to batches of like length under a token budget, in an order that can be resumed.

The order is a function of (seed, epoch): the shards of an epoch are read in a shuffled order, in
windows of 8192 records (the shards themselves are in random order already); a window is sorted
by length, cut into batches, and the batches are shuffled. A position in the data is therefore
three numbers, and resuming there rereads at most one window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from model.artifacts import SOURCE_FEATURE, TARGET_FEATURE
from model.errors import UserError
from model.vocabulary import PAD_ID

WINDOW = 8192  # records


class Position(NamedTuple):
    """Where in the data the next batch stands."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Batch(NamedTuple):
    """A batch for all replicas together.

    Attributes:
      source: int32 [B, S], BOS and EOS included, PAD at the end.
      target: int32 [B, T], the same.
      following: Where the batch after this one stands.
    """

    source: np.ndarray
    target: np.ndarray
    following: Position


@dataclasses.dataclass(frozen=True)
class _Window:
    """Pairs side by side: row i of a side is `ids[starts[i]:starts[i + 1]]`."""

    source_ids: np.ndarray
    source_starts: np.ndarray
    target_ids: np.ndarray
    target_starts: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenBatches:
    """The batches of a split.

    Attributes:
      files: TFRecord shards.
      max_tokens: A replica's rows times the longer side's length in a batch, at the most.
      seed: Of the order.
      replicas: Replicas that share a batch, each an equal part of its rows.
      shuffle: Whether the order is random; without it an epoch goes from long to short.
    """

    files: list[Path]
    max_tokens: int
    seed: int
    replicas: int = 1
    shuffle: bool = True

    def epoch(self, start: Position) -> Iterator[Batch]:
        """Yields the batches of the epoch of `start`, from there to its end.

        Raises:
          UserError: A shard is cut off or damaged, or a pair is longer than the budget.
        """
        number = start.epoch
        files = [str(file) for file in self.files]
        if self.shuffle:
            order = np.random.default_rng([self.seed, number]).permutation(len(files))
            files = [files[i] for i in order]
        for index, window in enumerate(_read_windows(files, first=start.window), start.window):
            batches = self._cut(window)
            if self.shuffle:
                order = np.random.default_rng([self.seed, number, index]).permutation(len(batches))
                batches = [batches[i] for i in order]
            first = start.batch if index == start.window else 0
            for i, rows in enumerate(batches[first:], first + 1):
                following = Position(number, index, i)
                if i == len(batches):
                    following = Position(number, index + 1)
                yield Batch(
                    _padded(window.source_ids, window.source_starts, rows),
                    _padded(window.target_ids, window.target_starts, rows),
                    following,
                )

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

    def _cut(self, window: _Window) -> list[np.ndarray]:
        """Cuts a window into batches of row numbers, the longest pairs first."""
        lengths = np.maximum(np.diff(window.source_starts), np.diff(window.target_starts))
        order = np.argsort(-lengths, kind="stable")
        if lengths[order[0]] > self.max_tokens:
            raise UserError(
                f"a pair of {lengths[order[0]]} tokens does not fit into a batch of "
                f"{self.max_tokens}: raise --batch-tokens, or preprocess with a lower --max-tokens"
            )
        batches = []
        first = 0
        while first < len(order):
            rows = self.replicas * (self.max_tokens // lengths[order[first]])
            batches.append(order[first : first + rows])
            first += rows
        return batches


def _read_windows(files: list[str], *, first: int) -> Iterator[_Window]:
    features = {
        name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        for name in (SOURCE_FEATURE, TARGET_FEATURE)
    }

    def parse(records: tf.Tensor) -> list[tf.Tensor]:
        example = tf.io.parse_example(records, features)
        source, target = example[SOURCE_FEATURE], example[TARGET_FEATURE]
        return [
            tf.cast(source.values, tf.int32),
            source.row_splits,
            tf.cast(target.values, tf.int32),
            target.row_splits,
        ]

    records = tf.data.TFRecordDataset(files).skip(first * WINDOW).batch(WINDOW)
    # With autotuning, the end of an epoch waits for a thread that wakes up every half minute.
    options = tf.data.Options()
    options.autotune.enabled = False
    windows = records.map(parse).prefetch(1).with_options(options).as_numpy_iterator()
    try:
        for arrays in windows:
            yield _Window(*arrays)
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        raise UserError(
            f"a shard of the dataset is damaged or missing: {str(error.message).splitlines()[0]}. "
            "Make the dataset again with `tt preprocess`"
        ) from error


def _padded(ids: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Gathers rows as int32 [B, longest], PAD at the end."""
    lengths = starts[rows + 1] - starts[rows]
    columns = np.arange(lengths.max())
    inside = columns < lengths[:, None]
    places = np.where(inside, starts[rows][:, None] + columns, 0)
    return np.where(inside, ids[places], PAD_ID).astype(np.int32)
