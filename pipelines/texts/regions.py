"""The translatable regions of a text with markup, and the marks inside them.

A Markdown or HTML parser lists the pieces of a text that are not translated. This module joins the
text between these pieces into regions.
"""

from __future__ import annotations

import collections
import enum
import html
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_WORD = re.compile(r"[^\W_]")
ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")

# A tag whose brackets are entities. Its attributes may contain other entities, such as "&quot;".
# Each search ends at the next "&lt;", so the total time is linear.
ESCAPED_TAG = re.compile(
    r"&lt;(?P<name>/?[A-Za-z][A-Za-z0-9]{0,9})(?=[\s/&])"
    r"(?:[^<>&]++|&(?:quot|apos|amp|nbsp|#[0-9]{1,5});)*+&gt;"
)


def _split(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Elements without content.
VOID_NAMES = _split("area br embed img input param source track wbr")
# Elements that end a region.
BLOCK_NAMES = _split(
    "address article aside base blockquote body button caption center col colgroup datalist dd "
    "details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 "
    "h4 h5 h6 head header hgroup hr html iframe label legend li link main menu meta nav noembed "
    "noframes noscript ol optgroup option p pre script search section select style summary table "
    "tbody td template textarea tfoot th thead title tr ul xmp"
)
INLINE_NAMES = _split(
    "a abbr acronym audio b bdi bdo big canvas cite code data del dfn em font i ins kbd map mark "
    "math meter object output picture progress q rp rt ruby s samp slot small span strike strong "
    "sub sup svg time tt u var video"
)
NAMES = VOID_NAMES | BLOCK_NAMES | INLINE_NAMES


class Role(enum.StrEnum):
    """The role of a mark in a sentence."""

    OPEN = "open"  # starts a formatted part, such as "<b>" or "["
    CLOSE = "close"  # ends a formatted part, such as "</b>" or "](url)"
    VOID = "void"  # has no partner and is no word, such as "<br>" or a comment
    CODE = "code"  # has no partner and acts like a word, such as "<code>x</code>"
    SPACE = "space"  # a line break with indentation or with the mark of a quotation


_LONE = (Role.VOID, Role.SPACE)  # a region does not begin or end with such a mark


class Mark(NamedTuple):
    """A part of a region that stays as it is."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    role: Role
    # Start and end of each attribute value to translate, such as `alt`, without its quotes.
    attributes: tuple[tuple[int, int], ...] = ()
    written: str = ""  # the mark in the translation, if it differs


class Region(NamedTuple):
    """A translatable part of a text, such as a paragraph, a table cell or a `title` attribute."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    marks: tuple[Mark, ...] = ()  # in order, without overlapping
    is_attribute: bool = False  # whether quotes surround the region


class Piece(NamedTuple):
    """A part of a text that is not translated, as a parser finds it."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    role: Role | None  # None: the piece ends a region
    name: str = ""  # name of an HTML element; "/name" for a closing tag
    is_protected: bool = False  # whether the whole element stays as it is
    attributes: tuple[tuple[int, int], ...] = ()  # see `Mark`
    written: str = ""  # see `Mark`


def build_regions(text: str, pieces: Iterable[Piece], *, start: int, end: int) -> list[Region]:
    """Join the text between pieces into regions.

    Args:
      text: The whole text.
      pieces: The pieces between `start` and `end`, in order, without overlapping.
      start: Index of the first character to search.
      end: Index after the last character to search.

    >>> pieces = [Piece(0, 3, None), Piece(6, 9, Role.OPEN), Piece(12, 16, Role.CLOSE)]
    >>> regions = build_regions("<p>Hi <b>you</b>", pieces, start=0, end=16)
    >>> [(region.start, region.end) for region in regions]
    [(3, 16)]
    """
    regions: list[Region] = []
    run: list[Piece] = []
    for piece in [*join_protected(list(pieces)), Piece(end, end, None)]:
        if piece.role is not None:
            run.append(piece)
            continue
        first = 0
        for joint in _find_joints(text, run):
            regions += _build_region(text, start, run[joint].start, run[first:joint])
            start, first = run[joint].start, joint
        regions += _build_region(text, start, piece.start, run[first:])
        regions += _attribute_regions([piece])
        start, run = piece.end, []
    return regions


def _find_joints(text: str, pieces: Sequence[Piece]) -> list[int]:
    """Return the opening tags that separate two texts without a space between them.

    The items of a menu have no space between them, as in "<a>Home</a><a>Help</a>". Between two
    letters in lower case, the tags are probably inside a word.
    """
    joints = []
    for i in range(1, len(pieces)):
        one, other = pieces[i - 1], pieces[i]
        if (one.role, other.role, one.end) != (Role.CLOSE, Role.OPEN, other.start):
            continue
        before, after = i - 1, i
        while before > 0 and _touch(pieces[before - 1], pieces[before], role=Role.CLOSE):
            before -= 1
        while after + 1 < len(pieces) and _touch(pieces[after], pieces[after + 1], role=Role.OPEN):
            after += 1
        start, end = pieces[before].start, pieces[after].end
        sides = text[start - 1 : start], text[end : end + 1]
        if all(map(str.isalnum, sides)) and not all(map(str.islower, sides)):
            joints.append(i)
    return joints


def _touch(one: Piece, other: Piece, *, role: Role) -> bool:
    return one.role is other.role is role and one.end == other.start


def add_breaks(pieces: Sequence[Piece], breaks: Iterable[tuple[int, int]]) -> list[Piece]:
    """Add pieces for line breaks that are not inside another piece.

    Args:
      pieces: Pieces in order, without overlapping.
      breaks: Start and end of each line break with its indentation, in order.
    """
    added: list[Piece] = []
    rest = collections.deque(breaks)
    for piece in [*pieces, Piece(sys.maxsize, sys.maxsize, None)]:
        while rest and rest[0][0] < piece.end:
            start, end = rest.popleft()
            if end <= piece.start and (not added or start >= added[-1].end):
                added.append(Piece(start, end, Role.SPACE))
        added.append(piece)
    return added[:-1]


def join_protected(pieces: Sequence[Piece]) -> list[Piece]:
    """Join each protected element into one piece, from its opening tag to its closing tag.

    An inline element must close before the next block. An element without a closing tag is not
    protected.
    """
    if not any(piece.is_protected for piece in pieces):
        return list(pieces)
    partners: dict[int, int] = {}
    open_inline: dict[str, list[int]] = {}
    open_blocks: dict[str, list[int]] = {}
    for i, piece in enumerate(pieces):
        if piece.role is None:
            open_inline.clear()
        waiting = open_blocks if piece.role is None else open_inline
        if piece.name.startswith("/"):
            if opened := waiting.get(piece.name[1:]):
                partners[opened.pop()] = i
        elif piece.name and piece.role is not Role.VOID:
            waiting.setdefault(piece.name, []).append(i)
    joined: list[Piece] = []
    i = 0
    while i < len(pieces):
        piece = pieces[i]
        if piece.is_protected and i in partners:
            i = partners[i]
            role = None if piece.role is None else Role.CODE
            piece = Piece(piece.start, pieces[i].end, role)
        joined.append(piece)
        i += 1
    return joined


def _build_region(text: str, start: int, end: int, pieces: Sequence[Piece]) -> list[Region]:
    """Return the region between two blocks, and the attributes of pieces outside the region."""
    start, first = _trim_start(text, start, end, pieces)
    inner = pieces[first:]
    end, last = _trim_end(text, start, end, inner)
    before, inner, after = pieces[:first], inner[:last], inner[last:]
    marks = [
        Mark(piece.start, piece.end, piece.role, piece.attributes, piece.written)
        for piece in inner
        if piece.role is not None
    ]
    if text.find("&lt;", start, end) >= 0:
        found = _find_gaps(start, end, marks)
        marks += [mark for gap in list(found) for mark in _find_escaped_tags(text, *gap)]
        marks.sort(key=lambda mark: mark.start)
    gaps = _find_gaps(start, end, marks)
    if not any(_has_word(text[gap_start:gap_end]) for gap_start, gap_end in gaps):
        return _attribute_regions(pieces)
    region = Region(start, end, tuple(marks))
    return [*_attribute_regions(before), region, *_attribute_regions(after)]


def _trim_start(text: str, start: int, end: int, pieces: Sequence[Piece]) -> tuple[int, int]:
    """Skip white space and lone marks; return the new start and the number of skipped pieces."""
    for i, piece in enumerate(pieces):
        start = _skip_space(text, start, piece.start)
        if start < piece.start or piece.role not in _LONE:
            return start, i
        start = piece.end
    return _skip_space(text, start, end), len(pieces)


def _trim_end(text: str, start: int, end: int, pieces: Sequence[Piece]) -> tuple[int, int]:
    """Skip white space and lone marks; return the new end and the number of other pieces."""
    for i in range(len(pieces), 0, -1):
        piece = pieces[i - 1]
        end = _skip_space_back(text, end, piece.end)
        if end > piece.end or piece.role not in _LONE:
            return end, i
        end = piece.start
    return _skip_space_back(text, end, start), 0


def _skip_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _skip_space_back(text: str, end: int, start: int) -> int:
    while end > start and text[end - 1].isspace():
        end -= 1
    return end


def _find_gaps(start: int, end: int, marks: Sequence[Mark]) -> Iterator[tuple[int, int]]:
    """Return start and end of the text between marks."""
    for mark in marks:
        if start < mark.start:
            yield start, mark.start
        start = mark.end
    if start < end:
        yield start, end


def _has_word(text: str) -> bool:
    """Return whether a text has a letter or a digit; "&nbsp;" has none."""
    if "&" in text:
        text = html.unescape(text)
    return bool(_WORD.search(text))


def _find_escaped_tags(text: str, start: int, end: int) -> Iterator[Mark]:
    for tag in ESCAPED_TAG.finditer(text, start, end):
        name = tag["name"].lower()
        bare = name.removeprefix("/")
        if bare in VOID_NAMES or bare == "hr":
            yield Mark(tag.start(), tag.end(), Role.VOID)
        elif bare in NAMES:
            role = Role.CLOSE if name.startswith("/") else Role.OPEN
            yield Mark(tag.start(), tag.end(), role)
        else:  # such as "&lt;file&gt;" in instructions
            yield Mark(tag.start(), tag.end(), Role.CODE)


def _attribute_regions(pieces: Sequence[Piece]) -> list[Region]:
    """Return a region for each attribute value of these pieces."""
    return [Region(*value, is_attribute=True) for piece in pieces for value in piece.attributes]
