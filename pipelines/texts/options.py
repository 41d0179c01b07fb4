"""How texts are treated."""

from __future__ import annotations

import dataclasses

from tt.model.errors import accept_one_string, one_of, require, require_one_of
from tt.model.formats.model_card import About, TrainingData
from tt.model.text.languages import find_language, read_language
from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.model.transformer.search_options import MAX_SOURCE_TOKENS
from tt.pipelines.texts.limits import FLAGS, read_names

SENTENCES, LONG, NEVER = "sentences", "long", "never"
SPLITS = (SENTENCES, LONG, NEVER)
KEEP, LEAVE_OUT = "keep", "null"
ON_FLAG = (KEEP, LEAVE_OUT)
SPLIT, TRUNCATE, SKIP = "split", "truncate", "skip"
ON_TOO_LONG = (SPLIT, TRUNCATE, SKIP)
_ENOUGH_PAIRS = 200  # of training with so many placeholders, for a model to know what they are


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How texts are treated.

    Attributes:
      max_source_tokens: Tokens of a source that the model gets at once, BOS and EOS counted.
      split: Which texts are cut into sentences, each translated by itself: all ("sentences"), those
        of more than `max_source_tokens` ("long", for models of longer texts) or none ("never").
      on_too_long: What becomes of a sentence of more than `max_source_tokens`, or of a text that is
        not cut: "split" translates it in parts, "truncate" its first `max_source_tokens` tokens,
        "skip" leaves the text out. By default "split", and "skip" with `split=never`.
      placeholders: Most protected spans of a sentence that the model itself places in the
        translation; of a sentence with more, what is between the spans is translated. 0 to 8, by
        default as many as were in enough pairs of its training.
      glossary: File of terms, a line each: the term, TAB, its translation, and optionally TAB and
        "exact" (the default) or "any-case".
      protection: What of a text must not change.
      source_language: Code of the texts' language, whose rules cut texts into sentences; by default
        that of the model's training, else English.
      target_language: Code of the language to translate into, where the model has several: as the
        model names it, or any code of it; else that of its translations, where the model does not
        say it.
      flags: Flags that count, of those in docs/translate.md; repeatable, or with commas, and
        "none" for none.
      on_flag: Keep flagged translations ("keep"), or leave them out ("null").
    """

    max_source_tokens: int = MAX_SOURCE_TOKENS
    split: str = one_of(SPLITS, default=SENTENCES)
    on_too_long: str | None = one_of(ON_TOO_LONG, default=None)
    placeholders: int | None = None
    glossary: str | None = None
    protection: Protection = dataclasses.field(default_factory=Protection)
    source_language: str = ""
    target_language: str = ""
    flags: tuple[str, ...] = one_of((*FLAGS, "none"), default=FLAGS)
    on_flag: str = one_of(ON_FLAG, default=KEEP)

    def __post_init__(self) -> None:
        accept_one_string(self)
        rule = "`max_source_tokens` must be at least 3 (BOS, a token and EOS)"
        require(self.max_source_tokens >= 3, rule, self.max_source_tokens)
        require_one_of("`split`", self.split, SPLITS)
        if self.on_too_long is None:
            default = SKIP if self.split == NEVER else SPLIT
            object.__setattr__(self, "on_too_long", default)
        require_one_of("`on_too_long`", self.on_too_long, ON_TOO_LONG)
        require(
            (self.split, self.on_too_long) != (NEVER, SPLIT),
            "`on_too_long=split` and `split=never` contradict each other: leave one out",
        )
        most = len(PLACEHOLDERS)
        is_possible = self.placeholders is None or 0 <= self.placeholders <= most
        require(is_possible, f"`placeholders` must be 0 to {most}", self.placeholders)
        object.__setattr__(self, "flags", read_names(self.flags))
        require_one_of("`on_flag`", self.on_flag, ON_FLAG)
        require(
            bool(self.flags) or self.on_flag == KEEP,
            f"`on_flag={self.on_flag}` needs a flag that counts: leave out `flags=none`",
        )
        if self.source_language:
            read_language(self.source_language, name="`source_language`")

    def name_languages(self, about: About) -> About:
        """Return what a model is, with the languages that it is to translate between."""
        source, target = about.data.source_language, about.data.target_language
        data = dataclasses.replace(
            about.data,
            source_language=source or self.source_language,
            target_language=self.target_language or target,
        )
        return dataclasses.replace(about, data=data)

    def for_model(self, data: TrainingData) -> TextOptions:
        """Return these options with the model's language and placeholders, if none are given.

        What the patterns of its dataset find is protected, too, unless `protect` is off: the model
        knows no such text but as a placeholder.

        Args:
          data: What the model was trained on.

        >>> TextOptions().for_model(TrainingData(source_language="de")).source_language
        'de'
        """
        language = self.source_language
        if not language and find_language(data.source_language):
            language = data.source_language
        placeholders = self.placeholders
        if placeholders is None:
            placeholders = sum(pairs >= _ENOUGH_PAIRS for pairs in data.placeholder_pairs)
        protection = self.protection
        if protection.protect:
            patterns = dict.fromkeys([*data.protect_regex, *protection.protect_regex])
            protection = dataclasses.replace(protection, protect_regex=tuple(patterns))
        return dataclasses.replace(
            self, source_language=language, placeholders=placeholders, protection=protection
        )
