"""Cut text files into ranges of whole rows, so that several workers can read one file.

Counting line ends and quotation marks is several times as fast as reading the lines as rows.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from tt.model.errors import UserError
from tt.model.storage.files import read_ranges
from tt.pipelines.tables.formats import UTF8, compression_ending

_BLOCK_BYTES = 16 << 20  # the bytes of a request
# Larger rows may be bad, so that the next row begins at a place that only their reader knows.
_MOST_ROW_BYTES = 16 << 20
MOST_LINE_ENDS = 1000  # the maximum number of line ends inside a row of CSV
_ASCII = bytes(range(128)).decode()
# Each byte, and sequences that are a single character in ISO 2022 or in escaped Unicode.
_EVERY = bytes(range(256)) + rb"\n\u0041" + b"\x1b$BAA"
_Update = Callable[[bytes], object]


class LineRange(NamedTuple):
    """A range of consecutive lines.

    Attributes:
      rows: The number of rows.
      begin: The position of the first byte in the file.
      end: The position after the last byte.
      first_line: The number of the first line in the file, counted from 1.
    """

    rows: int
    begin: int
    end: int
    first_line: int = 1

    def open(self, file: IO[bytes]) -> io.RawIOBase:
        """Return a stream of the range, given its file."""
        return _Part(file, self.begin, self.end)


class _Part(io.RawIOBase):
    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file, self._left = file, end - begin
        file.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowRules:
    r"""How the lines of a text file form rows. By default, each line is a row.

    Attributes:
      blank: A line that contains only these bytes is no row.
      has_names: Whether the first row contains the names of the columns, as in CSV and TSV. In such
        a file, \r can end a line too.
      separator: The character between cells that may have quotation marks; "" if a quotation mark
        has no special meaning.
    """

    blank: bytes = b""
    has_names: bool = False
    separator: str = ""


LINES = RowRules()


class _UnusualError(Exception):
    """Only one worker can read the rows of a file."""


def can_be_cut(path: str, *, encoding: str) -> bool:
    """Return whether each ASCII byte of a file is an ASCII character, and no other byte is one.

    >>> can_be_cut("a.tsv", encoding="utf-8"), can_be_cut("a.tsv", encoding="cp1252")
    (True, True)
    >>> can_be_cut("a.tsv.gz", encoding="utf-8"), can_be_cut("a.tsv", encoding="utf-16")
    (False, False)
    """
    every = _EVERY.decode(encoding, "replace")
    is_one_byte = len(every) == len(_EVERY)
    is_ascii = every[:128] == _ASCII and not any(map(str.isascii, every[128:256]))
    return (encoding == UTF8 or (is_one_byte and is_ascii)) and not compression_ending(path)


def find_ranges(
    path: str,
    *,
    size: int,
    most_rows: int,
    most_bytes: int = sys.maxsize,
    rules: RowRules = LINES,
    encoding: str = UTF8,
    update: _Update | None = None,
) -> list[LineRange]:
    r"""Return ranges that contain all rows of a file, in order; [] if only one worker can read it.

    A range has at most `most_rows` rows and, unless it is a single row, at most `most_bytes` bytes.
    Reading all ranges gives the same rows, faults and line numbers as reading the file. Therefore,
    a CSV file must not have quotation marks in unusual places, or a line that ends at \r only.

    Args:
      path: The path of the file, for which `can_be_cut` returns True.
      size: The size of the file, in bytes.
      most_rows: The maximum number of rows in a range.
      most_bytes: The maximum number of bytes in a range.
      rules: How lines form rows.
      encoding: The encoding of the file.
      update: Called with each block of the file, for example to compute a checksum.
    """

    def count(index: int, begin: int, ends: np.ndarray) -> int:
        most = 1 if rules.has_names and not index else most_rows
        within = int(np.searchsorted(ends, begin + most_bytes, side="right"))
        return most if within == len(ends) else max(1, min(most, within))

    rows = _find_rows(path, size=size, rules=rules, encoding=encoding, update=update)
    try:
        return _cut(rows, count)[rules.has_names :]
    except _UnusualError:
        return []


def align_ranges(path: str, ranges: Sequence[LineRange], *, size: int) -> list[LineRange]:
    """Return the ranges of a file that have as many lines as the ranges of another file.

    If the files do not have the same number of lines, the last range has another number of lines,
    or there is another number of ranges.
    """
    counts = [each.rows for each in ranges] + [sys.maxsize]
    return _cut(_find_rows(path, size=size), lambda index, begin, ends: counts[index])


def _cut(blocks: Iterable[np.ndarray], count: Callable[..., int]) -> list[LineRange]:
    """Join rows to ranges; see `_find_rows`.

    Args:
      blocks: The rows.
      count: Returns the number of rows of the next range, given the number of ranges before it, its
        begin, and the ends of the rows that are known to follow.
    """
    found: list[LineRange] = []
    begin, line = 0, 0
    rows = np.zeros((2, 0), np.int64)  # the rows after `begin`
    for more in blocks:
        rows = np.concatenate([rows, more], axis=1)
        while rows.size and (number := count(len(found), begin, rows[0])) <= rows.shape[1]:
            end, next_line = rows[:, number - 1].tolist()
            found.append(LineRange(number, begin, end, line + 1))
            begin, line, rows = end, next_line, rows[:, number:]
    if rows.size:
        found.append(LineRange(rows.shape[1], begin, int(rows[0, -1]), line + 1))
    return found


def find_aligned_ranges(
    files: Sequence[tuple[str, int]], *, most_rows: int, most_bytes: int
) -> list[list[LineRange]]:
    """Return the ranges of each of several files whose lines belong together.

    The result is [] if the first file has at most `most_bytes` bytes, or a file has a huge line.

    Args:
      files: The path of each file, which may occur twice, and its size in bytes.
      most_rows: The maximum number of lines in a range.
      most_bytes: The maximum number of bytes in a range of the first file.

    Raises:
      UserError: The files have different numbers of lines.
    """
    (path, size), *others = files
    first: list[LineRange] = []
    if size > most_bytes:
        first = find_ranges(path, size=size, most_rows=most_rows, most_bytes=most_bytes)
    if not first:
        return []
    try:
        found = [first, *(align_ranges(other, first, size=each) for other, each in others)]
    except _UnusualError:
        return []
    counts = [sum(each.rows for each in ranges) for ranges in found]
    if len(set(counts)) > 1:
        raise unequal_lines_error([path for path, _ in files], counts)
    return [list(ranges) for ranges in zip(*found, strict=True)]


def unequal_lines_error(paths: Sequence[str], counts: Sequence[int]) -> UserError:
    """Return the error for two files with different numbers of lines."""
    return UserError(
        f"{paths[0]} has {counts[0]:,} lines, but {paths[1]} has {counts[1]:,}. Check that both "
        "files are complete and belong together"
    )


def _find_rows(
    path: str,
    *,
    size: int,
    rules: RowRules = LINES,
    encoding: str = UTF8,
    update: _Update | None = None,
) -> Iterator[np.ndarray]:
    """Yield arrays with the positions after the rows of a file, and the numbers of lines before.

    The last row may lack its line end.

    Raises:
      _UnusualError: Only one worker can read the rows.
    """
    begin, line = 0, 0
    rest = b""  # an incomplete row
    blocks = [(path, each, min(size, each + _BLOCK_BYTES)) for each in range(0, size, _BLOCK_BYTES)]
    for (_, _, end), block in zip(blocks, read_ranges(blocks), strict=True):
        if update is not None:
            update(block)
        text = rest + block
        while encoding == UTF8 and not line and text.startswith(codecs.BOM_UTF8):
            text = text.removeprefix(codecs.BOM_UTF8)
            begin += len(codecs.BOM_UTF8)
        if end == size and text and not text.endswith(b"\n"):
            text += b"\n"
        ends, lines = _find_row_ends(text, rules)
        rest = text[ends[-1] :] if len(ends) else text
        if len(rest) > _MOST_ROW_BYTES or (end == size and rest):
            raise _UnusualError
        if len(ends):
            kept = _find_text(text, ends, rules.blank)
            yield np.stack([np.minimum(ends + begin, size), lines + line])[:, kept]
            begin, line = begin + int(ends[-1]), line + int(lines[-1])


def _find_row_ends(text: bytes, rules: RowRules) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions after the whole rows of a text, and the numbers of lines before.

    Raises:
      _UnusualError: A row is huge, or it is uncertain where a row ends.
    """
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    lines = np.arange(1, len(ends) + 1)
    marks = np.flatnonzero(data == ord('"')) if rules.separator and b'"' in text else ends[:0]
    if len(marks):
        is_outside = np.searchsorted(marks, ends) % 2 == 0
        ends, lines = ends[is_outside], lines[is_outside]
    is_large = np.diff(ends, prepend=0) > _MOST_ROW_BYTES
    is_long = np.diff(lines, prepend=0) > MOST_LINE_ENDS
    is_usual = not (is_large.any() or is_long.any())
    if rules.has_names and len(ends):
        data = data[: ends[-1]]
        marks = marks[marks < ends[-1]]
        is_next = np.isin(np.arange(256), list(f'{rules.separator}"\r\n'.encode()))
        # A line end comes last, and counts as the neighbor of a mark that comes first.
        is_usual &= bool(
            is_next[data[marks[::2] - 1]].all() and is_next[data[marks[1::2] + 1]].all()
        )
        returns = np.flatnonzero(data == ord("\r"))
        is_usual &= bool((data[returns + 1] == ord("\n")).all())
    if not is_usual:
        raise _UnusualError
    return ends, lines


def _find_text(text: bytes, ends: np.ndarray, blank: bytes) -> np.ndarray:
    """Return for each row whether it contains other bytes than the blank ones."""
    data = np.frombuffer(text, np.uint8)
    begins = np.concatenate([[0], ends[:-1]])
    is_text = np.ones(len(ends), bool)
    for row in np.flatnonzero(np.isin(data[begins], list(blank))):
        is_text[row] = bool(text[begins[row] : ends[row]].strip(blank))
    return is_text
