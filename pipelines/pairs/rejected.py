"""Rejected pairs, each with its reason and its place."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.corpora.source import Source
from pipelines.pairs.spills import Places

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
    """What the sources are called in a `rejected-*.parquet`, made once for many tables."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._names = pa.array([source.name for source in sources], pa.string())
        self._paths = pa.array([source.file_of(0) for source in sources], pa.string())

    def columns(self, places: Places) -> dict[str, pa.Array]:
        """Returns the columns that say where pairs stand."""
        orders = pa.array(places.orders)
        return {
            "corpus": self._names.take(orders),
            "file": self._paths.take(orders),
            "line": pa.array(places.rows + 1),
        }


class Rejections:
    """The pairs of a unit that were left out, each with its reason and its texts as read."""

    def __init__(self, order: int) -> None:
        self.order = order  # the place of the unit's source among all sources
        self.reasons: list[str] = []
        self.rows: list[int] = []  # in the source, from 0
        self._sources: list[pa.ChunkedArray] = []
        self._targets: list[pa.ChunkedArray] = []

    def add_texts(
        self,
        *,
        reasons: list[str],
        rows: list[int],
        sources: pa.ChunkedArray,
        targets: pa.ChunkedArray,
    ) -> None:
        """Adds some pairs."""
        self.reasons += reasons
        self.rows += rows
        self._sources.append(sources)
        self._targets.append(targets)

    def table(self, names: SourceNames) -> pa.Table:
        """Makes the table of a `rejected-*.parquet`, by row."""
        places = Places(np.full(len(self.rows), self.order), np.array(self.rows, np.int64))
        columns = {
            "reason": pa.array(self.reasons, pa.string()),
            **names.columns(places),
            "source": _chunked(self._sources),
            "target": _chunked(self._targets),
        }
        return _rejected_table(columns, len(self.rows)).take(np.argsort(places.rows))


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
