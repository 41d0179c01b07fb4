"""The step of the preprocess job that sums all statistics up and writes `dataset.json`."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
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
from model.text.vocabulary import load_vocabularies
from pipelines.pairs.encoding import UnitStatistics
from pipelines.pairs.rejected import count_reasons, describe_reasons
from pipelines.pairs.spills import SplitPlan
from pipelines.pairs.units import read_index
from pipelines.preprocess.dataset_folder import installed_version
from pipelines.preprocess.merge_steps import ShardStatistics, add_counts
from pipelines.preprocess.plan import DatasetPlan
from pipelines.storage import files
from pipelines.storage.paths import join


# Beam sets its label when it applies it: it cannot be frozen.
@dataclasses.dataclass(kw_only=True, eq=False)
class WriteManifest(beam.PTransform):
    """Checks that every pair is accounted for and writes `dataset.json`, the last of all files."""

    plan: DatasetPlan
    units: beam.PCollection  # of UnitStatistics
    shards: beam.PCollection  # of ShardStatistics

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wires the steps."""
        units, shards = beam.pvalue.AsList(self.units), beam.pvalue.AsList(self.shards)
        complete = beam.ParDo(_Complete(self.plan), units, shards)
        return begin | "Draft" >> beam.Create([None]) | "Complete" >> complete


class _Complete(beam.DoFn):
    def __init__(self, plan: DatasetPlan) -> None:
        self._plan = plan
        # Of the program that plans, and of the files that it saw.
        self._version, self._options = installed_version(), plan.options.resolved()

    def process(
        self, _: None, units: list[UnitStatistics], shards: list[ShardStatistics]
    ) -> Iterator[str]:
        plan = self._plan
        _check_all_arrived(plan, units)
        sources = sum_sources(plan, units=units, shards=shards)
        splits = {name: sum_split(name, split, shards) for name, split in plan.splits.items()}
        check_splits(splits[TRAIN], splits[VALIDATION], sources=sources)
        options = plan.options
        vocabularies = load_vocabularies(options.output, read=files.read_bytes)
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
            rejected=dict(sorted(count_reasons(sources).items())),
            sources=sources,
            splits=splits,
            options=self._options,
            vocabulary_digests={
                name: digest_file(files.read_bytes(join(options.output, name)))
                for name in vocabularies.files
            },
        )
        path = join(options.output, MANIFEST_FILE)
        plan.work.write_text(path, manifest.to_json())
        yield path


def _check_all_arrived(plan: DatasetPlan, units: Sequence[UnitStatistics]) -> None:
    """Compares the units with those that the cutting steps have written down."""
    arrived: collections.defaultdict[int, dict[int, dict[int, int]]]
    arrived = collections.defaultdict(dict)
    for unit in units:
        if unit.index in arrived[unit.order]:
            raise RuntimeError(f"unit {unit.index} of group {unit.order} arrived twice")
        arrived[unit.order][unit.index] = dict(unit.rows)
    for group in plan.source_list.groups():
        index = read_index(files.read_bytes(plan.work.index(group.start)))
        expected = {place: rows for place, (rows, _) in enumerate(index)}
        if arrived[group.start] != expected:
            raise RuntimeError(
                f"of group {group.start} arrived {arrived[group.start]}, but its units have "
                f"{expected} rows"
            )


def sum_split(split: str, plan: SplitPlan, shards: Sequence[ShardStatistics]) -> SplitInfo:
    """Adds up the shards of a split."""
    own = [s for s in shards if s.split == split]
    if sorted(s.shard for s in own) != list(range(plan.shards)):
        raise RuntimeError(f"shards of {split}: {sorted(s.shard for s in own)} of {plan.shards}")
    records = sum(s.records for s in own)
    tokens = sum(s.source_tokens + s.target_tokens for s in own)

    def waste(padded: int) -> float:
        return round(1 - tokens / padded, 4) if padded else 0.0

    return SplitInfo(
        shards=[shard_name(split, i, plan.shards) for i in range(plan.shards)],
        records=records,
        source_tokens=sum(s.source_tokens for s in own),
        target_tokens=sum(s.target_tokens for s in own),
        longest=max(s.longest for s in own),
        source_lengths=add_counts(*(s.source_lengths for s in own)) if records else [],
        target_lengths=add_counts(*(s.target_lengths for s in own)) if records else [],
        length_ratios=add_counts(*(s.length_ratios for s in own)) if records else [],
        placeholder_pairs=add_counts(*(s.placeholder_pairs for s in own)),
        padding_as_stored=waste(sum(s.padded_as_stored for s in own)),
        padding_by_length=waste(sum(s.padded_by_length for s in own)),
        shard_sizes=[s.size for s in sorted(own, key=lambda s: s.shard)],
    )


def sum_sources(
    plan: DatasetPlan, *, units: Sequence[UnitStatistics], shards: Sequence[ShardStatistics]
) -> list[dict[str, Any]]:
    """Adds up what was read, kept and rejected of each source, and checks that it is all.

    Raises:
      RuntimeError: Pairs were lost or counted twice.
    """
    read: collections.Counter[int] = collections.Counter()
    kept: collections.Counter[int] = collections.Counter()
    identities = [plan.source_list.identity(order) for order in range(plan.source_count)]
    rejected: list[collections.Counter[str]] = [collections.Counter() for _ in identities]
    for unit in units:
        for order, rows in unit.rows:
            read[order] += rows
        for order, reason, count in unit.rejected:
            rejected[order][reason] += count
    for shard in shards:
        kept.update(shard.kept_by_source)
        for order, reasons in shard.rejected_by_source.items():
            rejected[order].update(reasons)
    for order, identity in enumerate(identities):
        if read[order] != kept[order] + rejected[order].total():
            raise RuntimeError(
                f"{identity['name']}: {read[order]} pairs read, but {kept[order]} kept and "
                f"{rejected[order].total()} rejected"
            )
    return [
        {
            **identity,
            "is_held_out": order >= plan.held_out_from,
            "read": read[order],
            "kept": kept[order],
            "rejected": dict(sorted(rejected[order].items())),
        }
        for order, identity in enumerate(identities)
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
