r"""Read files whose rows are lines: plain texts, line-aligned texts, and cells by number.

Lines end only at \n or \r\n, as in corpora. A line is bad if the cells to read are not UTF-8 or the
line exceeds `MAX_LINE_BYTES`; see `faults.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tt.model.errors import counted
from tt.pipelines.tables.delimited import parse_cells
from tt.pipelines.tables.faults import NOT_UTF8, Fault, split_faults, with_faults
from tt.pipelines.tables.interface import ReadRequest
from tt.pipelines.tables.ranges import LINES, unequal_lines_error
from tt.pipelines.tables.text_files import (
    MAX_LINE_BYTES,
    TOO_LONG,
    read_whole_lines,
    without_bom,
)

TEXT_COLUMN = "text"  # the only column of a text file that is read as a table
_TEXT_SCHEMA = pa.schema([(TEXT_COLUMN, pa.string())])
BLOCK_BYTES = 4 << 20  # bytes of whole lines per batch
_NO_DELIMITER = b"\x01"  # Arrow needs a delimiter; this one is very rare in texts


class CellRows:
    """Some cells of each line, as batches with a column of strings per cell.

    No line contains names of columns. A line with too few cells is bad. Cells that are not UTF-8
    are bad too, and have U+FFFD instead of the invalid bytes.

    Args:
      stream: The decompressed content of the file.
      request: What to read.
    """

    rules = LINES
    _kept: tuple[str, ...] = (NOT_UTF8,)  # reasons of faults whose cells are not null

    def __init__(self, stream: Any, request: ReadRequest) -> None:
        self._stream, self._path, self._line = stream, request.path, request.line
        self._delimiter = (request.options.delimiter or "\t").encode()
        self._numbers = [int(number) for number in dict.fromkeys(request.columns)]
        self.schema = pa.schema([(str(number), pa.string()) for number in self._numbers])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the cells."""
        line = self._line
        block = read_whole_lines(self._stream, size=BLOCK_BYTES)
        if line == 1:
            block = without_bom(block, path=self._path)
        while block:
            if b"\r" in block:
                if block.endswith(b"\r"):  # the last line lacks the rest of its end
                    block += b"\n"
                block = block.replace(b"\r\n", b"\n")
            batch = self._parse(block)
            if batch is None:
                lines = block.removesuffix(b"\n").split(b"\n")
                batch = self._split(lines, first_line=line)
            yield batch
            line += batch.num_rows
            block = read_whole_lines(self._stream, size=BLOCK_BYTES)

    def _cells_of(self, line: bytes) -> list[bytes]:
        return line.split(self._delimiter, max(self._numbers) + 1)

    def _parse(self, block: bytes) -> pa.RecordBatch | None:
        """Parse a block with Arrow; return None if a line is bad or has another number of cells."""
        cells = block[: block.find(b"\n")].count(self._delimiter) + 1
        if max(self._numbers) >= cells or b"\r" in block or len(block) > MAX_LINE_BYTES:
            return None
        if cells > 1 and b"\n\n" in block:  # Arrow would give an empty line as many cells
            return None
        names = [str(number) for number in range(cells)]
        wanted = [names[number] for number in self._numbers]
        table = parse_cells(
            [block],
            names=names,
            delimiter=self._delimiter.decode(),
            has_quotes=False,
            ignore_empty_lines=False,
            columns=wanted,
            use_threads=False,
        )
        if table is None:
            return None
        columns = [table.column(name).combine_chunks() for name in wanted]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _split(self, lines: Sequence[bytes], *, first_line: int) -> pa.RecordBatch:
        """Split lines one by one."""
        rows: list[list[str | None]] = []
        faults: dict[int, Fault] = {}
        for row, line in enumerate(lines):
            cells = self._cells_of(line)
            reason = self._find_fault(line, cells)
            if reason:
                faults[row] = Fault(first_line + row, reason, line)
            if reason in ("", *self._kept):
                rows.append([cells[number].decode(errors="replace") for number in self._numbers])
            else:
                rows.append([None] * len(self._numbers))
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        return with_faults(pa.RecordBatch.from_arrays(columns, schema=self.schema), faults)

    def _find_fault(self, line: bytes, cells: Sequence[bytes]) -> str:
        """Return why a line is bad; "" if it is good. Only the requested cells must be UTF-8."""
        if len(line) > MAX_LINE_BYTES:
            return TOO_LONG
        if len(cells) <= max(self._numbers):
            return f"{counted(len(cells), 'cell')} instead of at least {max(self._numbers) + 1}"
        try:
            b"\n".join(cells[number] for number in self._numbers).decode()
        except UnicodeDecodeError:
            return NOT_UTF8
        return ""


class TextRows(CellRows):
    """The lines of a text file, as batches with a single column of strings; null for bad lines."""

    _kept = ()

    def __init__(self, stream: Any, request: ReadRequest) -> None:
        super().__init__(stream, dataclasses.replace(request, columns=[0]))
        self._delimiter = _NO_DELIMITER
        self.schema = _TEXT_SCHEMA

    def _cells_of(self, line: bytes) -> list[bytes]:
        return [line]

    def _parse(self, block: bytes) -> pa.RecordBatch | None:
        return None if self._delimiter in block else super()._parse(block)


class AlignedRows:
    """The lines of several text files, as batches with a column of strings per file.

    If the line of one file is bad, the row is bad, and contains the beginning of this line with
    U+FFFD instead of invalid bytes.

    Args:
      sides: The batches of the `TextRows` of each file.
      paths: The paths of the files, for messages.
    """

    def __init__(self, sides: Sequence[Iterator[pa.RecordBatch]], *, paths: Sequence[str]) -> None:
        self._sides, self._paths = sides, paths
        self.schema = pa.schema([(str(i), pa.string()) for i in range(len(paths))])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the lines.

        Raises:
          UserError: The files have different numbers of lines.
        """
        nothing = pa.RecordBatch.from_pylist([], schema=_TEXT_SCHEMA)
        held = [nothing for _ in self._sides]
        count = 0
        while True:
            for index, side in enumerate(self._sides):
                if not held[index].num_rows:
                    held[index] = next(side, nothing)
            if not (rows := min(batch.num_rows for batch in held)):
                break
            yield self._join([batch.slice(0, rows) for batch in held])
            held = [batch.slice(rows) for batch in held]
            count += rows
        counts = [
            count + batch.num_rows + sum(more.num_rows for more in side)
            for batch, side in zip(held, self._sides, strict=True)
        ]
        if len(set(counts)) > 1:
            raise unequal_lines_error(self._paths, counts)

    def _join(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        split = [split_faults(batch) for batch in batches]
        columns = [batch.column(0) for batch, _ in split]
        faults: dict[int, Fault] = {}
        for side, (_, found) in enumerate(split):
            if found:
                texts = columns[side].to_pylist()
                for row, fault in found.items():
                    texts[row] = fault.content.decode(errors="replace")
                columns[side] = pa.array(texts, pa.string())
                faults = found | faults
        return with_faults(pa.RecordBatch.from_arrays(columns, schema=self.schema), faults)
