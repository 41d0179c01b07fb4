"""Parquet through Beam's file systems: footers, runs of rows, text cells; and writing a table."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from model.errors import BadFileError, UserError
from pipelines.storage.files import is_damage, open_for_parts
from pipelines.storage.paths import is_local

SUFFIX = ".parquet"
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_BATCH_ROWS = 8192
# Column chunks are streamed through a buffer, never loaded whole: a row group may be the file. An
# object store takes a request for each buffer, so that there they are larger, but together no more
# than a worker has room for.
_BUFFER_BYTES = 1 << 20
_REMOTE_BUFFER_BYTES = 16 << 20
_REMOTE_BUFFERS_BYTES = 64 << 20  # of all columns
_LEAST_BUFFER_BYTES = 256 << 10
_ROW_GROUP_ROWS = 1 << 20
_TAIL_BYTES = 64 << 10  # of a file, read at once: most footers are shorter


class NotParquetError(BadFileError):
    """A file that has not even the marks of Parquet."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Footer:
    """What a Parquet file says of itself."""

    size: int  # bytes of the file
    rows: int
    checksum: str  # hex blake2b of the footer's bytes, which hold the place of every column chunk
    schema: pa.Schema  # as Arrow reads the file
    group_rows: tuple[int, ...]  # rows of each row group
    content_bytes: int  # bytes of all columns before compression


def read_footer(path: str) -> Footer:
    """Reads the footer of a file.

    Raises:
      BadFileError: The file is not good Parquet.
      UserError: The file cannot be opened.
    """
    with open_for_parts(path) as handle:
        size, checksum, file = _open_footer(handle, path=path)
    metadata = file.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return Footer(
        size=size,
        rows=metadata.num_rows,
        checksum=checksum,
        schema=file.schema_arrow,
        group_rows=tuple(group.num_rows for group in groups),
        content_bytes=sum(group.total_byte_size for group in groups),
    )


def _open_footer(handle: IO[bytes], *, path: str) -> tuple[int, str, pq.ParquetFile]:
    """Returns the file's size, the footer's checksum, and a Parquet file of the footer alone."""
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
    with _bad_content(f"{path} is not a readable Parquet file"):
        return size, checksum, pq.ParquetFile(pa.BufferReader(_MAGIC + tail))


@contextlib.contextmanager
def _bad_content(problem: str) -> Iterator[None]:
    """Turns Arrow's errors about damaged bytes into a BadFileError; those of file systems pass."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")  # Arrow's has lines, and bytes of files
        reason = "".join(c if c.isprintable() else "?" for c in reason)
        raise BadFileError(f"{problem}: {reason}") from error


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
    metadata = file.metadata
    groups, skipped = overlapping_row_groups(
        group_rows=(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)),
        first_row=first_row,
        rows=rows,
    )
    missing = rows
    batches = file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=columns)
    while missing and (batch := next(batches, None)) is not None:
        piece = batch.slice(min(skipped, batch.num_rows), missing)
        skipped -= min(skipped, batch.num_rows)
        missing -= piece.num_rows
        if piece.num_rows:
            yield piece
    if missing:
        raise pa.ArrowInvalid(f"{path} lacks {missing} of {rows} rows from row {first_row} on")


def changed_error(path: str) -> UserError:
    """Returns the error of a file that is another one than when it was looked at first."""
    return UserError(
        f"{path} has changed since the run was planned: restore the file, or translate the new one "
        "into another folder"
    )


def read_rows(*, path: str, first_row: int, rows: int, footer_checksum: str) -> pa.Table:
    """Reads consecutive rows of a file as one table, if its footer is the one that was planned.

    Raises:
      BadFileError: Bytes on the way to the rows are damaged.
      UserError: The file is another one now.
    """
    with open_for_parts(path) as handle:
        file = _open_planned(handle, path=path, checksum=footer_checksum, end=first_row + rows)
        with _told_of_rows(path, first_row=first_row, rows=rows):
            pieces = iter_rows(
                file, path=path, first_row=first_row, rows=rows, batch_rows=_batch_rows(rows)
            )
            return pa.Table.from_batches(list(pieces), schema=file.schema_arrow)


def _batch_rows(rows: int) -> int:
    return max(1, min(rows, _BATCH_ROWS))


def _told_of_rows(
    path: str, *, first_row: int, rows: int
) -> contextlib.AbstractContextManager[None]:
    last_row = first_row + rows - 1
    return _bad_content(f"{path} cannot be read (rows {first_row:,} to {last_row:,}, from 0)")


def _open_planned(handle: IO[bytes], *, path: str, checksum: str, end: int) -> pq.ParquetFile:
    """Opens a file of which rows are read up to the row `end`, if its footer is as planned."""
    _, found, footer = _open_footer(handle, path=path)
    if found != checksum:
        raise changed_error(path)
    handle.seek(0)
    return pq.ParquetFile(
        handle,
        metadata=footer.metadata,
        buffer_size=_buffer_bytes(path, footer.metadata, end=end),
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _buffer_bytes(path: str, metadata: Any, *, end: int) -> int:
    """Returns the bytes of a column's buffer.

    Of a row group that is read in part, a buffer's worth of each column is read too much.
    """
    if is_local(path):
        return _BUFFER_BYTES
    columns = max(1, int(metadata.num_columns))
    size = min(_REMOTE_BUFFER_BYTES, max(_BUFFER_BYTES, _REMOTE_BUFFERS_BYTES // columns))
    start = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if start < end < start + group.num_rows:
            stored = sum(int(group.column(i).total_compressed_size) for i in range(columns))
            size = min(size, max(_LEAST_BUFFER_BYTES, stored // (8 * columns)))
        start += group.num_rows
    return size


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
        self._batch_rows = _batch_rows(most_rows)
        self._opened = contextlib.ExitStack()
        self._file: pq.ParquetFile | None = None
        self._starts: list[int] = []  # first row of each row group, and the rows of the file
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None  # of the last batch
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
        """Reads rows.

        Raises:
          BadFileError: Bytes on the way to the rows are damaged.
          UserError: The file is another one now.
        """
        if rows:
            file = self._file or self._open()
            if not self._has_dictionary or self._is_in_one_group(first_row, rows):
                try:
                    with _told_of_rows(self._path, first_row=first_row, rows=rows):
                        return self._read(file, first_row, rows)
                except BadFileError:  # the damage may lie behind the rows
                    self._next_row = -1
        return read_rows(
            path=self._path, first_row=first_row, rows=rows, footer_checksum=self._checksum
        )

    def _open(self) -> pq.ParquetFile:
        handle = self._opened.enter_context(open_for_parts(self._path))
        file = _open_planned(handle, path=self._path, checksum=self._checksum, end=self._end)
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        self._starts = list(itertools.accumulate((each.num_rows for each in groups), initial=0))
        self._has_dictionary = any(map(_has_dictionary, file.schema_arrow.types))
        self._file = file
        return file

    def _is_in_one_group(self, first_row: int, rows: int) -> bool:
        group = bisect.bisect_right(self._starts, first_row) - 1
        fits = first_row + rows <= self._starts[min(group + 1, len(self._starts) - 1)]
        return fits and _batch_rows(rows) == self._batch_rows

    def _read(self, file: pq.ParquetFile, first_row: int, rows: int) -> pa.Table:
        group = bisect.bisect_right(self._starts, first_row) - 1
        start = self._starts[group]
        is_on_the_way = start <= self._next_row <= first_row
        if not is_on_the_way or (self._has_dictionary and start != self._begun_at):
            last = min(bisect.bisect_left(self._starts, self._end), len(self._starts) - 1)
            last = group + 1 if self._has_dictionary else last
            self._batches = file.iter_batches(
                batch_size=self._batch_rows, row_groups=list(range(group, last))
            )
            self._rest, self._next_row, self._begun_at = None, start, start
        self._take(first_row - self._next_row)
        table = pa.Table.from_batches(self._take(rows), schema=file.schema_arrow)
        if self._has_dictionary:
            return table
        ends = range(start + _batch_rows(rows), first_row + rows, _batch_rows(rows))
        return _as_chunks(table, [end - first_row for end in ends])

    def _take(self, rows: int) -> list[pa.RecordBatch]:
        """Takes the rows that come next."""
        pieces = []
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise pa.ArrowInvalid(f"{rows} rows are missing")
            pieces.append(batch.slice(0, rows))
            taken = pieces[-1].num_rows
            self._rest = batch.slice(taken) if taken < batch.num_rows else None
            self._next_row += taken
            rows -= taken
        return pieces


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(
        _has_dictionary(kind.field(index).type) for index in range(kind.num_fields)
    )


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


def write_table(table: pa.Table, handle: IO[bytes], *, compression: str) -> None:
    """Writes a table as Parquet, with checksums of pages; what decides the bytes is pinned."""
    pq.write_table(
        table,
        handle,
        compression=compression,
        version="2.6",
        data_page_version="1.0",
        data_page_size=1 << 20,
        row_group_size=_ROW_GROUP_ROWS,
        use_dictionary=True,
        write_statistics=True,
        write_page_checksum=True,
        store_schema=True,
    )


def schema_as_read(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with which a table of this schema comes back from Parquet.

    Elements of lists have another name then, and seconds are milliseconds.

    Raises:
      ArrowException: Parquet cannot hold a type of it.
    """
    file = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), file)
    return pq.read_schema(pa.BufferReader(file.getvalue()))


def is_text(kind: pa.DataType) -> bool:
    """Tells whether a column of this type holds text."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def cells_as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns a text column as large_binary: files may hold cells that are not UTF-8."""
    plain = pc.cast(column, pa.large_string())  # of dictionary and view columns too
    return pc.cast(plain, pa.large_binary())


def cell_bytes(column: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    """Returns the cells of a text column as bytes."""
    cells: list[bytes | None] = cells_as_binary(column).to_pylist()
    return cells
