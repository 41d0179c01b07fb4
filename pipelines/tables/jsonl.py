"""JSON Lines as tables: a row for each line, a column for each key, and nested values nested."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from tt.model.errors import BadFileError
from tt.pipelines.tables.columns import map_type
from tt.pipelines.tables.damage import EncodingError, one_line
from tt.pipelines.tables.text import read_whole_lines, without_mark

BLOCK_BYTES = 4 << 20  # of whole lines that are parsed at once
_SHOWN = 40  # characters of a bad line
_DEEPEST = 100  # values in one another, with the object of the line; Arrow crashes at many more
_LONG_NUMBER = re.compile(rb"[0-9]{16}")  # 2^53 has so many digits: doubles are exact below
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_STEPS = np.zeros(256, np.int8)  # into values and out of them, by byte
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


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
            self._schema = self._schema if self._is_known else _merge(self._schema, table.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._explain(lines, error, first_line=first_line) from error
        self._check_integers(table, lines, first_line=first_line)
        return table

    def _check_integers(self, table: pa.Table, lines: list[bytes], *, first_line: int) -> None:
        """Check that the rows have the integers of the lines.

        Arrow makes doubles of integers beyond 64 bits, and of all integers of a column with a
        fraction. The second reading shows a fraction that comes after the integers.

        Raises:
          BadFileError: An integer is another one in the table.
        """
        row = -1
        for number, line in enumerate(lines, start=first_line):
            row += bool(line.strip())
            if _LONG_NUMBER.search(line):
                value = json.loads(line, parse_int=_parse_integer)
                if not _has_integers_of(table.slice(row, 1).to_pylist()[0], value):
                    raise BadFileError(
                        f"{self._path} must have whole numbers of at most 64 bits, and none beyond "
                        "2^53 next to fractions under one key. Make those numbers strings: see "
                        f"line {number:,}"
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


def _parse_integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= 20 else digits  # a string equals no number


def _has_integers_of(read: Any, value: Any) -> bool:
    """Tell whether what Arrow read has all integers of a JSON value."""
    if isinstance(value, dict):
        return all(_has_integers_of(read[key], inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_has_integers_of, read, value))
    is_number = isinstance(value, int) or (isinstance(value, str) and isinstance(read, float))
    return not is_number or read == value


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
