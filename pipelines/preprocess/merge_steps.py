"""The steps of the preprocess job from spills to shards and the manifest, as transforms."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq

from model.dataset.manifest import (
    MANIFEST_FILE,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    digest_file,
    shard_name,
)
from model.dataset.tfrecords import framed_runs
from model.text.vocabulary import load_vocabularies
from pipelines.corpora.source import Source
from pipelines.pairs.encoding import EncodingOptions, UnitStatistics
from pipelines.pairs.rejected import REJECTED_SCHEMA, SourceNames, duplicates_tables
from pipelines.pairs.spills import Region, SplitPlan, merge_bucket, read_bucket
from pipelines.pairs.work_folder import WorkFolder
from pipelines.preprocess.accounts import (
    ShardCounter,
    ShardStatistics,
    check_splits,
    sum_sources,
    sum_split,
)
from pipelines.storage import files
from pipelines.storage.paths import join

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)

ShardKey = tuple[str, int]  # split, shard


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


@_transform
class WriteManifest(beam.PTransform):
    """Checks that every pair is accounted for and writes `dataset.json`, the last of all files.

    Attributes:
      units: PCollection of UnitStatistics.
      shards: PCollection of ShardStatistics.
      identities: Identities of all sources, the held-out ones last.
      held_out_from: Index of the first held-out source.
      plans: Shards and buckets of each split.
      draft: The manifest without what only the run finds out.
      output: The dataset folder.
      work: The work folder, for temporaries.
    """

    units: beam.PCollection
    shards: beam.PCollection
    identities: Sequence[dict[str, Any]]
    held_out_from: int
    plans: dict[str, SplitPlan]
    draft: DatasetManifest
    output: str
    work: WorkFolder

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        return (
            begin
            | "Draft" >> beam.Create([self.draft])
            | "Complete"
            >> beam.ParDo(
                _Complete(config=self),
                beam.pvalue.AsList(self.units),
                beam.pvalue.AsList(self.shards),
            )
        )


class _Complete(beam.DoFn):
    def __init__(self, *, config: WriteManifest) -> None:
        self._config = config

    def process(
        self,
        draft: DatasetManifest,
        units: list[UnitStatistics],
        shards: list[ShardStatistics],
    ) -> Iterator[str]:
        config = self._config
        self._check_all_arrived(units)
        sources = sum_sources(
            config.identities, held_out_from=config.held_out_from, units=units, shards=shards
        )
        splits = {split: sum_split(split, plan, shards) for split, plan in config.plans.items()}
        check_splits(splits[TRAIN], splits[VALIDATION], sources=sources)
        rejected: collections.Counter[str] = collections.Counter()
        for source in sources:
            rejected.update(source["rejected"])
        vocabularies = load_vocabularies(config.output, read=files.read_bytes)
        manifest = dataclasses.replace(
            draft,
            source_vocabulary_size=vocabularies.source.size,
            target_vocabulary_size=vocabularies.target.size,
            lines_read=sum(source["read"] for source in sources),
            pairs_kept=sum(source["kept"] for source in sources),
            rejected=dict(sorted(rejected.items())),
            sources=sources,
            splits=splits,
            vocabulary_digests={
                name: digest_file(files.read_bytes(join(config.output, name)))
                for name in vocabularies.files
            },
        )
        path = join(config.output, MANIFEST_FILE)
        config.work.write_text(path, manifest.to_json())
        yield path

    def _check_all_arrived(self, units: Sequence[UnitStatistics]) -> None:
        """Compares the units with those that the cutting steps have written down."""
        rows: collections.defaultdict[int, dict[int, int]] = collections.defaultdict(dict)
        for unit in units:
            if unit.index in rows[unit.order]:
                raise RuntimeError(f"unit {unit.index} of source {unit.order} arrived twice")
            rows[unit.order][unit.index] = unit.rows
        for order in range(len(self._config.identities)):
            expected = json.loads(files.read_bytes(self._config.work.index(order)))
            if [rows[order].get(index) for index in range(len(expected))] != expected:
                raise RuntimeError(
                    f"of source {order} arrived {rows[order]}, but its units have {expected} rows"
                )
