"""Translate sentences in capitals in lower case, and restore the capitals.

Models have seen few sentences in capitals, so they invent translations for them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence

import regex

from tt.model.text.spans import PLACEHOLDER

_WORD = regex.compile(r"\p{L}[\p{L}\p{M}'’-]*")
_LOWER_WORD = re.compile(" [a-zß-öø-ÿα-ωа-яё]{4,}")
_LEAST_LETTERS = 8  # shorter texts may be abbreviations
_LEAST_WORDS = 2
_LEAST_TITLE_WORDS = 4
_UPPER_SHARE = 0.9
# English words of three letters that titles write in lower case. Other languages rarely use title
# case.
_TITLE_WORDS = frozenset(["and", "are", "but", "for", "nor", "the", "via"])
_SHORT_WORD = 3  # words of at most this many letters are often in lower case in titles


class Capitals(enum.Enum):
    """How a sentence uses capitals."""

    UPPER = "upper"  # NEARLY ALL LETTERS ARE CAPITALS
    TITLE = "title"  # All Longer Words Begin With A Capital


def find_capitals(text: str, *, has_capital_nouns: bool = False) -> Capitals | None:
    """Return how a sentence uses capitals, or None for ordinary text.

    Args:
      text: The sentence, with placeholders for protected spans.
      has_capital_nouns: Whether the language begins all nouns with a capital, as German does.

    >>> find_capitals("TOM IS A VERY GOOD TEACHER.")
    <Capitals.UPPER: 'upper'>
    >>> find_capitals("The Art of Computer Programming")
    <Capitals.TITLE: 'title'>
    >>> find_capitals("Barack Obama met NASA engineers.")
    """
    if text.lower() == text.upper():
        return None
    # Most texts have enough words in lower case. Each match contains a space and four letters.
    if sum(map(len, _LOWER_WORD.findall(text))) > 2 * (1 - _UPPER_SHARE) * len(text):
        return None
    words = _WORD.findall(PLACEHOLDER.sub(" ", text))
    letters = sum(map(len, words))
    if letters < _LEAST_LETTERS or len(words) < _LEAST_WORDS:
        return None
    # The share counts all letters, so an acronym in a script without letter case is not enough.
    every = [character for word in words for character in word if character.isalpha()]
    if sum(map(str.isupper, every)) >= _UPPER_SHARE * len(every):
        return Capitals.UPPER
    if has_capital_nouns or len(words) < _LEAST_TITLE_WORDS:
        return None
    if words[0][0].islower() or text.rstrip().endswith("."):  # a sentence with names
        return None
    long = [word for word in words if len(word) > _SHORT_WORD]
    is_title = len(long) > 1 and all(word[0].isupper() and word[1:].islower() for word in long)
    # In "Tom met Mary", the word "met" shows that the capitals are names.
    short = [word for word in words if word[0].islower()]
    is_title = is_title and all(word in _TITLE_WORDS or len(word) < _SHORT_WORD for word in short)
    return Capitals.TITLE if is_title else None


def to_usual_case(
    text: str,
    *,
    choose: Callable[[tuple[str, str]], str],
    atoms: Sequence[str] = (),
    is_title: bool = False,
) -> str:
    """Return a text with each word in its usual case; the first word begins with a capital.

    Args:
      text: The text, in capitals or with a capital at the start of each word.
      choose: Chooses the usual form of a word, given its form in lower case and its form with a
        capital.
      atoms: Parts of the text that stay as they are.
      is_title: Whether the text is in title case; words in capitals or in lower case then stay.

    >>> to_usual_case("TOM IS HERE: ⟦1⟧", choose=lambda forms: forms[forms[1] == "Tom"])
    'Tom is here: ⟦1⟧'
    """
    is_first = True

    def lower(found: regex.Match[str]) -> str:
        nonlocal is_first
        own = str(found[0])
        if own in atoms:
            return own
        if is_title and (own.islower() or (len(own) > 1 and own.isupper())):
            is_first = False
            return own
        word = own.lower()
        if len(word) != len(own):
            word = "".join(c.lower() if len(c.lower()) == 1 else c for c in own)
        capital = word[0].upper() + word[1:]
        if len(capital) != len(word):  # a new length would move the places of tags
            return word
        if is_first:
            is_first = False
            return capital
        return choose((word, capital))

    alternatives = [*map(regex.escape, sorted(atoms, key=len, reverse=True)), _WORD.pattern]
    return str(regex.sub("|".join(alternatives), lower, text))


def restore_capitals(text: str, capitals: Capitals) -> str:
    """Return a translation with the capitals of its source; placeholders stay unchanged.

    >>> restore_capitals("Tom ist ein guter Lehrer.", Capitals.UPPER)
    'TOM IST EIN GUTER LEHRER.'
    >>> restore_capitals("El arte de la computadora", Capitals.TITLE)
    'El Arte de la Computadora'
    """
    if capitals is Capitals.UPPER:
        return text.upper()

    def capitalize(found: regex.Match[str]) -> str:
        word = str(found[0])
        return word[0].upper() + word[1:] if len(word) > _SHORT_WORD else word

    return str(_WORD.sub(capitalize, text))
