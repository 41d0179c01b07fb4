"""Check that a format can store a table, and write tables as Parquet, JSONL or CSV."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
from collections.abc import Collection, Iterable
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tt.model.errors import ColumnsError
from tt.model.storage.files import open_input, write_whole
from tt.pipelines.tables.columns import is_list, is_text
from tt.pipelines.tables.formats import CSV, JSONL, PARQUET
from tt.pipelines.tables.jsonl import RAW_LINE, dump_json, splice
from tt.pipelines.tables.parquet import schema_as_read
from tt.pipelines.tables.pieces import cut_by_bytes

_BATCH_ROWS = 1024
_GROUP_BYTES = 64 << 20  # the maximum bytes of a row group, see `row_bytes`


def check_schema(
    schema: pa.Schema, *, file_format: str, joined: Collection[str], path: str
) -> None:
    """Check that a format can store all columns of a table.

    Args:
      schema: The schema of the table to write.
      file_format: One of FORMATS.
      joined: Names of columns with lists of words, which CSV stores as one string with spaces.
      path: The path of the input file, for the message.

    Raises:
      ColumnsError: The format cannot store a column, or several columns with the same name.
    """
    can_hold = {PARQUET: _parquet_can_hold, JSONL: _json_can_hold, CSV: _csv_can_hold}[file_format]
    for field in schema:
        is_joined = file_format == CSV and field.name in joined
        if not (is_joined or can_hold(field.type)):
            other = ", or set `format=parquet`" if _parquet_can_hold(field.type) else ""
            raise ColumnsError(
                f"{file_format} cannot store the column {field.name!r} ({field.type}) of {path}. "
                f"Leave the column out with `drop_columns`{other}"
            )
    twice = [name for name in schema.names if schema.names.count(name) > 1]
    if twice and file_format == JSONL:
        raise ColumnsError(
            f"jsonl cannot store several columns with the same name, such as {twice[0]!r} in "
            f"{path}. Rename them"
        )


def _parquet_can_hold(kind: pa.DataType) -> bool:
    try:
        schema_as_read(pa.schema([("column", kind)]))
    except pa.ArrowException:
        return False
    return True


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether CSV can represent a type without converting its values to text."""
    if pa.types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    types = pa.types
    is_number = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
    return bool(is_number or types.is_boolean(kind) or types.is_null(kind) or is_text(kind))


def _has_text_form(kind: pa.DataType) -> bool:
    """Return whether Arrow can write values of a type as text, such as dates and decimals."""
    types = pa.types
    if not types.is_timestamp(kind):
        tests = (types.is_date, types.is_time, types.is_decimal, types.is_float16)
        return any(test(kind) for test in tests)
    try:
        pa.array([0], pa.int64()).cast(kind).cast(pa.string())
    except (pa.ArrowException, OSError):  # this machine does not know the time zone
        return False
    return True


def _is_json(kind: pa.DataType) -> bool:
    """Return whether JSON can represent a type without converting its values to text."""
    if is_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(_is_json(each.type) for each in kind)
    return _is_plain(kind)


def _json_can_hold(kind: pa.DataType) -> bool:
    return _is_json(kind) or _has_text_form(kind)


def _csv_can_hold(kind: pa.DataType) -> bool:
    return _is_plain(kind) or _has_text_form(kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableWriter:
    """Writes tables to files.

    The bytes of a file depend only on its rows, not on the tables in which they arrive. JSONL and
    CSV contain times and decimals as text. JSONL contains null for NaN and infinite numbers.

    Attributes:
      file_format: One of FORMATS.
      compression: One of COMPRESSIONS, or of TEXT_COMPRESSIONS for JSONL and CSV.
      temporary_folder: See `write_whole`.
      run_id: See `write_whole`.
    """

    file_format: str
    compression: str
    temporary_folder: str
    run_id: str = ""

    def write(self, tables: Iterable[pa.Table], path: str) -> tuple[int, str]:
        """Write tables to a file, which appears when it is complete.

        Args:
          tables: One or more tables with the same schema. If this raises an error, there is no
            file.
          path: The path of the file.

        Returns:
          The size of the file in bytes, and its SHA-256 checksum.
        """
        tables = iter(tables)
        first = next(tables)  # most files are one table, so most work precedes opening the file
        schema = first.schema
        tables = itertools.chain(iter([first]), tables)
        del first  # the iterator frees the memory before the next table arrives
        with write_whole(path, temporary_folder=self.temporary_folder, run_id=self.run_id) as file:
            output = _Output(file)
            WRITERS[self.file_format](tables, output, schema, self.compression)
        return output.size, output.digest.hexdigest()


class _Output(io.RawIOBase):
    """Writes bytes to a file, and computes their number and their checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.digest = file, 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)


def file_state(path: str) -> tuple[int, str]:
    """Read an output file; return its size in bytes and its checksum, like `TableWriter.write`."""
    with open_input(path) as file:
        checksum = hashlib.file_digest(cast("Any", file), "sha256").hexdigest()
        return file.tell(), checksum


def _write_parquet(
    tables: Iterable[pa.Table], output: _Output, schema: pa.Schema, compression: str
) -> None:
    # All settings that affect the bytes of the file are fixed here.
    with pq.ParquetWriter(
        output,
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
        batches = itertools.chain.from_iterable(map(pa.Table.to_batches, tables))
        for group in cut_by_bytes(batches, schema=schema, most_bytes=_GROUP_BYTES):
            with contextlib.suppress(pa.ArrowInvalid):  # too many values for one small dictionary
                group = group.combine_chunks()
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            del group  # frees the memory before the next rows arrive


def _compress(output: _Output, compression: str) -> Any:
    if compression == "none":
        return output
    return pa.CompressedOutputStream(pa.PythonFile(output, "w"), compression)


def _as_text(table: pa.Table) -> pa.Table:
    for index, field in enumerate(table.schema):
        column, kind = table.column(index), field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if _has_text_form(kind):
            column = column.cast(kind).cast(pa.string())
        elif is_text(kind):
            column = column.cast(pa.large_string())
        elif column.type != kind:
            column = column.cast(kind)
        table = table.set_column(index, field.name, column)
    return table


def _write_jsonl(
    tables: Iterable[pa.Table], output: _Output, schema: pa.Schema, compression: str
) -> None:
    del schema  # each table has its own
    with _compress(output, compression) as stream:
        for table in map(_as_text, tables):
            for lines in map(_json_lines, table.to_batches(_BATCH_ROWS)):
                stream.write(lines)
            del table  # frees the memory before the next table arrives


def _json_lines(batch: pa.RecordBatch) -> bytes:
    rows = batch.to_pylist()
    if RAW_LINE in batch.schema.names:
        lines = [splice(row.pop(RAW_LINE), row) for row in rows]
    else:
        lines = [dump_json(row).encode() for row in rows]
    return b"".join(line + b"\n" for line in lines)


def _write_csv(
    tables: Iterable[pa.Table], output: _Output, schema: pa.Schema, compression: str
) -> None:
    with (
        _compress(output, compression) as stream,
        pa_csv.CSVWriter(stream, _as_csv(schema.empty_table()).schema) as writer,
    ):
        for table in map(_as_csv, tables):
            writer.write_table(table)
            del table  # frees the memory before the next table arrives


def _as_csv(table: pa.Table) -> pa.Table:
    table = _as_text(table)
    for index, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            column = pc.binary_join(table.column(index), " ")
            table = table.set_column(index, field.name, column)
    return table


# The writer of each format.
WRITERS = {PARQUET: _write_parquet, JSONL: _write_jsonl, CSV: _write_csv}
