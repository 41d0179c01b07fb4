"""The steps of the preprocess job from sources to spills, as transforms: they only wire."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.shared import Shared

from model.errors import UserError
from model.text.vocabulary import VocabularyPair
from pipelines.preprocess.cleaning import find_validation
from pipelines.preprocess.corpora import SourceList
from pipelines.preprocess.encoding import UnitStatistics, encode_unit, training_lines
from pipelines.preprocess.held_out import HeldOut, hash_pairs, hash_texts, unite
from pipelines.preprocess.options import PreprocessOptions
from pipelines.preprocess.plan import DatasetPlan
from pipelines.preprocess.rejected import PARQUET_END, REJECTED_SCHEMA, SourceNames
from pipelines.preprocess.spills import find_spill, write_spill
from pipelines.preprocess.units import Unit, cut_sources
from pipelines.preprocess.vocabulary_files import load_planned, write_vocabulary
from pipelines.preprocess.vocabulary_sample import (
    Sample,
    VocabularySpec,
    describe_rejected,
    train_vocabulary,
)
from pipelines.preprocess.work_folder import ends_with
from pipelines.runners.transforms import CheckWorker, Spread
from pipelines.storage import listing
from pipelines.storage.paths import join
from pipelines.tables.finding import find_encoding
from pipelines.tables.text import read_texts

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)
_SIDES = ("source", "target")  # with a shared vocabulary, the first has the lines of both
_MANY_UNITS = 64  # about: from there on, no worker merges the samples of all bundles
_FANOUT = 16
_REGION = "regions"
_STATISTICS = "statistics"


class ListedUnits(NamedTuple):
    """What `ListUnits` yields: the units, spread over the workers, and each as it was cut."""

    units: beam.PCollection
    cut: beam.PCollection


@_transform
class ListUnits(beam.PTransform):
    """Cuts the sources into units of at most `plan.unit_pairs`; writes text as chunks for it."""

    plan: DatasetPlan

    def expand(self, begin: beam.pvalue.PBegin) -> ListedUnits:
        """Wires the steps."""
        cut = (
            begin
            | "Name list of sources" >> beam.Create([self.plan.source_list])
            | "Check worker" >> CheckWorker()
            | "List groups" >> beam.FlatMap(SourceList.groups)
            | "Spread groups" >> Spread(key=str)
            | "Cut" >> beam.ParDo(_CutSources(self.plan))
        )
        return ListedUnits(cut | "Spread units" >> beam.Reshuffle(), cut)


class _CutSources(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan

    def process(self, orders: range) -> Iterator[Unit]:
        plan = self._plan
        planned = plan.source_list.files(orders)
        return cut_sources(
            [(order, plan.source_list.source(order)) for order in orders],
            is_held_out=orders.start >= plan.held_out_from,
            max_pairs=plan.unit_pairs,
            work=plan.work,
            unchanged=functools.partial(listing.unchanged, planned),
        )


@_transform
class FindHeldOut(beam.PTransform):
    """Hashes what training must not see; yields one `HeldOut`."""

    # Its options name the rule that tells held-out pairs, the files of texts that are held out as
    # well, their encoding, and the normalisation of texts.
    plan: DatasetPlan

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        of_units = units | "Hash held-out pairs" >> beam.ParDo(_HashUnit(self.plan))
        of_files = (
            units.pipeline
            | "Name excluded files" >> beam.Create(list(self.plan.resolved["exclude"]))
            | "Hash excluded files" >> beam.ParDo(_HashFile(self.plan.options))
        )
        return (
            (of_units, of_files)
            | "All held-out texts" >> beam.Flatten()
            | "Unite" >> beam.CombineGlobally(_UniteHashes())
        )


class _HashUnit(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan

    def process(self, unit: Unit) -> Iterator[HeldOut]:
        options = self._plan.options
        if not self._plan.has_held_out:
            yield find_validation(
                unit,
                self._plan.source_list,
                normalization=options.normalization,
                filters=options.filters,
                protection=options.protection,
                validation_below=self._plan.encoding.validation_below,
                by=options.holds_out_by,
            )
        elif unit.is_held_out:
            yield hash_pairs(
                (rows.table for rows in unit.read(self._plan.source_list)),
                by=options.holds_out_by,
                normalization=options.normalization,
                protection=options.protection,
            )


class _HashFile(beam.DoFn):
    def __init__(self, options: PreprocessOptions) -> None:
        self._encoding = find_encoding(options.encoding)
        self._normalization = options.normalization

    def process(self, planned: dict[str, Any]) -> Iterator[HeldOut]:
        with listing.unchanged([planned]):
            batches = read_texts(planned["path"], encoding=self._encoding)
            columns = (pa.array(texts, pa.large_string()) for texts in batches)
            found = hash_texts(columns, normalization=self._normalization)
        yield found


class _UniteHashes(beam.CombineFn):
    """Collects parts, to unite them when they are sent on: uniting each would take n^2 steps."""

    def create_accumulator(self) -> list[HeldOut]:
        return []

    def add_input(self, accumulator: list[HeldOut], found: HeldOut) -> list[HeldOut]:
        accumulator.append(found)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[HeldOut]]) -> list[HeldOut]:
        return [part for accumulator in accumulators for part in accumulator]

    def compact(self, accumulator: list[HeldOut]) -> list[HeldOut]:
        return [unite(accumulator)]

    def extract_output(self, accumulator: list[HeldOut]) -> HeldOut:
        return unite(accumulator)


@_transform
class TrainVocabularies(beam.PTransform):
    """Train vocabularies on a sample of the units; yield their digests by file name."""

    plan: DatasetPlan
    # The vocabularies to train: one shared one, or one per side; none if all are in place.
    specs: Sequence[VocabularySpec]
    digests: Mapping[str, str]  # of the vocabularies in place, by file name
    held_out: beam.pvalue.AsSingleton  # side input: the `HeldOut` of what training must not see

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        if not self.specs:
            return units.pipeline | "Vocabularies in place" >> beam.Create([dict(self.digests)])
        sides = _SIDES[: len(self.specs)]
        least = _LeastLines(self.plan.options.vocabulary_sample)
        samples = units | "Sample lines" >> beam.ParDo(
            _SampleLines(self.plan, sides), self.held_out
        )
        if self.plan.unit_estimate > _MANY_UNITS:
            # Not `with_fanout`: its Flatten lets Beam's local runner wait for ever on side inputs.
            samples = samples | "Least lines of each part" >> beam.CombinePerKey(least)
        return (
            samples
            | "Samples" >> beam.Values()
            | "Least lines" >> beam.CombineGlobally(least)
            | "Train" >> beam.ParDo(_Train(dict(zip(sides, self.specs, strict=True)), self.plan))
        )


class _SampleLines(beam.DoFn):
    """Yields one sample of all units of a bundle, with one of a few keys."""

    def __init__(self, plan: DatasetPlan, sides: Sequence[str]) -> None:
        self._plan, self._sides = plan, sides

    def start_bundle(self) -> None:
        self._sample = Sample(self._plan.options.vocabulary_sample)
        self._key = 0

    def process(self, unit: Unit, held_out: HeldOut) -> None:
        if not unit.is_held_out:
            self._add(unit, held_out)

    def _add(self, unit: Unit, held_out: HeldOut) -> None:
        sources, targets, rejected = training_lines(
            unit,
            self._plan.source_list,
            normalization=self._plan.options.normalization,
            options=self._plan.encoding,
            held_out=held_out,
        )
        self._key = (unit.order + unit.index) % _FANOUT
        self._sample.rejected.update(rejected)
        lines = [sources + targets] if len(self._sides) == 1 else [sources, targets]
        for side, of_side in zip(self._sides, lines, strict=True):
            self._sample.add_lines(side, of_side)

    def finish_bundle(self) -> Iterator[Any]:
        yield GlobalWindows.windowed_value((self._key, self._sample))
        del self._sample


class _LeastLines(beam.CombineFn):
    """Merges samples: of however many units, a sample's lines are left."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def create_accumulator(self) -> Sample:
        return Sample(self._limit)

    def add_input(self, accumulator: Sample, sample: Sample) -> Sample:
        accumulator.merge(sample)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Sample]) -> Sample:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def compact(self, accumulator: Sample) -> Sample:
        accumulator.compact()
        return accumulator

    def extract_output(self, accumulator: Sample) -> Sample:
        return accumulator


class _Train(beam.DoFn):
    def __init__(self, specs: Mapping[str, VocabularySpec], plan: DatasetPlan) -> None:
        self._specs, self._plan = specs, plan

    def process(self, sample: Sample) -> Iterator[dict[str, str]]:
        digests = {}
        for side, spec in self._specs.items():
            lines = sample.table(side)
            if not lines.num_rows:
                names = map(self._plan.source_list.name, range(self._plan.held_out_from))
                reason = describe_rejected(sample.rejected, corpora=list(names))
                raise UserError(f"no text to train the {spec.name} vocabulary on: {reason}")
            content = train_vocabulary(lines, spec)
            digests[spec.file] = write_vocabulary(self._plan, spec.file, content)
        yield digests


class EncodedUnits(NamedTuple):
    """What `EncodeUnits` yields: ((split, shard), Region), and UnitStatistics."""

    regions: beam.PCollection
    statistics: beam.PCollection


@_transform
class EncodeUnits(beam.PTransform):
    """Clean, encode and filter units into a spill file each."""

    plan: DatasetPlan
    digests: beam.pvalue.AsSingleton  # side input: digests of the vocabularies, by file name
    held_out: beam.pvalue.AsSingleton  # side input: the `HeldOut` of what training must not see

    def expand(self, units: beam.PCollection) -> EncodedUnits:
        """Wires the steps."""
        encoded = units | "Encode" >> beam.ParDo(
            _Encode(self.plan), self.digests, self.held_out
        ).with_outputs(_STATISTICS, main=_REGION)
        return EncodedUnits(encoded[_REGION], encoded[_STATISTICS])


class _Encode(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan
        self._vocabularies = Shared()  # loaded once a process, for all its threads

    def setup(self) -> None:
        self._names = SourceNames(self._plan.source_list)

    def process(self, unit: Unit, digests: Mapping[str, str], held_out: HeldOut) -> Iterator[Any]:
        work = self._plan.work
        spill = work.spill(unit.label)
        rejected_path = join(self._plan.options.output, f"rejected-{unit.label}.parquet")
        finished = find_spill(spill)
        if (
            finished
            and finished.vocabulary == digests
            and (not finished.statistics["rejected"] or ends_with(rejected_path, PARQUET_END))
        ):
            regions = finished.regions
            statistics = UnitStatistics(**finished.statistics)
        else:
            encoded = encode_unit(
                unit,
                self._plan.source_list,
                self._load_vocabularies(digests),
                options=self._plan.encoding,
                held_out=held_out,
            )
            statistics = encoded.statistics
            # First the rejected pairs: a spill says that its unit is finished.
            if encoded.rejections.rows:
                with work.open_parquet_writer(rejected_path, REJECTED_SCHEMA) as writer:
                    writer.write_table(encoded.rejections.table(self._names))
            regions = write_spill(
                spill,
                encoded.parts,
                order=unit.order,
                index=unit.index,
                statistics=dataclasses.asdict(statistics),
                vocabulary=dict(digests),
                work=work,
            )
        yield from regions
        yield beam.pvalue.TaggedOutput(_STATISTICS, statistics)

    def _load_vocabularies(self, digests: Mapping[str, str]) -> VocabularyPair:
        load = functools.partial(load_planned, self._plan.options.output, digests)
        loaded: VocabularyPair = self._vocabularies.acquire(load, tag=self._plan.options.output)
        return loaded
