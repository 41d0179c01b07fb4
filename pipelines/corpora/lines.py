"""Lines of text files, plain or compressed."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from model.errors import BadFileError, UserError
from pipelines.corpora import rows
from pipelines.corpora.encodings import UTF8, Utf8Stream, check_is_utf8
from pipelines.storage import files
from pipelines.storage.text_files import compression_ending, decompress, read_whole_lines

_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 256 << 10
FIRST_BYTES = 64 << 10  # of lines to look at before all are read


def read_texts(path: str, *, encoding: str = UTF8) -> Iterator[list[str]]:
    """Reads a list of texts, one a line, in bounded batches; leaves out what is not so encoded.

    Raises:
      UserError: The file cannot be read.
    """
    for lines in line_slices(path, encoding=encoding):
        texts = []
        for line in lines:
            with contextlib.suppress(UnicodeDecodeError):
                texts.append(line.decode())
        yield texts


def first_lines(path: str, *, encoding: str = UTF8) -> list[bytes]:
    """Returns the lines that a file begins with, some hundred, as UTF-8; none of an empty one.

    Raises:
      UserError: The file cannot be read, or is not in its encoding.
    """
    with LineReader(path, slice_bytes=FIRST_BYTES, encoding=encoding) as reader:
        return reader.take(reader.look_ahead())


def line_slices(path: str, *, encoding: str, slice_bytes: int = 0) -> Iterator[list[bytes]]:
    """Yields the lines of a text file, a slice at a time."""
    limit = slice_bytes or rows.SLICE_BYTES
    with LineReader(path, slice_bytes=limit, encoding=encoding) as reader:
        while number := reader.look_ahead():
            yield reader.take(number)


class LineReader:
    r"""Reads a text file as UTF-8 by lines that end at \n alone.

    What it holds at a time is a slice: `SLICE_PAIRS` lines or `slice_bytes`, or a longer line.
    """

    def __init__(self, path: str, *, slice_bytes: int, encoding: str = UTF8) -> None:
        self._path = path
        self._slice_bytes = slice_bytes
        self._lines: list[bytes] = []  # looked at, but not taken
        self._bytes = 0  # of them
        self._count = 0  # lines taken
        self._is_at_start = True
        self._is_at_end = False
        self._opened = contextlib.ExitStack()
        self._encoding = encoding
        self._file = self._opened.enter_context(_open_text(path, encoding=encoding))

    def __enter__(self) -> LineReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    def look_ahead(self) -> int:
        """Returns how many lines can be taken at once: 0 only at the end of the file."""
        while (
            len(self._lines) < rows.SLICE_PAIRS
            and self._bytes < self._slice_bytes
            and not self._is_at_end
        ):
            lines = self._read()
            self._lines += lines
            self._bytes += sum(map(len, lines))
        return min(len(self._lines), rows.SLICE_PAIRS)

    def take(self, number: int) -> list[bytes]:
        r"""Returns lines that `look_ahead` saw, without \n or \r\n."""
        lines, self._lines = self._lines[:number], self._lines[number:]
        self._bytes = sum(map(len, self._lines))
        self._count += number
        return [line.removesuffix(b"\n").removesuffix(b"\r") for line in lines]

    def count_to_end(self) -> int:
        """Reads on to the end and returns the number of lines of the file."""
        while number := self.look_ahead():
            self.take(number)
        return self._count

    def _read(self) -> list[bytes]:
        try:
            block = read_whole_lines(
                self._file,
                size=min(_BUFFER_BYTES, self._slice_bytes),
                path=self._path,
                first_line=self._count + len(self._lines) + 1,
            )
            lines = io.BytesIO(block).readlines()
        except UnicodeError as error:  # of the whole file: no mark of the order of its bytes
            raise UserError(
                f"{self._path} is not {self._encoding} ({error}): `encoding` holds for all texts, "
                "so convert those of another encoding first, as with iconv -f utf-8 "
                f"-t {self._encoding}"
            ) from error
        except BadFileError as error:
            raise UserError(f"{error}. Check the file") from error
        except Exception as error:
            if not files.is_damage(error):
                raise
            raise UserError(
                f"{self._path} is cut off or damaged after line "
                f"{self._count + len(self._lines)}: {' '.join(str(error).split())}. Fetch it again"
            ) from error
        if self._is_at_start and lines:
            self._is_at_start = False
            if self._encoding == UTF8:
                check_is_utf8(self._path, b"".join(lines))
            lines[0] = lines[0].removeprefix(_BOM)
        self._is_at_end = not lines
        return lines


@contextlib.contextmanager
def _open_text(path: str, *, encoding: str) -> Iterator[io.BufferedReader]:
    try:
        file: Any = files.open_binary(path)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    with io.BufferedReader(file, _BUFFER_BYTES) as raw:
        if compression_ending(path) and not raw.peek(1):  # no compressor writes such
            raise UserError(f"{path} is cut off: it has no bytes. Fetch it again")
        file = decompress(raw, path=path)
        if encoding != UTF8:
            file = io.BufferedReader(Utf8Stream(file, encoding), _BUFFER_BYTES)
        yield file
