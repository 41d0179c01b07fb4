"""JSON Lines as tables: a row for each line, a column for each key, and nested values nested."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from model.errors import BadFileError
from pipelines.storage.text_files import read_whole_lines
from pipelines.tables.utf8 import check_head, not_utf8, one_line

BLOCK_BYTES = 4 << 20  # of whole lines that are parsed at once
_BOM = b"\xef\xbb\xbf"
_SHOWN = 40  # characters of a bad line
_DEEPEST = 100  # values in one another, with the object of the line; Arrow crashes at many more
_LONG_NUMBER = re.compile(rb"[0-9]{19}")  # 2^63 has so many digits
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_STEPS = np.zeros(256, np.int8)  # into values and out of them, by byte
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


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
        if not self._is_known and any(map(_has_doubles, table.schema.types)):
            self._check_numbers(block, lines, first_line=first_line)
        return table

    def _check_numbers(self, block: bytes, lines: list[bytes], *, first_line: int) -> None:
        """Refuses whole numbers beyond 64 bits, of which Arrow makes doubles: their digits go."""
        if not _LONG_NUMBER.search(block):
            return
        for number, line in enumerate(lines, start=first_line):
            if _LONG_NUMBER.search(line) and (large := _large_numbers(line)):
                raise BadFileError(
                    f"{self._path} must have whole numbers of at most 64 bits; line {number:,} has "
                    f"{large[0][:_SHOWN]}: make it a string"
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


def _large_numbers(line: bytes) -> list[str]:
    """Returns the whole numbers of a line that are beyond 64 bits."""
    found: list[str] = []

    def note(digits: str) -> None:
        if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
            found.append(digits)

    json.loads(line, parse_int=note)
    return found


def _has_doubles(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_doubles(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


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
