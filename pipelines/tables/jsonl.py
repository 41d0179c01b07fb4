"""Read JSON Lines files as tables: one row per line, and one column per key."""

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
from tt.pipelines.tables.text_files import read_whole_lines, without_bom

BLOCK_BYTES = 4 << 20  # the size of the whole lines that are parsed at once
_SHOWN = 40  # the number of characters of a bad line that a message shows
# The maximum nesting depth, including the object of the line. Arrow crashes at a much larger depth.
_DEEPEST = 100
_EXACT = 2.0**53  # a double can represent every integer up to this one
_LONG_NUMBER = re.compile(rb"[0-9]{16}")  # 2^53 has 16 digits
_MOST_DIGITS = 21  # longer integers are cut to this length, and still exceed 64 bits
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_STEPS = np.zeros(256, np.int8)  # the change of the nesting depth at each byte
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_KeyPath = tuple[str, ...]  # keys that lead to a value; "" leads into a list


class JsonlRows:
    """The rows of a JSONL file, as batches; empty lines are skipped.

    Args:
      stream: The decompressed content of the file.
      path: The path of the file, for messages.
      schema: The schema that an earlier pass over the file found; None to infer the schema.
    """

    def __init__(self, stream: Any, *, path: str, schema: pa.Schema | None = None) -> None:
        self._stream = stream
        self._path = path
        self._is_known = schema is not None
        self._schema = pa.schema([]) if schema is None else schema
        # For each path, the line of its first integer that a double cannot represent.
        self._inexact: dict[_KeyPath, int] = {}

    @property
    def schema(self) -> pa.Schema:
        """The given schema, or the inferred schema of all rows that have been read."""
        return _map_schema(self._schema, _string_of_nulls)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
          BadFileError: A line is too long, is not a JSON object, is nested too deeply, is not
            UTF-8, has a value of another type than earlier lines, or has an integer that a double
            would change.
        """
        first_line = 1
        while block := read_whole_lines(
            self._stream, size=BLOCK_BYTES, path=self._path, first_line=first_line
        ):
            if first_line == 1:
                block = without_bom(block, path=self._path)
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
                    f"{self._path} must have at most {_DEEPEST} nested lists and objects; line "
                    f"{number:,} has more"
                )
        rows = sum(1 for line in lines if line.strip())
        try:
            if not all(map(_begins_as_object, lines)):  # Arrow crashes on lines with only `null`
                raise pa.ArrowInvalid("there must be a JSON object in each line")
            block = _without_lone_surrogates(block)
            table = self._parse(block)
            if table.num_rows != rows:
                raise pa.ArrowInvalid(f"{rows} lines have {table.num_rows} JSON objects")
            if not self._is_known:
                self._schema = _merge(self._schema, table.schema)
                # Arrow builds invalid lists while it infers the types of nulls, so parse again.
                if table.schema != self.schema or any(map(pa.types.is_nested, table.schema.types)):
                    table = self._parse(block, self.schema)
                self._check_integers(table, lines, first_line=first_line)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._explain(lines, error, first_line=first_line) from error
        except UnicodeDecodeError as error:  # half of a surrogate pair in a key
            keys = (number for number, line in enumerate(lines) if _SURROGATE.search(line))
            raise EncodingError(
                f"{self._path} must have keys of valid Unicode; see line "
                f"{first_line + next(keys):,}"
            ) from error
        return table

    def _check_integers(self, table: pa.Table, lines: list[bytes], *, first_line: int) -> None:
        """Check that no column of doubles changes an integer of the lines read so far.

        Arrow converts integers beyond 64 bits to doubles, and it also converts all integers of a
        column that contains a fraction. The fraction may be in a later block than the integers.

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
                    f"{self._path} must have integers of at most 64 bits, and of at most 2^53 "
                    f"under a key that also has fractions; line {number:,} has a larger one. Write "
                    "such numbers as strings"
                )

    def _parse(self, block: bytes, schema: pa.Schema | None = None) -> pa.Table:
        if not block.strip():
            return self._schema.empty_table()
        schema = self.schema if self._is_known else schema
        parse = pa_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "error"
        )
        read = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        # Arrow must own the memory, because its threads may outlive the call.
        content = pa.BufferOutputStream()
        content.write(block)
        source = pa.BufferReader(content.getvalue())
        return pa_json.read_json(source, read_options=read, parse_options=parse)

    def _explain(self, lines: list[bytes], error: Exception, *, first_line: int) -> BadFileError:
        """Parse each line by itself to find the bad one, and return the error to raise."""
        for number, line in enumerate(lines, start=first_line):
            if not line.strip():
                continue
            shown = line.decode().strip()
            shown = repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")
            try:
                if not isinstance(json.loads(line), dict):
                    raise ValueError("the value is not an object")
                self._schema = _merge(
                    self._schema, self._parse(_without_lone_surrogates(line)).schema
                )
            except (ValueError, RecursionError, pa.ArrowTypeError) as reason:
                problem = (
                    one_line(getattr(reason, "msg", reason))
                    .removeprefix("JSON parse error: ")
                    .partition(" in row ")[0]
                )
                problem = problem.rpartition("Unable to merge: ")[2]
                return BadFileError(
                    f"{self._path} must have one JSON object per line, and values of one type per "
                    f"key; line {number:,}: {problem}: {shown}"
                )
        return BadFileError(f"{self._path} cannot be read: {one_line(error)}")


def _without_lone_surrogates(block: bytes) -> bytes:
    r"""Replace escaped halves of surrogate pairs by their bytes, which are not UTF-8.

    Arrow refuses the escapes. It reads the bytes, so that only the rows with such texts fail later.

    >>> _without_lone_surrogates(rb'"\ud83d\ude00 \\ud800 \ud800"')
    b'"\\ud83d\\ude00 \\\\ud800 \xed\xa0\x80"'
    """
    if not _SURROGATE.search(block):
        return block
    return _ESCAPE.sub(_bytes_of_escape, block)


def _bytes_of_escape(escape: re.Match[bytes]) -> bytes:
    half = escape[1]
    return chr(int(half, 16)).encode(errors="surrogatepass") if half else escape[0]


def _is_too_deep(line: bytes) -> bool:
    if len(line) <= _DEEPEST or line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    steps = _STEPS[np.frombuffer(_STRING.sub(b"", line), np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > _DEEPEST)


def _numbers(column: Any, path: _KeyPath = ()) -> Iterator[tuple[_KeyPath, pa.ChunkedArray]]:
    """Yield the path and the values of each column of numbers, at any nesting depth."""
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
    """Yield the path of each integer that does not fit 64 bits, or that a double would change."""
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
    """Return a schema that fits the rows of both schemas.

    Integers and fractions become doubles, and null fits every type. Arrow infers timestamps from
    strings like "2024-01-01"; this function restores the string type.

    Raises:
      ArrowTypeError: A column has two types that cannot be unified.
    """
    more = _map_schema(more, lambda kind: pa.string() if pa.types.is_timestamp(kind) else kind)
    if more.equals(schema):
        return schema
    return pa.unify_schemas([schema, more], promote_options="permissive")


def _map_schema(schema: pa.Schema, change: Any) -> pa.Schema:
    return pa.schema([field.with_type(map_type(field.type, change)) for field in schema])


def _string_of_nulls(kind: pa.DataType) -> pa.DataType:
    """Replace a list of nulls, which Arrow reads wrongly, by a list of strings."""
    if pa.types.is_list(kind) and pa.types.is_null(kind.value_type):
        return pa.list_(pa.string())
    return kind
