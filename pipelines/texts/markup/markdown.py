"""Markdown: CommonMark with tables, strikethrough and task lists.

`pyromark` parses the text, and reports the range of each block and of each inline element. This
module turns these events into pieces, one run of inline elements after the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyromark import Markdown as Parser
from pyromark import Options

from tt.pipelines.texts.markup.entities import decode_entities
from tt.pipelines.texts.markup.html import read_html
from tt.pipelines.texts.markup.regions import (
    Block,
    Piece,
    Role,
    build_blocks,
    skip_front_matter,
)

_PARSER = Parser(
    options=Options.ENABLE_TABLES | Options.ENABLE_STRIKETHROUGH | Options.ENABLE_TASKLISTS
)
# CommonMark accepts "[Ann]: Hello" as a definition. Here, a definition needs a destination that
# looks like a URL or a path. Other definitions get a semicolon before the parser reads them.
_NO_DEFINITION = re.compile(
    r"^([ \t>*+\d.)-]*+\[(?:[^\[\]\\]|\\.)++\]):(?!\s*+(?:<|\S*(?:[/#:]|\.\w)))",
    re.MULTILINE | re.DOTALL,
)
# Between the end of a link's text and its title. Line breaks can contain the marks of a quotation.
_BEFORE_TITLE = re.compile(r"\]\([\s>]*(?:<(?:[^<>\\]|\\.)*+>|\S*+)[\s>]+[\"'(]")
_BAR = re.compile(r"(?<!\\)\|")
_ROW = re.compile(r"\|(?:[^|\n]*\|)+")  # a line with at least one cell
_SPACE = " \t\r\n>"  # white space, and the marks of a quotation
# The lengths of the marks that open an inline element, and of those that close formatting.
_LENGTHS = {"Link": 1, "Image": 2, "Emphasis": 1, "Strong": 2, "Strikethrough": 2}


class Markdown:
    """The format of Markdown; see `formats.Format`."""

    name = "markdown"
    has_marks = True
    decode = staticmethod(decode_entities)

    def find_segments(self, text: str) -> list[Block]:
        r"""Return the blocks of Markdown.

        >>> [block[:2] for block in Markdown().find_segments("# One\n\n- two")]
        [(2, 5), (9, 12)]
        """
        start = skip_front_matter(text)
        source = _NO_DEFINITION.sub(r"\1;", "\n" * start + text[start:])
        places = _find_places(source)
        reader = _Reader(text)
        for event, span in _PARSER.events_with_range(source):
            reader.read(event, places[span["start"]], places[span["end"]])
        return reader.finish()


def _find_places(text: str) -> Sequence[int]:
    """Return the number of characters before each byte of a text in UTF-8, and before its end."""
    if text.isascii():
        return range(len(text) + 1)
    import numpy as np  # imported here because it would slow down the help of commands

    data = np.frombuffer(text.encode(), np.uint8)
    places = np.zeros(len(data) + 1, np.int32)  # a list of integers would need 10 times the memory
    np.cumsum(data & 0xC0 != 0x80, out=places[1:])
    return places.data


class _Reader:
    """Turns the events of the parser into blocks.

    Args:
      text: The whole text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._blocks: list[Block] = []
        self._start: int | None = None  # of the current run of inline elements
        self._end = 0  # of the last inline element
        self._pieces: list[Piece] = []  # in the current run
        self._links: list[Mapping[str, str]] = []  # the open links and images
        self._break: Role | None = None  # the role of a line break before the next element
        self._html: list[list[tuple[int, int]]] = [[]]  # the lines of each HTML block

    def read(self, event: str | Mapping[str, Any], start: int, end: int) -> None:
        """Read an event of the parser, with the range of its element."""
        if isinstance(event, str):
            if event == "Rule":
                self._end_run()
            else:
                self._break = Role.VOID if event == "HardBreak" else Role.SPACE
            return
        [(kind, value)] = event.items()
        if kind == "Text":
            self._read_text(start, end)
        elif kind == "Html":
            self._html[-1].append((start, end))
        elif kind in ("Start", "End"):
            self._read_element(value, start, end, is_start=kind == "Start")
        elif kind == "Code":
            self._add(Piece(start, self._trim(end), Role.CODE))
        elif kind == "InlineHtml":
            self._read_tag(start, self._trim(end))

    def finish(self) -> list[Block]:
        """Return all blocks in order."""
        # In a list or quotation, the lines of HTML have prefixes, which HTML must not contain.
        parts: list[str] = []
        end = 0
        for lines in self._html:
            for (_, first), (last, _) in itertools.pairwise(lines):
                parts += [self._text[end:first], " " * (last - first)]
                end = last
        text = "".join([*parts, self._text[end:]])
        for lines in self._html[:-1]:
            start, end = lines[0][0], lines[-1][1]
            pieces = read_html(text, start, end)
            self._blocks += build_blocks(text, pieces, start=start, end=end)
        return sorted(self._blocks, key=lambda block: block.start)

    def _read_element(self, value: Any, start: int, end: int, *, is_start: bool) -> None:
        name = value if isinstance(value, str) else next(iter(value))
        length = _LENGTHS.get(name)
        if length is None:
            self._end_run(is_code=name == "CodeBlock" and not is_start)
        elif name in ("Link", "Image"):
            end = self._trim(end)
            if is_start:
                self._open_link(value[name], start, end, length=length)
            else:
                self._close_link(end)
        else:
            end = self._trim(end)
            first, last = (start, start + length) if is_start else (end - length, end)
            if self._text.startswith("~", start) and not self._text.startswith("~~", start):
                self._extend(first, last)  # "~5 to 6~" is no formatting
            else:
                self._add(Piece(first, last, Role.OPEN if is_start else Role.CLOSE))

    def _trim(self, end: int) -> int:
        """Return the end without the white space after the last element of a heading."""
        while self._text[end - 1].isspace():
            end -= 1
        return end

    def _end_run(self, *, is_code: bool = False) -> None:
        """Build the blocks of the current run, unless it is code."""
        if self._html[-1]:
            self._html.append([])
        if self._start is not None and not is_code:
            pieces = _add_bars(self._text, self._pieces, self._start, self._end)
            self._blocks += build_blocks(self._text, pieces, start=self._start, end=self._end)
        self._start, self._pieces, self._break = None, [], None

    def _add(self, piece: Piece) -> None:
        self._extend(piece.start, piece.end)
        self._pieces.append(piece)

    def _extend(self, start: int, end: int) -> None:
        """Extend the current run by an element."""
        if self._start is None:
            self._start = start
        elif self._break:
            self._pieces.append(Piece(self._end, start, self._break))
        self._break = None
        self._end = max(self._end, end)

    def _read_text(self, start: int, end: int) -> None:
        if start > self._end and self._text[start - 1] == "\\":
            self._add(Piece(start - 1, start + 1, Role.CODE))
        self._extend(start, end)

    def _read_tag(self, start: int, end: int) -> None:
        tag = next(iter(read_html(self._text, start, end, has_content=False)), None)
        piece = tag or Piece(start, end, Role.VOID)
        # A value with a line break can contain the prefix of its line.
        values = tuple(each for each in piece.attributes if "\n" not in self._text[slice(*each)])
        self._add(piece._replace(start=start, end=end, attributes=values))

    def _open_link(self, link: Mapping[str, str], start: int, end: int, *, length: int) -> None:
        self._links.append(link)
        if link["link_type"] in ("Autolink", "Email"):
            self._add(Piece(start, end, Role.CODE))
        else:
            self._add(Piece(start, start + length, Role.OPEN))

    def _close_link(self, end: int) -> None:
        link = self._links.pop()
        kind = link["link_type"]
        if kind in ("Autolink", "Email"):
            return
        start = self._text.index("]", self._end)
        end += len("[]") if kind == "Collapsed" else 0
        # A translated text is no longer the label of the definition, so the end names the label.
        written = f"][{link['id']}]" if kind in ("Collapsed", "Shortcut") else ""
        values: tuple[tuple[int, int], ...] = ()
        before = _BEFORE_TITLE.match(self._text, start, end)
        if before and link["title"].strip():
            last = before.end() + len(self._text[before.end() : end - 1].rstrip(_SPACE)) - 1
            values = ((before.end(), last),) if "\n" not in self._text[before.end() : last] else ()
        self._add(Piece(start, end, Role.CLOSE, attributes=values, written=written))


def _add_bars(text: str, pieces: list[Piece], start: int, end: int) -> list[Piece]:
    """Add the bars of lines that look like the rows of a table without a head."""
    if not text.startswith("|", start):
        return pieces
    lines = [line.strip(_SPACE) for line in text[start:end].split("\n")]
    if lines[0].count("|") < 3 or not all(map(_ROW.fullmatch, lines)):
        return pieces
    bars = [Piece(bar.start(), bar.end(), None) for bar in _BAR.finditer(text, start, end)]
    disjoint: list[Piece] = []
    for piece in sorted([*pieces, *bars], key=lambda piece: (piece.start, -piece.end)):
        if not disjoint or piece.start >= disjoint[-1].end:
            disjoint.append(piece)
    return disjoint
