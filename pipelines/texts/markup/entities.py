"""Decode the HTML entities of a piece for the model, and list the entities for its translation."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from html.entities import html5

from tt.model.text.spans import Span

ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Marks that many vocabularies lack, and the same marks in ASCII.
PLAIN_MARKS = {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-"}
_QUOTES = {'"': "&quot;", "'": "&#39;"}


def unescape(entity: str) -> str:
    """Return the character of an entity, or "" if there is no such entity.

    >>> unescape("&uuml;"), unescape("&nothing;")
    ('ü', '')
    """
    is_known = entity[1] == "#" or entity[1:] in html5
    return html.unescape(entity) if is_known else ""


def decode_entities(
    piece: str,
    spans: Sequence[Span],
    *,
    is_attribute: bool,
    is_known: Callable[[str], bool] = lambda character: True,
) -> tuple[str, list[Span], dict[str, str]]:
    """Decode the HTML entities of a piece outside of its spans.

    Args:
      piece: The piece.
      spans: Its spans, which stay as they are.
      is_attribute: Whether the piece is the value of an attribute, in quotation marks.
      is_known: Whether the model knows a character.

    Returns:
      The text, the spans at their new places, and the entity of each character that the translation
      must encode. These are the characters that the piece encodes, and the characters that have a
      meaning in HTML, such as "<", unless the piece contains them without encoding.

    >>> decode_entities("Tom &amp; &uuml;", [], is_attribute=False)[0]
    'Tom & ü'
    """
    needed = _ESCAPES | (_QUOTES if is_attribute else {})
    if not any(character in piece for character in needed):
        return piece, [*spans], needed
    parts: list[str] = []
    moved: list[Span] = []
    found: dict[str, str] = {}
    raw = ""

    def decode(match: re.Match[str]) -> str:
        character = unescape(match[0])
        if not character:
            return match[0]
        if not is_known(character) and character in PLAIN_MARKS:
            found[PLAIN_MARKS[character]] = match[0]
            return PLAIN_MARKS[character]
        found[character] = match[0]
        return character

    length = end = 0
    for span in [*spans, None]:
        between = piece[end : span.start if span else len(piece)]
        raw += ENTITY.sub(lambda found: "" if unescape(found[0]) else found[0], between)
        parts.append(ENTITY.sub(decode, between))
        length += len(parts[-1])
        if span:
            parts.append(piece[span.start : span.end])
            size = span.end - span.start
            moved.append(Span(length, length + size, *span[2:]))
            length += size
            end = span.end
    found = {c: name for c, name in needed.items() if c not in raw} | found
    return "".join(parts), moved, found
