"""The memory that rows take, and tables cut by it.

The footer of a Parquet file says what a column takes before it is decoded, and of all rows
together: a few long rows among short ones do not show there, nor does a dictionary whose values
many rows have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.tables.columns import has_dictionary, is_list

BATCH_BYTES = 64 << 20  # of rows that are decoded at once, if the footer can tell
FEW_ROWS = 32  # that are decoded at once where it cannot
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}  # the last two are of nulls and lists, not of values
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


def rows_at_once(
    metadata: Any,
    *,
    most_rows: int,
    most_bytes: int = BATCH_BYTES,
    few_rows: int = FEW_ROWS,
    columns: Collection[str] | None = None,
) -> int:
    """Returns how many rows of a Parquet file to decode at once, however unlike they may be.

    Args:
      metadata: The file's, as PyArrow has it.
      most_rows: The most rows.
      most_bytes: Memory that they may take.
      few_rows: Rows that are decoded at once whatever they may take.
      columns: Paths of the columns that are read; None is all.
    """
    groups = [
        _bounds(metadata.row_group(index), metadata, columns)
        for index in range(metadata.num_row_groups)
    ]
    rows = most_rows
    while rows > few_rows and any(_largest(group, rows=rows) > most_bytes for group in groups):
        rows //= 2
    return max(rows, min(few_rows, most_rows))


def _bounds(group: Any, metadata: Any, columns: Collection[str] | None) -> list[tuple[int, int]]:
    """Returns what each column of a row group takes at most: a row of it, and all rows."""
    bounds = []
    for index in range(metadata.num_columns):
        chunk, schema = group.column(index), metadata.schema.column(index)
        if columns is not None and chunk.path_in_schema not in columns:
            continue
        stored = int(chunk.total_uncompressed_size)
        # No value is longer than all that is stored, of which it may be the only one.
        value = _VALUE_BYTES.get(chunk.physical_type, stored)
        whole = stored if set(chunk.encodings) <= _PLAIN else value * int(chunk.num_values)
        bounds.append((whole if schema.max_repetition_level else min(value, whole), whole))
    return bounds


def _largest(bounds: Iterable[tuple[int, int]], *, rows: int) -> int:
    return sum(min(row * rows, whole) for row, whole in bounds)


def row_bytes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the bytes of each row of an array: those of its values, dictionaries decoded.

    >>> row_bytes(pa.array(["a", None, "four"]).dictionary_encode()).tolist()
    [1, 0, 4]
    >>> row_bytes(pa.array([[1, 2], [], None, [3]])).tolist()
    [16, 0, 0, 8]
    """
    kind, types = values.type, pa.types
    if isinstance(values, pa.ExtensionArray):
        return row_bytes(values.storage)
    if types.is_dictionary(kind):
        return _as_numbers(pc.take(pa.array(row_bytes(values.dictionary)), values.indices))
    if types.is_string_view(kind) or types.is_binary_view(kind):
        values = values.cast(pa.large_binary() if types.is_binary_view(kind) else pa.large_string())
        return row_bytes(values)
    if any(is_bytes(kind) for is_bytes in (
        types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    )):  # fmt: skip
        return _as_numbers(pc.binary_length(values))
    if types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        return row_bytes(values.cast(pa.list_(entries)))
    if is_list(kind):
        lengths = _as_numbers(pc.list_value_length(values))
        sums = np.concatenate([[0], np.cumsum(row_bytes(values.flatten()))])
        ends = np.cumsum(lengths)
        return np.asarray(sums[ends] - sums[ends - lengths], np.int64)
    if types.is_struct(kind):
        return sum(map(row_bytes, values.flatten()), np.zeros(len(values), np.int64))
    if types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind):
        return np.full(len(values), kind.bit_width // 8, np.int64)
    # Rarer ones, roughly: an average of Arrow's would depend on the rows around.
    return np.array([len(repr(value)) for value in values.to_pylist()], np.int64)


def _as_numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(values.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False))


def cut_by_bytes(
    batches: Iterable[pa.RecordBatch], *, most_bytes: int
) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
    """Cuts rows into pieces by the memory that they take; no more than a piece is held.

    Where a piece ends depends on the rows alone, and not on the batches that they come in.

    Args:
      batches: The rows.
      most_bytes: Bytes of a piece, see `row_bytes`; a row that has more is one of its own.

    Yields:
      The batches of a piece, and whether it is all: there is one piece then. No rows are a piece.
    """
    held: list[pa.RecordBatch] = []
    size = 0  # bytes of what is held, or more
    is_whole = True
    for batch in batches:
        held.append(batch)
        is_exact = has_dictionary(batch.schema)
        size += int(_batch_bytes(batch).sum()) if is_exact else batch.nbytes
        if size <= most_bytes:
            continue
        *pieces, held = _cut(held, most_bytes=most_bytes)
        for piece in pieces:
            is_whole = False
            yield piece, False
        size = sum(int(_batch_bytes(each).sum()) for each in held)
    if held or is_whole:
        yield held, is_whole


def _batch_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return sum(map(row_bytes, batch.columns), np.zeros(batch.num_rows, np.int64))


def _cut(batches: list[pa.RecordBatch], *, most_bytes: int) -> list[list[pa.RecordBatch]]:
    """Cuts rows into pieces, of which the last may go on."""
    rows = np.concatenate([_batch_bytes(batch) for batch in batches])
    ends = np.cumsum(rows)
    table = pa.Table.from_batches(batches)
    pieces = []
    first = 0
    while first < len(rows):
        before = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        pieces.append(table.slice(first, end - first).to_batches())
        first = end
    return pieces
