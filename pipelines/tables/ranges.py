"""Cut text files into ranges of whole lines, so that several workers can read one file.

Counting line ends is 20 times as fast as reading the lines as rows.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from tt.model.errors import UserError
from tt.model.storage.files import read_ranges
from tt.pipelines.tables.formats import UTF8, compression_ending

_BLOCK_BYTES = 16 << 20  # the bytes of a request
_ROW_END = 10  # \n


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineRange:
    """A range of consecutive lines.

    Attributes:
      rows: The number of lines.
      begin: The position of the first byte in the file.
      end: The position after the last byte.
    """

    rows: int
    begin: int
    end: int

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


def can_be_cut(path: str, *, encoding: str) -> bool:
    """Return whether each byte of a line end in a file is the end of a line.

    >>> can_be_cut("a.tsv", encoding="utf-8"), can_be_cut("a.tsv", encoding="cp1252")
    (True, True)
    >>> can_be_cut("a.tsv.gz", encoding="utf-8"), can_be_cut("a.tsv", encoding="utf-16")
    (False, False)
    """
    every = bytes(range(256)).decode(encoding, "replace")
    is_one_byte = len(every) == 256 and every[_ROW_END] == "\n"
    return (encoding == UTF8 or is_one_byte) and not compression_ending(path)


def find_ranges(path: str, *, size: int, most_rows: int, most_bytes: int) -> list[LineRange]:
    r"""Return the ranges of a file in which a line ends only at \n, in order.

    A range has at most `most_rows` lines and, unless it is a single line, at most `most_bytes`
    bytes.

    Args:
      path: The path of the file, which is not compressed.
      size: The size of the file, in bytes.
      most_rows: The maximum number of lines in a range.
      most_bytes: The maximum number of bytes in a range.
    """
    found: list[LineRange] = []
    begin, ends = 0, np.zeros(0, np.int64)  # the lines after `begin` that have been found
    for more in _find_line_ends(path, size=size):
        ends = np.concatenate([ends, more])
        while len(ends):
            within = int(np.searchsorted(ends, begin + most_bytes, side="right"))
            rows = max(1, min(most_rows, within))
            if rows == len(ends) < most_rows and ends[-1] < size:
                break  # the range may have further lines
            found.append(LineRange(rows=rows, begin=begin, end=int(ends[rows - 1])))
            begin, ends = int(ends[rows - 1]), ends[rows:]
    return found


def align_ranges(path: str, ranges: Sequence[LineRange], *, size: int) -> list[LineRange]:
    """Return the ranges of a file that have as many lines as the ranges of another file.

    If the files do not have the same number of lines, the last range has another number of lines,
    or there is another number of ranges.
    """
    found: list[LineRange] = []
    begin, ends = 0, np.zeros(0, np.int64)
    for more in _find_line_ends(path, size=size):
        ends = np.concatenate([ends, more])
        while len(found) < len(ranges) and len(ends) >= (rows := ranges[len(found)].rows):
            found.append(LineRange(rows=rows, begin=begin, end=int(ends[rows - 1])))
            begin, ends = int(ends[rows - 1]), ends[rows:]
    rest = LineRange(rows=len(ends), begin=begin, end=size)
    return [*found, rest] if rest.rows else found


def find_aligned_ranges(
    sizes: Mapping[str, int], *, most_rows: int, most_bytes: int
) -> list[list[LineRange]]:
    """Return the ranges of each of several files whose lines belong together.

    The result is [] if the first file has at most `most_bytes` bytes.

    Args:
      sizes: The sizes of the files in bytes, by their paths.
      most_rows: The maximum number of lines in a range.
      most_bytes: The maximum number of bytes in a range of the first file.

    Raises:
      UserError: The files have different numbers of lines.
    """
    (path, size), *others = sizes.items()
    if size <= most_bytes:
        return []
    first = find_ranges(path, size=size, most_rows=most_rows, most_bytes=most_bytes)
    found = [first, *(align_ranges(other, first, size=each) for other, each in others)]
    counts = [sum(each.rows for each in ranges) for ranges in found]
    if len(set(counts)) > 1:
        raise unequal_lines_error(list(sizes), counts)
    return [list(ranges) for ranges in zip(*found, strict=True)]


def unequal_lines_error(paths: Sequence[str], counts: Sequence[int]) -> UserError:
    """Return the error for two files with different numbers of lines."""
    return UserError(
        f"{paths[0]} has {counts[0]} lines, but {paths[1]} has {counts[1]}. Check that both files "
        "are complete and belong together"
    )


def _find_line_ends(path: str, *, size: int) -> Iterator[np.ndarray]:
    """Yield the positions after the lines of a file; the last line may lack its end."""
    blocks = range(0, size, _BLOCK_BYTES)
    wanted = [(path, begin, min(size, begin + _BLOCK_BYTES)) for begin in blocks]
    last = 0
    for (_, begin, _), block in zip(wanted, read_ranges(wanted), strict=True):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _ROW_END) + (begin + 1)
        if len(ends):
            last = int(ends[-1])
        yield ends
    if last < size:
        yield np.array([size])
