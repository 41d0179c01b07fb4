"""Tables, bars and texts on a terminal, by rich."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from model.summaries.histograms import Histogram
from model.summaries.vocabularies import VocabularySummary
from pipelines.runners.formatting import as_read

_PLAIN_WIDTH = 120  # columns, where there is no terminal
_BAR = 30  # columns of the longest bar
_ROWS = 16  # bars of a histogram
_COUNTED = ("tokens", "characters")  # units of whole numbers: a bin ends before its upper edge


def plain(text: str) -> Text:
    """Returns a text as it is read: what a terminal would take for a command is shown."""
    return Text(as_read(text))


class _WithoutPadding:
    """A text file whose lines end where their text does: rich fills them up to their width."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(re.sub(r" +(?=\n)", "", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def make_console() -> Console:
    """Returns a console on stdout that takes texts as they are: no markup, no colours."""
    is_terminal = sys.stdout.isatty()
    file: Any = sys.stdout if is_terminal else _WithoutPadding(sys.stdout)
    width = None if is_terminal else _PLAIN_WIDTH
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


def print_heading(console: Console, heading: str) -> None:
    """Prints the heading of a section."""
    console.print()
    console.print(Text(heading, style="bold"))


def print_facts(console: Console, facts: Iterable[tuple[str, object]]) -> None:
    """Prints names and values, a line each; what is None or "" is left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value not in (None, ""):
            table.add_row(Text(name, style="dim"), plain(str(value)))
    console.print(table)


def print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table; columns whose values are all numbers are set to the right."""
    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, name in enumerate(columns):
        is_number = all(isinstance(row[place], int | float) for row in cells)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(plain(_show(value)) for value in row))
    console.print(table)


def print_histogram(console: Console, name: str, histogram: Histogram | None) -> None:
    """Prints a histogram as bars, neighbouring bins together where there are many."""
    if histogram is None or not histogram.total:
        return
    console.print(Text(f"{name} ({histogram.unit}), median {histogram.quantile(0.5):.3g}"))
    merged = histogram.merged(_ROWS)
    table = Table.grid(padding=(0, 2))
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify)  # type: ignore[arg-type]
    for (low, high), count in zip(itertools.pairwise(merged.edges), merged.counts, strict=True):
        length = round(_BAR * count / max(merged.counts))
        bar = "█" * length if length or not count else "▏"
        last = high - 1 if histogram.unit in _COUNTED else high
        name = _edge(low) if last == low else f"{_edge(low)} to {_edge(last)}"
        table.add_row(Text(name), Text(f"{count:,}"), Text(bar))
    console.print(table)


def _edge(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_vocabularies(console: Console, vocabularies: Sequence[VocabularySummary]) -> None:
    """Prints what tokens vocabularies have; of none, nothing."""
    if vocabularies:
        print_heading(console, "Vocabulary")
    for each in vocabularies:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in each.kinds.items())
        print_facts(
            console,
            [
                (each.side, f"{each.size:,} tokens ({each.type}){_padding(each)}, {each.file}"),
                ("kinds", kinds),
                ("begin a word", f"{each.word_starts:,}"),
                ("longest", " ".join(each.longest)),
                ("given", " ".join(each.given)),
                ("normalisation", ", ".join(f"{k} {v}" for k, v in each.normalization.items())),
            ],
        )


def _padding(vocabulary: VocabularySummary) -> str:
    """Says how many tokens only fill a vocabulary up; as in `tt preprocess`, they count."""
    empty = vocabulary.size - vocabulary.tokens
    return f", {empty:,} of them empty, to fill it up" if empty else ""


def show_bytes(count: int) -> str:
    """Returns a number of bytes for people.

    >>> show_bytes(8_140_221), show_bytes(512)
    ('8.1 MB', '512 bytes')
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _show(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
