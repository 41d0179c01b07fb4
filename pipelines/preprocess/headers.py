"""Detect the first line of a TSV file that contains the names of its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tt.model.text.languages import are_same, find_language

_SEPARATOR = re.compile(r"[\s_.:/()-]+")
_TARGET = "target"
_ROLES = {
    **dict.fromkeys(("source", "src", "input", "original"), "source"),
    **dict.fromkeys(
        ("target", "tgt", "trg", "output", "translation", "translated", "reference", "ref"), _TARGET
    ),
}
_COMMON = {"text", "texts", "sentence", "sentences", "segment", "lang", "language"}
# The names of languages in English, and the names of some languages in the languages themselves.
_NAMES = {
    name: code
    for code, names in {
        "ar": "arabic العربية", "bg": "bulgarian български", "bn": "bengali",
        "ca": "catalan català", "cs": "czech čeština", "da": "danish dansk", "de": "german deutsch",
        "el": "greek ελληνικά", "en": "english", "es": "spanish español", "et": "estonian eesti",
        "fa": "persian farsi فارسی", "fi": "finnish suomi", "fr": "french français",
        "ga": "irish gaeilge", "he": "hebrew עברית", "hi": "hindi हिन्दी", "hr": "croatian hrvatski",
        "hu": "hungarian magyar", "id": "indonesian", "is": "icelandic íslenska",
        "it": "italian italiano", "ja": "japanese 日本語", "ko": "korean 한국어",
        "lt": "lithuanian lietuvių", "lv": "latvian latviešu", "mt": "maltese malti",
        "nl": "dutch nederlands", "no": "norwegian norsk", "pl": "polish polski",
        "pt": "portuguese português", "ro": "romanian română", "ru": "russian русский",
        "sk": "slovak slovenčina", "sl": "slovenian slovene", "sr": "serbian српски",
        "sv": "swedish svenska", "sw": "swahili kiswahili", "ta": "tamil தமிழ்", "th": "thai ไทย",
        "tr": "turkish türkçe", "uk": "ukrainian українська", "ur": "urdu اردو",
        "vi": "vietnamese", "zh": "chinese mandarin 中文",
    }.items()
    for name in names.split()
}  # fmt: skip
_CODE_LETTERS = 2  # Longer codes, such as "the" and "war", are often words.


class _Name(NamedTuple):
    """The meaning of a column name."""

    role: str  # "source", "target", or "" if the name has no word for a side
    language: str  # code of a language, or ""


def is_header(source: str, target: str, *, languages: Sequence[str] = ()) -> bool:
    """Return whether the two cells of a first line are the names of a source and a target column.

    A wrong answer would cost a pair. Therefore, all words of both cells must be known words of
    column names, and the cells must name two sides or two languages. A word and its translation,
    such as "German" and "Deutsch", name only one language.

    Args:
      source: The cell of the source column.
      target: The cell of the target column.
      languages: The languages that the user gave. If there are two, other codes do not count.

    >>> is_header("source", "target"), is_header("English", "German"), is_header("txt_en", "de")
    (True, True, False)
    >>> is_header("German", "Deutsch"), is_header("Source", "Quelle"), is_header("text", "text")
    (False, False, False)
    """
    names = [_parse_name(cell, languages) for cell in (source, target)]
    if None in names:
        return False
    (role, language), (other_role, other_language) = (name for name in names if name)
    if language and other_language:
        return not are_same(language, other_language)
    return role != other_role and _TARGET in (role, other_role)


def _parse_name(cell: str, languages: Sequence[str]) -> _Name | None:
    """Return the meaning of a column name; None if the cell is something else."""
    words = [word for word in _SEPARATOR.split(cell.strip(" \"'").lower()) if word]
    roles = [_ROLES[word] for word in words if word in _ROLES]
    others = "-".join(word for word in words if word not in _ROLES and word not in _COMMON)
    language = _NAMES.get(others, "")
    if others and not language:
        if len(languages) > 1:
            language = next((code for code in languages if are_same(others, code)), "")
        elif len(others) == _CODE_LETTERS and find_language(others):
            language = others
    if not words or len(roles) > 1 or (others and not language):
        return None
    return _Name(roles[0] if roles else "", language)
