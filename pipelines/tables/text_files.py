"""Read the lines of plain and compressed text files of any encoding, as UTF-8."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import hashlib
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.model.storage.files import open_input
from tt.model.text.normalization import MAX_TEXT_BYTES
from tt.pipelines.tables.damage import EncodingError, explain_damage, with_remedy
from tt.pipelines.tables.faults import NOT_UTF8, Fault, with_faults
from tt.pipelines.tables.formats import COMPRESSED, MARK_INVALID, UTF8, compression_ending
from tt.pipelines.tables.ranges import LineRange

MAX_LINE_BYTES = MAX_TEXT_BYTES
TOO_LONG = f"longer than {MAX_LINE_BYTES >> 20} MB"  # why a line cannot be read
SLICE_LINES = 16 * 1024
_BUFFER_BYTES = 256 << 10
_BZ2_BYTES = 32 << 10  # small, because the unused rest is copied at the end of each member
_HEAD_BYTES = 4096
_BLOCK_BYTES = 4 << 20  # bytes of whole lines per batch
TEXT_COLUMN = "text"  # the only column of a text file that is read as a table
_WIDE_BOMS = (
    codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE,
)  # fmt: skip


class _Utf8Stream(io.RawIOBase):
    """A stream of bytes in some encoding, read as UTF-8."""

    def __init__(self, raw: Any, encoding: str, *, path: str) -> None:
        self._raw = raw
        self._path = path
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(MARK_INVALID)
        self._rest = memoryview(b"")
        self._is_at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and not self._is_at_end:
            block = self._raw.read(_BUFFER_BYTES)
            self._is_at_end = not block
            try:
                text = self._decoder.decode(block, final=self._is_at_end)
            # The error handler replaces invalid bytes, so this error concerns the whole file, for
            # example a missing byte order mark.
            except UnicodeError as error:
                raise EncodingError(f"{self._path} is not {self._encoding} ({error})") from error
            self._rest = memoryview(text.encode(UTF8, "surrogatepass"))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class _Bz2Stream(io.RawIOBase):
    """The decompressed content of a .bz2 file.

    Unlike `bz2.BZ2File`, this stream raises an error at a damaged second member instead of ending
    there. Unlike Arrow's stream, it can read empty members.
    """

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
                    raise EOFError("its last compressed stream is truncated")
            if text := self._decompressor.decompress(data, len(buffer)):
                buffer[: len(text)] = text
                return len(text)


def decompress(
    raw: Any, *, path: str, encoding: str = UTF8, buffer_bytes: int = _BUFFER_BYTES
) -> Any:
    """Return the content of a file as a stream of UTF-8 bytes, decompressed.

    The ending of `path` determines the compression. If the file is cut off, up to `buffer_bytes` of
    content before the cut are lost.
    """
    ending = compression_ending(path)
    stream = raw
    if ending == ".gz":
        stream = gzip.GzipFile(fileobj=raw)
    elif ending == ".bz2":
        stream = _Bz2Stream(raw)
    elif ending:
        stream = pa.CompressedInputStream(raw, COMPRESSED[ending])
    if encoding != UTF8:
        stream = _Utf8Stream(stream, encoding, path=path)
    return stream if stream is raw else io.BufferedReader(stream, buffer_bytes)


def without_bom(head: bytes, *, path: str) -> bytes:
    """Remove the byte order marks from the beginning of a UTF-8 file.

    Raises:
      EncodingError: The file is UTF-16 or UTF-32.
    """
    start = head[:_HEAD_BYTES]
    # UTF-16 has zero bytes only at even, or only at odd, positions.
    nuls = start[::2].count(0), start[1::2].count(0)
    if start.startswith(_WIDE_BOMS) or (not min(nuls) and max(nuls) >= max(2, 0.2 * len(start))):
        raise EncodingError(f"{path} must be UTF-8; it is UTF-16 or UTF-32")
    while head.startswith(codecs.BOM_UTF8):  # files that were joined or converted may have several
        head = head.removeprefix(codecs.BOM_UTF8)
    return head


def is_other_encoding(*, invalid: int, lines: int) -> bool:
    """Return whether so many lines are invalid that the file is probably in another encoding.

    The threshold is 1% of the lines. If a file is in Latin-1, about half of the lines are invalid
    UTF-8 in German texts, and about 10% in English texts. A file with a few damaged lines has fewer
    invalid lines.

    Args:
      invalid: The number of lines that are not valid UTF-8.
      lines: The number of all lines.
    """
    return invalid * 100 >= lines > 0


def read_whole_lines(stream: Any, *, size: int) -> bytes:
    """Return the next lines of a stream, or b"" at its end.

    A line that is longer than `MAX_LINE_BYTES` is cut off, but remains longer than this limit.

    Args:
      stream: A buffered binary stream at the start of a line.
      size: Read at least this many bytes, and then up to the end of the line.
    """
    size = min(size, MAX_LINE_BYTES)
    block: bytes = stream.read(size)
    if len(block) < size:  # the end of the stream; another read could cost a request
        return block
    partial = len(block) - (block.rfind(b"\n") + 1)
    more: bytes = stream.readline(MAX_LINE_BYTES + 1 - partial)
    block += more
    if partial + len(more) > MAX_LINE_BYTES and not more.endswith(b"\n"):
        while more and not more.endswith(b"\n"):
            more = stream.readline(_BUFFER_BYTES)
        block += b"\n"
    return block


class LineReader:
    r"""Reads a text file as UTF-8, in slices of lines that end only at \n.

    One slice is in memory at a time: at most `SLICE_LINES` lines, and about `slice_bytes` bytes or
    one longer line.

    Args:
      path: The path of the file.
      slice_bytes: The bytes of a slice.
      encoding: The encoding of the file.
      part: The lines to read, if the file is not compressed; None for all lines.
    """

    def __init__(
        self,
        path: str,
        *,
        slice_bytes: int,
        encoding: str = UTF8,
        part: LineRange | None = None,
    ) -> None:
        self._path = path
        self._is_at_start = part is None or not part.begin
        self._slice_bytes = slice_bytes
        self._lines: list[bytes] = []  # lines that were read but not yet taken
        self._count = 0  # the number of lines that were taken
        self._is_at_end = False
        self._encoding = encoding
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(open_input(path))
            if part is not None:
                file = part.open(file)
            raw = stack.enter_context(io.BufferedReader(file, _BUFFER_BYTES))
            # An empty file is never valid compressed data.
            if compression_ending(path) and not raw.peek(1):
                raise BadFileError(f"{path} is cut off: the file is empty")
            self._stream = decompress(raw, path=path, encoding=encoding)
            self._opened = stack.pop_all()

    def __enter__(self) -> LineReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    def look_ahead(self) -> int:
        """Return the number of lines that can be taken at once; 0 only at the end of the file."""
        size = sum(map(len, self._lines))
        while len(self._lines) < SLICE_LINES and size < self._slice_bytes and not self._is_at_end:
            lines = self._read()
            self._lines += lines
            size += sum(map(len, lines))
        return min(len(self._lines), SLICE_LINES)

    def take(self, number: int) -> list[bytes]:
        r"""Return the next lines without \n or \r\n; at most as many as `look_ahead` returned."""
        lines, self._lines = self._lines[:number], self._lines[number:]
        self._count += number
        return [line.removesuffix(b"\n").removesuffix(b"\r") for line in lines]

    def count_to_end(self) -> int:
        """Read to the end of the file and return the number of all lines."""
        while number := self.look_ahead():
            self.take(number)
        return self._count

    def _read(self) -> list[bytes]:
        line = self._count + len(self._lines) + 1
        with explain_damage(f"{self._path} is cut off or damaged after line {line - 1}"):
            block = read_whole_lines(self._stream, size=min(_BUFFER_BYTES, self._slice_bytes))
        if line == 1 and self._is_at_start:
            block = without_bom(block, path=self._path)
        self._is_at_end = not block
        return io.BytesIO(block).readlines()


class TextRows:
    r"""The lines of a text file, as batches with a single column of strings.

    Lines end only at \n or \r\n. A line is bad if it is not UTF-8 or exceeds `MAX_LINE_BYTES`; see
    `faults.py`.

    Args:
      stream: The decompressed content of the file.
      path: The path of the file, for messages.
      is_head: Whether the stream is only the beginning of the file.

    Raises:
      BadFileError: The file is empty.
    """

    schema = pa.schema([(TEXT_COLUMN, pa.string())])

    def __init__(self, stream: Any, *, path: str, is_head: bool = False) -> None:
        self._stream = stream
        self._path = path
        self._first = read_whole_lines(stream, size=1)
        if not (self._first or is_head):
            raise BadFileError(f"{path} is empty, so it has no texts")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the lines."""
        block, count = without_bom(self._first, path=self._path), 0
        while block:
            lines: list[Any] = [
                line.removesuffix(b"\n").removesuffix(b"\r")
                for line in io.BytesIO(block).readlines()
            ]
            faults = {}
            for row, line in enumerate([] if _is_good(block) else lines):
                if not _is_good(line):
                    reason = TOO_LONG if len(line) > MAX_LINE_BYTES else NOT_UTF8
                    faults[row] = Fault(count + row + 1, reason, line)
                    lines[row] = None
            texts = pa.array(lines, pa.binary()).view(pa.string())
            batch = pa.RecordBatch.from_arrays([texts], schema=self.schema)
            yield with_faults(batch, faults)
            count += len(lines)
            block = read_whole_lines(self._stream, size=_BLOCK_BYTES)


def _is_good(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return len(text) <= MAX_LINE_BYTES


def line_slices(
    path: str, *, encoding: str, slice_bytes: int, part: LineRange | None = None
) -> Iterator[list[bytes]]:
    """Yield the lines of a text file in slices; see `LineReader`."""
    with LineReader(path, slice_bytes=slice_bytes, encoding=encoding, part=part) as reader:
        while number := reader.look_ahead():
            yield reader.take(number)


def read_texts(path: str, *, encoding: str = UTF8) -> Iterator[list[str]]:
    """Yield the texts of a file, one per line, in batches; skip lines that are not UTF-8.

    Raises:
      UserError: The file cannot be read.
    """
    with with_remedy():
        for lines in line_slices(path, encoding=encoding, slice_bytes=32 << 20):
            texts = []
            for line in lines:
                with contextlib.suppress(UnicodeDecodeError):
                    texts.append(line.decode())
            yield texts


class CheckedFile:
    """A file whose checksum is computed while its decompressed content is read.

    Args:
      path: The path of the file.
      content: The bytes of the file, if they have already been read.
      encoding: The encoding of the file.
    """

    def __init__(self, path: str, *, content: bytes | None = None, encoding: str = UTF8) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._file: Any = open_input(path) if content is None else io.BytesIO(content)
        self._checksummed = _ChecksumStream(self._file, self._digest)
        self._raw: Any = io.BufferedReader(self._checksummed, _BUFFER_BYTES)
        self.stream = decompress(self._raw, path=path, encoding=encoding)

    def __enter__(self) -> CheckedFile:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.close()

    def finish(self) -> tuple[int, str]:
        """Read to the end of the file; return its size in bytes, and its blake2b checksum."""
        while self._raw.read(_BUFFER_BYTES):
            pass
        return self._checksummed.size, self._digest.hexdigest()


class _ChecksumStream(io.RawIOBase):
    def __init__(self, file: Any, digest: Any) -> None:
        self._file = file
        self._digest = digest
        self.size = 0  # the number of bytes that were read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        self.size += len(data)
        return len(data)
