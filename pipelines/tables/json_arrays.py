"""Read a JSON file, which contains an array or JSON Lines, as lines of JSON."""

from __future__ import annotations

import functools
import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from tt.model.errors import BadFileError
from tt.pipelines.tables.text_files import MAX_LINE_BYTES, ChunkStream, without_bom

_BLOCK_BYTES = 4 << 20  # the size of the text that is parsed at once
_SEPARATOR = re.compile(r"[\s,]*")  # between the items of an array
_LINE_ENDS = re.compile(r"[\r\n]+")  # in an item; inside of a text, JSON requires escapes
_DECODER = json.JSONDecoder()


def open_json(stream: Any, *, path: str) -> io.BufferedReader:
    """Return the content of a JSON file, which may be an array, as a stream of lines.

    Args:
      stream: The decompressed content of the file.
      path: The path of the file, for messages.
    """
    return io.BufferedReader(ChunkStream(_read_lines(stream, path=path)))


def _read_lines(stream: Any, *, path: str) -> Iterator[bytes]:
    text = without_bom(_read_bytes(stream), path=path).decode(errors="surrogateescape")
    lines: Iterator[str]
    if text.lstrip().startswith("["):
        lines = _read_array(text, stream, path=path)
    else:
        lines = itertools.chain([text], iter(functools.partial(_read_text, stream), ""))
    return (line.encode(errors="surrogateescape") for line in lines)


def _read_bytes(stream: Any) -> bytes:
    block: bytes = stream.read(_BLOCK_BYTES)
    # A character may end in the next block.
    while block and block[-1] >= 0x80 and (more := stream.read(1)):
        block += more
    return block


def _read_text(stream: Any) -> str:
    return _read_bytes(stream).decode(errors="surrogateescape")


def _read_array(text: str, stream: Any, *, path: str) -> Iterator[str]:
    """Yield the items of an array as lines, given its first block and the stream of the others."""
    start = text.index("[") + 1
    count = 0  # the number of items
    while True:
        items: list[str] = []
        while True:
            start = _SEPARATOR.match(text, start).end()  # type: ignore[union-attr]
            if text.startswith("]", start):
                yield "".join(items)
                return
            try:
                _, end = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):
                break
            if end == len(text):  # a number may continue in the next block
                break
            items.append(_LINE_ENDS.sub(" ", text[start:end]) + "\n")
            start = end
        count += len(items)
        more = _read_text(stream)
        if not more or len(text) - start > MAX_LINE_BYTES:
            raise BadFileError(
                f"{path} must be an array of JSON objects; item {count + 1:,} is not JSON, or the "
                "array has no end"
            )
        text, start = text[start:] + more, 0
        yield "".join(items)
