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

from tt.model.errors import BadFileError
from tt.pipelines.tables.columns import map_type
from tt.pipelines.tables.damage import EncodingError, one_line
from tt.pipelines.tables.text import read_whole_lines, without_mark

BLOCK_BYTES = 4 << 20  # of whole lines that are parsed at once
_SHOWN = 40  # characters of a bad line
_DEEPEST = 100  # values in one another, with the object of the line; Arrow crashes at many more
_EXACT = 2.0**53  # doubles hold all integers up to here
_LONG_NUMBER = re.compile(rb"[0-9]{16}")  # 2^53 has so many digits
_MOST_DIGITS = 21  # of which, with a sign, every integer is beyond 64 bits
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_STEPS = np.zeros(256, np.int8)  # into values and out of them, by byte
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_KeyPath = tuple[str, ...]  # keys that lead to a value; "" leads into a list


class JsonlRows:
    """The rows of a JSONL file, as batches; empty lines are none.

    Args:
      stream: The file's content, decompressed.
      path: The file, for messages.
      schema: The schema that an earlier reading found, or None to find it.
    """

    def __init__(self, stream: Any, *, path: str, schema: pa.Schema | None = None) -> None:
        self._stream = stream
        self._path = path
        self._is_known = schema is not None
        self._schema = pa.schema([]) if schema is None else schema
        # The line of the first integer under each path that a double cannot hold.
        self._inexact: dict[_KeyPath, int] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of all rows that have been read, or that was given."""
        return _map_schema(self._schema, _string_of_nulls)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
          BadFileError: A line is too long, is not a JSON object, is nested too deep, is not UTF-8,
            or has a value of another type than earlier lines, or an integer that changes.
        """
        first_line = 1
        while block := read_whole_lines(
            self._stream, size=BLOCK_BYTES, path=self._path, first_line=first_line
        ):
            if first_line == 1:
                block = without_mark(block, path=self._path)
            yield from self._read_block(block, first_line=first_line).to_batches()
            first_line += block.count(b"\n")

    def _read_block(self, block: bytes, *, first_line: int) -> pa.Table:
        try:
            block.decode()
        except UnicodeDecodeError as error:
            line = first_line + block.count(b"\n", 0, error.start)
            raise EncodingError(f"{self._path} must be UTF-8; line {line:,} is not") from error
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
            if not self._is_known:
                self._schema = _merge(self._schema, table.schema)
                # Arrow builds invalid lists while it infers the types of their nulls.
                if table.schema != self.schema or any(map(pa.types.is_nested, table.schema.types)):
                    table = self._parse(block, self.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._explain(lines, error, first_line=first_line) from error
        if not self._is_known:
            self._check_integers(table, lines, first_line=first_line)
        return table

    def _check_integers(self, table: pa.Table, lines: list[bytes], *, first_line: int) -> None:
        """Check that no column of doubles changes an integer of the lines so far.

        Arrow makes doubles of integers beyond 64 bits, and of all integers of a column with a
        fraction. The fraction may be in a later block than the integers.

        Raises:
          BadFileError: A double would change an integer.
        """
        columns = dict(_numbers(table.to_struct_array()))
        large = {path for path, values in columns.items() if _is_large(values)} - {*self._inexact}
        for number, line in enumerate(lines, start=first_line):
            if large and _LONG_NUMBER.search(line):
                value = json.loads(line, parse_int=lambda digits: int(digits[:_MOST_DIGITS]))
                self._inexact |= dict.fromkeys(large.intersection(_inexact(value)), number)
                large -= {*self._inexact}
        for path, number in self._inexact.items():
            if pa.types.is_floating(columns[path].type):
                raise BadFileError(
                    f"{self._path} must have whole numbers of at most 64 bits, and none beyond "
                    "2^53 next to fractions under one key. Make those numbers strings: see line "
                    f"{number:,}"
                )

    def _parse(self, block: bytes, schema: pa.Schema | None = None) -> pa.Table:
        if not block.strip():
            return self._schema.empty_table()
        schema = self.schema if self._is_known else schema
        parse = pa_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "error"
        )
        read = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        content = pa.BufferOutputStream()  # memory of Arrow's, whose threads may outlive a call
        content.write(block)
        source = pa.BufferReader(content.getvalue())
        return pa_json.read_json(source, read_options=read, parse_options=parse)

    def _explain(self, lines: list[bytes], error: Exception, *, first_line: int) -> BadFileError:
        """Parse line by line, to find the one that is wrong."""
        for number, line in enumerate(lines, start=first_line):
            if not line.strip():
                continue
            shown = line.decode().strip()
            shown = repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")
            try:
                if not isinstance(json.loads(line), dict):
                    raise ValueError("it is another value")
                self._schema = _merge(self._schema, self._parse(line).schema)
            except (ValueError, RecursionError, pa.ArrowTypeError) as reason:
                told = (
                    one_line(getattr(reason, "msg", reason))
                    .removeprefix("JSON parse error: ")
                    .partition(" in row ")[0]
                )
                told = told.rpartition("Unable to merge: ")[2]
                return BadFileError(
                    f"{self._path} must have a JSON object in each line, and values of one type "
                    f"under each key; line {number:,}: {told}: {shown}"
                )
        return BadFileError(f"{self._path} cannot be read: {one_line(error)}")


def _is_too_deep(line: bytes) -> bool:
    if len(line) <= _DEEPEST or line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    steps = _STEPS[np.frombuffer(_STRING.sub(b"", line), np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > _DEEPEST)


def _numbers(column: Any, path: _KeyPath = ()) -> Iterator[tuple[_KeyPath, pa.ChunkedArray]]:
    """Yield the path and the values of each column of numbers, at any depth."""
    types = pa.types
    if types.is_struct(column.type):
        for index, field in enumerate(column.type):
            yield from _numbers(pc.struct_field(column, index), (*path, field.name))
    elif types.is_list(column.type):
        yield from _numbers(pc.list_flatten(column), (*path, ""))
    elif types.is_integer(column.type) or types.is_floating(column.type):
        yield path, column


def _is_large(values: pa.ChunkedArray) -> bool:
    ends = pc.min_max(values).as_py().values()
    return any(end is not None and abs(end) >= _EXACT for end in ends)


def _inexact(value: Any, path: _KeyPath = ()) -> Iterator[_KeyPath]:
    """Yield the path of each integer in a JSON value that a double or 64 bits do not hold."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _inexact(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _inexact(inner, (*path, ""))
    elif isinstance(value, int) and (not -(2**63) <= value < 2**63 or int(float(value)) != value):
        yield path


def _begins_as_object(line: bytes) -> bool:
    return line[:1] == b"{" or not (stripped := line.strip()) or stripped[:1] == b"{"


def _merge(schema: pa.Schema, more: pa.Schema) -> pa.Schema:
    """Return a schema for the rows of both.

    Whole numbers next to decimal ones are decimal, null is a value of any type. Arrow takes strings
    like "2024-01-01" for times; they stay strings.

    Raises:
      ArrowTypeError: A column has types that do not go together.
    """
    more = _map_schema(more, lambda kind: pa.string() if pa.types.is_timestamp(kind) else kind)
    if more.equals(schema):
        return schema
    return pa.unify_schemas([schema, more], promote_options="permissive")


def _map_schema(schema: pa.Schema, change: Any) -> pa.Schema:
    return pa.schema([field.with_type(map_type(field.type, change)) for field in schema])


def _string_of_nulls(kind: pa.DataType) -> pa.DataType:
    """Return a list of strings for a list of nothing but nulls, which Arrow reads wrongly."""
    if pa.types.is_list(kind) and pa.types.is_null(kind.value_type):
        return pa.list_(pa.string())
    return kind
