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
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from model.errors import UserError
from pipelines.corpora.encodings import UTF8, Utf8Stream, check_is_utf8
from pipelines.pairs import units
from pipelines.pairs.units import (
    MALFORMED,
    ColumnsSource,
    FileSource,
    Unit,
    cut_into_chunks,
    decode_lines,
)
from pipelines.storage import files

COMPRESSIONS = (".gz", ".bz2", ".zst")
# Of sentences; only unit sizes and the number of buckets and default shards rest on it.
_EXPANSION = {".gz": 4, ".bz2": 5, ".zst": 4}

_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 256 << 10
_FIRST_BYTES = 64 << 10  # of lines to look at before all are read
_MOST_NAMES = 20  # of keys, in a message
_BZ2_BYTES = 32 << 10  # a member that ends leaves the rest to be copied


class TextSource(FileSource):
    """What the kinds of text have in common: they are cut by reading them once.

    Attributes:
      encoding: Of the files, by the name of `find_encoding`.
    """

    encoding: str

    @abc.abstractmethod
    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the whole corpus in slices."""

    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the source from another."""
        identity = super().identity()
        return identity if self.encoding == UTF8 else identity | {"encoding": self.encoding}

    def text_bytes(self) -> int:
        """Estimates how many bytes of text there are, by the usual rate of compression."""
        return sum(
            files.file_identity(path)["bytes"] * _EXPANSION.get(compression_ending(path), 1)
            for path in self.paths()
        )

    def describe(self) -> str:
        """Returns a line on what would be read."""
        compressed = any(compression_ending(path) for path in self.paths())
        encoding = "" if self.encoding == UTF8 else f", {self.encoding}"
        return super().describe() + (" compressed" if compressed else "") + encoding

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
    encoding: str = UTF8

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
            LineReader(self.source_path, slice_bytes=limit, encoding=self.encoding) as sources,
            LineReader(self.target_path, slice_bytes=limit, encoding=self.encoding) as targets,
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
    encoding: str = UTF8

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the file; a line with too few columns becomes a fault."""
        needed = max(self.source_column, self.target_column) + 1
        for lines in _slices(self.path, encoding=self.encoding):
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
    encoding: str = UTF8

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the file; a line without the two texts becomes a fault, and is kept as it is."""
        for lines in _slices(self.path, encoding=self.encoding):
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


def find_keys(
    path: str, choices: Sequence[tuple[str, str]], *, are_named: bool = True, encoding: str = UTF8
) -> tuple[str, str]:
    """Returns the first of some pairs of keys that an object of a JSONL file has texts under.

    Where nothing can be told from the lines, as they are malformed or none, it is the first choice.

    Args:
      path: The file.
      choices: The pairs.
      are_named: Whether the user named the keys: then all lines are looked at until one has the
        texts, as good ones may begin late. Of keys that are guessed, only the first lines are.
      encoding: Of the file.

    Raises:
      UserError: There are objects, and none has both keys of any pair.
    """
    found: dict[str, None] = {}  # in order
    has_objects = False
    for part, lines in enumerate(_slices(path, encoding=encoding, slice_bytes=_FIRST_BYTES)):
        if part and not are_named:
            break
        for line in lines:
            try:
                value = json.loads(line.decode())
            except (ValueError, RecursionError):
                continue
            for keys in choices:
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    for key in keys:
                        text_at(value, key)
                    return keys
            if isinstance(value, dict):
                has_objects = True
                if len(found) <= _MOST_NAMES:
                    found |= dict.fromkeys(_names_of_texts(value))
    if not has_objects:
        return choices[0]
    wanted = " or ".join(" and ".join(map(repr, keys)) for keys in choices)
    more = ", ..." if len(found) > _MOST_NAMES else ""
    raise UserError(
        f"{path} has no texts under the keys {wanted}: its objects have "
        f"{', '.join(list(found)[:_MOST_NAMES]) or 'none'}{more}. Name two of them, as in "
        f"{path}:SOURCE:TARGET or with --source-column and --target-column"
    )


def _names_of_texts(value: dict[str, Any]) -> Iterator[str]:
    """Yields the keys of an object that hold texts; those in an object inside behind a dot."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from (f"{key}.{name}" for name in _names_of_texts(inner))
        elif inner is None or isinstance(inner, str):
            yield key


def read_texts(path: str, *, encoding: str = UTF8) -> Iterator[list[str]]:
    """Reads a list of texts, one a line, in bounded batches; leaves out what is not so encoded.

    Raises:
      UserError: The file cannot be read.
    """
    for lines in _slices(path, encoding=encoding):
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
    with LineReader(path, slice_bytes=_FIRST_BYTES, encoding=encoding) as reader:
        return reader.take(reader.look_ahead())


def _slices(path: str, *, encoding: str, slice_bytes: int = 0) -> Iterator[list[bytes]]:
    limit = slice_bytes or units.SLICE_BYTES
    with LineReader(path, slice_bytes=limit, encoding=encoding) as reader:
        while number := reader.look_ahead():
            yield reader.take(number)


class LineReader:
    r"""Reads a text file by lines that end at \n, and at nothing else, a slice at a time, as UTF-8.

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
        except UnicodeError as error:  # of the whole file: no mark of the order of its bytes
            raise UserError(
                f"{self._path} is not {self._encoding} ({error}): --encoding holds for all texts, "
                "so convert those of another encoding first, as with iconv -f utf-8 "
                f"-t {self._encoding}"
            ) from error
        except Exception as error:
            if not is_damage(error):
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
def _open_text(path: str, *, encoding: str) -> Iterator[io.BufferedReader]:
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
        file = io.BufferedReader(stream, _BUFFER_BYTES) if ending else raw
        if encoding != UTF8:
            file = io.BufferedReader(Utf8Stream(file, encoding), _BUFFER_BYTES)
        yield file


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
