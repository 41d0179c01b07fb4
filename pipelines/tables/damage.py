"""Errors of bad files: what Arrow and decompressors raise, as one line for the user."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator

import pyarrow as pa

from tt.model.errors import BadFileError, UserError

_LONGEST_REASON = 300  # characters
# Reading wrong sizes, offsets and names raises these errors of Python.
_OF_WRONG_SIZES = (SystemError, ValueError, OverflowError, MemoryError)


class EncodingError(BadFileError):
    """A text file is not UTF-8."""

    remedy = "Convert the file (iconv -f ENCODING -t utf-8), or choose `encoding` for a corpus"


def is_damage(error: Exception) -> bool:
    """Tell errors of damaged data, as decompressors raise them, from errors of file systems."""
    if isinstance(error, pa.ArrowException | EOFError | zlib.error | gzip.BadGzipFile):
        return not isinstance(error, MemoryError)
    return type(error) is OSError and error.errno is None


@contextlib.contextmanager
def told_of_damage(problem: str, *, has_sizes: bool = False) -> Iterator[None]:
    """Turn errors of damaged data into a BadFileError; errors of file systems pass.

    Args:
      problem: The beginning of the message.
      has_sizes: Whether the format stores sizes that Python converts, as Arrow IPC does.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not is_damage(error) and not (has_sizes and isinstance(error, _OF_WRONG_SIZES)):
            raise
        raise BadFileError(f"{problem}: {one_line(error)}") from error


@contextlib.contextmanager
def with_remedy() -> Iterator[None]:
    """Add the fix to the message of a BadFileError."""
    try:
        yield
    except BadFileError as error:
        raise UserError(f"{error}. {error.remedy}") from error


def one_line(error: Exception | str) -> str:
    r"""Return the message of an error, short and printable: Arrow's has lines, and bytes.

    >>> one_line(ValueError("a\nb."))
    'a b'
    """
    text = " ".join(str(error).split()).rstrip(".")[:_LONGEST_REASON]
    return "".join(each if each.isprintable() else "?" for each in text)
