"""Sentences that came back untranslated."""

from __future__ import annotations

import difflib
import re

import regex

from pipelines.texts.ends import END
from pipelines.texts.limits import THRESHOLDS

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
    is_whole = text == source and text[-1:] in END and len(words) > 1
    lower = sum(word[0].islower() for word in same)
    return (
        lower >= (1 if is_whole else THRESHOLDS.copied_words)
        or len(_UNCASED.findall("".join(same))) >= THRESHOLDS.copied_letters
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(" ".join(each for each in text.split() if not _ADDRESS.search(each)))
