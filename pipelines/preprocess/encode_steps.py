"""The steps of the preprocess job from sources to spills, as transforms: they only wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.shared import Shared

from model.errors import UserError
from model.text.normalization import TextNormalization
from model.text.vocabulary import VocabularyPair, load_vocabularies
from pipelines.corpora.lines import read_texts
from pipelines.corpora.source import Source
from pipelines.pairs.encoding import EncodingOptions, UnitStatistics, encode_unit, training_lines
from pipelines.pairs.filters import Filters
from pipelines.pairs.held_out import HeldOut, hash_pairs, hash_texts, unite
from pipelines.pairs.rejected import REJECTED_SCHEMA, SourceNames
from pipelines.pairs.spills import read_spill_footer, write_spill
from pipelines.pairs.units import Unit, cut_source
from pipelines.pairs.work_folder import WorkFolder
from pipelines.preprocess.vocabulary_sample import (
    LeastHashes,
    VocabularySpec,
    describe_rejected,
    distinct_lines,
    read_samples,
    train_vocabulary,
    up_to,
    write_sample,
)
from pipelines.storage import files
from pipelines.storage.paths import join

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)
_SIDES = ("source", "target")  # with a shared vocabulary, the first has the lines of both
_REGION = "regions"
_STATISTICS = "statistics"


# ListUnits.


@_transform
class ListUnits(beam.PTransform):
    """Cuts the sources into units of at most `max_pairs`; text is written as chunks for it.

    Attributes:
      sources: All sources, the held-out ones last.
      identities: Identities of the sources when the run was planned.
      held_out_from: Index of the first held-out source.
      max_pairs: The most rows of a unit.
      work: The work folder, for chunks.
    """

    sources: Sequence[Source]
    identities: Sequence[dict[str, Any]]
    held_out_from: int
    max_pairs: int
    work: WorkFolder

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        return (
            begin
            | "Name sources"
            >> beam.Create(
                list(zip(range(len(self.sources)), self.sources, self.identities, strict=True)),
                reshuffle=True,
            )
            | "Cut" >> beam.ParDo(_CutSource(config=self))
            | "Spread units" >> beam.Reshuffle()
        )


class _CutSource(beam.DoFn):
    def __init__(self, *, config: ListUnits) -> None:
        self._config = config

    def process(self, element: tuple[int, Source, dict[str, Any]]) -> Iterator[Unit]:
        order, source, identity = element
        if source.identity() != identity:
            raise UserError(f"{source.name} has changed just now: run the same command again")
        return cut_source(
            source,
            order=order,
            is_held_out=order >= self._config.held_out_from,
            max_pairs=self._config.max_pairs,
            work=self._config.work,
        )


# FindHeldOut.


@_transform
class FindHeldOut(beam.PTransform):
    """Hashes what training must not see; yields one `HeldOut`.

    Attributes:
      by: Rule that tells held-out pairs: one of `HELD_OUT_BY`.
      excluded: Files of texts, one a line, that are held out as well.
      encoding: Encoding of those files.
      normalization: Normalisation of texts.
    """

    by: str
    excluded: Sequence[str]
    encoding: str
    normalization: TextNormalization

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        of_units = units | "Hash held-out units" >> beam.ParDo(_HashUnit(config=self))
        of_files = (
            units.pipeline
            | "Name excluded files" >> beam.Create(list(self.excluded))
            | "Hash excluded files" >> beam.ParDo(_HashFile(config=self))
        )
        return (
            (of_units, of_files)
            | "All held-out texts" >> beam.Flatten()
            | "Unite" >> beam.CombineGlobally(_UniteHashes())
        )


class _HashUnit(beam.DoFn):
    def __init__(self, *, config: FindHeldOut) -> None:
        self._by, self._normalization = config.by, config.normalization

    def process(self, unit: Unit) -> Iterator[HeldOut]:
        if unit.is_held_out:
            yield hash_pairs(unit.read(), by=self._by, normalization=self._normalization)


class _HashFile(beam.DoFn):
    def __init__(self, *, config: FindHeldOut) -> None:
        self._encoding, self._normalization = config.encoding, config.normalization

    def process(self, path: str) -> Iterator[HeldOut]:
        batches = read_texts(path, encoding=self._encoding)
        columns = (pa.array(texts, pa.large_string()) for texts in batches)
        yield hash_texts(columns, normalization=self._normalization)


class _UniteHashes(beam.CombineFn):
    """Collects parts, and unites them when they are sent on: to do so at each takes n^2 in all."""

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


# TrainVocabularies.


@_transform
class TrainVocabularies(beam.PTransform):
    """Trains vocabularies on a sample of the units; yields the folder that they are in.

    Attributes:
      output: The dataset folder.
      specs: The vocabularies: one shared, one a side, or none where all are in place.
      sample_lines: The most lines that one is trained on.
      normalization: Normalisation of texts.
      filters: Pairs that they reject are not trained on.
      validation_below: Nor are pairs whose source hashes below this.
      held_out: Side input, of `HeldOut`: nor are those that it names.
      short_tokens: A side of about so many tokens at most is not held out by itself.
      work: The work folder, for samples.
    """

    output: str
    specs: Sequence[VocabularySpec]
    sample_lines: int
    normalization: TextNormalization
    filters: Filters
    validation_below: int
    held_out: beam.pvalue.AsSingleton
    short_tokens: int
    work: WorkFolder

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        if not self.specs:
            return units.pipeline | "Vocabularies in place" >> beam.Create([self.output])
        lines = units | "Sample lines" >> beam.ParDo(
            _SampleLines(config=self), self.held_out
        ).with_outputs(*_SIDES[: len(self.specs)])
        # One after the other: the last one says that all are there. (A Flatten of both would
        # do too, but Beam's local runner then waits for ever on the side inputs.)
        trained: list[beam.pvalue.AsSingleton] = []
        for spec, side in zip(self.specs, _SIDES, strict=False):
            # Without any file there is still an empty list, and a step that says so.
            paths = lines[side] | f"Samples of {spec.name}" >> beam.combiners.ToList()
            folder = paths | f"Train {spec.name}" >> beam.ParDo(_Train(spec, config=self), *trained)
            trained = [beam.pvalue.AsSingleton(folder)]
        return folder


class _SampleLines(beam.DoFn):
    def __init__(self, *, config: TrainVocabularies) -> None:
        self._config = config
        self._sides = _SIDES[: len(config.specs)]
        self._least = Shared()  # one a process

    def process(self, unit: Unit, held_out: HeldOut) -> Iterator[beam.pvalue.TaggedOutput]:
        if unit.is_held_out:
            return
        paths = [self._config.work.sample(side, unit.label) for side in self._sides]
        if not all(map(files.is_there, paths)):
            self._write(unit, paths, held_out)
        for side, path in zip(self._sides, paths, strict=True):
            yield beam.pvalue.TaggedOutput(side, path)

    def _write(self, unit: Unit, paths: Sequence[str], held_out: HeldOut) -> None:
        config = self._config
        sources, targets, rejected = training_lines(
            unit,
            normalization=config.normalization,
            filters=config.filters,
            validation_below=config.validation_below,
            held_out=held_out,
            short_tokens=config.short_tokens,
        )
        lines = [sources + targets] if len(paths) == 1 else [sources, targets]
        least = self._least.acquire(self._start)
        for side, path, of_side in zip(self._sides, paths, lines, strict=True):
            sample = distinct_lines(of_side)
            bound = least.of_side[side].add(sample["hash"].to_numpy())
            write_sample(path, up_to(sample, bound), rejected=rejected, work=config.work)

    def _start(self) -> _LeastOfSides:
        return _LeastOfSides({side: LeastHashes(self._config.sample_lines) for side in self._sides})


@dataclasses.dataclass
class _LeastOfSides:
    """What all threads of a process know of the sample; `Shared` needs a class for it."""

    of_side: dict[str, LeastHashes]


class _Train(beam.DoFn):
    def __init__(self, spec: VocabularySpec, *, config: TrainVocabularies) -> None:
        self._spec = spec
        self._config = config

    def process(self, paths: list[str], trained_before: str = "") -> Iterator[str]:
        config, spec = self._config, self._spec
        sample = read_samples(sorted(paths), limit=config.sample_lines)
        if not sample.num_rows:
            raise UserError(
                f"no text to train the {spec.name} vocabulary on: {describe_rejected(paths)}"
            )
        with config.work.write_whole(join(config.output, spec.file)) as file:
            file.write(train_vocabulary(sample, spec))
        yield config.output


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
      held_out: Side input: the `HeldOut` of what training must not see.
      sources: All sources.
      options: Options of encoding and splitting.
      output: The dataset folder, for the rejected pairs.
      work: The work folder, for spills.
    """

    vocabulary_folder: beam.pvalue.AsSingleton
    held_out: beam.pvalue.AsSingleton
    sources: Sequence[Source]
    options: EncodingOptions
    output: str
    work: WorkFolder

    def expand(self, units: beam.PCollection) -> EncodedUnits:
        """Wires the steps."""
        encoded = units | "Encode" >> beam.ParDo(
            _Encode(config=self), self.vocabulary_folder, self.held_out
        ).with_outputs(_STATISTICS, main=_REGION)
        return EncodedUnits(encoded[_REGION], encoded[_STATISTICS])


class _Encode(beam.DoFn):
    def __init__(self, *, config: EncodeUnits) -> None:
        self._config = config
        self._vocabularies = Shared()  # loaded once a process, for all its threads

    def setup(self) -> None:
        self._names = SourceNames(self._config.sources)

    def process(self, unit: Unit, vocabulary_folder: str, held_out: HeldOut) -> Iterator[Any]:
        work = self._config.work
        spill = work.spill(unit.label)
        if files.is_there(spill):
            regions, values = read_spill_footer(spill)
            statistics = UnitStatistics(**values)
        else:
            encoded = encode_unit(
                unit,
                self._load_vocabularies(vocabulary_folder),
                options=self._config.options,
                held_out=held_out,
            )
            statistics = encoded.statistics
            # First the rejected pairs: a spill says that its unit is finished.
            if encoded.rejections.rows:
                path = join(self._config.output, f"rejected-{unit.label}.parquet")
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
