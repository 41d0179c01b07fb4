"""Cut rows into pieces of limited memory, whose ends depend only on the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.pipelines.tables.columns import cells_as_binary, has_dictionary, is_bytes, is_list, is_text


def even_sizes(*, total: int, most: int) -> list[int]:
    """Cut a number of rows into parts of `most` rows, of which the last may be smaller.

    >>> even_sizes(total=25, most=10)
    [10, 10, 5]
    """
    return [min(most, total - first) for first in range(0, total, most)]


def row_bytes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of the values in each row of an array, after decoding dictionaries.

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
        return row_bytes(cells_as_binary(values))
    if is_text(kind) or is_bytes(kind):
        return _as_numbers(pc.binary_length(values))
    if types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        # A cast to lists aborts the process for some slices.
        return row_bytes(pa.ListArray.from_arrays(values.offsets, entries))
    if is_list(kind):
        lengths = _as_numbers(pc.list_value_length(values))
        sums = np.concatenate([[0], np.cumsum(row_bytes(values.flatten()))])
        ends = np.cumsum(lengths)
        return np.asarray(sums[ends] - sums[ends - lengths], np.int64)
    if types.is_struct(kind):
        return sum(map(row_bytes, values.flatten()), np.zeros(len(values), np.int64))
    if types.is_null(kind):
        return np.zeros(len(values), np.int64)
    if types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind):
        return np.full(len(values), kind.bit_width // 8, np.int64)
    # Estimate the size of rare types. An average over the array would depend on the other rows.
    return np.array([len(repr(value)) for value in values.to_pylist()], np.int64)


def _as_numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(values.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False))


def cut_by_bytes(
    batches: Iterable[pa.RecordBatch], *, schema: pa.Schema, most_bytes: int
) -> Iterator[pa.Table]:
    """Cut rows into tables of limited memory, with only one table in memory at a time.

    The end of a table depends only on the rows, not on the batches that contain them.

    Args:
      batches: The rows.
      schema: The schema of the batches.
      most_bytes: The maximum bytes of a table, see `row_bytes`. A longer row is a table by itself.

    Yields:
      The tables. Empty input yields one empty table.
    """
    held: list[pa.RecordBatch] = []
    size = 0  # an upper bound of the bytes in `held`
    is_exact = has_dictionary(schema)
    for batch in batches:
        held.append(batch)
        size += int(_batch_bytes(batch).sum()) if is_exact else batch.nbytes
        del batch
        if size > most_bytes:
            *pieces, held = _cut(held, most_bytes=most_bytes)
            if pieces:  # a copy does not keep the rows of these pieces in memory
                held = [pa.concat_batches([each, each.slice(0, 0)]) for each in held]
            while pieces:
                yield pa.Table.from_batches(pieces.pop(0), schema=schema)
            size = sum(int(_batch_bytes(each).sum()) for each in held)
    yield pa.Table.from_batches(held, schema=schema)


def _batch_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return sum(map(row_bytes, batch.columns), np.zeros(batch.num_rows, np.int64))


def _cut(batches: list[pa.RecordBatch], *, most_bytes: int) -> list[list[pa.RecordBatch]]:
    """Cut rows into pieces; rows that follow may extend the last piece."""
    sizes = np.concatenate([_batch_bytes(batch) for batch in batches])
    ends = np.cumsum(sizes)
    table = pa.Table.from_batches(batches)
    pieces: list[list[pa.RecordBatch]] = []
    first = 0
    while first < len(ends):
        most = ends[first] - sizes[first] + most_bytes
        end = max(first + 1, int(np.searchsorted(ends, most, side="right")))
        pieces.append(table.slice(first, end - first).to_batches())
        first = end
    return pieces


def combine_chunks(table: pa.Table) -> pa.Table:
    """Return a table in one chunk, so that the bytes of its file depend only on its rows.

    Tables with dictionaries keep their chunks, because the indices may be too small for a common
    dictionary. Readers start at a row group, so equal rows have equal dictionaries.
    """
    return table if has_dictionary(table.schema) else table.combine_chunks()
