"""HTML.

lxml and selectolax report no positions of characters. The standard library's `html.parser` reports
positions, but in Python 3.11 its time is quadratic for a text such as "<!--" * 100000. Therefore
one regular expression finds comments and tags, and its time is linear for every text.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from tt.pipelines.texts.markup.entities import decode_entities
from tt.pipelines.texts.markup.regions import (
    BLOCK_NAMES,
    VOID_NAMES,
    Block,
    Piece,
    Role,
    build_blocks,
    skip_front_matter,
)

# Unclosed comments and PHP code run to the end of the text, so no later search repeats them. All
# other tags contain "<" only in quotes. A search is outside quotes, in single quotes or in double
# quotes. Searches from different tags are never in the same state at the same character, so at most
# three searches read each character.
_TOKEN = re.compile(
    r"<(?:"
    r"!--(?:-?>|.*?(?:--!?>|\Z))"  # a comment
    r"|!\[CDATA\[.*?(?:\]\]>|\Z)"
    r"|\?(?:php\b|=).*?(?:\?>|\Z)"
    r"|[!?][A-Za-z\[][^<>]*+>"  # a declaration, such as <!DOCTYPE html>
    r"|(?P<name>/?[A-Za-z][^\s/<>\"'=]*+)(?=[\s/>])"
    # Without the second alternative, <p title=it's> would have an unclosed quote.
    r"(?:(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+>|[^<>]*+>)"
    r")",
    re.DOTALL,
)
# An attribute starts after white space, a slash or a quote, so each search for "=" is short.
_ATTRIBUTE = re.compile(
    r"(?<![^\s\"'/])(?P<name>[^\s\"'<>/=]++)\s*+=\s*+"
    r"(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'|(?P<bare>[^\s\"'<>]++))"
)
_MAYBE_TEXT = re.compile(r"alt|title|placeholder|aria-label|content|translate", re.IGNORECASE)
_TEXT_ATTRIBUTES = frozenset({"alt", "title", "placeholder", "aria-label"})
_AUTOLINK = re.compile(r"@|:\Z")  # "<https://...>" or "<a@b.org>" is no tag
_WORD = re.compile(r"[^\W_]")
# A slash after a URL without quotes, as in <a href=http://x.org/>, belongs to the URL.
_SELF_CLOSED = re.compile(r"(?:[\s\"']|<[^\s=]*)/>\Z")

# The content of these elements is code, another markup language, or text that must not change.
_RAW_BLOCKS = frozenset(
    {"iframe", "noembed", "noframes", "pre", "script", "style", "textarea", "xmp"}
)
_RAW_INLINE = frozenset({"math", "svg"})
_CODE_NAMES = frozenset({"code", "kbd", "samp", "var"}) | _RAW_BLOCKS | _RAW_INLINE


class _Attributes(NamedTuple):
    """The attributes of a tag that matter for translation."""

    texts: tuple[tuple[int, int], ...] = ()  # start and end of the values to translate
    is_protected: bool = False  # whether the element must not be translated


class Html:
    """The format of HTML; see `formats.Format`."""

    name = "html"
    has_marks = True
    decode = staticmethod(decode_entities)

    def find_segments(self, text: str) -> list[Block]:
        """Return the blocks of HTML.

        >>> [block[:2] for block in Html().find_segments("<p>One<p>Two")]
        [(3, 6), (9, 12)]
        """
        start, end = skip_front_matter(text), len(text)
        return build_blocks(text, read_html(text, start, end), start=start, end=end)


def read_html(text: str, start: int, end: int, *, has_content: bool = True) -> list[Piece]:
    """Return the tags, comments and raw elements of HTML.

    Args:
      text: The whole text.
      start: Index of the first character to read.
      end: Index after the last character to read.
      has_content: Whether the text contains the content and the closing tag of each element. If
        not, the text is a single tag.
    """
    pieces: list[Piece] = []
    while token := _TOKEN.search(text, start, end):
        start = token.end()
        if token["name"] is None:
            pieces.append(Piece(token.start(), start, Role.VOID))
            continue
        if _AUTOLINK.search(token["name"]):
            pieces.append(Piece(token.start(), start, Role.CODE))
            continue
        piece = _read_tag(token)
        is_raw = piece.name in _RAW_BLOCKS or piece.name in _RAW_INLINE
        if has_content and is_raw and piece.role is not Role.VOID:
            close = _compile_close(piece.name).search(text, start, end)
            start = close.end() if close else end
            role = Role.CODE if close and piece.name in _RAW_INLINE else None
            attributes = piece.attributes if piece.name == "textarea" else ()
            piece = Piece(piece.start, start, role, attributes=attributes)
        pieces.append(piece)
    return pieces


def _read_tag(token: re.Match[str]) -> Piece:
    name = token["name"].lower()
    bare = name.removeprefix("/")
    role: Role | None = Role.OPEN
    if bare in BLOCK_NAMES:
        role = None
    elif bare in VOID_NAMES:
        role = Role.VOID
    elif name != bare:
        role = Role.CLOSE
    elif token[0].endswith("/>") and _SELF_CLOSED.search(token[0][-100:]):
        role = Role.VOID
    attributes = _Attributes()
    if name == bare and _MAYBE_TEXT.search(token[0]):
        attributes = _read_attributes(token, name)
    is_protected = attributes.is_protected or name in _CODE_NAMES
    return Piece(token.start(), token.end(), role, name, is_protected, attributes.texts)


def _read_attributes(token: re.Match[str], name: str) -> _Attributes:
    texts = []
    is_described = is_protected = False
    for found in _ATTRIBUTE.finditer(token.string, token.end("name"), token.end()):
        group = found.lastgroup or "bare"
        key, value = found["name"].lower(), found[group]
        is_protected |= key == "translate" and value.lower() == "no"
        is_protected |= key == "class" and "notranslate" in value.split()
        is_described |= name == "meta" and key == "name" and value.lower() == "description"
        is_text = key in _TEXT_ATTRIBUTES or (name == "meta" and key == "content")
        # A value without quotes cannot contain spaces, so its translation might not fit.
        if is_text and group != "bare" and _WORD.search(value):
            start = found.start(group) + len(value) - len(value.lstrip())
            texts.append((start, start + len(value.strip())))
    if is_protected or (name == "meta" and not is_described):
        texts = []
    return _Attributes(tuple(texts), is_protected)


@functools.cache
def _compile_close(name: str) -> re.Pattern[str]:
    """Compile the closing tag of a raw element."""
    return re.compile(rf"</{name}(?=[\s/>])[^<>]*+>", re.IGNORECASE)
