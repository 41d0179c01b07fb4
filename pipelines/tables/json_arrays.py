"""Read a JSON file, which contains an array or JSON Lines, as lines of JSON."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from tt.model.errors import BadFileError
from tt.pipelines.tables.text_files import MAX_LINE_BYTES, without_bom

_BLOCK_BYTES = 4 << 20  # the size of the text that is parsed at once
_SEPARATOR = re.compile(r"[\s,]*")  # between the items of an array
_LINE_ENDS = re.compile(r"[\r\n]+")  # in an item; inside of a text, JSON requires escapes
_DECODER = json.JSONDecoder()


class _JsonLines(io.RawIOBase):
    """The content of a JSON file as lines of JSON: the lines of the file, or the items of an array.

    Args:
      stream: The decompressed content of the file.
      path: The path of the file, for messages.
    """

    def __init__(self, stream: Any, *, path: str) -> None:
        self._stream = stream
        self._path = path
        self._text = self._read_text(is_head=True)
        self._is_array = self._text.lstrip().startswith("[")
        self._text = self._text.lstrip().removeprefix("[") if self._is_array else self._text
        self._count = 0  # the number of items
        self._lines = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._lines and (self._text or not self._is_array):
            text = self._take_items() if self._is_array else self._text
            self._lines = memoryview(text.encode(errors="surrogateescape"))
            if not self._is_array:
                self._text = self._read_text()
                if not self._lines:
                    return 0
        size = min(len(buffer), len(self._lines))
        buffer[:size] = self._lines[:size]
        self._lines = self._lines[size:]
        return size

    def _read_text(self, *, is_head: bool = False) -> str:
        block: bytes = self._stream.read(_BLOCK_BYTES)
        # A character may end in the next block.
        while block and block[-1] >= 0x80 and (more := self._stream.read(1)):
            block += more
        if is_head:  # U+FEFF is a character in all later blocks
            block = without_bom(block, path=self._path)
        return block.decode(errors="surrogateescape")

    def _take_items(self) -> str:
        """Return the next items of an array as lines, and remove them from the text."""
        items: list[str] = []
        end = 0
        while True:
            start = _SEPARATOR.match(self._text, end).end()  # type: ignore[union-attr]
            if self._text.startswith("]", start):
                self._text = ""
                return "".join(items)
            try:
                _, end = _DECODER.raw_decode(self._text, start)
            except (ValueError, RecursionError):
                break
            if end == len(self._text):  # a number may continue in the next block
                break
            items.append(_LINE_ENDS.sub(" ", self._text[start:end]) + "\n")
            self._count += 1
        more = self._read_text()
        if not more or len(self._text) - start > MAX_LINE_BYTES:
            raise BadFileError(
                f"{self._path} must be an array of JSON objects; item {self._count + 1:,} is not "
                "JSON, or the array has no end"
            )
        self._text = self._text[start:] + more
        return "".join(items)


def open_json(stream: Any, *, path: str) -> io.BufferedReader:
    """Return the content of a JSON file, which may be an array, as a stream of lines."""
    return io.BufferedReader(_JsonLines(stream, path=path))
