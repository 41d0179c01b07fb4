"""Runs of consecutive rows of Parquet, read forward, and the memory that rows take.

The footer of a Parquet file says what a column takes before it is decoded, and of all rows
together: a few long rows among short ones do not show there, nor does a dictionary whose values
many rows have.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.errors import BadFileError
from tt.pipelines.storage.files import open_for_parts
from tt.pipelines.storage.paths import is_local
from tt.pipelines.tables.columns import has_dictionary, is_list
from tt.pipelines.tables.damage import told_of_damage
from tt.pipelines.tables.parquet import (
    ExactParquetFile,
    RowCursor,
    changed_error,
    group_starts,
    iter_rows,
    open_footer,
    read_batches,
    row_groups,
)

_BATCH_ROWS = 8192
# Column chunks are streamed through a buffer, never loaded whole: a row group may be the file. An
# object store takes a request for each buffer, so that there they are larger, but together no more
# than a worker has room for.
_BUFFER_BYTES = 1 << 20
_REMOTE_BUFFER_BYTES = 16 << 20
_REMOTE_BUFFERS_BYTES = 64 << 20  # of all columns
_LEAST_BUFFER_BYTES = 256 << 10
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


def read_rows(*, path: str, first_row: int, rows: int, footer_checksum: str) -> pa.Table:
    """Reads consecutive rows of a file as one table, if its footer is the one that was planned.

    Raises:
      BadFileError: Bytes on the way to the rows are damaged.
      UserError: The file is another one now.
    """
    with ForwardReader(
        path, footer_checksum=footer_checksum, end=first_row + rows, most_rows=rows
    ) as reader:
        return reader.read(first_row=first_row, rows=rows)


def _chunk_rows(rows: int) -> int:
    """Returns the rows of the chunks of a table of so many rows: they decide its file's bytes."""
    return max(1, min(rows, _BATCH_ROWS))


def _batch_rows(file: pq.ParquetFile, rows: int) -> int:
    """Returns the rows that are decoded at once.

    What Arrow puts into a dictionary depends on them: where there is one, they are those of chunks.
    """
    most = _chunk_rows(rows)
    if has_dictionary(file.schema_arrow):
        return most
    return rows_at_once(file.metadata, most_rows=most)


def _told_of_rows(
    path: str, *, first_row: int, rows: int
) -> contextlib.AbstractContextManager[None]:
    last_row = first_row + rows - 1
    return told_of_damage(f"{path} cannot be read (rows {first_row:,} to {last_row:,}, from 0)")


def _open_planned(handle: IO[bytes], *, path: str, checksum: str, end: int) -> pq.ParquetFile:
    """Opens a file of which rows are read up to the row `end`, if its footer is as planned."""
    _, found, footer = open_footer(handle, path=path)
    if found != checksum:
        raise changed_error(path)
    handle.seek(0)
    return ExactParquetFile(
        handle,
        path=path,
        metadata=footer.metadata,
        buffer_size=_buffer_bytes(path, footer, end=end),
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _buffer_bytes(path: str, file: pq.ParquetFile, *, end: int) -> int:
    """Returns the bytes of a column's buffer.

    Of a row group that is read in part, a buffer's worth of each column is read too much.
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
    """Runs of consecutive rows of a Parquet file, read from front to back, and none twice.

    What `read` returns is to the chunk what `read_rows` returns, so that a file that is written of
    it has the same bytes.

    Args:
      path: The file.
      footer_checksum: The checksum of its footer when it was planned.
      end: The row behind the last one that will be asked for.
      most_rows: The most rows that will be asked for at once.
    """

    def __init__(self, path: str, *, footer_checksum: str, end: int, most_rows: int) -> None:
        self._path = path
        self._checksum = footer_checksum
        self._end = end
        self._most_rows = most_rows
        self._opened = contextlib.ExitStack()
        self._file: pq.ParquetFile | None = None
        self._starts: list[int] = []
        self._batch_rows = 1  # rows that are decoded at once
        self._cursor = RowCursor(iter(()))
        self._next_row = -1  # the row that comes next; -1 if nothing is being read
        self._begun_at = -1  # the row at which reading began
        # What Arrow puts into a dictionary depends on what it has read before, and in what batches:
        # of files with such columns each row group is read by itself.
        self._has_dictionary = False

    def __enter__(self) -> ForwardReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    def read(self, *, first_row: int, rows: int) -> pa.Table:
        """Reads rows, whatever they take in memory.

        Raises:
          BadFileError: Bytes on the way to the rows are damaged.
          UserError: The file is another one now.
        """
        [table] = self.pieces(first_row=first_row, rows=rows, most_bytes=1 << 62)
        return table

    def pieces(self, *, first_row: int, rows: int, most_bytes: int) -> Iterator[pa.Table]:
        """Yields rows as a table, or as several if they take more memory than that.

        Where those end depends on the rows alone. At most two of them are in memory at a time, and
        what is decoded at once (`rows_at_once`).

        Args:
          first_row: The first of the rows.
          rows: How many there are; none are a table without rows.
          most_bytes: Bytes of a table, as `row_bytes` counts them.

        Raises:
          BadFileError: Bytes on the way to the rows are damaged.
          UserError: The file is another one now.
        """
        file = self._file or self._open()
        start = self._starts[_group_of(self._starts, first_row)]
        ends = _chunk_ends(start=start, first_row=first_row, rows=rows)
        batches = self._batches_of(file, first_row, rows)
        for piece, is_whole in cut_by_bytes(batches, most_bytes=most_bytes):
            table = pa.Table.from_batches(piece, schema=file.schema_arrow)
            del piece
            if self._has_dictionary:
                yield table
            else:
                yield _as_chunks(table, ends) if is_whole else table.combine_chunks()

    def _batches_of(
        self, file: pq.ParquetFile, first_row: int, rows: int
    ) -> Iterator[pa.RecordBatch]:
        done = 0
        if not rows:
            return
        if not self._has_dictionary or self._is_in_one_group(first_row, rows):
            try:
                with _told_of_rows(self._path, first_row=first_row, rows=rows):
                    batches = self._read(file, first_row, rows)
                    # Those with dictionaries all at once: they cannot be read anew in part.
                    for batch in list(batches) if self._has_dictionary else batches:
                        done += batch.num_rows
                        yield batch
                return
            except BadFileError:  # the damage may lie behind the rows
                self._next_row = -1
        with open_for_parts(self._path) as handle:
            alone = _open_planned(
                handle, path=self._path, checksum=self._checksum, end=first_row + rows
            )
            first, left = first_row + done, rows - done
            batch_rows = _batch_rows(alone, left)
            with _told_of_rows(self._path, first_row=first, rows=left):
                yield from iter_rows(
                    alone, path=self._path, first_row=first, rows=left, batch_rows=batch_rows
                )

    def _open(self) -> pq.ParquetFile:
        handle = self._opened.enter_context(open_for_parts(self._path))
        file = _open_planned(handle, path=self._path, checksum=self._checksum, end=self._end)
        self._starts = group_starts(file)
        self._has_dictionary = has_dictionary(file.schema_arrow)
        self._batch_rows = _batch_rows(file, self._most_rows)
        self._file = file
        return file

    def _is_in_one_group(self, first_row: int, rows: int) -> bool:
        group = _group_of(self._starts, first_row)
        fits = first_row + rows <= self._starts[min(group + 1, len(self._starts) - 1)]
        return fits and _chunk_rows(rows) == self._batch_rows

    def _read(self, file: pq.ParquetFile, first_row: int, rows: int) -> Iterator[pa.RecordBatch]:
        group = _group_of(self._starts, first_row)
        start = self._starts[group]
        is_on_the_way = start <= self._next_row <= first_row
        if not is_on_the_way or (self._has_dictionary and start != self._begun_at):
            last = min(bisect.bisect_left(self._starts, self._end), len(self._starts) - 1)
            last = group + 1 if self._has_dictionary else last
            groups = range(group, last)
            self._cursor = RowCursor(
                read_batches(file, path=self._path, batch_rows=self._batch_rows, row_groups=groups)
            )
            self._next_row = self._begun_at = start
        for _ in self._take(first_row - self._next_row):
            pass
        yield from self._take(rows)

    def _take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows that come next."""
        for piece in self._cursor.take(rows):
            self._next_row += piece.num_rows
            rows -= piece.num_rows
            yield piece
            del piece  # before the next is decoded
        if rows:
            raise pa.ArrowInvalid(f"{rows} rows are missing")


def _chunk_ends(*, start: int, first_row: int, rows: int) -> list[int]:
    """Returns where Arrow ends the chunks of rows that it reads from the start of a row group."""
    size = _chunk_rows(rows)
    return [end - first_row for end in range(start + size, first_row + rows, size)]


def _as_chunks(table: pa.Table, ends: Iterable[int]) -> pa.Table:
    """Returns a table with the chunks in which Arrow reads it by itself: they end there."""
    wanted = [*(end for end in ends if end > 0), table.num_rows]
    found = itertools.accumulate(batch.num_rows for batch in table.to_batches())
    if list(found) == wanted:
        return table
    pieces = itertools.pairwise((0, *wanted))
    return pa.concat_tables(
        table.slice(begin, end - begin).combine_chunks() for begin, end in pieces
    )
