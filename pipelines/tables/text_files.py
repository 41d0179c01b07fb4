"""Read plain and compressed text files of any encoding as streams of UTF-8."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.model.storage.files import open_input
from tt.model.text.normalization import MAX_TEXT_BYTES
from tt.pipelines.tables.damage import EncodingError
from tt.pipelines.tables.formats import COMPRESSED, MARK_INVALID, UTF8, compression_ending
from tt.pipelines.tables.ranges import LineRange

MAX_LINE_BYTES = MAX_TEXT_BYTES
TOO_LONG = f"longer than {MAX_LINE_BYTES >> 20} MB"  # why a line cannot be read
_BUFFER_BYTES = 256 << 10
_PART_BYTES = 16 << 20  # the maximum bytes of a request for a part of a file
_HEAD_BYTES = 4096
_WIDE_BOMS = (
    codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE,
)  # fmt: skip


class ChunkStream(io.RawIOBase):
    """A stream of the bytes of some chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer; return their number."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _as_utf8(raw: Any, encoding: str, *, path: str) -> Iterator[bytes]:
    """Yield the bytes of a stream in some encoding as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)(MARK_INVALID)
    is_at_end = False
    while not is_at_end:
        block = raw.read(_BUFFER_BYTES)
        is_at_end = not block
        try:
            text = decoder.decode(block, final=is_at_end)
        # The error handler replaces invalid bytes, so this error concerns the whole file, for
        # example a missing byte order mark.
        except UnicodeError as error:
            raise EncodingError(f"{path} is not {encoding} ({error})") from error
        yield text.encode(UTF8, "surrogatepass")


def decompress(
    raw: Any, *, path: str, encoding: str = UTF8, buffer_bytes: int = _BUFFER_BYTES
) -> Any:
    """Return the content of a file as a stream of UTF-8 bytes, decompressed.

    The ending of `path` determines the compression. If the file is cut off, up to `buffer_bytes` of
    content before the cut are lost. Python's reader of .bz2 files ends silently at a damaged second
    member; Arrow's raises an error, but refuses empty members, which compressors do not write.
    """
    ending = compression_ending(path)
    stream = raw
    if ending == ".gz":
        stream = gzip.GzipFile(fileobj=raw)
    elif ending:
        stream = pa.CompressedInputStream(raw, COMPRESSED[ending])
    if encoding != UTF8:
        stream = ChunkStream(_as_utf8(stream, encoding, path=path))
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


class TextFile:
    """The decompressed content of a file, as a stream of UTF-8.

    Args:
      path: The path of the file.
      content: The bytes of the file, if they have already been read.
      encoding: The encoding of the file.
      part: The lines to read, if the file is not compressed; None for the whole file.
      has_checksum: Whether to compute the checksum of the file while it is read.

    Raises:
      BadFileError: The file is empty, and its ending is that of a compressed file.
    """

    def __init__(
        self,
        path: str,
        *,
        content: bytes | None = None,
        encoding: str = UTF8,
        part: LineRange | None = None,
        has_checksum: bool = False,
    ) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        if content is None:
            self._file: Any = open_input(path, is_read_in_parts=part is not None)
        else:
            self._file = io.BytesIO(content)
        stream: Any = self._file if part is None else part.open(self._file)
        if has_checksum:
            stream = _ChecksumStream(stream, self._digest)
        self._raw = io.BufferedReader(stream, _BUFFER_BYTES if part is None else _PART_BYTES)
        if compression_ending(path) and not self._raw.peek(1):
            raise BadFileError(f"{path} is cut off: the file is empty")
        self.stream = decompress(self._raw, path=path, encoding=encoding)

    def __enter__(self) -> TextFile:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.close()

    def finish(self) -> tuple[int, str]:
        """Read to the end of a file with `has_checksum`; return its size and its checksum."""
        while self._raw.read(_BUFFER_BYTES):
            pass
        return self._file.tell(), self._digest.hexdigest()


class _ChecksumStream(io.RawIOBase):
    def __init__(self, file: Any, digest: Any) -> None:
        self._file = file
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        return len(data)
