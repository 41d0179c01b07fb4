"""The file names in a dataset folder, and its manifest `dataset.json`.

A dataset folder contains TFRecord shards, vocabularies, `rejected-*.parquet` and `dataset.json`.
The manifest is written last: a folder without it is unfinished. This module does not import
TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt.model.errors import BadFileError, UserError, no_access
from tt.model.json_files import parse_fields
from tt.model.text.vocabulary import Reader, VocabularyPair, read_local

if TYPE_CHECKING:  # not at run time, so that `tt COMMAND --help` stays fast
    import numpy as np
    import numpy.typing as npt

# Keys of a source in the manifest.
HELD_OUT = "is_held_out"
WEIGHT = "weight"  # the share of pairs to keep; missing if all pairs are kept
MANIFEST_FILE = "dataset.json"
MANIFEST_FORMAT = 1

# A record is a tf.train.Example with two int64 lists of ids, which include BOS and EOS. Validation
# and test records also contain the normalized texts, because ids may not decode to the same texts.
SOURCE_FEATURE = "source"
TARGET_FEATURE = "target"
SOURCE_TEXT_FEATURE = "source_text"
TARGET_TEXT_FEATURE = "target_text"
TRAIN = "train"
VALIDATION = "validation"
TEST = "test"  # exists only on request; training does not read it
HISTOGRAM_STEP = 8  # tokens per bin
RATIO_STEPS = 8  # bins per octave in histograms of length ratios
_RATIO_OCTAVES = 5  # on each side of ratio 1; the outermost bins include all ratios beyond

_OTHER_VOCABULARY = (
    "The folder contains a different vocabulary from the one that encoded its records. Create the "
    "dataset again with `tt preprocess`"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """The content of a split. Numbers of tokens include BOS and EOS.

    Lists that older versions of `tt` did not write are empty in their manifests.
    """

    shards: list[str]  # file names in the dataset folder, in order
    records: int  # number of pairs
    source_tokens: int
    target_tokens: int
    longest: int  # the most tokens of any source or target
    source_lengths: list[int]  # `source_lengths[i]` pairs have 8i to 8i+7 source tokens
    target_lengths: list[int]
    # Histogram of pairs by target tokens per source token, without BOS and EOS, in eighths of an
    # octave from 1/32 to 32; see `ratio_places`. Older versions did not write it.
    length_ratios: list[int] = dataclasses.field(default_factory=list)
    # The part of `length_ratios` whose sources end with sentence-final punctuation, such as a full
    # stop, and whose targets do not. Older versions did not write it.
    lost_end_ratios: list[int] = dataclasses.field(default_factory=list)
    # `placeholder_pairs[k - 1]` pairs have at least k placeholders on each side; empty if no pair
    # has a placeholder. Older versions did not write it.
    placeholder_pairs: list[int] = dataclasses.field(default_factory=list)
    # Bytes per shard. Older versions did not write them.
    shard_sizes: list[int] = dataclasses.field(default_factory=list)
    # File names of Parquet tables with the texts of the shards; only for the split "test".
    tables: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetManifest:
    """The content of `dataset.json`, which describes a finished dataset."""

    # Hex digest of inputs, options, vocabulary and version. Equal fingerprints mean equal records.
    fingerprint: str
    version: str  # version of the `tt` that created the dataset
    corpus: str  # name of the corpus; "embedded" for the corpus that comes with `tt`
    source_language: str  # code as the user wrote it, or ""
    target_language: str  # code as the user wrote it, or ""
    source_vocabulary_size: int  # rounded up to a multiple of 8
    target_vocabulary_size: int  # rounded up to a multiple of 8
    shared_vocabulary: bool  # whether both sides use the same vocabulary
    lines_read: int  # pairs read from all sources: `pairs_kept` plus the sum of `rejected`
    pairs_kept: int  # pairs in the records of all splits
    rejected: dict[str, int]  # rejected pairs by reason code
    # For each source of pairs: kind, name, files, columns, whether it is held out, numbers of pairs
    # read, kept, rejected, with decoded HTML entities, and with a side that is partly in another
    # language; numbers of sampled texts per side by detected language ("" if unknown); and, if the
    # sides are shifted against each other, the first such line and the numbers of pairs by offset.
    # Older versions did not write some of these values.
    sources: list[dict[str, Any]]
    splits: dict[str, SplitInfo]  # by name: "train", "validation" and, on request, "test"
    options: dict[str, Any]  # the resolved options of the command
    # Files in folders of corpora that were not read, by ending. Older versions did not write it.
    unread_files: dict[str, int] = dataclasses.field(default_factory=dict)
    excluded_texts: int | None = None  # texts read from the `--exclude` files; None if unknown
    # The cosines of the training pairs before the alignment filter; None without this filter. The
    # keys are the "threshold", the "least_cosine", which 99.9 % of the kept pairs reach, the
    # "counts" of pairs in 40 bins from -1 to 1, and "examples" (cosine, source, target) per bin.
    alignment: dict[str, Any] | None = None
    # Digests (`digest_file`) of the vocabulary files by name. Older versions did not write them.
    vocabulary_digests: dict[str, str] = dataclasses.field(default_factory=dict)
    format: int = MANIFEST_FORMAT

    def to_json(self) -> str:
        """Return the text of `dataset.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    def check(
        self,
        folder: str | Path,
        *,
        vocabularies: VocabularyPair,
        model_sizes: tuple[int, int],
        batch_tokens: int,
    ) -> None:
        """Check that a model can be trained on a local dataset folder.

        Args:
          folder: The dataset folder.
          vocabularies: The vocabularies in the folder.
          model_sizes: The model's sizes of the source and target vocabularies.
          batch_tokens: The token budget of a batch.

        Raises:
          UserError: A vocabulary is not the one that encoded the records, or its size differs from
            the model's, a split has no records, or a pair is too long.
        """
        ours = (self.source_vocabulary_size, self.target_vocabulary_size)
        found = (vocabularies.source.size, vocabularies.target.size)
        if not found == ours == model_sizes:
            raise UserError(
                f"the vocabularies in {folder} have {found} tokens, {MANIFEST_FILE} says {ours}, "
                f"and the model has {model_sizes}. {_OTHER_VOCABULARY}"
            )
        for name, digest in self.vocabulary_digests.items():
            if digest_file(read_local(f"{folder}/{name}")) != digest:
                raise UserError(
                    f"{folder}/{name} has changed since {MANIFEST_FILE} was written. "
                    f"{_OTHER_VOCABULARY}"
                )
        for name in (TRAIN, VALIDATION):
            if self.splits[name].records == 0:
                raise UserError(f"{folder} has no {name} records. Preprocess more pairs")
        longest = max(self.splits[name].longest for name in (TRAIN, VALIDATION))
        if longest > batch_tokens:
            raise UserError(
                f"the longest pair in {folder} has {longest} tokens, but a batch has "
                f"{batch_tokens}. Raise `batch_tokens`, or lower `tt preprocess --max-tokens`"
            )

    def _check_names(self, path: str) -> None:
        """Check that all files are in the dataset folder itself.

        Raises:
          BadFileError: A path leads to another folder.
        """
        splits = self.splits.values()
        names = [name for split in splits for name in (*split.shards, *split.tables)]
        for name in (*names, *self.vocabulary_digests):
            if "/" in name or name in ("", ".", ".."):
                raise BadFileError(
                    f"{path} must name files inside its folder. Received: {name!r}. Create the "
                    "dataset again with `tt preprocess`"
                )

    @classmethod
    def load(cls, folder: str | Path, *, read: Reader = read_local) -> DatasetManifest:
        """Read the manifest of a finished dataset folder.

        Args:
          folder: The folder.
          read: Function that reads a file; pass one that can read remote files if necessary.

        Raises:
          BadFileError: The file is damaged, or has another format.
          UserError: The folder does not exist or is unfinished.
        """
        path = f"{folder}/{MANIFEST_FILE}"
        try:
            values = json.loads(read(path))
            if values["format"] != MANIFEST_FORMAT:
                raise ValueError(f"format {values['format']} instead of {MANIFEST_FORMAT}")
            _ = values["splits"][TRAIN], values["splits"][VALIDATION]
            manifest = parse_fields(cls, values)
            manifest._check_names(path)
            return manifest
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{folder} is not a finished dataset folder (it has no {MANIFEST_FILE}). Choose a "
                "folder that `tt preprocess` wrote, or repeat its `tt preprocess` command to "
                "finish it"
            ) from None
        except PermissionError as error:
            raise no_access(path, reason=error.strerror or "permission denied") from error
        except (IsADirectoryError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFileError(
                f"{path} cannot be read: {error!r}. Copy the folder again from its source, or "
                "create the dataset again with `tt preprocess`"
            ) from error


def merge_sources(sources: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the sources of a manifest that have the same name, and add up their counts."""
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for source in sources:
        key = source["name"], source["is_held_out"]
        merged = found.setdefault(key, {**source, "read": 0, "kept": 0})
        for count in ("read", "kept"):
            merged[count] += source[count]
    return list(found.values())


def digest_file(content: bytes) -> str:
    """Return the blake2b hex digest of a file's content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def shard_name(split: str, index: int, count: int) -> str:
    """Return the file name of a shard, such as `train-00003-of-00016.tfrecord`."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


def table_name(split: str, index: int, count: int) -> str:
    """Return the file name of the table with the texts of a shard."""
    return shard_name(split, index, count).replace(".tfrecord", ".parquet")


def ratio_places(
    source_lengths: npt.NDArray[np.int64], target_lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the bin of each pair in `SplitInfo.length_ratios`.

    Args:
      source_lengths: Source tokens of each pair, including BOS and EOS.
      target_lengths: Target tokens of each pair, including BOS and EOS.

    >>> import numpy as np
    >>> ratio_places(np.array([12, 12, 3, 102]), np.array([12, 22, 102, 3])).tolist()
    [40, 48, 80, 0]
    """
    import numpy as np

    source, target = (np.maximum(side - 2, 1) for side in (source_lengths, target_lengths))
    octaves = np.clip(np.log2(target / source), -_RATIO_OCTAVES, _RATIO_OCTAVES)
    places = np.rint((octaves + _RATIO_OCTAVES) * RATIO_STEPS)
    return np.asarray(places, np.int64)


def ratio_of_place(place: int) -> float:
    """Return the ratio in the middle of a bin of `SplitInfo.length_ratios`.

    >>> ratio_of_place(40), ratio_of_place(48)
    (1.0, 2.0)
    """
    return float(2.0 ** (place / RATIO_STEPS - _RATIO_OCTAVES))
