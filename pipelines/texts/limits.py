"""The flags of translations, their thresholds, and the usual values of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tt.model.dataset.manifest import RATIO_STEPS, ratio_of_place
from tt.model.errors import require, require_one_of
from tt.model.formats.model_card import About, TrainingData
from tt.model.text.languages import find_language

REPEATS = "repeats"  # words or characters repeat in a loop that the source does not have
COPY = "copy"  # a sentence was not translated
SHORT = "short"  # shorter than almost all training pairs, or without the end of the sentence
LONG = "long"  # longer than almost all training pairs
WRONG_SCRIPT = "wrong_script"  # letters from a script of neither the language nor the source
WRONG_SOURCE = "wrong_source"  # the text is not in the source language; with `on_wrong_language`
WRONG_LANGUAGE = "wrong_language"  # the translation is not in the target language
UNRELATED = "unrelated"  # text and translation are less similar than almost all training pairs
NUMBER = "number"  # the figures of the source and of the translation differ
SYMBOLS = "symbols"  # a symbol, sign or identifier of the source is lost
PIECES = "pieces"  # a sentence was cut around its protected spans, because the model lost them
TAGS = "tags"  # the place of an inline tag in the translation is uncertain
INCOMPLETE = "incomplete"  # the search ended a sentence at the length limit
LOW_SCORE = "low_score"  # less probable than almost all translations of the validation split
# The statuses of translations that training can use. `tt preprocess` rejects rows of a translated
# table with any other status, and `tt back-translate` leaves them out.
TRANSLATED = ("ok", "from_memory")
FLAGS = (
    REPEATS, COPY, SHORT, LONG, WRONG_SCRIPT, WRONG_SOURCE, WRONG_LANGUAGE, UNRELATED, NUMBER,
    SYMBOLS, PIECES, TAGS, INCOMPLETE, LOW_SCORE,
)  # fmt: skip
DEFAULT_FLAGS = tuple(flag for flag in FLAGS if flag != UNRELATED)  # which is slow


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that a user names, in the order of `FLAGS`; "none" means no flags.

    Raises:
      UserError: A flag does not exist, or "none" is combined with other flags.

    >>> read_names(["short,copy"])
    ('copy', 'short')
    """
    given = [part.strip() for name in names for part in name.split(",")]
    for name in given:
        require_one_of("`flags`", name, (*FLAGS, "none"))
    require(
        "none" not in given or len(given) == 1,
        "`flags=none` cannot be combined with other flags",
        ", ".join(given),
    )
    return tuple(flag for flag in FLAGS if flag in given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The thresholds of all flags; docs/benchmarks.md reports how many errors each flag finds.

    A threshold without a reference comes from `tests/bench/flags.py`. It finds the most damaged
    translations while it flags almost no human translations.
    """

    # `repeats`, words: a sequence of words must occur this many times in a row. Three times
    # corresponds to threshold 2 of OpusFilter's RepetitionFilter. A single word must occur four
    # times ("no, no, no" is fine), and a sequence of at least `doubled_words` words only twice.
    loop_times: int = 3
    loop_word_times: int = 4
    longest_loop: int = 12  # maximum number of words in a sequence
    doubled_words: int = 5
    # `repeats`, characters: a word of at least `loop_length` characters repeats a sequence of at
    # most `loop_characters` characters, including a letter, at least `loop_character_times` times.
    loop_characters: int = 8
    loop_character_times: int = 5
    loop_length: int = 10
    # `copy`: words of the source, in their order, contain at least `copied_share` of the
    # translation's letters. In addition, at least `copied_words` of them start in lower case,
    # because names do not, or they contain at least `copied_letters` letters without case. One word
    # in lower case is enough if the whole sentence is the same and ends with a full stop.
    copied_words: int = 3
    copied_share: float = 0.8
    copied_letters: int = 5
    compared_words: int = 200  # words that are compared; the time grows with their square
    # `short` and `long`: quantiles of target tokens per source token in the training pairs.
    shortest: str = "0.01%"
    longest: str = "99.99%"
    # `short` and `long`: minimum difference from the median length in tokens, because the ratios of
    # names and headings vary widely.
    length_slack: int = 5
    # `short` also flags a translation that lacks the full stop of its source, and is shorter than a
    # share of the median length. Each model has the largest share, from `without_end` to 1, with
    # which at most `pairs_without_end` of 10,000 training pairs would be flagged. `unseen_pairs` is
    # added to the number of flagged pairs, because finding no such pair among N pairs is compatible
    # with a rate of 3 in N (rule of three, Hanley and Lippman-Hand 1983).
    without_end: float = 0.6
    pairs_without_end: int = 3
    unseen_pairs: int = 3
    # `wrong_script`: minimum number and share of letters in another script.
    foreign_letters: int = 2
    foreign_share: float = 0.2
    # `low_score`: quantile of the mean log-probability per token in the validation split.
    score: str = "0.1%"


THRESHOLDS = Thresholds()
_HALF_STEP = 2 ** (0.5 / RATIO_STEPS)  # factor from the middle of a histogram bin to its edge


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The usual values of a model's translations, from its training; None or "" if unknown."""

    target_script: str = ""  # `Language.script` of the target language
    source_language: str = ""  # codes of the languages, for numbers as words
    target_language: str = ""
    shortest: float | None = None  # minimum number of target tokens per source token
    usual: float | None = None  # median number of target tokens per source token
    longest: float | None = None  # maximum number of target tokens per source token
    without_end: float = THRESHOLDS.without_end  # minimum share of `usual` without a full stop
    least_score: float | None = None  # minimum of the mean log-probability per token
    least_cosine: float | None = None  # minimum of the similarity of a text and its translation

    @property
    def languages(self) -> dict[str, str]:
        """The codes of both languages, by the parameters of `has_same_figures`."""
        return {"source_language": self.source_language, "target_language": self.target_language}

    @classmethod
    def of(cls, about: About) -> Limits:
        """Return the limits from a model card."""
        ratios, language = about.data.length_ratios, find_language(about.data.target_language)
        usual = ratios.get("50%")
        return cls(
            target_script=language.script if language else "",
            source_language=about.data.source_language,
            target_language=about.data.target_language,
            shortest=_scaled(ratios.get(THRESHOLDS.shortest), 1 / _HALF_STEP),
            usual=usual,
            longest=_scaled(ratios.get(THRESHOLDS.longest), _HALF_STEP),
            without_end=_without_end(about.data, usual) if usual else THRESHOLDS.without_end,
            least_score=about.token_scores.get(THRESHOLDS.score),
            least_cosine=about.data.least_cosine,
        )


def _without_end(data: TrainingData, usual: float) -> float:
    """Return the share of the median length below which almost no training pair lacks its end."""
    import numpy as np  # imported here because it would slow down the help of commands

    least = THRESHOLDS.without_end
    if not data.lost_end_ratios:
        return least  # the dataset did not count them
    most = THRESHOLDS.pairs_without_end * data.pairs // 10_000 - THRESHOLDS.unseen_pairs
    below = np.cumsum(data.lost_end_ratios)
    # The first bin at which the sum has too many pairs.
    place = int(np.searchsorted(below, most, side="right"))
    if place == len(below):
        return 1.0 if most >= 0 else least
    share = ratio_of_place(place) / _HALF_STEP / usual
    return min(max(share, least), 1.0)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
