"""Pairs of token ids to serialised `tf.train.Example`s, without TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.dataset.manifest import (
    SOURCE_FEATURE,
    SOURCE_TEXT_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
)
from model.dataset.tfrecords import cut_bytes
from model.text.vocabulary import FlatIds

# Records: https://protobuf.dev/programming-guides/encoding/


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
