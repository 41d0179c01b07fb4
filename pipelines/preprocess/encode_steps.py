"""The transforms of the preprocess job from sources to spills."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.shared import Shared

from tt.model.errors import UserError
from tt.model.storage import listing
from tt.model.storage.paths import join
from tt.pipelines.jobs.running import AddUp
from tt.pipelines.preprocess.cleaning import compare_sides, find_split_pairs, hash_pairs
from tt.pipelines.preprocess.corpora import SourceList
from tt.pipelines.preprocess.encoding import UnitStatistics, encode_unit, training_lines
from tt.pipelines.preprocess.entities import decode_entities
from tt.pipelines.preprocess.held_out import HeldOut, hash_texts, unite
from tt.pipelines.preprocess.judging import Alignment
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.rejected import PARQUET_END, REJECTED_SCHEMA, describe_reasons
from tt.pipelines.preprocess.spills import find_spill, write_spill
from tt.pipelines.preprocess.units import Piece, Unit, cut_piece, find_pieces
from tt.pipelines.preprocess.vocabularies import (
    Sample,
    distinct_lines,
    load_planned,
    merge_samples,
    train_vocabulary,
    write_vocabulary,
)
from tt.pipelines.preprocess.work_folder import ends_with
from tt.pipelines.runners.transforms import Spread, check_worker, versions_here
from tt.pipelines.tables.damage import with_remedy
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.formats import TEXT, ReadOptions
from tt.pipelines.tables.reading import OpenTable

# Beam sets the label of a transform when it applies it, so these dataclasses cannot be frozen.
_transform = dataclasses.dataclass(kw_only=True, eq=False)
_REGION = "regions"
_STATISTICS = "statistics"


@_transform
class ListUnits(beam.PTransform):
    """Cut the sources into units of at most `plan.unit_pairs` rows, and write text to chunk files.

    Yields the units, redistributed over the workers, and the same units before redistribution.
    """

    plan: DatasetPlan

    def expand(self, begin: beam.pvalue.PBegin) -> tuple[beam.PCollection, beam.PCollection]:
        """Wire the steps."""
        cut = (
            begin
            | "Name list of sources" >> beam.Create([self.plan.source_list])
            | "Check worker" >> beam.Map(check_worker, versions=versions_here())
            | "List groups" >> beam.FlatMap(_list_groups, self.plan)
            | "Spread groups" >> Spread(key=str)
            | "Find pieces" >> beam.FlatMap(_find_pieces, self.plan)
            | "Spread pieces" >> Spread(key=str)
            | "Cut" >> beam.FlatMap(_cut, self.plan)
        )
        return cut | "Spread units" >> beam.Reshuffle(), cut


def _list_groups(sources: SourceList, plan: DatasetPlan) -> list[range]:
    """Return the groups of the sources; the plan tells a worker the addresses of object stores."""
    return sources.groups()


def _find_pieces(orders: range, plan: DatasetPlan) -> Iterator[Piece]:
    return find_pieces(orders, sources=plan.source_list, max_pairs=plan.unit_pairs, work=plan.work)


def _cut(piece: Piece, plan: DatasetPlan) -> Iterator[Unit]:
    return cut_piece(
        piece,
        sources=plan.source_list,
        is_held_out=piece.orders.start >= plan.held_out_from,
        max_pairs=plan.unit_pairs,
        work=plan.work,
    )


@_transform
class FindHeldOut(beam.PTransform):
    """Hash the pairs and texts that training must not see; yield one `HeldOut`."""

    # The options contain the rule for held-out pairs, the files of excluded texts and their
    # encoding, and the normalization.
    plan: DatasetPlan

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wire the steps."""
        of_units = units | "Hash held-out pairs" >> beam.FlatMap(_hash_unit, self.plan)
        of_files = (
            units.pipeline
            | "Name excluded files" >> beam.Create(list(self.plan.resolved["exclude"]))
            | "Hash excluded files" >> beam.Map(_hash_file, self.plan)
        )
        return (
            (of_units, of_files)
            | "All held-out texts" >> beam.Flatten()
            | "Collect" >> beam.CombineGlobally(_Collect())
            | "Unite" >> beam.Map(unite)
        )


class _Collect(beam.combiners.ToListCombineFn):
    # Beam calls this method before it sends an accumulator to another worker, so each worker sends
    # a single part.
    def compact(self, accumulator: list[HeldOut]) -> list[HeldOut]:
        return [unite(accumulator)]


def _hash_unit(unit: Unit, plan: DatasetPlan) -> Iterator[HeldOut]:
    if unit.is_held_out:
        yield hash_pairs((rows.table for rows in unit.read(plan.source_list)), plan.options)
    elif not plan.has_held_out or plan.test_below:
        yield find_split_pairs(unit, plan)


def _hash_file(planned: dict[str, Any], plan: DatasetPlan) -> HeldOut:
    options = plan.options
    with listing.unchanged([planned]):
        columns = _read_texts(planned["path"], encoding=options.encoding)
        if options.decode_entities:
            columns = (decode_entities(column)[0] for column in columns)
        return hash_texts(columns, normalization=options.normalization)


def _read_texts(path: str, *, encoding: str) -> Iterator[pa.Array]:
    """Yield the texts of a file, one per line; skip lines that are not UTF-8."""
    options = ReadOptions(input_format=TEXT, encoding=encoding)
    with with_remedy(), OpenTable(path, options=options) as table:
        for batch in table.batches():
            yield split_faults(batch)[0].column(0).drop_null().cast(pa.large_string())


@_transform
class CompareSides(beam.PTransform):
    """Compare the meaning of the sides of all training pairs; yield one `Alignment`.

    Without `alignment_filter`, the result is empty.
    """

    plan: DatasetPlan

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wire the steps."""
        if self.plan.options.alignment_filter is None:
            return units.pipeline | "No comparison" >> beam.Create([Alignment()])
        return (
            units
            | "Training units" >> beam.Filter(lambda unit: not unit.is_held_out)
            | "Compare" >> beam.Map(compare_sides, self.plan)
            | "Add up cosines" >> beam.CombineGlobally(AddUp(Alignment))
        )


@_transform
class TrainVocabularies(beam.PTransform):
    """Train vocabularies on a sample of the units; yield their digests by file name."""

    plan: DatasetPlan
    existing: Mapping[str, str] | None  # digests of existing vocabularies, or None to train them
    held_out: beam.pvalue.AsSingleton  # side input: `HeldOut` of the held-out pairs and texts
    alignment: beam.pvalue.AsSingleton  # side input: `Alignment` of the training pairs

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        """Wire the steps."""
        if self.existing:
            return units.pipeline | "Vocabularies in place" >> beam.Create([dict(self.existing)])
        return (
            units
            | "Sample lines" >> beam.Map(_sample_lines, self.plan, self.held_out, self.alignment)
            | "Least lines"
            >> beam.CombineGlobally(merge_samples, self.plan.options.vocabulary_sample)
            | "Train" >> beam.Map(_train, self.plan)
        )


def _sample_lines(unit: Unit, plan: DatasetPlan, held_out: HeldOut, alignment: Alignment) -> Sample:
    if unit.is_held_out:
        return merge_samples([], 0)
    threshold = alignment.find_threshold(plan.options.alignment)
    sources, targets, rejected = training_lines(unit, plan, held_out, threshold=threshold)
    sides = [sources + targets] if plan.options.is_shared else [sources, targets]
    limit = plan.options.vocabulary_sample
    tables = {
        file: distinct_lines(lines, limit)
        for file, lines in zip(plan.options.model_files, sides, strict=True)
    }
    return Sample(tables, rejected)


def _train(sample: Sample, plan: DatasetPlan) -> dict[str, str]:
    digests = {}
    for file in plan.options.model_files:
        lines = sample.tables.get(file)
        if lines is None or not lines.num_rows:
            raise UserError(
                f"there is no text to train {file}: the corpus has no pairs, or all pairs are held "
                f"out or rejected ({describe_reasons(sample.rejected) or 'none'}). Check the "
                "corpus, its columns, languages and `encoding`, and the filters"
            )
        try:
            trained = train_vocabulary(lines, plan.options, file=file)
        except UserError as error:
            if not sample.rejected:
                raise
            reasons = describe_reasons(sample.rejected)
            raise UserError(f"{error}. The filters rejected {reasons}") from error
        digests[file] = write_vocabulary(plan, file, trained)
    return digests


@_transform
class EncodeUnits(beam.PTransform):
    """Clean, encode and filter each unit, and write its records to a spill file.

    Yields ((split, shard), Region) pairs, and the UnitStatistics.
    """

    plan: DatasetPlan
    digests: beam.pvalue.AsSingleton  # side input: digests of the vocabularies, by file name
    held_out: beam.pvalue.AsSingleton  # side input: `HeldOut` of the held-out pairs and texts
    alignment: beam.pvalue.AsSingleton  # side input: `Alignment` of the training pairs

    def expand(self, units: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Wire the steps."""
        encoded = units | "Encode" >> beam.ParDo(
            _Encode(self.plan), self.digests, self.held_out, self.alignment
        ).with_outputs(_STATISTICS, main=_REGION)
        return encoded[_REGION], encoded[_STATISTICS]


class _Encode(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan
        self._vocabularies = Shared()  # loaded once per process, for all threads

    def process(
        self, unit: Unit, digests: Mapping[str, str], held_out: HeldOut, alignment: Alignment
    ) -> Iterator[Any]:
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
            output = self._plan.options.output
            load = functools.partial(load_planned, output, digests)
            vocabularies = self._vocabularies.acquire(load, tag=output)
            threshold = alignment.find_threshold(self._plan.options.alignment)
            encoded = encode_unit(unit, self._plan, vocabularies, held_out, threshold=threshold)
            statistics = encoded.statistics
            # The rejected pairs are written first, because a spill marks its unit as finished.
            if encoded.rejected.num_rows:
                with work.open_parquet_writer(rejected_path, REJECTED_SCHEMA) as writer:
                    writer.write_table(encoded.rejected)
            regions = write_spill(
                spill,
                encoded.parts,
                plans=self._plan.splits,
                order=unit.order,
                index=unit.index,
                statistics=dataclasses.asdict(statistics),
                vocabulary=dict(digests),
                work=work,
            )
        yield from regions
        yield beam.pvalue.TaggedOutput(_STATISTICS, statistics)
