"""Batches of pairs with similar lengths under a token budget, in an order that can be resumed.

The order depends only on the seed and the epoch. Each epoch reads the shards in a shuffled order,
in windows of at least 8192 records. A window is sorted by length, with equal lengths shuffled. Then
it is cut into batches, and the batches are shuffled. A position contains the start of its window,
so that a resumed run reads only that window again.

Batches have few different shapes: lengths, and the number of rows if a batch is not full, are
rounded up to about eight values per octave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tt.model.dataset.changes import Augmentation, Side, SubwordDropout
from tt.model.dataset.manifest import (
    MANIFEST_FILE,
    SOURCE_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from tt.model.dataset.tfrecords import one_ahead, read_features, read_records
from tt.model.errors import UserError, counted
from tt.model.text.vocabulary import PAD_ID

WINDOW = 8192  # minimum number of records per window
# Minimum number of records per window for each token of a batch; a window then has tens of batches.
RECORDS_PER_TOKEN = 2
# Subword dropout and augmentation add these numbers to the seed, so that their random numbers
# differ from those of the order.
_SUBWORDS, _TEXTS = 1, 2
_FEATURES = (SOURCE_FEATURE, TARGET_FEATURE)


class Position(NamedTuple):
    """The position of a batch: how many epochs, windows and batches precede it.

    The position also contains the start of the batch's window: the shard, the records and the bytes
    that precede the window.
    """

    epoch: int = 0  # epochs before the batch
    window: int = 0  # windows of the epoch before the batch's window
    batch: int = 0  # batches of the window before the batch
    shard: int = 0  # shards of the epoch, in its order, before the shard in which the window begins
    record: int = 0  # records of that shard before the window
    offset: int = 0  # bytes of that shard before the window
    before: int = 0  # records of the epoch before the window


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """The pairs of a window, and the positions of this window and the next one."""

    source: Side
    target: Side
    records: list[tuple[str, int]]  # shard and number in the shard of each pair
    start: Position  # of the window's first batch
    following: Position  # of the next window's first batch


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A batch for all replicas together."""

    source: np.ndarray  # int32 [B, S], with BOS and EOS, and PAD at the end
    target: np.ndarray  # int32 [B, T], with BOS and EOS, and PAD at the end
    # The shard of each pair and its number in the shard. The last rows of a batch may contain only
    # PAD; they have no record.
    records: Sequence[tuple[str, int]]
    start: Position  # position of this batch
    following: Position  # position of the next batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenBatches:
    """The batches of a split."""

    files: Sequence[str | Path]  # TFRecord shards, on any storage
    max_tokens: int  # limit for the rows per replica times the length of the longer side
    seed: int  # seed of the order, of augmentation and of subword dropout
    vocabulary_sizes: tuple[int, int] = (2**31 - 1, 2**31 - 1)  # for source and target ids
    replicas: int = 1  # number of replicas, which get equal parts of the rows of a batch
    shuffle: bool = True  # without it, the batches of a window go from long to short
    records: int | None = None  # expected records per epoch; None disables the check
    augmentation: Augmentation | None = None  # only for sources
    subword_dropout: tuple[SubwordDropout, SubwordDropout] | None = None  # for source and target
    computes: bool = True  # see `read_windows`

    def epoch(self, start: Position) -> Iterator[Batch]:
        """Yield the batches from a position to the end of its epoch.

        Raises:
          UserError: A shard is missing, truncated or damaged, a record is not a pair of ids in the
            vocabularies, or a pair is longer than the budget.
        """
        first = start.batch
        windows = map(self._change, self._windows(start._replace(batch=0)))
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
        """Yield batches without end, epoch after epoch."""
        while True:
            found = False
            for batch in self.epoch(start):
                found = True
                yield batch
            if not found and start == Position(start.epoch):
                raise UserError(
                    f"{[str(file) for file in self.files]} contain no records. Preprocess more "
                    "pairs with `tt preprocess`"
                )
            start = Position(start.epoch + 1)

    def count(self, *, records: int) -> int:
        """Return the number of batches per epoch, counted or estimated.

        Args:
          records: The number of records after which the rest of the epoch is estimated.

        Raises:
          UserError: A shard is missing, truncated or damaged, or a record is not a pair.
        """
        batches = seen = 0
        for window in map(self._change, self._windows(Position(), computes=False)):
            batches += len(self._cut(window))
            seen += len(window.records)
            if seen >= records:
                break
        return round(batches * max(self.records or 0, seen) / max(seen, 1))

    def next_window(self, position: Position) -> Position:
        """Return the start of the window after the window of a position.

        Raises:
          UserError: A shard is missing, truncated or damaged, or a record is not a pair.
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
            size=max(WINDOW, RECORDS_PER_TOKEN * self.max_tokens * self.replicas),
            vocabulary_sizes=self.vocabulary_sizes,
            records=self.records,
            computes=computes and self.computes,
        )

    def _change(self, window: Window) -> Window:
        """Change random texts, and then split random pieces."""
        key = [self.seed, window.start.epoch, window.start.window]
        if self.augmentation:
            generator = np.random.default_rng([*key, _TEXTS])
            source = self.augmentation(window.source, generator=generator, longest=self.max_tokens)
            window = dataclasses.replace(window, source=source)
        if not self.subword_dropout:
            return window
        generator = np.random.default_rng([*key, _SUBWORDS])
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
        order = order[np.argsort(-lengths[order], kind="stable")]  # longest pairs first
        longest = lengths[order[0]]
        if longest > self.max_tokens:
            shard, record = window.records[order[0]]
            raise UserError(
                f"a pair of {longest} tokens (record {record} of {shard}) does not fit into a "
                f"batch of {self.max_tokens} tokens. Raise `batch_tokens`, or lower "
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
        """Return the number of rows in a full batch whose longest pair has `length` tokens."""
        return self.replicas * (self.max_tokens // self._rounded(length))

    def _rounded(self, length: int) -> int:
        return min(rounded_length(int(length)), self.max_tokens)

    def _pad(self, window: Window, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows as int32 [B, S] and [B, T], with PAD at the end."""
        sides = (window.source, window.target)
        lengths = [side.starts[rows + 1] - side.starts[rows] for side in sides]
        # The last rows of a window may not fill a batch.
        full = self._full_rows(max(side.max() for side in lengths))
        count = min(full, rounded_length(len(rows)))
        source, target = (
            _padded(side.ids, side.starts[rows], own, shape=(count, self._rounded(own.max())))
            for side, own in zip(sides, lengths, strict=True)
        )
        return source, target


def rounded_length(length: int) -> int:
    """Round a length up: to an even number up to 32, then to one of eight values per octave.

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
    files: Sequence[str | Path],
    start: Position,
    *,
    size: int,
    vocabulary_sizes: tuple[int, int],
    records: int | None = None,
    computes: bool = True,
) -> Iterator[Window]:
    """Yield the windows of an epoch, starting at a position.

    Args:
      files: The shards in the order of the epoch.
      start: Position of the first batch of a window.
      size: Records per window. The last window may have fewer.
      vocabulary_sizes: Sizes of the source and target vocabularies.
      records: Expected records per epoch; None disables the check.
      computes: Whether TensorFlow operations parse the examples. Without them, parsing is slower.
        Before a cluster is started, no TensorFlow operation may run.

    Raises:
      UserError: A shard is missing, truncated or damaged, or a record is not a pair of ids in the
        vocabularies.
    """
    examples: list[bytes] = []
    places: list[tuple[str, int]] = []

    def window(following: Position) -> Window:
        source, target = (_parse if computes else _parse_without_tensorflow)(examples, places)
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
    is_at_end = start.shard == len(files)  # the epoch was already read to its end
    if records not in (None, found) and not is_at_end:
        folder, _, name = str(files[0]).rpartition("/")
        shards = f"{folder}/{name.split('-')[0]}-*"
        raise UserError(
            f"{shards} must contain {records} records according to {MANIFEST_FILE}, but "
            f"{counted(len(files), 'shard')} contain {found}: a shard or {MANIFEST_FILE} has been "
            "changed. Copy the whole folder again, or create the dataset again with `tt preprocess`"
        )
    if rest:
        yield rest


def read_target_texts(
    files: Sequence[str | Path], records: Collection[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """Return the target texts of validation records.

    Args:
      files: The shards to read.
      records: The wanted records: the path of the shard, and the number in the shard.

    Returns:
      The texts by shard and number.

    Raises:
      UserError: A shard is missing, truncated or damaged, or a record has no target text.
    """
    found = {}
    for example, shard, record, _ in read_records(files):
        key = str(files[shard]), record
        if key in records:
            features = read_features(example, record=record, shard=key[0])
            texts = features[TARGET_TEXT_FEATURE].bytes_list.value
            if not texts:
                raise UserError(
                    f"record {record} of {key[0]} has no {TARGET_TEXT_FEATURE}. Create the dataset "
                    "again with `tt preprocess`"
                )
            found[key] = texts[0].decode()
    return found


def _parse(examples: list[bytes], records: list[tuple[str, int]]) -> tuple[Side, Side]:
    import tensorflow as tf  # `tt show` reads datasets without it

    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    try:
        with tf.device("/cpu:0"):
            parsed = tf.io.parse_example(tf.constant(examples), dict.fromkeys(_FEATURES, feature))
    except tf.errors.InvalidArgumentError:
        return _parse_without_tensorflow(examples, records)  # raises an error that names the record
    source, target = (parsed[name] for name in _FEATURES)
    return (
        Side(source.values.numpy(), source.row_splits.numpy()),
        Side(target.values.numpy(), target.row_splits.numpy()),
    )


def _parse_without_tensorflow(
    examples: list[bytes], records: list[tuple[str, int]]
) -> tuple[Side, Side]:
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
    """Check that pairs have BOS and EOS on both sides, and only ids in the vocabularies.

    Raises:
      UserError: A record is not a pair of such ids.
    """
    for (ids, starts), size in zip((window.source, window.target), vocabulary_sizes, strict=True):
        strange = np.flatnonzero((ids < 0) | (ids >= size))
        rows = [
            *np.flatnonzero(np.diff(starts) < 2),
            *np.searchsorted(starts, strange[:1], side="right") - 1,
        ]
        if rows:
            shard, record = window.records[rows[0]]
            raise UserError(
                f"record {record} of {shard} is not a pair of ids in the vocabularies, which have "
                f"{vocabulary_sizes[0]} and {vocabulary_sizes[1]} tokens. Create the dataset again "
                "with `tt preprocess`"
            )
