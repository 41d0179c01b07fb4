"""Keep protected spans in a translation, as placeholders or by cutting the text around them."""

from __future__ import annotations

import bisect
import collections
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import regex

from tt.model.text.spans import BRACKET, PLACEHOLDER, PLACEHOLDERS, Span
from tt.pipelines.texts.capitals import Capitals, restore_capitals
from tt.pipelines.texts.placing import Links, Tag, place_tags
from tt.pipelines.texts.regions import Role
from tt.pipelines.texts.segments import LINE_BREAK, split_sentences

_INVENTED = re.compile(f" ?{PLACEHOLDER.pattern}")
_PLACEHOLDERS = re.compile(f"({PLACEHOLDER.pattern})")

# Characters for private use, except the last plane, whose characters stand for attributes.
_FIRST_STAND_IN, _LAST_STAND_IN = 0xF0000, 0xFFFFE
_ORIGINAL = re.compile(f"[\U000f0000-\U000ffffd]|{PLACEHOLDER.pattern}")
_FIGURE_BEFORE, _FIGURE_AFTER = re.compile(r"[0-9][0-9.,]*$"), re.compile(r"[0-9][0-9.,]*")
_LONGEST_FIGURE = 20
_FIGURE_SPACES = 50  # the figure is at most this many spaces away from the expected place
_LINE_FEED = frozenset("\r\n")
_LIST_MARK = re.compile(r"[-+*#>|=]|[0-9]{1,9}[.)]")  # it would start a list at the start of a line
_LONG_LINE = 50  # characters; a line break after such a line probably ends no sentence
_BREAK = re.compile(r"<br\b| *\\?[\r\n]", re.IGNORECASE)


class Masked(NamedTuple):
    """A piece as the model receives it, and everything that its translation gets back.

    Attributes:
      text: The text for the model.
      replacements: The text that replaces each placeholder in the translation.
      exact: The spans that stay in the text. The translation must contain each equally often.
      tags: The inline tags that were removed from the text.
      wraps: The line breaks that are spaces in the text, with their indices in the text.
      entities: The HTML entity of each character that must be encoded again.
      capitals: How the piece uses capitals, if the text is in lower case instead.
    """

    text: str
    replacements: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    tags: tuple[Tag, ...] = ()
    wraps: tuple[tuple[int, str], ...] = ()
    entities: Mapping[str, str] = {}
    capitals: Capitals | None = None


def mask(piece: str, spans: Sequence[Span], *, has_placeholders: bool = True) -> Masked:
    """Remove the tags of a piece, and replace its other spans by placeholders.

    There must not be more spans than placeholders.

    Args:
      piece: The piece.
      spans: Its spans.
      has_placeholders: Whether the model knows placeholders; otherwise, the spans stay in the text.

    >>> mask("Hi {name}!", [Span(3, 9, "{name}")]).text
    'Hi ⟦1⟧!'
    """
    text = ""
    end = 0
    kept: list[str] = []
    tags: list[Tag] = []
    wraps: list[tuple[int, str]] = []
    skipped = 0  # the end of the last skipped space
    for span in spans:
        text += piece[max(end, skipped) : span.start]
        if span.role == Role.SPACE:
            wraps.append((len(text), span.replacement))
            text += " "
        elif span.role:
            before, after = piece[span.start - 1 : span.start], piece[span.end : span.end + 1]
            spaces = (before.isspace(), after.isspace())
            tags.append(Tag(len(text), span.replacement, Role(span.role), spaces))
            if span.role == Role.VOID:  # words next to a tag such as <br> have one space
                text += " " if not any(spaces) else ""
                skipped = span.end + all(spaces)
        else:
            kept.append(span.replacement)
            text += PLACEHOLDERS[len(kept) - 1] if has_placeholders else span.replacement
        end = span.end
    text += piece[max(end, skipped) :]
    replacements, exact = (kept, []) if has_placeholders else ([], kept)
    return Masked(text, tuple(replacements), tuple(exact), tuple(tags), tuple(wraps))


def replace_spans(text: str, spans: Sequence[Span]) -> str:
    """Return a text with the replacements of its spans.

    >>> replace_spans("a {x}", [Span(2, 5, "{y}")])
    'a {y}'
    """
    return _replace(text, spans, replacements=[span.replacement for span in spans])


def _replace(text: str, spans: Sequence[Span], *, replacements: Sequence[str]) -> str:
    parts = []
    end = 0
    for span, replacement in zip(spans, replacements, strict=False):
        parts += [text[end : span.start], replacement]
        end = span.end
    return "".join([*parts, text[end:]])


def keeps_spans(text: str, masked: Masked) -> bool:
    """Return whether a translation keeps all placeholders and spans of the text for the model.

    It contains each placeholder once, and each span as often as the text.

    Args:
      text: The translation.
      masked: The piece.

    >>> keeps_spans("¡Hola, ⟦1⟧!", Masked("Hi ⟦1⟧!", replacements=("{name}",)))
    True
    """
    wanted = PLACEHOLDERS[: len(masked.replacements)]
    if masked.replacements and sorted(PLACEHOLDER.findall(text)) != [*wanted]:
        return False
    counts = collections.Counter(masked.exact)
    return all(
        text.count(span) == masked.text.count(span) >= count for span, count in counts.items()
    )


def unmask(text: str, masked: Masked, *, links: Links | None = None) -> tuple[str, bool]:
    """Return a translation with all spans, tags, entities and capitals of its source.

    Args:
      text: The translation of `masked.text`.
      masked: The piece.
      links: The words that belong together, [T, S]; necessary for tags between the ends of a piece.

    Returns:
      The translation, and whether the places of all tags are clear.

    >>> unmask("¡Hola, ⟦1⟧!", Masked("Hi ⟦1⟧!", replacements=("{name}",)))
    ('¡Hola, {name}!', True)
    """
    text = _separate_spans(text, masked)
    # Characters for private use represent tags, line breaks and spans until the end.
    unused = (c for c in map(chr, range(_FIRST_STAND_IN, _LAST_STAND_IN)) if c not in text)
    originals = dict(zip(PLACEHOLDERS, masked.replacements, strict=False))
    is_clear = True
    if masked.tags:
        stand_ins = [next(unused) for _ in masked.tags]
        originals |= zip(stand_ins, (tag.text for tag in masked.tags), strict=True)
        text, is_clear = place_tags(
            masked.tags,
            source=masked.text,
            target=text,
            atoms=masked.exact,
            links=links,
            written=stand_ins,
        )
    hidden: dict[str, int] = {}  # the length of each span by the character that represents it
    for span in sorted(set(masked.exact), key=len, reverse=True):
        stand_in = next(unused)
        originals[stand_in], hidden[stand_in] = span, len(span)
        text = text.replace(span, stand_in)
    if masked.wraps:
        breaks = [next(unused) for _ in masked.wraps]
        originals |= zip(breaks, (each for _, each in masked.wraps), strict=True)
        text = _wrap(text, masked, stand_ins=breaks, hidden=hidden)
    if masked.capitals:
        text = restore_capitals(text, masked.capitals)
    if masked.entities:
        between = _PLACEHOLDERS.split(text)  # placeholders have odd indices
        between[::2] = ["".join(masked.entities.get(c, c) for c in each) for each in between[::2]]
        text = "".join(between)

    def restore(found: re.Match[str]) -> str:
        is_invented = found[0].startswith(BRACKET)
        return originals.get(found[0], "" if is_invented else found[0])

    return _ORIGINAL.sub(restore, text), is_clear


def _separate_spans(text: str, masked: Masked) -> str:
    """Add a space between a letter with case and a span that no such letter touches in the source.

    >>> _separate_spans("Tengo⟦1⟧y", Masked("I have ⟦1⟧ and", replacements=("$5",)))
    'Tengo ⟦1⟧ y'
    """
    for span in [*PLACEHOLDERS[: len(masked.replacements)], *dict.fromkeys(masked.exact)]:
        own, parts = masked.text.split(span), text.split(span)
        if not any(_is_cased(part[-1:]) for part in own[:-1]):
            parts[:-1] = [f"{part} " if _is_cased(part[-1:]) else part for part in parts[:-1]]
        if not any(_is_cased(part[:1]) for part in own[1:]):
            parts[1:] = [f" {part}" if _is_cased(part[:1]) else part for part in parts[1:]]
        text = span.join(parts)
    return text


def _is_cased(character: str) -> bool:
    return character.islower() or character.isupper()


def has_stand_ins(text: str) -> bool:
    """Return whether a text contains characters for private use that could stand for tags."""
    return not text.isascii() and max(text) >= chr(_FIRST_STAND_IN)


def _wrap(text: str, masked: Masked, *, stand_ins: Sequence[str], hidden: Mapping[str, int]) -> str:
    """Replace some spaces of a translation by the line breaks of its source, at similar places."""
    characters = [*text]
    # The number of characters before each space, without those that stand for tags.
    counts: dict[int, int] = {}
    count = 0
    for i, character in enumerate(characters):
        if character == " ":
            counts[i] = count
        count += hidden.get(character, character < chr(_FIRST_STAND_IN))
    every = [*counts]
    for_lines = [space for space in every if not _LIST_MARK.match(text, space + 1)]
    last = -1  # the last replaced space
    for (place, line_break), stand_in in zip(masked.wraps, stand_ins, strict=True):
        is_line = not _LINE_FEED.isdisjoint(line_break)
        spaces = for_lines if is_line else every
        first = bisect.bisect_right(spaces, last)
        if first == len(spaces):
            continue
        wanted = place * count / max(1, len(masked.text))
        near = bisect.bisect_left(spaces, wanted, first, key=counts.__getitem__)
        is_end = near == len(spaces)
        if is_end or (
            near > first and 2 * wanted < counts[spaces[near - 1]] + counts[spaces[near]]
        ):
            near -= 1  # the space before is closer
        last = spaces[near]
        if not is_line:  # a no-break space stays next to the same figure
            around = spaces[max(first, near - _FIGURE_SPACES) : near + _FIGURE_SPACES]
            last = _find_same_figure(text, around, masked.text, place) or last
        characters[last] = stand_in
    return "".join(characters)


def _find_same_figure(text: str, spaces: Sequence[int], source: str, place: int) -> int | None:
    """Return the index of a space next to the same figure as in the source, if there is one."""
    before = _FIGURE_BEFORE.search(source[max(0, place - _LONGEST_FIGURE) : place])
    after = _FIGURE_AFTER.match(source[place + 1 : place + 1 + _LONGEST_FIGURE])
    for space in spaces:
        if before and text.endswith(before[0], 0, space):
            return space
        if after and text.startswith(after[0], space + 1):
            return space
    return None


def match_first_letter(text: str, *, source: str) -> str:
    """Begin a translation in lower case if its source begins in lower case.

    >>> match_first_letter("Un libro", source="a book"), match_first_letter("Un", source="A")
    ('un libro', 'Un')
    """
    first = next((c for c in source if c.isalpha()), "")
    if not first.islower() or text[:2].isupper() or not text[:1].isupper():
        return text
    return text[0].lower() + text[1:]


def remove_placeholders(text: str) -> str:
    """Remove placeholders that the source does not contain.

    >>> remove_placeholders("Ja ⟦3⟧.")
    'Ja.'
    """
    return _INVENTED.sub("", text) if BRACKET in text else text


def cut_sentences(
    text: str, spans: Sequence[Span], *, language: str, is_wrapped: bool = False
) -> list[str]:
    """Cut a text into sentences, white space and the markup between sentences.

    No cut is inside a span.

    Args:
      text: The text.
      spans: Its spans.
      language: Code of the language.
      is_wrapped: Whether a line break is only a space, as in HTML. A sentence can end at <br>, and
        after a short line.

    >>> spans = [Span(0, 3, "<p>", True), Span(4, 15, "www.a.b?c=d")]
    >>> cut_sentences("<p>A www.a.b?c=d. B", spans, language="en")
    ['<p>', 'A www.a.b?c=d.', ' ', 'B']
    """
    shown = _without_spans(text, spans, is_wrapped=is_wrapped) if spans or is_wrapped else text
    parts = split_sentences(shown, language=language) or [text]
    return _cut_like(text, spans, parts) if spans else parts


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


def _without_spans(text: str, spans: Sequence[Span], *, is_wrapped: bool = False) -> str:
    """Return a text of the same length, with spaces instead of markup and X in other spans."""
    if is_wrapped:
        text = _join_lines(text)
    shown = [(" " if span.is_markup else "X") * (span.end - span.start) for span in spans]
    if is_wrapped:
        shown = [
            "\n" + each[1:] if _BREAK.match(span.replacement) and span.role == Role.VOID else each
            for each, span in zip(shown, spans, strict=True)
        ]
    return _replace(text, spans, replacements=shown)


def _join_lines(text: str) -> str:
    """Replace the line breaks after long lines by spaces, so that no sentence ends there."""
    joined = []
    start = 0
    for found in LINE_BREAK.finditer(text):
        line = text[start : found.start()]
        is_long = len(line) >= _LONG_LINE
        joined += [line, " " * len(found[0]) if is_long else found[0]]
        start = found.end()
    return "".join([*joined, text[start:]])


def spans_within(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Return the spans inside a part of a text, with their places in the part.

    Args:
      spans: The spans of the text, in order.
      start: The index of the part's first character in the text.
      end: The index after its last character.

    >>> spans_within([Span(0, 3, "<p>"), Span(5, 8, "{x}")], 4, 9)
    [Span(start=1, end=4, replacement='{x}', is_markup=False, role='')]
    """
    first, last = (bisect.bisect_left(spans, i, key=lambda span: span.start) for i in (start, end))
    return [
        span._replace(start=span.start - start, end=span.end - start)
        for span in spans[first:last]
        if span.end <= end
    ]


def _cut_like(text: str, spans: Sequence[Span], shown: Sequence[str]) -> list[str]:
    """Cut a text at the same places as `shown`, the pieces of its version without spans.

    A piece of white space can contain markup, so it is also cut around its spans.
    """
    parts: list[str] = []
    start = 0
    for each in shown:
        end = start + len(each)
        if each.isspace():
            parts += cut_around(text[start:end], spans_within(spans, start, end))
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
