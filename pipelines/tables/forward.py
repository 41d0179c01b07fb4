"""Read consecutive rows of Parquet files in bounded memory.

The footer of a Parquet file contains only the encoded size of each column in a row group. It does
not show that a few rows are much longer than the others, or that many rows share a long value of a
dictionary. Therefore, this module limits the number of rows that it decodes at once, and then cuts
the decoded rows into pieces of limited memory.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.errors import BadFileError
from tt.model.storage.files import open_for_parts
from tt.model.storage.paths import is_local
from tt.pipelines.tables.columns import has_dictionary, is_list
from tt.pipelines.tables.damage import explain_damage
from tt.pipelines.tables.parquet import (
    RowCursor,
    changed_error,
    group_starts,
    iter_rows,
    open_file,
    open_footer,
    read_batches,
    row_groups,
)

_BATCH_ROWS = 8192
# Column chunks are read through a buffer, because a single row group may contain the whole file.
# On an object store each buffer is a request, so buffers are larger there, but all buffers together
# must fit into the memory of a worker.
_BUFFER_BYTES = 1 << 20
_REMOTE_BUFFER_BYTES = 16 << 20
_REMOTE_BUFFERS_BYTES = 64 << 20  # the buffers of all columns together
_LEAST_BUFFER_BYTES = 256 << 10
BATCH_BYTES = 64 << 20  # maximum memory of the rows that are decoded at once
FEW_ROWS = 32  # rows that are decoded at once even if they may exceed BATCH_BYTES
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}  # the last two encode nulls and list levels, not values
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


def rows_at_once(
    metadata: Any,
    *,
    most_rows: int,
    most_bytes: int = BATCH_BYTES,
    few_rows: int = FEW_ROWS,
    columns: Collection[str] | None = None,
) -> int:
    """Return how many rows of a Parquet file to decode at once, so that they fit into memory.

    The rows fit even if their sizes differ widely, unless `few_rows` allows more rows.

    Args:
      metadata: PyArrow's metadata of the file.
      most_rows: The maximum number of rows.
      most_bytes: The maximum memory of the decoded rows, in bytes.
      few_rows: A number of rows that are decoded at once even if they may exceed `most_bytes`.
      columns: Paths of the columns to read; None for all columns.
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
    """Return the maximum bytes of each column of a row group, as pairs (per row, all rows)."""
    bounds = []
    for index in range(metadata.num_columns):
        chunk, schema = group.column(index), metadata.schema.column(index)
        if columns is not None and chunk.path_in_schema not in columns:
            continue
        stored = int(chunk.total_uncompressed_size)
        # A value is at most as long as the stored column, because it may be the only value.
        value = _VALUE_BYTES.get(chunk.physical_type, stored)
        whole = stored if set(chunk.encodings) <= _PLAIN else value * int(chunk.num_values)
        bounds.append((whole if schema.max_repetition_level else min(value, whole), whole))
    return bounds


def _largest(bounds: Iterable[tuple[int, int]], *, rows: int) -> int:
    return sum(min(row * rows, whole) for row, whole in bounds)


def even_sizes(*, total: int, most: int) -> list[int]:
    """Cut a number of rows into parts of `most` rows, of which the last may be smaller.

    >>> even_sizes(total=25, most=10)
    [10, 10, 5]
    """
    return [min(most, total - first) for first in range(0, total, most)]


def rows_within(limit: int, *, rows: int, total_bytes: int, most: int) -> int:
    """Return how many average rows have at most `limit` bytes: at least 1, at most `most`.

    >>> rows_within(1000, rows=50, total_bytes=5000, most=16), rows_within(9, rows=0, \
total_bytes=0, most=16)
    (10, 16)
    """
    return max(1, min(most, limit * rows // total_bytes)) if total_bytes else most


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
        values = values.cast(pa.large_binary() if types.is_binary_view(kind) else pa.large_string())
        return row_bytes(values)
    if any(is_bytes(kind) for is_bytes in (
        types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    )):  # fmt: skip
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
    batches: Iterable[pa.RecordBatch], *, most_bytes: int
) -> Iterator[list[pa.RecordBatch]]:
    """Cut rows into pieces of limited memory, with only one piece in memory at a time.

    The end of a piece depends only on the rows, not on the batches that contain them.

    Args:
      batches: The rows.
      most_bytes: The maximum bytes of a piece, see `row_bytes`. A longer row is a piece by itself.

    Yields:
      The batches of a piece. Empty input yields one empty piece.
    """
    held: list[pa.RecordBatch] = []
    size = 0  # an upper bound of the bytes in `held`
    is_first = True
    for batch in batches:
        held.append(batch)
        is_exact = has_dictionary(batch.schema)
        size += int(_batch_bytes(batch).sum()) if is_exact else batch.nbytes
        del batch
        if size <= most_bytes:
            continue
        *pieces, held = _cut(held, most_bytes=most_bytes)
        if pieces:  # a copy does not keep the rows of these pieces in memory
            is_first = False
            held = [pa.concat_batches([each, each.slice(0, 0)]) for each in held]
        while pieces:
            yield pieces.pop(0)
        size = sum(int(_batch_bytes(each).sum()) for each in held)
    if held or is_first:
        yield held


def _batch_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return sum(map(row_bytes, batch.columns), np.zeros(batch.num_rows, np.int64))


def _cut(batches: list[pa.RecordBatch], *, most_bytes: int) -> list[list[pa.RecordBatch]]:
    """Cut rows into pieces; rows that follow may extend the last piece."""
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


def combine_chunks(table: pa.Table) -> pa.Table:
    """Return a table in one chunk, so that the bytes of its file depend only on its rows.

    Tables with dictionaries keep their chunks, because the indices may be too small for a common
    dictionary. Readers start at a row group, so equal rows have equal dictionaries.
    """
    return table if has_dictionary(table.schema) else table.combine_chunks()


def read_rows(*, path: str, first_row: int, rows: int, footer_checksum: str) -> pa.Table:
    """Read consecutive rows of a file as one table.

    Raises:
      BadFileError: The rows, or the rows before them in their row group, are damaged.
      UserError: The file has changed, so its footer does not have the planned checksum.
    """
    with ForwardReader(
        path, footer_checksum=footer_checksum, end=first_row + rows, most_rows=rows
    ) as reader:
        return reader.read(first_row=first_row, rows=rows)


def _batch_rows(file: pq.ParquetFile, rows: int, *, schema: pa.Schema) -> int:
    """Return how many rows to decode at once.

    Each batch has a copy of its dictionaries, so small batches would need more memory.

    Args:
      file: The open file.
      rows: The maximum number of rows.
      schema: The schema of the columns to read.
    """
    most = max(1, min(rows, _BATCH_ROWS))
    if has_dictionary(schema):
        return most
    return rows_at_once(file.metadata, most_rows=most)


def _explain_damaged_rows(
    path: str, *, first_row: int, rows: int
) -> contextlib.AbstractContextManager[None]:
    last_row = first_row + rows - 1
    return explain_damage(
        f"{path} cannot be read (rows {first_row:,} to {last_row:,}, counted from 0)"
    )


def _open_planned(handle: IO[bytes], *, path: str, checksum: str, end: int) -> pq.ParquetFile:
    """Open a file to read rows before the row `end`, if the footer has the planned checksum."""
    _, found, footer = open_footer(handle, path=path)
    if found != checksum:
        raise changed_error(path)
    handle.seek(0)
    return open_file(
        handle,
        metadata=footer.metadata,
        buffer_size=_buffer_bytes(path, footer, end=end),
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _buffer_bytes(path: str, file: pq.ParquetFile, *, end: int) -> int:
    """Return the bytes of the buffer for each column.

    If only the beginning of a row group is needed, each column reads up to one buffer too much.
    """
    if is_local(path):
        return _BUFFER_BYTES
    columns = max(1, int(file.metadata.num_columns))
    size = min(_REMOTE_BUFFER_BYTES, max(_BUFFER_BYTES, _REMOTE_BUFFERS_BYTES // columns))
    start = 0
    for group in row_groups(file):
        if start < end < start + group.num_rows:
            stored = sum(int(group.column(i).total_compressed_size) for i in range(columns))
            size = min(size, max(_LEAST_BUFFER_BYTES, stored // (8 * columns)))
        start += group.num_rows
    return size


def _group_of(starts: list[int], row: int) -> int:
    return bisect.bisect_right(starts, row) - 1


class ForwardReader:
    """Reads runs of consecutive rows of a Parquet file from front to back, each row only once.

    Two readers of the same run return tables that give the same bytes in a file, even if one of
    them starts at a later row.

    Args:
      path: The path of the file.
      footer_checksum: The checksum of the footer when the job was planned.
      end: The index after the last row that will be read.
      most_rows: The maximum number of rows in a run.
      choose_columns: Returns the indices of the columns to read from the schema of the file; None
        to read all columns. The reader may return other columns, too.
    """

    def __init__(
        self,
        path: str,
        *,
        footer_checksum: str,
        end: int,
        most_rows: int,
        choose_columns: Callable[[pa.Schema], Sequence[int]] | None = None,
    ) -> None:
        self._path = path
        self._checksum = footer_checksum
        self._end = end
        self._most_rows = most_rows
        self._choose_columns = choose_columns
        self._columns: list[str] | None = None  # None for all columns
        self._schema = pa.schema([])
        self._opened = contextlib.ExitStack()
        self._file: pq.ParquetFile | None = None
        self._starts: list[int] = []
        self._batch_rows = 1  # rows that are decoded at once
        self._cursor = RowCursor(iter(()))
        self._next_row = -1  # the next row of the cursor; -1 if there is no cursor

    def __enter__(self) -> ForwardReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    def read(self, *, first_row: int, rows: int) -> pa.Table:
        """Read rows as one table, without a limit of memory.

        Raises:
          BadFileError: The rows, or the rows before them in their row group, are damaged.
          UserError: The file has changed since it was planned.
        """
        [table] = self.pieces(first_row=first_row, rows=rows, most_bytes=1 << 62)
        return table

    def pieces(self, *, first_row: int, rows: int, most_bytes: int) -> Iterator[pa.Table]:
        """Yield rows as one table, or as several tables if they need more memory.

        The end of a table depends only on the rows. At most two tables are in memory at a time, in
        addition to the rows that are decoded at once (`rows_at_once`).

        Args:
          first_row: The index of the first row.
          rows: The number of rows; 0 yields one empty table.
          most_bytes: The maximum bytes of a table, see `row_bytes`.

        Raises:
          BadFileError: The rows, or the rows before them in their row group, are damaged.
          UserError: The file has changed since it was planned.
        """
        file = self._file or self._open()
        for piece in cut_by_bytes(self._batches_of(file, first_row, rows), most_bytes=most_bytes):
            table = combine_chunks(pa.Table.from_batches(piece, schema=self._schema))
            del piece
            yield table
            del table  # frees the memory before the next rows are decoded

    def _batches_of(
        self, file: pq.ParquetFile, first_row: int, rows: int
    ) -> Iterator[pa.RecordBatch]:
        done = 0
        if not rows:
            return
        try:
            with _explain_damaged_rows(self._path, first_row=first_row, rows=rows):
                for batch in self._read(file, first_row, rows):
                    done += batch.num_rows
                    yield batch
            return
        except BadFileError:  # the damage may be after these rows, so read them again below
            self._next_row = -1
        with open_for_parts(self._path) as handle:
            reopened = _open_planned(
                handle, path=self._path, checksum=self._checksum, end=first_row + rows
            )
            first, left = first_row + done, rows - done
            batch_rows = _batch_rows(reopened, left, schema=self._schema)
            with _explain_damaged_rows(self._path, first_row=first, rows=left):
                yield from iter_rows(
                    reopened,
                    path=self._path,
                    first_row=first,
                    rows=left,
                    batch_rows=batch_rows,
                    columns=self._columns,
                )

    def _open(self) -> pq.ParquetFile:
        handle = self._opened.enter_context(open_for_parts(self._path))
        file = _open_planned(handle, path=self._path, checksum=self._checksum, end=self._end)
        self._starts = group_starts(file)
        schema = file.schema_arrow
        # In Arrow's names, a dot separates a column from its fields.
        is_clear = len(set(schema.names)) == len(schema) and not any("." in n for n in schema.names)
        if self._choose_columns is not None and is_clear:
            fields = [schema.field(index) for index in self._choose_columns(schema)]
            if len(fields) < len(schema):
                schema = pa.schema(fields, schema.metadata)
                self._columns = schema.names
        self._schema = schema
        self._batch_rows = _batch_rows(file, self._most_rows, schema=schema)
        self._file = file
        return file

    def _read(self, file: pq.ParquetFile, first_row: int, rows: int) -> Iterator[pa.RecordBatch]:
        group = _group_of(self._starts, first_row)
        start = self._starts[group]
        if not start <= self._next_row <= first_row:
            last = min(bisect.bisect_left(self._starts, self._end), len(self._starts) - 1)
            self._cursor = RowCursor(
                read_batches(
                    file,
                    path=self._path,
                    batch_rows=self._batch_rows,
                    row_groups=range(group, last),
                    columns=self._columns,
                )
            )
            self._next_row = start
        for _ in self._take(first_row - self._next_row):
            pass
        yield from self._take(rows)

    def _take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows of the cursor."""
        for piece in self._cursor.take(rows):
            self._next_row += piece.num_rows
            rows -= piece.num_rows
            yield piece
            del piece  # frees the memory before the next piece is decoded
        if rows:
            raise pa.ArrowInvalid(f"{rows} rows are missing")
