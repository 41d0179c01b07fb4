"""The language that texts seem to be in, by their function words; and if it is that of a code.

Function words are the commonest of any text, and no two languages share all of them. A text with
few of them, such as a name, is not told; a side is judged by those of its texts that are.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence

import regex

from model.text.languages import are_same, find_language
from pipelines.flags.function_words import WORDS

NOT_TOLD = ""  # in place of a language
Counts = Mapping[str, int]  # texts by the language that they seem to be in

_CHARACTERS = 400  # of a text that are looked at
_WORD = regex.compile(r"[\p{L}\p{M}]+")
_LEAST_WORDS = 1.0  # of a language, each divided by the number of languages that have it
_LEAST_LEAD = 1.5  # times what speaks for the next language
_LEAST_TEXTS = 20  # told ones, to say anything of a side
# Share of the texts: where fewer are told, they may be in a language without a row.
_LEAST_TOLD = 0.25
_MOST = 0.8  # share of the told texts in one language, which then is that of the side
_FEW = 0.1  # share of the told texts in the language that was named: quotations, and mistakes

_ALIKE = ({"da", "no"},)  # languages that a few words do not tell apart


def likely_language(text: str) -> str:
    """Returns the code of the language that a text seems to be in, or `NOT_TOLD`.

    >>> likely_language("Two men are at the window."), likely_language("Zwei Männer sind hier")
    ('en', 'de')
    >>> likely_language("Berlin 1990"), likely_language("Кот спит на столе, и он не хочет есть.")
    ('', 'ru')
    """
    found: dict[str, float] = collections.defaultdict(float)
    languages_of = _languages_of_words()
    for word in _WORD.findall(text[:_CHARACTERS].lower()):
        for language, weight in languages_of.get(word, ()):
            found[language] += weight
    ranked = sorted(((weight, language) for language, weight in found.items()), reverse=True)
    best, language = next(iter(ranked), (0.0, NOT_TOLD))
    alike = _alike(language)
    next_best = next((weight for weight, other in ranked if other not in alike), 0.0)
    return language if best >= max(_LEAST_WORDS, _LEAST_LEAD * next_best) else NOT_TOLD


@functools.cache
def _languages_of_words() -> dict[str, list[tuple[str, float]]]:
    languages: dict[str, list[str]] = collections.defaultdict(list)
    for language, words in WORDS.items():
        for word in words.split():
            languages[word].append(language)
    return {
        word: [(each, 1 / len(having)) for each in having] for word, having in languages.items()
    }


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
    """Returns the languages of `WORDS` that texts in the language of a code may seem to be in."""
    found = {row for row in WORDS if are_same(row, code)}
    return frozenset(found.union(*(_alike(row) for row in found)))


def _has_row(code: str) -> bool:
    """Says whether there are words of a language, and not only of another of its macrolanguage.

    Of Bokmål there are those of Norwegian; of Serbian, in two scripts, not those of Croatian.
    """
    known = find_language(code) if code else None
    return known is not None and not WORDS.keys().isdisjoint((known.primary, known.macrolanguage))


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
