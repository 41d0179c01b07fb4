"""Keep protected spans in a translation, as placeholders or by cutting the text around them."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import NamedTuple

import regex

from tt.model.text.spans import BRACKET, PLACEHOLDER, PLACEHOLDERS, Span
from tt.pipelines.texts.segments import split_sentences

_INVENTED = re.compile(f" ?{PLACEHOLDER.pattern}")


class Masked(NamedTuple):
    """A piece whose spans are replaced by placeholders."""

    text: str  # the text for the model
    replacements: tuple[str, ...] = ()  # the text that replaces each placeholder in the translation


def mask(piece: str, spans: Sequence[Span]) -> Masked:
    """Replace spans by placeholders; there must not be more spans than placeholders.

    >>> mask("Hi {name}!", [Span(3, 9, "{name}")])
    Masked(text='Hi ⟦1⟧!', replacements=('{name}',))
    """
    text = _replace(piece, spans, replacements=PLACEHOLDERS)
    return Masked(text, tuple(span.replacement for span in spans))


def _replace(text: str, spans: Sequence[Span], *, replacements: Sequence[str]) -> str:
    parts = []
    end = 0
    for span, replacement in zip(spans, replacements, strict=False):
        parts += [text[end : span.start], replacement]
        end = span.end
    return "".join([*parts, text[end:]])


def unmask(text: str, replacements: Sequence[str], *, is_cut: bool = False) -> str | None:
    """Replace the placeholders in a translation; return None if one is missing or repeated.

    Args:
      text: The translation.
      replacements: Replacements of the source's placeholders, from `mask`.
      is_cut: Whether the model translated only the beginning of the source. Placeholders may then
        be missing.

    >>> unmask("¡Hola, ⟦1⟧!", ["{name}"]), unmask("¡Hola!", ["{name}"])
    ('¡Hola, {name}!', None)
    """
    originals = dict(zip(PLACEHOLDERS, replacements, strict=False))
    if not is_cut and sorted(PLACEHOLDER.findall(text)) != list(originals):
        return None
    return PLACEHOLDER.sub(lambda found: originals.get(found[0], ""), text)


def remove_placeholders(text: str) -> str:
    """Remove placeholders that the source does not contain.

    >>> remove_placeholders("Ja ⟦3⟧.")
    'Ja.'
    """
    return _INVENTED.sub("", text) if BRACKET in text else text


def cut_sentences(text: str, spans: Sequence[Span], *, language: str) -> list[str]:
    """Cut a text into sentences, white space and the markup between sentences.

    No cut is inside a span.

    >>> spans = [Span(0, 3, "<p>", True), Span(4, 15, "www.a.b?c=d")]
    >>> cut_sentences("<p>A www.a.b?c=d. B", spans, language="en")
    ['<p>', 'A www.a.b?c=d.', ' ', 'B']
    """
    if not spans:
        return split_sentences(text, language=language) or [text]
    return _cut_like(text, spans, split_sentences(_without_spans(text, spans), language=language))


def cut_markup_off(text: str, spans: Sequence[Span]) -> list[str]:
    """Cut off markup and white space at both ends of a text.

    >>> cut_markup_off("<p>A <b>b</b>.</p>", [Span(0, 3, "<p>", True), Span(14, 18, "</p>", True)])
    ['<p>', 'A <b>b</b>.', '</p>']
    """
    if not any(span.is_markup for span in spans):
        return [text]
    shown = _without_spans(text, spans)
    core = shown.strip()
    start = shown.index(core)
    cut = (shown[:start], core, shown[start + len(core) :])
    return _cut_like(text, spans, [part for part in cut if part])


def _without_spans(text: str, spans: Sequence[Span]) -> str:
    """Return a text of the same length, with spaces instead of markup and X in other spans."""
    shown = [(" " if span.is_markup else "X") * (span.end - span.start) for span in spans]
    return _replace(text, spans, replacements=shown)


def _cut_like(text: str, spans: Sequence[Span], shown: Sequence[str]) -> list[str]:
    """Cut a text at the same places as `shown`, the pieces of its version without spans.

    A piece of white space can contain markup, so it is also cut around its spans.
    """
    parts: list[str] = []
    start = 0
    starts = [span.start for span in spans]
    for each in shown:
        end = start + len(each)
        if each.isspace():
            inside = spans[bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]
            moved = [
                span._replace(start=span.start - start, end=span.end - start) for span in inside
            ]
            parts += cut_around(text[start:end], moved)
        else:
            parts.append(text[start:end])
        start = end
    return parts


# Punctuation that belongs to a neighboring span: a mark after the span, before white space, and an
# opening bracket or quotation mark before the span.
_AFTER_SPAN = regex.compile(r"[^\w\s]+(?=\s|$)|[\u3000-\u303f\uff00-\uffef]+")
_BEFORE_SPAN = regex.compile(r"(?<=\s|^)[\p{Ps}\p{Pi}\"'¿¡]+$")


def cut_around(text: str, spans: Sequence[Span]) -> list[str]:
    """Cut a text into its spans, the white space and punctuation next to them, and the rest.

    >>> cut_around("Hi {name}, you", [Span(3, 9, "{name}")])
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
