"""Text files: decompressed by their ending, and told from those in wide encodings."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import json
from typing import Any

from model.errors import BadFileError
from pipelines.storage.files import open_input

MAX_LINE_BYTES = 64 << 20  # a longer line is no sentence and no record, but a file of another kind
COMPRESSIONS = (".gz", ".bz2", ".zst")
_BUFFER_BYTES = 256 << 10
_BZ2_BYTES = 32 << 10  # a member that ends leaves the rest to be copied
_HEAD_BYTES = 4096
_MARKS = {  # of the order of bytes; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def compression_ending(path: str) -> str:
    """Returns the ending that says how a file is compressed, or "".

    >>> compression_ending("train.en.zst"), compression_ending("T.GZ"), compression_ending("t.en")
    ('.zst', '.gz', '')
    """
    path = path.lower()
    return next((ending for ending in COMPRESSIONS if path.endswith(ending)), "")


def decompress(raw: io.BufferedReader, *, path: str) -> io.BufferedReader:
    """Returns what a file holds, decompressed as its name says."""
    ending = compression_ending(path)
    stream: Any = raw
    if ending == ".gz":
        stream = gzip.GzipFile(fileobj=raw)
    elif ending == ".bz2":
        stream = _Bz2Stream(raw)
    elif ending == ".zst":  # Arrow raises at a cut-off end, which zstandard takes for the end
        import pyarrow as pa  # here, so that the help of a command needs none

        stream = pa.CompressedInputStream(raw, "zstd")
    return io.BufferedReader(stream, _BUFFER_BYTES) if ending else raw


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


def read_whole_lines(stream: Any, *, size: int, path: str, first_line: int) -> bytes:
    """Return the next lines of a stream, or b"" at its end.

    Args:
      stream: A buffered binary stream at the start of a line.
      size: Read at least this many bytes, and then up to the end of the line.
      path: The file, for the message.
      first_line: The number of the next line, for the message.

    Raises:
      BadFileError: A line is longer than `MAX_LINE_BYTES`. At most that much is read of it.
    """
    size = min(size, MAX_LINE_BYTES)
    block: bytes = stream.read(size)
    if len(block) < size:  # the end of the stream: asking again would be a request
        return block
    begun = len(block) - (block.rfind(b"\n") + 1)
    block += stream.readline(MAX_LINE_BYTES + 1 - begun)
    last = block.rfind(b"\n", 0, -1) + 1
    if len(block) - last > MAX_LINE_BYTES and not block.endswith(b"\n"):
        line = first_line + block.count(b"\n")
        problem = f"{path} must have lines of at most {MAX_LINE_BYTES >> 20} MB; line {line:,}"
        if block[last:].lstrip(b"\xef\xbb\xbf \t")[:1] == b"[":
            raise BadFileError(
                f"{problem} is longer, and begins as a JSON array (jq -c '.[]' FILE writes a line "
                "for each of its elements)"
            )
        raise BadFileError(f"{problem} is longer")
    return block


class CheckedFile:
    """A file that is read from its start, decompressed, while its bytes are summed up.

    `stream` is what it holds.
    """

    def __init__(self, path: str) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._file: Any = open_input(path)
        self._summing = _Summing(self._file, self._digest)
        self._raw: Any = io.BufferedReader(self._summing, _BUFFER_BYTES)
        self.stream = decompress(self._raw, path=path)

    def __enter__(self) -> CheckedFile:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.close()

    def finish(self) -> tuple[int, str]:
        """Reads on to the end; returns the file's bytes and their checksum (hex blake2b)."""
        while self._raw.read(_BUFFER_BYTES):
            pass
        return self._summing.size, self._digest.hexdigest()


class _Summing(io.RawIOBase):
    def __init__(self, file: Any, digest: Any) -> None:
        self._file = file
        self._digest = digest
        self.size = 0  # bytes read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        self.size += len(data)
        return len(data)


def wide_encoding(text: bytes) -> str:
    r"""Tells the encoding of text whose characters have two bytes or more; "" for all others.

    >>> wide_encoding("day\n".encode("utf-16")), wide_encoding("day\n".encode("utf-16-be"))
    ('utf-16', 'utf-16-be')
    """
    head = text[:_HEAD_BYTES]
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    even, odd = head[0::2].count(0), head[1::2].count(0)
    least = max(2, 0.4 * (len(head) // 2))  # Latin letters have a NUL each, and text has none
    if odd >= least and not even:
        return "utf-16-le"
    return "utf-16-be" if even >= least and not odd else ""


def check_no_array(head: bytes, *, path: str) -> None:
    """Check that the first lines of a JSONL file are not those of one JSON array.

    Lines of which each is an array pass: their errors name the line.

    Raises:
      BadFileError: The file is a JSON array.
    """
    first, _, rest = head.removeprefix(codecs.BOM_UTF8).strip().partition(b"\n")
    if not first.startswith(b"["):
        return
    try:
        json.loads(first)
    except RecursionError:
        return
    except ValueError:  # its elements are on lines of their own
        rest = b""
    if not rest:
        raise BadFileError(
            f"{path} must have a JSON object in each line; it is a JSON array (jq -c '.[]' FILE "
            "writes a line for each of its elements)"
        )
