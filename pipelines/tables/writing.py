"""Check that a format can store a table, and write tables as Parquet, JSONL or CSV."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tt.model.errors import ColumnsError
from tt.pipelines.tables import parquet
from tt.pipelines.tables.columns import is_list, is_text
from tt.pipelines.tables.formats import CSV, JSONL, PARQUET, PARQUET_SUFFIX
from tt.pipelines.tables.jsonl import RAW_LINE, dump_json, splice
from tt.pipelines.tables.text_files import CheckedFile

_BATCH_ROWS = 1024


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
    for field in schema:
        kind = field.type
        if file_format == CSV and field.name in joined:
            continue
        if file_format == PARQUET:
            can_hold = _parquet_can_hold(field)
        elif file_format == JSONL:
            can_hold = _json_can_hold(kind) or _has_text_form(kind)
        else:
            can_hold = _is_plain(kind) or _has_text_form(kind)
        if not can_hold:
            other = ", or set `format=parquet`" if _parquet_can_hold(field) else ""
            raise ColumnsError(
                f"{file_format} cannot store the column {field.name!r} ({kind}) of {path}. Leave "
                f"the column out with `drop_columns`{other}"
            )
    twice = [name for name in schema.names if schema.names.count(name) > 1]
    if twice and file_format == JSONL:
        raise ColumnsError(
            f"jsonl cannot store several columns with the same name, such as {twice[0]!r} in "
            f"{path}. Rename them"
        )


def _parquet_can_hold(field: pa.Field) -> bool:
    try:
        parquet.schema_as_read(pa.schema([field]))
    except pa.ArrowException:
        return False
    return True


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether JSON and CSV can represent a type without converting its values to text."""
    if pa.types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    types = pa.types
    is_number = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
    return bool(is_number or types.is_boolean(kind) or types.is_null(kind) or is_text(kind))


def _has_text_form(kind: pa.DataType) -> bool:
    """Return whether Arrow can write values of a type as text, such as dates and decimals."""
    types = pa.types
    is_time = types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind)
    if not (is_time or types.is_decimal(kind) or types.is_float16(kind)):
        return False
    try:
        pa.array([None, 0], pa.int32()).cast(pa.int64()).cast(kind).cast(pa.string())
    except (pa.ArrowException, OSError):  # this machine does not know the time zone
        return bool(types.is_date(kind) or types.is_time(kind) or types.is_decimal(kind))
    return True


def _json_can_hold(kind: pa.DataType) -> bool:
    if is_list(kind):
        return _json_can_hold(kind.value_type)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(_json_can_hold(each.type) for each in kind)
    return _is_plain(kind)


@contextlib.contextmanager
def table_writer(
    handle: IO[bytes], schema: pa.Schema, *, file_format: str, compression: str
) -> Iterator[Callable[[pa.Table], object]]:
    """Open a writer for several tables; yield a function that writes a table to the file.

    Equal tables always give equal bytes. JSONL and CSV contain times and decimals as text. JSONL
    contains null for NaN and infinite numbers.
    """
    if file_format == PARQUET:
        with parquet.table_writer(handle, schema, compression=compression) as write:
            yield write
        return
    write_text = _write_jsonl if file_format == JSONL else _CsvWriter()
    if compression == "none":
        yield lambda table: write_text(_as_text(table), handle)
        return
    content = pa.BufferOutputStream()
    with pa.CompressedOutputStream(content, compression) as compressed:
        yield lambda table: write_text(_as_text(table), compressed)
    handle.write(content.getvalue())


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


def _write_jsonl(table: pa.Table, handle: Any) -> None:
    for batch in table.to_batches(_BATCH_ROWS):
        rows = batch.to_pylist()
        if RAW_LINE in table.schema.names:
            lines = [splice(row.pop(RAW_LINE), row) for row in rows]
        else:
            lines = [dump_json(row).encode() for row in rows]
        handle.write(b"".join(line + b"\n" for line in lines))


class _CsvWriter:
    """Writes tables to a CSV file, after a line of column names."""

    def __init__(self) -> None:
        self._has_names = False

    def __call__(self, table: pa.Table, handle: Any) -> None:
        for index, field in enumerate(table.schema):
            if pa.types.is_list(field.type):
                column = pc.binary_join(table.column(index), " ")
                table = table.set_column(index, field.name, column)
        options = pa_csv.WriteOptions(include_header=not self._has_names)
        pa_csv.write_csv(table, handle, options)
        self._has_names = True


def file_state(path: str) -> tuple[int, str]:
    """Return the size of an output file in bytes, and its checksum.

    The checksum covers only the footer of a Parquet file, and the whole file in other formats.

    Raises:
      BadFileError: A file with the ending of Parquet is not readable Parquet.
    """
    if path.endswith(PARQUET_SUFFIX):
        footer = parquet.read_footer(path)
        return footer.size, footer.checksum
    with CheckedFile(path) as file:
        return file.finish()
