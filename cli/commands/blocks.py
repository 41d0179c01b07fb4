"""Tables, charts and texts on a terminal, drawn with rich."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from tt.model.errors import UserError
from tt.model.inspection.blocks import (
    PERCENT,
    Bars,
    Curves,
    Facts,
    Folded,
    Histogram,
    Histograms,
    Line,
    Lines,
    Note,
    Section,
    Table,
    Texts,
    given_facts,
    show,
)
from tt.pipelines.runners.formatting import as_read, begin_of

_PLAIN_WIDTH = 120  # columns, if the output is not a terminal
_BAR = 30  # columns of the longest bar
_ROWS = 16  # most bars of a histogram
_POINTS = 8  # printed points of a curve
# Units of integers: their bins do not include the upper edge.
_COUNTED = ("tokens", "characters")


def plain(text: str) -> Text:
    """Return a text for rich without style, and with escaped control characters."""
    return Text(as_read(text))


def print_blocks(
    blocks: Iterable[Any], stream: TextIO | None = None, *, most: int | None = None
) -> None:
    """Print blocks or sections with blank lines between them, by default on stdout.

    Args:
      blocks: The blocks.
      stream: The stream to write to.
      most: The maximum number of lines; None for all.

    Raises:
      UserError: stdout is closed.
    """
    stream = stream or sys.stdout
    if stream is None:
        raise UserError("stdout is closed. Redirect it, such as > scores.txt")
    width = None if stream.isatty() else _PLAIN_WIDTH
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        _print_all(console, blocks)
    without_padding = re.sub(r" +(?=\n)", "", captured.get())  # rich fills lines with spaces
    lines = without_padding.splitlines(keepends=True)[:most]
    console.out("".join(lines), end="", highlight=False)


def _print_all(console: Console, blocks: Iterable[Any]) -> None:
    for number, block in enumerate(blocks):
        if number and not isinstance(block, Folded | Section):  # headings have a blank line
            console.print()
        _print(console, block)


def _print(console: Console, block: Any) -> None:
    match block:
        case Facts(rows):
            _print_facts(console, given_facts(rows))
        case Table(header, rows):
            _print_table(console, header, rows)
        case Texts(header, rows):
            for number, row in enumerate(rows):
                if number:
                    console.print()
                facts = given_facts(zip(header, row, strict=True))
                _print_facts(console, [(name, begin_of(text) or text) for name, text in facts])
        case Note(text):
            console.print(plain(text))
        case Lines(lines):
            for line in lines:
                console.print(plain(line))
        case Folded(title, blocks) | Section(_, title, blocks):
            console.print()
            console.print(Text(as_read(title), style="bold"))
            _print_all(console, blocks)
        case Bars(title, counts, _):
            console.print(plain(title))
            _print_bars(console, counts)
        case Histograms(title, series, _):
            for name, histogram in series:
                _print_histogram(console, f"{title}: {name}", histogram)
        case Curves(x_label, lines, _):
            _print_curves(console, x_label, lines)


def _print_facts(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(as_read(name), style="dim"), plain(value))
    console.print(grid)


def _print_table(console: Console, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, with columns of numbers aligned to the right."""
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, name in enumerate(header):
        is_number = all(isinstance(row[place], int | float) for row in rows)
        table.add_column(plain(name), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(show(value)) for value in row))
    console.print(table)


def _print_bars(console: Console, rows: Sequence[tuple[str, float]]) -> None:
    """Print rows of a name and a value as names, values and bars."""
    table = RichTable.grid(padding=(0, 2))
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify)  # type: ignore[arg-type]
    most = max((value for _, value in rows), default=0)
    for name, value in rows:
        length = round(_BAR * value / most) if most else 0
        bar = "█" * length if length or not value else "▏"
        table.add_row(plain(name), Text(show(value)), Text(bar))
    console.print(table)


def _print_histogram(console: Console, title: str, histogram: Histogram) -> None:
    """Print a histogram as bars, after merging adjacent bins into at most `_ROWS`."""
    if not any(histogram.counts):
        return
    console.print(plain(f"{title} ({histogram.unit}), median {histogram.median:.3g}"))
    merged = histogram.merged(_ROWS)
    rows = []
    for (low, high), count in zip(itertools.pairwise(merged.edges), merged.counts, strict=True):
        last = high - 1 if histogram.unit in _COUNTED else high
        name = _edge(low) if last == low else f"{_edge(low)} to {_edge(last)}"
        rows.append((name, count))
    _print_bars(console, rows)


def _edge(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _print_curves(console: Console, x_label: str, lines: Sequence[Line]) -> None:
    """Print some points of curves: bars for a single curve, otherwise one table per name.

    A table has one column per chart.
    """
    for name in dict.fromkeys(line.name for line in lines):
        own = [line for line in lines if line.name == name]
        points = {line.chart: dict(zip(line.x, line.y, strict=True)) for line in own}
        xs = sorted({x for line in own for x in line.x})
        count = min(_POINTS, len(xs))
        chosen = {xs[round(i * (len(xs) - 1) / max(count - 1, 1))] for i in range(count)}
        if len(lines) == 1:
            [values] = points.values()
            chosen.add(max(values, key=lambda x: values[x]))
            _print_bars(console, [(show(x), values[x]) for x in sorted(chosen)])
            return
        console.print(plain(f"{name}:"))
        rows = [
            [x, *(_value(line, points[line.chart].get(x)) for line in own)] for x in sorted(chosen)
        ]
        _print_table(console, [x_label, *points], rows)


def _value(line: Line, value: float | None) -> object:
    return f"{value:.1%}" if value is not None and line.scale == PERCENT else value
