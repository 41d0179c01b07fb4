"""Text as a corpus: line-aligned pairs of files, TSV and JSONL, plain or compressed.

Text must be read from its start: it is read once and written as chunk files that the units name.
"""

from __future__ import annotations

import abc
import bz2
import contextlib
import dataclasses
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from model.errors import UserError
from pipelines import files, units
from pipelines.units import (
    MALFORMED,
    ColumnsSource,
    FileSource,
    Unit,
    cut_into_chunks,
    decode_lines,
)

COMPRESSIONS = (".gz", ".bz2", ".zst")
# Of sentences; only unit sizes and the number of buckets and default shards rest on it.
_EXPANSION = {".gz": 4, ".bz2": 5, ".zst": 4}

_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 256 << 10
_BZ2_BYTES = 32 << 10  # a member that ends leaves the rest to be copied


class TextSource(FileSource):
    """What the kinds of text have in common: they are cut by reading them once."""

    @abc.abstractmethod
    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the whole corpus in slices."""

    def text_bytes(self) -> int:
        """Estimates how many bytes of text there are, by the usual rate of compression."""
        return sum(
            files.file_identity(path)["bytes"] * _EXPANSION.get(compression_ending(path), 1)
            for path in self.paths()
        )

    def describe(self) -> str:
        """Returns a line on what would be read."""
        compressed = any(compression_ending(path) for path in self.paths())
        return super().describe() + (" compressed" if compressed else "")

    def cut(
        self, *, order: int, is_held_out: bool, max_pairs: int, work_folder: str
    ) -> Iterator[Unit]:
        """Yields the units, in order."""
        return cut_into_chunks(
            self,
            self.read_tables(),
            order=order,
            is_held_out=is_held_out,
            max_pairs=max_pairs,
            work_folder=work_folder,
        )


@dataclasses.dataclass(frozen=True)
class TextPair(TextSource):
    """Two files of which each line of one translates the same line of the other."""

    kind: ClassVar[str] = "text"

    source_path: str
    target_path: str
    given_name: str = ""

    def paths(self) -> list[str]:
        """Returns the files."""
        return [self.source_path, self.target_path]

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads both files in step.

        Raises:
          UserError: One file has more lines than the other, or cannot be read.
        """
        limit = max(1, units.SLICE_BYTES // 2)
        with (
            LineReader(self.source_path, slice_bytes=limit) as sources,
            LineReader(self.target_path, slice_bytes=limit) as targets,
        ):
            while number := min(sources.look_ahead(), targets.look_ahead()):
                yield decode_lines(sources.take(number), targets.take(number))
            if sources.look_ahead() or targets.look_ahead():
                raise UserError(
                    f"{self.source_path} has {sources.count_to_end()} lines and "
                    f"{self.target_path} has {targets.count_to_end()}: line-aligned files must "
                    "have equally many, so check that both are whole and belong together"
                )


@dataclasses.dataclass(frozen=True)
class Tsv(ColumnsSource, TextSource):
    """A file with a pair a line, its columns between tabs and counted from 0."""

    kind: ClassVar[str] = "tsv"

    path: str
    source_column: int = 0
    target_column: int = 1
    given_name: str = ""

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the file; a line with too few columns becomes a fault."""
        needed = max(self.source_column, self.target_column) + 1
        for lines in _slices(self.path):
            sources, targets, faults = [], [], {}
            for row, line in enumerate(lines):
                columns = line.split(b"\t", needed)
                if len(columns) < needed:
                    faults[row] = MALFORMED
                    sources.append(line)
                    targets.append(b"")
                else:
                    sources.append(columns[self.source_column])
                    targets.append(columns[self.target_column])
            yield decode_lines(sources, targets, faults=faults)


@dataclasses.dataclass(frozen=True)
class Jsonl(ColumnsSource, TextSource):
    """A file with a JSON object a line, and a text under each of two of its keys.

    A dotted key reaches into objects: "translation.en" finds "A" in {"translation": {"en": "A"}}.
    A null counts as empty.
    """

    kind: ClassVar[str] = "jsonl"

    path: str
    source_column: str
    target_column: str
    given_name: str = ""

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the file; a line without the two texts becomes a fault, and is kept as it is."""
        for lines in _slices(self.path):
            sources: list[bytes | None] = []
            targets: list[bytes | None] = []
            faults = {}
            for row, line in enumerate(lines):
                source: bytes | None = line
                target: bytes | None = b""
                try:
                    value = json.loads(line.decode())
                    source, target = (
                        text_at(value, self.source_column),
                        text_at(value, self.target_column),
                    )
                except UnicodeDecodeError:
                    pass  # `decode_lines` finds it again and says so
                except (ValueError, TypeError, KeyError, RecursionError):
                    faults[row] = MALFORMED
                sources.append(source)
                targets.append(target)
            yield decode_lines(sources, targets, faults=faults)


def text_at(value: Any, key: str) -> bytes | None:
    """Returns the text, as UTF-8, under a key of a JSON object, or None where it holds null.

    Raises:
      KeyError: There is no such key.
      TypeError: What has the key is no object, or what it holds is no string.
      ValueError: The string is none of Unicode: it holds half a surrogate pair.

    >>> text_at({"translation": {"en": "A"}}, "translation.en")
    b'A'
    """
    for part in [key] if key in value else key.split("."):
        value = value[part]
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{key} holds {value!r}")
    return value.encode()


def read_texts(path: str) -> Iterator[list[str]]:
    """Reads a list of texts, one a line, in bounded batches; leaves out what is not UTF-8.

    Raises:
      UserError: The file cannot be read.
    """
    for lines in _slices(path):
        texts = []
        for line in lines:
            with contextlib.suppress(UnicodeDecodeError):
                texts.append(line.decode())
        yield texts


def _slices(path: str) -> Iterator[list[bytes]]:
    with LineReader(path, slice_bytes=units.SLICE_BYTES) as reader:
        while number := reader.look_ahead():
            yield reader.take(number)


class LineReader:
    r"""Reads a text file by lines that end at \n, and at nothing else, a slice at a time.

    What it holds at a time is a slice: `SLICE_PAIRS` lines or `slice_bytes`, or a longer line.
    """

    def __init__(self, path: str, *, slice_bytes: int) -> None:
        self._path = path
        self._slice_bytes = slice_bytes
        self._lines: list[bytes] = []  # looked at, but not taken
        self._bytes = 0  # of them
        self._count = 0  # lines taken
        self._is_at_start = True
        self._is_at_end = False
        self._opened = contextlib.ExitStack()
        self._file = self._opened.enter_context(_open_text(path))

    def __enter__(self) -> LineReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    def look_ahead(self) -> int:
        """Returns how many lines can be taken at once: 0 only at the end of the file."""
        while (
            len(self._lines) < units.SLICE_PAIRS
            and self._bytes < self._slice_bytes
            and not self._is_at_end
        ):
            lines = self._read()
            self._lines += lines
            self._bytes += sum(map(len, lines))
        return min(len(self._lines), units.SLICE_PAIRS)

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
            lines = self._file.readlines(min(_BUFFER_BYTES, self._slice_bytes))
        except Exception as error:
            if not is_damage(error):
                raise
            raise UserError(
                f"{self._path} is cut off or damaged after line "
                f"{self._count + len(self._lines)}: {' '.join(str(error).split())}. Fetch it again"
            ) from error
        if self._is_at_start and lines:
            self._is_at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        self._is_at_end = not lines
        return lines


def compression_ending(path: str) -> str:
    """Returns the ending that says how a file is compressed, or "".

    >>> compression_ending("train.en.zst"), compression_ending("train.en")
    ('.zst', '')
    """
    return next((ending for ending in COMPRESSIONS if path.endswith(ending)), "")


def is_damage(error: Exception) -> bool:
    """Tells what decompressors raise on damaged data from what file systems do, as on a timeout."""
    if isinstance(error, MemoryError):
        return False
    if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException)):
        return True
    return type(error) is OSError and error.errno is None  # Arrow's, and bz2's


@contextlib.contextmanager
def _open_text(path: str) -> Iterator[io.BufferedReader]:
    try:
        file: Any = files.open_binary(path)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    ending = compression_ending(path)
    with io.BufferedReader(file, _BUFFER_BYTES) as raw:
        if ending and not raw.peek(1):  # no compressor writes such
            raise UserError(f"{path} is cut off: it has no bytes. Fetch it again")
        stream: Any = raw
        if ending == ".gz":
            stream = gzip.GzipFile(fileobj=raw)
        elif ending == ".bz2":
            stream = _Bz2Stream(raw)
        elif ending == ".zst":  # Arrow raises at a cut-off end, which zstandard takes for the end
            stream = pa.CompressedInputStream(raw, "zstd")
        yield io.BufferedReader(stream, _BUFFER_BYTES) if ending else raw


class _Bz2Stream(io.RawIOBase):
    """What a .bz2 file holds. Unlike `bz2.BZ2File`, it does not end at a damaged second member."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self._decompressor = bz2.BZ2Decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            data = b""
            if self._decompressor.eof:
                data = self._decompressor.unused_data or self._raw.read(_BZ2_BYTES)
                if not data:
                    return 0
                self._decompressor = bz2.BZ2Decompressor()
            elif self._decompressor.needs_input:
                data = self._raw.read(_BZ2_BYTES)
                if not data:
                    raise EOFError("its last member has no end")
            if text := self._decompressor.decompress(data, len(buffer)):
                buffer[: len(text)] = text
                return len(text)
