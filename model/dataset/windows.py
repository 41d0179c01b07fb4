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
from model.errors import UserError, counted


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
        parse = _parse if computes else _parse_alone
        parsed = parse(examples, places, start, following)
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
    """Returns the target texts of validation records, by shard and number; old datasets have none.

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
    sides = [parsed[name] for name in (SOURCE_FEATURE, TARGET_FEATURE)]
    source, target = (Side(side.values.numpy(), side.row_splits.numpy()) for side in sides)
    return Window(source, target, records, start, following)


def _parse_alone(
    examples: list[bytes], records: list[tuple[str, int]], start: Position, following: Position
) -> Window:
    rows: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for example in examples:
        try:
            features = tf.train.Example.FromString(example).features.feature
        except Exception as error:  # protobuf's DecodeError, by whichever implementation
            raise _not_an_example(examples, records) from error
        for name, side in zip(_FEATURES, rows, strict=True):
            side.append(np.array(features[name].int64_list.value, np.int64))
    source, target = (
        Side(np.concatenate(side), np.cumsum([0, *map(len, side)], dtype=np.int64)) for side in rows
    )
    return Window(source, target, records, start, following)


def _check(window: Window, vocabulary_sizes: tuple[int, int]) -> None:
    """Checks that pairs have ids on both sides, all of them of the vocabularies."""
    sides = zip(("source", "target"), (window.source, window.target), vocabulary_sizes, strict=True)
    for name, (ids, starts), size in sides:
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
