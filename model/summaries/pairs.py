"""Sample pairs of a split: as texts, tokens and ids, and whether the texts come back."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

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
from model.summaries.vocabularies import token_names
from model.text.vocabulary import Vocabulary, VocabularyPair


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSample:
    """A text on its way to ids and back."""

    text: str | None  # normalised, as it was before the vocabulary; None where it is not stored
    tokens: list[str]  # names of the ids
    ids: list[int]
    decoded: str  # text that the ids give
    # Whether the way back leads to the same: to the text, or where none is stored, from the decoded
    # text to the same ids.
    comes_back: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSample:
    """A record of a split."""

    split: str
    shard: str  # file name
    record: int  # number in the shard, from 0
    source: TextSample
    target: TextSample


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredPair:
    """A record as it is stored."""

    shard: str
    record: int
    ids: tuple[list[int], list[int]]  # of source and target, BOS and EOS included
    texts: tuple[str | None, str | None]


def read_pairs(folder: Path, manifest: DatasetManifest, split: str) -> Iterator[StoredPair]:
    """Yields the records of a split, in the order in which they are stored.

    Raises:
      UserError: A shard is missing, cut off or damaged.
    """
    shards = manifest.splits[split].shards
    for example, shard, record, _ in read_records([folder / name for name in shards]):
        try:
            features = tf.train.Example.FromString(example).features.feature
        except Exception as error:  # protobuf's DecodeError, by whichever implementation
            raise UserError(
                f"record {record} of {folder / shards[shard]} is no tf.train.Example: make the "
                "dataset again with `tt preprocess`"
            ) from error
        source, target = (
            list(features[name].int64_list.value) for name in (SOURCE_FEATURE, TARGET_FEATURE)
        )
        texts = [
            features[name].bytes_list.value for name in (SOURCE_TEXT_FEATURE, TARGET_TEXT_FEATURE)
        ]
        source_text, target_text = (text[0].decode() if text else None for text in texts)
        yield StoredPair(
            shard=shards[shard],
            record=record,
            ids=(source, target),
            texts=(source_text, target_text),
        )


def sample_pairs(
    folder: Path,
    manifest: DatasetManifest,
    vocabularies: VocabularyPair,
    *,
    split: str,
    count: int,
) -> list[PairSample]:
    """Returns the first records of a split: preprocessing has shuffled them.

    Raises:
      UserError: A shard is missing, cut off or damaged.
    """
    return [
        PairSample(
            split=split,
            shard=pair.shard,
            record=pair.record,
            source=sample_text(vocabularies.source, pair.ids[0], text=pair.texts[0]),
            target=sample_text(vocabularies.target, pair.ids[1], text=pair.texts[1]),
        )
        for pair in itertools.islice(read_pairs(folder, manifest, split), count)
    ]


def sample_text(vocabulary: Vocabulary, ids: Sequence[int], *, text: str | None) -> TextSample:
    """Returns a text as its ids, the tokens that they stand for, and the text that these give."""
    given = list(ids)
    [decoded] = vocabulary.decode([given])
    # Where no text is stored, whether what the ids give leads to them again.
    returns = [vocabulary.encode([decoded])[0], given] if text is None else [decoded, text]
    return TextSample(
        text=text,
        tokens=token_names(vocabulary, given),
        ids=given,
        decoded=decoded,
        comes_back=returns[0] == returns[1],
    )
