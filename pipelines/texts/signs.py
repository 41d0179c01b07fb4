"""Letters of another script, and figures that are lost."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence

import regex

from model.text.spans import BRACKET
from pipelines.texts.limits import THRESHOLDS

# Scripts.

_COMPOSED = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}
# Characters of the Basic Multilingual Plane; the scripts of nearly all texts are there.
_BASIC = "".join(chr(i) for i in range(0x10000) if not 0xD800 <= i < 0xE000)


@functools.cache
def _foreign_word(script: str) -> regex.Pattern[str]:
    names = (*_COMPOSED.get(script, (script,)), "Common", "Inherited")
    own = "".join(rf"\p{{{name}}}" for name in names)
    return regex.compile(rf"[\p{{L}}--[{own}]]+", regex.V1)


@functools.cache
def _maybe_foreign(script: str) -> re.Pattern[str]:
    """Compiles what finds a letter of another script, or a character beyond the plane."""
    runs = (found[0] for found in _foreign_word(script).finditer(_BASIC))
    ranges = "".join(f"{run[0]}-{run[-1]}" for run in runs)
    return re.compile(f"[{ranges}\U00010000-\U0010ffff]")


def has_other_script(text: str, *, source: str, script: str) -> bool:
    """Says whether letters are of another script than the target language's, and not copied.

    >>> has_other_script("Sie mag 狗狗", source="She likes dogs", script="Latin")
    True
    >>> has_other_script("Он купил iPhone", source="He bought an iPhone", script="Cyrillic")
    False
    """
    if (script == "Latin" and text.isascii()) or not _maybe_foreign(script).search(text):
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

_DIGIT = re.compile(rf"(?<!{BRACKET})\d")  # the number of a placeholder is none
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
