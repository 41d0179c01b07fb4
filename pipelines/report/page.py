"""HTML of parts that are escaped, and the page around them, which asks nobody for anything."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from model.errors import DiskFullError, UserError
from model.folders.durable import publish
from pipelines.runners.formatting import begin_of

_HERE = Path(__file__).parent
_VOID = ("meta", "link", "br")
_DECIMALS = 4  # significant digits of a number
_LONG = 24  # characters of a cell that wants room
_NARROW = 3  # columns that find room on a phone
_MOST = 4_000  # characters of a cell: a page may show a text several times


class Html(str):
    """Text that is HTML already; all other text is escaped."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of a page with a heading of its own."""

    anchor: str  # name in the address, unique in the page
    title: str
    body: Html


def element(name: str, /, *children: object, **attributes: str) -> Html:
    """Returns an element; children that are no `Html` are escaped, as are attributes.

    In names of attributes "_" stands for "-", and an ending "_" falls away.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Returns parts one after the other, escaped unless they are `Html`."""
    return Html("".join(p if isinstance(p, Html) else html.escape(str(p)) for p in parts))


def show(value: object) -> str:
    """Writes a value of a table.

    >>> show(12345), show(0.123456), show(True), show(None), show({"a": 1})
    ('12,345', '0.1235', 'yes', '–', '{"a": 1}')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.{_DECIMALS}g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False) if value else "–"
    return "–" if value is None or value == "" else str(value)


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """Returns a table; numbers stand at the right.

    On a phone each row of many cells becomes a block, a line for each cell with its heading.
    """
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    is_narrow = len(header) <= _NARROW
    labels = [{} if is_narrow else {"data_label": str(cell)} for cell in header]
    lines = [element("tr", *map(_cell, row, labels)) for row in rows]
    class_ = "narrow" if is_narrow else "wide"
    inner = element("table", element("thead", head), element("tbody", *lines), class_=class_)
    return element("div", inner, class_="scroll", tabindex="0")


def _cell(value: object, label: Mapping[str, str]) -> Html:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return element("td", show(value), class_="number", **label)
    text = show(value)
    if begin := begin_of(text):
        shown = text if len(text) <= _MOST else f"{text[:_MOST]} … (cut after {_MOST:,} characters)"
        return element("td", details(begin, shown), class_="long", **label)
    return element("td", text, **({"class_": "long"} if len(text) > _LONG else {}), **label)


def facts(rows: Iterable[tuple[str, object]]) -> Html:
    """Returns names with their values."""
    pairs = (element("div", element("dt", k), element("dd", show(v))) for k, v in rows)
    return element("dl", *pairs)


def details(summary: str, *children: object) -> Html:
    """Returns what is shown when its line is opened."""
    return element("details", element("summary", summary), *children)


def script_data(name: str, value: Any) -> Html:
    """Returns data for the page's script; no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def page(*, title: str, lead: str, sections: Sequence[Section]) -> str:
    """Returns a whole page, with style and script inside."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=policy + "img-src data:",
        ),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        Html(f"<style>{(_HERE / 'page.css').read_text('utf-8')}</style>"),
    )
    links = (element("a", each.title, href=f"#{each.anchor}") for each in sections)
    parts = (
        element("section", element("h2", each.title), each.body, id=each.anchor)
        for each in sections
    )
    body = element(
        "body",
        element("header", element("h1", title), element("p", lead), element("nav", *links)),
        element("main", *parts),
        Html(f"<script>{(_HERE / 'page.js').read_text('utf-8')}</script>"),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def check_output(path: str, *, overwrite: bool) -> Path:
    """Checks that a file can be written; its folder must be there.

    Raises:
      UserError: It is there already, is a folder, or lies in no folder.
    """
    if "://" in path:
        raise UserError(f"`output` must be a file of this machine. Received: {path}")
    output = Path(path)
    if output.is_dir():
        raise UserError(f"{output} is a folder: name a file with `output`")
    if output.exists() and not overwrite:
        raise UserError(f"{output} is there already: name another `output`, or `overwrite`")
    if not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent}: make it, or name another `output`")
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"{output.parent} may not be written to: name another `output`")
    return output


def write_whole_file(output: Path, content: bytes) -> None:
    """Writes a file under a temporary name, then renames it into place.

    Raises:
      UserError: It cannot be written.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=output.parent, prefix=".tt.", suffix=".tmp", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        publish(temporary, output)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        kind = DiskFullError if error.errno == 28 else UserError
        reason = error.strerror or error
        raise kind(f"{output} cannot be written ({reason}): name another `output`") from error
