"""What passes between the commands: the names in a dataset folder, and its manifest.

A dataset folder holds TFRecord shards, vocabularies, `rejected-*.parquet` and, written last,
`dataset.json`. A folder without that file is unfinished. This module needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.errors import UserError
from model.folders.access import no_access
from model.text.vocabulary import Reader, VocabularyPair, read_local

MANIFEST_FILE = "dataset.json"

MANIFEST_FORMAT = 1

# The record: a tf.train.Example with two int64 lists, BOS and EOS included; for validation also
# the normalised texts that they encode, as they were before the vocabulary.
SOURCE_FEATURE = "source"

TARGET_FEATURE = "target"

SOURCE_TEXT_FEATURE = "source_text"

TARGET_TEXT_FEATURE = "target_text"

TRAIN = "train"

VALIDATION = "validation"

HISTOGRAM_STEP = 8  # tokens

PADDING_BATCH = 64  # pairs

RATIO_STEPS = 8  # of ratios of lengths, an octave

_RATIO_OCTAVES = 5  # on both sides of 1; what is beyond counts there

_OTHER_VOCABULARY = (
    "the folder holds another vocabulary than its records were made with; make the dataset again "
    "with `tt preprocess`"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """What a split holds.

    Attributes:
      shards: File names inside the dataset folder, in order.
      records: Number of pairs.
      source_tokens: Tokens on the source side, BOS and EOS counted.
      target_tokens: Tokens on the target side, BOS and EOS counted.
      longest: The most tokens on any side of any pair.
      source_lengths: `source_lengths[i]` pairs have 8i to 8i+7 source tokens.
      target_lengths: The same of the target side.
      length_ratios: Pairs by target tokens for a source token, BOS and EOS apart, in eighths of
        an octave from 1/32 to 32; see `ratio_places`. None in a manifest of an older `tt`.
      padding_as_stored: Share of padding among all ids if every 64 consecutive pairs made a
        batch, each side as long as its longest.
      padding_by_length: The same if each text was padded to the next multiple of 8.
      shard_sizes: Bytes of each shard; none in a manifest of an older `tt`.
    """

    shards: list[str]
    records: int
    source_tokens: int
    target_tokens: int
    longest: int
    source_lengths: list[int]
    target_lengths: list[int]
    length_ratios: list[int] = dataclasses.field(default_factory=list)
    padding_as_stored: float = 0.0
    padding_by_length: float = 0.0
    shard_sizes: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetManifest:
    """`dataset.json`: what a finished dataset folder holds and how it was made.

    Attributes:
      fingerprint: Hex digest of inputs, options, vocabulary and version: equal fingerprints
        mean equal records.
      version: Version of `tt` that wrote it.
      corpus: Name of the corpus; "embedded" for the one that comes with `tt`.
      source_language: Code of the source language as given, or "".
      target_language: Code of the target language as given, or "".
      source_vocabulary_size: Padded to a multiple of 8.
      target_vocabulary_size: Padded to a multiple of 8.
      shared_vocabulary: Whether both sides use one vocabulary.
      lines_read: Pairs read from all sources; equals `pairs_kept` and all of `rejected`.
      pairs_kept: Pairs in the records of all splits.
      rejected: Pairs left out, by reason code.
      sources: For each source of pairs: kind, name, files and columns, whether it is held out,
        and what was read, kept and rejected.
      splits: By name, "train" and "validation".
      options: The resolved options of the run.
      vocabulary_digests: Digests by `digest_file` of the vocabulary's files, by name; none in a
        manifest of an older `tt`.
    """

    fingerprint: str
    version: str
    corpus: str
    source_language: str
    target_language: str
    source_vocabulary_size: int
    target_vocabulary_size: int
    shared_vocabulary: bool
    lines_read: int
    pairs_kept: int
    rejected: dict[str, int]
    sources: list[dict[str, Any]]
    splits: dict[str, SplitInfo]
    options: dict[str, Any]
    vocabulary_digests: dict[str, str] = dataclasses.field(default_factory=dict)
    format: int = MANIFEST_FORMAT

    def to_json(self) -> str:
        """Returns the text of `dataset.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    def check(
        self,
        folder: str | Path,
        *,
        vocabularies: VocabularyPair,
        model_sizes: tuple[int, int],
        batch_tokens: int,
    ) -> None:
        """Checks that a model can be trained on the dataset.

        Args:
          folder: The folder that it lies in, on this machine.
          vocabularies: The vocabularies in the folder.
          model_sizes: Tokens that the model knows on each side.
          batch_tokens: Size of a batch, into which the longest pair must fit.

        Raises:
          UserError: A vocabulary is another than that of the records, or has another size than
            the model, a split has no records, or a pair is too long.
        """
        ours = (self.source_vocabulary_size, self.target_vocabulary_size)
        found = (vocabularies.source.size, vocabularies.target.size)
        for side, size, own, of_model in zip(
            ("source", "target"), found, ours, model_sizes, strict=True
        ):
            for name, expected in ((MANIFEST_FILE, own), ("the model", of_model)):
                if size != expected:
                    raise UserError(
                        f"the {side} vocabulary in {folder} has {size} tokens, {name} {expected}: "
                        f"{_OTHER_VOCABULARY}"
                    )
        for name, digest in self.vocabulary_digests.items():
            if digest_file(read_local(f"{folder}/{name}")) != digest:
                raise UserError(
                    f"{folder}/{name} has changed since {MANIFEST_FILE} was written: "
                    f"{_OTHER_VOCABULARY}"
                )
        for name in (TRAIN, VALIDATION):
            split = self.splits[name]
            if split.records == 0:
                raise UserError(f"{folder} has no {name} records: preprocess more pairs")
            if split.longest > batch_tokens:
                raise UserError(
                    f"the longest pair of {folder} has {split.longest} tokens, a batch "
                    f"{batch_tokens}: raise `batch_tokens`, or lower "
                    "`tt preprocess --max-tokens`"
                )

    @classmethod
    def load(cls, folder: str | Path, *, read: Reader = read_local) -> DatasetManifest:
        """Reads the manifest of a finished dataset folder.

        Args:
          folder: The dataset folder.
          read: Reads a file of it; folders on other file systems need one of their own.

        Raises:
          UserError: There is no such folder, it is unfinished, or the file is of another format.
        """
        path = f"{folder}/{MANIFEST_FILE}"
        try:
            values = json.loads(read(path))
            if values["format"] != MANIFEST_FORMAT:
                raise UserError(
                    f"{path} has format {values['format']}, this tt reads {MANIFEST_FORMAT}: "
                    "make the dataset again with `tt preprocess`"
                )
            splits = values["splits"]
            values["splits"] = {name: SplitInfo(**splits[name]) for name in (TRAIN, VALIDATION)}
            manifest = cls(**values)
            if not isinstance(manifest.vocabulary_digests, dict):
                raise TypeError("vocabulary_digests")
            for split in manifest.splits.values():
                if len(split.shard_sizes) not in (0, len(split.shards)):
                    raise ValueError("shard_sizes")
            return manifest
        except NotADirectoryError:
            raise UserError(
                f"{folder} is a file: name the folder that `tt preprocess` wrote"
            ) from None
        except FileNotFoundError:
            if read is read_local and not Path(folder).is_dir():
                raise UserError(
                    f"no dataset folder at {folder}: make one with `tt preprocess`"
                ) from None
            raise UserError(
                f"{folder} is not a finished dataset folder (it has no {MANIFEST_FILE}): "
                "run its `tt preprocess` again to finish it"
            ) from None
        except PermissionError as error:
            raise no_access(path, reason=error.strerror or "permission denied") from error
        except (
            IsADirectoryError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:
            raise UserError(
                f"{path} cannot be read: {error!r}. Copy the folder again from where it came, or "
                "make the dataset again with `tt preprocess`"
            ) from error


def digest_file(content: bytes) -> str:
    """Returns what tells one version of a file from another: hex blake2b."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def shard_name(split: str, index: int, count: int) -> str:
    """Returns the file name of a shard, such as `train-00003-of-00016.tfrecord`."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


def ratio_places(
    source_lengths: npt.NDArray[np.int64], target_lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Returns the places of pairs in `SplitInfo.length_ratios`.

    Args:
      source_lengths: Tokens, BOS and EOS counted.
      target_lengths: The same of the target side.

    >>> ratio_places(np.array([12, 12, 3, 102]), np.array([12, 22, 102, 3])).tolist()
    [40, 48, 80, 0]
    """
    source, target = (np.maximum(side - 2, 1) for side in (source_lengths, target_lengths))
    octaves = np.clip(np.log2(target / source), -_RATIO_OCTAVES, _RATIO_OCTAVES)
    places: npt.NDArray[np.int64] = np.rint((octaves + _RATIO_OCTAVES) * RATIO_STEPS).astype(
        np.int64
    )
    return places


def ratio_of_place(place: int) -> float:
    """Returns the ratio in the middle of a place of `SplitInfo.length_ratios`.

    >>> ratio_of_place(40), ratio_of_place(48)
    (1.0, 2.0)
    """
    return float(2.0 ** (place / RATIO_STEPS - _RATIO_OCTAVES))
