"""Find the regions of Markdown: CommonMark with tables, strikethrough and task lists.

`markdown-it-py` parses the text. The parser knows the lines of blocks, but not the positions of
formatting in a line. This module therefore wraps the parser's rules: each rule also stores
positions in the `meta` of the tokens that it creates.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from markdown_it import MarkdownIt, rules_block, rules_inline
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from tt.pipelines.texts.html_regions import read_html
from tt.pipelines.texts.regions import Piece, Region, Role, add_breaks, build_regions

_BlockRule = Callable[[StateBlock, int, int, bool], bool]
_InlineRule = Callable[[StateInline, bool], bool]

_BLOCK_RULES: dict[str, _BlockRule] = {
    "table": rules_block.table,
    "html_block": rules_block.html_block,
    "heading": rules_block.heading,
    "lheading": rules_block.lheading,
    "paragraph": rules_block.paragraph,
}
_INLINE_RULES: dict[str, _InlineRule] = {
    "newline": rules_inline.newline,
    "escape": rules_inline.escape,
    "backticks": rules_inline.backtick,
    "strikethrough": rules_inline.strikethrough.tokenize,
    "emphasis": rules_inline.emphasis.tokenize,
    "link": rules_inline.link,
    "image": rules_inline.image,
    "autolink": rules_inline.autolink,
    "html_inline": rules_inline.html_inline,
}
_CHAINS = ("paragraph", "reference", "blockquote", "list")  # of block rules

_DELIMITERS = {"em_open", "em_close", "s_open", "s_close", "strong_open", "strong_close"}
# CommonMark accepts "[Ann]: Hello" as a definition. Here, a definition
# needs a destination that looks like a URL or a path.
_DEFINITION = re.compile(r"\[(?:[^\[\]\\]|\\.)*\]:\s*(?:<|\S*(?:[/#:]|\.\w))", re.DOTALL)
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_INDENT = " \t"
_SPACE = " \t\n"
_ROW = re.compile(r"\|(?:[^|\n]*\|)+[ \t]*")  # a line with at least one cell


def find_markdown_regions(text: str, *, start: int = 0) -> list[Region]:
    r"""Return the regions of Markdown.

    Args:
      text: The whole text.
      start: Index of the first character to search, at the start of a line.

    >>> [region[:2] for region in find_markdown_regions("# One\n\n- two")]
    [(2, 5), (9, 12)]
    """
    # The parser also replaces these characters, but it does not report how the positions change.
    found = re.finditer("\r\n", text[start:])
    removed = [each.start() - i for i, each in enumerate(found)]
    source = text[start:].replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    regions = [region for block in _find_blocks(source) for region in block]
    if not removed and not start:
        return regions
    return [_move_region(region, removed, start) for region in regions]


def _move_region(region: Region, removed: Sequence[int], shift: int) -> Region:
    """Move a region to its position in the text with carriage returns."""

    def move(position: int) -> int:
        return position + bisect.bisect_left(removed, position) + shift

    marks = tuple(
        mark._replace(
            start=move(mark.start),
            end=move(mark.end),
            attributes=tuple((move(start), move(end)) for start, end in mark.attributes),
        )
        for mark in region.marks
    )
    return region._replace(start=move(region.start), end=move(region.end), marks=marks)


def _find_blocks(source: str) -> Iterator[list[Region]]:
    """Return the regions of each paragraph, heading, table cell and HTML block."""
    tokens = _build_parser().parse(source)
    column = 0
    for i, token in enumerate(tokens):
        if token.type == "tr_open":
            column = 0
        if token.type == "html_block":
            places = _locate_lines(source, token)
            yield _build(source, token, places, read_html(token.content, 0, len(token.content)))
        elif token.type == "inline":
            if tokens[i - 1].type in ("th_open", "td_open"):
                places = _locate_cell(source, token, column)
                column += 1
            else:
                places = _locate_lines(source, token)
            pieces = _read_inline(token, is_item=tokens[i - 2].type == "list_item_open")
            yield _build(source, token, places, pieces)


@functools.cache
def _build_parser() -> MarkdownIt:
    """Create a parser whose tokens contain positions."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # URLs stay as they are, so the parser need not check them.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    ruler = parser.block.ruler
    chains = {chain: ruler.getRules(chain) for chain in _CHAINS}
    for name, rule in _BLOCK_RULES.items():
        names = [chain for chain, rules in chains.items() if rule in rules]
        ruler.at(name, _with_lines(rule), {"alt": names})
    ruler.at("reference", _accept_definition)
    for name, inline_rule in _INLINE_RULES.items():
        parser.inline.ruler.at(name, _with_positions(inline_rule))
    return parser


def _accept_definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Run the rule of definitions, unless the destination is a word."""
    position = state.bMarks[start] + state.tShift[start]
    if not state.src.startswith("[", position) or not _DEFINITION.match(state.src, position):
        return False
    return rules_block.reference(state, start, end, silent)


def _with_lines(rule: _BlockRule) -> _BlockRule:
    """Wrap a block rule to store the start and the end of each line in its tokens."""

    def run(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        count = len(state.tokens)
        if not rule(state, start, end, silent):
            return False
        for token in state.tokens[count:]:
            if token.map and token.type in ("inline", "html_block"):
                token.meta["lines"] = [
                    (state.bMarks[line] + state.tShift[line], state.eMarks[line])
                    for line in range(*token.map)
                ]
        return True

    return run


def _with_positions(rule: _InlineRule) -> _InlineRule:
    """Wrap an inline rule to store the positions of its tokens."""

    def run(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        tokens = [] if silent else state.tokens[count : count + 2]
        # The first token may be the text before the match.
        token = next((token for token in tokens if token.type != "text"), None)
        if token is None:
            _locate_delimiters(state, start, count)
        else:
            token.meta["position"] = start, state.pos
            if token.type == "image":
                label_end = start + len("![") + len(token.content)
                token.meta["title"] = _find_title(state, label_end)
                token.meta["written"] = _name_label(state, start + len("!["), label_end)
            elif token.type == "link_open" and token.markup != "autolink":
                label_end = state.md.helpers.parseLinkLabel(state, start, True)
                state.tokens[-1].meta["position"] = label_end, state.pos
                state.tokens[-1].meta["title"] = _find_title(state, label_end)
                state.tokens[-1].meta["written"] = _name_label(state, start + 1, label_end)
        return True

    return run


def _locate_delimiters(state: StateInline, start: int, count: int) -> None:
    """Store the positions of the last tokens, which are text such as "*"."""
    end = state.pos
    for token in reversed(state.tokens[count:]):
        if end <= start:
            return
        token.meta["position"] = end - len(token.content), end
        end -= len(token.content)


def _find_title(state: StateInline, label_end: int) -> tuple[tuple[int, int], ...]:
    """Return start and end of a link's title, for `Mark.attributes`."""
    source, end, helpers = state.src, state.pos, state.md.helpers
    if not source.startswith("](", label_end) or label_end + 2 >= end:
        return ()
    start = _skip(source, label_end + len("]("), end)
    destination = helpers.parseLinkDestination(source, start, end)
    if not destination.ok:
        return ()
    start = _skip(source, destination.pos, end)
    title = helpers.parseLinkTitle(source, start, end)
    is_found = title.ok and title.pos < end and "\n" not in source[start : title.pos]
    return ((start + 1, title.pos - 1),) if is_found and title.str.strip() else ()


def _name_label(state: StateInline, start: int, end: int) -> str:
    """Return the end of a translated link such as "[text]" or "[text][]", or "" for other links.

    A translated text is no longer the label of the link's definition, so the end names the label.
    """
    is_label = state.src[end : state.pos] in ("]", "][]")
    return f"][{' '.join(state.src[start:end].split())}]" if is_label else ""


def _skip(source: str, start: int, end: int) -> int:
    while start < end and source[start] in _SPACE:
        start += 1
    return start


def _read_inline(token: Token, *, is_item: bool) -> list[Piece]:
    """Return the pieces of a paragraph, with positions in its content."""
    content = token.content
    pieces = sorted(_read_tokens(token.children or [], content, 0), key=lambda piece: piece.start)
    if is_item and (box := _TASK.match(content)):
        pieces.insert(0, Piece(0, box.end(), None))
    lines = [line.strip(_INDENT) for line in content.split("\n")]
    if lines[0].count("|") > 2 and all(map(_ROW.fullmatch, lines)):
        bars = [Piece(bar.start(), bar.end(), None) for bar in re.finditer(r"(?<!\\)\|", content)]
        pieces = sorted(pieces + bars, key=lambda piece: (piece.start, -piece.end))
    disjoint: list[Piece] = []
    for piece in pieces:
        if not disjoint or piece.start >= disjoint[-1].end:
            disjoint.append(piece)
    return disjoint


def _read_tokens(tokens: Sequence[Token], content: str, shift: int) -> Iterator[Piece]:
    for token in tokens:
        if "position" not in token.meta:
            continue
        start, end = (position + shift for position in token.meta["position"])
        attributes = tuple(
            (first + shift, last + shift) for first, last in token.meta.get("title", ())
        )
        written = token.meta.get("written", "")
        if token.type in _DELIMITERS:
            # The parser joins two delimiters to "**" in the inner one of its two tokens.
            if token.type == "strong_open":
                start -= 1
            elif token.type == "strong_close":
                end += 1
            yield Piece(start, end, Role.OPEN if token.nesting > 0 else Role.CLOSE)
        elif token.type == "code_inline" or token.markup == "autolink":
            yield Piece(start, end, Role.CODE)
        elif token.type == "link_open":
            yield Piece(start, start + len("["), Role.OPEN)
        elif token.type == "link_close":
            yield Piece(start, end, Role.CLOSE, attributes=attributes, written=written)
        elif token.type == "image":
            first = start + len("![")
            yield Piece(start, first, Role.OPEN)
            yield from _read_tokens(token.children or [], content, first)
            close = first + len(token.content)
            yield Piece(close, end, Role.CLOSE, attributes=attributes, written=written)
        elif token.type == "hardbreak":
            while content[start - 1] == " ":
                start -= 1
            yield Piece(start, end, Role.VOID)
        elif token.type == "html_inline":
            tags = read_html(content, start, end, has_content=False)
            yield from tags or [Piece(start, end, Role.VOID)]


class _Places(NamedTuple):
    """A map from positions in a token's content to positions in the source."""

    starts: list[int]  # where each part starts in the content
    sources: list[int]  # where each part starts in the source

    def move(self, position: int) -> int:
        """Return the position in the source of a position in the content."""
        i = max(0, bisect.bisect_right(self.starts, position) - 1)
        return self.sources[i] + position - self.starts[i]


def _locate_lines(source: str, token: Token) -> _Places | None:
    """Return where the lines of a token are in the source, after list marks and indentation.

    The parts start after the indentation, because a tab in the source can be several spaces in the
    content.
    """
    lines = iter(token.meta["lines"])
    places = _Places([], [])
    start = 0
    for text in token.content.split("\n"):
        core = text.lstrip(_INDENT)
        # The parser removes lines of form feeds before the first line.
        skipped = 1 if places.starts else None
        found = next(
            (
                (first, source.find(core, first, last))
                for first, last in itertools.islice(lines, skipped)
                if places.starts or core in source[first:last]
            ),
            None,
        )
        if found is None or (places.starts and found[0] != found[1]):
            # Only the end of an HTML block has no line in the source.
            return places if places.starts and not core else None
        places.starts.append(start + len(text) - len(core))
        places.sources.append(found[1])
        start += len(text) + 1
    return places


def _locate_cell(source: str, token: Token, column: int) -> _Places | None:
    r"""Return where the parts of a table cell are in the source, which has "\|" instead of "|"."""
    start, end = token.meta["lines"][0]
    start += len(source[start:end]) - len(source[start:end].lstrip())
    columns = _find_columns(source[start:end].rstrip())
    if column >= len(columns) or not token.content:
        return None
    first, last = columns[column]
    opening = token.content[0].replace("|", r"\|")
    first = source.find(opening, start + first, start + last)
    if first < 0:
        return None
    places = _Places([0], [first])
    escaped = [found.start() for found in re.finditer(r"\\\|", source[first : start + last])]
    for i, position in enumerate(escaped):
        places.starts.append(position - i)
        places.sources.append(first + position + 1)
    return places


@functools.lru_cache(maxsize=8)  # `_locate_cell` needs the columns of a row for each of its cells
def _find_columns(row: str) -> list[tuple[int, int]]:
    """Return the start and the end of each cell in a row of a table."""
    bars = [bar.start() for bar in re.finditer(r"(?<!\\)\|", row)]
    columns = list(zip([0, *(bar + 1 for bar in bars)], [*bars, len(row)], strict=True))
    return columns[1:] if row.startswith("|") else columns


def _build(
    source: str, token: Token, places: _Places | None, pieces: Sequence[Piece]
) -> list[Region]:
    """Return the regions of a token at their positions in the source."""
    if places is None:
        return []
    content = token.content

    def move_end(end: int) -> int:
        # A line break ends where the next line starts.
        is_break = content[end - 1 : end].isspace() and end < len(content)
        return places.move(end) if is_break else places.move(end - 1) + 1

    moved = [
        piece._replace(
            start=places.move(piece.start),
            end=move_end(piece.end),
            attributes=tuple(
                (places.move(start), move_end(end))
                for start, end in piece.attributes
                if "\n" not in content[start:end]
            ),
        )
        for piece in pieces
    ]
    return build_regions(
        source,
        add_breaks(moved, _find_breaks(source, token.meta["lines"])),
        start=places.sources[0],
        end=move_end(len(content.rstrip())),
    )


def _find_breaks(source: str, lines: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return the line breaks with spaces or prefixes around the line feed."""
    for (first, end), (start, _) in itertools.pairwise(lines):
        while end > first and source[end - 1] in _INDENT:
            end -= 1
        if source[end:start] != "\n":
            yield end, start
