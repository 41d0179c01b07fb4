"""Spill files, which carry records from units to shards, and the merge of a bucket.

Each unit writes its records to one spill, sorted by bucket. A bucket is a range of digests.
Duplicates have equal digests, so they are always in the same bucket. A shard is a run of buckets. A
worker writes a shard by reading its buckets, one after the other, from all spills.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.dataset.tfrecords import cut_bytes, uncut_bytes
from tt.model.storage import files, listing
from tt.pipelines.preprocess.held_out import UInt64s
from tt.pipelines.preprocess.work_folder import WorkFolder

Headers = npt.NDArray[Any]  # a structured array of HEADER

# A spill stores this header for each record, separate from the bytes of the record.
HEADER = np.dtype(
    [
        ("group_high", "<u8"),  # digest of the pair, or of the side in which duplicates are equal
        ("group_low", "<u8"),
        ("key", "<u8"),  # sort key of the record inside its bucket
        ("source_hash", "<u8"),  # decides the split
        ("row", "<u8"),  # row in the source, from 0
        ("order", "<u4"),  # position of the source among all sources
        ("source_length", "<u4"),  # number of token ids, counting BOS and EOS
        ("target_length", "<u4"),
        ("placeholders", "u1"),  # number of placeholders on each side
        ("lost_end", "?"),  # whether the source ends with a full stop but the target does not
        ("size", "<u4"),  # bytes of the record; 0 for a duplicate of a record in the same unit
    ]
)

# Neighboring buckets of all spills are read together, up to about this many bytes.
READ_BYTES = 80 << 20

_TAIL_BYTES = 64 << 10  # contains the complete footer, unless there are very many shards
_MAGIC = b"ttspill8"
_FOOTER_END = struct.Struct("<Q8s")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """The number of shards of a split, and the number of buckets in each shard."""

    shards: int
    buckets_per_shard: int

    @property
    def buckets(self) -> int:
        """The number of buckets in all shards."""
        return self.shards * self.buckets_per_shard


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """The place of a shard's records in a spill, bucket after bucket."""

    path: str  # path of the spill
    order: int  # position of the first source of the unit's group among all sources
    index: int  # position of the unit in its group
    counts: list[int]  # number of records in each bucket
    # Offsets where the buckets begin, and where the last bucket ends. In a bucket, the headers come
    # before the records.
    bounds: list[int]


RegionOfShard = tuple[tuple[str, int], Region]  # the key is (split, shard)


class SpillFooter(NamedTuple):
    """The footer of a spill."""

    regions: list[RegionOfShard]  # places of the records of each (split, shard)
    statistics: dict[str, Any]  # statistics of the unit
    vocabulary: dict[str, str]  # digests of the vocabularies that encoded the records, by file name


@dataclasses.dataclass(frozen=True)
class Batch:
    """Records with their headers, in the same order."""

    headers: Headers
    records: pa.LargeBinaryArray

    def select(self, rows: npt.NDArray[Any]) -> Batch:
        """Return the records at these positions, in this order."""
        return Batch(self.headers[rows], self.records.take(pa.array(rows)))


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Return the records of all batches, in order."""
    headers = np.concatenate([np.empty(0, HEADER), *(batch.headers for batch in batches)])
    nothing = pa.array([], pa.large_binary())
    return Batch(headers, pa.concat_arrays([nothing, *(batch.records for batch in batches)]))


def bucket_bounds(buckets: int) -> UInt64s:
    """Return the smallest digest of each bucket except the first."""
    return np.array([-(-(i << 64) // buckets) for i in range(1, buckets)], np.uint64)


def without_copies(batch: Batch) -> Batch:
    """Drop the bytes of each duplicate, and keep all headers.

    A pair that occurs a million times in a unit then takes the space of one record.
    """
    is_copy = _first_of_group(batch.headers) != np.arange(len(batch.records))
    headers = batch.headers.copy()
    headers["size"][is_copy] = 0
    nothing = pa.scalar(b"", pa.large_binary())
    return Batch(headers, pc.if_else(pa.array(is_copy), nothing, batch.records))


def write_spill(
    path: str,
    parts: Mapping[str, Batch],
    *,
    plans: Mapping[str, SplitPlan],
    order: int,
    index: int,
    statistics: dict[str, Any],
    vocabulary: dict[str, str],
    work: WorkFolder,
) -> list[RegionOfShard]:
    """Write the records of a unit to a spill, and return the region of each (split, shard).

    The file has a temporary name in the work folder until it is complete.

    Args:
      path: Path of the spill.
      parts: The records of each split, in the order of their rows.
      plans: The shards and buckets of each split.
      order: Position of the first source of the unit's group among all sources.
      index: Position of the unit in its group.
      statistics: Statistics of the unit as JSON values, for a rerun.
      vocabulary: Digests of the vocabularies that encoded the records, by file name.
      work: The work folder.
    """
    regions: list[RegionOfShard] = []
    with work.write_whole(path) as file:
        offset = 0
        for split, part in parts.items():
            plan = plans[split]
            buckets = np.searchsorted(
                bucket_bounds(plan.buckets), part.headers["group_high"], side="right"
            )
            batch = part.select(np.argsort(buckets, kind="stable"))
            data, cuts = uncut_bytes(batch.records)
            bounds = [0, *np.cumsum(np.bincount(buckets, minlength=plan.buckets)).tolist()]
            for shard in range(plan.shards):
                counts, region_bounds = [], [offset]
                first = shard * plan.buckets_per_shard
                of_shard = bounds[first : first + plan.buckets_per_shard + 1]
                for begin, end in itertools.pairwise(of_shard):
                    headers = batch.headers[begin:end].tobytes()
                    records = bytes(data[cuts[begin] : cuts[end]])
                    file.write(headers)
                    file.write(records)
                    counts.append(end - begin)
                    offset += len(headers) + len(records)
                    region_bounds.append(offset)
                if any(counts):
                    region = Region(
                        path=path,
                        order=order,
                        index=index,
                        counts=counts,
                        bounds=region_bounds,
                    )
                    regions.append(((split, shard), region))
        footer = {
            "statistics": statistics,
            "vocabulary": vocabulary,
            "regions": [[*key, dataclasses.asdict(region)] for key, region in regions],
        }
        text = json.dumps(footer).encode()
        file.write(text + _FOOTER_END.pack(len(text), _MAGIC))
    return regions


def find_spill(path: str) -> SpillFooter | None:
    """Return the footer of a spill; None if it is missing, truncated or of another version."""
    size = listing.find_size(path) or 0
    if size < _FOOTER_END.size:
        return None
    tail = files.read_range(path, max(0, size - _TAIL_BYTES), size)
    length, magic = _FOOTER_END.unpack(tail[-_FOOTER_END.size :])
    begin = size - _FOOTER_END.size - length
    if magic != _MAGIC or begin < 0:
        return None
    if length > len(tail) - _FOOTER_END.size:
        tail = files.read_range(path, begin, size)
    try:
        footer = json.loads(tail[-length - _FOOTER_END.size : -_FOOTER_END.size])
    except ValueError:
        return None
    regions = [
        ((split, shard), Region(**values | {"path": path}))  # The folder may have been moved.
        for split, shard, values in footer["regions"]
    ]
    end = regions[-1][1].bounds[-1] if regions else 0
    return (
        SpillFooter(regions, footer["statistics"], footer["vocabulary"]) if end == begin else None
    )


def read_buckets(
    regions: Sequence[Region], *, buckets: int, most_bytes: int = READ_BYTES
) -> Iterator[list[Batch]]:
    """Yield the records of each region, bucket after bucket of a shard.

    The buckets of a region are contiguous, so neighboring buckets are read with one request per
    spill. A run of buckets has at most `most_bytes` in all regions, or is a single larger bucket.
    """
    sizes = np.zeros(buckets, np.int64)
    for region in regions:
        sizes[: len(region.counts)] += np.diff(region.bounds)
    for run in _runs_within(sizes.tolist(), most=most_bytes):
        found: list[list[Batch]] = [[] for _ in run]
        reached = [region for region in regions if any(region.counts[run.start : run.stop])]
        wanted = [
            (r.path, r.bounds[run.start], r.bounds[min(run.stop, len(r.counts))]) for r in reached
        ]
        for region, data in zip(reached, files.read_ranges(wanted), strict=True):
            for bucket in range(run.start, min(run.stop, len(region.counts))):
                if count := region.counts[bucket]:
                    offset = region.bounds[bucket] - region.bounds[run.start]
                    found[bucket - run.start].append(_parse(data, offset, count))
        for place in range(len(run)):
            yield found[place]
            found[place] = []  # frees the memory of merged records


def _runs_within(sizes: Sequence[int], *, most: int) -> Iterator[range]:
    """Cut a sequence into runs with a total size of at most `most`, or with one larger item.

    >>> list(_runs_within([4, 5, 1, 99, 0, 3], most=10))
    [range(0, 3), range(3, 4), range(4, 6)]
    """
    begin = total = 0
    for place, size in enumerate(sizes):
        if place > begin and total + size > most:
            yield range(begin, place)
            begin, total = place, 0
        total += size
    if begin < len(sizes):
        yield range(begin, len(sizes))


def _parse(data: bytes, begin: int, count: int) -> Batch:
    headers = np.frombuffer(data, HEADER, count, begin).copy()  # A view would keep `data` alive.
    records = pa.py_buffer(data)[begin + headers.nbytes :]
    return Batch(headers, cut_bytes(records, headers["size"]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedBucket:
    """A bucket of a shard, after the merge."""

    batch: Batch  # the kept records, in their final order
    duplicates: Headers  # headers of the dropped pairs, in order
    survivors: Headers  # for each dropped pair, the header of the kept pair


def merge_bucket(batches: Sequence[Batch], *, deduplicate: bool = True) -> MergedBucket:
    """Merge the records of a bucket from all spills: drop duplicates, and sort the rest.

    Each group of duplicates keeps the pair with the smallest (position of the source, row). The
    result therefore does not depend on the distribution of the work.

    Args:
      batches: The records of each spill, sorted by the position of their source and by row.
      deduplicate: Whether to drop duplicates.
    """
    merged = join_batches(batches)
    headers = merged.headers
    positions = np.arange(len(headers))
    survivors = _first_of_group(headers) if deduplicate else positions
    is_kept = survivors == positions
    kept = positions[is_kept]
    kept = kept[np.argsort(headers["key"][kept], kind="stable")]
    dropped = positions[~is_kept]
    return MergedBucket(
        batch=merged.select(kept),
        duplicates=headers[dropped],
        survivors=headers[survivors[dropped]],
    )


def _first_of_group(headers: Headers) -> npt.NDArray[np.int64]:
    """Return, for each record, the position of the first record of its group."""
    ranks = np.lexsort((headers["group_low"], headers["group_high"]))
    high, low = headers["group_high"][ranks], headers["group_low"][ranks]
    is_same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    # The sort is stable, so the first record in a run of equal digests is the first of its group.
    starts = np.where(np.concatenate([[False], is_same]), 0, np.arange(len(headers)))
    first = np.empty(len(headers), np.int64)
    first[ranks] = ranks[np.maximum.accumulate(starts)]
    return first
