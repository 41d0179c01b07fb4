"""The language that texts seem to be in, by their function words; and whether sides are swapped.

Function words are the commonest of any text, and no two languages share all of them. A text with
few of them, such as a name, is not told; a side is judged by those of its texts that are.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping, Sequence

import regex

from model.text.languages import find_language
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
_NORWEGIAN = {"nb": "no", "nn": "no"}


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
    told = _told(texts)
    if told < max(_LEAST_TEXTS, _LEAST_TOLD * sum(texts.values())):
        return NOT_TOLD
    language = max((each for each in texts if each != NOT_TOLD), key=lambda each: texts[each])
    count = sum(texts.get(each, 0) for each in _alike(language))
    return language if count >= _MOST * told else NOT_TOLD


def main_language(texts: Iterable[str]) -> str:
    """Returns the language that most texts seem to be in, of few texts, too; or `NOT_TOLD`.

    >>> main_language(["Two men are at the window.", "Berlin"]), main_language(["Berlin"])
    ('en', '')
    """
    counts = collections.Counter(map(likely_language, texts))
    told = {language: count for language, count in counts.items() if language != NOT_TOLD}
    language = max(told, key=lambda each: told[each], default=NOT_TOLD)
    return language if 2 * told.get(language, 0) > sum(told.values()) else NOT_TOLD


def is_language(found: str, *, code: str) -> bool:
    """Says whether a language that was found in texts is that of a code.

    >>> is_language("en", code="en-GB"), is_language("de", code="en"), is_language("", code="")
    (True, False, False)
    """
    return found != NOT_TOLD and found in _alike(_primary(code))


def _alike(language: str) -> set[str]:
    return next((group for group in _ALIKE if language in group), {language})


def _told(texts: Counts) -> int:
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
    if not _is_other(counts, _primary(code)):
        return NOT_TOLD, 0, 0
    language = language_of_side(counts)
    return language, counts[language], _told(counts)


def describe_wrong_languages(
    name: str, source: Counts, target: Counts, *, source_language: str, target_language: str
) -> str:
    """Says that a corpus seems to have its sides swapped, or one in another language; else "".

    Where the words of the named language are not known, only the other side's language is doubted.

    Args:
      name: What the corpus is called.
      source: Its source texts by the language that they seem to be in.
      target: Its target texts, likewise.
      source_language: The code that was given for the source, or "".
      target_language: The code that was given for the target, or "".

    >>> english, german = {"en": 80, "": 20}, {"de": 90, "en": 3, "": 7}
    >>> describe_wrong_languages(
    ...     "a.tsv", english, german, source_language="en-GB", target_language="de"
    ... )
    ''
    >>> describe_wrong_languages(
    ...     "a.tsv", english, german, source_language="fr", target_language="de"
    ... )
    'a.tsv seems to be in another language: 80 of 80 source texts that tell their language are in \
en, and `source_language` is fr. Name the language that it has, or other texts'
    """
    sides = {"source": source, "target": target}
    named = {"source": _primary(source_language), "target": _primary(target_language)}
    seems = {side: language_of_side(texts) for side, texts in sides.items()}
    given = {"source": source_language, "target": target_language}
    found = {
        side: f"{texts.get(seems[side], 0):,} of {_told(texts):,} {side} texts that tell their "
        f"language are in {seems[side]}"
        for side, texts in sides.items()
    }
    others = [
        side
        for side, other in (("source", "target"), ("target", "source"))
        if _is_other(sides[side], named[side])
        or _is_other_side(seems[side], seems[other], named=named[side], other_named=named[other])
    ]
    is_crossed = all(
        seems[side] and seems[side] == (named[other] or seems[side])
        for side, other in (("source", "target"), ("target", "source"))
    )
    if others and is_crossed:
        codes = " and ".join(f"`{side}_language` is {code}" for side, code in given.items() if code)
        languages = "the languages" if all(given.values()) else "name the other one"
        return (
            f"{name} seems to have its sides the wrong way round: {found['source']} and "
            f"{found['target']}, but {codes}. Swap the texts (of TSV, the columns: FILE:1:0), or "
            f"{languages}"
        )
    reasons = [f"{found[side]}, and `{side}_language` is {given[side]}" for side in others]
    if not reasons:
        return ""
    return (
        f"{name} seems to be in another language: {'; '.join(reasons)}. Name the language that it "
        "has, or other texts"
    )


def _is_other(texts: Counts, named: str) -> bool:
    """Says whether a side is plainly in another language than the one that was named for it."""
    language = language_of_side(texts)
    if language == NOT_TOLD or named not in WORDS:
        return False
    alike = _alike(named)
    in_named = sum(texts.get(each, 0) for each in alike)
    return language not in alike and in_named <= _FEW * _told(texts)


def _is_other_side(seems: str, other_seems: str, *, named: str, other_named: str) -> bool:
    """Says whether a side whose language has no row is in that of the other side, which is not."""
    is_open = NOT_TOLD not in (named, other_named) and named not in WORDS
    return is_open and seems == other_named != other_seems


def _primary(code: str) -> str:
    language = find_language(code) if code else None
    primary = language.primary if language else ""
    return _NORWEGIAN.get(primary, primary)
