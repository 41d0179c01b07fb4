"""Records as bytes: `tf.train.Example`s made without TensorFlow, and the frames of TFRecords."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.dataset.manifest import (
    MANIFEST_FILE,
    SOURCE_FEATURE,
    SOURCE_TEXT_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from tt.model.errors import UserError
from tt.model.text.vocabulary import FlatIds

# A record of a TFRecord file: its size, a checksum of that, the bytes, a checksum of them; see
# https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_FRAMED_AT_ONCE = 4096  # records

_Item = TypeVar("_Item")


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


def one_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items; a thread makes each while the one before is used."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


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
    """Check that shards have their sizes in bytes, before anything is trained on them.

    Raises:
      UserError: A shard is missing or has another size.
    """
    for file, size in zip(files, sizes, strict=False):  # a manifest may have no sizes
        found = file.stat().st_size if file.is_file() else None
        if found is None:
            raise _unusable(file, "is missing")
        if found != size:
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


# Examples: https://protobuf.dev/programming-guides/encoding/


def _varint(value: int) -> bytes:
    """Encodes a number, 7 bits a byte, the least significant first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, content: bytes = b"", *, more: int = 0) -> bytes:
    """Begins a field of `content` and `more` bytes that the caller appends."""
    length_delimited = 2
    return _varint(number << 3 | length_delimited) + _varint(len(content) + more) + content


@functools.lru_cache(maxsize=1 << 12)
def _entry(name: str, size: int) -> bytes:
    """Begins an entry of Features.feature, up to its packed ids, which have `size` bytes."""
    values = _field(1, more=size) if size else b""  # Int64List.value
    ids = _field(3, values, more=size)  # Feature.int64_list
    return _field(1, _field(1, name.encode()) + _field(2, ids, more=size), more=size)


@functools.lru_cache(maxsize=1 << 12)
def _features(size: int) -> bytes:
    """Begins Example.features, which has entries of `size` bytes."""
    return _field(1, more=size)


def _make_each(
    make: Callable[[int], bytes], sizes: npt.NDArray[np.integer[Any]]
) -> pa.LargeBinaryArray:
    """Returns what `make` makes of each size; it is called once for those that are equal."""
    distinct, which = np.unique(sizes, return_inverse=True)
    return pa.array(map(make, distinct.tolist()), pa.large_binary()).take(pa.array(which))


class ExampleWriter:
    """Serialises pairs of ids below a size, up to 2^28, many at a time, to the bytes of TensorFlow.

    Filling a protobuf message for each pair takes 1.6 times as long.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size
        # For each id, its varint in the first of 4 bytes, and which of the 4 those are.
        ids = np.arange(vocabulary_size, dtype=np.uint32)
        sizes = (1 + (ids >= 1 << 7) + (ids >= 1 << 14) + (ids >= 1 << 21)).astype(np.uint8)
        place = np.arange(4)
        has_more = (place + 1 < sizes[:, None]).astype(np.uint8) << 7
        septets = (ids[:, None] >> (7 * place).astype(np.uint32) & 0x7F).astype(np.uint8)
        # Four bytes in one number: NumPy picks single numbers far faster than rows.
        self._varints = (septets | has_more).view(np.uint32).ravel()
        self._is_used = (place < sizes[:, None]).view(np.uint32).ravel()
        self._sizes = sizes

    def serialize(self, sources: FlatIds, targets: FlatIds) -> pa.LargeBinaryArray:
        """Returns the bytes of a tf.train.Example for each pair."""
        parts = []
        for name, side in ((SOURCE_FEATURE, sources), (TARGET_FEATURE, targets)):
            ids = self._pack(side)
            sizes = pc.binary_length(ids).to_numpy()
            parts += [_make_each(functools.partial(_entry, name), sizes), ids]
        content = sum(pc.binary_length(part).to_numpy() for part in parts)
        begins = _make_each(_features, content)
        return pc.binary_join_element_wise(begins, *parts, pa.scalar(b"", pa.large_binary()))

    def _pack(self, texts: FlatIds) -> pa.LargeBinaryArray:
        ids = texts.ids.astype(np.intp)  # once, not in each look-up
        varints = self._varints.take(ids).view(np.uint8)
        packed = np.compress(self._is_used.take(ids).view(np.bool_), varints)
        ends = np.concatenate([[0], np.cumsum(self._sizes.take(ids), dtype=np.int64)])
        return cut_bytes(packed, np.diff(ends[texts.ends], prepend=0))


def with_texts(record: bytes, source: str, target: str) -> bytes:
    """Adds the texts of a pair to what `ExampleWriter` made of its ids."""
    begin, _ = _content(record, 0)
    _, middle = _content(record, begin)
    return _field(
        1,
        _text_entry(SOURCE_TEXT_FEATURE, source)
        + record[begin:middle]
        + _text_entry(TARGET_TEXT_FEATURE, target)
        + record[middle:],
    )


def _text_entry(name: str, text: str) -> bytes:
    values = _field(1, text.encode())  # BytesList.value
    return _field(1, _field(1, name.encode()) + _field(2, _field(1, values)))


def _content(message: bytes, start: int) -> tuple[int, int]:
    """Returns where the content of a field begins and ends; its tag stands at `start`."""
    size = shift = 0
    place = start + 1
    while True:
        byte = message[place]
        size |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return place, place + size
