"""Turn errors of Arrow and of decompressors into one-line messages about damaged files."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tt.model.errors import BadFileError, UserError

_LONGEST_REASON = 300  # characters
# Python raises these errors when it converts sizes, offsets and names of a damaged file.
_SIZE_ERRORS = (SystemError, ValueError, OverflowError, MemoryError)


class EncodingError(BadFileError):
    """A text file is not UTF-8."""

    remedy = "Set `encoding`"


class SeparatorError(BadFileError):
    """The columns of a file have another separator."""

    remedy = "Set `delimiter`"


class FormatError(BadFileError):
    """The ending of a file does not name its format."""

    remedy = "Set `input_format`"


class NullListError(BadFileError):
    """Arrow cannot read a column of the file, although the file is sound."""

    remedy = "Leave the column out with `drop_columns`, or write it as plain lists"


def is_damage(error: Exception) -> bool:
    """Return whether an error means damaged data, rather than a failed file system."""
    if isinstance(error, pa.ArrowException | EOFError | zlib.error | gzip.BadGzipFile):
        return not isinstance(error, MemoryError)
    return type(error) is OSError and error.errno is None


@contextlib.contextmanager
def explain_damage(problem: str, *, has_sizes: bool = False) -> Iterator[None]:
    """Run the block; replace an error that means damaged data with a BadFileError.

    Args:
      problem: The beginning of the message.
      has_sizes: Whether the format stores sizes that Python converts, as Arrow IPC does. If so,
        errors such as OverflowError also count as damage.

    Raises:
      BadFileError: The data is damaged. Other errors, such as errors of file systems, are raised
        unchanged.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not is_damage(error) and not (has_sizes and isinstance(error, _SIZE_ERRORS)):
            raise
        if str(error).startswith("Expected all lists to be of size"):
            raise NullListError(
                f"{problem}: Arrow cannot read null values in a column of lists with a fixed length"
            ) from error
        raise BadFileError(f"{problem}: {one_line(error)}") from error


def explain_each(batches: Iterable[pa.RecordBatch], problem: str) -> Iterator[pa.RecordBatch]:
    """Yield batches; replace an error of the reader that means damaged data with a BadFileError.

    Args:
      batches: The batches, which the reader makes one after the other.
      problem: The beginning of the message; the number of rows that were read follows.

    Raises:
      BadFileError: The data is damaged; see `explain_damage`.
    """
    reader = iter(batches)
    rows = 0
    while True:
        with explain_damage(f"{problem} after row {rows:,}" if rows else problem):
            batch = next(reader, None)
        if batch is None:
            return
        rows += batch.num_rows
        yield batch


@contextlib.contextmanager
def with_remedy() -> Iterator[None]:
    """Run the block; replace a BadFileError with a UserError whose message includes the fix."""
    try:
        yield
    except BadFileError as error:
        raise UserError(f"{error}. {error.remedy}") from error


def one_line(error: Exception | str) -> str:
    r"""Return an error's message on one line, shortened and printable.

    Arrow's messages can have several lines and contain bytes of the file.

    >>> one_line(ValueError("a\nb."))
    'a b'
    """
    text = " ".join(str(error).split()).rstrip(".")[:_LONGEST_REASON]
    return "".join(each if each.isprintable() else "?" for each in text)
