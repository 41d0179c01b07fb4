"""Read CSV and TSV files as tables of strings, without changing any cell.

CSV (RFC 4180) separates cells by commas and allows quotation marks around a cell. TSV separates
cells by tabs only: each line is a row, and a quotation mark has no special meaning, as in corpora.
Lines end with a line feed, a carriage return or both. The first line contains the column names.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from tt.model.errors import BadFileError, counted, first_line
from tt.pipelines.tables.damage import EncodingError, one_line
from tt.pipelines.tables.text_files import CheckedFile, without_bom

_HEAD_BYTES = 64 << 10  # the maximum size of the line of column names
_SEPARATOR_ROWS = 10  # the number of rows to search for other separators
BLOCK_BYTES = 8 << 20  # the size of the text that is parsed at once; a row must be shorter
# The first cell of a row that is appended to each block. If the row does not come back from the
# parser, a quotation mark is open at the end of the block.
_END = "x"
_TAIL_BYTES = 1 << 20  # the size of the end of a block in which to search for a cut
_CUTS = 8  # the maximum number of likely cuts to try, and also of unlikely cuts
IS_BAD = "\0is_bad"  # the name of the column that marks bad rows

# The maximum number of characters in a cell. The setting is global, so it is set only once.
csv.field_size_limit(BLOCK_BYTES)


class DelimitedRows:
    """The rows of a CSV or TSV file, as batches of strings.

    Args:
      stream: The decompressed content of the file.
      path: The path of the file, for messages and for a second reading if a row is bad.
      delimiter: "," for CSV with quotation marks, or a tab for TSV without.
      is_head: Whether the stream is only the beginning of the file. If so, only the rows of its
        first block are read, and no row if the end of a row is uncertain.
      bad_rows: The column that receives the text of bad rows in CSV, whose other cells are empty.
        Blocks with bad rows have the additional column `IS_BAD`. If a quotation mark is never
        closed, its line is bad, and the next row begins in the next line. By default, a bad row
        raises an error.

    Raises:
      BadFileError: The first line does not contain column names.
    """

    def __init__(
        self,
        stream: Any,
        *,
        path: str,
        delimiter: str,
        is_head: bool = False,
        bad_rows: str | None = None,
    ) -> None:
        self._bad_rows = bad_rows
        self._stream = stream
        self._path = path
        self._delimiter = delimiter
        self._is_head = is_head
        self._first = without_bom(stream.read(BLOCK_BYTES), path=path)
        self._error = ""  # the last error of Arrow
        self._newline = b"\n" if b"\n" in self._first else b"\r"
        self._names = self._read_names()
        self._end = [_END, *[""] * (len(self._names) - 1)]
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
          BadFileError: A row has too many or too few cells, is too long, or is not UTF-8; or a
            quotation mark is never closed.
        """
        block, names_rows = self._first, 1
        while True:
            more = self._stream.read(BLOCK_BYTES)
            cuts = self._cuts(block) if more or self._is_head else [len(block)]
            for size in cuts if self._bad_rows is None else cuts[:1]:
                table = self._parse(block[:size])
                if table is not None and not self._is_doubtful(block[:size], table):
                    yield from table.slice(names_rows).to_batches()
                    block, names_rows = block[size:], 0
                    break
            else:
                if self._bad_rows is not None:
                    batch, block = self._parse_rows(block, is_last=not more)
                    yield batch.slice(names_rows)
                    names_rows = 0 if batch.num_rows else names_rows
                elif not self._is_head and (not more or len(block) > BLOCK_BYTES):
                    raise self._explain()
            if not more or self._is_head:
                return
            block += more

    def _cuts(self, block: bytes) -> list[int]:
        """Return possible ends of the last whole row in a block, most likely first.

        A row does not end inside quotation marks. Therefore, the line ends that follow an even
        number of quotation marks are the likely ones. The other line ends are possible too, because
        an unquoted cell may contain a single quotation mark.
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
        """Parse a block; return None if it is invalid or ends inside a row."""
        # Arrow must own the memory, because its threads may outlive the call.
        content = pa.BufferOutputStream()
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
                    # With a single column, an empty line is an empty cell.
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

    def _is_doubtful(self, block: bytes, table: pa.Table) -> bool:
        """Return whether a missing quotation mark may have joined several rows of a block.

        In a valid block, each opening mark follows a separator, and a separator follows each
        closing mark. Unquoted cells may also contain marks, so `_parse_rows` decides.
        """
        if self._bad_rows is None or block.count(self._newline) <= table.num_rows:
            return False
        data = np.frombuffer(b"\n" + block + b"\n", np.uint8)
        marks = np.flatnonzero(data == ord('"'))
        is_end = np.isin(np.arange(256), list(b',"\r\n'))
        opened, closed = data[marks[::2] - 1], data[marks[1::2] + 1]
        return not (is_end[opened].all() and is_end[closed].all())

    def _parse_rows(self, block: bytes, *, is_last: bool) -> tuple[pa.RecordBatch, bytes]:
        """Parse a block row by row; return its rows, and the rest of the block.

        The rest is an incomplete row, which the next block may complete.
        """
        lines = io.StringIO(block.decode(errors="surrogateescape"), newline="").readlines()
        rest: list[str] = []
        if not is_last and not lines[-1].endswith(("\r", "\n")):
            rest = [lines.pop()]
        rows: list[tuple[list[str], str]] = []  # the cells, and the text
        end = 0  # the line in which the next row begins
        while end < len(lines):
            start = end
            reader = csv.reader((lines[i] for i in range(start, len(lines))), strict=True)
            try:
                for row in reader:
                    begin, end = end, start + reader.line_num
                    if row or len(self._names) == 1:
                        rows.append((row or [""], "".join(lines[begin:end])))
            except csv.Error:
                is_open = start + reader.line_num == len(lines)
                if is_open and not is_last and sum(map(len, lines[end:])) < BLOCK_BYTES:
                    rest = lines[end:] + rest
                    break
                [row] = csv.reader([lines[end].rstrip("\r\n") + "\n"])
                # An open quotation mark also contains the end of the line.
                rows.append(([] if row[-1].endswith("\n") else row, lines[end]))
                end += 1
        return self._as_batch(rows), "".join(rest).encode(errors="surrogateescape")

    def _as_batch(self, rows: list[tuple[list[str], str]]) -> pa.RecordBatch:
        is_bad = [len(row) != len(self._names) for row, _ in rows]
        empty = [""] * len(self._names)
        at = self._names.index(str(self._bad_rows))
        cells = [
            [*empty[:at], text.rstrip("\r\n"), *empty[at + 1 :]] if bad else row
            for bad, (row, text) in zip(is_bad, rows, strict=True)
        ]
        columns = [
            pa.array([row[i].encode(errors="surrogateescape") for row in cells], pa.binary()).view(
                pa.string()
            )
            for i in range(len(empty))
        ]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array(is_bad, pa.bool_())], [*self._names, IS_BAD]
        )

    @property
    def _has_quotes(self) -> bool:
        return self._delimiter == ","

    def _rows_of(self, lines: Iterator[str]) -> Any:
        if self._has_quotes:
            return csv.reader(lines)
        return csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)

    def _read_names(self) -> list[str]:
        # The slice may end inside a character.
        text = self._first[:_HEAD_BYTES].decode(errors="surrogateescape")
        head = io.StringIO(text, newline="")
        rows = self._rows_of(iter(head.readline, ""))
        names: list[str] = next(rows, [])
        if not names:
            raise BadFileError(
                f"the first line of {self._path} must contain the column names, but it is empty"
            )
        if len(self._first) > _HEAD_BYTES and head.tell() == len(head.getvalue()):
            raise BadFileError(
                f"the first line of {self._path} must contain the column names in less than "
                f"{_HEAD_BYTES >> 10} KiB; it is longer, or a quotation mark is not closed"
            )
        try:
            "".join(names).encode()
        except UnicodeEncodeError as error:
            raise EncodingError(f"{self._path} must be UTF-8; line 1 is not") from error
        if len(names) == 1:
            self._check_separators(text)
        return names

    def _check_separators(self, text: str) -> None:
        """Check that a file with a single column does not use another separator.

        Args:
          text: The beginning of the file.

        Raises:
          BadFileError: With another separator, the first line has several names, and each row has
            at least as many cells.
        """
        for other in "\t;|,":
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=other)
            with contextlib.suppress(csv.Error):  # a cell is too long
                names, *more = filter(None, itertools.islice(rows, 1 + _SEPARATOR_ROWS))
                if len(self._first) > _HEAD_BYTES:
                    del more[-1:]  # this row may be cut off
                if len(names) > 1 and more and all(len(row) >= len(names) for row in more):
                    kind = "commas" if self._has_quotes else "tabs"
                    raise BadFileError(
                        f"{self._path} must have {kind} between its columns, but its first line "
                        f"has only {other!r}: {first_line(text)!r}"
                    )

    def _explain(self) -> BadFileError:
        """Read the file again with Python's csv module, to find the line of the bad row."""
        line = after = 1  # the lines in which the row and the next row begin
        row: list[str] = []
        with CheckedFile(self._path) as file:
            text = io.TextIOWrapper(
                file.stream, encoding="utf-8-sig", errors="surrogateescape", newline=""
            )
            # A line may be as long as the file, so the length of a read is limited.
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
            except csv.Error:  # a cell exceeds the size limit
                line, row = after, []
        if row == self._end:
            return BadFileError(f"{self._path} cannot be read: {self._error}")
        return BadFileError(
            f"{self._path} must have {counted(len(self._names), 'cell')} in each row, closed "
            f"quotation marks, and rows of less than {BLOCK_BYTES >> 20} MB; see the row that "
            f"begins in line {line:,}"
        )
