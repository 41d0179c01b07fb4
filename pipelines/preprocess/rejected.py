"""Rejected pairs, each with its reason and its place."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.preprocess.corpora import SourceList
from pipelines.preprocess.spills import Places

PARQUET_END = b"PAR1"  # of every whole `rejected-*.parquet`
_ROWS_AT_ONCE = 1 << 16

# A duplicate has its survivor's place instead of texts. Lines and rows are counted from 1.
REJECTED_SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("corpus", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("survivor_corpus", pa.string()),
        ("survivor_file", pa.string()),
        ("survivor_line", pa.int64()),
    ]
)


class SourceNames:
    """What the sources are called in a `rejected-*.parquet`; each is looked up once."""

    def __init__(self, sources: SourceList) -> None:
        self._sources = sources
        self._found: dict[int, tuple[str, str]] = {}  # name and file by order

    def columns(self, places: Places) -> dict[str, pa.Array]:
        """Returns the columns that say where pairs stand."""
        orders, indices = np.unique(places.orders, return_inverse=True)
        names = [self._look_up(order) for order in orders.tolist()]
        return {
            "corpus": pa.array([name for name, _ in names], pa.string()).take(pa.array(indices)),
            "file": pa.array([file for _, file in names], pa.string()).take(pa.array(indices)),
            "line": pa.array(places.rows + 1),
        }

    def _look_up(self, order: int) -> tuple[str, str]:
        if order not in self._found:
            source = self._sources.source(order)
            self._found[order] = source.name, source.file_of(0)
        return self._found[order]


class Rejections:
    """The pairs of a unit that were left out, each with its reason and its texts as read."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._orders: list[int] = []  # the places of their sources among all sources
        self.rows: list[int] = []  # in their source, from 0
        self._sources: list[pa.ChunkedArray] = []
        self._targets: list[pa.ChunkedArray] = []

    def add_texts(
        self,
        *,
        order: int,
        reasons: list[str],
        rows: list[int],
        sources: pa.ChunkedArray,
        targets: pa.ChunkedArray,
    ) -> None:
        """Adds some pairs of one source."""
        self._reasons += reasons
        self._orders += [order] * len(rows)
        self.rows += rows
        self._sources.append(sources)
        self._targets.append(targets)

    def table(self, names: SourceNames) -> pa.Table:
        """Makes the table of a `rejected-*.parquet`, by source and row."""
        places = Places(np.array(self._orders, np.int64), np.array(self.rows, np.int64))
        columns = {
            "reason": pa.array(self._reasons, pa.string()),
            **names.columns(places),
            "source": _chunked(self._sources),
            "target": _chunked(self._targets),
        }
        table = _rejected_table(columns, len(self.rows))
        return table.take(np.lexsort((places.rows, places.orders)))

    def counts(self) -> list[tuple[int, str, int]]:
        """Counts them: the order of the source, the reason, and how many."""
        found = collections.Counter(zip(self._orders, self._reasons, strict=True))
        return [(order, reason, count) for (order, reason), count in sorted(found.items())]


def duplicates_tables(
    duplicates: Places, survivors: Places, *, reason: str, names: SourceNames
) -> Iterator[pa.Table]:
    """Makes tables of a `rejected-*.parquet` of duplicates and what was kept instead."""
    for begin in range(0, len(duplicates.rows), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        rejected, kept = duplicates.select(part), names.columns(survivors.select(part))
        columns = {
            "reason": pa.repeat(reason, len(rejected.rows)),
            **names.columns(rejected),
            **{f"survivor_{name}": column for name, column in kept.items()},
        }
        yield _rejected_table(columns, len(rejected.rows))


def _chunked(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.large_string())


def _rejected_table(columns: dict[str, Any], count: int) -> pa.Table:
    return pa.table(
        [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in REJECTED_SCHEMA
        ],
        schema=REJECTED_SCHEMA,
    )


def count_reasons(sources: Iterable[dict[str, Any]]) -> collections.Counter[str]:
    """Adds up the rejected pairs of sources of a manifest, by reason."""
    rejected: collections.Counter[str] = collections.Counter()
    for source in sources:
        rejected.update(source["rejected"])
    return rejected


def describe_reasons(rejected: Mapping[str, int]) -> str:
    """Lists reasons with their counts.

    >>> describe_reasons({"too_long": 1200, "identical": 1})
    '1 identical, 1,200 too_long'
    """
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejected.items()))
