"""The encodings of text files: any that Python knows, read as UTF-8; and which one it may be."""

from __future__ import annotations

import codecs
import io
from typing import Any

from model.errors import UserError
from pipelines.storage.text_files import wide_encoding

UTF8 = "utf-8"
_BLOCK_BYTES = 256 << 10
# Stands for bytes that are invalid in the encoding: half a surrogate pair, which is invalid UTF-8
# as well, so that its line is rejected.
_INVALID = "\udcff"
_MARK_INVALID = "tt.mark_invalid"

codecs.register_error(_MARK_INVALID, lambda error: (_INVALID, _end_of(error)))


def _end_of(error: UnicodeError) -> int:
    if isinstance(error, UnicodeDecodeError):
        return error.end
    raise error


def find_encoding(name: str) -> str:
    """Returns the one name that Python has for an encoding.

    Raises:
      UserError: It is no encoding of text.

    >>> find_encoding("Latin-1"), find_encoding("UTF8")
    ('iso8859-1', 'utf-8')
    """
    sample = "a\tb\n"
    try:
        found = codecs.lookup(name)
        if found.incrementaldecoder is None:
            raise LookupError
        # As `Utf8Stream` reads it: IDNA and Punycode cannot go on after what is invalid.
        decoder = found.incrementaldecoder(_MARK_INVALID)
        if decoder.decode(sample.encode(name), final=True) != sample:
            raise LookupError
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(
            "`encoding` must be one that Python knows, such as latin-1, cp1252, gb18030 or "
            f"utf-16. Received: {name!r}"
        ) from error
    return UTF8 if found.name == "utf-8-sig" else found.name


class Utf8Stream(io.RawIOBase):
    """A stream of bytes in some encoding, read as UTF-8."""

    def __init__(self, raw: io.BufferedIOBase, encoding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)(_MARK_INVALID)
        self._rest = memoryview(b"")
        self._is_at_end = False

    def readable(self) -> bool:
        """Says that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads some bytes; returns their number, 0 at the end."""
        while not self._rest and not self._is_at_end:
            block = self._raw.read(_BLOCK_BYTES)
            self._is_at_end = not block
            text = self._decoder.decode(block, final=self._is_at_end)
            self._rest = memoryview(text.encode(UTF8, "surrogatepass"))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def check_is_utf8(path: str, head: bytes) -> None:
    """Checks that what a file begins with is not UTF-16 or UTF-32.

    Raises:
      UserError: It is.
    """
    encoding = wide_encoding(head)
    if encoding:
        raise UserError(
            f"{path} is {encoding[:6].upper()}, not UTF-8: pass `encoding={encoding}`, if all "
            f"texts are, or convert it alone (iconv -f {encoding} -t utf-8)"
        )


def is_other_encoding(*, invalid: int, lines: int) -> bool:
    """Tells whether so many lines are invalid that all may be in another encoding.

    Of a German text in Latin-1 about every second line is invalid UTF-8, of an English one about
    every tenth. A file with a few damaged lines has fewer.
    """
    return invalid * 100 >= lines > 0
