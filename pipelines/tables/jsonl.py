"""JSON Lines as tables: a row for each line, a column for each key, and nested values nested."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from model.errors import BadFileError
from pipelines.storage.text_files import check_no_array, read_whole_lines
from pipelines.tables.utf8 import check_head, not_utf8, one_line

BLOCK_BYTES = 4 << 20  # of whole lines that are parsed at once
_BOM = b"\xef\xbb\xbf"
_SHOWN = 40  # characters of a bad line
_DEEPEST = 100  # values in one another, with the object of the line; Arrow crashes at many more
_LONG_NUMBER = re.compile(rb"[0-9]{16}")  # 2^53 has so many digits
_EXACT = 2.0**53  # doubles hold all integers up to here
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_STEPS = np.zeros(256, np.int8)  # into values and out of them, by byte
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_KeyPath = tuple[str, ...]  # keys that lead to a value; "" leads into a list


class _Digits(str):
    """A whole number in JSON, which may have more digits than Python converts."""

    def fit_int64(self) -> bool:
        return len(self) <= 20 and -(2**63) <= int(self) < 2**63

    def fit_double(self) -> bool:
        return self.fit_int64() and int(float(self)) == int(self)


class JsonlRows:
    """The rows of a JSONL file, as batches; empty lines are none.

    Args:
      stream: The file's content, decompressed.
      path: The file, for messages.
      schema: What an earlier reading found; None finds it.
    """

    def __init__(self, stream: Any, *, path: str, schema: pa.Schema | None = None) -> None:
        self._stream = stream
        self._path = path
        self._is_known = schema is not None
        self._schema = pa.schema([]) if schema is None else schema
        # The first integer under each path that a double cannot hold, and its line.
        self._inexact: dict[_KeyPath, tuple[int, _Digits]] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of all rows that have been read, or that was given."""
        return pa.schema([field.with_type(_with_valid_lists(field.type)) for field in self._schema])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises:
          BadFileError: A line is too long, is not a JSON object, is nested too deep, is not UTF-8,
            has an integer beyond 64 bits, or has a value of another type than earlier lines.
        """
        first_line = 1
        while block := read_whole_lines(
            self._stream, size=BLOCK_BYTES, path=self._path, first_line=first_line
        ):
            if first_line == 1:
                check_head(block, path=self._path)
                block = block.removeprefix(_BOM)
                check_no_array(block, path=self._path)
            yield from self._read_block(block, first_line=first_line).to_batches()
            first_line += block.count(b"\n")

    def _read_block(self, block: bytes, *, first_line: int) -> pa.Table:
        try:
            block.decode()
        except UnicodeDecodeError as error:
            line = first_line + block.count(b"\n", 0, error.start)
            raise not_utf8(self._path, line=line) from error
        lines = block.split(b"\n")
        for number, text in enumerate(lines, start=first_line):
            if _is_too_deep(text):
                raise BadFileError(
                    f"{self._path} must have at most {_DEEPEST} lists and objects in one another; "
                    f"line {number:,} has more"
                )
        rows = sum(1 for line in lines if line.strip())
        try:
            if not all(map(_begins_as_object, lines)):  # of nulls alone, Arrow would crash
                raise pa.ArrowInvalid("there must be a JSON object in each line")
            table = self._parse(block)
            if table.num_rows != rows:
                raise pa.ArrowInvalid(f"{rows} lines have {table.num_rows} JSON objects")
            self._schema = self._schema if self._is_known else _merge(self._schema, table.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._explain(lines, error, first_line=first_line) from error
        if not self._is_known:
            self._check_numbers(table, lines, first_line=first_line)
        return table

    def _check_numbers(self, table: pa.Table, lines: list[bytes], *, first_line: int) -> None:
        """Check that the columns of doubles hold all integers of the lines so far.

        Arrow makes doubles of integers beyond 64 bits, and of all integers of a column with a
        fraction. The fraction may be in a later block than the integers.

        Raises:
          BadFileError: A double would change an integer.
        """
        new = {
            path
            for path, values in _numbers(table)
            if path not in self._inexact and _exceeds_exact(values)
        }
        for number, line in enumerate(lines, start=first_line):
            if not new:
                break
            if not _LONG_NUMBER.search(line):
                continue
            for path, digits in _integers(json.loads(line, parse_int=_Digits)):
                if path in new and not digits.fit_double():
                    self._inexact[path] = number, digits
                    new.remove(path)
        kinds = {path: values.type for path, values in _numbers(self._schema.empty_table())}
        for path, (number, digits) in self._inexact.items():
            if not pa.types.is_floating(kinds[path]):
                continue
            rule = "must have whole numbers of at most 64 bits"
            if digits.fit_int64():
                rule = "must not have whole numbers beyond 2^53 next to fractions under one key"
            raise BadFileError(
                f"{self._path} {rule}; line {number:,} has {digits[:_SHOWN]}: make it a string"
            )

    def _parse(self, block: bytes) -> pa.Table:
        if not block.strip():
            return self._schema.empty_table()
        parse = pa_json.ParseOptions(
            explicit_schema=self.schema if self._is_known else None,
            unexpected_field_behavior="error" if self._is_known else "infer",
        )
        read = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        content = pa.BufferOutputStream()  # memory of Arrow's, whose threads may outlive a call
        content.write(block)
        source = pa.BufferReader(content.getvalue())
        return pa_json.read_json(source, read_options=read, parse_options=parse)

    def _explain(self, lines: list[bytes], error: Exception, *, first_line: int) -> BadFileError:
        """Parses line for line, to tell the one that is wrong."""
        for number, line in enumerate(lines, start=first_line):
            if not line.strip():
                continue
            shown = line.decode().strip()
            shown = repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as reason:
                return BadFileError(
                    f"{self._path} must have a JSON object in each line; line {number:,} is no "
                    f"JSON ({_without_line(reason)}): {shown}"
                )
            if not isinstance(value, dict):
                return BadFileError(
                    f"{self._path} must have a JSON object in each line; line {number:,} is "
                    f"another value: {shown}"
                )
            try:
                self._schema = _merge(self._schema, self._parse(line).schema)
            except pa.ArrowTypeError as reason:
                return BadFileError(
                    f"{self._path} must have values of one type under each key; line {number:,} "
                    f"has another ({one_line(reason).rpartition('Unable to merge: ')[2]})"
                )
            except pa.ArrowInvalid as reason:
                text = one_line(reason).removeprefix("JSON parse error: ").partition(" in row ")[0]
                return BadFileError(f"{self._path} cannot be read in line {number:,}: {text}")
        return BadFileError(f"{self._path} cannot be read: {one_line(error)}")


def _without_line(reason: Exception) -> str:
    """Says what is wrong in a line and where, without the number that the line has by itself."""
    if isinstance(reason, json.JSONDecodeError):
        return f"{reason.msg}: column {reason.colno}"
    return one_line(reason)


def _is_too_deep(line: bytes) -> bool:
    if len(line) <= _DEEPEST or line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    steps = _STEPS[np.frombuffer(_STRING.sub(b"", line), np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > _DEEPEST)


def _numbers(table: pa.Table) -> Iterator[tuple[_KeyPath, pa.ChunkedArray]]:
    """Yield the path and the values of each column of numbers, at any depth."""
    columns: list[tuple[_KeyPath, Any]] = [
        ((name,), column) for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    while columns:
        path, column = columns.pop()
        if not _has_numbers(column.type):  # Arrow builds columns of nulls with wrong lengths
            continue
        if pa.types.is_struct(column.type):
            columns += [
                ((*path, field.name), pc.struct_field(column, index))
                for index, field in enumerate(column.type)
                if _has_numbers(field.type)
            ]
        elif pa.types.is_list(column.type):
            columns.append(((*path, ""), pc.list_flatten(column)))
        else:
            yield path, column


def _has_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_numbers(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _exceeds_exact(values: pa.ChunkedArray) -> bool:
    """Tell whether a column has numbers so large that doubles do not hold every integer."""
    ends = pc.min_max(values).as_py()
    return any(end is not None and abs(end) >= _EXACT for end in ends.values())


def _integers(value: Any, path: _KeyPath = ()) -> Iterator[tuple[_KeyPath, _Digits]]:
    """Yield the path and the digits of each integer in a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _integers(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _integers(inner, (*path, ""))
    elif isinstance(value, _Digits):
        yield path, value


def _begins_as_object(line: bytes) -> bool:
    return line[:1] == b"{" or not (stripped := line.strip()) or stripped[:1] == b"{"


def _merge(schema: pa.Schema, more: pa.Schema) -> pa.Schema:
    """Returns a schema for the rows of both.

    Whole numbers beside decimal ones are decimal, null is a value of any type.

    Raises:
      ArrowTypeError: A column has types that do not go together.
    """
    more = pa.schema([field.with_type(_as_written(field.type)) for field in more])
    if more.equals(schema):
        return schema
    return pa.unify_schemas([schema, more], promote_options="permissive")


def _with_valid_lists(kind: pa.DataType) -> pa.DataType:
    """Returns the type with strings for lists of nothing but nulls, which Arrow reads wrongly."""
    if pa.types.is_list(kind):
        is_null = pa.types.is_null(kind.value_type)
        return pa.list_(pa.string() if is_null else _with_valid_lists(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_valid_lists(field.type)) for field in kind])
    return kind


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Returns the type with strings for times: Arrow takes strings like "2024-01-01" for these."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_written(field.type)) for field in kind])
    return kind
