"""Words or characters that come in a loop."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence

from pipelines.flags.limits import THRESHOLDS

_TOKEN = re.compile(r"\w+")
_CHARACTERS_LOOP = re.compile(
    rf"(\S{{1,{THRESHOLDS.loop_characters}}}?)\1{{{THRESHOLDS.loop_character_times - 1},}}"
)


# Of the end of a text: rounds of a loop, characters in all of them and of one.
_ROUNDS, _LEAST_AT_END, _LONGEST_PERIOD = 3, 16, 120

# Characters of a word with a loop of them that stand in it already: those that begin its rounds.
_LEAST_REPEATED = THRESHOLDS.loop_character_times - 1


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
    looped = [word for word in long if len(word) - len({*word}) >= _LEAST_REPEATED]
    return any(map(_has_characters_loop, looped)) and not _has_characters_loop(source)


def ends_in_loop(text: str) -> bool:
    """Says whether a text that was cut off goes round in a loop at its end, of words or characters.

    Each of the last characters is that of some characters before, for three rounds at least.

    >>> ends_in_loop("Er und der Hund und der Hund und der Hund"), ends_in_loop("Bus" + 20 * "s")
    (True, True)
    >>> ends_in_loop("Es war sehr, sehr, sehr, sehr, sehr kalt, als der Hund")
    False
    """
    return any(
        text[-same:] == text[-same - period : -period]
        for period in range(1, min(_LONGEST_PERIOD, len(text) // _ROUNDS) + 1)
        if len(text) >= (same := max((_ROUNDS - 1) * period, _LEAST_AT_END - period)) + period
    )


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
