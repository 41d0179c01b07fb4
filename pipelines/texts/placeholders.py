"""Turn a segment into the text for the model, and give its translation everything back.

The model gets protected spans and terms as placeholders, or as they are if it knows no
placeholders. It gets no inline tags, entities, line breaks and, in a sentence in capitals, no
capitals.
"""

from __future__ import annotations

import bisect
import collections
import re
from collections.abc import Mapping, Sequence

from tt.model.text.spans import BRACKET, PLACEHOLDER, PLACEHOLDERS, Span
from tt.pipelines.texts.capitals import Capitals, find_capitals, restore_capitals, to_usual_case
from tt.pipelines.texts.inline_tags import Links, Tag, place_tags
from tt.pipelines.texts.markup.formats import Format
from tt.pipelines.texts.markup.regions import Role
from tt.pipelines.texts.segments import Masked, Rules, Segment
from tt.pipelines.texts.sentences import LINE_BREAK

_INVENTED = re.compile(f" ?{PLACEHOLDER.pattern}")
_PLACEHOLDERS = re.compile(f"({PLACEHOLDER.pattern})")
_FIRST_STAND_IN, _LAST_STAND_IN = 0xF0000, 0x10FFFD  # characters for private use
_ORIGINAL = re.compile(f"[\U000f0000-\U0010fffd]|{PLACEHOLDER.pattern}")
_FIGURE_BEFORE, _FIGURE_AFTER = re.compile(r"[0-9][0-9.,]*$"), re.compile(r"[0-9][0-9.,]*")
_LONGEST_FIGURE = 20
_FIGURE_SPACES = 50  # the figure is at most this many spaces away from the expected place
_LINE_FEED = frozenset("\r\n")
_LIST_MARK = re.compile(r"[-+*#>|=]|[0-9]{1,9}[.)]")  # it would start a list at the start of a line


def mask(segment: Segment, rules: Rules, *, format: Format) -> Masked:  # noqa: A002
    """Return a segment as the model receives it, and what its translation gets back.

    Args:
      segment: A sentence or a text in an attribute.
      rules: How to treat the text.
      format: The format of the text.
    """
    masked = Masked(segment.text)
    if segment.spans or format.has_marks:
        masked = _hide_spans(segment, rules, format=format)
    if not rules.restores_capitals:
        return masked
    found = segment.capitals or find_capitals(
        masked.words, has_capital_nouns=rules.has_capital_nouns
    )
    if found is None:
        return masked
    lowered = to_usual_case(
        masked.text,
        choose=rules.choose_case,
        atoms=masked.exact,
        is_title=found is Capitals.TITLE,
    )
    return masked._replace(text=lowered, capitals=found)


def _hide_spans(segment: Segment, rules: Rules, *, format: Format) -> Masked:  # noqa: A002
    text, spans, entities = format.decode(
        segment.text, segment.spans, is_attribute=segment.is_quoted, is_known=rules.knows
    )
    kept = [span for span in spans if not span.role]
    has_placeholders = segment.is_span or len(kept) <= rules.most_spans
    if not has_placeholders and not rules.can_place(text, kept):
        spans = [span for span in spans if span.role]
    masked = _mask(text, spans, has_placeholders=has_placeholders)
    if format.has_marks:
        masked = masked._replace(text=LINE_BREAK.sub(" ", masked.text), entities=entities)
    return masked


def _mask(piece: str, spans: Sequence[Span], *, has_placeholders: bool = True) -> Masked:
    """Remove the tags of a piece, and replace its other spans by placeholders.

    Without placeholders, the other spans stay in the text.

    >>> _mask("Hi {name}!", [Span(3, 9, "{name}")]).text
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


def keeps_spans(text: str, masked: Masked) -> bool:
    """Return whether a translation keeps all placeholders and spans of the text for the model.

    It contains each placeholder once, and each span as often as the text.

    Args:
      text: The translation.
      masked: The piece.

    >>> keeps_spans("¡Hola, ⟦1⟧!", Masked("Hi ⟦1⟧!", replacements=("{name}",)))
    True
    """
    if not masked.exact:
        wanted = PLACEHOLDERS[: len(masked.replacements)]
        return not wanted or sorted(PLACEHOLDER.findall(text)) == [*wanted]
    counts = collections.Counter(masked.exact)
    return all(
        text.count(span) == masked.text.count(span) >= count for span, count in counts.items()
    )


def unmask(
    text: str, masked: Masked, *, tags: Sequence[str] = (), links: Links | None = None
) -> tuple[str, bool]:
    """Return a translation with all spans, tags, entities and capitals of its source.

    Args:
      text: The translation of `masked.text`.
      masked: The segment.
      tags: The tags of `masked` as they stand in the translation.
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
        originals |= zip(stand_ins, tags, strict=True)
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
    if any(character in text for character in masked.entities):
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
