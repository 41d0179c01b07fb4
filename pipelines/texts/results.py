"""The results of texts, their statuses, and the names of the columns for them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from tt.model.engines.translator import Hypothesis, Work
from tt.pipelines.texts.known import Learned
from tt.pipelines.texts.options import TRANSLATION

OK = "ok"
NULL = "null"  # the text is missing; no translation
EMPTY = "empty"  # the text is empty; the translation is ""
COPIED = "copied"  # the text has no letters, or only protected spans; the translation is the text
TOO_LONG = "too_long"  # a sentence exceeds max_source_tokens; a partial translation, or none
SPLIT = "split"  # a sentence was too long and was translated in parts
INCOMPLETE = "incomplete"  # the search ended a sentence at the length limit
UNKNOWN = "unknown"  # the model's vocabulary does not contain most of the text; no translation
FAILED = "failed"  # the text is not UTF-8, or the model fails at it; no translation
FLAGGED = "flagged"  # the translation is flagged, and `on_flag` is "null"; no translation
FROM_MEMORY = "from_memory"  # the whole translation comes from people, by a translation memory
SKIPPED = "skipped"  # the condition of `where` is not true for the row; no translation
STATUSES = (
    OK, NULL, EMPTY, COPIED, TOO_LONG, SPLIT, INCOMPLETE, UNKNOWN, FLAGGED, FAILED, FROM_MEMORY,
    SKIPPED,
)  # fmt: skip
# A group of texts has the worst status of its texts.
WORST_FIRST = (
    FAILED, UNKNOWN, FLAGGED, TOO_LONG, INCOMPLETE, SPLIT, OK, FROM_MEMORY, COPIED, EMPTY, NULL,
    SKIPPED,
)  # fmt: skip


@dataclasses.dataclass(slots=True, unsafe_hash=True, kw_only=True)  # `frozen` would be slow
class TranslatedText:
    """The result for one text."""

    translation: str | None = None  # the best translation
    score: float | None = None  # log-probability, summed over the sentences
    status: str  # one of STATUSES
    error: str | None = None  # one line with the reason if there is no translation
    flags: tuple[str, ...] = ()  # some of FLAGS
    source_language: str | None = None  # detected language of the text, with `detect_language`
    # The n best translations, best first. With several sentences, the first one combines the best
    # hypotheses of all sentences, and the others are the most probable other combinations.
    n_best: tuple[Hypothesis, ...] = ()


TermCounts = collections.Counter[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedTexts:
    """The result of `translate_texts`."""

    translations: list[TranslatedText]  # one per row, in order
    texts: int  # number of translated sources, including repetitions
    distinct_texts: int  # number of sources that the model translated, without repetitions
    source_characters: int  # number of characters in all rows with a text
    work: Work  # work of the successful calls of the model
    # Numbers of glossary terms that were "found" in the texts and "kept" in the translations.
    terms: TermCounts = dataclasses.field(default_factory=collections.Counter)
    remembered_texts: int = 0  # number of distinct sources whose translation the memory contains
    learned: tuple[Learned, ...] = ()  # new translations of the model; empty without a memory


SCORE = "translation_score"
STATUS = "translation_status"
ERROR = "translation_error"
ROW_FLAGS = "translation_flags"
N_BEST = "translation_n_best"
SOURCE_LANGUAGE = "translation_source_language"


VALUES: dict[str, Callable[[TranslatedText], Any]] = {
    TRANSLATION: lambda text: text.translation,
    SCORE: lambda text: text.score,
    STATUS: lambda text: text.status,
    ERROR: lambda text: text.error,
    ROW_FLAGS: lambda text: list(text.flags),
    N_BEST: lambda text: [{"text": h.text, "score": h.score} for h in text.n_best] or None,
    SOURCE_LANGUAGE: lambda text: text.source_language,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFields:
    """The fields to translate, and the names of the added fields.

    Attributes:
      fields: Fields that contain the texts.
      output: Name of the field for the translation; the other added fields start with this name.
      has_n_best: Whether the n best translations are added.
      has_language: Whether the detected languages of the texts are added.
    """

    fields: tuple[str, ...] = ()
    output: str = TRANSLATION
    has_n_best: bool = False
    has_language: bool = False

    def name(self, field: str, added: str) -> str:
        """Return the name of an added field; with several fields, it starts with the text's field.

        >>> TextFields(fields=("a", "b"), output="german").name("a", "translation_score")
        'a_german_score'
        """
        name = self.output + added.removeprefix(TRANSLATION)
        return name if len(self.fields) == 1 else f"{field}_{name}"

    def added(self) -> list[tuple[str, str]]:
        """Return a pair for each added field: the text's field, and a key of VALUES."""
        optional = {N_BEST: self.has_n_best, SOURCE_LANGUAGE: self.has_language}
        names = [name for name in VALUES if optional.get(name, True)]
        return [(field, name) for field in self.fields for name in names]
