"""Arrow IPC as tables: files (which Feather 2 is too) and streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from model.errors import BadFileError, UnsupportedFileError
from pipelines.storage.files import is_unsupported
from pipelines.tables.types import Dictionaries, with_indices_of
from pipelines.tables.utf8 import one_line

_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"
# What reading wrong sizes, offsets and names raises: Arrow's own errors, and Python's.
_DAMAGE = (pa.ArrowException, OSError, SystemError, ValueError, OverflowError, MemoryError)
# No threads: they may free memory of Python's after its end.
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


class IpcRows:
    """The rows of an Arrow file or stream, as batches.

    Args:
      handle: The file, open at its start.
      path: The file, for messages.
      schema: The schema that an earlier reading found, or None.

    Raises:
      BadFileError: The file is neither, or is cut off.
    """

    def __init__(self, handle: IO[bytes], *, path: str, schema: pa.Schema | None = None) -> None:
        self._path = path
        self._handle = handle
        head = handle.read(len(_MAGIC))
        handle.seek(0)
        if head.startswith(_FEATHER_1):
            raise BadFileError(
                f"{path} must be Arrow IPC; it is Feather of version 1, which version 2 replaced"
            )
        if not handle.seek(0, os.SEEK_END):
            raise BadFileError(f"{path} must be Arrow IPC; it is empty")
        handle.seek(0)
        self._is_file = head == _MAGIC
        try:
            open_ipc = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
            self._reader = open_ipc(handle, options=_OPTIONS)
            own: pa.Schema = self._reader.schema
            _read_names(pa.struct(list(own)))
        except _DAMAGE as error:
            raise self._explain(error) from error
        self._dictionaries = Dictionaries(own)
        self._known = None if schema is None else with_indices_of(own, schema)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that have been read, or of all rows if a schema was given."""
        return self._dictionaries.schema if self._known is None else self._known

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises:
          BadFileError: The file is damaged, or a stream has no end.
        """
        try:
            if self._is_file:
                count = self._reader.num_record_batches
                batches = (self._reader.get_batch(index) for index in range(count))
            else:
                batches = iter(self._reader)
            end = self._handle.tell()
            while (batch := next(batches, None)) is not None:
                _check(batch)
                if self._known is None:
                    self._dictionaries.add(batch)
                elif batch.schema != self._known:
                    batch = batch.cast(self._known)
                yield batch
                end = self._handle.tell()
            is_ended = self._is_file or self._handle.tell() > end  # the mark was read
        except _DAMAGE as error:
            raise self._explain(error) from error
        if not is_ended:
            raise BadFileError(
                f"{self._path} must end with the mark of the end of an Arrow stream; it has none: "
                "it was cut off, or its writer was not closed"
            )

    def _explain(self, error: Exception) -> BadFileError:
        if isinstance(error, OSError) and error.errno is not None:
            raise error
        if is_unsupported(error):
            return UnsupportedFileError(
                f"{self._path} cannot be read, since Arrow cannot do it: {one_line(error)}"
            )
        return BadFileError(f"{self._path} cannot be read as Arrow IPC: {one_line(error)}")


def _read_names(kind: pa.DataType) -> None:
    """Reads the names of all fields; raises UnicodeDecodeError where one is not UTF-8."""
    for index in range(kind.num_fields):
        field = kind.field(index)
        _ = field.name
        _read_names(field.type)


def _check(batch: pa.RecordBatch) -> None:
    """Checks sizes, offsets and indices, which Arrow follows without a look at them.

    Raises:
      ArrowInvalid: One is wrong. Strings that are not UTF-8 are no damage of the file: their rows
        fail.
    """
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            column.view(_as_bytes(column.type)).validate(full=True)


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Returns the type with bytes for strings, in the same layout."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(_as_bytes(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_as_bytes(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    return kind
