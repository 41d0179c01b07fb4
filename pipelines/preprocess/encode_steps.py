"""The steps of the preprocess job from sources to spills, as transforms: they only wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.shared import Shared

from model.errors import UserError
from model.text.vocabulary import TextNormalization, VocabularyPair, load_vocabularies
from pipelines.corpora.opening import Source, Unit
from pipelines.corpora.text import read_texts
from pipelines.pairs.encoding import EncodingOptions, encode_unit, training_lines
from pipelines.pairs.filters import Filters
from pipelines.pairs.held_out import HeldOut, hash_pairs, hash_texts, unite
from pipelines.pairs.spills import read_spill_footer, write_spill
from pipelines.preprocess.accounts import SourceNames, UnitStatistics
from pipelines.preprocess.vocabulary_sample import (
    LeastHashes,
    describe_rejected,
    distinct_lines,
    read_samples,
    train_vocabulary,
    up_to,
    write_sample,
)
from pipelines.storage import files

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
      sources: All of them, the held-out ones last.
      identities: Of the sources, when the run was planned.
      held_out_from: Index of the first held-out source.
      max_pairs: The most rows of a unit.
      work_folder: For chunks.
    """

    sources: Sequence[Source]
    identities: Sequence[dict[str, Any]]
    held_out_from: int
    max_pairs: int
    work_folder: str

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        return (
            begin
            | "Name sources"
            >> beam.Create(
                list(zip(range(len(self.sources)), self.sources, self.identities, strict=True)),
                reshuffle=True,
            )
            | "Cut" >> beam.ParDo(_CutSource(self.held_out_from, self.max_pairs, self.work_folder))
            | "Spread units" >> beam.Reshuffle()
        )


class _CutSource(beam.DoFn):
    def __init__(self, held_out_from: int, max_pairs: int, work_folder: str) -> None:
        self._held_out_from = held_out_from
        self._max_pairs = max_pairs
        self._work_folder = work_folder

    def process(self, element: tuple[int, Source, dict[str, Any]]) -> Iterator[Unit]:
        order, source, identity = element
        if source.identity() != identity:
            raise UserError(f"{source.name} has changed just now: run the same command again")
        return source.cut(
            order=order,
            is_held_out=order >= self._held_out_from,
            max_pairs=self._max_pairs,
            work_folder=self._work_folder,
        )


# FindHeldOut.


@_transform
class FindHeldOut(beam.PTransform):
    """Hashes what training must not see; yields one `HeldOut`.

    Attributes:
      by: How held-out pairs are told: one of `HELD_OUT_BY`.
      excluded: Files of texts, one a line, that are held out as well.
      encoding: Of those files.
      normalization: What is done to texts.
    """

    by: str
    excluded: Sequence[str]
    encoding: str
    normalization: TextNormalization

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        of_units = units | "Hash held-out units" >> beam.ParDo(
            _HashUnit(self.by, self.normalization)
        )
        of_files = (
            units.pipeline
            | "Name excluded files" >> beam.Create(list(self.excluded))
            | "Hash excluded files" >> beam.ParDo(_HashFile(self.normalization, self.encoding))
        )
        return (
            (of_units, of_files)
            | "All held-out texts" >> beam.Flatten()
            | "Unite" >> beam.CombineGlobally(_UniteHashes())
        )


class _HashUnit(beam.DoFn):
    def __init__(self, by: str, normalization: TextNormalization) -> None:
        self._by = by
        self._normalization = normalization

    def process(self, unit: Unit) -> Iterator[HeldOut]:
        if unit.is_held_out:
            yield hash_pairs(unit.read(), by=self._by, normalization=self._normalization)


class _HashFile(beam.DoFn):
    def __init__(self, normalization: TextNormalization, encoding: str) -> None:
        self._normalization = normalization
        self._encoding = encoding

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySpec:
    """A vocabulary to train: see `train_vocabulary`; `file` is its name in the folder."""

    name: str
    file: str
    kind: str
    size: int
    is_size_given: bool
    normalization_rule: str
    character_coverage: float | None
    byte_fallback: bool
    user_symbols: tuple[str, ...]
    keep_whitespace: bool


@_transform
class TrainVocabularies(beam.PTransform):
    """Trains vocabularies on a sample of the units; yields the folder that they are in.

    Attributes:
      output: The dataset folder.
      specs: The vocabularies: one shared, one a side, or none where all are in place.
      sample_lines: The most lines that one is trained on.
      normalization: What is done to texts.
      filters: Pairs that they reject are not trained on.
      validation_below: Nor are pairs whose source hashes below this.
      held_out: Side input, of `HeldOut`: nor are those that it names.
      short_tokens: A side of about so many tokens at most is not held out by itself.
      work_folder: For temporaries.
    """

    output: str
    specs: Sequence[VocabularySpec]
    sample_lines: int
    normalization: TextNormalization
    filters: Filters
    validation_below: int
    held_out: beam.pvalue.AsSingleton
    short_tokens: int
    work_folder: str

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wires the steps."""
        if not self.specs:
            return units.pipeline | "Vocabularies in place" >> beam.Create([self.output])
        lines = units | "Sample lines" >> beam.ParDo(
            _SampleLines(
                len(self.specs),
                self.sample_lines,
                self.normalization,
                self.filters,
                self.validation_below,
                self.short_tokens,
                self.work_folder,
            ),
            self.held_out,
        ).with_outputs(*_SIDES[: len(self.specs)])
        # One after the other: the last one says that all are there. (A Flatten of both would
        # do too, but Beam's local runner then waits for ever on the side inputs.)
        trained: list[beam.pvalue.AsSingleton] = []
        for spec, side in zip(self.specs, _SIDES, strict=False):
            # Without any file there is still an empty list, and a step that says so.
            paths = lines[side] | f"Samples of {spec.name}" >> beam.combiners.ToList()
            folder = paths | f"Train {spec.name}" >> beam.ParDo(
                _Train(spec, self.sample_lines, self.output, self.work_folder), *trained
            )
            trained = [beam.pvalue.AsSingleton(folder)]
        return folder


class _SampleLines(beam.DoFn):
    def __init__(
        self,
        sides: int,
        limit: int,
        normalization: TextNormalization,
        filters: Filters,
        validation_below: int,
        short_tokens: int,
        work_folder: str,
    ) -> None:
        self._sides = _SIDES[:sides]
        self._limit = limit
        self._normalization = normalization
        self._filters = filters
        self._validation_below = validation_below
        self._short_tokens = short_tokens
        self._work_folder = work_folder
        self._least = Shared()  # one a process

    def process(self, unit: Unit, held_out: HeldOut) -> Iterator[beam.pvalue.TaggedOutput]:
        if unit.is_held_out:
            return
        paths = [
            FileSystems.join(self._work_folder, f"sample-{side}-{unit.label}")
            for side in self._sides
        ]
        if not all(FileSystems.exists(path) for path in paths):
            self._write(unit, paths, held_out)
        for side, path in zip(self._sides, paths, strict=True):
            yield beam.pvalue.TaggedOutput(side, path)

    def _write(self, unit: Unit, paths: Sequence[str], held_out: HeldOut) -> None:
        sources, targets, rejected = training_lines(
            unit,
            normalization=self._normalization,
            filters=self._filters,
            validation_below=self._validation_below,
            held_out=held_out,
            short_tokens=self._short_tokens,
        )
        lines = [sources + targets] if len(paths) == 1 else [sources, targets]
        least = self._least.acquire(self._start)
        for side, path, of_side in zip(self._sides, paths, lines, strict=True):
            sample = distinct_lines(of_side)
            bound = least.of_side[side].add(sample["hash"].to_numpy())
            write_sample(
                path,
                up_to(sample, bound),
                rejected=rejected,
                temporary_folder=self._work_folder,
            )

    def _start(self) -> _LeastOfSides:
        return _LeastOfSides({side: LeastHashes(self._limit) for side in self._sides})


@dataclasses.dataclass
class _LeastOfSides:
    """What all threads of a process know of the sample; `Shared` needs a class for it."""

    of_side: dict[str, LeastHashes]


class _Train(beam.DoFn):
    def __init__(self, spec: VocabularySpec, limit: int, output: str, work_folder: str) -> None:
        self._spec = spec
        self._limit = limit
        self._output = output
        self._work_folder = work_folder

    def process(self, paths: list[str], trained_before: str = "") -> Iterator[str]:
        spec = self._spec
        sample = read_samples(sorted(paths), limit=self._limit)
        if not sample.num_rows:
            raise UserError(
                f"no text to train the {spec.name} vocabulary on: {describe_rejected(paths)}"
            )
        model = train_vocabulary(
            sample,
            name=spec.name,
            size=spec.size,
            is_size_given=spec.is_size_given,
            kind=spec.kind,
            normalization_rule=spec.normalization_rule,
            character_coverage=spec.character_coverage,
            byte_fallback=spec.byte_fallback,
            user_symbols=spec.user_symbols,
            keep_whitespace=spec.keep_whitespace,
        )
        path = FileSystems.join(self._output, spec.file)
        with files.write_whole(path, temporary_folder=self._work_folder) as file:
            file.write(model)
        yield self._output


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
      sources: All of them.
      options: How pairs are encoded and split.
      output: The dataset folder, for the rejected pairs.
      work_folder: For the spills.
    """

    vocabulary_folder: beam.pvalue.AsSingleton
    held_out: beam.pvalue.AsSingleton
    sources: Sequence[Source]
    options: EncodingOptions
    output: str
    work_folder: str

    def expand(self, units: beam.PCollection) -> EncodedUnits:
        """Wires the steps."""
        encode = _Encode(self.sources, self.options, self.output, self.work_folder)
        encoded = units | "Encode" >> beam.ParDo(
            encode, self.vocabulary_folder, self.held_out
        ).with_outputs(_STATISTICS, main=_REGION)
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

    def setup(self) -> None:
        self._names = SourceNames(self._sources)

    def process(self, unit: Unit, vocabulary_folder: str, held_out: HeldOut) -> Iterator[Any]:
        spill = FileSystems.join(self._work_folder, spill_name(unit))
        if FileSystems.exists(spill):
            regions, values = read_spill_footer(spill)
            statistics = UnitStatistics(**values)
        else:
            encoded = encode_unit(
                unit,
                self._load_vocabularies(vocabulary_folder),
                options=self._options,
                held_out=held_out,
            )
            statistics = encoded.statistics
            # First the rejected pairs: a spill says that its unit is finished.
            if encoded.rejections.rows:
                files.write_parquet(
                    FileSystems.join(self._output, f"rejected-{unit.label}.parquet"),
                    encoded.rejections.table(self._names),
                    temporary_folder=self._work_folder,
                )
            regions = write_spill(
                spill,
                encoded.parts,
                order=unit.order,
                index=unit.index,
                statistics=dataclasses.asdict(statistics),
                temporary_folder=self._work_folder,
            )
        yield from regions
        yield beam.pvalue.TaggedOutput(_STATISTICS, statistics)

    def _load_vocabularies(self, folder: str) -> VocabularyPair:
        def load() -> VocabularyPair:
            return load_vocabularies(folder, read=files.read_bytes)

        loaded: VocabularyPair = self._vocabularies.acquire(load, tag=folder)
        return loaded


def spill_name(unit: Unit) -> str:
    """Returns the name of a unit's spill in the work folder."""
    return f"spill-{unit.label}"
