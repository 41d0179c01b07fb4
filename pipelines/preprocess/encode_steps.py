"""The steps of the preprocess job from sources to spills, as transforms: they only wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.shared import Shared

from model.errors import UserError
from model.text.vocabulary import VocabularyPair, load_vocabularies
from pipelines.corpora.encodings import find_encoding
from pipelines.corpora.lines import read_texts
from pipelines.corpora.opening import SourceList
from pipelines.pairs.encoding import UnitStatistics, encode_unit, training_lines
from pipelines.pairs.held_out import HeldOut, hash_pairs, hash_texts, unite
from pipelines.pairs.rejected import REJECTED_SCHEMA, SourceNames
from pipelines.pairs.spills import find_spill, write_spill
from pipelines.pairs.units import Unit, cut_sources
from pipelines.preprocess import vocabulary_sample
from pipelines.preprocess.options import PreprocessOptions
from pipelines.preprocess.plan import DatasetPlan
from pipelines.preprocess.vocabulary_sample import LeastHashes, VocabularySpec, train_vocabulary
from pipelines.storage import files
from pipelines.storage.paths import join

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)
_SIDES = ("source", "target")  # with a shared vocabulary, the first has the lines of both
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
            | "List groups" >> beam.FlatMap(SourceList.groups)
            | "Spread groups" >> beam.Reshuffle()
            | "Cut" >> beam.ParDo(_CutSources(self.plan))
        )
        return ListedUnits(cut | "Spread units" >> beam.Reshuffle(), cut)


class _CutSources(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan

    def process(self, orders: range) -> Iterator[Unit]:
        plan = self._plan
        members = [(order, plan.source_list.source(order)) for order in orders]
        for order, source in members:
            if source.identity() != plan.source_list.identity(order):
                raise UserError(f"{source.name} has changed just now: run the same command again")
        return cut_sources(
            members,
            is_held_out=orders.start >= plan.held_out_from,
            max_pairs=plan.unit_pairs,
            work=plan.work,
        )


@_transform
class FindHeldOut(beam.PTransform):
    """Hashes what training must not see; yields one `HeldOut`."""

    # Its options name the rule that tells held-out pairs, the files of texts that are held out as
    # well, their encoding, and the normalisation of texts.
    plan: DatasetPlan

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        of_units = units | "Hash held-out units" >> beam.ParDo(_HashUnit(self.plan))
        of_files = (
            units.pipeline
            | "Name excluded files" >> beam.Create(list(self.plan.options.exclude))
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
        if unit.is_held_out:
            options = self._plan.options
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

    def process(self, path: str) -> Iterator[HeldOut]:
        batches = read_texts(path, encoding=self._encoding)
        columns = (pa.array(texts, pa.large_string()) for texts in batches)
        yield hash_texts(columns, normalization=self._normalization)


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
    """Trains vocabularies on a sample of the units; yields the folder that they are in."""

    plan: DatasetPlan
    # The vocabularies: one shared, one a side, or none where all are in place.
    specs: Sequence[VocabularySpec]
    held_out: beam.pvalue.AsSingleton  # side input: the `HeldOut` of what training must not see

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        if not self.specs:
            output = self.plan.options.output
            return units.pipeline | "Vocabularies in place" >> beam.Create([output])
        sides = _SIDES[: len(self.specs)]
        sample = beam.ParDo(_SampleLines(self.plan, sides), self.held_out).with_outputs(*sides)
        lines = units | "Sample lines" >> sample
        # One after the other: the last one says that all are there. (A Flatten of both would
        # do too, but Beam's local runner then waits for ever on the side inputs.)
        trained: list[beam.pvalue.AsSingleton] = []
        for spec, side in zip(self.specs, sides, strict=True):
            # Without any file there is still an empty list, and a step that says so.
            paths = lines[side] | f"Samples of {spec.name}" >> beam.combiners.ToList()
            folder = paths | f"Train {spec.name}" >> beam.ParDo(_Train(spec, self.plan), *trained)
            trained = [beam.pvalue.AsSingleton(folder)]
        return folder


class _SampleLines(beam.DoFn):
    def __init__(self, plan: DatasetPlan, sides: Sequence[str]) -> None:
        self._plan, self._sides = plan, sides
        self._least = Shared()  # one a process

    def process(self, unit: Unit, held_out: HeldOut) -> Iterator[beam.pvalue.TaggedOutput]:
        if unit.is_held_out:
            return
        paths = [self._plan.work.sample(side, unit.label) for side in self._sides]
        if not all(map(files.is_there, paths)):
            self._write(unit, paths, held_out)
        for side, path in zip(self._sides, paths, strict=True):
            yield beam.pvalue.TaggedOutput(side, path)

    def _write(self, unit: Unit, paths: Sequence[str], held_out: HeldOut) -> None:
        sources, targets, rejected = training_lines(
            unit,
            self._plan.source_list,
            normalization=self._plan.options.normalization,
            options=self._plan.encoding,
            held_out=held_out,
        )
        lines = [sources + targets] if len(paths) == 1 else [sources, targets]
        least = self._least.acquire(self._start)
        for side, path, of_side in zip(self._sides, paths, lines, strict=True):
            sample = vocabulary_sample.distinct_lines(of_side)
            bound = least.of_side[side].add(sample["hash"].to_numpy())
            sample = vocabulary_sample.up_to(sample, bound)
            vocabulary_sample.write_sample(path, sample, rejected=rejected, work=self._plan.work)

    def _start(self) -> _LeastOfSides:
        lines = self._plan.options.vocabulary_sample
        return _LeastOfSides({side: LeastHashes(lines) for side in self._sides})


@dataclasses.dataclass
class _LeastOfSides:
    """What all threads of a process know of the sample; `Shared` needs a class for it."""

    of_side: dict[str, LeastHashes]


class _Train(beam.DoFn):
    def __init__(self, spec: VocabularySpec, plan: DatasetPlan) -> None:
        self._spec, self._plan = spec, plan

    def process(self, paths: list[str], trained_before: str = "") -> Iterator[str]:
        options, spec = self._plan.options, self._spec
        sample = vocabulary_sample.read_samples(sorted(paths), limit=options.vocabulary_sample)
        if not sample.num_rows:
            reason = vocabulary_sample.describe_rejected(paths)
            raise UserError(f"no text to train the {spec.name} vocabulary on: {reason}")
        with self._plan.work.write_whole(join(options.output, spec.file)) as file:
            file.write(train_vocabulary(sample, spec))
        yield options.output


class EncodedUnits(NamedTuple):
    """What `EncodeUnits` yields: ((split, shard), Region), and UnitStatistics."""

    regions: beam.PCollection
    statistics: beam.PCollection


@_transform
class EncodeUnits(beam.PTransform):
    """Cleans, encodes and filters units into a spill file each."""

    plan: DatasetPlan
    vocabulary_folder: beam.pvalue.AsSingleton  # side input: where the vocabularies are
    held_out: beam.pvalue.AsSingleton  # side input: the `HeldOut` of what training must not see

    def expand(self, units: beam.PCollection) -> EncodedUnits:
        """Wires the steps."""
        encoded = units | "Encode" >> beam.ParDo(
            _Encode(self.plan), self.vocabulary_folder, self.held_out
        ).with_outputs(_STATISTICS, main=_REGION)
        return EncodedUnits(encoded[_REGION], encoded[_STATISTICS])


class _Encode(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan
        self._vocabularies = Shared()  # loaded once a process, for all its threads

    def setup(self) -> None:
        self._names = SourceNames(self._plan.source_list)

    def process(self, unit: Unit, vocabulary_folder: str, held_out: HeldOut) -> Iterator[Any]:
        work = self._plan.work
        spill = work.spill(unit.label)
        if finished := find_spill(spill):
            regions, values = finished
            statistics = UnitStatistics(**values)
        else:
            encoded = encode_unit(
                unit,
                self._plan.source_list,
                self._load_vocabularies(vocabulary_folder),
                options=self._plan.encoding,
                held_out=held_out,
            )
            statistics = encoded.statistics
            # First the rejected pairs: a spill says that its unit is finished.
            if encoded.rejections.rows:
                path = join(self._plan.options.output, f"rejected-{unit.label}.parquet")
                with work.open_parquet_writer(path, REJECTED_SCHEMA) as writer:
                    writer.write_table(encoded.rejections.table(self._names))
            regions = write_spill(
                spill,
                encoded.parts,
                order=unit.order,
                index=unit.index,
                statistics=dataclasses.asdict(statistics),
                work=work,
            )
        yield from regions
        yield beam.pvalue.TaggedOutput(_STATISTICS, statistics)

    def _load_vocabularies(self, folder: str) -> VocabularyPair:
        def load() -> VocabularyPair:
            return load_vocabularies(folder, read=files.read_bytes)

        loaded: VocabularyPair = self._vocabularies.acquire(load, tag=folder)
        return loaded
