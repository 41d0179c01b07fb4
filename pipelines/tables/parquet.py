"""Read Parquet footers and rows, write Parquet, and read INT96 timestamps without changing them.

An INT96 timestamp consists of a day and the nanoseconds within that day. Spark, Impala and Hive
write INT96. By default, Arrow reads INT96 as 64-bit nanoseconds, which cover only the years 1677 to
2262 and wrap around outside that range.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.errors import BadFileError, UserError
from tt.pipelines.storage.files import open_for_parts
from tt.pipelines.storage.paths import is_local
from tt.pipelines.tables.columns import map_type
from tt.pipelines.tables.damage import explain_damage

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_SIGNATURE_BYTES = 28  # the signature after a plaintext footer, if columns are encrypted
_ROW_GROUP_ROWS = 1 << 20
_TAIL_BYTES = 64 << 10  # the end of a file that is read first; most footers are shorter
_ARROW_SCHEMA = b"ARROW:schema"


# Spark's keys for the version that wrote the file, and for times in the Julian calendar.
_SPARK_VERSION = b"org.apache.spark.version"
_JULIAN_INT96 = b"org.apache.spark.legacyINT96"
_JULIAN = b"org.apache.spark.legacyDateTime"


class InexactTimestampError(BadFileError):
    """Microseconds cannot represent an INT96 timestamp of the file."""

    remedy = "Write the column with microseconds"


class TwoCalendarsError(BadFileError):
    """Spark wrote INT96 timestamps and other dates or timestamps in two calendars."""

    remedy = "Write the file with one calendar"


class ExactParquetFile(pq.ParquetFile):
    """A Parquet file whose INT96 columns are read as timestamps in microseconds.

    The time zone is UTC, because Spark writes instants as INT96. In a file that Arrow wrote, the
    stored schema determines the time zone.

    Args:
      source: The file or the path, as for `pq.ParquetFile`.
      path: The path of the file, for messages.
      options: Other arguments of `pq.ParquetFile`.
    """

    def __init__(self, source: Any, *, path: str, **options: Any) -> None:
        super().__init__(source, coerce_int96_timestamp_unit="us", **options)
        self._path = path
        self._exact_schema = super().schema_arrow
        self._int96: list[int] = []  # positions of the columns that contain INT96
        self._others: dict[str, pq.ParquetFile] = {}  # unit: the same file, read with this unit
        columns = [self.metadata.schema.column(i) for i in range(self.metadata.num_columns)]
        if any(column.physical_type == "INT96" for column in columns):
            has_others = any(each.logical_type.type in ("DATE", "TIMESTAMP") for each in columns)
            self._exact_schema = _with_one_calendar(
                self._exact_schema, has_others=has_others, path=path
            )
            options = {**options, "metadata": self.metadata}
            self._others = {
                unit: pq.ParquetFile(source, coerce_int96_timestamp_unit=unit, **options)
                for unit in ("ns", "ms")
            }
            self._find_int96()

    @property
    def schema_arrow(self) -> pa.Schema:
        """The schema of the batches."""
        return self._exact_schema

    @property
    def can_choose_columns(self) -> bool:
        """Whether `iter_batches` can read some of the columns by their names."""
        names: list[str] = self._exact_schema.names
        # In Arrow's names, a dot separates a column from its fields.
        is_clear = len(set(names)) == len(names) and not any("." in name for name in names)
        return is_clear and not self._int96

    def iter_batches(
        self,
        batch_size: int = 65536,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `batch_size` at a time.

        Raises:
          InexactTimestampError: Microseconds cannot represent an INT96 timestamp.
        """
        reading = {
            "batch_size": batch_size, "row_groups": row_groups, "use_threads": use_threads,
        }  # fmt: skip
        batches: Iterator[pa.RecordBatch] = super().iter_batches(columns=columns, **reading)
        if not self._int96:
            return batches
        if columns is not None:
            raise NotImplementedError("files with INT96 can only be read with all columns")
        return self._iter_exact(batches, reading)

    def _find_int96(self) -> None:
        """Find the columns that contain INT96, and set their time zones.

        Only INT96 columns change their type if Arrow reads the file with another unit.
        """
        stored = (self.metadata.metadata or {}).get(_ARROW_SCHEMA)
        written = None if stored is None else pa.ipc.read_schema(pa.py_buffer(_decode(stored)))
        other = self._others["ns"].schema_arrow
        for index, field in enumerate(self._exact_schema):
            if field.type != other.field(index).type:
                as_written = None if written is None else written.field(index).type
                kind = _with_zones(field.type, other.field(index).type, as_written)
                self._int96.append(index)
                self._exact_schema = self._exact_schema.set(index, field.with_type(kind))

    def _iter_exact(
        self, batches: Iterator[pa.RecordBatch], reading: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        schema = self._exact_schema
        names = list(dict.fromkeys(schema.names[index] for index in self._int96))
        # Arrow returns columns in the order of `names`, and all columns with the same name.
        positions = [
            index for name in names for index, each in enumerate(schema.names) if each == name
        ]
        others = {
            unit: RowCursor(file.iter_batches(columns=names, **reading))
            for unit, file in self._others.items()
        }
        for batch in batches:
            read = {
                unit: pa.Table.from_batches(each.take(batch.num_rows))
                for unit, each in others.items()
            }
            arrays = batch.columns
            for place, index in enumerate(positions):
                column = pa.chunked_array([arrays[index]])
                others_of_column = {unit: table.column(place) for unit, table in read.items()}
                if not _is_exact(column, **others_of_column):
                    raise InexactTimestampError(
                        f"{self._path} has an INT96 timestamp that microseconds cannot represent, "
                        f"in the column {schema.names[index]!r}"
                    )
                arrays[index] = arrays[index].cast(schema.types[index])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_one_calendar(schema: pa.Schema, *, has_others: bool, path: str) -> pa.Schema:
    """Return the schema with metadata for Spark that is correct after INT96 has been replaced.

    Spark corrects old dates and timestamps that it wrote in the Julian calendar. It uses one
    metadata key for INT96, and another key for dates and all other timestamps. The output contains
    ordinary timestamps instead of INT96, so the second key must have the meaning of the first.

    Args:
      schema: The schema of the file.
      has_others: Whether the file also contains dates or other timestamps.
      path: The path of the file, for messages.

    Raises:
      TwoCalendarsError: INT96 and the other dates or timestamps are in two calendars.
    """
    metadata = dict(schema.metadata or {})
    version = metadata.get(_SPARK_VERSION, b"")
    is_julian = _JULIAN in metadata or version.startswith(b"2.")
    is_int96_julian = _JULIAN_INT96 in metadata or version.startswith((b"2.", b"3.0."))
    if is_int96_julian == is_julian:
        return schema
    if has_others:
        raise TwoCalendarsError(
            f"{path} has INT96 timestamps in one calendar, and other dates and timestamps in "
            f"another ({_JULIAN_INT96.decode()} and {_JULIAN.decode()} differ)"
        )
    if is_int96_julian:
        metadata[_JULIAN] = b""
    else:
        metadata.pop(_JULIAN)
    return schema.with_metadata(metadata)


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


def _is_exact(column: pa.ChunkedArray, *, ns: pa.ChunkedArray, ms: pa.ChunkedArray) -> bool:
    """Return whether a column of microseconds has exactly the INT96 values of the file.

    Nanoseconds reveal digits that microseconds lose; values outside the range of nanoseconds wrap
    around in the same way on both sides. Milliseconds reveal dates outside the range of
    microseconds, because only milliseconds cover all days of INT96.

    Args:
      column: The column in microseconds.
      ns: The same column, read in nanoseconds.
      ms: The same column, read in milliseconds.
    """
    if not column.cast(ns.type, safe=False).equals(ns):
        return False
    try:
        ms.cast(column.type)
    except pa.ArrowInvalid:  # the date is outside the range of microseconds
        return False
    return True


def _decode(stored: bytes) -> bytes:
    return base64.b64decode(stored + b"=" * (-len(stored) % 4))


def _with_zones(kind: pa.DataType, other: pa.DataType, written: pa.DataType | None) -> pa.DataType:
    """Return a type with the time zones of its INT96 timestamps.

    Args:
      kind: The type, with INT96 read as microseconds.
      other: The same type, with INT96 read in another unit.
      written: The type in the schema that Arrow stored; None if Arrow did not write the file.
    """
    types = pa.types
    if types.is_timestamp(kind) and kind != other:
        if written is None:
            return pa.timestamp("us", "UTC")
        return pa.timestamp("us", written.tz) if types.is_timestamp(written) else kind
    if not types.is_nested(kind):
        return kind

    def inner(field: pa.Field, index: int) -> pa.Field:
        inside = None if written is None else written.field(index).type
        return field.with_type(_with_zones(field.type, other.field(index).type, inside))

    if types.is_struct(kind):
        return pa.struct([inner(field, index) for index, field in enumerate(kind)])
    if types.is_map(kind):
        entry = inner(kind.field(0), 0).type
        return pa.map_(entry.field(0), entry.field(1), kind.keys_sorted)
    element = inner(kind.field(0), 0)
    if types.is_large_list(kind):
        return pa.large_list(element)
    return pa.list_(element, kind.list_size if types.is_fixed_size_list(kind) else -1)


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
    """

    size: int
    schema: pa.Schema
    rows: int | None = None
    checksum: str = ""
    content_bytes: int = 0
    group_rows: tuple[int, ...] = ()
    changed: float | None = None
    head: pa.Table | None = None


def read_footer(path: str) -> Contents:
    """Read the footer of a file.

    Raises:
      BadFileError: The file is not readable Parquet.
      UserError: The file cannot be opened.
    """
    with open_for_parts(path) as handle:
        size, checksum, footer = open_footer(handle, path=path)
        with explain_damage(f"{path} is not a readable Parquet file"):
            file = ExactParquetFile(handle, path=path, metadata=footer.metadata)
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
    batches: Iterator[pa.RecordBatch] = file.iter_batches(
        batch_size=batch_rows, row_groups=row_groups, columns=columns, use_threads=is_local(path)
    )
    return batches


def changed_error(path: str) -> UserError:
    """Return the error for a file that has changed since the job was planned."""
    return UserError(
        f"{path} has changed since the job was planned. Restore the file, or translate the new "
        "file into another folder"
    )


@contextlib.contextmanager
def table_writer(
    handle: IO[bytes], schema: pa.Schema, *, compression: str
) -> Iterator[Callable[[pa.Table], object]]:
    """Open a Parquet writer; yield a function that writes a table as one or more row groups.

    All settings that affect the bytes of the file are fixed here.
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
