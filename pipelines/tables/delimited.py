"""CSV and TSV as tables of strings: what stands in a cell is kept as it is.

CSV (RFC 4180) has commas, and quotation marks around cells that need them. TSV has tabs alone: each
line is a row, and a quotation mark is a letter like any other, as in corpora. Lines end with a line
feed, a carriage return or both; the first names the columns.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from tt.model.errors import BadFileError, counted
from tt.pipelines.tables.damage import EncodingError, one_line
from tt.pipelines.tables.text import CheckedFile, without_mark

_HEAD_BYTES = 64 << 10  # in which the names of the columns must end
_LOOKED_AT = 10  # rows that tell whether a file has other separators
BLOCK_BYTES = 8 << 20  # of text that is parsed at about once; a row must be shorter
_END = "x"  # first cell of a row that is added to a block: so an open quotation mark is seen
_TAIL_BYTES = 1 << 20  # of a block, in which it is cut
_CUTS = 8  # places of either kind at which a block may be cut

# Characters of a cell. The setting belongs to the process, so it is made once.
csv.field_size_limit(BLOCK_BYTES)


class DelimitedRows:
    """The rows of a CSV or TSV file, as batches of strings.

    Args:
      stream: The file's content, decompressed.
      path: The file, for messages, and to be read again where it is bad.
      delimiter: "," with quotation marks, or a tab without.
      is_head: Whether the stream ends somewhere in the file. Then at most the rows of its first
        block are read, and none if the end of a row is uncertain.

    Raises:
      BadFileError: The first line names no columns.
    """

    def __init__(self, stream: Any, *, path: str, delimiter: str, is_head: bool = False) -> None:
        self._stream = stream
        self._path = path
        self._delimiter = delimiter
        self._is_head = is_head
        self._first = without_mark(stream.read(BLOCK_BYTES), path=path)
        self._error = ""  # what Arrow said last
        self._newline = b"\n" if b"\n" in self._first else b"\r"
        self._names = self._read_names()
        self._end = [_END, *[""] * (len(self._names) - 1)]
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises:
          BadFileError: A row has more or fewer cells, is too long, or is not UTF-8; or a quotation
            mark is never closed.
        """
        block, names_rows = self._first, 1
        while True:
            more = self._stream.read(BLOCK_BYTES)
            for size in self._cuts(block) if more or self._is_head else [len(block)]:
                if (table := self._parse(block[:size])) is not None:
                    yield from table.slice(names_rows).to_batches()
                    block, names_rows = block[size:], 0
                    break
            else:
                if not self._is_head and (not more or len(block) > BLOCK_BYTES):
                    raise self._explain()
            if not more or self._is_head:
                return
            block += more

    def _cuts(self, block: bytes) -> list[int]:
        """Returns where the last row of a block may end, the likeliest place first.

        It does not end inside quotation marks: behind an even number of them, unless a cell without
        any around it has one in it.
        """
        if not self._has_quotes:
            end = block.rfind(self._newline) + 1
            return [end] if end else []
        last = block.rfind(self._newline)
        start = max(0, last - _TAIL_BYTES)
        data = np.frombuffer(block, np.uint8)[start : last + 1]
        ends = np.flatnonzero(data == ord(self._newline))
        marks = np.cumsum(data == ord('"'), dtype=np.uint8)[ends]
        is_odd = (marks + block.count(b'"', 0, start) % 2) % 2 == 1
        likely, others = ends[~is_odd], ends[is_odd]
        return [
            start + int(end) + 1 for some in (likely, others) for end in some[: -_CUTS - 1 : -1]
        ]

    def _parse(self, block: bytes) -> pa.Table | None:
        """Parses whole rows; returns None where they are none."""
        content = pa.BufferOutputStream()  # memory of Arrow's, whose threads may outlive a call
        content.write(block)
        if block[-1:] not in (b"", b"\n", b"\r"):
            content.write(self._newline)
        content.write(self._delimiter.join(self._end).encode() + self._newline)
        buffer = content.getvalue()
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(buffer),
                read_options=pa_csv.ReadOptions(
                    column_names=self._names, block_size=buffer.size + 1
                ),
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
        except pa.ArrowInvalid as error:
            self._error = one_line(error)
            return None
        last = [column[-1].as_py() for column in table.columns]
        self._error = "a quotation mark is open at its end"
        return table.slice(0, table.num_rows - 1) if last == self._end else None

    @property
    def _has_quotes(self) -> bool:
        return self._delimiter == ","

    def _rows_of(self, lines: Iterator[str]) -> Any:
        if self._has_quotes:
            return csv.reader(lines)
        return csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)

    def _read_names(self) -> list[str]:
        text = self._first[:_HEAD_BYTES].decode(errors="surrogateescape")  # it may end in a letter
        head = io.StringIO(text, newline="")
        rows = self._rows_of(iter(head.readline, ""))
        names: list[str] = next(rows, [])
        if not names:
            raise BadFileError(f"the first line of {self._path} must name its columns; it is empty")
        if len(self._first) > _HEAD_BYTES and head.tell() == len(head.getvalue()):
            raise BadFileError(
                f"the first line of {self._path} must name its columns in less than "
                f"{_HEAD_BYTES >> 10} KiB; it is longer, or lacks a quotation mark"
            )
        try:
            "".join(names).encode()
        except UnicodeEncodeError as error:
            raise EncodingError(f"{self._path} must be UTF-8; line 1 is not") from error
        is_quoted = self._has_quotes and self._first.startswith(b'"')
        if len(names) == 1 and not is_quoted:
            self._check_separators(names[0], itertools.islice(rows, _LOOKED_AT))
        return names

    def _check_separators(self, name: str, rows: Iterator[list[str]]) -> None:
        """Checks that a single column is not several, which other separators are between.

        Raises:
          BadFileError: The name and all of the rows have as many of another separator.
        """
        texts = [self._delimiter.join(row) for row in rows if row]
        for other in "\t;|,":
            count = name.count(other)
            if count and texts and all(text.count(other) >= count for text in texts):
                kind = "commas" if self._has_quotes else "tabs"
                raise BadFileError(
                    f"{self._path} must have {kind} between its columns; its first line has none, "
                    f"but {other!r}: {name!r}"
                )

    def _explain(self) -> BadFileError:
        """Read the file again, by other means, to find the line of the bad row."""
        line = after = 1  # where the row begins, and the next one
        row: list[str] = []
        with CheckedFile(self._path) as file:
            text = io.TextIOWrapper(
                file.stream, encoding="utf-8-sig", errors="surrogateescape", newline=""
            )
            # A line may be as long as the file: at most this much of it is read.
            lines = iter(lambda: text.readline(2 * BLOCK_BYTES), "")
            rows = self._rows_of(itertools.chain(lines, ["\n", self._delimiter.join(self._end)]))
            try:
                for row in rows:
                    line, after = after, rows.line_num + 1
                    "".join(row).encode()
                    if len(row) not in (0, len(self._names)) or sum(map(len, row)) >= BLOCK_BYTES:
                        break
            except UnicodeEncodeError:
                return EncodingError(
                    f"{self._path} must be UTF-8; the row that begins in line {line:,} is not"
                )
            except csv.Error:  # a cell is longer than the limit
                line, row = after, []
        if row == self._end:
            return BadFileError(f"{self._path} cannot be read: {self._error}")
        return BadFileError(
            f"{self._path} must have {counted(len(self._names), 'cell')} in each row, closed "
            f"quotation marks, and rows of less than {BLOCK_BYTES >> 20} MB; see the row that "
            f"begins in line {line:,}"
        )
