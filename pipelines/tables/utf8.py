"""What makes a text file bad as a whole: other encodings than UTF-8, and where."""

from __future__ import annotations

import codecs

from model.errors import BadFileError
from pipelines.storage.text_files import CheckedFile, wide_encoding

_LONGEST_REASON = 300  # characters
_BLOCK_BYTES = 1 << 20


def check_head(head: bytes, *, path: str) -> None:
    """Checks that what a file begins with is not UTF-16 or UTF-32.

    Raises:
      BadFileError: It is.
    """
    if encoding := wide_encoding(head):
        raise BadFileError(
            f"{path} must be UTF-8; it is {encoding[:6].upper()} (iconv -f {encoding} -t utf-8 "
            "converts it)"
        )


def not_utf8(path: str, *, line: int) -> BadFileError:
    """Returns the error of a line that is not UTF-8; lines count from 1."""
    return BadFileError(
        f"{path} must be UTF-8; line {line:,} has other bytes (iconv converts it, as from latin-1)"
    )


def check_lines(path: str) -> None:
    """Check that all lines of a file are UTF-8, however long they are.

    Raises:
      BadFileError: A line is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with CheckedFile(path) as file:
        while True:
            block = file.stream.read(_BLOCK_BYTES)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += error.object.count(b"\n", 0, error.start)
                raise not_utf8(path, line=line) from error
            if not block:
                return
            line += block.count(b"\n")


def one_line(error: Exception) -> str:
    r"""Returns the message of an error, short and printable: Arrow's has lines, and bytes.

    >>> one_line(ValueError("a\nb."))
    'a b'
    """
    text = " ".join(str(error).split()).rstrip(".")[:_LONGEST_REASON]
    return "".join(each if each.isprintable() else "?" for each in text)
