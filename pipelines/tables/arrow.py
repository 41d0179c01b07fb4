"""Read Arrow files and streams, and Feather files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.pipelines.tables.columns import map_type
from tt.pipelines.tables.damage import explain_damage
from tt.pipelines.tables.interface import ReadRequest

_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"
_MAGIC_BYTES = 8  # the magic number with its padding, before the stream in an Arrow file
# Arrow's threads could free memory that belongs to Python after Python has ended.
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
# Arrow cannot decode dictionaries with values of these types, such as Polars' categories.
_DECODABLE = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


class ArrowRows:
    """The rows of an Arrow file or stream, as batches.

    The batches of a file may have different dictionaries, which a table merges into a larger one.
    Therefore, dictionary indices are widened to 32 bits, as in Parquet.

    Args:
      handle: The file, open at its start.
      request: What to read.

    Raises:
      BadFileError: The file is neither an Arrow file nor an Arrow stream, or is cut off.
    """

    rules = None  # the rows are not lines

    def __init__(self, handle: IO[bytes], request: ReadRequest) -> None:
        self._path = path = request.path
        self._handle = handle
        magic = handle.read(len(_MAGIC))
        if magic.startswith(_FEATHER_1):
            raise BadFileError(
                f"{path} must be Arrow IPC or Feather version 2; it is Feather version 1"
            )
        if not handle.seek(0, os.SEEK_END):
            raise BadFileError(f"{path} must be Arrow IPC; it is empty")
        self._is_head = request.is_head
        self._is_file = magic == _MAGIC and not self._is_head
        handle.seek(_MAGIC_BYTES if magic == _MAGIC and self._is_head else 0)
        with self._explain_damage():
            open_ipc = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
            self._reader = open_ipc(handle, options=_OPTIONS)
            own: pa.Schema = self._reader.schema
            _read_names(pa.struct(list(own)))
            fields = [field.with_type(map_type(field.type, _as_decodable)) for field in own]
            self.schema = pa.schema(fields, own.metadata)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
          BadFileError: The file is damaged, or a stream lacks its end marker.
        """
        try:
            with self._explain_damage():
                yield from self._batches()
        except BadFileError:
            if not self._is_head:
                raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._is_file:
            count = self._reader.num_record_batches
            batches = (self._reader.get_batch(index) for index in range(count))
        else:
            batches = iter(self._reader)
        end = self._handle.tell()
        while (batch := next(batches, None)) is not None:
            _check(batch)
            yield batch if batch.schema == self.schema else batch.cast(self.schema)
            end = self._handle.tell()
        if not self._is_file and self._handle.tell() == end:  # there was no end marker
            raise BadFileError(
                f"{self._path} lacks the end marker of an Arrow stream: the file is cut off, or "
                "its writer was not closed"
            )

    def _explain_damage(self) -> contextlib.AbstractContextManager[None]:
        return explain_damage(f"{self._path} cannot be read as Arrow IPC", has_sizes=True)


def _as_decodable(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_dictionary(kind):
        return kind
    index = kind.index_type if kind.index_type.bit_width >= 32 else pa.int32()
    return pa.dictionary(index, _DECODABLE.get(kind.value_type, kind.value_type), kind.ordered)


def _read_names(kind: pa.DataType) -> None:
    """Read the names of all fields; raise UnicodeDecodeError if a name is not UTF-8."""
    for index in range(kind.num_fields):
        field = kind.field(index)
        _ = field.name
        _read_names(field.type)


def _check(batch: pa.RecordBatch) -> None:
    """Check the sizes, offsets and indices of a batch, which Arrow does not check by itself.

    Strings that are not UTF-8 do not count as damage; only the rows with such strings fail later.

    Raises:
      ArrowInvalid: A size, an offset or an index is wrong.
    """
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            column.view(map_type(column.type, _as_bytes)).validate(full=True)


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the binary type with the memory layout of a string type."""
    if pa.types.is_string(kind):
        return pa.binary()
    return pa.large_binary() if pa.types.is_large_string(kind) else kind
