"""Charts by Matplotlib as SVG in the colors of the page, light and dark.

Matplotlib draws with placeholder colors, which are replaced by the page's variables.
"""

from __future__ import annotations

import functools
import io
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator

from model.inspection.blocks import (
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Bars,
    Curves,
    HeatMap,
    Histograms,
    Line,
)
from pipelines.reports.html import Html, element

_INK, _LINE = "#010101", "#020202"
_SERIES = [f"#0303{number:02x}" for number in range(6)]
_VARIABLES = {
    _INK: "var(--ink)",
    _LINE: "var(--line)",
    **{color: f"var(--series-{number})" for number, color in enumerate(_SERIES)},
}
_WIDTH = 5.2  # inches of 72 units each: a phone is 5 inches wide
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "tt", "font.size": 11, "figure.dpi": 72,
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _LINE, "xtick.color": _INK,
    "ytick.color": _INK, "grid.color": _LINE, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False,
    "axes.formatter.useoffset": False,
}  # fmt: skip
_MOST = {PERCENT: 1.0, SCORE: 100.0}
_LEAST_SPAN = 0.02  # of an axis, as a share of the most
_STEPS = [1, 2, 5, 10]  # between ticks, and times a power of ten
_STYLES = (("-", "solid"), ("--", "dashed"), (":", "dotted"))  # Matplotlib's and CSS's
_numbers = itertools.count()


def draw(block: Bars | Curves | HeatMap | Histograms) -> Iterator[Html]:
    """Yield the charts of a block; curves from number 6 on are dashed or dotted."""
    match block:
        case Curves(x_label, lines, marks):
            charts: dict[str, list[Line]] = {}
            for line in lines:
                charts.setdefault(line.chart, []).append(line)
            for title, own in charts.items():
                draw_on = functools.partial(_draw_lines, own, x_label, marks)
                yield _figure(title, draw_on, legend=[(line.name, line.number) for line in own])
        case Histograms(title, series, _):
            legend = [(name, number) for number, (name, _) in enumerate(series)]
            draw_on = functools.partial(_draw_histograms, block)
            yield _figure(title, draw_on, legend=legend if len(legend) > 1 else ())
        case Bars(title, counts, _):
            draw_on = functools.partial(_draw_bars, block)
            yield _figure(title, draw_on, height=1.0 + 0.3 * len(counts))
        case HeatMap(title, _, _, _):
            yield _figure(title, functools.partial(_draw_heat_map, block), height=3.4)


def _draw_lines(lines: Sequence[Line], x_label: str, marks: Sequence[float], axes: Any) -> None:
    scale = lines[0].scale
    for line in lines:
        axes.plot(
            line.x, line.y, _style(line.number)[0], color=_color(line.number), linewidth=1.8,
            marker="o" if len(line.x) < 2 else "", clip_on=False,
        )  # fmt: skip
    for mark in marks:
        axes.axvline(mark, color=_INK, linewidth=0.9, linestyle=":")
    if scale == PERCENT:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:,.3g}%")
    elif scale == LOGARITHMIC:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(_logarithmic_ticks(*axes.get_ylim()))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.yaxis.set_minor_locator(NullLocator())
    if scale in _MOST:
        axes.set_ylim(_within(*axes.get_ylim(), most=_MOST[scale]))
    axes.set_xlabel(x_label)


def _within(low: float, high: float, *, most: float) -> tuple[float, float]:
    """Return the ends of an axis between 0 and a most, not too close to each other.

    >>> _within(94.5, 105.5, most=100), _within(20, 20.5, most=100)
    ((94.5, 100), (19.25, 21.25))
    """
    wider = max(0.0, _LEAST_SPAN * most - (high - low)) / 2
    return max(0.0, low - wider), min(most, high + wider)


def _logarithmic_ticks(low: float, high: float) -> Locator:
    """Return ticks at 1, 2 and 5 times powers of ten, or at equal steps within one such power."""
    if high < 10 * low:
        return MaxNLocator(5, steps=_STEPS)
    return LogLocator(subs=_STEPS[:-1] if high < 1000 * low else (1,))


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


def _draw_heat_map(block: HeatMap, axes: Any) -> None:
    axes.imshow(
        block.values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest"
    )
    axes.grid(visible=False)
    axes.set_xlabel(block.x_label)
    axes.set_ylabel(block.y_label)


def _color(number: int) -> str:
    return _SERIES[number % len(_SERIES)]


def _style(number: int) -> tuple[str, str]:
    return _STYLES[number // len(_SERIES) % len(_STYLES)]


def _figure(
    title: str,
    draw_on: Callable[[Any], None],
    *,
    legend: Sequence[tuple[str, int]] = (),
    height: float = 2.7,
) -> Html:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw_on(figure.add_subplot())
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
    return element("figure", element("figcaption", *caption), _themed(output.getvalue(), title))


def _themed(svg: str, title: str) -> Html:
    """Return Matplotlib's SVG with the page's colors and font, and with unique ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", svg)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    prefix = f"chart{next(_numbers)}-"

    def own(found: re.Match[str]) -> str:
        return f' id="{prefix}{found[1]}"' if found[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', own, svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}", svg)
    label = str(element("i", role="img", aria_label=title))[2:-5]
    return Html(svg.replace("<svg", f"<svg{label}", 1))
