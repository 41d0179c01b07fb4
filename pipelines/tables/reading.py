"""Tables of any format, told by their names: looked through, and read from their start.

Rows of Parquet are found by its footer. Files of the other formats are read from their start: once
to check them and to count their rows, and once more to use them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pyarrow as pa

from model.errors import BadFileError, UnsupportedFileError
from pipelines.storage import parquet
from pipelines.storage.files import is_damage, is_unsupported, open_binary
from pipelines.storage.parquet import NotParquetError
from pipelines.storage.text_files import COMPRESSIONS, CheckedFile
from pipelines.tables.delimited import DelimitedRows
from pipelines.tables.ipc import IpcRows
from pipelines.tables.jsonl import JsonlRows
from pipelines.tables.utf8 import one_line

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSONL = ".jsonl"
_TEXTS = (*_DELIMITERS, _JSONL)
_IPC = (".arrow", ".feather", ".ipc")
SUFFIXES = (
    parquet.SUFFIX,
    *_IPC,
    *(text + compression for text in _TEXTS for compression in ("", *COMPRESSIONS)),
)
ENDINGS = (
    f"{', '.join((parquet.SUFFIX, *_TEXTS))} (also {', '.join(COMPRESSIONS)}) or {', '.join(_IPC)}"
)
_THREADS = 16  # footers are latency on an object store


class Rows(Protocol):
    """The rows of an open file, in batches; `schema` is whole once they have been read."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows."""


def table_suffix(path: str) -> str:
    """Returns the ending that tells the format of a file, or "".

    >>> table_suffix("x/part.CSV.gz"), table_suffix("x/part.pq")
    ('.csv.gz', '')
    """
    path = path.lower()
    return next((suffix for suffix in SUFFIXES if path.endswith(suffix)), "")


def is_read_in_place(path: str) -> bool:
    """Tells whether any run of rows can be read: of Parquet, which other endings stand for too."""
    return table_suffix(path) in ("", parquet.SUFFIX)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """What a file holds."""

    size: int  # bytes of the file
    rows: int
    checksum: str  # hex blake2b: of the footer of Parquet, else of the whole file
    schema: pa.Schema
    content_bytes: int  # bytes of all cells in memory; of Parquet before compression
    group_rows: tuple[int, ...] = ()  # rows of each row group of Parquet


def look_through(paths: Sequence[str]) -> list[Contents | BadFileError]:
    """Looks through many files, in order, several at a time.

    Raises:
      UserError: A file cannot be opened; of one that is bad the error is returned.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_try_look_through, paths))


def _try_look_through(path: str) -> Contents | BadFileError:
    try:
        if is_read_in_place(path):
            footer = parquet.read_footer(path)
            return Contents(
                size=footer.size,
                rows=footer.rows,
                checksum=footer.checksum,
                schema=footer.schema,
                content_bytes=footer.content_bytes,
                group_rows=footer.group_rows,
            )
        with OpenTable(path) as table:
            rows = content_bytes = 0
            for batch in table.batches():
                rows += batch.num_rows
                content_bytes += batch.nbytes
            size, checksum = table.finish()
            return Contents(
                size=size,
                rows=rows,
                checksum=checksum,
                schema=table.schema,
                content_bytes=content_bytes,
            )
    except NotParquetError as error:
        if table_suffix(path):
            return error
        return BadFileError(
            f"{path} must have the ending of its format, {ENDINGS}; with any other it is read as "
            "Parquet, which it is not"
        )
    except BadFileError as error:
        return error


class OpenTable:
    """A file of any format but Parquet, open at its start.

    Args:
      path: The file.
      schema: The schema that `look_through` found, or None.

    Raises:
      BadFileError: The file is bad.
      UserError: The file cannot be opened.
    """

    def __init__(self, path: str, *, schema: pa.Schema | None = None) -> None:
        self._path = path
        with contextlib.ExitStack() as stack:
            self._file = stack.enter_context(CheckedFile(path))
            with _told_of(path):
                self._rows = self._open(stack, schema)
            self._opened = stack.pop_all()

    def __enter__(self) -> OpenTable:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows; without a known schema it is whole when all have been read."""
        return self._rows.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises:
          BadFileError: The file is bad.
        """
        batches = iter(self._rows)
        while True:
            with _told_of(self._path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def runs(self, sizes: Sequence[int]) -> Iterator[pa.Table]:
        """Yields the rows as tables of so many rows each, as far as there are rows.

        Raises:
          BadFileError: The file is bad.
        """
        for size, run in zip(sizes, self.batch_runs(sizes), strict=True):
            batches = list(run)
            if sum(batch.num_rows for batch in batches) < size:
                return
            yield pa.Table.from_batches(batches, schema=self.schema)

    def batch_runs(self, sizes: Sequence[int]) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yields the rows in runs of so many rows each, or fewer if there are fewer.

        Each run is to be read to its end before the next is asked for.

        Raises:
          BadFileError: The file is bad.
        """
        batches = self.batches()
        rest: list[pa.RecordBatch] = []

        def run(missing: int) -> Iterator[pa.RecordBatch]:
            while missing and (batch := rest.pop() if rest else next(batches, None)) is not None:
                piece = batch.slice(0, missing)
                if batch.num_rows > missing:
                    rest.append(batch.slice(missing))
                missing -= piece.num_rows
                del batch
                yield piece
                del piece  # before the next is read

        for size in sizes:
            yield run(size)

    def finish(self) -> tuple[int, str]:
        """Reads on to the end; returns the file's bytes and their checksum (hex blake2b)."""
        return self._file.finish()

    def _open(self, stack: contextlib.ExitStack, schema: pa.Schema | None) -> Rows:
        path, suffix = self._path, table_suffix(self._path)
        if suffix in _IPC:  # its end is looked at first
            return IpcRows(stack.enter_context(open_binary(path)), path=path, schema=schema)
        if suffix.startswith(_JSONL):
            return JsonlRows(self._file.stream, path=path, schema=schema)
        return DelimitedRows(self._file.stream, path=path, delimiter=_DELIMITERS[suffix[:4]])


@contextlib.contextmanager
def _told_of(path: str) -> Iterator[None]:
    """Turns errors of damaged bytes into a BadFileError; those of file systems pass."""
    try:
        yield
    except Exception as error:
        if not is_damage(error):
            raise
        if is_unsupported(error):
            raise UnsupportedFileError(
                f"{path} cannot be read, since Arrow cannot do it: {one_line(error)}"
            ) from error
        raise BadFileError(f"{path} is cut off or damaged: {one_line(error)}") from error
