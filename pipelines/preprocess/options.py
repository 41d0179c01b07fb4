"""The options of a dataset."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Collection
from typing import Any

from tt.model.errors import CHOICES, UserError, accept_one_string, one_of, require, require_one_of
from tt.model.folders import default_cache
from tt.model.formats.model_folder import find_model_folder, load_about
from tt.model.text.languages import read_language
from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.model.text.vocabulary import SHARED_MODEL, SOURCE_MODEL, TARGET_MODEL, load_vocabularies
from tt.pipelines.preprocess.filters import DEDUPLICATE, HELD_OUT_BY, LONG_SIDE, Filters
from tt.pipelines.preprocess.naming import CorpusOptions
from tt.pipelines.storage import files, listing
from tt.pipelines.storage.paths import is_local
from tt.pipelines.tables.finding import UTF8, find_encoding

VOCABULARY_SIZE = 8000  # where nothing is said
IS_SIZE_GIVEN = "vocabulary_size_is_given"  # set only where the user gave the default size
_RULE = "identity"  # SentencePiece's, where none is said
_VOCABULARY_TYPES = ("unigram", "bpe", "char")

_TRAINING_OPTIONS = (
    "vocabulary_size", "vocabulary_type", "vocabulary_sample", "character_coverage",
    "byte_fallback", "user_symbols", "sentencepiece_rule",
)  # fmt: skip
_PROTECTING_OPTIONS = ("protect", "protect_regex")

_READING_OPTIONS = (
    "source_column", "target_column", "split", "validation_split", "data_dir", "download",
    "language_pair", "subsets",
)  # fmt: skip

_SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
_SENTENCEPIECE_RULES = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions(CorpusOptions):
    """How corpora are read and a dataset is made.

    Attributes:
      output: Dataset folder to write.
      shards: Number of shards of the training split; 0 derives it from `shard_megabytes`.
      shard_megabytes: Approximate size of a shard of the training split, in MB.
      seed: Seed of the order of the pairs.
      vocabulary_size: Number of tokens of each vocabulary, the 4 special ones counted. By default
        8000, or as many as a small corpus allows; 1000 for the embedded corpus.
      vocabulary_type: Type of SentencePiece model; twice: the source type, then the target type.

        Two types make the vocabularies separate.
      shared_vocabulary: Use one vocabulary for both sides, or one each.
      vocabulary: SentencePiece model to use instead of training one; twice: the source's, then the
        target's.
      vocabulary_sample: Train vocabularies on at most this many lines.
      character_coverage: Share of all characters that get a token. By default 0.9995 where a fifth
        of the letters or more are Han, kana or Hangul, else 1.
      byte_fallback: Spell characters without a token in bytes, where they would be unknown.
      user_symbols: Text that is always a token of its own; repeatable.
      sentencepiece_rule: SentencePiece's own normalisation, inside the vocabulary: "nmt_nfkc",
        "nfkc", "nmt_nfkc_cf" or "nfkc_cf" (cf: lower case), which lose m², … and more. By default
        "identity", which changes nothing.
      filters: Pairs that are left out.
      deduplicate: Keep only the first of the pairs that are equal in this: "pair" (both sides),
        "source" or "target"; "none" keeps all.
      exclude: File of texts, one a line, that training must not see on any side; repeatable.
      held_out_by: What keeps a pair out of training: the "pair" itself is held out, its "source"
        is, any "side" of it is, or "long-side": the pair is, or a side of more than 4 tokens. Texts
        of `exclude` with 4 tokens or fewer count with "side" alone. By default "long-side".
      validation_fraction: Share of the pairs, by a hash of the source, that is held out where no
        validation corpus is named.
      validation_split: Split of TFDS validation corpora, in TFDS's own syntax.
      normalization: Normalisation of texts, here and in translation.
      protect: Put placeholders for the URLs, mail addresses, {x}, %s, $VAR, :name:, tags, entities,
        code in backquotes, emoji, prices, and numbers with a unit or of more than four digits that
        stand on both sides of a pair, so that a model learns to place them.
      protect_regex: Regular expression, in Python's syntax, of more that placeholders stand for;
        repeatable.
    """

    output: str
    shards: int = 0
    shard_megabytes: float = 8.0
    seed: int = 1
    vocabulary_size: int | None = None
    vocabulary_type: tuple[str, ...] = one_of(_VOCABULARY_TYPES, default=("unigram",))
    shared_vocabulary: bool = True
    vocabulary: tuple[str, ...] = ()
    vocabulary_sample: int = 200_000
    character_coverage: float | None = None
    byte_fallback: bool = False
    user_symbols: tuple[str, ...] = ()
    sentencepiece_rule: str | None = one_of(_SENTENCEPIECE_RULES, default=None)
    filters: Filters = dataclasses.field(default_factory=Filters)
    deduplicate: str = one_of(DEDUPLICATE, default="pair")
    exclude: tuple[str, ...] = ()
    held_out_by: str | None = one_of(HELD_OUT_BY, default=None)
    validation_fraction: float = 0.01
    validation_split: str = "validation"
    normalization: TextNormalization = dataclasses.field(default_factory=TextNormalization)
    protect: bool = True
    protect_regex: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accept_one_string(self)
        for side in ("source", "target"):
            if code := getattr(self, f"{side}_language"):
                read_language(code, name=f"`{side}_language`")
        find_encoding(self.encoding)
        _ = self.protection  # raises for a bad pattern
        self._check_vocabularies()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            choices = field.metadata.get(CHOICES)
            if choices and (value is not None or field.default is not None):
                for each in value if isinstance(value, tuple) else (value,):
                    require_one_of(f"`{field.name}`", each, choices)
        for name, least, most in (
            ("shards", 0, 10_000),
            ("shard_megabytes", 0.001, math.inf),
            ("vocabulary_size", 8, 1_000_000),
            ("vocabulary_sample", 1, math.inf),
            ("character_coverage", 0.9, 1),
            ("validation_fraction", 0, 0.5),
            ("seed", -(2**63), 2**63 - 1),
        ):
            value = getattr(self, name)
            limits = f"at least {least:,}" if most == math.inf else f"{least:,} to {most:,}"
            is_within = value is None or least <= value <= most
            require(is_within, f"`{name}` must be {limits}", value)

    def _check_vocabularies(self) -> None:
        require(
            len(self.vocabulary) <= 2, "`vocabulary` must name 1 or 2 models", list(self.vocabulary)
        )
        require(
            1 <= len(self.vocabulary_type) <= 2,
            "`vocabulary_type` must have 1 or 2 values",
            list(self.vocabulary_type),
        )
        about_training = changed_fields(self, (*_TRAINING_OPTIONS, "shared_vocabulary"))
        if self.vocabulary and about_training:
            raise UserError(
                f"`vocabulary` gives a vocabulary, and {', '.join(about_training)} is for "
                "training one: choose"
            )
        symbols, special = [*self.user_symbols], ", ".join(_SPECIAL_PIECES)
        is_lower = not self.normalization.lowercase or self.normalization.lower(symbols) == symbols
        require(
            all(symbols)
            and is_lower
            and len({*symbols, *_SPECIAL_PIECES}) == len(symbols) + len(_SPECIAL_PIECES),
            f"`user_symbols` must be different, not empty, none of {special}, and in lower case if "
            "`lowercase` is on",
            symbols,
        )
        require(
            self.normalization.clean_whitespace
            or bool(self.vocabulary)
            or self.normalization_rule == _RULE,
            "`clean_whitespace=False` needs `sentencepiece_rule=identity`, as the others change "
            "white space",
            self.sentencepiece_rule,
        )

    @property
    def protection(self) -> Protection:
        """What placeholders stand for."""
        return Protection(protect=self.protect, protect_regex=self.protect_regex)

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """Texts that are always a token in a vocabulary that is trained."""
        placeholders = PLACEHOLDERS if self.protection.is_on else ()
        return tuple(dict.fromkeys((*self.user_symbols, *placeholders)))

    @property
    def is_shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        if self.vocabulary:
            return len(self.vocabulary) == 1
        return self.shared_vocabulary and len(self.vocabulary_type) == 1

    @property
    def model_files(self) -> list[str]:
        """Names of the vocabularies' files in the dataset folder."""
        return [SHARED_MODEL] if self.is_shared else [SOURCE_MODEL, TARGET_MODEL]

    @property
    def wanted_tokens(self) -> int:
        """Tokens of each vocabulary, where the corpus allows as many."""
        return VOCABULARY_SIZE if self.vocabulary_size is None else self.vocabulary_size

    @property
    def holds_out_by(self) -> str:
        """The rule that tells held-out pairs, or its default."""
        return self.held_out_by or LONG_SIDE

    @property
    def normalization_rule(self) -> str:
        """SentencePiece's normalisation in a vocabulary that is trained."""
        return self.sentencepiece_rule or _RULE

    def resolved(self) -> dict[str, Any]:
        """Returns what the result depends on; the folder can be moved, so it is not in it."""
        values = dataclasses.asdict(self)
        for name in ("output", *_READING_OPTIONS):  # what is read, the sources' identities say
            del values[name]
        values["normalization"] = self.normalization.as_json()
        values["shared_vocabulary"] = self.is_shared
        values["vocabulary_size"] = self.wanted_tokens
        if self.vocabulary_size == VOCABULARY_SIZE:  # which may not be fewer, then
            values[IS_SIZE_GIVEN] = True
        values["vocabulary"] = [
            hashlib.sha256(files.read_bytes(path)).hexdigest() for path in self.vocabulary
        ]
        values["exclude"] = [listing.file_identity(path) for path in self.exclude]
        values["held_out_by"] = self.holds_out_by
        values["sentencepiece_rule"] = self.normalization_rule
        if self.vocabulary:  # then nothing is trained
            for name in (*_TRAINING_OPTIONS, IS_SIZE_GIVEN):
                values.pop(name, None)
        for name in _PROTECTING_OPTIONS:
            if not values[name]:
                del values[name]
        values["encoding"] = find_encoding(self.encoding)
        if values["encoding"] == UTF8:
            del values["encoding"]
        return values


def with_vocabulary_of(model: str, *, options: PreprocessOptions) -> PreprocessOptions:
    """Return options with everything that decided the tokens of a model's texts.

    These are its vocabulary, its normalization, and the patterns of its placeholders; and its
    languages if the options name none.

    Raises:
      UserError: There is no model of ours, or the options say something else.
    """
    about_another = changed_fields(
        options, (*_TRAINING_OPTIONS, "shared_vocabulary", "vocabulary", "protect_regex")
    )
    if about_another:
        raise UserError(
            f"`vocab_of` takes the vocabulary of a model, and {', '.join(about_another)} is about "
            "another: choose"
        )
    if is_local(model):
        found = find_model_folder(model)
    else:
        from tt.pipelines.runners.staging import stage_model  # imports Beam, for seconds

        found = stage_model(model, cache=default_cache(), report=lambda line: None)
    vocabularies, data = load_vocabularies(found), load_about(found).data
    normalization = vocabularies.source.normalization
    require(
        options.normalization in (normalization, TextNormalization()),
        f"`vocab_of` takes the normalisation of {model}, {normalization.as_json()}",
        options.normalization.as_json(),
    )
    return dataclasses.replace(
        options,
        vocabulary=tuple(str(found / name) for name in vocabularies.files[1:]),
        normalization=normalization,
        protect_regex=tuple(data.protect_regex),
        source_language=options.source_language or data.source_language,
        target_language=options.target_language or data.target_language,
    )


def as_given(resolved: dict[str, Any]) -> dict[str, Any]:
    """Returns `PreprocessOptions.resolved` as users gave it: a size that nobody gave is None."""
    values = dict(resolved)
    is_given = values.pop(IS_SIZE_GIVEN, False)
    if values.get("vocabulary_size") == VOCABULARY_SIZE and not is_given:
        values["vocabulary_size"] = None
    return values


def changed_fields(options: Any, names: Collection[str]) -> list[str]:
    """Returns those of the named fields of a dataclass that are not their default, in backticks."""
    return [
        f"`{field.name}`"
        for field in dataclasses.fields(options)
        if field.name in names and getattr(options, field.name) != field.default
    ]
