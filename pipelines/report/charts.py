"""Matplotlib's figures as SVG in the colours of the page, light and dark.

Matplotlib draws in colours that stand for the page's variables; they are put in afterwards.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator

from model.summaries.histograms import Histogram
from pipelines.report.page import Html, element

_INK, _LINE = "#010101", "#020202"
_SERIES = [f"#0303{number:02x}" for number in range(6)]
_VARIABLES = {
    _INK: "var(--ink)",
    _LINE: "var(--line)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
}
_SIZE = (5.2, 2.7)  # inches, of which 72 units each: a phone is 5 wide
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "tt", "font.size": 11, "figure.dpi": 72,
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _LINE, "xtick.color": _INK,
    "ytick.color": _INK, "grid.color": _LINE, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False,
    "axes.formatter.useoffset": False,
}  # fmt: skip
LINEAR, LOGARITHMIC = "linear", "logarithmic"  # scales of a curve's values
PERCENT, SCORE = "percent", "score"  # those from 0 to a most
_MOST = {PERCENT: 1.0, SCORE: 100.0}
_LEAST_SPAN = 0.02  # of an axis, as a share of the most
_STEPS = [1, 2, 5, 10]  # between ticks, and times a power of ten
_STYLES = (("-", "solid"), ("--", "dashed"), (":", "dotted"))
_numbers = itertools.count()


class Line(NamedTuple):
    """A curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    number: int  # chooses its colour, so that the same thing has the same one in all charts


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str = "",
    scale: str = LINEAR,
    marks: Sequence[float] = (),
) -> Html:
    """Returns curves over each other, with a legend; numbers from 6 on are dashed or dotted.

    At each of the `marks` on the x axis a dotted line stands.
    """

    def draw(axes: Any) -> None:
        for line in lines:
            marker = "o" if len(line.x) < 2 else ""
            style = _style(line.number)[0]
            axes.plot(
                line.x, line.y, style, color=_colour(line.number), linewidth=1.8, marker=marker,
                clip_on=False,
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
        axes.set_ylabel(y_label)

    return _figure(title, draw, legend=[(line.name, line.number) for line in lines])


def _within(low: float, high: float, *, most: float) -> tuple[float, float]:
    """Returns the ends of an axis between 0 and a most, not too close to each other.

    >>> _within(94.5, 105.5, most=100), _within(20, 20.5, most=100)
    ((94.5, 100), (19.25, 21.25))
    """
    wider = max(0.0, _LEAST_SPAN * most - (high - low)) / 2
    return max(0.0, low - wider), min(most, high + wider)


def _logarithmic_ticks(low: float, high: float) -> Locator:
    """Returns ticks at 1, 2 and 5 times powers of ten; at equal steps within one such power."""
    if high < 10 * low:
        return MaxNLocator(5, steps=_STEPS)
    return LogLocator(subs=_STEPS[:-1] if high < 1000 * low else (1,))


def histogram_chart(
    title: str, histograms: Sequence[tuple[str, Histogram]], *, x_label: str, is_log: bool = False
) -> Html:
    """Returns histograms over each other, each with its own bins."""

    def draw(axes: Any) -> None:
        for number, (_, histogram) in enumerate(histograms):
            trimmed = histogram.trimmed()
            colour = _colour(number)
            axes.stairs(trimmed.counts, trimmed.edges, color=colour, linewidth=1.8)
            axes.stairs(trimmed.counts, trimmed.edges, color=colour, fill=True, alpha=0.2)
        if is_log:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
        elif all(edge == int(edge) for _, each in histograms for edge in each.edges):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(x_label)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_ylim(bottom=0)

    names = [name for name, _ in histograms]
    legend = [(name, number) for number, name in enumerate(names)] if len(names) > 1 else []
    return _figure(title, draw, legend=legend)


def bar_chart(title: str, counts: Sequence[tuple[str, float]], *, x_label: str) -> Html:
    """Returns a bar for each name, the first at the top."""

    def draw(axes: Any) -> None:
        names, values = [name for name, _ in counts], [value for _, value in counts]
        bars = axes.barh(names, values, color=_colour(0))
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_xlabel(x_label)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")

    size = (_SIZE[0], 1.0 + 0.3 * len(counts))
    return _figure(title, draw, size=size)


def heat_chart(title: str, values: npt.NDArray[np.floating], *, x_label: str, y_label: str) -> Html:
    """Returns numbers from -1 to 1 as colours, which are those of both schemes."""

    def draw(axes: Any) -> None:
        axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)

    return _figure(title, draw, size=(_SIZE[0], 3.4))


def charts(*figures: Html) -> Html:
    """Returns charts side by side, as many as there is room for."""
    return element("div", *figures, class_="charts")


def _colour(number: int) -> str:
    return _SERIES[number % len(_SERIES)]


def _style(number: int) -> tuple[str, str]:
    """Returns Matplotlib's style of a line, and CSS's."""
    return _STYLES[number // len(_SERIES) % len(_STYLES)]


def _figure(
    title: str,
    draw: Any,
    *,
    legend: Sequence[tuple[str, int]] = (),
    size: tuple[float, float] = _SIZE,
) -> Html:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
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
    svg = themed(output.getvalue(), title=title)
    return element("figure", element("figcaption", *caption), svg)


def themed(svg: str, *, title: str) -> Html:
    """Returns Matplotlib's SVG for a page: its colours variables, its ids unlike all others."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", svg)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    prefix = f"chart{next(_numbers)}-"

    def own(found: re.Match[str]) -> str:
        return f' id="{prefix}{found[1]}"' if found[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', own, svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}", svg)
    label = str(element("i", role="img", aria_label=title))[2:-5]
    return Html(svg.replace("<svg", f"<svg{label}", 1))


def as_base64(values: npt.NDArray[np.uint8]) -> str:
    """Returns bytes for the page's script."""
    return base64.b64encode(values.tobytes()).decode()
