"""Read Parquet footers and rows."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.errors import BadFileError, UserError
from tt.model.storage.files import open_for_parts
from tt.model.storage.paths import is_local
from tt.pipelines.tables.columns import has_dictionary, map_type, path_in
from tt.pipelines.tables.damage import explain_damage

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_SIGNATURE_BYTES = 28  # the signature after a plaintext footer, if columns are encrypted
_TAIL_BYTES = 64 << 10  # the end of a file that is read first; most footers are shorter


class RowCursor:
    """Reads a requested number of rows at a time, independent of the sizes of the batches."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None  # the unread rows of the last batch

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows, or fewer at the end. Consume the result before the next call."""
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            piece = batch.slice(0, rows)
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            rows -= piece.num_rows
            del batch
            yield piece
            del piece  # frees the memory before the next batch is decoded


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
    with open_for_parts(path) as handle:
        size, checksum, footer = open_footer(handle, path=path)
        with explain_damage(f"{path} is not a readable Parquet file"):
            file = open_file(handle, metadata=footer.metadata)
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


def open_footer(handle: IO[bytes], *, path: str) -> tuple[int, str, pq.ParquetFile]:
    """Return the file's size, the footer's checksum, and a Parquet file with only the footer."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(0, size - _TAIL_BYTES))
    tail = handle.read(_TAIL_BYTES)
    mark = tail[-4:]
    if mark == _ENCRYPTED:
        raise BadFileError(f"{path} is encrypted, which tt cannot read")
    if size < 12 or mark != _MAGIC:
        raise NotParquetError(f"{path} is not a Parquet file (it does not end in PAR1)")
    needed = min(size, 8 + int.from_bytes(tail[-8:-4], "little"))
    if needed > len(tail):
        handle.seek(size - needed)
        tail = handle.read(needed - len(tail)) + tail
    tail = tail[-needed:]
    checksum = hashlib.blake2b(tail[:-8], digest_size=16).hexdigest()
    with explain_damage(f"{path} is not a readable Parquet file"):
        file = pq.ParquetFile(pa.BufferReader(_MAGIC + tail))
    # Arrow aborts the process if this module asks it about an encrypted column. A plaintext footer
    # has a signature if the file contains encrypted columns.
    if needed - 8 - file.metadata.serialized_size == _SIGNATURE_BYTES:
        raise BadFileError(
            f"{path} has encrypted columns, which tt cannot read. Write it without encryption"
        )
    return size, checksum, file


def group_starts(file: pq.ParquetFile) -> list[int]:
    """Return the index of the first row of each row group, followed by the number of all rows."""
    return list(itertools.accumulate((each.num_rows for each in row_groups(file)), initial=0))


def iter_rows(
    file: pq.ParquetFile,
    *,
    path: str,
    first_row: int,
    rows: int,
    batch_rows: int,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of an open file in batches, independent of its row groups.

    This reads only the row groups that contain these rows. The rows before them in the first row
    group are decoded and dropped, one batch at a time.

    Args:
      file: The open file.
      path: The path of the file, for messages.
      first_row: The index of the first row.
      rows: The number of rows.
      batch_rows: The maximum number of rows in a batch.
      columns: Paths of the columns to read; None for all columns.

    Raises:
      ArrowInvalid: The pages contain fewer rows than the footer says.
    """
    starts = group_starts(file)
    groups = [
        index
        for index, (begin, end) in enumerate(itertools.pairwise(starts))
        if max(begin, first_row) < min(end, first_row + rows)
    ]
    skipped = first_row - starts[groups[0]] if groups else 0  # rows of the first group to drop
    missing = rows
    cursor = RowCursor(
        read_batches(file, path=path, batch_rows=batch_rows, row_groups=groups, columns=columns)
    )
    collections.deque(cursor.take(skipped), maxlen=0)
    for piece in cursor.take(rows):
        missing -= piece.num_rows
        yield piece
        del piece
    if missing:
        raise pa.ArrowInvalid(f"{path} lacks {missing} of {rows} rows, starting at row {first_row}")


def read_batches(
    file: pq.ParquetFile,
    *,
    path: str,
    batch_rows: int,
    row_groups: Sequence[int],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups of an open file; `columns=None` reads all columns.

    On an object store, a single thread reads the columns in the order of the file. Threads would
    read them in any order, and jumping back in the file costs an additional request.
    """
    read = functools.partial(
        file.iter_batches, batch_size=batch_rows, columns=columns, use_threads=is_local(path)
    )
    # Arrow cannot read nested dictionaries of several row groups at once.
    each_run = [[group] for group in row_groups]
    runs = each_run if has_dictionary(file.schema_arrow) else [row_groups]
    return itertools.chain.from_iterable(read(row_groups=run) for run in runs)


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
