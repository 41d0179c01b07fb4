"""Group rows by the length of their sources, in words or characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import regex

WORDS, CHARACTERS = "words", "characters"

# The maximum length of the sources in each group; the last group has no limit.
_LIMITS = {WORDS: (10, 20, 30, 50), CHARACTERS: (20, 40, 60, 100)}
_SAMPLE = 1000  # texts that are checked for spaces
# Scripts without spaces between words. Korean has spaces.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"


class LengthGroup(NamedTuple):
    """The rows whose sources have a similar length."""

    least: int  # length of the shortest sources that belong to the group
    most: int | None  # length of the longest sources; None for the last group
    rows: list[int]  # numbers of the rows, from 0


def group_by_length(sources: Sequence[str]) -> tuple[str, list[LengthGroup]]:
    """Return the unit of length, and the groups with rows, from short to long.

    Words are separated by spaces. If most letters of the first sources belong to a script without
    spaces, the unit is characters.

    >>> unit, groups = group_by_length(["one two", "", "word " * 51])
    >>> groups
    [LengthGroup(least=0, most=10, rows=[0, 1]), LengthGroup(least=51, most=None, rows=[2])]
    >>> group_by_length(["我不能说中文"])
    ('characters', [LengthGroup(least=0, most=20, rows=[0])])
    """
    unit = CHARACTERS if mostly(_UNSPACED, sources) else WORDS
    lengths = [len(text) if unit == CHARACTERS else len(text.split()) for text in sources]
    groups = []
    least = 0
    for most in (*_LIMITS[unit], None):
        rows = [
            row
            for row, length in enumerate(lengths)
            if length >= least and (most is None or length <= most)
        ]
        if rows:
            groups.append(LengthGroup(least, most, rows))
        least = (most or 0) + 1
    return unit, groups


def mostly(pattern: str, texts: Sequence[str]) -> bool:
    r"""Return whether more than half of the letters in the first texts match a pattern.

    >>> mostly(r"\p{Han}", ["中文 a"]), mostly(r"\p{Han}", ["1"])
    (True, False)
    """
    sample = "".join(texts[:_SAMPLE])
    letters = len(regex.findall(r"\p{L}", sample))
    return letters > 0 and 2 * len(regex.findall(pattern, sample)) > letters
