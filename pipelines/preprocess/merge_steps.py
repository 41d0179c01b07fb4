"""The step of the preprocess job from spills to shards, and the statistics of a shard."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq

from model.dataset.manifest import (
    HISTOGRAM_STEP,
    PADDING_BATCH,
    TRAIN,
    VALIDATION,
    ratio_places,
    shard_name,
)
from model.dataset.tfrecords import framed_runs
from pipelines.corpora.source import Source
from pipelines.pairs.encoding import EncodingOptions, UnitStatistics
from pipelines.pairs.rejected import REJECTED_SCHEMA, SourceNames, duplicates_tables
from pipelines.pairs.spills import Headers, Places, Region, merge_bucket, read_bucket
from pipelines.pairs.work_folder import WorkFolder
from pipelines.storage import files
from pipelines.storage.paths import join

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)
ShardKey = tuple[str, int]  # split, shard


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardStatistics:
    """What merging a shard kept and left out, the latter by source and reason."""

    split: str
    shard: int
    records: int
    source_tokens: int
    target_tokens: int
    longest: int
    source_lengths: list[int]
    target_lengths: list[int]
    length_ratios: list[int]
    padded_as_stored: int
    padded_by_length: int
    kept_by_source: dict[int, int]
    rejected_by_source: dict[int, dict[str, int]]
    size: int

    def to_json(self) -> str:
        """Returns it as text, for a rerun."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardStatistics:
        """Reads what `to_json` returned; JSON has made the orders of sources texts."""
        values = json.loads(text)
        for name in ("kept_by_source", "rejected_by_source"):
            values[name] = {int(order): value for order, value in values[name].items()}
        return cls(**values)


class ShardCounter:
    """Counts the records of a shard while they are written."""

    def __init__(self, *, split: str, shard: int) -> None:
        self._split = split
        self._shard = shard
        self._records = 0
        self._tokens = [0, 0]
        self._longest = 0
        self._lengths = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
        self._ratios = np.zeros(1, np.int64)
        self._padded_as_stored = 0
        self._padded_by_length = 0
        self._kept: collections.Counter[int] = collections.Counter()
        self._rejected: dict[int, collections.Counter[str]] = {}

    def count_kept(self, headers: Headers, places: Places) -> None:
        """Counts written records."""
        self._records += len(headers)
        both = [headers[name].astype(np.int64) for name in ("source_length", "target_length")]
        self._ratios = add_counts(self._ratios, np.bincount(ratio_places(*both), minlength=1))
        for side, lengths in enumerate(both):
            self._tokens[side] += int(lengths.sum())
            self._longest = max(self._longest, int(lengths.max(initial=0)))
            self._lengths[side] = add_counts(
                self._lengths[side], np.bincount(lengths // HISTOGRAM_STEP, minlength=1)
            )
            self._padded_by_length += int((-(-lengths // HISTOGRAM_STEP) * HISTOGRAM_STEP).sum())
            starts = np.arange(0, len(lengths), PADDING_BATCH)
            if starts.size:
                sizes = np.diff(starts, append=len(lengths))
                self._padded_as_stored += int((np.maximum.reduceat(lengths, starts) * sizes).sum())
        values, counts = np.unique(places.orders, return_counts=True)
        self._kept.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def count_rejected(self, reason: str, places: Places) -> None:
        """Counts records that were left out."""
        values, counts = np.unique(places.orders, return_counts=True)
        for order, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._rejected.setdefault(order, collections.Counter())[reason] += count

    def statistics(self, *, size: int) -> ShardStatistics:
        """Returns the counts, of a shard of `size` bytes."""
        return ShardStatistics(
            split=self._split,
            shard=self._shard,
            records=self._records,
            source_tokens=self._tokens[0],
            target_tokens=self._tokens[1],
            longest=self._longest,
            source_lengths=self._lengths[0].tolist(),
            target_lengths=self._lengths[1].tolist(),
            length_ratios=self._ratios.tolist(),
            padded_as_stored=self._padded_as_stored,
            padded_by_length=self._padded_by_length,
            kept_by_source=dict(self._kept),
            rejected_by_source={order: dict(c) for order, c in self._rejected.items()},
            size=size,
        )


def add_counts(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Adds counts of which one list may be the longer."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


@_transform
class MergeShards(beam.PTransform):
    """Merges the regions of each shard into its TFRecord file; yields ShardStatistics.

    Attributes:
      units: PCollection of UnitStatistics.
      sources: All sources.
      has_held_out: Whether some are held out; then none else is for validation.
      options: Options of encoding and splitting.
      output: The dataset folder.
      work: The work folder, for temporaries.
    """

    units: beam.PCollection
    sources: Sequence[Source]
    has_held_out: bool
    options: EncodingOptions
    output: str
    work: WorkFolder

    def expand(self, regions: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        # Every shard is written, those that no unit has records for too.
        keys = [
            ((s, i), None) for s, plan in self.options.plans.items() for i in range(plan.shards)
        ]
        nothing = regions.pipeline | "Start shards" >> beam.Create(keys)
        moved = self.units | "Find moved source" >> beam.CombineGlobally(
            _FindMoved(self.options.validation_below, has_held_out=self.has_held_out)
        )
        return (
            (nothing, regions)
            | "All regions" >> beam.Flatten()
            | "Group by shard" >> beam.GroupByKey()
            | "Merge" >> beam.ParDo(_Merge(config=self), beam.pvalue.AsSingleton(moved))
        )


class _FindMoved(beam.CombineFn):
    """Combines UnitStatistics to the hash of the one source that is moved to validation, if any.

    Where no source of the whole corpus hashes below the limit, the pairs with the least hash are
    moved there from train: a validation split is never empty.
    """

    def __init__(self, validation_below: int, *, has_held_out: bool) -> None:
        self._validation_below = validation_below
        self._has_held_out = has_held_out

    def create_accumulator(self) -> int | None:
        return None

    def add_input(self, accumulator: int | None, unit: UnitStatistics) -> int | None:
        return self.merge_accumulators([accumulator, unit.least_source_hash])

    def merge_accumulators(self, accumulators: Iterable[int | None]) -> int | None:
        return min((least for least in accumulators if least is not None), default=None)

    def extract_output(self, accumulator: int | None) -> int | None:
        is_needed = (
            not self._has_held_out
            and accumulator is not None
            and accumulator >= self._validation_below
        )
        return accumulator if is_needed else None


class _Merge(beam.DoFn):
    def __init__(self, *, config: MergeShards) -> None:
        self._config = config

    def setup(self) -> None:
        self._names = SourceNames(self._config.sources)

    def process(
        self, element: tuple[ShardKey, Iterable[Region | None]], moved: int | None
    ) -> Iterator[ShardStatistics]:
        (split, shard), found = element
        work = self._config.work
        done = work.shard_statistics(split, shard)
        if files.is_there(done):
            yield ShardStatistics.from_json(files.read_bytes(done))
            return
        regions = sorted(
            (r for r in found if r and (moved is not None or not r.is_candidate)),
            key=lambda region: (region.order, region.index),
        )
        statistics = self._merge(split, shard, regions, moved)
        work.write_text(done, statistics.to_json())
        yield statistics

    def _merge(
        self, split: str, shard: int, regions: Sequence[Region], moved: int | None
    ) -> ShardStatistics:
        config = self._config
        work, plan = config.work, config.options.plans[split]
        reason = f"duplicate_{config.options.deduplicate}"
        # Validation corpora keep copies of pairs.
        deduplicates = config.options.deduplicate != "none" and not (
            config.has_held_out and split == VALIDATION
        )
        counter = ShardCounter(split=split, shard=shard)
        path = join(config.output, shard_name(split, shard, plan.shards))
        rejected_path = join(
            config.output, f"rejected-{split}-{shard:05d}-of-{plan.shards:05d}.parquet"
        )
        size = 0
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(work.write_whole(path))
            rejected: pq.ParquetWriter | None = None
            for bucket in range(plan.buckets_per_shard):
                merged = merge_bucket(
                    [
                        (region.order, read_bucket(region, bucket))
                        for region in regions
                        if bucket < len(region.counts)
                    ],
                    deduplicate=deduplicates,
                    moved=moved if split == TRAIN else None,
                    only=moved if split == VALIDATION else None,
                )
                if not all(merged.batch.records):
                    raise RuntimeError(f"{path} would get a record without bytes")
                for run in framed_runs(merged.batch.records):
                    file.write(run)
                    size += len(run)
                counter.count_kept(merged.batch.headers, merged.places)
                if len(merged.duplicates.rows):
                    counter.count_rejected(reason, merged.duplicates)
                    if rejected is None:
                        rejected = opened.enter_context(
                            work.open_parquet_writer(rejected_path, REJECTED_SCHEMA)
                        )
                    for table in duplicates_tables(
                        merged.duplicates, merged.survivors, reason=reason, names=self._names
                    ):
                        rejected.write_table(table)
        return counter.statistics(size=size)
