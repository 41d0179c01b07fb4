"""The step of the preprocess job that sums all statistics up and writes `dataset.json`."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from model.dataset.manifest import (
    MANIFEST_FILE,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    SplitInfo,
    digest_file,
    shard_name,
)
from model.errors import UserError
from pipelines.preprocess.encoding import UnitStatistics
from pipelines.preprocess.merge_steps import RecordStatistics, ShardStatistics
from pipelines.preprocess.output_folder import find_finished
from pipelines.preprocess.plan import DatasetPlan
from pipelines.preprocess.rejected import count_reasons, describe_reasons
from pipelines.preprocess.units import Unit
from pipelines.preprocess.vocabularies import load_planned
from pipelines.preprocess.work_folder import WORK_FOLDER
from pipelines.runners.transforms import versions_here
from pipelines.storage import files
from pipelines.storage.paths import join

Counts = collections.Counter[int]  # pairs, by the order of their source; what is missing is 0


class Arrivals:
    """How many units arrived somewhere, and which: the sum of a digest of each."""

    def __init__(self) -> None:
        self.units = 0
        self._digests = 0

    def add(self, order: int, index: int, rows: Iterable[Sequence[int]]) -> None:
        """Takes note of a unit with these rows, by the orders of its sources."""
        text = json.dumps([order, index, *map(list, rows)])
        self.units += 1
        self._digests += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())

    def merge(self, other: Arrivals) -> None:
        """Takes note of what arrived elsewhere."""
        self.units += other.units
        self._digests += other._digests

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrivals) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes


@dataclasses.dataclass(kw_only=True)
class SplitTotals(RecordStatistics):
    """What is known of the shards of a split."""

    sizes: dict[int, int] = dataclasses.field(default_factory=dict)  # bytes, by shard

    def merge(self, other: SplitTotals) -> None:
        """Adds other shards."""
        if twice := self.sizes.keys() & other.sizes.keys():
            raise RuntimeError(f"shards arrived twice: {sorted(twice)}")
        self.add(other)
        self.sizes |= other.sizes


class Totals:
    """All statistics of units and shards added up: a few numbers a source, and a size a shard.

    It holds the sources that arrived, so that what one unit found of 100,000 sources is small.
    """

    def __init__(self) -> None:
        self.cut = Arrivals()
        self.encoded = Arrivals()
        self.read: Counts = collections.Counter()
        self.kept: Counts = collections.Counter()
        self.rejected: dict[str, Counts] = collections.defaultdict(collections.Counter)  # by reason
        self.excluded_texts = 0
        # Texts that were looked at, by side and the language that they seem to be in.
        self.languages: dict[tuple[str, str], Counts] = collections.defaultdict(collections.Counter)
        self.splits: dict[str, SplitTotals] = {}

    def add_unit(self, unit: UnitStatistics) -> None:
        """Adds an encoded unit."""
        self.encoded.add(unit.order, unit.index, unit.rows)
        for order, rows in unit.rows:
            self.read[order] += rows
        for order, reason, count in unit.rejected:
            self.rejected[reason][order] += count
        self.excluded_texts = max(self.excluded_texts, unit.excluded_texts)
        for order, side, language, count in unit.languages:
            self.languages[side, language][order] += count

    def add_shard(self, shard: ShardStatistics, *, duplicate_reason: str) -> None:
        """Adds a merged shard."""
        split = SplitTotals(sizes={shard.shard: shard.size})
        split.add(shard)
        self.splits.setdefault(shard.split, SplitTotals()).merge(split)
        self.kept.update(shard.kept_by_source)
        self.rejected[duplicate_reason].update(shard.duplicates_by_source)

    def merge(self, other: Totals) -> None:
        """Adds the totals of others."""
        self.cut.merge(other.cut)
        self.encoded.merge(other.encoded)
        self.read.update(other.read)
        self.kept.update(other.kept)
        for reason, counts in other.rejected.items():
            self.rejected[reason].update(counts)
        self.excluded_texts = max(self.excluded_texts, other.excluded_texts)
        for key, counts in other.languages.items():
            self.languages[key].update(counts)
        for name, split in other.splits.items():
            self.splits.setdefault(name, SplitTotals()).merge(split)

    def rejected_of(self, order: int) -> dict[str, int]:
        """Returns how many pairs of a source were rejected, by reason."""
        counts = ((reason, counts[order]) for reason, counts in sorted(self.rejected.items()))
        return {reason: count for reason, count in counts if count}

    def languages_of(self, order: int) -> dict[str, dict[str, int]]:
        """Returns how many texts of each side of a source seem to be in a language, by language."""
        found: dict[str, dict[str, int]] = {"source": {}, "target": {}}
        for (side, language), counts in sorted(self.languages.items()):
            if counts[order]:
                found[side][language] = counts[order]
        return found


# Beam sets its label when it applies it: it cannot be frozen.
@dataclasses.dataclass(kw_only=True, eq=False)
class WriteManifest(beam.PTransform):
    """Checks that every pair is accounted for and writes `dataset.json`, the last of all files."""

    plan: DatasetPlan
    digests: beam.pvalue.AsSingleton  # side input: digests of the vocabularies, by file name
    cut: beam.PCollection  # of Units, as they were cut
    units: beam.PCollection  # of UnitStatistics
    shards: beam.PCollection  # of ShardStatistics

    def expand(self, _: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        # Flink's runner takes no PCollection that is both flattened and grouped, as these are.
        # https://github.com/apache/beam/issues/34647
        cut = self.cut | "Units as they were cut" >> beam.Map(_itself)
        return (
            (cut, self.units, self.shards)
            | "All statistics" >> beam.Flatten()
            | "Add up" >> beam.CombineGlobally(_SumStatistics(self.plan))
            | "Complete" >> beam.ParDo(_Complete(self.plan), self.digests)
            | "Delete work folder" >> beam.ParDo(_DeleteWork(self.plan))
        )


def _itself(unit: Unit) -> Unit:
    return unit


class _SumStatistics(beam.CombineFn):
    """Adds up statistics, so that no worker gets those of all units and shards; checks the sums."""

    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan

    def create_accumulator(self) -> Totals:
        return Totals()

    def add_input(self, totals: Totals, found: Unit | UnitStatistics | ShardStatistics) -> Totals:
        if isinstance(found, Unit):
            rows = [[part.order, part.rows] for part in found.parts]
            totals.cut.add(found.order, found.index, rows)
        elif isinstance(found, UnitStatistics):
            totals.add_unit(found)
        else:
            totals.add_shard(found, duplicate_reason=self._plan.duplicate_reason)
        return totals

    def merge_accumulators(self, accumulators: Iterable[Totals]) -> Totals:
        merged = self.create_accumulator()
        for totals in accumulators:
            merged.merge(totals)
        return merged

    def extract_output(self, totals: Totals) -> Totals:
        check_totals(self._plan, totals)
        return totals


def check_totals(plan: DatasetPlan, totals: Totals) -> None:
    """Checks that all units and shards arrived once, and that each pair is accounted for.

    Raises:
      RuntimeError: Some were lost or counted twice.
    """
    if totals.encoded != totals.cut:
        raise RuntimeError(
            f"{totals.encoded.units} units arrived, which are not the {totals.cut.units} that were "
            "cut"
        )
    for name, spread in plan.splits.items():
        shards = sorted(totals.splits.get(name, SplitTotals()).sizes)
        if shards != list(range(spread.shards)):
            raise RuntimeError(f"shards of {name}: {shards} of {spread.shards}")
    rejected: Counts = collections.Counter()
    for counts in totals.rejected.values():
        rejected.update(counts)
    for order in sorted(totals.read.keys() | totals.kept.keys() | rejected.keys()):
        if totals.read[order] != totals.kept[order] + rejected[order]:
            raise RuntimeError(
                f"{plan.source_list.source(order).name}: {totals.read[order]} pairs read, but "
                f"{totals.kept[order]} kept and {rejected[order]} rejected"
            )


class _Complete(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan
        self._version = versions_here()["tt"]  # of the program that plans

    def process(self, totals: Totals, digests: Mapping[str, str]) -> Iterator[str]:
        plan = self._plan
        if find_finished(plan):  # by this very step, which is tried again: there is no work folder
            yield join(plan.options.output, MANIFEST_FILE)
            return
        sources = describe_sources(plan, totals)
        splits = {
            name: describe_split(name, totals.splits[name], shards=spread.shards)
            for name, spread in plan.splits.items()
        }
        check_splits(splits[TRAIN], splits[VALIDATION], sources=sources)
        options = plan.options
        vocabularies = load_planned(options.output, digests)
        manifest = DatasetManifest(
            fingerprint=plan.fingerprint,
            version=self._version,
            corpus=plan.corpus,
            source_language=options.source_language,
            target_language=options.target_language,
            source_vocabulary_size=vocabularies.source.size,
            target_vocabulary_size=vocabularies.target.size,
            shared_vocabulary=options.is_shared,
            lines_read=sum(source["read"] for source in sources),
            pairs_kept=sum(source["kept"] for source in sources),
            excluded_texts=totals.excluded_texts,
            rejected=dict(sorted(count_reasons(sources).items())),
            sources=sources,
            splits=splits,
            options=plan.resolved,
            vocabulary_digests={
                name: digest_file(files.read_bytes(join(options.output, name)))
                for name in vocabularies.files
            },
        )
        path = join(options.output, MANIFEST_FILE)
        plan.work.write_text(path, manifest.to_json())
        yield path


class _DeleteWork(beam.DoFn):
    """Deletes what a finished dataset does not need, where the files are, and passes its name."""

    def __init__(self, plan: DatasetPlan) -> None:
        self._folder = join(plan.options.output, WORK_FOLDER)

    def process(self, manifest: str) -> Iterator[str]:
        files.delete_folder(self._folder)
        yield manifest


def describe_split(name: str, totals: SplitTotals, *, shards: int) -> SplitInfo:
    """Returns what the manifest says of a split."""
    tokens = totals.source_tokens + totals.target_tokens

    def waste(padded: int) -> float:
        return round(1 - tokens / padded, 4) if padded else 0.0

    return SplitInfo(
        shards=[shard_name(name, i, shards) for i in range(shards)],
        records=totals.records,
        source_tokens=totals.source_tokens,
        target_tokens=totals.target_tokens,
        longest=totals.longest,
        source_lengths=totals.source_lengths,
        target_lengths=totals.target_lengths,
        length_ratios=totals.length_ratios,
        lost_end_ratios=totals.lost_end_ratios,
        placeholder_pairs=totals.placeholder_pairs,
        padding_as_stored=waste(totals.padded_as_stored),
        padding_by_length=waste(totals.padded_by_length),
        shard_sizes=[totals.sizes[shard] for shard in range(shards)],
    )


def describe_sources(plan: DatasetPlan, totals: Totals) -> list[dict[str, Any]]:
    """Returns what the manifest says of each source."""
    return [
        {
            **plan.source_list.identity(order),
            "is_held_out": order >= plan.held_out_from,
            "read": totals.read[order],
            "kept": totals.kept[order],
            "rejected": totals.rejected_of(order),
            "languages": totals.languages_of(order),
        }
        for order in range(plan.source_count)
    ]


def check_splits(train: SplitInfo, validation: SplitInfo, *, sources: list[dict[str, Any]]) -> None:
    """Checks that there is something to train and to validate on.

    Raises:
      UserError: A split is empty.
    """
    read = sum(source["read"] for source in sources)
    reasons = describe_reasons(count_reasons(sources)) or "none"
    held_out = [source["name"] for source in sources if source["is_held_out"]]
    if held_out and not validation.records:
        raise UserError(
            f"no pair of the held-out corpus is left ({reasons} rejected in all): check "
            f"{', '.join(held_out)}, or leave it out"
        )
    for name, split in ((TRAIN, train), (VALIDATION, validation)):
        if not split.records:
            raise UserError(
                f"the corpus is too small: of {read} pairs read ({reasons} rejected) none is left "
                f"for {name}; there must be at least two pairs with different sources"
            )
