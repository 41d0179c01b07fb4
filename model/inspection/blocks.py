"""The parts of a summary: sections of blocks, which a terminal and a web page can display."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_MOST_LENGTHS = 0.999  # share of the lengths that are inside the bins
LINEAR, LOGARITHMIC = "linear", "logarithmic"  # scales of a curve's values
PERCENT, SCORE = "percent", "score"  # scales from 0 to 1, and from 0 to 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of values in adjacent bins.

    Attributes:
      unit: Unit of the values, such as "tokens".
      edges: Edges of the bins, one more than bins. A bin includes its lower edge.
      counts: Number of values in each bin.
    """

    unit: str
    edges: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: npt.ArrayLike, *, edges: Sequence[float], unit: str) -> Histogram:
        """Return a histogram of values; values beyond the edges count in the outermost bins.

        >>> Histogram.of([1, 2, 7, 99], edges=[0, 5, 10], unit="words").counts
        [2, 2]
        """
        inside = np.clip(np.asarray(values, np.float64), edges[0], edges[-1])
        counts, _ = np.histogram(inside, bins=np.asarray(edges, np.float64))
        return cls(unit=unit, edges=[float(edge) for edge in edges], counts=counts.tolist())

    @property
    def median(self) -> float:
        """The median of the values, interpolated within a bin.

        >>> Histogram(unit="tokens", edges=[0, 8, 16], counts=[4, 12]).median
        10.666666666666666
        """
        up_to = [0, *itertools.accumulate(self.counts)]
        return float(np.interp(up_to[-1] / 2, up_to, self.edges))

    def merged(self, bins: int) -> Histogram:
        """Return a histogram with at most `bins` bins, by merging neighboring bins.

        >>> Histogram(unit="", edges=[0, 1, 2, 3], counts=[4, 5, 6]).merged(2)
        Histogram(unit='', edges=[0, 2, 3], counts=[9, 6])
        """
        at_once = -(-len(self.counts) // bins) or 1
        starts = range(0, len(self.counts), at_once)
        return Histogram(
            unit=self.unit,
            edges=[*(self.edges[start] for start in starts), self.edges[-1]],
            counts=[sum(self.counts[start : start + at_once]) for start in starts],
        )

    def trimmed(self) -> Histogram:
        """Return a histogram without the empty bins at both ends.

        >>> Histogram(unit="", edges=[0, 1, 2, 3], counts=[0, 5, 0]).trimmed().edges
        [1, 2]
        """
        there = np.flatnonzero(self.counts)
        if not there.size:
            return self
        first, last = there[0], there[-1] + 1
        return Histogram(
            unit=self.unit, edges=self.edges[first : last + 1], counts=self.counts[first:last]
        )


def histograms_of_lengths(sides: Sequence[Sequence[int]], *, bins: int) -> list[Histogram]:
    """Return histograms of the lengths of several sides, with the same bins.

    The last bin includes the longest thousandth of each side. Otherwise, a single very long text
    would push all other texts into a few bins.

    Args:
      sides: The lengths of each side in tokens, at least one length per side.
      bins: The maximum number of bins. Their width is a whole number of tokens.

    >>> [each.counts for each in histograms_of_lengths([[2] * 7 + [3], [3, 3, 6]], bins=3)]
    [[8, 0, 0], [2, 0, 1]]
    """
    first = min(map(min, sides))
    last = max(math.ceil(np.quantile(side, _MOST_LENGTHS)) for side in sides)
    width = max(1, math.ceil((last + 1 - first) / bins))
    edges = range(first, last + 1 + width, width)[: bins + 1]
    return [Histogram.of(side, edges=edges, unit="tokens") for side in sides]


class Facts(NamedTuple):
    """Names with their values. A display omits values that are None or empty."""

    rows: Sequence[tuple[str, object]]


class Table(NamedTuple):
    """Rows of short cells."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


class Texts(NamedTuple):
    """Rows with some cells that are long texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


class Bars(NamedTuple):
    """A bar for each name, the first at the top."""

    title: str
    counts: Sequence[tuple[str, int]]
    unit: str


class Histograms(NamedTuple):
    """Histograms of one quantity with their names."""

    title: str
    series: Sequence[tuple[str, Histogram]]
    is_log: bool = False


class Line(NamedTuple):
    """A curve of a chart."""

    chart: str  # title of the chart that the curve belongs to
    name: str
    x: Sequence[float]
    y: Sequence[float]
    number: int = 0  # number of the color, so that a name has the same color in all charts
    scale: str = LINEAR  # scale of the values


class Curves(NamedTuple):
    """Charts of curves over the same quantity."""

    x_label: str
    lines: Sequence[Line]
    marks: Sequence[float] = ()  # positions of vertical lines on the x axis


class Note(NamedTuple):
    """A sentence."""

    text: str


class Lines(NamedTuple):
    """Text whose lines and spaces matter."""

    lines: Sequence[str]


class Folded(NamedTuple):
    """Blocks that a web page shows when the reader opens them."""

    title: str
    blocks: Sequence[Any]


class Section(NamedTuple):
    """Blocks below a heading."""

    anchor: str  # name in the address, unique on the web page
    title: str
    blocks: Sequence[Any]


def options(title: str, values: dict[str, Any]) -> Folded:
    """Return a folded list of options."""
    return Folded(title, [Facts([(name.replace("_", " "), v) for name, v in values.items()])])


def table(items: Iterable[Mapping[str, Any]], fields: str) -> Table:
    """Return a table with a row per item and a column per field.

    Args:
      items: The items.
      fields: Names of fields, separated by spaces. They become the header.

    >>> table([{"name": "a", "is_held_out": True, "read": 5}], "name is_held_out")
    Table(header=['name', 'held out'], rows=[['a', True]])
    """
    names = fields.split()
    rows = [[item[name] for name in names] for item in items]
    return Table([name.removeprefix("is_").replace("_", " ") for name in names], rows)


def as_json(value: Any) -> Any:
    """Return sections and blocks as JSON values, with null for infinity and NaN.

    >>> as_json(Facts([("pairs", 3), ("loss", float("inf"))]))
    {'block': 'facts', 'values': {'pairs': 3, 'loss': None}}
    """
    if isinstance(value, Facts):
        return {"block": "facts", "values": as_json(dict(value.rows))}
    if isinstance(value, Histogram):
        return vars(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"block": type(value).__name__.lower(), **as_json(value._asdict())}
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(as_json, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def languages_of(data: Any) -> str:
    """Return the languages of a dataset manifest or of a model's training data."""
    return f"{data.source_language or '?'} to {data.target_language or '?'}"


def given_facts(rows: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return the facts that have a value, with the values formatted for display."""
    return [(name, show(value)) for name, value in rows if value not in (None, "")]


def show(value: object) -> str:
    """Format a value for display.

    >>> show(12345), show(0.123456), show(True), show(None), show({"min_letters": 1, "a": ["b", 2]})
    ('12,345', '0.1235', 'yes', '–', 'min letters 1, a b, 2')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, dict):
        value = [f"{str(name).replace('_', ' ')} {show(each)}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value)) or "–"
    return "–" if value is None or value == "" else str(value)
