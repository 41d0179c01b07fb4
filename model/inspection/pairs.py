"""Sample pairs of a split as texts, tokens and ids, and pairs that preprocessing rejected."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from model.dataset.manifest import (
    SOURCE_FEATURE,
    SOURCE_TEXT_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
    DatasetManifest,
)
from model.dataset.tfrecords import read_records
from model.errors import UserError
from model.text.vocabulary import Vocabulary, VocabularyPair

_BATCH_ROWS = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSample:
    """A text on its way to ids and back."""

    text: str | None  # normalized; None if the dataset stores only the ids
    tokens: list[str]  # names of the ids
    ids: list[int]
    decoded: str  # text that the ids decode to
    # Whether the text comes back from its ids; without a text, whether the ids come back from the
    # decoded text.
    comes_back: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSample:
    """A record of a split."""

    split: str
    shard: str  # file name
    record: int  # number in the shard, from 0
    source: TextSample
    target: TextSample


class StoredPair(NamedTuple):
    """A record as the dataset stores it."""

    shard: str
    record: int
    ids: tuple[list[int], list[int]]  # of source and target, BOS and EOS included
    texts: tuple[str | None, str | None]


def read_pairs(folder: Path, manifest: DatasetManifest, split: str) -> Iterator[StoredPair]:
    """Yield the records of a split in the order in which they are stored.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    shards = manifest.splits[split].shards
    for example, shard, record, _ in read_records([folder / name for name in shards]):
        try:
            features = tf.train.Example.FromString(example).features.feature
        except Exception as error:  # protobuf's DecodeError, which each implementation defines
            raise UserError(
                f"record {record} of {folder / shards[shard]} is no tf.train.Example: make the "
                "dataset again with `tt preprocess`"
            ) from error
        source, target = (
            list(features[name].int64_list.value) for name in (SOURCE_FEATURE, TARGET_FEATURE)
        )
        source_text, target_text = (
            text[0].decode() if (text := features[name].bytes_list.value) else None
            for name in (SOURCE_TEXT_FEATURE, TARGET_TEXT_FEATURE)
        )
        yield StoredPair(shards[shard], record, (source, target), (source_text, target_text))


def sample_pairs(
    folder: Path,
    manifest: DatasetManifest,
    vocabularies: VocabularyPair,
    *,
    split: str,
    count: int,
) -> list[PairSample]:
    """Return the first records of a split, which preprocessing has shuffled.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    return [
        PairSample(
            split=split,
            shard=pair.shard,
            record=pair.record,
            source=_sample_text(vocabularies.source, pair.ids[0], text=pair.texts[0]),
            target=_sample_text(vocabularies.target, pair.ids[1], text=pair.texts[1]),
        )
        for pair in itertools.islice(read_pairs(folder, manifest, split), count)
    ]


def _sample_text(vocabulary: Vocabulary, ids: list[int], *, text: str | None) -> TextSample:
    [decoded] = vocabulary.decode([ids])
    return TextSample(
        text=text,
        tokens=vocabulary.names(ids),
        ids=ids,
        decoded=decoded,
        comes_back=vocabulary.encode([decoded])[0] == ids if text is None else decoded == text,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RejectedPairs:
    """The pairs that were rejected for one reason."""

    reason: str  # its code
    count: int
    examples: list[dict[str, Any]]  # the first rows of `rejected-*.parquet`


def summarize_rejected(
    folder: Path, counts: Mapping[str, int], *, examples: int
) -> list[RejectedPairs]:
    """Return the rejected pairs of a dataset, the most frequent reason first.

    Args:
      folder: The dataset folder.
      counts: Pairs by reason, as in its manifest.
      examples: The most examples per reason.

    Raises:
      UserError: A `rejected-*.parquet` cannot be read.
    """
    found: dict[str, list[dict[str, Any]]] = {reason: [] for reason in counts}
    missing = {reason: min(examples, count) for reason, count in counts.items()}
    for row in _rejected_rows(folder):
        if missing.get(row["reason"]):
            missing[row["reason"]] -= 1
            found[row["reason"]].append(row)
        if not any(missing.values()):
            break
    return [
        RejectedPairs(reason=reason, count=count, examples=found[reason])
        for reason, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]


def _rejected_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("rejected-*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH_ROWS):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{path} cannot be read: {reason}. Copy the folder again from where it came, or "
                "make the dataset again with `tt preprocess`"
            ) from error
