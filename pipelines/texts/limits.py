"""The flags of translations, their thresholds, and what a model's training says of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tt.model.dataset.manifest import RATIO_STEPS, ratio_of_place
from tt.model.errors import require, require_one_of
from tt.model.formats.model_card import About, TrainingData
from tt.model.text.languages import find_language

REPEATS = "repeats"  # words or characters come in a loop that the source has not
COPY = "copy"  # a sentence came back untranslated
SHORT = "short"  # shorter than any training pair would be, or its end is missing
LONG = "long"  # longer than any training pair would be
WRONG_SCRIPT = "wrong_script"  # letters of a script that neither language nor source has
NUMBER = "number"  # a figure of the source is lost
SPAN_REPAIRED = "span_repaired"  # the model lost what must not change, and it was put back
INCOMPLETE = "incomplete"  # a sentence was cut off at the length limit
LOW_SCORE = "low_score"  # less probable to the model than nearly all of its validation split
FLAGS = (REPEATS, COPY, SHORT, LONG, WRONG_SCRIPT, NUMBER, SPAN_REPAIRED, INCOMPLETE, LOW_SCORE)


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that a user names, in the order of `FLAGS`; "none" stands for none.

    Raises:
      UserError: There is no such flag.

    >>> read_names(["short,copy"])
    ('copy', 'short')
    """
    given = [part.strip() for name in names for part in name.split(",")]
    for name in given:
        require_one_of("`flags`", name, (*FLAGS, "none"))
    require(
        "none" not in given or len(given) == 1,
        "`flags=none` stands alone: leave out the others",
        ", ".join(given),
    )
    return tuple(flag for flag in FLAGS if flag in given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When a translation is suspicious; docs/measurements.md has what each finds and flags.

    Where a threshold is not from the literature, it is from `tests/bench/flags.py`: the one that
    finds most damage at hardly any flags of human translations.
    """

    # Words: a run of so many that repeats, one behind the other, so many times. Three times is
    # OpusFilter's RepetitionFilter (threshold 2); a single word ("no, no, no") needs one more, and
    # a run of `doubled_words` or more only two.
    loop_times: int = 3
    loop_word_times: int = 4
    longest_loop: int = 12
    doubled_words: int = 5
    # Characters: up to 8, a letter among them, come at least so many times in a word of 10 or more.
    loop_characters: int = 8
    loop_character_times: int = 5
    loop_length: int = 10
    # A copy: words of the source, in their order, have so large a share of the translation's
    # letters, and so many of them begin in lower case (names do not; one is enough where all is
    # the same and ends in a full stop), or have so many letters of a script without case. Of a
    # longer sentence so many words are compared, since the time grows with their square.
    copied_words: int = 3
    copied_share: float = 0.8
    copied_letters: int = 5
    compared_words: int = 200
    # Quantiles of the training pairs' target tokens for a source token.
    shortest: str = "0.01%"
    longest: str = "99.99%"
    # Tokens that a translation must have more or fewer than the median: names and headings differ
    # more than any ratio allows.
    length_slack: int = 5
    # Share of the median, if also the full stop of the source is missing: at least so large, and up
    # to the median as long as at most 3 of 10,000 training pairs are such and below it. To those
    # that were found 3 are added, since none found may be so many (the rule of three, Hanley and
    # Lippman-Hand 1983).
    without_end: float = 0.6
    pairs_without_end: int = 3
    unseen_pairs: int = 3
    # Letters of another script: so many, and so large a share.
    foreign_letters: int = 2
    foreign_share: float = 0.2
    # Digits of a figure that must come back: smaller numbers may become words.
    figure_digits: int = 2
    # Quantile of the validation split's log-probability for a token.
    score: str = "0.1%"


THRESHOLDS = Thresholds()
_HALF_STEP = 2 ** (0.5 / RATIO_STEPS)  # from the middle of a place of ratios to its edge


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What a model's training says of its translations; None or "" where that is not known."""

    target_script: str = ""  # as `Language.script`
    shortest: float | None = None  # target tokens for a source token
    usual: float | None = None
    longest: float | None = None
    without_end: float = THRESHOLDS.without_end  # share of `usual`, where the full stop is lost
    least_score: float | None = None  # log-probability of a token

    @classmethod
    def of(cls, about: About) -> Limits:
        """Take what a model card has."""
        ratios, language = about.data.length_ratios, find_language(about.data.target_language)
        usual = ratios.get("50%")
        return cls(
            target_script=language.script if language else "",
            shortest=_scaled(ratios.get(THRESHOLDS.shortest), 1 / _HALF_STEP),
            usual=usual,
            longest=_scaled(ratios.get(THRESHOLDS.longest), _HALF_STEP),
            without_end=_without_end(about.data, usual) if usual else THRESHOLDS.without_end,
            least_score=about.token_scores.get(THRESHOLDS.score),
        )


def _without_end(data: TrainingData, usual: float) -> float:
    """Return below which share of the median hardly a training pair has lost its end."""
    import numpy as np  # here, so that the help of a command needs none

    least = THRESHOLDS.without_end
    if not data.lost_end_ratios:
        return least  # not counted
    most = THRESHOLDS.pairs_without_end * data.pairs // 10_000 - THRESHOLDS.unseen_pairs
    below = np.cumsum(data.lost_end_ratios)
    place = int(np.searchsorted(below, most, side="right"))  # the first with too many up to it
    if place == len(below):
        return 1.0 if most >= 0 else least
    share = ratio_of_place(place) / _HALF_STEP / usual
    return min(max(share, least), 1.0)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
