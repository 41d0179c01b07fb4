"""Tables of rejected pairs and of test pairs, with the file and the line of each pair."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.pipelines.preprocess.corpora import SourceList
from tt.pipelines.preprocess.filters import NOT_SAMPLED
from tt.pipelines.preprocess.sources import Source
from tt.pipelines.preprocess.spills import Headers, MergedBucket
from tt.pipelines.preprocess.units import RowSlice

PARQUET_END = b"PAR1"  # the last bytes of each complete Parquet file
_ROWS_AT_ONCE = 1 << 16

# A duplicate has the place of its survivor instead of texts. Lines and rows count from 1.
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

# The texts of test pairs, and the places of the pairs.
TEXTS_SCHEMA = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("corpus", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
    ]
)


def _place_columns(
    orders: npt.NDArray[Any], rows: npt.NDArray[Any], sources: SourceList
) -> dict[str, pa.Array]:
    """Return the columns with the places of pairs, given their sources' positions and rows."""
    distinct, indices = np.unique(orders, return_inverse=True)
    opened = [_open_source(sources, order) for order in distinct.tolist()]
    which = pa.array(indices)
    return {
        "corpus": pa.array([source.name for source in opened], pa.string()).take(which),
        "file": pa.array([source.file_of(0) for source in opened], pa.string()).take(which),
        "line": pa.array(rows.astype(np.int64) + 1),
    }


@functools.lru_cache(1 << 16)
def _open_source(sources: SourceList, order: int) -> Source:
    return sources.source(order)  # The cache saves parsing its JSON again.


def rejected_texts(rows: RowSlice, rejected: Mapping[int, str], *, sources: SourceList) -> pa.Table:
    """Return a table of rejected pairs, with their texts as they were read.

    Pairs outside of the sample of a corpus have no texts, because they can be most of the corpus.

    Args:
      rows: Rows of one source.
      rejected: Reasons, by position in `rows`.
      sources: The sources of the run.
    """
    positions = np.array(sorted(rejected), np.int64)
    texts = rows.table.take(positions)
    reasons = pa.array([rejected[position] for position in positions.tolist()], pa.string())
    orders = np.full(len(positions), rows.order)
    is_sampled = pc.not_equal(reasons, NOT_SAMPLED)
    columns = {
        "reason": reasons,
        **_place_columns(orders, rows.first_row + positions, sources),
        "source": pc.if_else(is_sampled, texts["source"], None),
        "target": pc.if_else(is_sampled, texts["target"], None),
    }
    return _rejected_table(columns)


def duplicates_tables(
    bucket: MergedBucket, *, reason: str, sources: SourceList
) -> Iterator[pa.Table]:
    """Yield tables of the duplicates in a bucket, with the places of their survivors."""
    for begin in range(0, len(bucket.duplicates), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        rejected, kept = (
            _place_columns(headers["order"][part], headers["row"][part], sources)
            for headers in (bucket.duplicates, bucket.survivors)
        )
        columns = {
            "reason": pa.repeat(reason, len(rejected["line"])),
            **rejected,
            **{f"survivor_{name}": column for name, column in kept.items()},
        }
        yield _rejected_table(columns)


def texts_table(
    headers: Headers, pairs: Iterable[tuple[str, str]], *, sources: SourceList
) -> pa.Table:
    """Return a table of `TEXTS_SCHEMA`, given the headers and the texts of pairs."""
    texts = [*pairs]
    columns = {
        "source": [source for source, _ in texts],
        "target": [target for _, target in texts],
        **_place_columns(headers["order"], headers["row"], sources),
    }
    return pa.table(columns, schema=TEXTS_SCHEMA)


def _rejected_table(columns: dict[str, Any]) -> pa.Table:
    """Return a table of `REJECTED_SCHEMA`, in which missing columns are null."""
    tables = [REJECTED_SCHEMA.empty_table(), pa.table(columns)]
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def count_reasons(sources: Iterable[dict[str, Any]]) -> collections.Counter[str]:
    """Return the number of rejected pairs by reason, given the sources of a manifest."""
    rejected: collections.Counter[str] = collections.Counter()
    for source in sources:
        rejected.update(source["rejected"])
    return rejected


def describe_reasons(rejected: Mapping[str, int]) -> str:
    """Return the reasons with their counts, as text.

    >>> describe_reasons({"too_long": 1200, "identical": 1})
    '1 identical, 1,200 too_long'
    """
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejected.items()))
