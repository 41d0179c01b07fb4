"""What is suspicious about a translation: pure functions of a sentence and its translation.

A flag means that a reader should look; a translation with one may be right. All thresholds stand
in `Thresholds`, and what a model's training pairs say of it in `Limits`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import operator
import re
import unicodedata
from collections.abc import Collection, Sequence

import regex

from model.dataset.manifest import RATIO_STEPS
from model.engines.translator import Hypothesis
from model.errors import require, require_one_of
from model.formats.model_card import About
from model.text.languages import find_language

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
    # Share of the median, if also the full stop of the source is missing.
    without_end: float = 0.6
    # Letters of another script: so many, and so large a share.
    foreign_letters: int = 2
    foreign_share: float = 0.2
    # Digits of a figure that must come back: smaller numbers may become words.
    figure_digits: int = 2
    # Figures or words that are searched for inside others: no sentence has more.
    most_searched: int = 100
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
    least_score: float | None = None  # log-probability of a token

    @classmethod
    def of(cls, about: About) -> Limits:
        """Takes what a model card has."""
        ratios, language = about.data.length_ratios, find_language(about.data.target_language)
        return cls(
            target_script=language.script if language else "",
            shortest=_scaled(ratios.get(THRESHOLDS.shortest), 1 / _HALF_STEP),
            usual=ratios.get("50%"),
            longest=_scaled(ratios.get(THRESHOLDS.longest), _HALF_STEP),
            least_score=about.token_scores.get(THRESHOLDS.score),
        )


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """Finds the flags that count."""

    limits: Limits = dataclasses.field(default_factory=Limits)
    flags: tuple[str, ...] = FLAGS  # those that count, in the order of `FLAGS`

    def __call__(self, source: str, best: Hypothesis, *, source_tokens: int) -> tuple[str, ...]:
        """Returns the flags of a sentence's translation that count.

        Args:
          source: The sentence.
          best: Its translation, whose tokens have EOS.
          source_tokens: Tokens of the sentence, BOS and EOS apart.
        """
        found = flag_sentence(
            source,
            best.text,
            limits=self.limits,
            source_tokens=source_tokens,
            target_tokens=best.tokens - 1,
            score=best.score,
        )
        if not best.is_complete:
            found = (*found, INCOMPLETE)
        return self.counting(found) if found else found

    def counting(self, found: Collection[str]) -> tuple[str, ...]:
        """Returns those of the flags that count, each once, in the order of `FLAGS`."""
        return tuple(flag for flag in self.flags if flag in found)


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the flags that a user names, in the order of `FLAGS`; "none" stands for none.

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


def flag_sentence(
    source: str,
    translation: str,
    *,
    limits: Limits,
    source_tokens: int = 0,
    target_tokens: int = 0,
    score: float = 0.0,
) -> tuple[str, ...]:
    """Returns the flags of a sentence's translation that can be told from the two.

    Args:
      source: The sentence.
      translation: What the model made of it.
      limits: What is usual for the model.
      source_tokens: Tokens of the sentence, BOS and EOS apart; 0 where they are not known.
      target_tokens: Tokens of the translation, likewise.
      score: Log-probability of the translation, EOS included.

    >>> flag_sentence("Come home.", "Komm nach nach nach nach Hause.", limits=Limits())
    ('repeats',)
    >>> flag_sentence("It costs 250 euros.", "It costs 250 euros.", limits=Limits())
    ('copy',)
    """
    found = []
    if has_loop(translation, source=source):
        found.append(REPEATS)
    if is_copy(translation, source=source):
        found.append(COPY)
    if (
        min(source_tokens, target_tokens) > 0
        and limits.usual
        and limits.shortest
        and limits.longest
    ):
        ratio = target_tokens / source_tokens
        is_far = abs(target_tokens - limits.usual * source_tokens) >= THRESHOLDS.length_slack
        if (ratio < limits.shortest and is_far) or (
            ratio < THRESHOLDS.without_end * limits.usual
            and has_lost_end(translation, source=source)
        ):
            found.append(SHORT)
        if ratio > limits.longest and is_far:
            found.append(LONG)
    if limits.target_script and has_other_script(
        translation, source=source, script=limits.target_script
    ):
        found.append(WRONG_SCRIPT)
    if has_lost_figure(translation, source=source):
        found.append(NUMBER)
    least = limits.least_score
    if least is not None and target_tokens > 0 and score / (target_tokens + 1) < least:
        found.append(LOW_SCORE)
    return tuple(found)


# Loops.

_TOKEN = re.compile(r"\w+")
_CHARACTERS_LOOP = re.compile(
    rf"(\S{{1,{THRESHOLDS.loop_characters}}}?)\1{{{THRESHOLDS.loop_character_times - 1},}}"
)


def has_loop(text: str, *, source: str) -> bool:
    """Says whether words or characters come in a loop, and not in a similar one in the source.

    >>> has_loop("und der Hund und der Hund und der Hund", source="and the dog")
    True
    >>> has_loop("Das ist sehr, sehr, sehr gut.", source="That is good.")
    False
    """
    words = text.split()
    if _may_loop(words) and _loop(text) > _loop(source):
        return True
    long = [word for word in words if len(word) >= THRESHOLDS.loop_length]
    return any(map(_has_characters_loop, long)) and not _has_characters_loop(source)


def _times(period: int) -> int:
    """Returns how often so many words come in a loop."""
    if period == 1:
        return THRESHOLDS.loop_word_times
    return 2 if period >= THRESHOLDS.doubled_words else THRESHOLDS.loop_times


# By period, the fewest words of a loop that come again, but for one that a comma sets apart.
_LEAST = [(p, p * (_times(p) - 1) - 1) for p in range(1, THRESHOLDS.longest_loop + 1)]


def _may_loop(words: Sequence[str]) -> bool:
    """Says quickly whether there may be a loop: one word may be set apart by its comma."""
    repeated = len(words) - len(set(words))
    return repeated >= _LEAST[0][1] and any(
        repeated >= least and sum(map(operator.eq, words[period:], words)) >= least
        for period, least in _LEAST
    )


def _loop(text: str) -> int:
    """Returns how many words the longest loop has; 0 if there is none."""
    words = _TOKEN.findall(text.lower())
    longest = 0
    for period in range(1, min(THRESHOLDS.longest_loop, len(words) // 2) + 1):
        least = period * (_times(period) - 1)
        run = 0  # words that are the same as those one period before
        for is_same in map(operator.eq, words[period:], words):
            run = run + 1 if is_same else 0
            if run >= least:
                longest = max(longest, run + period)
    return longest


def _has_characters_loop(text: str) -> bool:
    return any(any(map(str.isalpha, found[1])) for found in _CHARACTERS_LOOP.finditer(text))


# Copies.

_UNCASED = regex.compile(r"\p{Lo}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ADDRESS = re.compile(r"[/@:=<>{}%`\\_|]\S|\S\.[^\W_]")  # in URLs, files, code: no words


def is_copy(text: str, *, source: str) -> bool:
    """Says whether a sentence came back untranslated: not only names, numbers or a single word.

    >>> is_copy("Tom laughed.", source="Tom laughed.")
    True
    >>> is_copy("Barack Obama, New York", source="Barack Obama, New York")
    False
    """
    own = set(text.split())
    if 2 * len(own.intersection(source.split())) < len(own):
        return False
    words, there = (_words(each)[: THRESHOLDS.compared_words] for each in (text, source))
    blocks = difflib.SequenceMatcher(None, there, words, autojunk=False).get_matching_blocks()
    same = [word for block in blocks for word in words[block.b : block.b + block.size]]
    letters = sum(map(len, words))
    if sum(map(len, same)) < THRESHOLDS.copied_share * letters:
        return False
    is_whole = text == source and text[-1:] in _END and len(words) > 1
    lower = sum(word[0].islower() for word in same)
    return (
        lower >= (1 if is_whole else THRESHOLDS.copied_words)
        or len(_UNCASED.findall("".join(same))) >= THRESHOLDS.copied_letters
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(" ".join(each for each in text.split() if not _ADDRESS.search(each)))


# Ends.

_END = frozenset(".!?。！？｡।؟۔")
_INSIDE = frozenset(",;:-–—(，、；：،")
_CLOSERS = "\"'”’“»«)]』」 "


def has_lost_end(text: str, *, source: str) -> bool:
    """Says whether the source ends with a full stop or the like, and the translation does not.

    That is, it ends in a word, or a mark that stands inside of sentences.

    >>> has_lost_end("Ein Mann mit", source="A man with a dog.")
    True
    """
    if text[-1:].isalnum() or text[-1:] in _INSIDE:
        source = source.rstrip(_CLOSERS)
        return source[-1:] in _END and not source.endswith("..")
    return False


# Scripts.

_COMPOSED = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}
_LATIN_END = "\u0250"  # below, all letters are Latin


@functools.cache
def _foreign_word(script: str) -> regex.Pattern[str]:
    names = (*_COMPOSED.get(script, (script,)), "Common", "Inherited")
    own = "".join(rf"\p{{{name}}}" for name in names)
    return regex.compile(rf"[\p{{L}}--[{own}]]+", regex.V1)


def has_other_script(text: str, *, source: str, script: str) -> bool:
    """Says whether letters are of another script than the target language's, and not copied.

    >>> has_other_script("Sie mag 狗狗", source="She likes dogs", script="Latin")
    True
    >>> has_other_script("Он купил iPhone", source="He bought an iPhone", script="Cyrillic")
    False
    """
    if script == "Latin" and (text.isascii() or max(text) < _LATIN_END):
        return False
    words = _foreign_word(script).findall(text)
    lost = _not_in(words, known=_foreign_word(script).findall(source), text=source)
    foreign = sum(len(word) for word in words if word in lost)
    if foreign < THRESHOLDS.foreign_letters:
        return False
    return foreign >= THRESHOLDS.foreign_share * sum(map(str.isalpha, text))


def _not_in(parts: Sequence[str], *, known: Sequence[str], text: str) -> set[str]:
    """Returns which words or figures a text lacks; `known` are those of the text.

    What is inside another one is searched for, as far as `Thresholds.most_searched` goes.
    """
    there = {"", *known}
    new = [part for part in dict.fromkeys(parts) if part not in there]
    most = THRESHOLDS.most_searched
    return {part for i, part in enumerate(new) if i >= most or part not in text}


# Figures.

_DIGIT = re.compile(r"(?<!⟦)\d")  # the number of a placeholder is none
_FIGURE = re.compile(r"\d(?:[\d.,' \u00a0\u202f\u2009]*\d)?")


def has_lost_figure(text: str, *, source: str) -> bool:
    """Says whether a figure of several digits is lost, whatever parts its thousands.

    >>> has_lost_figure("Es kostet 1.250,5 Euro.", source="It costs 1,250.50 euros.")
    False
    >>> has_lost_figure("Es kostet 1.350 Euro.", source="It costs 1,250 euros.")
    True
    """
    if not (figures := _figures(source)):
        return False
    return bool(_not_in(figures, known=_figures(text), text=_digits(text)))


def _figures(text: str) -> list[str]:
    figures = [_digits(found) for found in _FIGURE.findall(text)]
    # Zeros at the ends may become words ("2 million") or go.
    return [f.strip("0") for f in figures if len(f) >= THRESHOLDS.figure_digits]


def _digits(text: str) -> str:
    digits = "".join(_DIGIT.findall(text))
    return digits if digits.isascii() else "".join(str(unicodedata.digit(d)) for d in digits)
