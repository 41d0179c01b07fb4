"""Read JSON Lines files as tables: one row per line, and one column per key."""

from __future__ import annotations

import contextlib
import json
import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tt.pipelines.tables.columns import map_type, map_values
from tt.pipelines.tables.damage import one_line
from tt.pipelines.tables.faults import NOT_UTF8, Fault, with_faults
from tt.pipelines.tables.interface import ReadRequest
from tt.pipelines.tables.ranges import RowRules
from tt.pipelines.tables.text_files import MAX_LINE_BYTES, TOO_LONG, read_whole_lines, without_bom

BLOCK_BYTES = 4 << 20  # the size of the whole lines that are parsed at once
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
RAW_LINE = "\0line"  # the column of whole lines
JSON_TEXT = b"tt.json_text"  # the metadata of a column of JSON texts
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
_BETWEEN = re.compile(r"[\s,:]*")  # between the keys and values of an object
_DECODER = json.JSONDecoder()
_KeyPath = tuple[str, ...]  # keys that lead to a value; "" leads into a list


class JsonlRows:
    """The rows of a JSONL file, as batches; empty lines are skipped. See `faults.py` for bad lines.

    A line is bad if it is not a JSON object, is nested too deeply, is not UTF-8, contains half a
    surrogate pair, or exceeds `MAX_LINE_BYTES`. If the values of a key have several types, or
    integers that a double would change, its column contains the values as JSON texts.

    Args:
      stream: The decompressed content of the file.
      request: What to read. With `has_lines`, the rows have the additional column `RAW_LINE`, which
        is null in bad lines.
    """

    rules = RowRules(blank=string.whitespace.encode())

    def __init__(self, stream: Any, request: ReadRequest) -> None:
        self._stream, self._path, self._line = stream, request.path, request.line
        self._has_lines = request.has_lines
        self._is_known = request.schema is not None
        self._schema = pa.schema([]) if request.schema is None else request.schema
        self._mixed = [field.name for field in self._schema if is_json_text(field)]
        self._inexact = set[_KeyPath]()  # paths of integers that a double cannot represent

    @property
    def schema(self) -> pa.Schema:
        """The given schema, or the inferred schema of all rows that have been read."""
        return _map_schema(self._schema, _string_of_nulls)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        first_line = self._line
        while block := read_whole_lines(self._stream, size=BLOCK_BYTES):
            if first_line == 1:
                block = without_bom(block, path=self._path)
            lines = block.removesuffix(b"\n").split(b"\n")
            numbers: Sequence[int] = range(first_line, first_line + len(lines))
            first_line += len(lines)
            if not all(map(bytes.strip, lines)):
                kept = [index for index, line in enumerate(lines) if line.strip()]
                numbers, lines = [numbers[i] for i in kept], [lines[i] for i in kept]
            if lines:
                yield self._read_lines(lines, numbers, is_suspicious=is_suspect(block, lines))

    def _read_lines(
        self, lines: list[bytes], numbers: Sequence[int], *, is_suspicious: bool
    ) -> pa.RecordBatch:
        """Return the rows of lines that are not empty, given the numbers of the lines."""
        faults: dict[int, Fault] = {}
        whole = [*lines] if self._has_lines else []
        for find in (None, find_fault, _find_parse_error):
            if find is None and is_suspicious:
                continue
            for index, line in enumerate(lines if find else ()):
                if find and (reason := find(line)):
                    faults[index] = Fault(numbers[index], reason, line.removesuffix(b"\r"))
                    lines[index] = b"{}"
            with contextlib.suppress(ValueError, pa.ArrowTypeError):
                batch = self._parse_lines(lines)
                break
        else:
            self._find_mixed(lines)
            batch = self._parse_lines(lines)
        if self._has_lines:
            kept = [None if row in faults else line for row, line in enumerate(whole)]
            batch = batch.append_column(RAW_LINE, pa.array(kept, pa.large_binary()))
        return with_faults(batch, faults)

    def _parse_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        texts: dict[str, pa.StringArray] = {}
        block = b"\n".join(lines)
        if self._mixed:
            block, texts = _take_out(lines, self._mixed)
        own = pa.schema([field for field in self.schema if field.name not in self._mixed])
        table = parse_json(block, own if self._is_known else None)
        if table.num_rows != len(lines):
            raise pa.ArrowInvalid(f"{len(lines)} lines have {table.num_rows} JSON objects")
        if not self._is_known:
            # A list of nulls in the schema fits lists of any type, but a list of strings does not.
            known = [field for field in self._schema if field.name not in self._mixed]
            own = _merge(pa.schema(known), table.schema)
            self._add_fields(own)
            own = _map_schema(own, _string_of_nulls)
            # Arrow builds invalid lists while it infers the types of nulls, so parse again.
            if table.schema != own or any(map(pa.types.is_nested, table.schema.types)):
                table = parse_json(block, own)
            if names := self._find_inexact(table, lines):
                self._mix(names)
                return self._parse_lines(lines)
        if not self.schema.names:
            return table.to_batches()[0]
        columns = [
            texts[name] if name in texts else table.column(name).combine_chunks()
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _add_fields(self, fields: Iterable[pa.Field]) -> None:
        """Add fields to the schema; a field with a known name replaces the known field."""
        known = {field.name: field for field in self._schema}
        known |= {field.name: field for field in fields}
        self._schema = pa.schema(list(known.values()))

    def _mix(self, names: Iterable[str]) -> None:
        """Keep the values of keys as JSON texts from now on."""
        self._mixed += names
        self._add_fields(pa.field(name, pa.string(), metadata={JSON_TEXT: b""}) for name in names)

    def _find_mixed(self, lines: Sequence[bytes]) -> None:
        """Find the keys whose values have several types."""
        schema = pa.schema([field for field in self._schema if field.name not in self._mixed])
        block, _ = _take_out(lines, self._mixed)
        for line in block.split(b"\n"):
            found = parse_json(line).schema
            names = [
                field.name
                for field in found
                if field.name in schema.names and not _fits(schema.field(field.name), field)
            ]
            self._mix(names)
            schema, found = (
                pa.schema([field for field in each if field.name not in names])
                for each in (schema, found)
            )
            schema = _merge(schema, found)

    def _find_inexact(self, table: pa.Table, lines: Sequence[bytes]) -> set[str]:
        """Return the keys with doubles that change an integer of the lines read so far.

        Arrow converts integers beyond 64 bits to doubles, and it also converts all integers of a
        column that contains a fraction. The fraction may be in a later block than the integers.
        """
        named = zip(table.column_names, table.columns, strict=True)
        columns = {path: each for name, values in named for path, each in _numbers(values, (name,))}
        large = {path for path, values in columns.items() if _is_large(values)} - self._inexact
        for line in lines:
            if large and _LONG_NUMBER.search(line):
                value = json.loads(line, parse_int=lambda digits: int(digits[:_MOST_DIGITS]))
                self._inexact |= large.intersection(_inexact(value))
                large -= self._inexact
        return {
            path[0]
            for path, values in columns.items()
            if path in self._inexact and pa.types.is_floating(values.type)
        }


def is_json_text(field: pa.Field) -> bool:
    """Return whether a column contains JSON texts, because its values have several types."""
    return JSON_TEXT in (field.metadata or {})


def splice(line: bytes | None, values: Mapping[str, Any]) -> bytes:
    """Return a JSON object with other values, and with all else as it was.

    Keys that the object does not have come last. None is an empty object.

    >>> splice(b'{"a": 1.50, "b": [ ]}', {"b": "x", "c": None})
    b'{"a": 1.50, "b": "x", "c": null}'
    """
    line = (line or b"{}").strip()
    if b"\\" in line or any(name.encode() in line for name in values):
        text = line.decode()
        found = _find_values(text)
        for name in sorted(found.keys() & values.keys(), key=lambda name: -found[name][0]):
            start, end = found[name]
            text = f"{text[:start]}{dump_json(values[name])}{text[end:]}"
        values = {name: value for name, value in values.items() if name not in found}
        line = text.encode()
    if not values:
        return line
    head = line[:-1].rstrip()
    separator = b"" if head == b"{" else b", "
    return head + separator + dump_json(dict(values))[1:].encode()


def _find_values(text: str) -> dict[str, tuple[int, int]]:
    """Return the start and the end of the value of each key of a JSON object."""
    found = {}
    end = text.index("{") + 1
    while (start := _find_next(text, end)) < len(text) and text[start] == '"':
        key, end = _DECODER.raw_decode(text, start)
        start = _find_next(text, end)
        _, end = _DECODER.raw_decode(text, start)
        found[key] = start, end
    return found


def _find_next(text: str, start: int) -> int:
    """Return the position of the next value in a JSON object, or of the end of the object."""
    found = _BETWEEN.match(text, start)
    return found.end() if found else start


def dump_json(value: Any) -> str:
    """Return a value as JSON; NaN and infinite numbers become null."""
    try:
        return _ENCODE(value)
    except ValueError:
        return _ENCODE(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return map_values(_finite, value)


def parse_json(
    block: bytes, schema: pa.Schema | None = None, *, ignores_others: bool = False
) -> pa.Table:
    """Parse whole lines with Arrow.

    Args:
      block: The lines.
      schema: The schema; None to infer it.
      ignores_others: Whether to ignore keys that are not in the schema.

    Raises:
      ArrowInvalid: A line is not JSON, or does not fit the schema.
    """
    others = "ignore" if ignores_others else "error"
    parse = pa_json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else others
    )
    read = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    # Arrow must own the memory, because its threads may outlive the call.
    content = pa.BufferOutputStream()
    content.write(block)
    source = pa.BufferReader(content.getvalue())
    return pa_json.read_json(source, read_options=read, parse_options=parse)


def _find_parse_error(line: bytes) -> str:
    """Return why Arrow cannot parse a JSON object, such as a repeated key; or ""."""
    try:
        parse_json(line)
    except pa.ArrowInvalid as error:
        problem = one_line(error).removeprefix("JSON parse error: ").partition(" in row ")[0]
        return f"invalid JSON ({problem})"
    return ""


def is_suspect(block: bytes, lines: Sequence[bytes]) -> bool:
    """Return whether `find_fault` must look at each line of a block before Arrow parses it."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return True
    return (
        len(block) > MAX_LINE_BYTES
        or _has_half_pair(block)
        or any(map(_is_too_deep, lines))
        or not all(map(_begins_as_object, lines))  # Arrow crashes on lines with only `null`
    )


def find_fault(line: bytes) -> str:
    """Return why a line is bad, or ""."""
    if len(line) > MAX_LINE_BYTES:
        return TOO_LONG
    if _is_too_deep(line):
        return f"more than {_DEEPEST} nested lists and objects"
    if _has_half_pair(line):
        return "half of a surrogate pair"
    try:
        is_object = isinstance(json.loads(line.decode()), dict)
    except UnicodeDecodeError:
        return NOT_UTF8
    except ValueError as error:
        return f"invalid JSON ({one_line(getattr(error, 'msg', error))})"
    return "" if is_object else "no JSON object"


def _has_half_pair(text: bytes) -> bool:
    r"""Return whether JSON contains an escaped half of a surrogate pair.

    >>> _has_half_pair(rb'"\ud83d\ude00 \\ud800"'), _has_half_pair(rb'"\ud800"')
    (False, True)
    """
    return bool(_SURROGATE.search(text)) and any(found[1] for found in _ESCAPE.finditer(text))


def _take_out(
    lines: Sequence[bytes], keys: Sequence[str]
) -> tuple[bytes, dict[str, pa.StringArray]]:
    """Return lines without some keys, and the JSON texts of the values of each key."""
    rest = []
    texts: dict[str, list[str | None]] = {key: [] for key in keys}
    for line in lines:
        row = json.loads(line)
        for key, column in texts.items():
            value = row.pop(key, None)
            column.append(None if value is None else json.dumps(value, ensure_ascii=False))
        rest.append(json.dumps(row).encode())
    return b"\n".join(rest), {key: pa.array(text, pa.string()) for key, text in texts.items()}


def _fits(field: pa.Field, other: pa.Field) -> bool:
    try:
        _merge(pa.schema([field]), pa.schema([other]))
    except pa.ArrowTypeError:
        return False
    return True


def _is_too_deep(line: bytes) -> bool:
    if len(line) <= _DEEPEST or line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    steps = _STEPS[np.frombuffer(_STRING.sub(b"", line), np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > _DEEPEST)


def _numbers(column: Any, path: _KeyPath) -> Iterator[tuple[_KeyPath, pa.ChunkedArray]]:
    """Yield the path and the values of each column of numbers, at any nesting depth."""
    types = pa.types
    if types.is_struct(column.type):
        for field, values in zip(column.type, column.flatten(), strict=True):
            yield from _numbers(values, (*path, field.name))
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
