"""The blocks of a text with markup that are translated, and the marks inside them.

A Markdown or HTML parser lists the pieces of a text that are not translated. This module joins the
text between these pieces into blocks.
"""

from __future__ import annotations

import collections
import enum
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_WORD = re.compile(r"[^\W_]")
_LINE_ENDS = r"\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
# In the text between marks: a tag whose brackets are entities, and white space that is only a space
# for the model. Attributes of the tag may contain other entities, such as "&quot;". Each search for
# its end stops at the next "&lt;", so the total time is linear.
_BETWEEN = re.compile(
    r"&lt;(?P<name>/?[A-Za-z][A-Za-z0-9]{0,9})(?=[\s/&])"
    r"(?:[^<>&]++|&(?:quot|apos|amp|nbsp|#[0-9]{1,5});)*+&gt;"
    r"|(?P<space>&(?:nbsp|#160|#[xX][aA]0);"
    rf"|(?<![ \t])[ \t]*+[{_LINE_ENDS}][ \t{_LINE_ENDS}]*+)"
)
_FRONT_MATTER = re.compile(
    r"\A\ufeff?(?:"
    r"---[ \t]*\r?\n(?=\s*(?:#|[\w\"'.-]+[ \t]*:))(?:.*\n)*?(?:---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?:.*\n)*?\+\+\+"
    r")[ \t]*(?:\r?\n|\Z)"
)


def _split(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Elements without content.
VOID_NAMES = _split("area br embed img input param source track wbr")
# Elements that end a block.
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
    CODE = "code"  # has no partner and acts like a word, such as "<code>x</code>" or "\*"
    SPACE = "space"  # a line break, with its indentation and marks of a quotation, or "&nbsp;"


class Mark(NamedTuple):
    """A part of a block that stays as it is."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    role: Role
    # Start and end of each attribute value to translate, such as `alt`, without its quotes.
    attributes: tuple[tuple[int, int], ...] = ()
    written: str = ""  # the mark in the translation, if it differs


class Block(NamedTuple):
    """A translatable part of a text, such as a paragraph, a table cell or a `title` attribute."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    marks: tuple[Mark, ...] = ()  # in order, without overlapping
    is_attribute: bool = False  # whether quotes surround the block


class Piece(NamedTuple):
    """A part of a text that is not translated, as a parser finds it."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    role: Role | None  # None: the piece ends a block
    name: str = ""  # name of an HTML element; "/name" for a closing tag
    is_protected: bool = False  # whether the whole element stays as it is
    attributes: tuple[tuple[int, int], ...] = ()  # see `Mark`
    written: str = ""  # see `Mark`


def skip_front_matter(text: str) -> int:
    """Return the index after the front matter of a text, or 0 if it has none."""
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def build_blocks(text: str, pieces: Iterable[Piece], *, start: int, end: int) -> list[Block]:
    """Join the text between pieces into blocks.

    Args:
      text: The whole text.
      pieces: The pieces between `start` and `end`, in order, without overlapping.
      start: Index of the first character to search.
      end: Index after the last character to search.

    >>> pieces = [Piece(0, 3, None), Piece(6, 9, Role.OPEN), Piece(12, 16, Role.CLOSE)]
    >>> blocks = build_blocks("<p>Hi <b>you</b>", pieces, start=0, end=16)
    >>> [(block.start, block.end) for block in blocks]
    [(3, 16)]
    """
    blocks: list[Block] = []
    run: list[Piece] = []
    for piece in [*_join_protected(list(pieces)), Piece(end, end, None)]:
        if piece.role is not None:
            run.append(piece)
            continue
        first = 0
        for joint in _find_joints(text, run):
            blocks += _build_block(text, start, run[joint].start, run[first:joint])
            start, first = run[joint].start, joint
        blocks += _build_block(text, start, piece.start, run[first:])
        blocks += _attribute_blocks([piece])
        start, run = piece.end, []
    return blocks


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


def _join_protected(pieces: Sequence[Piece]) -> list[Piece]:
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


def _build_block(text: str, start: int, end: int, pieces: Sequence[Piece]) -> list[Block]:
    """Return the block between two blocks, and the attributes of pieces outside the block."""
    if start == end:
        return []
    first, last = 0, len(pieces)
    while first < last and _is_lone(pieces[first], text[start : pieces[first].start]):
        start = pieces[first].end
        first += 1
    while first < last and _is_lone(pieces[last - 1], text[pieces[last - 1].end : end]):
        last -= 1
        end = pieces[last].start
    bare = text[start:end]
    start += len(bare) - len(bare.lstrip())
    end = start + len(bare.strip())
    marks = [
        Mark(piece.start, piece.end, piece.role, piece.attributes, piece.written)
        for piece in pieces[first:last]
        if piece.role is not None
    ]
    if "&" in bare or len(bare.splitlines()) > 1:  # `_BETWEEN` can match
        gaps = list(_find_gaps(start, end, marks))
        marks = sorted([*marks, *(mark for gap in gaps for mark in _find_between(text, *gap))])
    if not any(_has_word(text[first:last]) for first, last in _find_gaps(start, end, marks)):
        return _attribute_blocks(pieces)
    block = Block(start, end, tuple(_keep_mentioned(text, marks)))
    before, after = (_attribute_blocks(outside) for outside in (pieces[:first], pieces[last:]))
    return [*before, block, *after]


def _is_lone(piece: Piece, text: str) -> bool:
    """Return whether a block does not contain a piece at its end, after or before a text."""
    return piece.role in (Role.VOID, Role.SPACE) and not text.strip()


def _find_gaps(start: int, end: int, marks: Sequence[Mark]) -> Iterator[tuple[int, int]]:
    """Return start and end of the text between marks."""
    for mark in marks:
        if start < mark.start:
            yield start, mark.start
        start = mark.end
    if start < end:
        yield start, end


def _has_word(text: str) -> bool:
    """Return whether a text has a letter or a digit; an entity such as "&rarr;" has none."""
    if "&" in text:
        text = html.unescape(text)
    return bool(_WORD.search(text))


def _find_between(text: str, start: int, end: int) -> Iterator[Mark]:
    """Return the escaped tags, line breaks and no-break spaces in a text between marks."""
    for found in _BETWEEN.finditer(text, start, end):
        name = (found["name"] or "").lower()
        bare = name.removeprefix("/")
        role = Role.CODE  # such as "&lt;file&gt;" in instructions
        if found["space"]:
            role = Role.SPACE
        elif bare in VOID_NAMES or bare == "hr":
            role = Role.VOID
        elif bare in NAMES:
            role = Role.CLOSE if name.startswith("/") else Role.OPEN
        yield Mark(found.start(), found.end(), role)


def _keep_mentioned(text: str, marks: list[Mark]) -> list[Mark]:
    """Turn escaped tags without a partner into words, because the text mentions them."""
    tags = [mark for mark in marks if mark.role in (Role.OPEN, Role.CLOSE)]
    if not any(text.startswith("&lt;", tag.start) for tag in tags):
        return marks
    partners = find_partners([(tag.role, text[tag.start : tag.end]) for tag in tags])
    lone = {tag.start for k, tag in enumerate(tags) if k not in partners}
    return [
        mark._replace(role=Role.CODE)
        if mark.start in lone and text.startswith("&lt;", mark.start)
        else mark
        for mark in marks
    ]


def find_partners(tags: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Return the index of the other tag of each pair.

    Args:
      tags: The role and the text of each tag.

    >>> find_partners([(Role.OPEN, "<b>"), (Role.CLOSE, "</b>")])
    {1: 0, 0: 1}
    >>> find_partners([(Role.OPEN, "<b>"), (Role.CLOSE, "</i>")])
    {}
    """
    partners: dict[int, int] = {}
    stack: list[tuple[int, str]] = []  # the opening tags without a partner, with their names
    counts: dict[str, int] = collections.defaultdict(int)  # of these names
    for i, (role, text) in enumerate(tags):
        if role == Role.OPEN:
            name = _name(text)
            stack.append((i, name))
            counts[name] += 1
        elif role == Role.CLOSE and counts[name := _name(text)]:
            # A pair must not cross another pair, so the opening tags in between get no partner.
            while i not in partners:
                j, other = stack.pop()
                counts[other] -= 1
                if other == name:
                    partners[i], partners[j] = j, i
    return partners


_NAME = re.compile(r"(?:<|&lt;)/?\s*([\w:.-]+)")


def _name(tag: str) -> str:
    """Return the name of an HTML element, the characters of a Markdown mark, or "" for a link.

    >>> _name('<a href="/">'), _name("**")
    ('a', '**')
    """
    if found := _NAME.match(tag):
        return found[1].lower()
    return tag if tag[:1] in "*_~" else ""


def _attribute_blocks(pieces: Sequence[Piece]) -> list[Block]:
    """Return a block for each attribute value of these pieces."""
    return [Block(*value, is_attribute=True) for piece in pieces for value in piece.attributes]
