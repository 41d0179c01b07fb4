"""Pairs -> serialised `tf.train.Example`s -> spill files -> TFRecord shards, without TensorFlow.

The records of a unit are spilled to one file, sorted by key. A bucket is a range of keys, and a
shard a run of buckets: so the records of a bucket lie together in each spill, and a shard is
written by reading its buckets, one after the other, from all spills.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from model.artifacts import SOURCE_FEATURE, TARGET_FEATURE
from pipelines import files
from pipelines.cleaning import DUPLICATE_PAIR, IN_VALIDATION

UInt64s = npt.NDArray[np.uint64]
Headers = npt.NDArray[Any]  # structured, of HEADER

# What a spill holds of each record beside its bytes.
HEADER = np.dtype(
    [
        ("key", "<u8"),  # the order of the records, and the group of their duplicates
        ("source_hash", "<u8"),
        ("row", "<u8"),  # of its source, from 0
        ("source_length", "<u4"),  # ids, BOS and EOS counted
        ("target_length", "<u4"),
        ("size", "<u4"),  # bytes of the record
    ]
)

_SPILL_MAGIC = b"ttspill1"
_FOOTER_END = struct.Struct("<Q8s")
_FRAMED_AT_ONCE = 4096  # records


# Records.


@functools.cache
def _example_class() -> type[Any]:
    """Makes the class of tf.train.Example in a pool of its own.

    TensorFlow, where it is loaded too, has registered the real name in the default pool.
    """
    field = descriptor_pb2.FieldDescriptorProto
    proto = descriptor_pb2.FileDescriptorProto(
        name="tt/example.proto", package="tt", syntax="proto3"
    )

    def add(
        message: Any, name: str, number: int, kind: int, of: str | None = None, **more: Any
    ) -> Any:
        return message.field.add(name=name, number=number, type=kind, type_name=of, **more)

    repeated, optional = field.LABEL_REPEATED, field.LABEL_OPTIONAL
    numbers = proto.message_type.add(name="Int64List")
    add(numbers, "value", 1, field.TYPE_INT64, label=repeated)
    feature = proto.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    add(
        feature, "int64_list", 3, field.TYPE_MESSAGE, ".tt.Int64List", label=optional, oneof_index=0
    )
    features = proto.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, field.TYPE_STRING, label=optional)
    add(entry, "value", 2, field.TYPE_MESSAGE, ".tt.Feature", label=optional)
    add(features, "feature", 1, field.TYPE_MESSAGE, ".tt.Features.FeatureEntry", label=repeated)
    example = proto.message_type.add(name="Example")
    add(example, "features", 1, field.TYPE_MESSAGE, ".tt.Features", label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    made: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("tt.Example"))
    return made


class ExampleWriter:
    """Serialises pairs of ids; one message is filled again and again, which is 4 times faster."""

    def __init__(self) -> None:
        self._example = _example_class()()
        feature = self._example.features.feature
        self._source = feature[SOURCE_FEATURE].int64_list.value
        self._target = feature[TARGET_FEATURE].int64_list.value

    def serialize(self, source_ids: list[int], target_ids: list[int]) -> bytes:
        """Returns the bytes of the tf.train.Example, the same as TensorFlow's."""
        self._source[:] = source_ids
        self._target[:] = target_ids
        record: bytes = self._example.SerializePartialToString(deterministic=True)
        return record


def parse_record(record: bytes) -> tuple[list[int], list[int]]:
    """Returns the source and target ids of a record.

    >>> parse_record(ExampleWriter().serialize([2, 17, 3], [2, 3]))
    ([2, 17, 3], [2, 3])
    """
    feature = _example_class().FromString(record).features.feature
    return (
        list(feature[SOURCE_FEATURE].int64_list.value),
        list(feature[TARGET_FEATURE].int64_list.value),
    )


# https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.lru_cache(maxsize=4096)
def _length_header(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + _masked_crc(length)


def frame_records(records: Iterable[bytes]) -> bytes:
    """Returns records as they stand in a TFRecord file."""
    parts: list[bytes] = []
    for record in records:
        parts += (_length_header(len(record)), record, _masked_crc(record))
    return b"".join(parts)


# Keys.


def hash_text(text: str) -> bytes:
    """Returns the hash of a text that decides its split; it does not depend on the seed."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def seed_key(seed: int) -> bytes:
    """Returns the key that `hash_pair` takes for a seed."""
    return seed.to_bytes(8, "little", signed=True)


def hash_pair(source_hash: bytes, target: str, *, key: bytes) -> bytes:
    """Returns the hash that orders pairs: equal for duplicates, and random under each seed."""
    return hashlib.blake2b(source_hash + target.encode(), digest_size=8, key=key).digest()


def bucket_bounds(buckets: int) -> UInt64s:
    """Returns the least key of each bucket but the first."""
    return np.array([-(-(i << 64) // buckets) for i in range(1, buckets)], np.uint64)


# Spills.


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """How the records of a split are spread: `shards` files of `buckets_per_shard` buckets."""

    shards: int
    buckets_per_shard: int

    @property
    def buckets(self) -> int:
        """The number of buckets of all shards."""
        return self.shards * self.buckets_per_shard


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """Where the records of one shard lie in a spill, bucket after bucket.

    Attributes:
      path: The spill.
      order: The place of the spill's source among all sources.
      offset: Where the first bucket begins.
      counts: Records of each bucket.
      sizes: Bytes of each bucket: its headers, then its records.
      is_candidate: Copies of records of the train split, for a validation split that would
        stay empty.
    """

    path: str
    order: int
    offset: int
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    is_candidate: bool = False


@dataclasses.dataclass(frozen=True)
class Batch:
    """Records with their headers, in the same order."""

    headers: Headers
    records: list[bytes]

    def select(self, rows: npt.NDArray[Any]) -> Batch:
        """Returns the records at these positions, in this order."""
        return Batch(self.headers[rows], [self.records[row] for row in rows.tolist()])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpillPart:
    """Records of one split on their way into a spill."""

    split: str
    batch: Batch
    plan: SplitPlan
    is_candidate: bool = False


def write_spill(
    path: str,
    parts: Sequence[SpillPart],
    *,
    order: int,
    statistics: dict[str, Any],
    temporary_folder: str,
) -> list[tuple[tuple[str, int], Region]]:
    """Writes a unit's records and returns where those of each (split, shard) lie.

    Args:
      path: The spill file.
      parts: The records, by split.
      order: The place of the unit's source among all sources.
      statistics: What a rerun wants to know of the unit; JSON.
      temporary_folder: Where the file lies until it is whole.
    """
    regions: list[tuple[tuple[str, int], Region]] = []
    with files.write_whole(path, temporary_folder=temporary_folder) as file:
        offset = 0
        for part in parts:
            batch = part.batch.select(np.argsort(part.batch.headers["key"], kind="stable"))
            plan = part.plan
            cuts = np.searchsorted(batch.headers["key"], bucket_bounds(plan.buckets))
            bounds = [0, *cuts.tolist(), len(batch.records)]
            for shard in range(plan.shards):
                counts, sizes = [], []
                first = shard * plan.buckets_per_shard
                for bucket in range(first, first + plan.buckets_per_shard):
                    begin, end = bounds[bucket], bounds[bucket + 1]
                    headers = batch.headers[begin:end].tobytes()
                    records = b"".join(batch.records[begin:end])
                    file.write(headers)
                    file.write(records)
                    counts.append(end - begin)
                    sizes.append(len(headers) + len(records))
                if any(counts):
                    region = Region(
                        path=path,
                        order=order,
                        offset=offset,
                        counts=tuple(counts),
                        sizes=tuple(sizes),
                        is_candidate=part.is_candidate,
                    )
                    regions.append(((part.split, shard), region))
                offset += sum(sizes)
        footer = {
            "statistics": statistics,
            "regions": [
                [split, shard, region.offset, region.counts, region.sizes, region.is_candidate]
                for (split, shard), region in regions
            ],
        }
        text = json.dumps(footer).encode()
        file.write(text + _FOOTER_END.pack(len(text), _SPILL_MAGIC))
    return regions


def read_spill_footer(
    path: str, *, order: int
) -> tuple[list[tuple[tuple[str, int], Region]], dict[str, Any]]:
    """Returns what `write_spill` returned, and the unit's statistics."""
    size = files.file_identity(path)["bytes"]
    with files.open_binary(path) as file:
        file.seek(size - _FOOTER_END.size)
        length, magic = _FOOTER_END.unpack(file.read(_FOOTER_END.size))
        if magic != _SPILL_MAGIC:
            raise ValueError(f"{path} is not a spill of this version")
        file.seek(size - _FOOTER_END.size - length)
        footer = json.loads(file.read(length))
    regions = [
        (
            (split, shard),
            Region(
                path=path,
                order=order,
                offset=offset,
                counts=tuple(counts),
                sizes=tuple(sizes),
                is_candidate=is_candidate,
            ),
        )
        for split, shard, offset, counts, sizes, is_candidate in footer["regions"]
    ]
    return regions, footer["statistics"]


def read_bucket(region: Region, bucket: int) -> Batch:
    """Reads one bucket of a region."""
    count, size = region.counts[bucket], region.sizes[bucket]
    if not count:
        return Batch(np.empty(0, HEADER), [])
    with files.open_binary(region.path) as file:
        file.seek(region.offset + sum(region.sizes[:bucket]))
        data = file.read(size)
    headers = np.frombuffer(data, HEADER, count)
    ends = (np.cumsum(headers["size"], dtype=np.int64) + headers.nbytes).tolist()
    starts = [headers.nbytes, *ends[:-1]]
    return Batch(headers, [data[a:b] for a, b in zip(starts, ends, strict=True)])


# Merging.


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a pair stands: the source's place among all sources, and the row from 0."""

    order: int
    row: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedBucket:
    """A bucket of a shard.

    Attributes:
      batch: The records, in their final order.
      orders: The source of each, by its place among all sources.
      rejected: Reason and place of each record left out, and the place of the one that was
        kept instead of a duplicate.
    """

    batch: Batch
    orders: npt.NDArray[np.int64]
    rejected: list[tuple[str, Place, Place | None]]


def merge_bucket(
    batches: Sequence[tuple[int, Batch]],
    *,
    removed: UInt64s | None = None,
    moved: int | None = None,
    only: int | None = None,
) -> MergedBucket:
    """Sorts the records of a bucket from all spills and drops duplicates.

    Of equal pairs the one with the least (source order, row) is kept, so that the result does
    not depend on who worked on what, or when.

    Args:
      batches: The source's order and the records, of each spill.
      removed: Hashes of sources that stand in held-out files: their pairs are rejected.
      moved: Hash of a source that was moved to another split: its pairs are passed over.
      only: Hash of a source: all pairs of others are passed over.
    """
    headers = np.concatenate([np.empty(0, HEADER), *(batch.headers for _, batch in batches)])
    orders = np.repeat(
        np.array([order for order, _ in batches], np.int64),
        [len(batch.records) for _, batch in batches],
    )
    records = [record for _, batch in batches for record in batch.records]
    ranks = np.lexsort((headers["row"], orders, headers["key"]))
    if moved is not None:
        ranks = ranks[headers["source_hash"][ranks] != moved]
    if only is not None:
        ranks = ranks[headers["source_hash"][ranks] == only]

    rejected: list[tuple[str, Place, Place | None]] = []
    if removed is not None and removed.size:
        stays = ~np.isin(headers["source_hash"][ranks], removed)
        for i in ranks[~stays].tolist():
            rejected.append((IN_VALIDATION, Place(int(orders[i]), int(headers["row"][i])), None))
        ranks = ranks[stays]

    keys = headers["key"][ranks]
    is_survivor = np.ones(len(ranks), bool)
    survivors: dict[tuple[int, bytes], Place] = {}
    for position in _positions_of_equal_keys(keys):
        i = int(ranks[position])
        place = Place(int(orders[i]), int(headers["row"][i]))
        # Hashes may collide: only equal records are duplicates.
        survivor = survivors.setdefault((int(keys[position]), records[i]), place)
        if survivor is not place:
            is_survivor[position] = False
            rejected.append((DUPLICATE_PAIR, place, survivor))
    ranks = ranks[is_survivor]
    return MergedBucket(
        batch=Batch(headers, records).select(ranks), orders=orders[ranks], rejected=rejected
    )


def _positions_of_equal_keys(keys: UInt64s) -> list[int]:
    """Returns the positions, in sorted keys, of those that occur more than once."""
    same_as_last = np.concatenate([[False], keys[1:] == keys[:-1]])
    same_as_next = np.concatenate([keys[1:] == keys[:-1], [False]])
    positions: list[int] = np.flatnonzero((same_as_last | same_as_next)[: len(keys)]).tolist()
    return positions


def framed_runs(records: Sequence[bytes]) -> Iterator[bytes]:
    """Frames records a few thousand at a time."""
    for i in range(0, len(records), _FRAMED_AT_ONCE):
        yield frame_records(records[i : i + _FRAMED_AT_ONCE])
