"""INT96 timestamps of Parquet, read as microseconds without a changed value.

INT96 holds a day and the nanoseconds of the day. Spark, Impala and Hive write it. Arrow reads INT96
as 64-bit nanoseconds by default, which hold the years 1677 to 2262 and wrap around outside of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.errors import BadFileError

_ARROW_SCHEMA = b"ARROW:schema"


class InexactTimestampError(BadFileError):
    """A file has an INT96 timestamp that microseconds cannot hold."""

    remedy = "Write the column with microseconds"


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
            unit: _Cursor(file.iter_batches(columns=names, **reading))
            for unit, file in self._others.items()
        }
        for batch in batches:
            read = {unit: each.take(batch.num_rows) for unit, each in others.items()}
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


class _Cursor:
    """Batches that are taken by numbers of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> pa.Table:
        """Returns the next rows."""
        taken: list[pa.RecordBatch] = []
        while rows or not taken:
            batch = self._rest if self._rest is not None else next(self._batches)
            taken.append(batch.slice(0, rows))
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            rows -= taken[-1].num_rows
        return pa.Table.from_batches(taken)


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
    return pa.large_list(element) if types.is_large_list(kind) else pa.list_(element)
