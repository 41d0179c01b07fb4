"""The steps of the preprocess job as Beam transforms: they wire, the logic is elsewhere."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.shared import Shared

from model.artifacts import MANIFEST_FILE, TRAIN, VALIDATION, DatasetManifest, shard_name
from model.vocabulary import TextNormalization, VocabularyPair, load_vocabularies
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
from pipelines.encoding import EncodingOptions, encode_unit, training_lines
from pipelines.records import (
    Region,
    SplitPlan,
    UInt64s,
    framed_runs,
    merge_bucket,
    read_bucket,
    read_spill_footer,
    write_spill,
)
from pipelines.sources import Source, Unit
from pipelines.vocabulary import SAMPLE_SCHEMA, LeastLines, least_lines, train_vocabulary

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)

ShardKey = tuple[str, int]  # split, shard

_REGION = "regions"
_STATISTICS = "statistics"


# ListUnits.


@_transform
class ListUnits(beam.PTransform):
    """Cuts the sources into units of at most `max_pairs`; text is written as chunks for it.

    Attributes:
      sources: All of them, the held-out ones last.
      held_out_from: Index of the first held-out source.
      max_pairs: The most rows of a unit.
      work_folder: For chunks.
    """

    sources: Sequence[Source]
    held_out_from: int
    max_pairs: int
    work_folder: str

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        return (
            begin
            | "Name sources" >> beam.Create(list(enumerate(self.sources)), reshuffle=True)
            | "Cut" >> beam.ParDo(_CutSource(self.held_out_from, self.max_pairs, self.work_folder))
            | "Spread units" >> beam.Reshuffle()
        )


class _CutSource(beam.DoFn):
    def __init__(self, held_out_from: int, max_pairs: int, work_folder: str) -> None:
        self._held_out_from = held_out_from
        self._max_pairs = max_pairs
        self._work_folder = work_folder

    def process(self, element: tuple[int, Source]) -> Iterator[Unit]:
        order, source = element
        return source.cut(
            order=order,
            is_held_out=order >= self._held_out_from,
            max_pairs=self._max_pairs,
            work_folder=self._work_folder,
        )


# TrainVocabularies.


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySpec:
    """A vocabulary to train: see `train_vocabulary`; `file` is its name in the folder."""

    name: str
    file: str
    kind: str
    size: int
    normalization_rule: str
    character_coverage: float | None


@_transform
class TrainVocabularies(beam.PTransform):
    """Trains vocabularies on a sample of the units; yields the folder that they are in.

    Attributes:
      output: The dataset folder.
      specs: The vocabularies: one shared, one a side, or none where all are in place.
      sample_lines: The most lines that one is trained on.
      normalization: What is done to texts.
      validation_below: Pairs whose source hashes below this are not trained on.
      work_folder: For temporaries.
    """

    output: str
    specs: Sequence[VocabularySpec]
    sample_lines: int
    normalization: TextNormalization
    validation_below: int
    work_folder: str

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        if not self.specs:
            return units.pipeline | "Vocabularies in place" >> beam.Create([self.output])
        names = [spec.name for spec in self.specs]
        # An empty sample of each: a corpus without a line still gets to the step that says so.
        nothing = units.pipeline | "Start samples" >> beam.Create(
            [(name, SAMPLE_SCHEMA.empty_table()) for name in names]
        )
        lines = units | "Sample lines" >> beam.ParDo(
            _SampleLines(names, self.sample_lines, self.normalization, self.validation_below)
        )
        return (
            (nothing, lines)
            | "All samples" >> beam.Flatten()
            | "Least hashes" >> beam.CombinePerKey(LeastLines(limit=self.sample_lines))
            | "Train" >> beam.ParDo(_Train(self.specs, self.output, self.work_folder))
            | "When all are trained" >> beam.GroupByKey()
            | "Folder" >> beam.Keys()
        )


class _SampleLines(beam.DoFn):
    def __init__(
        self,
        names: Sequence[str],
        limit: int,
        normalization: TextNormalization,
        validation_below: int,
    ) -> None:
        self._names = names
        self._limit = limit
        self._normalization = normalization
        self._validation_below = validation_below

    def process(self, unit: Unit) -> Iterator[tuple[str, pa.Table]]:
        if unit.is_held_out:
            return
        sides = training_lines(unit, self._normalization, validation_below=self._validation_below)
        if len(self._names) == 1:
            yield self._names[0], least_lines(sides[0] + sides[1], limit=self._limit)
        else:
            for name, lines in zip(self._names, sides, strict=True):
                yield name, least_lines(lines, limit=self._limit)


class _Train(beam.DoFn):
    def __init__(self, specs: Sequence[VocabularySpec], output: str, work_folder: str) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._output = output
        self._work_folder = work_folder

    def process(self, element: tuple[str, pa.Table]) -> Iterator[tuple[str, str]]:
        name, sample = element
        spec = self._specs[name]
        model = train_vocabulary(
            sample,
            name=name,
            size=spec.size,
            kind=spec.kind,
            normalization_rule=spec.normalization_rule,
            character_coverage=spec.character_coverage,
        )
        path = FileSystems.join(self._output, spec.file)
        with files.write_whole(path, temporary_folder=self._work_folder) as file:
            file.write(model)
        yield self._output, name


# EncodeUnits.


class EncodedUnits(NamedTuple):
    """What `EncodeUnits` yields: ((split, shard), Region), and UnitStatistics."""

    regions: beam.PCollection
    statistics: beam.PCollection


@_transform
class EncodeUnits(beam.PTransform):
    """Cleans, encodes and filters units into a spill file each.

    Attributes:
      vocabulary_folder: Side input: where the vocabularies are.
      sources: All of them.
      options: How pairs are encoded and split.
      output: The dataset folder, for the rejected pairs.
      work_folder: For the spills.
    """

    vocabulary_folder: beam.pvalue.AsSingleton
    sources: Sequence[Source]
    options: EncodingOptions
    output: str
    work_folder: str

    def expand(self, units: beam.PCollection) -> EncodedUnits:
        """Wires the steps."""
        encode = _Encode(self.sources, self.options, self.output, self.work_folder)
        encoded = units | "Encode" >> beam.ParDo(encode, self.vocabulary_folder).with_outputs(
            _STATISTICS, main=_REGION
        )
        return EncodedUnits(encoded[_REGION], encoded[_STATISTICS])


class _Encode(beam.DoFn):
    def __init__(
        self, sources: Sequence[Source], options: EncodingOptions, output: str, work_folder: str
    ) -> None:
        self._sources = sources
        self._options = options
        self._output = output
        self._work_folder = work_folder
        self._vocabularies = Shared()  # loaded once a process, for all its threads

    def process(self, unit: Unit, vocabulary_folder: str) -> Iterator[Any]:
        spill = FileSystems.join(self._work_folder, f"spill-{unit.label}")
        if FileSystems.exists(spill):
            regions, values = read_spill_footer(spill, order=unit.order)
            statistics = UnitStatistics(**values)
        else:
            encoded = encode_unit(
                unit, self._load_vocabularies(vocabulary_folder), options=self._options
            )
            statistics = encoded.statistics
            # First the rejected pairs: a spill says that its unit is finished.
            if encoded.rejections:
                files.write_parquet(
                    FileSystems.join(self._output, f"rejected-{unit.label}.parquet"),
                    rejected_table(encoded.rejections, self._sources),
                    temporary_folder=self._work_folder,
                )
            regions = write_spill(
                spill,
                encoded.parts,
                order=unit.order,
                statistics=dataclasses.asdict(statistics),
                temporary_folder=self._work_folder,
            )
        yield from regions
        yield beam.pvalue.TaggedOutput(_STATISTICS, statistics)

    def _load_vocabularies(self, folder: str) -> VocabularyPair:
        def load() -> VocabularyPair:
            return load_vocabularies(folder)

        loaded: VocabularyPair = self._vocabularies.acquire(load, tag=folder)
        return loaded


# MergeShards.


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


# WriteManifest.


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
