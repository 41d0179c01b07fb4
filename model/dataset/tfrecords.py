"""TFRecord files: the framing of records and its checksums, written and read."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.dataset.manifest import MANIFEST_FILE
from model.errors import UserError

# A record of a TFRecord file: its size, a checksum of that, the bytes, a checksum of them; see
# https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_FRAMED_AT_ONCE = 4096  # records


def cut_bytes(data: bytes | pa.Buffer, sizes: npt.NDArray[np.integer[Any]]) -> pa.LargeBinaryArray:
    """Cuts bytes into records of these sizes, without copying them.

    Arrow selects and joins records without the interpreter's lock, and needs no Python object for
    any of them.
    """
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def uncut_bytes(records: pa.LargeBinaryArray) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Returns bytes in which records lie one behind the other, and where each of them begins.

    One place more says where the last one ends. Nothing is copied: the bytes of an array that is
    a part of another are those of all of that.
    """
    _, places, data = records.buffers()
    if places is None or data is None:
        return memoryview(b""), np.zeros(len(records) + 1, np.int64)
    bounds = np.frombuffer(places, np.int64)[records.offset : records.offset + len(records) + 1]
    return memoryview(data), bounds


def framed_runs(records: pa.LargeBinaryArray) -> Iterator[bytes]:
    """Yields records as they stand in a TFRecord file, some thousand at a time."""
    nothing = pa.scalar(b"", pa.large_binary())
    for begin in range(0, len(records), _FRAMED_AT_ONCE):
        part = records.slice(begin, _FRAMED_AT_ONCE)
        sizes, which = np.unique(pc.binary_length(part).to_numpy(), return_inverse=True)
        headers = pa.array(map(_header, sizes.tolist()), pa.large_binary()).take(pa.array(which))
        crcs = np.fromiter(map(google_crc32c.value, part.to_pylist()), np.uint32, len(part))
        checksums = cut_bytes(_mask(crcs).tobytes(), np.full(len(part), _CHECKSUM.size))
        data, bounds = uncut_bytes(pc.binary_join_element_wise(headers, part, checksums, nothing))
        yield bytes(data[bounds[0] : bounds[-1]])


def _header(size: int) -> bytes:
    return _HEADER.pack(size, _masked_crc(size.to_bytes(8, "little")))


def _mask(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Does for many what `_masked_crc` does for the checksum of one; modulo 2^32."""
    rotated = crcs >> np.uint32(15) | crcs << np.uint32(17)
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(
    files: Sequence[Path], *, shard: int = 0, record: int = 0, offset: int = 0
) -> Iterator[tuple[bytes, int, int, int]]:
    """Yields (bytes, shard, number in the shard, offset behind it) from a record on.

    TensorFlow's own reader can neither begin inside a file nor say where a damaged one is. It
    begins in the file of number `shard`, behind `record` records of `offset` bytes in all.

    Raises:
      UserError: A shard is missing, cut off or damaged.
    """
    for number, path in enumerate(files[shard:], shard):
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < offset:
                    raise _DamagedRecordError("is cut off")
                file.seek(offset)
                while header := file.read(_HEADER.size):
                    example = _read_record(file, header, left=size - offset)
                    offset += _HEADER.size + len(example) + _CHECKSUM.size
                    yield example, number, record, offset
                    record += 1
        except _DamagedRecordError as error:
            raise _unusable(path, f"is damaged: record {record} {error}") from error
        except OSError as error:
            raise _unusable(path, f"cannot be read: {error.strerror}") from error
        record = offset = 0


def _unusable(path: Path, problem: str) -> UserError:
    return UserError(
        f"{path} {problem}. Copy the shard again from where it came, or delete it and run the same "
        "`tt preprocess` again"
    )


def check_shards(files: Sequence[Path], sizes: Sequence[int]) -> None:
    """Checks, before anything is trained on them, that shards are there and whole.

    `sizes` are in bytes, and none where they are not known.

    Raises:
      UserError: One is missing or has another size; of one that is cut off, the record is named.
    """
    for file, size in itertools.zip_longest(files, sizes):
        found = file.stat().st_size if file.is_file() else None
        if found is None or size not in (None, found):
            for _ in read_records([file]):  # which says what is wrong, if it can
                pass
            raise _unusable(file, f"has {found:,} bytes, {MANIFEST_FILE} says {size:,}")


class _DamagedRecordError(Exception):
    """A record that is cut off or whose checksum is wrong."""


def _read_record(file: BinaryIO, header: bytes, *, left: int) -> bytes:
    """Reads what follows a header; `left` bytes of the file begin with that."""
    if len(header) < _HEADER.size:
        raise _DamagedRecordError("is cut off")
    size, checksum = _HEADER.unpack(header)
    if _masked_crc(header[:8]) != checksum:
        raise _DamagedRecordError("has a wrong checksum of its size")
    if _HEADER.size + size + _CHECKSUM.size > left:
        raise _DamagedRecordError("is cut off")
    content = file.read(size + _CHECKSUM.size)
    example = content[:size]
    if _masked_crc(example) != _CHECKSUM.unpack_from(content, size)[0]:
        raise _DamagedRecordError("has a wrong checksum")
    return example
