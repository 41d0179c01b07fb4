"""Read the texts under some keys of JSON Lines files, whatever the other keys contain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tt.pipelines.tables import jsonl
from tt.pipelines.tables.faults import Fault, with_faults
from tt.pipelines.tables.interface import ReadRequest
from tt.pipelines.tables.jsonl import find_fault, is_suspect, parse_json
from tt.pipelines.tables.ranges import LINES
from tt.pipelines.tables.text_files import read_whole_lines, without_bom


class JsonTexts:
    """The texts under some keys, as batches with a column per key and a row per line.

    A dotted key reaches into objects: "translation.en" finds "A" in {"translation": {"en": "A"}}. A
    line without a text or null under each key is bad, and an empty line too; see `faults.py`.

    Args:
      stream: The decompressed content of the file.
      request: What to read.
    """

    rules = LINES

    def __init__(self, stream: Any, request: ReadRequest) -> None:
        self._stream, self._path, self._line = stream, request.path, request.line
        self._keys = list(dict.fromkeys(map(str, request.columns)))
        self.schema = pa.schema([(key, pa.string()) for key in self._keys])
        # "a.b" can also be a key of its own.
        self._dotted = [key for key in self._keys if "." in key]
        paths = [*(key.split(".") for key in self._keys), *([key] for key in self._dotted)]
        self._arrow_schema = _schema_of(paths)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        line = self._line
        while block := read_whole_lines(self._stream, size=jsonl.BLOCK_BYTES):
            if line == 1:
                block = without_bom(block, path=self._path)
            lines = block.removesuffix(b"\n").split(b"\n")
            # Arrow skips an empty line, which could hide that another line has two objects.
            is_usual = all(map(bytes.strip, lines)) and not is_suspect(block, lines)
            batch = self._parse(block, rows=len(lines)) if is_usual else None
            yield self._read(lines, first_line=line) if batch is None else batch
            line += len(lines)

    def _parse(self, block: bytes, *, rows: int) -> pa.RecordBatch | None:
        """Parse a block with Arrow; return None unless each line has a text under each key."""
        try:
            table = parse_json(block, self._arrow_schema, ignores_others=True)
        except pa.ArrowInvalid:
            return None
        if any(table.column(key).null_count < rows for key in self._dotted):
            return None
        columns = []
        for key in self._keys:
            first, *fields = key.split(".")
            column = table.column(first).combine_chunks()
            for field in fields:
                column = column.flatten()[column.type.get_field_index(field)]
            columns.append(column)
        if table.num_rows != rows or any(column.null_count for column in columns):
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read(self, lines: Sequence[bytes], *, first_line: int) -> pa.RecordBatch:
        """Read lines one by one."""
        faults: dict[int, Fault] = {}
        rows: list[list[str | None]] = []
        for row, line in enumerate(lines):
            texts: list[str | None] = [None] * len(self._keys)
            reason = find_fault(line)
            if not reason:
                value = json.loads(line)
                try:
                    texts = [text_at(value, key) for key in self._keys]
                except (KeyError, TypeError):
                    reason = f"no texts under the keys {' and '.join(self._keys)}"
            if reason:
                faults[row] = Fault(first_line + row, reason, line.removesuffix(b"\r"))
            rows.append(texts)
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        return with_faults(pa.RecordBatch.from_arrays(columns, schema=self.schema), faults)


def _schema_of(paths: Sequence[Sequence[str]]) -> pa.Schema:
    """Return a schema with a string at the end of each path of keys.

    >>> _schema_of([["a", "b"], ["a", "c"]])
    a: struct<b: string, c: string>
      child 0, b: string
      child 1, c: string
    """
    fields: dict[str, list[Sequence[str]]] = {}
    for first, *rest in paths:
        fields.setdefault(first, []).append(rest)
    return pa.schema(
        [
            (name, pa.struct(list(_schema_of(rests))) if all(rests) else pa.string())
            for name, rests in fields.items()
        ]
    )


def text_at(value: Any, key: str) -> str | None:
    """Return the text under a key of a JSON object; None if it is null.

    Raises:
      KeyError: The key does not exist.
      TypeError: The value is not a string, or the key leads through a value that is no object.

    >>> text_at({"translation": {"en": "A"}}, "translation.en")
    'A'
    """
    for part in [key] if key in value else key.split("."):
        value = value[part]
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{key} contains {value!r}")
    return value
