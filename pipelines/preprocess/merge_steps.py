"""The step of the preprocess job that merges spills into shards, and statistics of shards."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.dataset.manifest import (
    HISTOGRAM_STEP,
    TEST,
    VALIDATION,
    ratio_places,
    shard_name,
    table_name,
)
from tt.model.dataset.tfrecords import framed_runs, texts_of
from tt.model.storage import files, listing
from tt.model.storage.paths import join
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.rejected import (
    PARQUET_END,
    REJECTED_SCHEMA,
    TEXTS_SCHEMA,
    duplicates_tables,
    texts_table,
)
from tt.pipelines.preprocess.spills import Headers, MergedBucket, Region, merge_bucket, read_buckets
from tt.pipelines.preprocess.work_folder import ends_with

# Beam sets the label of a transform when it applies it, so these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)
_SIDES = ("source", "target")
ShardKey = tuple[str, int]  # (split, number of the shard)


@dataclasses.dataclass(kw_only=True)
class RecordStatistics:
    """Statistics of written records, counted one bucket at a time and added up."""

    records: int = 0  # number of records
    source_tokens: int = 0  # tokens on the source side, counting BOS and EOS
    target_tokens: int = 0  # tokens on the target side, counting BOS and EOS
    longest: int = 0  # most tokens on any side of any pair
    # Histogram of the lengths of the source side, as in `SplitInfo`.
    source_lengths: list[int] = dataclasses.field(default_factory=list)
    # Histogram of the lengths of the target side.
    target_lengths: list[int] = dataclasses.field(default_factory=list)
    # Histogram of the length ratios, as in `SplitInfo`.
    length_ratios: list[int] = dataclasses.field(default_factory=list)
    # Histogram of the length ratios of pairs whose target lacks the final full stop of the source.
    lost_end_ratios: list[int] = dataclasses.field(default_factory=list)
    # Number of records with at least 1, at least 2, ... placeholders, as in `SplitInfo`.
    placeholder_pairs: list[int] = dataclasses.field(default_factory=list)

    def count(self, headers: Headers) -> None:
        """Add the statistics of written records, given their headers."""
        source, target = (headers[f"{side}_length"].astype(np.int64) for side in _SIDES)
        places = ratio_places(source, target)
        counted = RecordStatistics(
            records=len(headers),
            longest=max(int(lengths.max(initial=0)) for lengths in (source, target)),
            source_tokens=int(source.sum()),
            target_tokens=int(target.sum()),
            source_lengths=np.bincount(source // HISTOGRAM_STEP).tolist(),
            target_lengths=np.bincount(target // HISTOGRAM_STEP).tolist(),
            length_ratios=np.bincount(places).tolist(),
            lost_end_ratios=np.bincount(places[headers["lost_end"]], minlength=1).tolist(),
            placeholder_pairs=_count_at_least(headers["placeholders"]),
        )
        self.add(counted)

    def add(self, other: RecordStatistics) -> None:
        """Add the statistics of other records."""
        for field in dataclasses.fields(RecordStatistics):
            own, others = getattr(self, field.name), getattr(other, field.name)
            if field.name == "longest":
                total = max(own, others)
            elif isinstance(own, list):
                total = add_counts(own, others)
            else:
                total = own + others
            setattr(self, field.name, total)


@dataclasses.dataclass(kw_only=True)
class ShardStatistics(RecordStatistics):
    """Statistics of merging a shard, counted while its records are written."""

    split: str
    shard: int  # number of the shard in the split, from 0
    # Number of kept pairs, and number of duplicates, by the position of their source.
    kept_by_source: dict[int, int] = dataclasses.field(default_factory=dict)
    duplicates_by_source: dict[int, int] = dataclasses.field(default_factory=dict)
    size: int = 0  # size of the shard in bytes

    def to_json(self) -> str:
        """Return the statistics as JSON, which a rerun reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardStatistics:
        """Read the JSON of `to_json`, in which positions of sources are strings.

        Raises:
          ValueError: The text is truncated.
        """
        values = json.loads(text)
        for name in ("kept_by_source", "duplicates_by_source"):
            values[name] = {int(order): value for order, value in values[name].items()}
        return cls(**values)

    def count_merged(self, bucket: MergedBucket) -> None:
        """Count the records and the duplicates of a bucket."""
        self.count(bucket.batch.headers)
        for headers, by_source in (
            (bucket.batch.headers, self.kept_by_source),
            (bucket.duplicates, self.duplicates_by_source),
        ):
            orders, counts = np.unique(headers["order"], return_counts=True)
            for order, count in zip(orders.tolist(), counts.tolist(), strict=True):
                by_source[order] = by_source.get(order, 0) + count


def _count_at_least(numbers: npt.NDArray[np.uint8]) -> list[int]:
    """Return how many numbers are at least 1, at least 2, and so on up to the largest number.

    >>> _count_at_least(np.array([0, 3, 1], np.uint8))
    [2, 1, 1]
    """
    exactly = np.bincount(numbers, minlength=1)[1:]
    counts: list[int] = np.cumsum(exactly[::-1])[::-1].tolist()
    return counts


def add_counts(*counts: Iterable[int]) -> list[int]:
    """Add histograms of different lengths.

    >>> add_counts([1, 2], [], [10, 20, 30])
    [11, 22, 30]
    """
    return [sum(places) for places in itertools.zip_longest(*counts, fillvalue=0)]


@_transform
class MergeShards(beam.PTransform):
    """Merge the regions of each shard into its TFRecord file; yield ShardStatistics."""

    plan: DatasetPlan

    def expand(self, regions: beam.PCollection) -> beam.PCollection:
        """Wire the steps."""
        # These keys make the step write all shards, even if no unit has records for a shard.
        splits = self.plan.splits.items()
        keys = [((name, i), None) for name, split in splits for i in range(split.shards)]
        nothing = regions.pipeline | "Start shards" >> beam.Create(keys)
        return (
            (nothing, regions)
            | "All regions" >> beam.Flatten()
            | "Group by shard" >> beam.GroupByKey()
            | "Merge" >> beam.ParDo(_Merge(self.plan))
        )


class _Merge(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan

    def process(
        self, element: tuple[ShardKey, Iterable[Region | None]]
    ) -> Iterator[ShardStatistics]:
        (split, shard), found = element
        if finished := self._find_finished(split, shard):
            yield finished
            return
        regions = sorted(
            (region for region in found if region), key=lambda region: (region.order, region.index)
        )
        statistics = self._merge(split, shard, regions)
        work = self._plan.work
        work.write_text(work.shard_statistics(split, shard), statistics.to_json())
        yield statistics

    def _find_finished(self, split: str, shard: int) -> ShardStatistics | None:
        """Return the statistics of a finished shard; None if one of its files is incomplete."""
        done = self._plan.work.shard_statistics(split, shard)
        if not listing.exists(done):
            return None
        try:
            statistics = ShardStatistics.from_json(files.read_bytes(done))
        except ValueError:  # truncated
            return None
        path, rejected_path = self._paths(split, shard)
        has_rejected = bool(statistics.duplicates_by_source)
        is_whole = (
            listing.find_size(path) == statistics.size
            and (not has_rejected or ends_with(rejected_path, PARQUET_END))
            and (split != TEST or ends_with(self._table_path(split, shard), PARQUET_END))
        )
        return statistics if is_whole else None

    def _paths(self, split: str, shard: int) -> tuple[str, str]:
        """Return the paths of a shard and of the table of its rejected pairs."""
        output = self._plan.options.output
        path = join(output, shard_name(split, shard, self._plan.splits[split].shards))
        return path, join(output, f"rejected-{PurePath(path).stem}.parquet")

    def _table_path(self, split: str, shard: int) -> str:
        """Return the path of the table with the texts of a shard."""
        name = table_name(split, shard, self._plan.splits[split].shards)
        return join(self._plan.options.output, name)

    def _merge(self, split: str, shard: int, regions: Sequence[Region]) -> ShardStatistics:
        work = self._plan.work
        spread, by = self._plan.splits[split], self._plan.options.deduplicate
        keeps_copies = self._plan.has_held_out and split == VALIDATION
        statistics = ShardStatistics(split=split, shard=shard)
        path, rejected_path = self._paths(split, shard)
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(work.write_whole(path))
            rejected: pq.ParquetWriter | None = None
            texts: pq.ParquetWriter | None = None
            if split == TEST:
                path_of_texts = self._table_path(split, shard)
                texts = opened.enter_context(work.open_parquet_writer(path_of_texts, TEXTS_SCHEMA))
            for batches in read_buckets(regions, buckets=spread.buckets_per_shard):
                merged = merge_bucket(batches, deduplicate=by != "none" and not keeps_copies)
                if not pc.binary_length(merged.batch.records).to_numpy().all():
                    raise RuntimeError(f"{path} would get an empty record")
                for run in framed_runs(merged.batch.records):
                    file.write(run)
                    statistics.size += len(run)
                statistics.count_merged(merged)
                if texts:
                    pairs = map(texts_of, merged.batch.records.to_pylist())
                    headers = merged.batch.headers
                    texts.write_table(texts_table(headers, pairs, sources=self._plan.source_list))
                for table in duplicates_tables(
                    merged, reason=self._plan.duplicate_reason, sources=self._plan.source_list
                ):
                    rejected = rejected or opened.enter_context(
                        work.open_parquet_writer(rejected_path, REJECTED_SCHEMA)
                    )
                    rejected.write_table(table)
                del batches, merged  # frees memory before the next buckets are read
        return statistics
