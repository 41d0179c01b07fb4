"""What is decided before anything is read: the options of a dataset, and the plan of its job."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import sentencepiece
from apache_beam.io.filesystems import FileSystems

from model.dataset.manifest import MANIFEST_FORMAT, TRAIN, VALIDATION, DatasetManifest
from model.errors import UserError
from model.text.languages import read_language
from model.text.vocabulary import VOCABULARY_FILE, TextNormalization, Vocabulary
from pipelines.corpora.encodings import UTF8, find_encoding
from pipelines.corpora.opening import MAX_UNIT_PAIRS, Source
from pipelines.pairs.encoding import DEDUPLICATE
from pipelines.pairs.filters import Filters
from pipelines.pairs.held_out import HELD_OUT_BY, LONG_SIDE, SIDE
from pipelines.pairs.spills import SplitPlan
from pipelines.pairs.units import SLICE_PAIRS
from pipelines.storage import files, parquet

WORK_FOLDER = "_work"
VOCABULARY_SIZE = 8000  # where nothing is said

_IS_SIZE_GIVEN = "vocabulary_size_is_given"  # beside the size that holds without it, too

# Changes whenever the same input and options would give other bytes.
_RESULT_VERSION = 3
_EARLIER_VERSION = 2  # what it finished is as good as finished now

# What was done before there was the option.
BEFORE = {"held_out_by": SIDE}

_RULE, _EARLIER_RULE = "identity", "nmt_nfkc"  # SentencePiece's, where none is said

_UNITS = 64  # at least, where the input is large enough: work for many workers
_PAIR_BYTES = 100  # of text, at the least
_BUCKET_BYTES = 64 << 20  # of one bucket in memory; text is an upper estimate of its records
_RECORD_SHARE = 0.7  # bytes of records for a byte of text, about
_MAX_SHARDS = 1024
_VALIDATION_SHARD_BYTES = 256 << 20
_VOCABULARY_TYPES = ("unigram", "bpe", "char")
_TRAINING_OPTIONS = (
    "vocabulary_size",
    "vocabulary_type",
    "source_vocabulary_type",
    "target_vocabulary_type",
    "vocabulary_sample",
    "character_coverage",
    "byte_fallback",
    "user_symbols",
    "sentencepiece_rule",
)
_SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
_SENTENCEPIECE_RULES = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    """How a dataset is made.

    Attributes:
      output: The dataset folder.
      shards: Shards of the training split; 0 goes by `shard_megabytes`.
      shard_megabytes: About the size of a shard of the training split.
      vocabulary_size: Pieces of each vocabulary, the 4 special ones counted; the most there may
        be for "char". None: `VOCABULARY_SIZE`, or as many as a small corpus allows.
      vocabulary_type: "unigram", "bpe" or "char".
      source_vocabulary_type: Of the source alone, where vocabularies are not shared.
      target_vocabulary_type: Of the target alone.
      shared_vocabulary: One vocabulary for both sides, or one each.
      vocabulary: SentencePiece models to use instead of training: one, shared, or two.
      vocabulary_sample: The most lines a vocabulary is trained on.
      character_coverage: Share of all characters that get a piece. None: 0.9995 for a vocabulary
        of whose sample a fifth of the letters or more are Han, kana or Hangul, else 1.
      byte_fallback: Spell characters without a piece in bytes, where they would be UNK.
      user_symbols: Texts that are always a piece of their own.
      sentencepiece_rule: SentencePiece's normalisation, inside the vocabulary, after
        `normalization`; what it changes, no translation gives back. None is "identity", which
        changes nothing.
      filters: Which pairs are left out.
      deduplicate: "pair", "source" or "target": of pairs that are equal there, the first stays;
        or "none".
      exclude: Files of texts, one a line: pairs with one of them on a side are left out.
      encoding: Of those files; corpora have their own.
      held_out_by: How pairs are told that training must not see: "pair" for the pairs of the
        validation corpora, "source" for pairs with a source of theirs, "side" for those with any
        text of theirs on a side, "long-side", the default, for the pairs and for sides that are
        not short. Texts of `exclude` are held out by sides that are not short; by any with "side".
      validation_fraction: Share of sources, by hash, held out where no held-out corpus is given.
      seed: Of the order of the pairs.
      normalization: What is done to texts, here and in translation.
      source_language: Its code, for the manifest; "" if it is not said.
      target_language: The same of the target.
    """

    output: str
    shards: int = 0
    shard_megabytes: float = 8.0
    vocabulary_size: int | None = None
    vocabulary_type: str = "unigram"
    source_vocabulary_type: str | None = None
    target_vocabulary_type: str | None = None
    shared_vocabulary: bool = True
    vocabulary: tuple[str, ...] = ()
    vocabulary_sample: int = 200_000
    character_coverage: float | None = None
    byte_fallback: bool = False
    user_symbols: tuple[str, ...] = ()
    sentencepiece_rule: str | None = None
    filters: Filters = dataclasses.field(default_factory=Filters)
    deduplicate: str = "pair"
    exclude: tuple[str, ...] = ()
    encoding: str = UTF8
    held_out_by: str | None = None
    validation_fraction: float = 0.01
    seed: int = 1
    normalization: TextNormalization = dataclasses.field(default_factory=TextNormalization)
    source_language: str = ""
    target_language: str = ""

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            if code := getattr(self, f"{side}_language"):
                read_language(code, name=f"--{side}-language")
        _check(0 <= self.shards <= 10_000, "shards must be 0 to 10,000", self.shards)
        _check(self.shard_megabytes >= 0.001, "a shard has 0.001 MB or more", self.shard_megabytes)
        _check(
            self.vocabulary_size is None or 8 <= self.vocabulary_size <= 1_000_000,
            "vocabulary size must be 8 to 1,000,000",
            self.vocabulary_size,
        )
        kinds = [
            self.source_vocabulary_type or self.vocabulary_type,
            self.target_vocabulary_type or self.vocabulary_type,
        ]
        for kind in (self.vocabulary_type, *kinds):
            _check(kind in _VOCABULARY_TYPES, "vocabulary type must be unigram, bpe or char", kind)
        if self.shared_vocabulary and not self.vocabulary:
            _check(kinds[0] == kinds[1], "a shared vocabulary has one type for both sides", kinds)
        _check(len(self.vocabulary) <= 2, "at most two vocabularies", self.vocabulary)
        _check(
            self.vocabulary_sample >= 1,
            "vocabulary sample must be 1 or more",
            self.vocabulary_sample,
        )
        _check(
            self.character_coverage is None or 0.9 <= self.character_coverage <= 1,
            "character coverage must be 0.9 to 1",
            self.character_coverage,
        )
        _check(
            len(set(self.user_symbols)) == len(self.user_symbols) and all(self.user_symbols),
            "user symbols must be different and not empty",
            self.user_symbols,
        )
        _check(
            not set(self.user_symbols) & set(_SPECIAL_PIECES),
            f"user symbols cannot be one of the special {', '.join(_SPECIAL_PIECES)}",
            self.user_symbols,
        )
        _check(
            not self.normalization.lowercase
            or self.normalization.lower([*self.user_symbols]) == [*self.user_symbols],
            "user symbols must be in lower case where texts are",
            self.user_symbols,
        )
        _check(
            self.normalization_rule in _SENTENCEPIECE_RULES,
            f"SentencePiece's rule must be one of {', '.join(_SENTENCEPIECE_RULES)}",
            self.sentencepiece_rule,
        )
        _check(
            self.normalization.clean_whitespace
            or bool(self.vocabulary)
            or self.normalization_rule == _RULE,
            "--keep-whitespace needs --sentencepiece-rule identity, as the others change it",
            self.sentencepiece_rule,
        )
        _check(
            self.deduplicate in DEDUPLICATE,
            f"deduplicate must be one of {', '.join(DEDUPLICATE)}",
            self.deduplicate,
        )
        find_encoding(self.encoding)
        _check(
            self.held_out_by in (None, *HELD_OUT_BY),
            f"held out by must be one of {', '.join(HELD_OUT_BY)}",
            self.held_out_by,
        )
        _check(
            0 <= self.validation_fraction <= 0.5,
            "validation fraction must be 0 to 0.5",
            self.validation_fraction,
        )
        _check(-(2**63) <= self.seed < 2**63, "seed must fit 64 bits", self.seed)

    @property
    def is_shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        return len(self.vocabulary) == 1 if self.vocabulary else self.shared_vocabulary

    @property
    def wanted_pieces(self) -> int:
        """Pieces of each vocabulary, where the corpus allows as many."""
        return VOCABULARY_SIZE if self.vocabulary_size is None else self.vocabulary_size

    @property
    def holds_out_by(self) -> str:
        """How held-out pairs are told, where nothing was said as well."""
        return self.held_out_by or LONG_SIDE

    @property
    def normalization_rule(self) -> str:
        """SentencePiece's normalisation in a vocabulary that is trained."""
        return self.sentencepiece_rule or _RULE

    def resolved(self) -> dict[str, Any]:
        """Returns what the result depends on; the folder can be moved, so it is not in it."""
        values = dataclasses.asdict(self)
        del values["output"]
        values["normalization"] = self.normalization.as_json()
        values["shared_vocabulary"] = self.is_shared
        values["vocabulary_size"] = self.wanted_pieces
        if self.vocabulary_size == VOCABULARY_SIZE:  # which may not be fewer, then
            values[_IS_SIZE_GIVEN] = True
        values["vocabulary"] = [
            hashlib.sha256(files.read_bytes(path)).hexdigest() for path in self.vocabulary
        ]
        values["exclude"] = [files.file_identity(path) for path in self.exclude]
        values["held_out_by"] = self.holds_out_by
        values["sentencepiece_rule"] = self.normalization_rule
        if self.vocabulary:  # then nothing is trained
            for name in (*_TRAINING_OPTIONS, _IS_SIZE_GIVEN):
                values.pop(name, None)
        values["encoding"] = find_encoding(self.encoding)
        if values["encoding"] == UTF8:
            del values["encoding"]
        return values


def as_given(resolved: dict[str, Any]) -> dict[str, Any]:
    """Returns `PreprocessOptions.resolved` as users gave it: a size that nobody gave is None."""
    values = dict(resolved)
    is_given = values.pop(_IS_SIZE_GIVEN, False)
    if values.get("vocabulary_size") == VOCABULARY_SIZE and not is_given:
        values["vocabulary_size"] = None
    return values


def _check(is_valid: bool, rule: str, received: object) -> None:
    if not is_valid:
        raise UserError(f"{rule}. Received: {received!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessPlan:
    """What is decided before anything is read.

    Attributes:
      sources: All corpora, the held-out ones last.
      identities: What they are now, for the manifest.
      held_out_from: Index of the first held-out corpus.
      options: How the dataset is made.
      corpus: Name of the corpus for the manifest.
      fingerprint: Hex digest of all that the result depends on.
      earlier_fingerprint: That which the same command had in the version before, which told
        held-out pairs by any side, filtered validation corpora and trained by "nmt_nfkc".
      unit_pairs: The most pairs of a unit of work.
      splits: How the records of each split are spread.
      notices: What the user is to be warned of, a line each.
    """

    sources: Sequence[Source]
    identities: Sequence[dict[str, Any]]
    held_out_from: int
    options: PreprocessOptions
    corpus: str
    fingerprint: str
    earlier_fingerprint: str
    unit_pairs: int
    splits: dict[str, SplitPlan]
    notices: Sequence[str] = ()

    @property
    def has_held_out(self) -> bool:
        """Whether some corpora are held out, and are the validation split."""
        return self.held_out_from < len(self.sources)

    @property
    def work_folder(self) -> str:
        """Where the run keeps what the finished folder has no need of."""
        return str(FileSystems.join(self.options.output, WORK_FOLDER, self.fingerprint[:16]))

    def made(self, manifest: DatasetManifest) -> bool:
        """Says whether this command made a finished dataset, today or in an earlier version."""
        return manifest.fingerprint in (self.fingerprint, self.earlier_fingerprint)


def plan_preprocess(
    *,
    sources: Sequence[Source],
    validation_sources: Sequence[Source] = (),
    options: PreprocessOptions,
    corpus: str = "",
) -> PreprocessPlan:
    """Decides how a dataset is made, from the names and sizes of its input; see `preprocess`.

    Raises:
      UserError: The input or the options do not suit.
    """
    if not sources:
        raise UserError("no corpus given: name text files, TSV, JSONL, Parquet or tfds:NAME")
    notices: list[str] = []
    for path in options.vocabulary:
        files.check_is_open(path)
        vocabulary = Vocabulary(path, options.normalization, read=files.read_bytes)
        _check_normalization(path, options.normalization)
        if not options.normalization.clean_whitespace and not vocabulary.keeps_whitespace:
            notices.append(
                f"--keep-whitespace: {path} changes white space all the same, as it was trained "
                "to; one that keeps it is trained by this flag without --vocab"
            )
    for path in options.exclude:
        if not files.exists(path):
            raise UserError(f"no file of texts to exclude at {path}: check the path")
    every_source = [*sources, *validation_sources]
    identities = [source.identity() for source in every_source]
    files.check_no_glob(options.output)
    _check_is_outside(options.output, identities)
    text_bytes = [source.text_bytes() for source in every_source]
    fingerprint, earlier = (
        _fingerprint(
            identities,
            held_out_from=len(sources),
            options=options,
            corpus=corpus,
            is_earlier=is_earlier,
        )
        for is_earlier in (False, True)
    )
    return PreprocessPlan(
        sources=every_source,
        identities=identities,
        held_out_from=len(sources),
        options=options,
        corpus=corpus,
        fingerprint=fingerprint,
        earlier_fingerprint=earlier,
        unit_pairs=_unit_pairs(sum(text_bytes)),
        splits=_plan_splits(
            sum(text_bytes[: len(sources)]), sum(text_bytes[len(sources) :]), options=options
        ),
        notices=notices,
    )


def _check_normalization(vocabulary: str, chosen: TextNormalization) -> None:
    """Raises if the vocabulary was made for texts that are normalised otherwise."""
    beside = FileSystems.join(FileSystems.split(vocabulary)[0], VOCABULARY_FILE)
    if not FileSystems.split(vocabulary)[0] or not files.exists(beside):
        return
    found = json.loads(files.read_bytes(beside)).get("normalization")
    if found != chosen.as_json():
        raise UserError(
            f"{vocabulary} was made for texts normalised by {found} ({beside} says so), not by "
            f"{chosen.as_json()}: see --unicode-form, --keep-whitespace and --lowercase"
        )


def _check_is_outside(output: str, identities: Sequence[dict[str, Any]]) -> None:
    """Raises if a corpus lies in the dataset folder, of which a rerun would read its own output."""
    root = parquet.normalize_path(output) + "/"
    for identity in identities:
        for file in identity["files"]:
            if parquet.normalize_path(file["path"]).startswith(root):
                raise UserError(
                    f"the corpus {file['path']} lies in the dataset folder {output}: choose "
                    "another --output, or leave it out"
                )


def _fingerprint(
    identities: Sequence[dict[str, Any]],
    *,
    held_out_from: int,
    options: PreprocessOptions,
    corpus: str,
    is_earlier: bool,
) -> str:
    """Returns the digest of all that the result depends on, as it is or as it was earlier."""
    resolved = options.resolved()
    has_validation = held_out_from < len(identities)
    was_by_side = options.held_out_by in (None, SIDE)
    if (is_earlier and was_by_side) or not (has_validation or options.exclude):
        del resolved["held_out_by"]
    if is_earlier:
        resolved.pop(_IS_SIZE_GIVEN, None)
        if "sentencepiece_rule" in resolved:
            resolved["sentencepiece_rule"] = options.sentencepiece_rule or _EARLIER_RULE
    described = {
        "sources": identities,
        "held_out_from": held_out_from,
        "options": resolved,
        "corpus": corpus,
        "result_version": _EARLIER_VERSION if is_earlier else _RESULT_VERSION,
        "manifest_format": MANIFEST_FORMAT,
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _unit_pairs(text_bytes: int) -> int:
    """Returns the most pairs of a unit: fewer for a small input, so that all workers get some."""
    pairs = text_bytes // _PAIR_BYTES
    return min(MAX_UNIT_PAIRS, max(1, math.ceil(pairs / _UNITS / SLICE_PAIRS)) * SLICE_PAIRS)


def _plan_splits(train: int, held_out: int, *, options: PreprocessOptions) -> dict[str, SplitPlan]:
    """Derives shards and buckets from bytes of text alone, so that a rerun finds them."""
    validation = held_out or math.ceil(train * options.validation_fraction)
    by_size = math.ceil(train * _RECORD_SHARE / (options.shard_megabytes * 2**20))
    shards = options.shards or min(max(1, by_size), _MAX_SHARDS)
    validation_shards = max(1, math.ceil(validation / _VALIDATION_SHARD_BYTES))
    return {
        TRAIN: SplitPlan(
            shards=shards, buckets_per_shard=max(1, math.ceil(train / shards / _BUCKET_BYTES))
        ),
        VALIDATION: SplitPlan(
            shards=validation_shards,
            buckets_per_shard=max(1, math.ceil(validation / validation_shards / _BUCKET_BYTES)),
        ),
    }
