"""Replace spans and tokens that both sides of a pair share by placeholders."""

from __future__ import annotations

import bisect
import collections
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.text.spans import (
    BRACKET,
    MAYBE_SPAN,
    PLACEHOLDERS,
    Protection,
    Span,
    may_have_spans,
)

_PLACEHOLDER = re.compile("|".join(map(re.escape, PLACEHOLDERS)))

# A run of letters and digits, without scripts that write no spaces between words or that attach
# particles to words of other scripts: Thai, Lao, Burmese, Khmer, Han, kana and Hangul.
_RUN = (
    r"[^\W\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f"
    r"\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]++"
)
# Punctuation inside a token belongs to it, as in "2:30", "Jean-Luc" and "Tom's". A token cannot
# end within a letter that consists of several characters.
_TOKEN = re.compile(rf"{_RUN}(?:['’.,:/@&+-]{_RUN})*+(?![\u0300-\u036f])")
_LATIN_END = "\u0250"  # Latin letters are below this character.
# Two letters of a script other than Latin. A single letter is also a symbol, such as Ω.
_OTHER_SCRIPT = re.compile(rf"[^\W\d_\u0000-{_LATIN_END}]{{2}}")


class Replaced(NamedTuple):
    """A pair with placeholders."""

    source: str
    target: str
    placeholders: int  # number of placeholders on each side


def replace_shared_spans(source: str, target: str, *, protection: Protection) -> Replaced:
    """Replace the spans that both sides share by placeholders, which are equal on both sides.

    The order of the spans in the source determines the numbers of the placeholders. Repeated spans
    are paired in order. Spans without a counterpart remain, and so do spans for which there is no
    placeholder left.

    >>> replace_shared_spans("{a} has %d %s.", "%s de {a}: %d %d.", protection=Protection())
    Replaced(source='⟦1⟧ has ⟦2⟧ ⟦3⟧.', target='⟦3⟧ de ⟦1⟧: ⟦2⟧ %d.', placeholders=3)
    """
    if not (protection.protect_regex or may_have_spans(target)):
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
    return _number(source, target, shared)


def _number(source: str, target: str, pairs: Sequence[tuple[Span, Span]]) -> Replaced:
    """Replace pairs of spans, in the order of the source, while there are placeholders."""
    numbered = [*zip(pairs, PLACEHOLDERS, strict=False)]  # at most one span per placeholder
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


def find_shared_spans(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    protection: Protection,
) -> tuple[dict[int, Replaced], list[int]]:
    """Return the pairs after replacement, by position, and the positions of stray placeholders."""
    # Only a search in all texts finds the matches of the user's patterns.
    maybe: Iterable[int] = range(len(sources))
    if not protection.protect_regex:
        # Arrow quickly finds the few sources that may contain a span.
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
            counts = [len(_PLACEHOLDER.findall(text)) for text in (source, target)]
            if counts != [expected, expected]:
                stray.append(row)
    return replaced, sorted(stray)


def replace_shared_tokens(
    source: str, target: str, *, variation: int, protection: Protection
) -> Replaced:
    """Replace names, figures, codes and Latin words that both sides share by placeholders.

    The tokens occur once on each side. Tokens that follow each other on both sides share a
    placeholder. The order in the source determines the numbers of all placeholders.

    Args:
      source: The source, in which placeholders may already replace spans.
      target: The target, with the same placeholders.
      variation: A random number. Three bits per token decide whether the token is replaced.
      protection: Finds the spans that no token may overlap or touch.

    >>> replace_shared_tokens(
    ...     "Tom has 3 dogs.", "3 Hunde hat Tom.", variation=0b001_001, protection=Protection()
    ... )
    Replaced(source='⟦1⟧ has ⟦2⟧ dogs.', target='⟦2⟧ Hunde hat ⟦1⟧.', placeholders=2)
    """
    tokens = _find_shared_tokens(source, target, protection=protection)
    if not tokens:
        return Replaced(source, target, len(_PLACEHOLDER.findall(source)))
    in_target = {found[0]: found for found in _PLACEHOLDER.finditer(target)}
    shared = [
        (Span(*found.span(), found[0]), Span(*in_target[found[0]].span(), found[0]))
        for found in _PLACEHOLDER.finditer(source)
    ]
    some = [pair for place, pair in enumerate(tokens) if variation >> 3 * place & 7] or tokens
    shared = sorted(shared + some[: len(PLACEHOLDERS) - len(shared)])
    return _number(source, target, shared)


def _find_shared_tokens(
    source: str, target: str, *, protection: Protection
) -> list[tuple[Span, Span]]:
    """Return the spans of shared tokens in both texts, in the order of the source."""
    words = [_TOKEN.findall(text) for text in (source, target)]
    shared = {*words[0]}.intersection(words[1])
    if not shared:  # as in most pairs, so this quick search saves time
        return []
    counts = [collections.Counter(side) for side in words]
    is_mixed = any(_OTHER_SCRIPT.search(text) for text in (source, target))
    first = words[0][0] if words[0][0] == words[1][0] else ""
    shared = {
        word
        for word in shared
        if _is_distinctive(word, is_first=word == first, is_mixed=is_mixed)
        and all(count[word] == 1 for count in counts)
    }
    if not shared:
        return []
    ours, theirs = (_locate(shared, text, protection=protection) for text in (source, target))
    found: list[tuple[Span, Span]] = []
    for word in ours:
        if word not in theirs:
            continue
        own, other = ours[word], theirs[word]
        if found:
            before, other_before = found[-1]
            gap = source[before.end : own.start]
            if gap.isspace() and gap == target[other_before.end : other.start]:
                own, other = _join(before, own, gap=gap), _join(other_before, other, gap=gap)
                found.pop()
        found.append((own, other))
    return found


def _is_distinctive(word: str, *, is_first: bool, is_mixed: bool) -> bool:
    """Return whether an equal word on the other side is probably the same figure, code or name.

    Args:
      word: The word.
      is_first: Whether both sides begin with the word. Such a word of two letters, for example
        "No", often exists in both languages.
      is_mixed: Whether a side contains a word in a script other than Latin.
    """
    if any(c.isdigit() for c in word) or any(c.isupper() for c in word[1:]):
        return True
    is_name = word[0].isupper() or (is_mixed and word < _LATIN_END)
    return is_name and len(word) > 1 + is_first


def _locate(words: Collection[str], text: str, *, protection: Protection) -> dict[str, Span]:
    """Return the span of each word, in the order of the text.

    The result omits words that overlap or touch a protected span, because they belong to it.
    """
    spans = protection.find(text)  # in order, without overlaps
    ends = [span.end for span in spans]
    located = {}
    for found in _TOKEN.finditer(text):
        if found[0] in words:
            place = bisect.bisect_left(ends, found.start())  # of the span that it may touch
            if place == len(spans) or spans[place].start > found.end():
                located[found[0]] = Span(*found.span(), found[0])
    return located


def _join(before: Span, after: Span, *, gap: str) -> Span:
    return Span(before.start, after.end, f"{before.replacement}{gap}{after.replacement}")
