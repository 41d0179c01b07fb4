"""Parquet: footers, rows of an open file, writing; and INT96 timestamps without a changed value.

INT96 holds a day and the nanoseconds of the day. Spark, Impala and Hive write it. Arrow reads INT96
as 64-bit nanoseconds by default, which hold the years 1677 to 2262 and wrap around outside of them.
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
from tt.pipelines.tables.damage import told_of_damage

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_SIGNATURE_BYTES = 28  # that follow the footer if columns are encrypted, but not the footer
_ROW_GROUP_ROWS = 1 << 20
_TAIL_BYTES = 64 << 10  # of a file, read at once: most footers are shorter
_ARROW_SCHEMA = b"ARROW:schema"


# Spark's keys: which version wrote the file, and whether times are in the Julian calendar.
_SPARK_VERSION = b"org.apache.spark.version"
_JULIAN_INT96 = b"org.apache.spark.legacyINT96"
_JULIAN = b"org.apache.spark.legacyDateTime"


class InexactTimestampError(BadFileError):
    """A file has an INT96 timestamp that microseconds cannot hold."""

    remedy = "Write the column with microseconds"


class TwoCalendarsError(BadFileError):
    """Spark wrote INT96 timestamps in another calendar than other dates or timestamps."""

    remedy = "Write the file with one calendar"


class ExactParquetFile(pq.ParquetFile):
    """A Parquet file whose INT96 columns are timestamps in microseconds.

    Spark writes instants as INT96, so the timestamps are in UTC. A file that Arrow wrote stores the
    time zone, or that there is none.

    Args:
      source: The file, as for `pq.ParquetFile`.
      path: The path of the file, for messages.
      options: Other arguments of `pq.ParquetFile`.
    """

    def __init__(self, source: Any, *, path: str, **options: Any) -> None:
        super().__init__(source, coerce_int96_timestamp_unit="us", **options)
        self._path = path
        self._exact_schema = super().schema_arrow
        self._int96: list[int] = []  # positions of the columns that hold INT96
        self._others: dict[str, pq.ParquetFile] = {}  # the file with other units, by unit
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

    def iter_batches(
        self,
        batch_size: int = 65536,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows, at most `batch_size` at a time.

        Raises:
          InexactTimestampError: Microseconds cannot hold an INT96 timestamp.
        """
        reading = {
            "batch_size": batch_size, "row_groups": row_groups, "use_threads": use_threads,
        }  # fmt: skip
        batches: Iterator[pa.RecordBatch] = super().iter_batches(columns=columns, **reading)
        if not self._int96:
            return batches
        if columns is not None:
            raise NotImplementedError("files with INT96 are read with all of their columns")
        return self._iter_exact(batches, reading)

    def _find_int96(self) -> None:
        """Finds the columns that hold INT96, and gives them their time zones.

        The unit that Arrow is asked for changes the types of INT96 and no others.
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
        # Arrow returns columns in the order of the names, and all columns of a name.
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
                        f"{self._path} has an INT96 timestamp that microseconds cannot hold, in "
                        f"the column {schema.names[index]!r}"
                    )
                arrays[index] = arrays[index].cast(schema.types[index])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_one_calendar(schema: pa.Schema, *, has_others: bool, path: str) -> pa.Schema:
    """Return the schema with metadata by which Spark reads INT96 as before, as other timestamps.

    Spark corrects times before 1900 that it wrote in the Julian calendar. It has one key for INT96,
    and one for dates and all other timestamps.

    Raises:
      TwoCalendarsError: INT96 and other dates or timestamps are in two calendars.
    """
    metadata = dict(schema.metadata or {})
    version = metadata.get(_SPARK_VERSION, b"")
    is_julian = _JULIAN in metadata or version.startswith(b"2.")
    is_int96_julian = _JULIAN_INT96 in metadata or version.startswith((b"2.", b"3.0."))
    if is_int96_julian == is_julian:
        return schema
    if has_others:
        raise TwoCalendarsError(
            f"{path} has INT96 timestamps in another calendar than its other dates and timestamps "
            f"({_JULIAN_INT96.decode()} and {_JULIAN.decode()} differ)"
        )
    if is_int96_julian:
        metadata[_JULIAN] = b""
    else:
        metadata.pop(_JULIAN)
    return schema.with_metadata(metadata)


class RowCursor:
    """Batches that are taken by numbers of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None  # of the last batch

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows, or fewer at the end; read them before you take more."""
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            piece = batch.slice(0, rows)
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            rows -= piece.num_rows
            del batch
            yield piece
            del piece  # before the next is decoded


def _is_exact(column: pa.ChunkedArray, *, ns: pa.ChunkedArray, ms: pa.ChunkedArray) -> bool:
    """Tells whether a column of microseconds has the values of the file.

    Nanoseconds show digits that microseconds lack: both sides wrap around in the same way. Only
    milliseconds hold all days of INT96.
    """
    if not column.cast(ns.type, safe=False).equals(ns):
        return False
    try:
        ms.cast(column.type)
    except pa.ArrowInvalid:  # beyond the years of microseconds
        return False
    return True


def _decode(stored: bytes) -> bytes:
    return base64.b64decode(stored + b"=" * (-len(stored) % 4))


def _with_zones(kind: pa.DataType, other: pa.DataType, written: pa.DataType | None) -> pa.DataType:
    """Returns a type with time zones for INT96.

    Args:
      kind: The type, with microseconds for INT96.
      other: The type, with another unit for INT96.
      written: The type that Arrow stored in the file, if it wrote the file.
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
        size, checksum, footer = open_footer(handle, path=path)
        with told_of_damage(f"{path} is not a readable Parquet file"):
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
    with told_of_damage(f"{path} is not a readable Parquet file"):
        file = pq.ParquetFile(pa.BufferReader(_MAGIC + tail))
    # Arrow ends the process that asks about an encrypted column. A plaintext footer has a signature
    # if it describes such columns.
    if needed - 8 - file.metadata.serialized_size == _SIGNATURE_BYTES:
        raise BadFileError(
            f"{path} has encrypted columns, which tt cannot read: write it without encryption"
        )
    return size, checksum, file


def group_starts(file: pq.ParquetFile) -> list[int]:
    """Return the first row of each row group, and the rows of the file."""
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
    """Yields rows of an open file, at most `batch_rows` at a time, whatever its row groups are.

    Only the row groups that hold them are touched, and only a batch of what comes before the
    rows is in memory at a time. The path is for messages; columns of None are all columns.

    Raises:
      ArrowInvalid: The pages hold fewer rows than the footer says.
    """
    starts = group_starts(file)
    groups = [
        index
        for index, (begin, end) in enumerate(itertools.pairwise(starts))
        if max(begin, first_row) < min(end, first_row + rows)
    ]
    skipped = first_row - starts[groups[0]] if groups else 0  # rows of the first group
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
