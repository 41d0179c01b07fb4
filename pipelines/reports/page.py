"""Blocks as HTML, and the page around them, which loads nothing from elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from model.inspection.blocks import (
    Bars,
    Curves,
    Facts,
    Folded,
    HeatMap,
    Histograms,
    Lines,
    Note,
    Section,
    Table,
    Texts,
    given_facts,
    show,
)
from pipelines.reports import charts
from pipelines.reports.html import Html, element, join
from pipelines.runners.formatting import begin_of

_HERE = Path(__file__).parent
_LONG = 24  # characters of a cell that needs room
_NARROW = 3  # columns that fit on a phone
_MOST = 4_000  # characters of a cell: a page may show a text several times
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_CHARTS = (Bars, Curves, HeatMap, Histograms)


def page(*, title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return a whole page that includes its style and its script."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        Html(f"<style>{(_HERE / 'page.css').read_text('utf-8')}</style>"),
    )
    links = (element("a", each.title, href=f"#{each.anchor}") for each in sections)
    body = element(
        "body",
        element("header", element("h1", title), element("p", lead), element("nav", *links)),
        element("main", *map(_section, sections)),
        Html(f"<script>{(_HERE / 'page.js').read_text('utf-8')}</script>"),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _section(section: Section) -> Html:
    heading = element("h2", section.title)
    return element("section", heading, render(section.blocks), id=section.anchor)


def render(blocks: Iterable[Any]) -> Html:
    """Return blocks one below the other, and neighboring charts side by side."""
    parts: list[Html] = []
    for is_chart, group in itertools.groupby(blocks, lambda block: isinstance(block, _CHARTS)):
        if is_chart:
            figures = [figure for block in group for figure in charts.draw(block)]
            parts.append(element("div", *figures, class_="charts"))
        else:
            parts += map(_render, group)
    return join(parts)


def _render(block: Any) -> Html:
    match block:
        case Facts(rows):
            facts = given_facts(rows)
            return element(
                "dl", *(element("div", element("dt", k), element("dd", v)) for k, v in facts)
            )
        case Table(header, rows) | Texts(header, rows):
            return _table(header, rows)
        case Note(text):
            return element("p", text, class_="note")
        case Lines(lines):
            return element("pre", "\n".join(lines))
        case Folded(title, blocks):
            return _details(title, render(blocks))
    assert isinstance(block, Html), block
    return block


def _table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table with numbers at the right.

    On a phone, each row of many cells becomes a block with a line per cell.
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
        return element("td", _details(begin, shown), class_="long", **label)
    return element("td", text, **({"class_": "long"} if len(text) > _LONG else {}), **label)


def _details(summary: str, content: object) -> Html:
    return element("details", element("summary", summary), content)
