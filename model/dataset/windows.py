"""Windows of records: what is read, parsed, checked and shuffled at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from model.dataset.manifest import (
    MANIFEST_FILE,
    SOURCE_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from model.dataset.tfrecords import read_records
from model.errors import UserError


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
class Window:
    """Pairs side by side: row i of a side is `ids[starts[i]:starts[i + 1]]`."""

    source_ids: np.ndarray
    source_starts: np.ndarray
    target_ids: np.ndarray
    target_starts: np.ndarray
    records: list[tuple[str, int]]
    start: Position  # of its first batch
    following: Position  # of the next window


_FEATURES = {
    name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    for name in (SOURCE_FEATURE, TARGET_FEATURE)
}


def read_windows(
    files: Sequence[Path],
    start: Position,
    *,
    size: int,
    vocabulary_sizes: tuple[int, int],
    records: int | None = None,
) -> Iterator[Window]:
    """Yields the windows of an epoch, from a position on.

    Args:
      files: TFRecord shards in the order of the epoch.
      start: First batch of the first window.
      size: Records in a window; the last one has what is left.
      vocabulary_sizes: Bounds of the source and target ids, which are all below.
      records: Expected number of records in the epoch; None skips the check.

    Raises:
      UserError: A shard is missing, cut off or damaged, or a record is not a pair of ids of the
        vocabularies.
    """
    examples: list[bytes] = []
    places: list[tuple[str, int]] = []

    def window(following: Position) -> Window:
        parsed = _parse(examples, places, start, following)
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
            f"the {len(files)} shard(s) {shards} hold {found} records, {MANIFEST_FILE} says "
            f"{records}: one of them was cut off between two records; copy them again, or make "
            "the dataset again with `tt preprocess`"
        )
    if rest:
        yield rest


def read_target_texts(
    files: Sequence[Path], records: Collection[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """Returns the target texts of validation records, by shard and number.

    Datasets of the first versions have none.

    Args:
      files: All shards.
      records: Shard and number of the records to look up.

    Raises:
      UserError: A shard is missing, cut off or damaged.
    """
    found = {}
    for example, shard, record, _ in read_records(files):
        key = str(files[shard]), record
        if key in records:
            features = tf.train.Example.FromString(example).features.feature
            for text in features[TARGET_TEXT_FEATURE].bytes_list.value:
                found[key] = text.decode()
    return found


def _parse(
    examples: list[bytes], records: list[tuple[str, int]], start: Position, following: Position
) -> Window:
    try:
        with tf.device("/cpu:0"):
            parsed = tf.io.parse_example(tf.constant(examples), _FEATURES)
    except tf.errors.InvalidArgumentError as error:
        raise _not_an_example(examples, records) from error
    source, target = parsed[SOURCE_FEATURE], parsed[TARGET_FEATURE]
    return Window(
        source_ids=source.values.numpy(),
        source_starts=source.row_splits.numpy(),
        target_ids=target.values.numpy(),
        target_starts=target.row_splits.numpy(),
        records=records,
        start=start,
        following=following,
    )


def _check(window: Window, vocabulary_sizes: tuple[int, int]) -> None:
    """Checks that pairs have ids on both sides, all of them of the vocabularies."""
    sides = (
        ("source", window.source_ids, window.source_starts, vocabulary_sizes[0]),
        ("target", window.target_ids, window.target_starts, vocabulary_sizes[1]),
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
