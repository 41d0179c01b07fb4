"""Options for texts: splitting, protection, glossary, languages and flags."""

from __future__ import annotations

import dataclasses

from tt.model.errors import checked, one_of, require, require_one_of
from tt.model.formats.model_card import About, TrainingData
from tt.model.text.languages import find_language, read_language
from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.model.transformer.search_options import MAX_SOURCE_TOKENS
from tt.pipelines.texts.flags import DEFAULT_FLAGS, FLAGS, WRONG_SOURCE, read_names
from tt.pipelines.texts.markup.formats import AUTO, FORMATS

SENTENCES, LONG, NEVER = "sentences", "long", "never"
SPLITS = (SENTENCES, LONG, NEVER)
KEEP, LEAVE_OUT = "keep", "null"
TRANSLATION = "translation"  # the default name of the column or field with the translation
ON_FLAG = (KEEP, LEAVE_OUT)
FLAG, COPY_TEXT = "flag", "copy"
ON_WRONG_LANGUAGE = (FLAG, LEAVE_OUT, COPY_TEXT)
RESTORE = "restore"
CAPITALS = (RESTORE, KEEP)
_DOTTED_CAPITALS = ("az", "tr")  # languages in which "i" is the lower case of "İ"
SPLIT, TRUNCATE, SKIP = "split", "truncate", "skip"
ON_TOO_LONG = (SPLIT, TRUNCATE, SKIP)
_ENOUGH_PAIRS = 200  # training pairs with a placeholder that teach a model to keep it


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options for texts.

    Attributes:
      max_source_tokens: Give the model at most N source tokens at once, including BOS and EOS.
      split: Choose which texts to cut into sentences and translate sentence by sentence.

        "sentences" cuts all texts. "long" cuts only texts of more than `max_source_tokens` tokens;
        use it for models of longer texts. "never" cuts no text.
      on_too_long: Choose how to handle sentences of more than `max_source_tokens` tokens. By
        default, "split", or "skip" with `split=never`.

        "split" translates a sentence in parts, "truncate" translates only the first
        `max_source_tokens` tokens, and "skip" does not translate the text. The option also applies
        to texts that are not cut into sentences.
      placeholders: Let the model place up to N protected spans per sentence, 0 to 8. By default, as
        in the model's training.

        If a sentence has more protected spans, only the text between them is translated. The
        default is the number of placeholders that occur together in enough training pairs.
      glossary: Translate terms as in this file, with a term, a tab and its translation per line.

        A line may end with a tab and "exact" (the default) or "any-case".
      protection: Options for text that must not change.
      source_language: Translate from the language with this code. By default, the model's
        language, or English.

        The rules of this language split texts into sentences.
      target_language: Translate into the language with this code, if the model has several.

        The code may be the model's own name for the language, or any other code of it. For a model
        that does not name its target language, it is the language of the translations.
      texts: Read texts as plain text, Markdown or HTML, or decide for each text.

        In Markdown and HTML, code, URLs and tags stay as they are, and inline tags are placed
        around the same words of the translation.
      capitals: Translate sentences in capitals in lower case, and restore their capitals.
      detect_language: Add the detected language of each text to the output.
      on_wrong_language: Choose how to handle texts that are not in the source language.

        "flag" translates them and sets the flag `wrong_source`, "null" leaves the translation
        empty, and "copy" copies the text. By default, `tt` does not check the language of each
        text.
      flags: Report these flags, separated by commas or repeated; "none" turns all flags off.

        docs/reference/columns.md lists all flags. The default is all flags but "unrelated",
        which needs the extra `alignment` and a model whose dataset has an `--alignment-filter`.
      on_flag: Keep flagged translations, or leave them empty.
    """

    max_source_tokens: int = MAX_SOURCE_TOKENS
    split: str = one_of(SPLITS, default=SENTENCES)
    on_too_long: str | None = one_of(ON_TOO_LONG, default=None)
    placeholders: int | None = None
    glossary: str | None = None
    protection: Protection = dataclasses.field(default_factory=Protection)
    source_language: str = ""
    target_language: str = ""
    texts: str = one_of((AUTO, *FORMATS), default=AUTO)
    capitals: str = one_of(CAPITALS, default=RESTORE)
    detect_language: bool = False
    on_wrong_language: str | None = one_of(ON_WRONG_LANGUAGE, default=None)
    flags: tuple[str, ...] = one_of((*FLAGS, "none"), default=DEFAULT_FLAGS)
    on_flag: str = one_of(ON_FLAG, default=KEEP)

    def __post_init__(self) -> None:
        rule = "`max_source_tokens` must be at least 3 (BOS, a token and EOS)"
        require(self.max_source_tokens >= 3, rule, self.max_source_tokens)
        require_one_of("`split`", self.split, SPLITS)
        if self.on_too_long is None:
            default = SKIP if self.split == NEVER else SPLIT
            object.__setattr__(self, "on_too_long", default)
        require_one_of("`on_too_long`", self.on_too_long, ON_TOO_LONG)
        require(
            (self.split, self.on_too_long) != (NEVER, SPLIT),
            "`on_too_long=split` and `split=never` contradict each other. Remove either option",
        )
        most = len(PLACEHOLDERS)
        is_possible = self.placeholders is None or 0 <= self.placeholders <= most
        require(is_possible, f"`placeholders` must be 0 to {most}", self.placeholders)
        object.__setattr__(self, "flags", read_names(self.flags))
        require_one_of("`texts`", self.texts, (AUTO, *FORMATS))
        require_one_of("`capitals`", self.capitals, CAPITALS)
        require_one_of("`on_flag`", self.on_flag, ON_FLAG)
        if self.on_wrong_language is not None:
            require_one_of("`on_wrong_language`", self.on_wrong_language, ON_WRONG_LANGUAGE)
        require(
            self.on_wrong_language != FLAG or WRONG_SOURCE in self.flags,
            f"`on_wrong_language=flag` has no effect without the flag {WRONG_SOURCE}. Add it to "
            "`flags`, or remove `on_wrong_language`",
        )
        require(
            (self.on_wrong_language, self.on_flag) != (COPY_TEXT, LEAVE_OUT),
            "`on_wrong_language=copy` and `on_flag=null` contradict each other. Remove either",
        )
        require(
            bool(self.flags) or self.on_flag == KEEP,
            f"`on_flag={self.on_flag}` has no effect with `flags=none`. Remove either option",
        )
        if self.source_language:
            read_language(self.source_language, name="`source_language`")

    @property
    def restores_capitals(self) -> bool:
        """Whether to restore capitals, which is wrong in languages that distinguish İ from I."""
        codes = self.source_language, self.target_language
        is_dotted = any(code.partition("-")[0] in _DOTTED_CAPITALS for code in codes)
        return self.capitals == RESTORE and not is_dotted

    def name_languages(self, about: About) -> About:
        """Return a model card with languages; the options add or replace languages."""
        source, target = about.data.source_language, about.data.target_language
        data = dataclasses.replace(
            about.data,
            source_language=source or self.source_language,
            target_language=self.target_language or target,
        )
        return dataclasses.replace(about, data=data)

    def for_model(self, data: TrainingData) -> TextOptions:
        """Return these options, with defaults from the model for missing options.

        Unless `protect` is off, the patterns of the model's dataset are added to the protection,
        because the model was trained with placeholders in the place of matching text.

        Args:
          data: The model's training data.

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
        target = self.target_language or data.target_language
        named = dataclasses.replace(self, source_language=language, target_language=target)
        return dataclasses.replace(
            self,
            source_language=language,
            placeholders=placeholders,
            protection=protection,
            capitals=RESTORE if named.restores_capitals else KEEP,
        )
