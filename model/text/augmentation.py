"""Change a text as careless writers do: capitals, lost punctuation, typos and lost spaces."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_END = re.compile(r"[.!?。！？…]+\s*$")
_SPACE = re.compile(r"(?<=\w) (?=\w)")
_LETTERS_PER_TYPO = 20


def augment(text: str, *, generator: np.random.Generator, keeps_case: bool = True) -> str:
    """Change a text in one of the ways that apply to it.

    The ways and their shares are: no final punctuation (30 %), typos (30 %; one per 20 letters, at
    least one), a lost space (20 %), title case (10 %) and upper case (10 %). Texts in upper case
    are rare because they have several times as many tokens, so that they fill many batches.
    Placeholders stay as they are. If no way applies, the text stays as it is.

    Args:
      text: The text.
      generator: Source of the random numbers. Only its state decides how the text changes.
      keeps_case: Whether texts keep their letter case; if not, the function does not change it.

    >>> import numpy as np
    >>> [augment("A dog runs.", generator=np.random.default_rng(seed)) for seed in (2, 4, 5, 6)]
    ['A dog runs', 'A DOG RUNS.', 'A Dog Runs.', 'A dog rnus.']
    """
    ways: dict[Callable[[], str], int] = {
        lambda: _END.sub("", text): 3,
        lambda: _with_typos(text, generator): 3,
        lambda: _without_space(text, generator): 2,
    }
    if keeps_case:
        ways |= {lambda: _WORD.sub(lambda word: word[0].capitalize(), text): 1, text.upper: 1}
    shares = np.array([*ways.values()]) / sum(ways.values())
    for i in generator.choice(len(ways), size=len(ways), replace=False, p=shares).tolist():
        changed = [*ways][int(i)]()
        if changed not in ("", text):
            return changed
    return text


def _with_typos(text: str, generator: np.random.Generator) -> str:
    """Swap, drop or double letters of long words."""
    letters = sum(map(str.isalpha, text))
    for _ in range(max(1, letters // _LETTERS_PER_TYPO)):
        words = list(_LONG_WORD.finditer(text))
        if not words:
            return text
        word = words[int(generator.integers(len(words)))]
        place = int(generator.integers(word.start(), word.end() - 1))
        pair = text[place : place + 2]
        typo = (pair[::-1], pair[1], pair[0] + pair)[int(generator.integers(3))]
        text = text[:place] + typo + text[place + 2 :]
    return text


def _without_space(text: str, generator: np.random.Generator) -> str:
    spaces = [found.start() for found in _SPACE.finditer(text)]
    if not spaces:
        return text
    place = spaces[int(generator.integers(len(spaces)))]
    return text[:place] + text[place + 1 :]
