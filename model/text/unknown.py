"""How much of a text a vocabulary does not have, and when that is too much to translate it."""

from __future__ import annotations

import functools
import unicodedata
from typing import NamedTuple

# Unicode's general categories: letters, the marks on them, and symbols (emoji are symbols). Not
# punctuation, numbers, white space and what is invisible: scripts share those, so that they say
# nothing of whether a model can read the rest. In "Да, 2024." no letter is known.
_COUNTED = ("L", "M", "S")


class UnknownParts(NamedTuple):
    """What of a text is unknown."""

    unknown_characters: int  # letters and symbols in unknown tokens
    characters: int  # letters and symbols
    unknown_tokens: int  # without a piece in the vocabulary, one for a run of such characters
    tokens: int  # all of them, but for word boundaries that stand alone

    def describe(self) -> str | None:
        """Says how much of the letters and symbols, or of the tokens, is unknown, if over half is.

        >>> UnknownParts(21, 26, 1, 6).describe()
        '21 of 26 letters and symbols are unknown to the model'
        >>> UnknownParts(2, 7, 2, 3).describe()
        '2 of 3 tokens are unknown to the model'
        """
        if 2 * self.unknown_characters > self.characters:
            counts = f"{self.unknown_characters} of {self.characters} letters and symbols"
        elif 2 * self.unknown_tokens > self.tokens:
            counts = f"{self.unknown_tokens} of {self.tokens} tokens"
        else:
            return None
        return f"{counts} are unknown to the model"


def count_letters(text: str) -> int:
    """Returns how many letters, marks and symbols a text has.

    >>> count_letters("Да, 2024."), count_letters("👍 a_b!")
    (2, 3)
    """
    return sum(map(_is_counted, text))


@functools.lru_cache(maxsize=1 << 14)
def _is_counted(character: str) -> bool:
    return unicodedata.category(character)[0] in _COUNTED
