"""The parts of a summary: sections of blocks, which a terminal and a page can display."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from model.inspection.histograms import Histogram

LINEAR, LOGARITHMIC = "linear", "logarithmic"  # scales of a curve's values
PERCENT, SCORE = "percent", "score"  # scales from 0 to 1, and from 0 to 100


class Facts(NamedTuple):
    """Names with their values. A display leaves out values that are None or empty."""

    rows: Sequence[tuple[str, object]]


class Table(NamedTuple):
    """Rows of short cells."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


class Texts(NamedTuple):
    """Rows of which some cells are long texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


class Bars(NamedTuple):
    """A bar for each name, the first at the top."""

    title: str
    counts: Sequence[tuple[str, int]]
    unit: str


class Histograms(NamedTuple):
    """Histograms of one quantity, by their names."""

    title: str
    series: Sequence[tuple[str, Histogram]]
    is_log: bool = False


class Line(NamedTuple):
    """A curve of a chart."""

    chart: str  # title of the chart that the curve belongs to
    name: str
    x: Sequence[float]
    y: Sequence[float]
    number: int = 0  # decides the color, so that a name has the same color in all charts
    scale: str = LINEAR  # of the values


class Curves(NamedTuple):
    """Charts of curves over the same quantity."""

    x_label: str
    lines: Sequence[Line]
    marks: Sequence[float] = ()  # places on the x axis


class HeatMap(NamedTuple):
    """Numbers from -1 to 1 as colors."""

    title: str
    values: npt.NDArray[np.floating]
    x_label: str
    y_label: str


class Note(NamedTuple):
    """A sentence."""

    text: str


class Lines(NamedTuple):
    """Text whose lines and spaces matter."""

    lines: Sequence[str]


class Folded(NamedTuple):
    """Blocks that a page shows when the reader opens them."""

    title: str
    blocks: Sequence[Any]


class Section(NamedTuple):
    """Blocks below a heading."""

    anchor: str  # name in the address of a page, unique there
    title: str
    blocks: Sequence[Any]


def options(title: str, values: dict[str, Any]) -> Folded:
    """Return the options of something, folded."""
    return Folded(title, [Facts([(name.replace("_", " "), v) for name, v in values.items()])])


def table(items: Iterable[Mapping[str, Any]], fields: str) -> Table:
    """Return a table of the named values of items, with the names as its header.

    >>> table([{"name": "a", "is_held_out": True, "read": 5}], "name is_held_out")
    Table(header=['name', 'held out'], rows=[['a', True]])
    """
    names = fields.split()
    rows = [[_cell(name, item[name]) for name in names] for item in items]
    return Table([name.removeprefix("is_").replace("_", " ") for name in names], rows)


def _cell(name: str, value: object) -> object:
    if name in ("process", "thread"):
        return str(value)  # a name, without separators of thousands
    return f"{value:.1%}" if name == "padding" else value


def languages_of(data: Any) -> str:
    """Return the languages of a dataset, or of what a model was trained on."""
    return f"{data.source_language or '?'} to {data.target_language or '?'}"


def given_facts(rows: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return the facts that have a value, with their values for people."""
    return [(name, show(value)) for name, value in rows if value not in (None, "")]


def show(value: object) -> str:
    """Write a value for people.

    >>> show(12345), show(0.123456), show(True), show(None), show({"a": 1})
    ('12,345', '0.1235', 'yes', '–', '{"a": 1}')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False) if value else "–"
    return "–" if value is None or value == "" else str(value)
