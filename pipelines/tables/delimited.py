"""CSV and TSV as tables of strings: what stands in a cell is kept as it is.

CSV (RFC 4180) has commas, and quotation marks around cells that need them. TSV has tabs alone: each
line is a row, and a quotation mark is a letter like any other, as in corpora. Lines end with a line
feed, a carriage return or both; the first names the columns.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from model.errors import BadFileError, counted
from pipelines.storage.text_files import CheckedFile
from pipelines.tables.utf8 import check_head, check_lines, one_line

_HEAD_BYTES = 64 << 10
BLOCK_BYTES = 8 << 20  # of text that is parsed at once; a row must be shorter
_END = "x"  # the first cell of a row that is added at the end: it tells an open quotation mark
_FIELD_LIMIT = 2**31 - 1  # characters of a cell, for the module csv


class DelimitedRows:
    """The rows of a CSV or TSV file, as batches of strings.

    Args:
      stream: The file's content, decompressed.
      path: The file, for messages, and to be read again where it is bad.
      delimiter: "," with quotation marks, or a tab without.

    Raises:
      BadFileError: The first line names no columns.
    """

    def __init__(self, stream: Any, *, path: str, delimiter: str) -> None:
        self._stream = stream
        self._path = path
        self._delimiter = delimiter
        self._head = stream.read(_HEAD_BYTES)
        check_head(self._head, path=path)
        self._names = self._read_names()
        self._end = [_END, *[""] * (len(self._names) - 1)]
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, at least one batch.

        Raises:
          BadFileError: A row has more or fewer cells, is too long, or is not UTF-8; or a quotation
            mark is never closed.
        """
        try:
            whole = _WithEnd(self._head, self._stream, self._delimiter.join(self._end))
            reader = pa_csv.open_csv(
                pa.PythonFile(whole, "r"),
                read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char='"' if self._has_quotes else False,
                    newlines_in_values=self._has_quotes,
                    # Of a single column an empty line is an empty cell.
                    ignore_empty_lines=len(self._names) > 1,
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, pa.string())
                ),
            )
            held = reader.read_next_batch()
            for batch in reader:
                if batch.num_rows:
                    yield held
                    held = batch
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._explain(error) from error
        if held.num_rows == 0 or [column[-1].as_py() for column in held.columns] != self._end:
            raise self._explain(ValueError("a quotation mark is open at its end"))
        yield held.slice(0, held.num_rows - 1)

    @property
    def _has_quotes(self) -> bool:
        return self._delimiter == ","

    def _rows_of(self, lines: Iterator[str]) -> Any:
        if self._has_quotes:
            return csv.reader(lines)
        return csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)

    def _read_names(self) -> list[str]:
        try:
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(self._head)
        except UnicodeDecodeError as error:
            raise self._explain(error) from error
        with _long_cells():
            names: list[str] = next(self._rows_of(iter(io.StringIO(text, newline=""))), [])
        if not names:
            raise BadFileError(f"the first line of {self._path} must name its columns; it is empty")
        if len(names) == 1 and (other := next((c for c in "\t;|," if c in names[0]), "")):
            kind = "commas" if self._has_quotes else "tabs"
            raise BadFileError(
                f"{self._path} must have {kind} between its columns; its first line has none, but "
                f"{other!r}: {names[0]!r}"
            )
        return names

    def _explain(self, error: Exception) -> BadFileError:
        """Reads the file again, by other means, to tell the line of what is wrong."""
        check_lines(self._path)
        line = after = 1  # where the row begins, and the next one
        row: list[str] = []
        with CheckedFile(self._path) as file, _long_cells():
            text = io.TextIOWrapper(file.stream, encoding="utf-8-sig", newline="")
            rows = self._rows_of(itertools.chain(text, ["\n", self._delimiter.join(self._end)]))
            for row in rows:
                line, after = after, rows.line_num + 1
                if len(row) not in (0, len(self._names)) or sum(map(len, row)) >= BLOCK_BYTES:
                    break
            is_open = row != self._end and next(rows, None) is None
        if self._has_quotes and is_open:
            return BadFileError(
                f"{self._path} must close each quotation mark; one of the row that begins in line "
                f"{line:,} is open at the end of the file"
            )
        if len(row) not in (0, len(self._names)):
            return BadFileError(
                f"{self._path} must have {counted(len(self._names), 'cell')} in each row, as many "
                f"as in its first line; line {line:,} has {len(row):,}"
            )
        if sum(map(len, row)) >= BLOCK_BYTES:
            return BadFileError(
                f"{self._path} must have rows of less than {BLOCK_BYTES >> 20} MB; that of line "
                f"{line:,} is longer, or lacks a quotation mark"
            )
        return BadFileError(f"{self._path} cannot be read: {one_line(error)}")


class _WithEnd(io.RawIOBase):
    """A stream behind what was read of it already, with a last line added."""

    def __init__(self, head: bytes, stream: Any, line: str) -> None:
        self._head = head
        self._stream = stream
        self._line = line.encode() + b"\n"
        self._last = b""  # byte that was read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns so many bytes, and fewer only at the end."""
        data, self._head = self._head[:size], self._head[size:]
        if len(data) < size:
            data += self._stream.read(size - len(data))
        if len(data) < size and self._line:
            end = self._line if (data or self._last)[-1:] in b"\r\n" else b"\n" + self._line
            self._line = b""
            missing = size - len(data)
            data, self._head, self._stream = data + end[:missing], end[missing:], io.BytesIO()
        self._last = data[-1:]
        return data


@contextlib.contextmanager
def _long_cells() -> Iterator[None]:
    """Lets the module csv read cells of any length."""
    limit = csv.field_size_limit(_FIELD_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
