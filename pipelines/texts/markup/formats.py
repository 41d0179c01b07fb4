"""The formats of texts, and how to detect them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from tt.model.text.spans import Span
from tt.pipelines.texts.markup.entities import ENTITY, unescape
from tt.pipelines.texts.markup.html import Html
from tt.pipelines.texts.markup.markdown import Markdown
from tt.pipelines.texts.markup.plain import Plain
from tt.pipelines.texts.markup.regions import NAMES, Block, skip_front_matter


class Format(Protocol):
    """A format of texts.

    Attributes:
      name: The name for users.
      has_marks: Whether texts can have marks, and line breaks inside a sentence.
    """

    name: str
    has_marks: bool

    def find_segments(self, text: str) -> list[Block]:
        """Return the translatable blocks of a text, in order, without overlapping.

        Everything outside the blocks, and every mark inside a block, stays as it is in a
        translation.
        """

    def decode(
        self,
        piece: str,
        spans: Sequence[Span],
        *,
        is_attribute: bool,
        is_known: Callable[[str], bool] = ...,
    ) -> tuple[str, list[Span], dict[str, str]]:
        """Decode the entities of a part of a block; see `entities.decode_entities`."""


AUTO = "auto"
_FORMATS: tuple[Format, ...] = (Plain(), Markdown(), Html())
FORMATS = {each.name: each for each in _FORMATS}
PLAIN, MARKDOWN, HTML = FORMATS

# Every text in Markdown or HTML matches one of these two patterns. Most other texts match neither.
_MAYBE_MARKED = re.compile(r"[<`*_|\n]|\]\(|~~|&[#A-Za-z]")
_MAYBE_BLOCK = re.compile(r" {0,3}[-+#>\[]")

_CELLS = r"\|[ \t](?:[^|\n]*+\|){2,}+[ \t]*\r?$"
_DELIMITER = r"[ \t]*:?-+:?[ \t]*"
_BULLET = r" {0,3}[-*+](?:[ \t]+\[[ xX]\])?[ \t]+"
_WORD = r"[^\W\d_]"
# Both patterns start with a line feed, because a search for a literal character is faster than a
# search for "^".
_BLOCK = re.compile(
    r"\n(?:"
    rf" {{0,3}}#{{1,6}}[ \t]+\S"  # a heading
    r"| {0,3}(?:```|~~~)"
    rf"| {{0,3}}{_CELLS}"
    rf"| {{0,3}}(?:\|(?:{_DELIMITER}\|)+|{_DELIMITER}(?:\|{_DELIMITER})+\|?)[ \t]*\r?$"
    rf"|{_BULLET}(?:[\"'“‘«¿¡(\[*_`~!<]*+{_WORD})"  # "- 5 °C" is no item
    rf"| {{0,3}}(?:>[ \t]*)+(?:[\"'“‘«¿¡(\[*_`~!<]*+{_WORD})"  # "> 5 kg" is no quotation
    r"| {0,3}[^\s=|-][^\n]*+\n {0,3}(?:={3,}|-{3,})[ \t]*\r?$"  # a heading with an underline
    r"| {0,3}\[[^\[\]\n]+\]:[ \t]+<?(?:https?:|mailto:|www\.|\.{0,2}/|#)\S"  # a definition
    r")",
    re.MULTILINE,
)
# `_has_blocks` requires two items, because "3. Oktober" and "1990. I was born" are no items.
_ITEMS = re.compile(r"\n {0,3}[0-9]{1,3}[.)][ \t]+\S")
_LINK = re.compile(
    r"\]\([^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+(?:[ \t]+(?:\"[^\"\n]*+\"|'[^'\n]*+'))?\)"
)
_MAYBE_INLINE = re.compile("[*_`~]")
_INLINE = re.compile(
    # The marks must be outside words: "2**3**4" contains no formatting.
    r"(?<![A-Za-z0-9*])\*{2,3}(?=[^\s*])[^*\n]*+(?<=\S)\*{2,3}(?![A-Za-z0-9*])"
    r"|(?<![A-Za-z0-9`])(?P<quotes>`{1,2})(?!`)[^`\n]++(?P=quotes)(?![A-Za-z0-9`])"
    r"|~~(?=\S)[^~\n]++(?<=\S)~~"
    rf"|(?<![^\s(\"'])\*(?={_WORD})[^*\n]*+(?<=[^\s*])\*(?![^\s.,;:!?)\"'])"
    rf"|(?<![^\s(\"'])_(?={_WORD})[^_\n]*+(?<=[^\s_])_(?![^\s.,;:!?)\"'])"
)
_TAG = re.compile(
    r"<(?P<name>/?[A-Za-z][A-Za-z0-9]{0,9})(?=[\s/>])"
    # Allow only one word without a value, because "if a <b then c> d" contains no tag.
    r"(?:(?P<plain>(?:\s+[^<>\s=]+)?\s*/?>)|(?P<full>[^<>=]*=[^<>]*>))"
    r"|<!--|<!(?i:doctype)\b"
)
_PAGE = re.compile(r"\s*(?:<\?xml|<!doctype\b|<html\b|<head\b|<body\b)", re.IGNORECASE)
_RAW = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<name>pre|script|style|textarea)\b.*?(?:</(?P=name)\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# Names of elements that are also words. "<address>" may be a blank to fill in, so only a closing
# tag or a tag with "=" shows that the text is HTML.
_WORDS = {
    name
    for names in (
        "address article aside audio base body button caption cite code data details dialog figure",
        "font footer form frame head header input label legend link main map mark menu meta meter",
        "object option output param picture progress search section select slot small source style",
        "summary table template text time title track var video",
    )
    for name in names.split()
}


def detect_format(text: str) -> str:
    """Return the format of a text: `MARKDOWN`, `HTML` or `PLAIN`.

    A text with Markdown and tags is Markdown if it has a block of Markdown or a link.

    >>> detect_format("# A *title*"), detect_format("<b>Hi</b>"), detect_format("if a <b then c> d")
    ('markdown', 'html', 'plain')
    """
    if not _MAYBE_MARKED.search(text) and not _MAYBE_BLOCK.match(text):
        return PLAIN
    has_tags = _has_tags(text)
    if has_tags and _PAGE.match(text):
        return HTML
    # Scripts and comments contain lines that look like Markdown.
    prose = _RAW.sub("", text) if has_tags else text
    if _has_blocks(prose):
        return MARKDOWN
    if has_tags:
        return HTML
    return MARKDOWN if _MAYBE_INLINE.search(text) and _INLINE.search(text) else PLAIN


def _has_blocks(text: str) -> bool:
    """Return whether a text has a block of Markdown, or a link."""
    lines = f"\n{text}"
    if _BLOCK.search(lines) or _LINK.search(text) or skip_front_matter(text):
        return True
    return len(_ITEMS.findall(lines)) > 1


def _has_tags(text: str) -> bool:
    """Return whether a text has a tag of HTML, a comment, or an entity such as "&amp;"."""
    if "<" in text:
        for tag in _TAG.finditer(text):
            name = (tag["name"] or "").lower()
            is_certain = tag["name"] is None or "/" in name or tag["full"]
            if is_certain and name.removeprefix("/") in NAMES | {""}:
                return True
            if name in NAMES and name not in _WORDS:
                return True
    return "&" in text and any(unescape(entity[0]) for entity in ENTITY.finditer(text))
