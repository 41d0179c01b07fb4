"""TFRecords to batches of like length under a token budget, in an order that can be resumed.

The order is a function of (seed, epoch): the shards of an epoch are read in a shuffled order, in
windows of 8192 records, or more where batches are large (the shards themselves are in random order
already); a window is sorted by length, equal lengths shuffled, cut into batches, and the batches
are shuffled. A position says where its window begins, so resuming there reads that one window
again and no more.

Lengths are rounded up to a few, about eight an octave, and so are the rows of the one batch of a
window that is not full: the same few shapes come again and again.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import struct
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import google_crc32c
import numpy as np
import tensorflow as tf

from model.dataset.manifest import (
    MANIFEST_FILE,
    SOURCE_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from model.dataset.subword_dropout import SubwordDropout
from model.errors import UserError
from model.text.vocabulary import PAD_ID

WINDOW = 8192  # records, at the least
RECORDS_A_TOKEN = 2  # of a window, for each token of a batch: that is tens of batches

_SUBWORDS = 1  # of a window, tells its segmentation's random numbers from its order's

_Item = TypeVar("_Item")


class Position(NamedTuple):
    """Where in the data a batch stands.

    Attributes:
      epoch: Passes over the data before it.
      window: Windows of the epoch before its window.
      batch: Batches of the window before it.
      shard: Place, in the epoch's order of shards, of the one that its window begins in.
      record: Records of that shard before its window.
      offset: Bytes of that shard before its window.
      before: Records of the epoch before its window.
    """

    epoch: int = 0
    window: int = 0
    batch: int = 0
    shard: int = 0
    record: int = 0
    offset: int = 0
    before: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A batch for all replicas together.

    Attributes:
      source: int32 [B, S], BOS and EOS included, PAD at the end.
      target: int32 [B, T], the same.
      records: (shard, number of the record in it) of each pair; the last rows may have none,
        which are PAD alone.
      start: Where this batch stands.
      following: Where the batch after this one stands.
    """

    source: np.ndarray
    target: np.ndarray
    records: Sequence[tuple[str, int]]
    start: Position
    following: Position


@dataclasses.dataclass(frozen=True, eq=False)
class _Window:
    """Pairs side by side: row i of a side is `ids[starts[i]:starts[i + 1]]`."""

    source_ids: np.ndarray
    source_starts: np.ndarray
    target_ids: np.ndarray
    target_starts: np.ndarray
    records: list[tuple[str, int]]
    start: Position  # of its first batch
    following: Position  # of the next window


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenBatches:
    """The batches of a split.

    Attributes:
      files: TFRecord shards.
      max_tokens: A replica's rows times the longer side's length in a batch, at the most.
      seed: Of the order.
      vocabulary_sizes: Of the source and the target: all ids are below.
      replicas: Replicas that share a batch, each an equal part of its rows.
      shuffle: Whether the order is random; without it an epoch goes from long to short.
      records: That an epoch has; None does not check.
      subword_dropout: Of the source and the target; another segmentation in each epoch.
    """

    files: list[Path]
    max_tokens: int
    seed: int
    vocabulary_sizes: tuple[int, int] = (2**31 - 1, 2**31 - 1)
    replicas: int = 1
    shuffle: bool = True
    records: int | None = None
    subword_dropout: tuple[SubwordDropout, SubwordDropout] | None = None

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

    def next_window(self, position: Position) -> Position:
        """Returns where the window after that of a position begins.

        Raises:
          UserError: A shard is missing, cut off or damaged, or a record is no pair.
        """
        window = next(self._windows(position._replace(batch=0)), None)
        return window.following if window else position

    def _windows(self, start: Position) -> Iterator[_Window]:
        files = self.files
        if self.shuffle:
            order = np.random.default_rng([self.seed, start.epoch]).permutation(len(files))
            files = [files[i] for i in order]
        size = max(WINDOW, RECORDS_A_TOKEN * self.max_tokens * self.replicas)
        examples: list[bytes] = []
        records: list[tuple[str, int]] = []
        for example, shard, record, offset in _read_records(files, start):
            examples.append(example)
            records.append((str(files[shard]), record))
            if len(examples) == size:
                following = Position(
                    start.epoch, start.window + 1, 0, shard, record + 1, offset, start.before + size
                )
                yield self._checked(_parse(examples, records, start, following))
                examples, records, start = [], [], following
        found = start.before + len(examples)
        end = Position(start.epoch, start.window + 1, 0, len(files), before=found)
        rest = self._checked(_parse(examples, records, start, end)) if examples else None
        is_behind_the_last = start.shard == len(files)  # where the epoch was read to its end
        if self.records not in (None, found) and not is_behind_the_last:
            shards = f"{files[0].parent}/{files[0].name.split('-')[0]}-*"
            raise UserError(
                f"the {len(files)} shard(s) {shards} hold {found} records, {MANIFEST_FILE} says "
                f"{self.records}: one of them was cut off between two records; copy them again, "
                "or make the dataset again with `tt preprocess`"
            )
        if rest:
            yield rest

    def _checked(self, window: _Window) -> _Window:
        """Returns a window whose pairs have ids on both sides, all of them of the vocabularies."""
        sides = (
            ("source", window.source_ids, window.source_starts, self.vocabulary_sizes[0]),
            ("target", window.target_ids, window.target_starts, self.vocabulary_sizes[1]),
        )
        for name, ids, starts, size in sides:
            empty = np.flatnonzero(np.diff(starts) < 2)
            if empty.size:
                shard, record = window.records[empty[0]]
                raise UserError(
                    f"record {record} of {shard} has no {name} ids: it is not a pair that "
                    "`tt preprocess` wrote; make the dataset again"
                )
            strange = np.flatnonzero((ids < 0) | (ids >= size))
            if strange.size:
                row = int(np.searchsorted(starts, strange[0], side="right")) - 1
                shard, record = window.records[row]
                raise UserError(
                    f"record {record} of {shard} has the {name} id {ids[strange[0]]}, but the "
                    f"vocabulary ends at {size - 1}: the records were made with another "
                    "vocabulary; make the dataset again with `tt preprocess`"
                )
        return window

    def _drop_subwords(self, window: _Window) -> _Window:
        if not self.subword_dropout:
            return window
        start = window.start
        key = [self.seed, start.epoch, start.window, _SUBWORDS]
        generator = np.random.default_rng(key)
        source, target = (
            dropout(ids, starts, generator=generator, longest=self.max_tokens)
            for dropout, ids, starts in zip(
                self.subword_dropout,
                (window.source_ids, window.target_ids),
                (window.source_starts, window.target_starts),
                strict=True,
            )
        )
        return dataclasses.replace(
            window,
            source_ids=source[0],
            source_starts=source[1],
            target_ids=target[0],
            target_starts=target[1],
        )

    def _cut(self, window: _Window) -> list[np.ndarray]:
        """Cuts a window into batches of row numbers."""
        lengths = np.maximum(np.diff(window.source_starts), np.diff(window.target_starts))
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
                f"batch of {self.max_tokens}: raise --batch-tokens, or preprocess with a lower "
                "--max-tokens"
            )
        batches = []
        first = 0
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

    def _pad(self, window: _Window, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gathers rows as int32 [B, S] and [B, T], PAD at the end."""
        starts = (window.source_starts, window.target_starts)
        lengths = [side[rows + 1] - side[rows] for side in starts]
        # The last rows of a window make one batch that is not full.
        full = self._full_rows(max(side.max() for side in lengths))
        count = min(full, rounded_length(len(rows)))
        source, target = (
            _padded(ids, side[rows], own, shape=(count, self._rounded(own.max())))
            for ids, side, own in zip(
                (window.source_ids, window.target_ids), starts, lengths, strict=True
            )
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


def _one_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yields what an iterator yields, while a thread works on the next item."""
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


# A record of a TFRecord file: its size, a checksum of that, the bytes, a checksum of them; see
# https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def _read_records(files: list[Path], start: Position) -> Iterator[tuple[bytes, int, int, int]]:
    """Yields (bytes, shard, number in the shard, offset behind it) from a position on.

    TensorFlow's own reader can neither begin inside a file nor say where a damaged one is.
    """
    for shard in range(start.shard, len(files)):
        is_first = shard == start.shard
        record, offset = (start.record, start.offset) if is_first else (0, 0)
        try:
            with files[shard].open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < offset:
                    raise _DamagedRecordError("is cut off")
                file.seek(offset)
                while header := file.read(_HEADER.size):
                    example = _read_record(file, header, left=size - offset)
                    offset += _HEADER.size + len(example) + _CHECKSUM.size
                    yield example, shard, record, offset
                    record += 1
        except _DamagedRecordError as error:
            raise UserError(
                f"{files[shard]} is damaged: record {record} {error}. Copy the shard again from "
                "where it came, or make the dataset again with `tt preprocess`"
            ) from error
        except OSError as error:
            raise UserError(
                f"{files[shard]} cannot be read: {error.strerror}. Copy the shard again from "
                "where it came, or make the dataset again with `tt preprocess`"
            ) from error


def check_shards(files: Sequence[Path], sizes: Sequence[int]) -> None:
    """Checks, before anything is trained on them, that shards are there and whole.

    Args:
      files: TFRecord shards.
      sizes: Bytes of each, or none where they are not known.

    Raises:
      UserError: One is missing or has another size; of one that is cut off, the record is named.
    """
    for file, size in itertools.zip_longest(files, sizes):
        found = file.stat().st_size if file.is_file() else None
        if found is None or size not in (None, found):
            for _ in _read_records([file], Position()):  # which says what is wrong, if it can
                pass
            raise UserError(
                f"{file} has {found:,} bytes, {MANIFEST_FILE} says {size:,}: copy the shard again "
                "from where it came, or make the dataset again with `tt preprocess`"
            )


def read_target_texts(
    files: list[Path], records: Collection[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """Returns the target texts of validation records; those that an older `tt` made have none.

    Args:
      files: All shards.
      records: Shard and number of those that are asked for; each is a pair of ids.

    Raises:
      UserError: A shard is missing, cut off or damaged.
    """
    found = {}
    for example, shard, record, _ in _read_records(files, Position()):
        key = str(files[shard]), record
        if key in records:
            features = tf.train.Example.FromString(example).features.feature
            for text in features[TARGET_TEXT_FEATURE].bytes_list.value:
                found[key] = text.decode()
    return found


class _DamagedRecordError(Exception):
    """A record that is cut off or whose checksum is wrong."""


def _read_record(file: BinaryIO, header: bytes, *, left: int) -> bytes:
    """Reads what follows a header; `left` bytes of the file begin with that."""
    if len(header) < _HEADER.size:
        raise _DamagedRecordError("is cut off")
    size, checksum = _HEADER.unpack(header)
    if _masked_checksum(header[:8]) != checksum:
        raise _DamagedRecordError("has a wrong checksum of its size")
    if _HEADER.size + size + _CHECKSUM.size > left:
        raise _DamagedRecordError("is cut off")
    content = file.read(size + _CHECKSUM.size)
    example = content[:size]
    if _masked_checksum(example) != _CHECKSUM.unpack_from(content, size)[0]:
        raise _DamagedRecordError("has a wrong checksum")
    return example


def _masked_checksum(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_FEATURES = {
    name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    for name in (SOURCE_FEATURE, TARGET_FEATURE)
}


def _parse(
    examples: list[bytes],
    records: list[tuple[str, int]],
    start: Position,
    following: Position,
) -> _Window:
    try:
        with tf.device("/cpu:0"):
            parsed = tf.io.parse_example(tf.constant(examples), _FEATURES)
    except tf.errors.InvalidArgumentError as error:
        raise _not_an_example(examples, records) from error
    source, target = parsed[SOURCE_FEATURE], parsed[TARGET_FEATURE]
    return _Window(
        source_ids=source.values.numpy(),
        source_starts=source.row_splits.numpy(),
        target_ids=target.values.numpy(),
        target_starts=target.row_splits.numpy(),
        records=records,
        start=start,
        following=following,
    )


def _not_an_example(examples: list[bytes], records: list[tuple[str, int]]) -> UserError:
    """Finds the first record that cannot be parsed."""
    for example, (shard, record) in zip(examples, records, strict=True):
        try:
            tf.io.parse_example(tf.constant([example]), _FEATURES)
        except tf.errors.InvalidArgumentError:
            return UserError(
                f"record {record} of {shard} is no tf.train.Example with the int64 lists "
                f"{SOURCE_FEATURE} and {TARGET_FEATURE}: make the dataset with `tt preprocess`"
            )
    raise AssertionError("each record parses alone, but not all together")
