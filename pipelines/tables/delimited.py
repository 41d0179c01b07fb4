"""Read CSV and TSV files as tables of strings, without changing any cell.

CSV (RFC 4180) separates cells by commas and allows quotation marks around a cell. TSV separates
cells by tabs only: each line is a row, and a quotation mark has no special meaning, as in corpora.
Lines end with a line feed, a carriage return or both. The first line contains the column names.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tt.model.errors import BadFileError, counted, first_line
from tt.pipelines.tables.damage import EncodingError, SeparatorError
from tt.pipelines.tables.faults import NOT_UTF8, Fault, with_faults
from tt.pipelines.tables.interface import ReadRequest
from tt.pipelines.tables.ranges import MOST_LINE_ENDS, RowRules
from tt.pipelines.tables.text_files import MAX_LINE_BYTES, TOO_LONG, without_bom

_HEAD_BYTES = 64 << 10  # the maximum size of the line of column names
MOST_HEAD_BYTES = 2 * _HEAD_BYTES  # the beginning of a file that decides how its rows are read
_SEPARATOR_ROWS = 10  # the number of rows to search for other separators
BLOCK_BYTES = 8 << 20  # the size of the text that is parsed at once
_SUSPECT_BYTES = 256 << 10  # the size of the text that is read row by row if a row is bad
# The first cell of a row that is appended to each block. If the row does not come back from the
# parser, a quotation mark is open at the end of the block.
_END = "x"
_TAIL_BYTES = 1 << 20  # the size of the end of a block in which to search for a cut
_OPEN_MARK = "a quotation mark is not closed"
_Rows = Iterator[tuple[int, int, list[str] | None]]

# The maximum number of characters in a cell. The setting is global, so it is set only once.
csv.field_size_limit(2 * MAX_LINE_BYTES)


def _count(text: npt.NDArray[np.uint8], character: bytes) -> int:
    """Count a character; for frequent characters, this is seven times as fast as `bytes.count`."""
    return int(np.count_nonzero(text == ord(character)))


class DelimitedRows:
    """The rows of a CSV or TSV file, as batches of strings; see `faults.py` for bad rows.

    A row is bad if it has too many or too few cells, is not UTF-8, or exceeds `MAX_LINE_BYTES`. If
    a row does not end within these bytes or within `MOST_LINE_ENDS` lines, or if a row of several
    lines has a quotation mark in an unusual place, then a mark was not closed: the first line is
    bad, and the next row begins in the next line. No rule depends on the blocks.

    Args:
      stream: The decompressed content of the file.
      request: What to read. The default delimiter of TSV is a tab; of CSV, it is a comma, or a
        semicolon if the first line has only semicolons, as Excel writes it in many countries. Of
        the head of a file, only the rows of the first block are read, and no row if the end of a
        row is uncertain.
      has_quotes: Whether the file is CSV, whose cells may have quotation marks.

    Raises:
      BadFileError: The first line does not contain column names.
    """

    def __init__(self, stream: Any, request: ReadRequest, *, has_quotes: bool) -> None:
        self._stream, self._path, self._line = stream, request.path, request.line
        self._delimiter = request.options.delimiter or ("," if has_quotes else "\t")
        self._is_given = request.options.delimiter is not None
        self._has_quotes, self._is_head = has_quotes, request.is_head
        head = request.head
        self._names_rows = 1 if head is None else 0
        first = stream.read(BLOCK_BYTES)
        self._first = without_bom(first if head is None else head, path=self._path)
        self._newline = b"\n" if b"\n" in self._first else b"\r"
        self._names = self._read_names()
        self._end = [_END, *[""] * (len(self._names) - 1)]
        if head is not None:
            self._first = first
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        block, names_rows, line = self._first, self._names_rows, self._line
        more = self._read_after(block)
        most, suspect = BLOCK_BYTES, _SUSPECT_BYTES  # sizes of the text to parse next
        while True:
            text = block[:most]
            is_whole = len(text) == len(block)
            is_last = is_whole and not (more or self._is_head)
            table, size = self._parse_rows(text, is_last=is_last)
            if table is None and most > suspect:
                most = suspect
                continue
            batches = [] if table is None else table.to_batches()
            if table is None:
                batch, size = self._read_rows(text, line=line, is_last=is_last)
                batches = [batch]
            for batch in batches:
                yield batch.slice(names_rows)
                names_rows = max(0, names_rows - batch.num_rows)
            if is_whole and (not more or self._is_head):
                return
            line += _count(np.frombuffer(text, np.uint8)[:size], self._newline)
            block = block[size:]
            if is_whole:
                block += more
                more = self._read_after(block)
            if size:
                most, suspect = min(BLOCK_BYTES, 2 * most), _SUSPECT_BYTES
            else:  # a row needs more text
                most = suspect = 2 * most

    @property
    def rules(self) -> RowRules:
        """How the lines of the file form rows."""
        return RowRules(
            blank=b"\r\n" if len(self._names) > 1 else b"",
            has_names=True,
            separator=self._delimiter if self._has_quotes else "",
        )

    def _read_after(self, block: bytes) -> bytes:
        """Return the text after a block, without the rest of a line that is already too long."""
        more: bytes = self._stream.read(BLOCK_BYTES)
        while more and len(block) - (block.rfind(self._newline) + 1) > MAX_LINE_BYTES:
            if (end := more.find(self._newline)) >= 0:
                return more[end:]
            more = self._stream.read(BLOCK_BYTES)
        return more

    def _parse_rows(self, block: bytes, *, is_last: bool) -> tuple[pa.Table | None, int]:
        """Parse the whole rows of a block with Arrow; return the table and the size of the rows.

        The table is None if a row is bad, or if a quotation mark is in an unusual place.
        """
        for size in [len(block)] if is_last else self._cuts(block):
            rows = block if size == len(block) else block[:size]
            table = self._parse(rows)
            if table is not None and not self._is_doubtful(rows, table):
                return table, size
        return None, 0

    def _cuts(self, block: bytes) -> list[int]:
        """Return two possible ends of the last whole row in a block, most likely first.

        A row does not end inside quotation marks. Therefore, a line end that follows an even number
        of quotation marks is the likely one. The other line end is possible too, because an
        unquoted cell may contain a single quotation mark.
        """
        if not self._has_quotes:
            end = block.rfind(self._newline) + 1
            return [end] if end else []
        last = block.rfind(self._newline)
        start = max(0, last - _TAIL_BYTES)
        whole = np.frombuffer(block, np.uint8)
        data = whole[start : last + 1]
        ends = np.flatnonzero(data == ord(self._newline))
        marks = np.cumsum(data == ord('"'), dtype=np.uint8)[ends]
        is_odd = (marks + _count(whole[:start], b'"') % 2) % 2 == 1
        return [start + int(some[-1]) + 1 for some in (ends[~is_odd], ends[is_odd]) if len(some)]

    def _parse(self, block: bytes) -> pa.Table | None:
        """Parse a block; return None if it is invalid or ends inside a row."""
        line_end = self._newline if block[-1:] not in (b"", b"\n", b"\r") else b""
        table = parse_cells(
            [block, line_end, self._delimiter.join(self._end).encode(), self._newline],
            names=self._names,
            delimiter=self._delimiter,
            has_quotes=self._has_quotes,
            # With a single column, an empty line is an empty cell.
            ignore_empty_lines=len(self._names) > 1,
        )
        if table is None:
            return None
        last = [column[-1].as_py() for column in table.columns]
        return table.slice(0, table.num_rows - 1) if last == self._end else None

    def _is_doubtful(self, block: bytes, table: pa.Table) -> bool:
        """Return whether a row of a block may be bad, although Arrow parses it.

        A missing quotation mark may have joined several rows. Otherwise, each opening mark follows
        a separator, and a separator follows each closing mark. Unquoted cells may also contain
        marks, so `_read_rows` decides.
        """
        if len(block) > MAX_LINE_BYTES:
            return True
        if not self._has_quotes or b'"' not in block:
            return False
        data = np.frombuffer(block, np.uint8)
        lines = _count(data, b"\n") + (not block.endswith((b"\n", b"\r")))
        if b"\r" in block:  # a return ends a line too
            lines += _count(data, b"\r") - block.count(b"\r\n")
        if lines <= table.num_rows:
            return False
        marks = np.flatnonzero(data == ord('"'))
        is_end = np.isin(np.arange(256), list(f'{self._delimiter}"\r\n'.encode()))
        # At the ends of the block, the other end counts as the neighbor of a mark.
        opened, closed = data[marks[::2] - 1], data.take(marks[1::2] + 1, mode="wrap")
        if not (is_end[opened].all() and is_end[closed].all()):
            return True
        if sum(pc.max(pc.binary_length(cells)).as_py() for cells in table) <= MOST_LINE_ENDS:
            return False
        ends = np.flatnonzero(data == ord(self._newline))
        row_ends = np.flatnonzero(np.searchsorted(marks, ends) % 2 == 0)
        return bool(np.diff(row_ends, prepend=-1, append=len(ends)).max() > MOST_LINE_ENDS + 1)

    def _read_rows(self, block: bytes, *, line: int, is_last: bool) -> tuple[pa.RecordBatch, int]:
        """Read the whole rows of a block one by one; return them, and their size.

        Args:
          block: The text, which begins with a row.
          line: The line of the file in which the block begins.
          is_last: Whether the block ends with a row; otherwise, the last row may be incomplete.
        """
        whole = len(block) if is_last else block.rfind(self._newline) + 1
        content = block[:whole].splitlines(keepends=True)
        lines = [line.decode(errors="surrogateescape") for line in content]
        rows: list[list[str] | None] = []
        faults: dict[int, Fault] = {}
        end = 0
        split = _split_plain(lines, delimiter=self._delimiter)
        if self._has_quotes:
            split = _split_quoted(lines, delimiter=self._delimiter, is_last=is_last)
        for begin, end, row in split:
            text = b"".join(content[begin:end])
            if row != [] or len(self._names) == 1:
                if reason := self._find_fault(row, text):
                    faults[len(rows)] = Fault(line, reason, text.rstrip(b"\r\n"))
                    row = None
                rows.append([""] if row == [] else row)
            line += text.count(self._newline)
        columns = [
            pa.array([row and row[i] for row in rows], pa.string()) for i in range(len(self._names))
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return with_faults(batch, faults), sum(map(len, content[:end]))

    def _find_fault(self, row: list[str] | None, text: bytes) -> str:
        """Return why a row is bad, or "" if it is good."""
        if len(text) > MAX_LINE_BYTES:
            return TOO_LONG
        if row is None:
            return _OPEN_MARK
        if len(row or [""]) != len(self._names):
            return f"{counted(len(row), 'cell')} instead of {len(self._names):,}"
        try:
            text.decode()
        except UnicodeDecodeError:
            return NOT_UTF8
        return ""

    def _rows_of(self, lines: Iterator[str]) -> Any:
        if self._has_quotes:
            return csv.reader(lines, delimiter=self._delimiter)
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
        if len(names) == 1 and not self._is_given:
            other = self._find_separator(text)
            self._is_given = True
            if other == ";" and self._has_quotes:
                self._delimiter = other
                return self._read_names()
            if other:
                kind = "commas" if self._has_quotes else "tabs"
                raise SeparatorError(
                    f"{self._path} must have {kind} between its columns, but its first line has "
                    f"only {other!r}: {first_line(text)!r}"
                )
        return names

    def _find_separator(self, text: str) -> str:
        """Return the separator of a file that seems to have a single column; "" if it has one.

        With another separator, the first line has several names, and each row has at least as many
        cells.

        Args:
          text: The beginning of the file.
        """
        for other in "\t;|,":
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=other)
            with contextlib.suppress(csv.Error):  # a cell is too long
                names, *more = filter(None, itertools.islice(rows, 1 + _SEPARATOR_ROWS))
                if len(self._first) > _HEAD_BYTES:
                    del more[-1:]  # this row may be cut off
                if len(names) > 1 and more and all(len(row) >= len(names) for row in more):
                    return other
        return ""


def parse_cells(
    parts: Iterable[bytes],
    *,
    names: Sequence[str],
    delimiter: str,
    has_quotes: bool,
    ignore_empty_lines: bool,
    columns: Sequence[str] = (),
    use_threads: bool = True,
) -> pa.Table | None:
    """Parse whole rows with Arrow; return None if a row is bad, or begins with a byte order mark.

    Args:
      parts: The parts of the text.
      names: The names of the columns of the text.
      delimiter: The character between cells.
      has_quotes: Whether cells may have quotation marks.
      ignore_empty_lines: Whether an empty line is no row.
      columns: The columns to return; by default, all columns.
      use_threads: Whether to convert columns in parallel, which does not pay for few short ones.
    """
    # Arrow must own the memory, because its threads may outlive the call.
    content = pa.BufferOutputStream()
    for part in parts:
        content.write(part)
    buffer = content.getvalue()
    if buffer[: len(codecs.BOM_UTF8)] == codecs.BOM_UTF8:  # Arrow would remove it
        return None
    try:
        return pa_csv.read_csv(
            pa.BufferReader(buffer),
            read_options=pa_csv.ReadOptions(
                column_names=names, block_size=buffer.size + 1, use_threads=use_threads
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if has_quotes else False,
                newlines_in_values=has_quotes,
                ignore_empty_lines=ignore_empty_lines,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns or names, pa.string()),
            ),
        )
    except pa.ArrowInvalid:
        return None


def _split_quoted(lines: Sequence[str], *, delimiter: str, is_last: bool) -> _Rows:
    """Yield the first line, the end and the cells of each row of CSV.

    The cells are None if a quotation mark is not closed. If `is_last` is not true, an incomplete
    row at the end is missing.
    """
    end = 0  # the line in which the next row begins

    def lines_after(first: int) -> Iterator[str]:
        for index in range(first, len(lines)):
            if index - end > MOST_LINE_ENDS or len(lines[index]) > MAX_LINE_BYTES:
                return
            yield lines[index]

    while end < len(lines):
        if len(lines[end]) > MAX_LINE_BYTES:
            yield end, end + 1, None
            end += 1
        start = end
        reader = csv.reader(lines_after(start), delimiter=delimiter, strict=True)
        try:
            for row in reader:
                begin, end = end, start + reader.line_num
                if end > begin + 1 and sum(map(len, lines[begin:end])) > MAX_LINE_BYTES:
                    end = begin
                    raise csv.Error("the row is too long")
                yield begin, end, row
        except csv.Error:
            is_open = start + reader.line_num == len(lines) and not is_last
            if is_open and sum(map(len, lines[end:])) <= MAX_LINE_BYTES:
                return
            first = lines[end].rstrip("\r\n") + "\n"
            [cells] = csv.reader([first], delimiter=delimiter)
            # An open quotation mark also contains the end of the line.
            yield end, end + 1, None if cells[-1].endswith("\n") else cells
            end += 1


def _split_plain(lines: Sequence[str], *, delimiter: str) -> _Rows:
    """Yield the same as `_split_quoted` for TSV, in which each line is a row."""
    for index, line in enumerate(lines):
        text = line.rstrip("\r\n")
        yield index, index + 1, text.split(delimiter) if text else []
