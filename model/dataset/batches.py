"""TFRecords to batches of like length under a token budget, in an order that can be resumed.

The order is a function of (seed, epoch): shards are read in a shuffled order, in windows of 8192
records, or more where batches are large; a window is sorted by length, equal lengths shuffled, cut
into batches, and these are shuffled. A position says where its window begins: resuming there reads
that window again and no more. Lengths, and the rows of a batch that is not full, are rounded up to
a few, about eight an octave, so that the same few shapes come again and again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tt.model.dataset.manifest import (
    MANIFEST_FILE,
    SOURCE_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from tt.model.dataset.tfrecords import one_ahead, read_records
from tt.model.errors import UserError, counted
from tt.model.text.vocabulary import PAD_ID, Vocabulary

WINDOW = 8192  # records, at the least
RECORDS_A_TOKEN = 2  # of a window, for each token of a batch: that is tens of batches
_SUBWORDS = 1  # of a window, tells its segmentation's random numbers from its order's
_FEATURES = {
    name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    for name in (SOURCE_FEATURE, TARGET_FEATURE)
}


class Position(NamedTuple):
    """Where in the data a batch stands: what comes before it."""

    epoch: int = 0  # passes over the data before it
    window: int = 0  # windows of the epoch before its window
    batch: int = 0  # batches of the window before it
    shard: int = 0  # place, in the epoch's order of shards, of the one that its window begins in
    record: int = 0  # records of that shard before its window
    offset: int = 0  # bytes of that shard before its window
    before: int = 0  # records of the epoch before its window


class Side(NamedTuple):
    """The source or the target of many pairs: row i is `ids[starts[i]:starts[i + 1]]`."""

    ids: np.ndarray
    starts: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """Pairs side by side, and where they stand."""

    source: Side
    target: Side
    records: list[tuple[str, int]]
    start: Position  # of its first batch
    following: Position  # of the next window


class SubwordDropout:
    """Splits pieces at random, at `rate`, into the two that they are made of, and those likewise.

    It teaches what longer pieces consist of, as BPE-dropout does (Provilkov et al. 2020): there
    merges are left out while a text is segmented, here they are undone in one that is, which needs
    no text and takes any SentencePiece model.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float) -> None:
        self._rate = rate
        self._parts = np.zeros((vocabulary.size, 2), np.int64)
        pieces = vocabulary.learnt_pieces()
        for piece, (i, _) in pieces.items():
            self._parts[i] = _best_parts(piece, pieces)
        self._can_split = self._parts[:, 0] != PAD_ID

    def __call__(
        self, ids: np.ndarray, starts: np.ndarray, *, generator: np.random.Generator, longest: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits pieces of many texts, none to more than `longest`; returns new `ids` and `starts`.

        `ids`, int64, are those of one text after the other; `starts`, int64, where each begins, and
        the last ends. What is split depends on the generator's state alone.
        """
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        is_new = np.ones(len(ids), np.bool_)
        while True:
            is_split = self._can_split[ids] & is_new
            is_split &= generator.random(len(ids), np.float32) < self._rate
            lengths = np.bincount(rows, minlength=len(starts) - 1)
            wanted = np.bincount(rows[is_split], minlength=len(starts) - 1)
            is_split &= (lengths + wanted <= longest)[rows]
            if not is_split.any():
                return ids, np.concatenate([[0], np.cumsum(lengths)])
            counts = 1 + is_split
            first = (np.cumsum(counts) - counts)[is_split]
            parts = self._parts[ids[is_split]]
            ids, rows, is_new = (np.repeat(x, counts) for x in (ids, rows, is_split))
            ids[first], ids[first + 1] = parts.T


def _best_parts(piece: str, pieces: Mapping[str, tuple[int, float]]) -> tuple[int, int]:
    """Returns the two ids whose scores add up to the most, or PAD's where no two make it up."""
    cuts = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
    found = [
        (pieces[left], pieces[right]) for left, right in cuts if {left, right} <= pieces.keys()
    ]
    if not found:
        return PAD_ID, PAD_ID
    (left, _), (right, _) = max(found, key=lambda pair: pair[0][1] + pair[1][1])
    return left, right


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
        for window in one_ahead(windows):
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


def read_windows(
    files: Sequence[Path],
    start: Position,
    *,
    size: int,
    vocabulary_sizes: tuple[int, int],
    records: int | None = None,
    computes: bool = True,
) -> Iterator[Window]:
    """Yields the windows of an epoch, of `size` records but for the last, from a position on.

    The files are in the order of the epoch; `vocabulary_sizes` and `records` as in `TokenBatches`.
    Unless it `computes`, examples are parsed more slowly, but without an operation of TensorFlow's,
    of which there may be none before a cluster is started.

    Raises:
      UserError: A shard is missing, cut off or damaged, or a record is no pair of known ids.
    """
    examples: list[bytes] = []
    places: list[tuple[str, int]] = []

    def window(following: Position) -> Window:
        source, target = (_parse if computes else _parse_alone)(examples, places)
        parsed = Window(source, target, places, start, following)
        _check(parsed, vocabulary_sizes)
        return parsed

    for example, shard, record, offset in read_records(
        files, shard=start.shard, record=start.record, offset=start.offset
    ):
        examples.append(example)
        places.append((str(files[shard]), record))
        if len(examples) == size:
            following = Position(
                start.epoch, start.window + 1, 0, shard, record + 1, offset, start.before + size
            )
            yield window(following)
            examples, places, start = [], [], following
    found = start.before + len(examples)
    end = Position(start.epoch, start.window + 1, 0, len(files), before=found)
    rest = window(end) if examples else None
    is_behind_the_last = start.shard == len(files)  # where the epoch was read to its end
    if records not in (None, found) and not is_behind_the_last:
        shards = f"{files[0].parent}/{files[0].name.split('-')[0]}-*"
        raise UserError(
            f"{shards} must hold {records} records, as {MANIFEST_FILE} says. Received: {found} "
            f"records in {counted(len(files), 'shard')}, one of which was cut off between two "
            "records; copy them again, or make the dataset again with `tt preprocess`"
        )
    if rest:
        yield rest


def read_target_texts(
    files: Sequence[Path], records: Collection[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """Return the target texts of validation records, by shard and number.

    Raises:
      UserError: A shard is missing, cut off or damaged, or a record has no target text.
    """
    found = {}
    for example, shard, record, _ in read_records(files):
        key = str(files[shard]), record
        if key in records:
            features = read_features(example, record=record, shard=key[0])
            texts = features[TARGET_TEXT_FEATURE].bytes_list.value
            if not texts:
                raise UserError(
                    f"record {record} of {key[0]} has no {TARGET_TEXT_FEATURE}: make the dataset "
                    "again with `tt preprocess`"
                )
            found[key] = texts[0].decode()
    return found


def read_features(example: bytes, *, record: int, shard: str) -> Any:
    """Return the features of a record by their names.

    Raises:
      UserError: The record is no `tf.train.Example`.
    """
    try:
        return tf.train.Example.FromString(example).features.feature
    except Exception as error:  # protobuf's DecodeError, by whichever implementation
        raise UserError(
            f"record {record} of {shard} is no tf.train.Example: make the dataset again with "
            "`tt preprocess`"
        ) from error


def _parse(examples: list[bytes], records: list[tuple[str, int]]) -> tuple[Side, Side]:
    try:
        with tf.device("/cpu:0"):
            parsed = tf.io.parse_example(tf.constant(examples), _FEATURES)
    except tf.errors.InvalidArgumentError:
        return _parse_alone(examples, records)  # which finds the record
    source, target = (parsed[name] for name in (SOURCE_FEATURE, TARGET_FEATURE))
    return (
        Side(source.values.numpy(), source.row_splits.numpy()),
        Side(target.values.numpy(), target.row_splits.numpy()),
    )


def _parse_alone(examples: list[bytes], records: list[tuple[str, int]]) -> tuple[Side, Side]:
    rows: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for example, (shard, record) in zip(examples, records, strict=True):
        features = read_features(example, record=record, shard=shard)
        for name, side in zip(_FEATURES, rows, strict=True):
            side.append(np.array(features[name].int64_list.value, np.int64))
    source, target = (
        Side(np.concatenate(side), np.cumsum([0, *map(len, side)], dtype=np.int64)) for side in rows
    )
    return source, target


def _check(window: Window, vocabulary_sizes: tuple[int, int]) -> None:
    """Check that pairs have ids on both sides, all of them of the vocabularies."""
    for (ids, starts), size in zip((window.source, window.target), vocabulary_sizes, strict=True):
        strange = np.flatnonzero((ids < 0) | (ids >= size))
        rows = [
            *np.flatnonzero(np.diff(starts) < 2),
            *np.searchsorted(starts, strange[:1], side="right") - 1,
        ]
        if rows:
            shard, record = window.records[rows[0]]
            raise UserError(
                f"record {record} of {shard} is no pair of ids of the vocabularies, which have "
                f"{vocabulary_sizes[0]} and {vocabulary_sizes[1]} tokens: make the dataset again "
                "with `tt preprocess`"
            )
