"""What passes between the commands: the names in a dataset folder, and its manifest.

A dataset folder holds TFRecord shards, vocabularies, `rejected-*.parquet` and, written last,
`dataset.json`: without that file it is unfinished. This module needs no TensorFlow.
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

if TYPE_CHECKING:  # the help of a command needs none
    import numpy as np
    import numpy.typing as npt

HELD_OUT = "is_held_out"  # keys of a corpus
WEIGHT = "weight"  # the share of its pairs that is kept, if not all are
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
RATIO_STEPS = 8  # of ratios of lengths, an octave
_RATIO_OCTAVES = 5  # on both sides of 1; what is beyond counts there

_OTHER_VOCABULARY = (
    "the folder holds another vocabulary than its records were made with; make the dataset again "
    "with `tt preprocess`"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """What a split holds. Tokens count BOS and EOS."""

    shards: list[str]  # file names inside the dataset folder, in order
    records: int  # pairs
    source_tokens: int
    target_tokens: int
    longest: int  # the most tokens on any side of any pair
    source_lengths: list[int]  # `source_lengths[i]` pairs have 8i to 8i+7 source tokens
    target_lengths: list[int]
    # Pairs by target tokens for a source token, BOS and EOS apart, in eighths of an octave from
    # 1/32 to 32; see `ratio_places`. None in a manifest of an older `tt`.
    length_ratios: list[int] = dataclasses.field(default_factory=list)
    # Those of them whose source ends with a full stop or the like, and whose target does not; none
    # in a manifest of an older `tt`.
    lost_end_ratios: list[int] = dataclasses.field(default_factory=list)
    # `placeholder_pairs[k - 1]` pairs have at least k placeholders on each side; none in a manifest
    # of an older `tt`, or where no pair has any.
    placeholder_pairs: list[int] = dataclasses.field(default_factory=list)
    # Bytes of each shard; none in a manifest of an older `tt`.
    shard_sizes: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetManifest:
    """`dataset.json`: what a finished dataset folder holds and how it was made."""

    # Hex digest of inputs, options, vocabulary and version: equal ones mean equal records.
    fingerprint: str
    version: str  # of the `tt` that wrote it
    corpus: str  # name; "embedded" for the one that comes with `tt`
    source_language: str  # code as given, or ""
    target_language: str  # code as given, or ""
    source_vocabulary_size: int  # padded to a multiple of 8
    target_vocabulary_size: int  # padded to a multiple of 8
    shared_vocabulary: bool  # whether both sides use one
    lines_read: int  # pairs read from all sources: `pairs_kept` and all of `rejected`
    pairs_kept: int  # pairs in the records of all splits
    rejected: dict[str, int]  # pairs left out, by reason code
    # For each source of pairs: kind, name, files and columns, whether it is held out, what was
    # read, kept and rejected, and how many of the texts of each side that were looked at seem to be
    # in which language ("" where that is not told); the last not in a manifest of an older `tt`.
    sources: list[dict[str, Any]]
    splits: dict[str, SplitInfo]  # by name, "train" and "validation"
    options: dict[str, Any]  # the resolved options of the run
    excluded_texts: int | None = None  # read of the files of `--exclude`; None if not known
    # Digests (`digest_file`) of the vocabulary's files, by name; none in one of an older `tt`.
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
        """Checks that a model with these vocabulary sizes can be trained on a local folder.

        Raises:
          UserError: A vocabulary is another than that of the records, or has another size than the
            model, a split has no records, or a pair is too long.
        """
        ours = (self.source_vocabulary_size, self.target_vocabulary_size)
        found = (vocabularies.source.size, vocabularies.target.size)
        if not found == ours == model_sizes:
            raise UserError(
                f"the vocabularies in {folder} have {found} tokens, those of {MANIFEST_FILE} "
                f"{ours}, and those of the model {model_sizes}: {_OTHER_VOCABULARY}"
            )
        for name, digest in self.vocabulary_digests.items():
            if digest_file(read_local(f"{folder}/{name}")) != digest:
                raise UserError(
                    f"{folder}/{name} has changed since {MANIFEST_FILE} was written: "
                    f"{_OTHER_VOCABULARY}"
                )
        for name in (TRAIN, VALIDATION):
            if self.splits[name].records == 0:
                raise UserError(f"{folder} has no {name} records: preprocess more pairs")
        longest = max(self.splits[name].longest for name in (TRAIN, VALIDATION))
        if longest > batch_tokens:
            raise UserError(
                f"the longest pair of {folder} has {longest} tokens, a batch {batch_tokens}: raise "
                "`batch_tokens`, or lower `tt preprocess --max-tokens`"
            )

    @classmethod
    def load(cls, folder: str | Path, *, read: Reader = read_local) -> DatasetManifest:
        """Reads the manifest of a finished dataset folder, by `read` where that is remote.

        Raises:
          BadFileError: The file is damaged.
          UserError: There is no such folder, it is unfinished, or the file is of another format.
        """
        path = f"{folder}/{MANIFEST_FILE}"
        try:
            values = json.loads(read(path))
            if values["format"] != MANIFEST_FORMAT:
                raise ValueError(f"format {values['format']} instead of {MANIFEST_FORMAT}")
            _ = values["splits"][TRAIN], values["splits"][VALIDATION]
            return parse_fields(cls, values)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{folder} is not a finished dataset folder (it has no {MANIFEST_FILE}): name the "
                "folder that `tt preprocess` wrote, or run its `tt preprocess` again to finish it"
            ) from None
        except PermissionError as error:
            raise no_access(path, reason=error.strerror or "permission denied") from error
        except (IsADirectoryError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFileError(
                f"{path} cannot be read: {error!r}. Copy the folder again from where it came, or "
                "make the dataset again with `tt preprocess`"
            ) from error


def merge_sources(sources: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of a manifest; files with the same name are one source."""
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for source in sources:
        key = source["name"], source["is_held_out"]
        merged = found.setdefault(key, {**source, "read": 0, "kept": 0})
        for count in ("read", "kept"):
            merged[count] += source[count]
    return list(found.values())


def digest_file(content: bytes) -> str:
    """Returns what tells one version of a file from another: hex blake2b."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def shard_name(split: str, index: int, count: int) -> str:
    """Returns the file name of a shard, such as `train-00003-of-00016.tfrecord`."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


def ratio_places(
    source_lengths: npt.NDArray[np.int64], target_lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Returns the places of pairs in `SplitInfo.length_ratios`, by tokens, BOS and EOS counted.

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
    """Returns the ratio in the middle of a place of `SplitInfo.length_ratios`.

    >>> ratio_of_place(40), ratio_of_place(48)
    (1.0, 2.0)
    """
    return float(2.0 ** (place / RATIO_STEPS - _RATIO_OCTAVES))
