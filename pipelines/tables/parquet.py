"""Parquet: footers, rows of an open file, and writing."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.errors import BadFileError, UserError
from pipelines.storage.files import open_for_parts
from pipelines.storage.paths import is_local
from pipelines.tables.columns import map_type
from pipelines.tables.damage import told_of_damage
from pipelines.tables.int96 import ExactParquetFile

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_SIGNATURE_BYTES = 28  # that follow the footer if columns are encrypted, but not the footer
_ROW_GROUP_ROWS = 1 << 20
_TAIL_BYTES = 64 << 10  # of a file, read at once: most footers are shorter


class NotParquetError(BadFileError):
    """A file that has not even the marks of Parquet."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """What a file holds: Parquet by its footer, other formats by their rows or only their head."""

    size: int  # bytes of the file
    schema: pa.Schema  # as Arrow reads the file
    rows: int | None = None  # None if only the head was read
    checksum: str = (
        ""  # hex blake2b: of the footer of Parquet, else of the whole file; "" of a head
    )
    content_bytes: int = 0  # bytes of all cells in memory; of Parquet before compression
    group_rows: tuple[int, ...] = ()  # rows of each row group of Parquet
    changed: float | None = None  # when, in seconds since 1970; only if only the head was read
    head: pa.Table | None = None  # the first rows, of other formats


def read_footer(path: str) -> Contents:
    """Read the footer of a file.

    Raises:
      BadFileError: The file is not good Parquet.
      UserError: The file cannot be opened.
    """
    with open_for_parts(path) as handle:
        size, checksum, file = open_footer(handle, path=path)
    groups = row_groups(file)
    return Contents(
        size=size,
        rows=file.metadata.num_rows,
        checksum=checksum,
        schema=file.schema_arrow,
        group_rows=tuple(group.num_rows for group in groups),
        content_bytes=sum(group.total_byte_size for group in groups),
    )


def row_groups(file: pq.ParquetFile) -> list[Any]:
    """Return the metadata of each row group."""
    return [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]


def open_footer(handle: IO[bytes], *, path: str) -> tuple[int, str, ExactParquetFile]:
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
    with told_of_damage(f"{path} is not a readable Parquet file"):
        file = ExactParquetFile(pa.BufferReader(_MAGIC + tail), path=path)
    # Arrow ends the process that asks about an encrypted column. A plaintext footer has a signature
    # if it describes such columns.
    if needed - 8 - file.metadata.serialized_size == _SIGNATURE_BYTES:
        raise BadFileError(
            f"{path} has encrypted columns, which tt cannot read: write it without encryption"
        )
    return size, checksum, file


def overlapping_row_groups(
    *, group_rows: Iterable[int], first_row: int, rows: int
) -> tuple[list[int], int]:
    """Finds the row groups that hold a run of rows, and how many rows of the first lie before it.

    >>> overlapping_row_groups(group_rows=[10, 10, 10], first_row=12, rows=9)
    ([1, 2], 2)
    """
    groups: list[int] = []
    rows_before_run = 0
    start = 0
    for index, count in enumerate(group_rows):
        if max(start, first_row) < min(start + count, first_row + rows):
            if not groups:
                rows_before_run = first_row - start
            groups.append(index)
        start += count
    return groups, max(0, rows_before_run)


def iter_rows(
    file: pq.ParquetFile,
    *,
    path: str,
    first_row: int,
    rows: int,
    batch_rows: int,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields rows of an open file, at most `batch_rows` at a time, whatever its row groups are.

    Only the row groups that hold them are touched, and only a batch of what comes before the
    rows is in memory at a time. The path is for messages; columns of None are all columns.

    Raises:
      ArrowInvalid: The pages hold fewer rows than the footer says.
    """
    groups, skipped = overlapping_row_groups(
        group_rows=(group.num_rows for group in row_groups(file)),
        first_row=first_row,
        rows=rows,
    )
    missing = rows
    batches = read_batches(
        file, path=path, batch_rows=batch_rows, row_groups=groups, columns=columns
    )
    while missing and (batch := next(batches, None)) is not None:
        piece = batch.slice(min(skipped, batch.num_rows), missing)
        skipped -= min(skipped, batch.num_rows)
        missing -= piece.num_rows
        if piece.num_rows:
            yield piece
    if missing:
        raise pa.ArrowInvalid(f"{path} lacks {missing} of {rows} rows from row {first_row} on")


def read_batches(
    file: pq.ParquetFile,
    *,
    path: str,
    batch_rows: int,
    row_groups: Sequence[int],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields row groups of an open file, with columns of None all of them.

    On an object store columns are read in their order: threads would have one ask for its bytes
    before those that lie before it, which is a request more.
    """
    batches: Iterator[pa.RecordBatch] = file.iter_batches(
        batch_size=batch_rows, row_groups=row_groups, columns=columns, use_threads=is_local(path)
    )
    return batches


def changed_error(path: str) -> UserError:
    """Returns the error of a file that is another one than when it was looked at first."""
    return UserError(
        f"{path} has changed since the run was planned: restore the file, or translate the new one "
        "into another folder"
    )


@contextlib.contextmanager
def table_writer(
    handle: IO[bytes], schema: pa.Schema, *, compression: str
) -> Iterator[Callable[[pa.Table], object]]:
    """Writes tables of a schema as Parquet, a row group each at least, with checksums of pages.

    What decides the bytes is pinned.
    """
    with pq.ParquetWriter(
        handle,
        schema,
        compression=compression,
        version="2.6",
        data_page_version="1.0",
        data_page_size=1 << 20,
        use_dictionary=True,
        write_statistics=True,
        write_page_checksum=True,
        store_schema=True,
    ) as writer:
        yield functools.partial(writer.write_table, row_group_size=_ROW_GROUP_ROWS)


def schema_as_read(schema: pa.Schema) -> pa.Schema:
    """Returns a schema that holds the same values, and with which they come back from Parquet.

    Elements of lists have another name then, and seconds are milliseconds. Lists of one length are
    plain lists: Arrow writes null ones, and then cannot read the file.

    Raises:
      ArrowException: Parquet cannot hold a type of it.
    """
    file = pa.BufferOutputStream()
    fields = [field.with_type(map_type(field.type, _with_plain_list)) for field in schema]
    pq.write_table(pa.schema(fields, schema.metadata).empty_table(), file)
    return pq.read_schema(pa.BufferReader(file.getvalue()))


def _with_plain_list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_field) if pa.types.is_fixed_size_list(kind) else kind
