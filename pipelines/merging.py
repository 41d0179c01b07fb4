"""The steps of the preprocess job from spills to shards and the manifest, as transforms."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems

from model.artifacts import MANIFEST_FILE, TRAIN, VALIDATION, DatasetManifest, shard_name
from model.vocabulary import load_vocabularies
from pipelines import files
from pipelines.accounting import (
    Rejection,
    ShardCounter,
    ShardStatistics,
    UnitStatistics,
    check_splits,
    rejected_table,
    sum_sources,
    sum_split,
)
from pipelines.encoding import EncodingOptions
from pipelines.records import (
    Region,
    SplitPlan,
    UInt64s,
    framed_runs,
    merge_bucket,
    read_bucket,
)
from pipelines.sources import Source

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)

ShardKey = tuple[str, int]  # split, shard


class ValidationSources(NamedTuple):
    """What only the whole corpus tells of the validation split.

    Attributes:
      moved: Where no source hashes below the limit: the least hash, whose pairs are moved from
        train to validation.
      held_out: Hashes of the sources in held-out corpora, sorted.
    """

    moved: int | None
    held_out: UInt64s


@_transform
class MergeShards(beam.PTransform):
    """Merges the regions of each shard into its TFRecord file; yields ShardStatistics.

    Attributes:
      units: PCollection of UnitStatistics.
      sources: All of them.
      has_held_out: Whether some are held out; then none else is for validation.
      options: How pairs are encoded and split.
      output: The dataset folder.
      work_folder: For temporaries.
    """

    units: beam.PCollection
    sources: Sequence[Source]
    has_held_out: bool
    options: EncodingOptions
    output: str
    work_folder: str

    def expand(self, regions: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        # Every shard is written, those that no unit has records for too.
        keys = [
            ((s, i), None) for s, plan in self.options.plans.items() for i in range(plan.shards)
        ]
        nothing = regions.pipeline | "Start shards" >> beam.Create(keys)
        validation = self.units | "Validation sources" >> beam.CombineGlobally(
            _FindValidationSources(self.options.validation_below, has_held_out=self.has_held_out)
        )
        return (
            (nothing, regions)
            | "All regions" >> beam.Flatten()
            | "Group by shard" >> beam.GroupByKey()
            | "Merge"
            >> beam.ParDo(
                _Merge(self.sources, self.options, self.output, self.work_folder),
                beam.pvalue.AsSingleton(validation),
            )
        )


class _FindValidationSources(beam.CombineFn):
    """Combines UnitStatistics to ValidationSources."""

    def __init__(self, validation_below: int, *, has_held_out: bool) -> None:
        self._validation_below = validation_below
        self._has_held_out = has_held_out

    def create_accumulator(self) -> ValidationSources:
        return ValidationSources(None, np.empty(0, np.uint64))

    def add_input(self, accumulator: ValidationSources, unit: UnitStatistics) -> ValidationSources:
        held_out = np.frombuffer(bytes.fromhex(unit.held_out), "<u8")
        return self.merge_accumulators(
            [accumulator, ValidationSources(unit.least_source_hash, held_out)]
        )

    def merge_accumulators(self, accumulators: Iterable[ValidationSources]) -> ValidationSources:
        parts = list(accumulators)
        hashes = [part.moved for part in parts if part.moved is not None]
        held_out = np.unique(np.concatenate([part.held_out for part in parts]))
        return ValidationSources(min(hashes, default=None), held_out)

    def extract_output(self, accumulator: ValidationSources) -> ValidationSources:
        least, held_out = accumulator
        is_needed = not self._has_held_out and least is not None and least >= self._validation_below
        return ValidationSources(least if is_needed else None, held_out)


class _Merge(beam.DoFn):
    def __init__(
        self, sources: Sequence[Source], options: EncodingOptions, output: str, work_folder: str
    ) -> None:
        self._sources = sources
        self._options = options
        self._output = output
        self._work_folder = work_folder

    def process(
        self,
        element: tuple[ShardKey, Iterable[Region | None]],
        validation: ValidationSources,
    ) -> Iterator[ShardStatistics]:
        (split, shard), found = element
        is_moving = validation.moved is not None
        regions = sorted(
            (r for r in found if r and (is_moving or not r.is_candidate)),
            key=lambda region: region.path,
        )
        plan = self._options.plans[split]
        counter = ShardCounter(split=split, shard=shard)
        rejections: list[Rejection] = []
        path = FileSystems.join(self._output, shard_name(split, shard, plan.shards))
        with files.write_whole(path, temporary_folder=self._work_folder) as file:
            for bucket in range(plan.buckets_per_shard):
                merged = merge_bucket(
                    [
                        (region.order, read_bucket(region, bucket))
                        for region in regions
                        if bucket < len(region.counts)
                    ],
                    removed=validation.held_out if split == TRAIN else None,
                    moved=validation.moved if split == TRAIN else None,
                    only=validation.moved if split == VALIDATION else None,
                )
                for run in framed_runs(merged.batch.records):
                    file.write(run)
                counter.count_kept(merged.batch, merged.orders)
                rejections += [
                    Rejection(reason=reason, place=place, survivor=survivor)
                    for reason, place, survivor in merged.rejected
                ]
        counter.count_rejected(rejections)
        if rejections:
            name = f"rejected-{split}-{shard:05d}-of-{plan.shards:05d}.parquet"
            files.write_parquet(
                FileSystems.join(self._output, name),
                rejected_table(rejections, self._sources),
                temporary_folder=self._work_folder,
            )
        yield counter.statistics()


@_transform
class WriteManifest(beam.PTransform):
    """Checks that every pair is accounted for and writes `dataset.json`, the last of all files.

    Attributes:
      units: PCollection of UnitStatistics.
      shards: PCollection of ShardStatistics.
      sources: All of them, the held-out ones last.
      held_out_from: Index of the first held-out source.
      plans: How each split is spread.
      draft: The manifest without what only the run finds out.
      output: The dataset folder.
      work_folder: For temporaries.
    """

    units: beam.PCollection
    shards: beam.PCollection
    sources: Sequence[Source]
    held_out_from: int
    plans: dict[str, SplitPlan]
    draft: DatasetManifest
    output: str
    work_folder: str

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        return (
            begin
            | "Draft" >> beam.Create([self.draft])
            | "Complete"
            >> beam.ParDo(
                _Complete(
                    self.sources, self.held_out_from, self.plans, self.output, self.work_folder
                ),
                beam.pvalue.AsList(self.units),
                beam.pvalue.AsList(self.shards),
            )
        )


class _Complete(beam.DoFn):
    def __init__(
        self,
        sources: Sequence[Source],
        held_out_from: int,
        plans: dict[str, SplitPlan],
        output: str,
        work_folder: str,
    ) -> None:
        self._sources = sources
        self._held_out_from = held_out_from
        self._plans = plans
        self._output = output
        self._work_folder = work_folder

    def process(
        self,
        draft: DatasetManifest,
        units: list[UnitStatistics],
        shards: list[ShardStatistics],
    ) -> Iterator[str]:
        _check_all_arrived(units)
        sources = sum_sources(
            self._sources, held_out_from=self._held_out_from, units=units, shards=shards
        )
        splits = {split: sum_split(split, plan, shards) for split, plan in self._plans.items()}
        check_splits(splits[TRAIN], splits[VALIDATION], sources=sources)
        rejected: collections.Counter[str] = collections.Counter()
        for source in sources:
            rejected.update(source["rejected"])
        vocabularies = load_vocabularies(self._output)
        manifest = dataclasses.replace(
            draft,
            source_vocabulary_size=vocabularies.source.size,
            target_vocabulary_size=vocabularies.target.size,
            lines_read=sum(source["read"] for source in sources),
            pairs_kept=sum(source["kept"] for source in sources),
            rejected=dict(sorted(rejected.items())),
            sources=sources,
            splits=splits,
        )
        path = FileSystems.join(self._output, MANIFEST_FILE)
        files.write_text(path, manifest.to_json(), temporary_folder=self._work_folder)
        yield path


def _check_all_arrived(units: Sequence[UnitStatistics]) -> None:
    """Raises if a unit is missing or counted twice: each source's are numbered from 0."""
    numbers: collections.defaultdict[int, list[int]] = collections.defaultdict(list)
    for unit in units:
        numbers[unit.order].append(unit.index)
    for order, found in numbers.items():
        if sorted(found) != list(range(len(found))):
            raise RuntimeError(f"source {order} arrived as the units {sorted(found)}")
