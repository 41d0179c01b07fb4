"""The steps of the preprocess job from sources to spills, as transforms: they only wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.shared import Shared

from model.vocabulary import TextNormalization, VocabularyPair, load_vocabularies
from pipelines import files
from pipelines.accounting import (
    UnitStatistics,
    rejected_table,
)
from pipelines.encoding import EncodingOptions, encode_unit, training_lines
from pipelines.records import (
    read_spill_footer,
    write_spill,
)
from pipelines.sources import Source, Unit
from pipelines.vocabulary import SAMPLE_SCHEMA, LeastLines, least_lines, train_vocabulary

# Beam sets the label of a transform when it applies it: these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)

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
