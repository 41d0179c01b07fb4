"""Sample the languages of corpora, and warn about sides in unexpected languages."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tt.pipelines.texts.languages import (
    Counts,
    count_detected,
    expect,
    is_other_side,
    language_of_side,
    likely_language,
)

# The sample consists of the first rows of each corpus's first files, and of every 256th row. A
# sampled pair takes 10 to 25 µs. Therefore, the first rows take at most 0.2 s per run, and the
# other samples take 0.1 µs per pair of the corpus.
_FIRST_ROWS = 128  # maximum number of first rows per file
_FIRST_FILES = 8  # number of files per corpus whose first rows are sampled
_FIRST_ROWS_IN_ALL = 8192  # maximum number of first rows in a run
_EVERY_ROW = 256


def sample_languages(
    rows: npt.NDArray[np.int64],
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    order: int,
    first_rows: int,
) -> Iterator[tuple[str, str]]:
    """Yield the side ("source" or "target") and the detected language of sampled texts.

    Args:
      rows: Row numbers of B pairs in their file, [B].
      sources: Source texts of the B pairs.
      targets: Target texts of the B pairs.
      order: Index of the file among all files, so that not all files sample the same rows.
      first_rows: Number of first rows to sample, from `share_first_rows`.
    """
    for i in np.flatnonzero((rows < first_rows) | ((order + rows) % _EVERY_ROW == 0)).tolist():
        yield "source", likely_language(sources[i])
        yield "target", likely_language(targets[i])


@functools.lru_cache(maxsize=2)
def share_first_rows(names: tuple[str, ...]) -> list[int]:
    """Return the number of first rows to sample in each file, given the files' corpus names.

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


class SidesFound(NamedTuple):
    """The detected languages of both sides of a corpus, by side."""

    languages: Mapping[str, str]  # codes; `UNDETECTED` if a side has no clear language
    texts: Mapping[str, str]  # descriptions of the numbers of texts, for messages


def describe_sides(texts: Mapping[str, Counts]) -> SidesFound:
    """Return the languages of both sides, given the numbers of their texts by language."""
    languages = {side: language_of_side(texts[side]) for side in _SIDES}
    return SidesFound(
        languages,
        {
            side: f"{texts[side].get(language, 0):,} of {count_detected(texts[side]):,} {side} "
            f"texts with a detected language are in {language}"
            for side, language in languages.items()
        },
    )


def are_swapped(texts: Mapping[str, Counts], *, codes: Mapping[str, str]) -> bool:
    """Return whether each side is clearly in the language of the other side.

    Args:
      texts: Numbers of "source" and "target" texts by detected language.
      codes: Codes that the user gave for "source" and "target", or "".

    >>> texts = {"source": {"de": 80, "": 20}, "target": {"en": 90, "de": 3, "": 7}}
    >>> are_swapped(texts, codes={"source": "en", "target": "de"})
    True
    >>> are_swapped(texts, codes={"source": "de", "target": "en"})
    False
    """
    languages = describe_sides(texts).languages
    return any(is_other_side(texts[side], code=codes[side]) for side in _SIDES) and all(
        languages[side] and (not codes[other] or languages[side] in expect(codes[other]).languages)
        for side, other in (_SIDES, _SIDES[::-1])
    )


def describe_wrong_languages(
    name: str, texts: Mapping[str, Counts], *, codes: Mapping[str, str]
) -> str:
    """Return a warning if the sides of a corpus seem swapped or in another language, or "".

    Args:
      name: Name of the corpus.
      texts: Numbers of "source" and "target" texts by detected language.
      codes: Codes that the user gave for "source" and "target", or "".

    >>> texts = {"source": {"en": 80, "": 20}, "target": {"de": 90, "en": 3, "": 7}}
    >>> describe_wrong_languages("a.tsv", texts, codes={"source": "en-GB", "target": "de"})
    ''
    >>> describe_wrong_languages("a.tsv", texts, codes={"source": "fr", "target": "de"})
    'a.tsv seems to be in another language: 80 of 80 source texts with a detected language are in \
en, but `source_language` is fr. Set the language of the texts, or choose another corpus, and \
make the dataset again'
    """
    wrong = [side for side in _SIDES if is_other_side(texts[side], code=codes[side])]
    if not wrong:
        return ""
    found = describe_sides(texts).texts
    if are_swapped(texts, codes=codes):
        given = " and ".join(
            f"`{side}_language` is {codes[side]}" for side in _SIDES if codes[side]
        )
        languages = "swap the languages" if all(codes.values()) else "set the other language"
        return (
            f"{name} seems to have source and target swapped: {found['source']} and "
            f"{found['target']}, but {given}. Swap the texts (in TSV, the columns: FILE:1:0) or "
            f"{languages}, and make the dataset again"
        )
    reasons = [f"{found[side]}, but `{side}_language` is {codes[side]}" for side in wrong]
    return (
        f"{name} seems to be in another language: {'; '.join(reasons)}. Set the language of the "
        "texts, or choose another corpus, and make the dataset again"
    )
