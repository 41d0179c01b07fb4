"""Blocks as HTML, charts in the colors of the page, and the page itself.

All texts are escaped, and the page loads nothing from other places. Matplotlib draws the charts in
placeholder colors, which this module replaces by the page's color variables. These variables have
values for light and dark mode.
"""

from __future__ import annotations

import functools
import html
import io
import itertools
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from tt.model.inspection.blocks import (
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Bars,
    Curves,
    Facts,
    Folded,
    Histograms,
    Lines,
    Note,
    Section,
    Table,
    Texts,
    given_facts,
    show,
)
from tt.pipelines.runners.formatting import begin_of

_HERE = Path(__file__).parent
_LONG = 24  # characters; longer cells get more room
_NARROW = 3  # columns that fit on a phone
_LONGEST = 4_000  # characters per cell, because a page may show a text several times
_CHARTS = (Bars, Curves, Histograms)
_INK, _LINE = "#010101", "#020202"
_SERIES = [f"#0303{number:02x}" for number in range(6)]
_VARIABLES = {
    _INK: "var(--ink)",
    _LINE: "var(--line)",
    **{color: f"var(--series-{number})" for number, color in enumerate(_SERIES)},
}
_WIDTH = 5.2  # inches of 72 units each; a phone is 5 inches wide
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "font.size": 11, "figure.dpi": 72,
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _LINE, "xtick.color": _INK,
    "ytick.color": _INK, "grid.color": _LINE, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False,
    "axes.formatter.useoffset": False,
}  # fmt: skip
_MOST = {PERCENT: 1.0, SCORE: 100.0}
_STYLES = (("-", "solid"), ("--", "dashed"), (":", "dotted"))  # the names in Matplotlib and CSS
_numbers = itertools.count()


class Html(str):
    """A string that is HTML. All other strings are escaped."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: str) -> Html:
    """Return an element. Attributes, and children that are not `Html`, are escaped.

    In the names of attributes, "_" becomes "-", and a final "_" is dropped.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Concatenate parts, and escape all parts that are not `Html`."""
    return Html("".join(p if isinstance(p, Html) else html.escape(str(p)) for p in parts))


def script_data(name: str, value: Any) -> Html:
    """Return data for the page's script, escaped so that no text can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def page(*, title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return a complete page, including its style and its script."""
    links = (element("a", each.title, href=f"#{each.anchor}") for each in sections)
    contents = (
        element("section", element("h2", each.title), render(each.blocks), id=each.anchor)
        for each in sections
    )
    files = {name: (_HERE / f"page.{name}").read_text("utf-8") for name in ("html", "css", "js")}
    return string.Template(files.pop("html")).substitute(
        files,
        title=html.escape(title),
        lead=html.escape(lead),
        links=join(links),
        sections=join(contents),
    )


def render(blocks: Iterable[Any]) -> Html:
    """Render blocks below each other, and neighboring charts next to each other."""
    parts: list[Html] = []
    for is_chart, group in itertools.groupby(blocks, lambda block: isinstance(block, _CHARTS)):
        if is_chart:
            figures = [figure for block in group for figure in draw(block)]
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
    """Return a table with right-aligned numbers.

    On a phone, each row of a wide table becomes a block with one line per cell.
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
        shown = text[:_LONGEST]
        if shown != text:
            shown += f" … (cut after {_LONGEST:,} characters)"
        return element("td", _details(begin, shown), class_="long", **label)
    return element("td", text, **({"class_": "long"} if len(text) > _LONG else {}), **label)


def _details(summary: str, content: object) -> Html:
    return element("details", element("summary", summary), content)


def draw(block: Bars | Curves | Histograms) -> Iterator[Html]:
    """Yield the charts of a block; curves after the first six are dashed or dotted."""
    match block:
        case Curves(x_label, lines, marks):
            for title in dict.fromkeys(line.chart for line in lines):
                own = [line for line in lines if line.chart == title]
                legend = [(line.name, line.number) for line in own]
                chart = Curves(x_label, own, marks)
                yield _figure(title, functools.partial(_draw_lines, chart), legend=legend)
        case Histograms(title, series, _):
            legend = [(name, number) for number, (name, _) in enumerate(series)]
            plot = functools.partial(_draw_histograms, block)
            yield _figure(title, plot, legend=legend if len(legend) > 1 else ())
        case Bars(title, counts, _):
            height = 1.0 + 0.3 * len(counts)
            yield _figure(title, functools.partial(_draw_bars, block), height=height)


def _draw_lines(chart: Curves, axes: Any) -> None:
    lines, scale = chart.lines, chart.lines[0].scale
    for line in lines:
        axes.plot(
            line.x, line.y, _style(line.number)[0], color=_color(line.number), linewidth=1.8,
            marker="o" if len(line.x) < 2 else "", clip_on=False,
        )  # fmt: skip
    for mark in chart.marks:
        axes.axvline(mark, color=_INK, linewidth=0.9, linestyle=":")
    if scale == PERCENT:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:,.3g}%")
    elif scale == LOGARITHMIC:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.yaxis.set_minor_locator(NullLocator())
    if scale in _MOST:
        axes.set_ylim(0, min(_MOST[scale], axes.get_ylim()[1]))
    axes.set_xlabel(chart.x_label)


def _draw_histograms(block: Histograms, axes: Any) -> None:
    for number, (_, histogram) in enumerate(block.series):
        color = _color(number)
        axes.stairs(histogram.counts, histogram.edges, color=color, linewidth=1.8)
        axes.stairs(histogram.counts, histogram.edges, color=color, fill=True, alpha=0.2)
    if block.is_log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    elif all(edge == int(edge) for _, each in block.series for edge in each.edges):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(block.series[0][1].unit)
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(bottom=0)


def _draw_bars(block: Bars, axes: Any) -> None:
    names, values = zip(*block.counts, strict=True)
    bars = axes.barh(names, values, color=_color(0))
    axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_xlabel(block.unit)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _color(number: int) -> str:
    return _SERIES[number % len(_SERIES)]


def _style(number: int) -> tuple[str, str]:
    return _STYLES[number // len(_SERIES) % len(_STYLES)]


def _figure(
    title: str,
    plot: Callable[[Any], None],
    *,
    legend: Sequence[tuple[str, int]] = (),
    height: float = 2.7,
) -> Html:
    """Return a chart with a title and a legend; `plot` draws on its axes."""
    # With a salt of its own, a chart has IDs of its own.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"chart{next(_numbers)}"}):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        plot(figure.add_subplot())
        output = io.StringIO()
        figure.savefig(output, format="svg", transparent=True)
    names = [
        element(
            "span",
            name,
            style=f"--colour: var(--series-{number % len(_SERIES)}); --style: {_style(number)[1]}",
        )
        for name, number in legend
    ]
    caption = [title, *([element("div", *names, class_="legend")] if names else [])]
    svg = _themed(output.getvalue(), title)
    return element("figure", element("figcaption", *caption), svg)


def _themed(svg: str, title: str) -> Html:
    """Return Matplotlib's SVG with the page's colors and font, and with unique IDs."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", svg)
    svg = re.sub(r' id="[\w.]+_\d+"', "", svg)  # All charts have these IDs, and none uses them.
    label = str(element("i", role="img", aria_label=title))[2:-5]
    return Html(svg.replace("<svg", f"<svg{label}", 1))
