"""Read the footers and the rows of Parquet files.

The footer of a Parquet file contains only the encoded size of each column in a row group. It does
not show that a few rows are much longer than the others, or that many rows share a long value of a
dictionary. Therefore, `ForwardReader` limits the number of rows that it decodes at once, and then
cuts the decoded rows into pieces of limited memory.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.errors import BadFileError, UserError
from tt.model.storage.files import open_for_parts, open_input, read_range
from tt.model.storage.paths import is_local
from tt.pipelines.tables.columns import has_dictionary, map_type, path_in
from tt.pipelines.tables.damage import explain_damage
from tt.pipelines.tables.interface import ReadRequest
from tt.pipelines.tables.pieces import combine_chunks, cut_by_bytes

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_SIGNATURE_BYTES = 28  # the signature after a plaintext footer, if columns are encrypted
_TAIL_BYTES = 64 << 10  # the end of a file that is read first; most footers are shorter
_BATCH_ROWS = 8192  # the maximum number of rows that are decoded at once
# Column chunks are read through a buffer, because a single row group may contain the whole file.
# On an object store each buffer is a request, so buffers are larger there, but all buffers together
# must fit into the memory of a worker.
_BUFFER_BYTES = 1 << 20
_REMOTE_BUFFER_BYTES = 16 << 20
_REMOTE_BUFFERS_BYTES = 64 << 20  # the buffers of all columns together
_LEAST_BUFFER_BYTES = 256 << 10
_BATCH_BYTES = 64 << 20  # maximum memory of the rows that are decoded at once
# These numbers of rows are decoded at once if rows of average size fit into memory, even if the
# footer does not exclude that some rows are longer.
_FEW_ROWS, _BULK_ROWS = 32, 1024
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}  # the last two encode nulls and list levels, not values
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


class NotParquetError(BadFileError):
    """A file does not end with Parquet's magic number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """The schema and the size of a table file.

    For Parquet, they come from the footer. For other formats, they come from all rows, or from the
    head of the file.

    Attributes:
      size: The size of the file, in bytes.
      schema: The schema in which Arrow reads the file.
      rows: The number of rows; None if only the head was read.
      checksum: The blake2b checksum of a Parquet file's footer, or of the whole file in other
        formats, in hexadecimal; "" if only the head was read.
      content_bytes: The memory of all cells, in bytes; for Parquet, the uncompressed size.
      group_rows: The number of rows in each row group of a Parquet file.
      changed: The modification time, in seconds since 1970; None unless only the head was read.
      head: The first rows; None for Parquet.
      int96: The names of the columns of a Parquet file that contain INT96 timestamps.
      has_random_access: Whether the rows can be read in any order, as in Parquet.
      problem: The first fault, if all rows that were read are bad; otherwise "".
      has_all_columns: Whether the schema is complete; the end of a JSONL file may have other keys.
    """

    size: int
    schema: pa.Schema
    rows: int | None = None
    checksum: str = ""
    content_bytes: int = 0
    group_rows: tuple[int, ...] = ()
    changed: float | None = None
    head: pa.Table | None = None
    int96: tuple[str, ...] = ()
    has_random_access: bool = False
    has_all_columns: bool = True
    problem: str = ""


def read_footer(path: str) -> Contents:
    """Read the footer of a file.

    Raises:
      BadFileError: The file is not readable Parquet.
      UserError: The file cannot be opened.
    """
    size, checksum, file = open_footer(path)
    groups = row_groups(file)
    schema = file.schema_arrow
    int96 = [path_in(schema, each.path)[0] for each in file.schema if each.physical_type == "INT96"]
    return Contents(
        size=size,
        rows=file.metadata.num_rows,
        checksum=checksum,
        schema=schema,
        group_rows=tuple(group.num_rows for group in groups),
        content_bytes=sum(group.total_byte_size for group in groups),
        int96=tuple(dict.fromkeys(int96)),
        has_random_access=True,
    )


def open_file(source: Any, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file; INT96 timestamps, which old programs write, become microseconds.

    Nanoseconds, Arrow's default, cover only the years 1677 to 2262.
    """
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)


def row_groups(file: pq.ParquetFile) -> list[Any]:
    """Return the metadata of each row group."""
    return [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]


def open_footer(path: str, *, size: int | None = None) -> tuple[int, str, pq.ParquetFile]:
    """Return a file's size, the footer's checksum, and a Parquet file with only the footer.

    Args:
      path: The path of the file.
      size: The size of the file, if it is known. On an object store, this saves a request.

    Raises:
      BadFileError: The file is not readable Parquet.
      UserError: The file cannot be opened.
    """
    if size is None:
        with open_for_parts(path) as handle:
            size = handle.seek(0, os.SEEK_END)
    tail = read_range(path, max(0, size - _TAIL_BYTES), size)
    if tail.endswith(_ENCRYPTED):
        raise BadFileError(f"{path} is encrypted, which tt cannot read")
    if size < 12 or not tail.endswith(_MAGIC):
        raise NotParquetError(f"{path} is not a Parquet file (it does not end in PAR1)")
    needed = min(size, 8 + int.from_bytes(tail[-8:-4], "little"))
    if needed > len(tail):
        tail = read_range(path, size - needed, size - len(tail)) + tail
    tail = tail[-needed:]
    checksum = hashlib.blake2b(tail[:-8], digest_size=16).hexdigest()
    with explain_damage(f"{path} is not a readable Parquet file"):
        file = open_file(pa.BufferReader(_MAGIC + tail))
    # Arrow aborts the process if this module asks it about an encrypted column. A plaintext footer
    # has a signature if the file contains encrypted columns.
    if needed - 8 - file.metadata.serialized_size == _SIGNATURE_BYTES:
        raise BadFileError(
            f"{path} has encrypted columns, which tt cannot read. Write it without encryption"
        )
    return size, checksum, file


def changed_error(path: str) -> UserError:
    """Return the error for a file that has changed since the job was planned."""
    return UserError(
        f"{path} has changed since the job was planned. Restore the file, or translate the new "
        "file into another folder"
    )


def schema_as_read(schema: pa.Schema) -> pa.Schema:
    """Return the schema that a table has after it is written to Parquet and read again.

    Parquet changes the name of list elements, and seconds to milliseconds. Lists of a fixed length
    become plain lists, because Arrow cannot read a file that contains such lists with null values.

    Raises:
      ArrowException: Parquet cannot store one of the types.
    """
    file = pa.BufferOutputStream()
    fields = [field.with_type(map_type(field.type, _with_plain_list)) for field in schema]
    pq.write_table(pa.schema(fields, schema.metadata).empty_table(), file)
    return pq.read_schema(pa.BufferReader(file.getvalue()))


def _with_plain_list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_field) if pa.types.is_fixed_size_list(kind) else kind


class RowCursor:
    """Reads a requested number of rows at a time, independent of the sizes of the batches."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None  # the unread rows of the last batch

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows, or fewer at the end. Consume the result before the next call."""
        while rows and (batch := self._rest or next(self._batches, None)) is not None:
            piece = batch.slice(0, rows)
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            rows -= piece.num_rows
            del batch
            yield piece
            del piece  # frees the memory before the next batch is decoded


@dataclasses.dataclass(kw_only=True)
class ForwardReader(contextlib.AbstractContextManager["ForwardReader"]):
    """Reads runs of consecutive rows of a Parquet file from front to back, each row only once.

    Two readers of the same run return tables that give the same bytes in a file, even if one of
    them starts at a later row. The first read opens the file.

    Attributes:
      path: The path of the file.
      end: The index after the last row that will be read.
      footer_checksum: The checksum of the footer when the job was planned; None to accept any.
      choose_columns: Returns the names of the columns to read from the schema of the file; None to
        read all columns. A dotted name is a field of a struct. The reader may return other columns,
        too.
      is_bulk: Whether to read many short rows fast. If so, the reader decodes more rows at once.
        On an object store, a request may then also read columns that are not needed.
    """

    path: str
    end: int
    footer_checksum: str | None = None
    choose_columns: Callable[[pa.Schema], Sequence[str]] | None = None
    is_bulk: bool = False

    def __post_init__(self) -> None:
        self._opened = contextlib.ExitStack()
        self._cursor = RowCursor(iter(()))
        self._next_row = -1  # the next row of the cursor; -1 if there is no cursor

    def __exit__(self, *exception: object) -> None:
        self._opened.close()

    @functools.cached_property
    def _file(self) -> pq.ParquetFile:
        handle = self._opened.enter_context(
            open_input(self.path, is_read_in_parts=not self.is_bulk)
        )
        _, checksum, footer = open_footer(self.path, size=handle.seek(0, os.SEEK_END))
        if self.footer_checksum not in (None, checksum):
            raise changed_error(self.path)
        return open_file(
            handle,
            metadata=footer.metadata,
            buffer_size=_buffer_bytes(self.path, footer, end=self.end),
            pre_buffer=False,
            page_checksum_verification=True,
        )

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of all columns of the file."""
        return self._file.schema_arrow

    @property
    def file_rows(self) -> int:
        """The number of all rows of the file."""
        return self._starts[-1]

    @functools.cached_property
    def _columns(self) -> list[str] | None:
        """The names of the columns to read; None for all columns."""
        names = self.file_schema.names
        chosen = names if self.choose_columns is None else [*self.choose_columns(self.file_schema)]
        # Arrow would read columns with the same name in another order.
        return None if chosen == names or len({*chosen}) < len(chosen) else chosen

    @functools.cached_property
    def _schema(self) -> pa.Schema:
        """The schema of the columns to read."""
        return self._file.read_row_groups([], columns=self._columns).schema

    @functools.cached_property
    def _starts(self) -> list[int]:
        """The index of the first row of each row group, followed by the number of all rows."""
        groups = row_groups(self._file)
        return list(itertools.accumulate((group.num_rows for group in groups), initial=0))

    def pieces(self, *, first_row: int, rows: int, most_bytes: int) -> Iterator[pa.Table]:
        """Yield rows as one table, or as several tables if they need more memory.

        The end of a table depends only on the rows. At most two tables are in memory at a time, in
        addition to the rows that are decoded at once.

        Args:
          first_row: The index of the first row.
          rows: The number of rows; 0 yields one empty table.
          most_bytes: The maximum bytes of a table, see `row_bytes`.

        Raises:
          BadFileError: The rows, or the rows before them in their row group, are damaged.
          UserError: The file has changed since it was planned.
        """
        batches = self._batches(first_row, rows)
        tables = cut_by_bytes(batches, schema=self._schema, most_bytes=most_bytes)
        yield from map(combine_chunks, tables)

    def _batches(self, first_row: int, rows: int) -> Iterator[pa.RecordBatch]:
        done = 0
        try:
            for batch in self._take(first_row, rows, end=self.end):
                done += batch.num_rows
                yield batch
                del batch  # frees the memory before the next rows are decoded
        except BadFileError:
            # The damage may be after these rows, so read again, and only up to the last row.
            yield from self._take(first_row + done, rows - done, end=first_row + rows)

    def _take(self, first_row: int, rows: int, *, end: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of the cursor, or of a new cursor for the row groups before the row `end`."""
        next_row, self._next_row = self._next_row, -1  # no cursor is left if reading fails
        last_row = first_row + rows - 1
        with explain_damage(
            f"{self.path} cannot be read (rows {first_row:,} to {last_row:,}, counted from 0)"
        ):
            group = bisect.bisect_right(self._starts, first_row) - 1
            if not self._starts[group] <= next_row <= first_row:
                next_row = self._starts[group]
                after = bisect.bisect_left(self._starts, end, hi=len(self._starts) - 1)
                self._cursor = RowCursor(self._decode(range(group, after), most_rows=rows))
            collections.deque(self._cursor.take(first_row - next_row), maxlen=0)
            for batch in self._cursor.take(rows):
                rows -= batch.num_rows
                yield batch
                del batch
            if rows:
                raise pa.ArrowInvalid(f"{rows} rows are missing")
        self._next_row = last_row + 1

    def _decode(self, groups: Sequence[int], *, most_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of row groups.

        On an object store, a single thread reads the columns in the order of the file. Threads
        would read them in any order, and jumping back in the file costs an additional request.
        """
        rows, runs = min(most_rows, _BATCH_ROWS), [groups]
        few_rows = _BULK_ROWS if self.is_bulk else _FEW_ROWS
        if has_dictionary(self._schema):
            # Each batch has a copy of its dictionaries, so small batches would need more memory.
            # Arrow cannot read nested dictionaries of several row groups at once.
            runs = [[group] for group in groups]
        else:
            rows = _rows_at_once(self._file, most_rows=rows, few_rows=few_rows)
        read = functools.partial(
            self._file.iter_batches, columns=self._columns, use_threads=is_local(self.path)
        )
        for run in runs:
            yield from read(batch_size=rows, row_groups=run)


class ParquetRows:
    """The rows of a whole Parquet file, as batches.

    Args:
      reader: The reader of the file.
      request: What to read.

    Raises:
      BadFileError: The file is damaged.
    """

    rules = None  # the rows are not lines

    def __init__(self, reader: ForwardReader, request: ReadRequest) -> None:
        del request  # the reader knows it
        self._reader = reader
        self.schema = reader.file_schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        rows = self._reader.file_rows
        for piece in self._reader.pieces(first_row=0, rows=rows, most_bytes=_BATCH_BYTES):
            yield from piece.to_batches()


def read_rows(*, first_row: int, rows: int, **options: Any) -> pa.Table:
    """Read consecutive rows of a file as one table, given the other options of `ForwardReader`."""
    with ForwardReader(end=first_row + rows, **options) as reader:
        [table] = reader.pieces(first_row=first_row, rows=rows, most_bytes=1 << 62)
        return table


def _buffer_bytes(path: str, file: pq.ParquetFile, *, end: int) -> int:
    """Return the bytes of the buffer for each column, to read rows before the row `end`.

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


def _rows_at_once(file: pq.ParquetFile, *, most_rows: int, few_rows: int) -> int:
    """Return how many rows of a Parquet file to decode at once, so that they fit into memory.

    The rows fit even if their sizes differ widely, unless `few_rows` allows more rows.
    """
    rows, least = most_rows, few_rows
    for group in row_groups(file):
        average = int(group.total_byte_size) // max(1, group.num_rows)
        least = min(least, max(1, _BATCH_BYTES // max(1, average)))
        bounds = [_bounds(group.column(index)) for index in range(group.num_columns)]
        while rows > least and sum(min(rows * row, whole) for row, whole in bounds) > _BATCH_BYTES:
            rows //= 2
    return max(rows, min(least, most_rows))


def _bounds(chunk: Any) -> tuple[int, int]:
    """Return the maximum bytes of a row in a column of a row group, and of all rows."""
    stored = int(chunk.total_uncompressed_size)
    # A value is at most as long as the stored column, because it may be the only value.
    value = _VALUE_BYTES.get(chunk.physical_type, stored)
    whole = stored if set(chunk.encodings) <= _PLAIN else value * int(chunk.num_values)
    is_nested = "." in chunk.path_in_schema  # a row may have a list of values
    return (whole if is_nested else min(value, whole)), whole
