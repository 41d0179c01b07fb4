"""Find the translatable regions of a text in Markdown or HTML.

Everything outside the regions, and every mark inside a region, stays as it is in a translation.
"""

from __future__ import annotations

import html
import re

from tt.pipelines.texts.html_regions import find_html_regions
from tt.pipelines.texts.markdown_regions import find_markdown_regions
from tt.pipelines.texts.regions import ENTITY, NAMES, Region

PLAIN, MARKDOWN, HTML, AUTO = "plain", "markdown", "html", "auto"
FORMATS = (AUTO, PLAIN, MARKDOWN, HTML)

# Every text in Markdown or HTML matches one of these two patterns. Most other texts match neither.
_MAYBE_MARKED = re.compile(r"[<`*_|\n]|\]\(|~~|&[#A-Za-z]")
_MAYBE_BLOCK = re.compile(r" {0,3}[-+#>\[]")

_FRONT_MATTER = re.compile(
    r"\A\ufeff?(?:"
    r"---[ \t]*\r?\n(?=\s*(?:#|[\w\"'.-]+[ \t]*:))(?:.*\n)*?(?:---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?:.*\n)*?\+\+\+"
    r")[ \t]*(?:\r?\n|\Z)"
)
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
    if _BLOCK.search(lines) or _LINK.search(text) or _FRONT_MATTER.match(text):
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
    return "&" in text and any(
        html.unescape(entity[0]) != entity[0] for entity in ENTITY.finditer(text)
    )


def find_regions(text: str, *, format: str) -> list[Region]:  # noqa: A002
    """Return the translatable regions of a text, in order, without overlapping.

    Args:
      text: Text of any length.
      format: `PLAIN`, `MARKDOWN`, `HTML` or `AUTO`. A plain text is one region.

    >>> find_regions("## Hi *you*", format=MARKDOWN)[0][:2]
    (3, 11)
    """
    if format == AUTO:
        format = detect_format(text)  # noqa: A001
    if format == PLAIN:
        return [Region(0, len(text))]
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    if format == HTML:
        return find_html_regions(text, start=start)
    return find_markdown_regions(text, start=start)
