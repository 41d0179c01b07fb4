"""Serialization of `tf.train.Example`s without TensorFlow, and the framing of TFRecord files."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from tt.model.dataset.manifest import (
    MANIFEST_FILE,
    SOURCE_FEATURE,
    SOURCE_TEXT_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from tt.model.errors import UserError
from tt.model.storage.files import open_binary
from tt.model.text.vocabulary import FlatIds

# A record in a TFRecord file has a size, a checksum of the size, the bytes, and a checksum of the
# bytes. See https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_FRAMED_AT_ONCE = 4096  # records
# The fields of a tf.train.Example that `tt` uses.
_EXAMPLE = """
name: "example.proto" package: "tt" syntax: "proto3"
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".tt.Features" } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".tt.Features.FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
      type_name: ".tt.Feature" } } }
message_type { name: "Feature"
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".tt.BytesList" }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".tt.Int64List" } }
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Int64List"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
"""

_Item = TypeVar("_Item")


def cut_bytes(data: bytes | pa.Buffer, sizes: npt.NDArray[np.integer[Any]]) -> pa.LargeBinaryArray:
    """Cut bytes into records of the given sizes without copying them.

    Arrow can select and join the records without the GIL, and without a Python object per record.
    """
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def uncut_bytes(records: pa.LargeBinaryArray) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Return the bytes of consecutive records without copying them, and the bounds of the records.

    The bounds are the start of each record, and the end of the last one. If the array is a slice,
    the bytes also contain the records outside the slice.
    """
    _, places, data = records.buffers()
    if places is None or data is None:
        return memoryview(b""), np.zeros(len(records) + 1, np.int64)
    bounds = np.frombuffer(places, np.int64)[records.offset : records.offset + len(records) + 1]
    return memoryview(data), bounds


def framed_runs(records: pa.LargeBinaryArray) -> Iterator[bytes]:
    """Yield the bytes of records with their TFRecord framing, 4096 records at a time."""
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
    """Mask many checksums at once, modulo 2^32; see `_masked_crc`."""
    rotated = crcs >> np.uint32(15) | crcs << np.uint32(17)
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def one_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items; a thread computes the next item while the caller uses the current one."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def read_records(
    files: Sequence[str | Path], *, shard: int = 0, record: int = 0, offset: int = 0
) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the records of shards, starting at any record.

    TensorFlow's reader can neither start inside a file nor locate a damaged record.

    Args:
      files: The shards, on any storage.
      shard: Index in `files` of the shard to start in.
      record: Number of records to skip in that shard.
      offset: Number of bytes of the skipped records.

    Yields:
      The bytes of a record, the index of its shard, its number in the shard, and the offset of its
      end in the shard.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    for number, path in enumerate(files[shard:], shard):
        try:
            with open_binary(str(path)) as file:
                size = file.seek(0, os.SEEK_END)
                if size < offset:
                    raise _DamagedRecordError("is truncated")
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


def _unusable(path: str | Path, problem: str) -> UserError:
    return UserError(
        f"{path} {problem}. Copy the shard again from its source, or delete it and repeat the "
        "`tt preprocess` command"
    )


def check_shards(files: Sequence[Path], sizes: Sequence[int]) -> None:
    """Check the sizes of shards before training starts.

    Args:
      files: The shards.
      sizes: The expected bytes per shard; empty if the manifest contains no sizes.

    Raises:
      UserError: A shard is missing or has another size.
    """
    for file, size in zip(files, sizes, strict=False):  # the sizes may be empty
        found = file.stat().st_size if file.is_file() else None
        if found is None:
            raise _unusable(file, "is missing")
        if found != size:
            raise _unusable(file, f"has {found:,} bytes, but {MANIFEST_FILE} says {size:,}")


class _DamagedRecordError(Exception):
    """A record is truncated, or a checksum is wrong."""


def _read_record(file: IO[bytes], header: bytes, *, left: int) -> bytes:
    """Read the content of a record after its header.

    Args:
      file: The shard, open after the header.
      header: The header.
      left: The bytes from the start of the header to the end of the file.

    Raises:
      _DamagedRecordError: The record is truncated, or a checksum is wrong.
    """
    if len(header) < _HEADER.size:
        raise _DamagedRecordError("is truncated")
    size, checksum = _HEADER.unpack(header)
    if _masked_crc(header[:8]) != checksum:
        raise _DamagedRecordError("has a wrong checksum of its size")
    if _HEADER.size + size + _CHECKSUM.size > left:
        raise _DamagedRecordError("is truncated")
    content = file.read(size + _CHECKSUM.size)
    example = content[:size]
    if _masked_crc(example) != _CHECKSUM.unpack_from(content, size)[0]:
        raise _DamagedRecordError("has a wrong checksum")
    return example


@functools.cache
def _example_type() -> Any:
    """Return a class that reads a `tf.train.Example` without TensorFlow."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_EXAMPLE, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tt.Example"))


def read_features(example: bytes, *, record: int, shard: str) -> Any:
    """Return the features of a record by their names.

    Args:
      example: The record.
      record: The number of the record in its shard, for the message.
      shard: The shard, for the message.

    Raises:
      UserError: The record is not a `tf.train.Example`.
    """
    try:
        return _example_type().FromString(example).features.feature
    except Exception as error:  # protobuf's implementations have different DecodeErrors
        raise UserError(
            f"record {record} of {shard} is not a tf.train.Example. Create the dataset again with "
            "`tt preprocess`"
        ) from error


# The functions below encode examples: https://protobuf.dev/programming-guides/encoding/


def _varint(value: int) -> bytes:
    """Encode a number with 7 bits per byte, least significant bits first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, content: bytes = b"", *, more: int = 0) -> bytes:
    """Return the start of a field: its tag, its size and `content`.

    The caller appends `more` bytes of content.
    """
    length_delimited = 2
    return _varint(number << 3 | length_delimited) + _varint(len(content) + more) + content


@functools.lru_cache(maxsize=1 << 12)
def _entry(name: str, size: int) -> bytes:
    """Return the start of a Features.feature entry, before its packed ids of `size` bytes."""
    values = _field(1, more=size) if size else b""  # Int64List.value
    ids = _field(3, values, more=size)  # Feature.int64_list
    return _field(1, _field(1, name.encode()) + _field(2, ids, more=size), more=size)


@functools.lru_cache(maxsize=1 << 12)
def _features(size: int) -> bytes:
    """Return the start of Example.features, before its entries of `size` bytes."""
    return _field(1, more=size)


def _make_each(
    make: Callable[[int], bytes], sizes: npt.NDArray[np.integer[Any]]
) -> pa.LargeBinaryArray:
    """Return the result of `make` for each size; call `make` once per distinct size."""
    distinct, which = np.unique(sizes, return_inverse=True)
    return pa.array(map(make, distinct.tolist()), pa.large_binary()).take(pa.array(which))


class ExampleWriter:
    """Serializes many pairs of ids at once to the same bytes as TensorFlow.

    Filling a protobuf message for each pair takes 1.6 times as long.

    Args:
      vocabulary_size: Upper bound of the ids, at most 2^28.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size
        # For each id: its varint at the start of 4 bytes, and a mask of the bytes that it uses.
        ids = np.arange(vocabulary_size, dtype=np.uint32)
        sizes = (1 + (ids >= 1 << 7) + (ids >= 1 << 14) + (ids >= 1 << 21)).astype(np.uint8)
        place = np.arange(4)
        has_more = (place + 1 < sizes[:, None]).astype(np.uint8) << 7
        septets = (ids[:, None] >> (7 * place).astype(np.uint32) & 0x7F).astype(np.uint8)
        # Four bytes form one number, because NumPy selects numbers far faster than rows.
        self._varints = (septets | has_more).view(np.uint32).ravel()
        self._is_used = (place < sizes[:, None]).view(np.uint32).ravel()
        self._sizes = sizes

    def serialize(self, sources: FlatIds, targets: FlatIds) -> pa.LargeBinaryArray:
        """Return the bytes of a tf.train.Example for each pair."""
        parts = []
        for name, side in ((SOURCE_FEATURE, sources), (TARGET_FEATURE, targets)):
            ids = self._pack(side)
            sizes = pc.binary_length(ids).to_numpy()
            parts += [_make_each(functools.partial(_entry, name), sizes), ids]
        content = sum(pc.binary_length(part).to_numpy() for part in parts)
        begins = _make_each(_features, content)
        return pc.binary_join_element_wise(begins, *parts, pa.scalar(b"", pa.large_binary()))

    def _pack(self, texts: FlatIds) -> pa.LargeBinaryArray:
        ids = texts.ids.astype(np.intp)  # otherwise each `take` would convert the ids again
        varints = self._varints.take(ids).view(np.uint8)
        packed = np.compress(self._is_used.take(ids).view(np.bool_), varints)
        ends = np.concatenate([[0], np.cumsum(self._sizes.take(ids), dtype=np.int64)])
        return cut_bytes(packed, np.diff(ends[texts.ends], prepend=0))


def with_texts(record: bytes, source: str, target: str) -> bytes:
    """Add the texts of a pair to a record from `ExampleWriter`."""
    begin, _ = _content(record, 0)
    _, middle = _content(record, begin)
    return _field(
        1,
        _text_entry(SOURCE_TEXT_FEATURE, source)
        + record[begin:middle]
        + _text_entry(TARGET_TEXT_FEATURE, target)
        + record[middle:],
    )


def texts_of(record: bytes) -> tuple[str, str]:
    """Return the source and the target that `with_texts` added to a record."""
    features = _example_type().FromString(record).features.feature
    source, target = (
        features[name].bytes_list.value[0].decode()
        for name in (SOURCE_TEXT_FEATURE, TARGET_TEXT_FEATURE)
    )
    return source, target


def _text_entry(name: str, text: str) -> bytes:
    values = _field(1, text.encode())  # BytesList.value
    return _field(1, _field(1, name.encode()) + _field(2, _field(1, values)))


def _content(message: bytes, start: int) -> tuple[int, int]:
    """Return the start and the end of the content of the field whose tag is at `start`."""
    size = shift = 0
    place = start + 1
    while True:
        byte = message[place]
        size |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return place, place + size
