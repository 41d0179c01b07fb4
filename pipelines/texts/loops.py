"""Words or characters that come in a loop."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence

from pipelines.texts.limits import THRESHOLDS

_TOKEN = re.compile(r"\w+")
_CHARACTERS_LOOP = re.compile(
    rf"(\S{{1,{THRESHOLDS.loop_characters}}}?)\1{{{THRESHOLDS.loop_character_times - 1},}}"
)


# Characters that come three times in a row or more, and the share of a text in such rounds, beyond
# that of its source, from which on it repeats itself. Of what models cut off, 95 % and more do; of
# 60,000 sound lines of more than 30 characters, captions and news, the worst has 0.11.
_SHORT_ROUND, _LONG_ROUND = 40, 120  # characters: a few words, and a sentence
_SHORT_ROUNDS, _ROUNDS = (
    re.compile(rf"(.{{1,{longest}}}?)\1{{2,}}", re.DOTALL)
    for longest in (_SHORT_ROUND, _LONG_ROUND)
)
_GRAM = 8  # characters, of which the same come again in each round
_LEAST_IN_ROUNDS = 0.2

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


def repeats_itself(text: str, *, source: str) -> bool:
    """Says whether a fifth of a text that was cut off is loops, beyond those of its source.

    Such a text runs into the limit again however much room it gets. A list, or a phrase that comes
    again and again between others, is no loop: its rounds do not follow each other.

    >>> looped = "in der Welt in der Welt in der Welt in der Nähe"
    >>> repeats_itself(looped, source="In the world"), repeats_itself(looped, source=looped)
    (True, False)
    >>> repeats_itself("Artikel 3 Absatz 1, Artikel 5 Absatz 2, Artikel 7 Absatz", source="Arts.")
    False
    """
    return _share_in_rounds(text) > _share_in_rounds(source) + _LEAST_IN_ROUNDS


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


def _share_in_rounds(text: str) -> float:
    """Returns the share of a text's characters that are in loops of up to a sentence."""
    rounds = _ROUNDS if _may_have_long_rounds(text) else _SHORT_ROUNDS
    return sum(len(found[0]) for found in rounds.finditer(text)) / max(len(text), 1)


def _may_have_long_rounds(text: str) -> bool:
    """Says quickly whether something longer than a short round may come three times in a row.

    In the second and third round there is nothing new but what spans the end of the first.
    """
    grams = [text[i : i + _GRAM] for i in range(len(text) - _GRAM + 1)]
    return len(grams) - len(set(grams)) >= 2 * (_SHORT_ROUND + 1) - (_GRAM - 1)
