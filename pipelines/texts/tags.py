"""The tags and protected spans of the pieces of a text with structure."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

import regex

from tt.model.text.spans import Span, unite
from tt.pipelines.texts.markup.entities import ENTITY, unescape
from tt.pipelines.texts.markup.regions import Role, find_partners


def add_spans(
    text: str,
    marks: Sequence[Span],
    spans: Sequence[Span],
    *,
    is_known: Callable[[str], bool] = lambda character: True,
) -> list[Span]:
    """Return the marks of a text with structure, and the protected spans between them.

    Args:
      text: The text.
      marks: Its marks.
      spans: Its protected spans, which can overlap with marks.
      is_known: Whether a model knows a character, so that an entity for it need not be a span.

    >>> add_spans("<b>{x}</b>", [Span(0, 3, "<b>", True, "open")], [Span(0, 6, "<b>{x}")])
    [Span(start=0, end=3, replacement='<b>', is_markup=True, role='open'), \
Span(start=3, end=6, replacement='{x}', is_markup=False, role='')]
    """
    found = [*marks]
    ends = [0, *(mark.end for mark in marks)]
    starts = [*(mark.start for mark in marks), len(text)]
    for span in spans:
        # A span can contain several marks; the gap before mark i is the text before it.
        for i in range(bisect.bisect_right(ends, span.start) - 1, len(starts)):
            if ends[i] >= span.end:
                break
            first, last = max(span.start, ends[i]), min(span.end, starts[i])
            inside = text[first:last]
            if first >= last or (inside.isspace() and not span.role):
                continue
            if not span.role and ENTITY.fullmatch(inside) and is_known(unescape(inside) or inside):
                continue
            is_whole = (first, last) == (span.start, span.end)
            found.append(span if is_whole else Span(first, last, inside))
    return sorted(found)


def keep_pairs(parts: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """Move tags at the ends of a piece back into the piece if their partners are inside.

    Args:
      parts: Pieces, tags and white space; joined, they are a text.
      spans: The spans of the text, in order.

    >>> spans = [Span(2, 5, "<b>", True, "open"), Span(6, 10, "</b>", True, "close")]
    >>> keep_pairs(["a <b>b", "</b>", " ", "c"], spans)
    ['a <b>b</b>', ' ', 'c']
    """
    pairs = _find_pairs(spans)
    if not pairs:
        return [*parts]
    text = "".join(parts)
    places = itertools.accumulate(map(len, parts), initial=0)
    starts = {span.start for span in spans if span.is_markup}
    pieces = [
        [start, start + len(part)]
        for start, part in zip(places, parts, strict=False)
        if not part.isspace() and not (start in starts and _is_markup(part, start, spans))
    ]
    firsts = [first for first, _ in pieces]
    for opening, closing in pairs:
        k = bisect.bisect_right(firsts, opening.start) - 1
        if k >= 0 and opening.start < pieces[k][1] <= closing.start:
            following = firsts[k + 1] if k + 1 < len(pieces) else len(text)
            if closing.end <= following:
                pieces[k][1] = closing.end
        k = bisect.bisect_right(firsts, closing.start) - 1
        before = pieces[k - 1][1] if k > 0 else 0
        is_inside = k >= 0 and closing.end <= pieces[k][1]
        if is_inside and before <= opening.start and opening.end <= firsts[k]:
            pieces[k][0] = min(pieces[k][0], opening.start)
    joined: list[str] = []
    end = 0
    for first, last in [*pieces, [len(text), len(text)]]:
        inside = spans_within(spans, end, first)
        joined += [*cut_around_spans(text[end:first], inside), text[first:last]]
        end = last
    return [part for part in joined if part]


def _is_markup(part: str, start: int, spans: Sequence[Span]) -> bool:
    inside = spans_within(spans, start, start + len(part))
    return all(span.is_markup for span in inside) and len(part) == sum(
        span.end - span.start for span in inside
    )


def _find_pairs(spans: Sequence[Span]) -> list[tuple[Span, Span]]:
    """Return the opening and the closing tag of each pair."""
    tags = [span for span in spans if span.role in (Role.OPEN, Role.CLOSE)]
    partners = find_partners([(tag.role, tag.replacement) for tag in tags])
    return [(tags[i], tags[j]) for i, j in partners.items() if i < j]


def join_words(piece: str, spans: Sequence[Span]) -> list[Span]:
    """Keep tags inside words in their words.

    A word with digits, such as H<sub>2</sub>O, becomes one protected span. A pair that follows a
    word and contains only digits, such as a footnote's link, becomes one tag.

    Args:
      piece: The text.
      spans: Its tags, in order.

    >>> tags = [Span(1, 6, "<sub>", True, "open"), Span(7, 13, "</sub>", True, "close")]
    >>> [span.replacement for span in join_words("H<sub>2</sub>O", tags)]
    ['H<sub>2</sub>O']
    """
    joined: list[Span] = []
    for opening, closing in _find_pairs(spans):
        if not piece[opening.start - 1 : opening.start].isalnum():
            continue
        inside = piece[opening.end : closing.start]
        has_more = piece[closing.end : closing.end + 1].isalnum()
        is_name = inside.isalnum() and any(map(str.isdigit, piece[opening.start - 1] + inside))
        if inside.isdigit() and not has_more:
            text = opening.replacement + inside + closing.replacement
            joined.append(Span(opening.start, closing.end, text, is_markup=True, role=Role.VOID))
        elif is_name:
            start, end = opening.start, closing.end
            while start and piece[start - 1].isalnum():
                start -= 1
            while piece[end : end + 1].isalnum():
                end += 1
            joined.append(Span(start, end, piece[start:end]))
    return add_spans(piece, unite(piece, joined), spans) if joined else [*spans]


def replace_spans(text: str, spans: Sequence[Span]) -> str:
    """Return a text with the replacements of its spans.

    >>> replace_spans("a {x}", [Span(2, 5, "{y}")])
    'a {y}'
    """
    parts, end = [], 0
    for span in spans:
        parts += [text[end : span.start], span.replacement]
        end = span.end
    return "".join([*parts, text[end:]])


def spans_within(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Return the spans inside a part of a text, with their places in the part.

    Args:
      spans: The spans of the text, in order.
      start: The index of the part's first character in the text.
      end: The index after its last character.

    >>> spans_within([Span(0, 3, "<p>"), Span(5, 8, "{x}")], 4, 9)
    [Span(start=1, end=4, replacement='{x}', is_markup=False, role='')]
    """
    if not spans or (start == 0 and spans[-1].end <= end):
        return [*spans]
    first, last = (bisect.bisect_left(spans, i, key=lambda span: span.start) for i in (start, end))
    return [
        Span(span.start - start, span.end - start, *span[2:])
        for span in spans[first:last]
        if span.end <= end
    ]


# Punctuation that belongs to a neighboring span: a mark after the span, before white space, and an
# opening bracket or quotation mark before the span.
_AFTER_SPAN = regex.compile(r"[^\w\s]+(?=\s|$)|[\u3000-\u303f\uff00-\uffef]+")
_BEFORE_SPAN = regex.compile(r"(?<=\s|^)[\p{Ps}\p{Pi}\"'¿¡]+$")


def cut_around_spans(text: str, spans: Sequence[Span]) -> list[str]:
    """Cut a text into its spans, the white space and punctuation next to them, and the rest.

    >>> cut_around_spans("Hi {name}, you", [Span(3, 9, "{name}")])
    ['Hi', ' ', '{name}', ',', ' ', 'you']
    """
    parts: list[str] = []
    end = 0
    for start, after in [*((span.start, span.end) for span in spans), (len(text), len(text))]:
        between = text[end:start]
        closing = _AFTER_SPAN.match(between) if end > 0 else None
        opening = _BEFORE_SPAN.search(between) if start < len(text) else None
        first = closing.end() if closing else 0
        last = max(first, opening.start()) if opening else len(between)
        core = between[first:last].strip()
        at = between.index(core, first) if core else last
        parts += [between[:first], between[first:at], core, between[at + len(core) : last]]
        parts += [between[last:], text[start:after]]
        end = after
    return [part for part in parts if part]
