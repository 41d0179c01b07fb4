"""Placeholders for the spans that stand on both sides of a pair, so that a model learns them."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.text.normalization import TextNormalization
from model.text.spans import BRACKET, MAYBE_SPAN, PLACEHOLDERS, Protection, Span

_TOKEN = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
_MAYBE_SPAN = re.compile(MAYBE_SPAN)


class Replaced(NamedTuple):
    """A pair with placeholders."""

    source: str
    target: str
    placeholders: int  # on each side


class NormalizedPairs(NamedTuple):
    """Pairs of normalised texts with placeholders; positions count from 0."""

    sources: list[str]
    targets: list[str]
    cased: tuple[list[str], list[str]]  # both sides before they were lower-cased
    placeholders: dict[int, int]  # on each side, by position; the other pairs have none
    originals: dict[int, tuple[str, str]]  # texts of those pairs without placeholders
    # Pairs that hold the text of a placeholder which is none: no vocabulary could tell them apart.
    stray: list[int]


def normalize_pairs(
    columns: tuple[pa.ChunkedArray, pa.ChunkedArray],
    *,
    normalization: TextNormalization,
    protection: Protection,
) -> NormalizedPairs:
    """Normalises pairs of texts, and puts placeholders for the spans on both sides of each.

    Args:
      columns: Sources and targets, without nulls.
      normalization: Their normalisation. Spans are compared before letters become lower-case.
      protection: What a span is.
    """
    with_case = dataclasses.replace(normalization, lowercase=False)
    sources, targets = (with_case.column(side) for side in columns)
    placeholders: dict[int, int] = {}
    originals: dict[int, tuple[str, str]] = {}
    stray: list[int] = []
    if protection.is_on and sources:
        replaced, stray = _find_shared_spans(sources, targets, protection=protection)
        for row, (source, target, count) in replaced.items():
            originals[row] = sources[row], targets[row]
            sources[row], targets[row], placeholders[row] = source, target, count
    cased = sources, targets
    if normalization.lowercase:
        sources, targets = normalization.lower(sources), normalization.lower(targets)
        originals = {
            row: (source, target)
            for row, texts in originals.items()
            for source, target in [normalization.lower([*texts])]
        }
    return NormalizedPairs(sources, targets, cased, placeholders, originals, stray)


def replace_shared_spans(source: str, target: str, *, protection: Protection) -> Replaced:
    """Puts the same placeholder for each span that stands on both sides, numbered by the source.

    A text that stands several times is replaced as often as it does on both sides, in order. More
    spans than there are placeholders stay as they are.

    >>> replace_shared_spans("{a} has %d %s.", "%s de {a}: %d %d.", protection=Protection())
    Replaced(source='⟦1⟧ has ⟦2⟧ ⟦3⟧.', target='⟦3⟧ de ⟦1⟧: ⟦2⟧ %d.', placeholders=3)
    """
    if not (protection.protect_regex or _MAYBE_SPAN.search(target)):
        return Replaced(source, target, 0)
    in_source = protection.find(source)
    if not any(source[start:end] in target for start, end, *_ in in_source):
        return Replaced(source, target, 0)
    in_target: collections.defaultdict[str, list[Span]] = collections.defaultdict(list)
    for span in reversed(protection.find(target)):
        in_target[target[span.start : span.end]].append(span)
    shared = [
        (span, in_target[text].pop())
        for span in in_source
        if in_target[text := source[span.start : span.end]]
    ]
    numbered = [*zip(shared, PLACEHOLDERS, strict=False)]  # as many as there are
    return Replaced(
        _replace(source, [(own, placeholder) for (own, _), placeholder in numbered]),
        _replace(target, sorted((other, placeholder) for (_, other), placeholder in numbered)),
        len(numbered),
    )


def _replace(text: str, replacements: Sequence[tuple[Span, str]]) -> str:
    parts: list[str] = []
    end = 0
    for span, replacement in replacements:
        parts += [text[end : span.start], replacement]
        end = span.end
    return "".join([*parts, text[end:]])


def _find_shared_spans(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    protection: Protection,
) -> tuple[dict[int, Replaced], list[int]]:
    """Return the pairs with shared spans after their replacement, and the strays, by position."""
    # Of users' own patterns, nothing is known before they have searched a text.
    maybe: Iterable[int] = range(len(sources))
    if not protection.protect_regex:
        # Arrow finds out fast that most sources have no span.
        column = pa.array(sources, pa.large_string())
        found = np.asarray(pc.match_substring_regex(column, MAYBE_SPAN))
        maybe = np.flatnonzero(found).tolist()
    replaced: dict[int, Replaced] = {}
    for row in maybe:
        pair = replace_shared_spans(sources[row], targets[row], protection=protection)
        if pair.placeholders:
            replaced[row] = pair
    stray = []
    for row in {*maybe, *(i for i, text in enumerate(targets) if BRACKET in text)}:
        source, target, expected = replaced.get(row, (sources[row], targets[row], 0))
        if BRACKET in source or BRACKET in target:
            counts = [len(_TOKEN.findall(text)) for text in (source, target)]
            if counts != [expected, expected]:
                stray.append(row)
    return replaced, sorted(stray)
