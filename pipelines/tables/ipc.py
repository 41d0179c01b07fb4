"""Arrow IPC as tables: files (which Feather 2 is too) and streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from model.errors import BadFileError
from pipelines.tables.utf8 import one_line

_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"


class IpcRows:
    """The rows of an Arrow file or stream, as batches.

    Args:
      handle: The file, open at its start.
      path: The file, for messages.

    Raises:
      BadFileError: The file is neither, or is cut off.
    """

    def __init__(self, handle: IO[bytes], *, path: str) -> None:
        self._path = path
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
            self._reader = pa.ipc.open_file(handle) if self._is_file else pa.ipc.open_stream(handle)
        except (pa.ArrowException, OSError) as error:
            raise self._explain(error) from error
        self.schema = self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises:
          BadFileError: The file is damaged.
        """
        try:
            if self._is_file:
                for index in range(self._reader.num_record_batches):
                    yield self._reader.get_batch(index)
            else:
                yield from self._reader
        except (pa.ArrowException, OSError) as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> BadFileError:
        if isinstance(error, OSError) and error.errno is not None:
            raise error
        return BadFileError(f"{self._path} cannot be read as Arrow IPC: {one_line(error)}")
