"""Add up all statistics of the preprocess job, and write `dataset.json`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tt.model.dataset.manifest import (
    HELD_OUT,
    MANIFEST_FILE,
    TEST,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    SplitInfo,
    digest_file,
    shard_name,
    table_name,
)
from tt.model.errors import UserError
from tt.model.storage import files
from tt.model.storage.paths import join
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.preprocess.encoding import UnitStatistics
from tt.pipelines.preprocess.filters import NOT_ALIGNED
from tt.pipelines.preprocess.judging import Alignment
from tt.pipelines.preprocess.merge_steps import RecordStatistics, ShardStatistics
from tt.pipelines.preprocess.plan import DatasetPlan, find_finished
from tt.pipelines.preprocess.rejected import count_reasons, describe_reasons
from tt.pipelines.preprocess.units import Unit
from tt.pipelines.preprocess.vocabularies import load_planned

READ, KEPT, REJECTED, LANGUAGES = "read", "kept", "rejected", "languages"
MIXED = "mixed_languages"
DECODED, SHIFTED = "decoded", "shifted"


def arrival_of(order: int, index: int, rows: Iterable[Sequence[int]]) -> dict[str, int]:
    """Return a count of 1 and a digest for a unit; equal sums of both mean equal sets of units.

    Args:
      order: Position of the first source of the unit's group among all sources.
      index: Position of the unit in its group.
      rows: (position of a source, number of its rows in the unit) pairs.
    """
    text = json.dumps([order, index, *map(list, rows)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return {"units": 1, "digests": int.from_bytes(digest)}


@dataclasses.dataclass(kw_only=True)
class SplitTotals(RecordStatistics):
    """Statistics of the shards of a split."""

    sizes: dict[int, int] = dataclasses.field(default_factory=dict)  # bytes, by shard number

    def merge(self, other: SplitTotals) -> None:
        """Add the statistics of other shards."""
        if twice := self.sizes.keys() & other.sizes.keys():
            raise RuntimeError(f"these shards arrived twice: {sorted(twice)}")
        self.add(other)
        self.sizes |= other.sizes


class Totals:
    """Sums of the statistics of units and shards.

    The totals contain only sources whose statistics were added. Therefore, the totals of a unit are
    small even if there are 100,000 sources.

    Args:
      duplicate_reason: The reason code of duplicates.
    """

    def __init__(self, duplicate_reason: str) -> None:
        self._duplicate_reason = duplicate_reason
        # "cut" and "encoded" contain the sums of `arrival_of` for the cut and the encoded units.
        # "sources" contains, by the position of a source, the numbers of pairs READ, KEPT and
        # REJECTED (by reason), with DECODED entities and SHIFTED (by offset), and the numbers of
        # texts by side and by detected language.
        self.counts: dict[str, dict[Any, Any]] = {"cut": {}, "encoded": {}, "sources": {}}
        self.first_shifted: dict[int, int] = {}  # first shifted row, by the position of its source
        self.excluded_texts = 0
        self.splits: dict[str, SplitTotals] = {}

    def add(self, found: Unit | UnitStatistics | ShardStatistics) -> None:
        """Add a cut unit, the statistics of an encoded unit, or the statistics of a shard."""
        if isinstance(found, Unit):
            rows = [[part.order, part.rows] for part in found.parts]
            add_counts(self.counts["cut"], arrival_of(found.order, found.index, rows))
        elif isinstance(found, UnitStatistics):
            add_counts(self.counts["encoded"], arrival_of(found.order, found.index, found.rows))
            for order, count in found.rows:
                self._count(order, {READ: count})
            for order, reason, count in found.rejected:
                self._count(order, {REJECTED: {reason: count}})
            for order, count in found.mixed:
                self._count(order, {MIXED: count})
            for order, side, language, count in found.languages:
                self._count(order, {LANGUAGES: {side: {language: count}}})
            for order, count in found.decoded:
                self._count(order, {DECODED: count})
            for order, row, rows_of_window, offset in found.shifted:
                self._count(order, {SHIFTED: {str(offset): rows_of_window}})
                self._note_shifted({order: row})
            self.excluded_texts = max(self.excluded_texts, found.excluded_texts)
        else:
            split = SplitTotals(sizes={found.shard: found.size})
            split.add(found)
            self.splits.setdefault(found.split, SplitTotals()).merge(split)
            for order, count in found.kept_by_source.items():
                self._count(order, {KEPT: count})
            for order, count in found.duplicates_by_source.items():
                self._count(order, {REJECTED: {self._duplicate_reason: count}})

    def _count(self, order: int, counts: Mapping[str, Any]) -> None:
        add_counts(self.counts["sources"].setdefault(order, {}), counts)

    def _note_shifted(self, first_rows: Mapping[int, int]) -> None:
        for order, row in first_rows.items():
            self.first_shifted[order] = min(row, self.first_shifted.get(order, row))

    def merge(self, other: Totals) -> None:
        """Add other totals."""
        add_counts(self.counts, other.counts)
        self._note_shifted(other.first_shifted)
        self.excluded_texts = max(self.excluded_texts, other.excluded_texts)
        for name, split in other.splits.items():
            self.splits.setdefault(name, SplitTotals()).merge(split)


def check_totals(plan: DatasetPlan, totals: Totals) -> None:
    """Check that all units and shards arrived exactly once, and that each pair is counted.

    Raises:
      RuntimeError: A unit, shard or pair was lost or counted twice.
    """
    cut, encoded, sources = (totals.counts[name] for name in ("cut", "encoded", "sources"))
    if encoded != cut:
        raise RuntimeError(
            f"{encoded.get('units', 0)} encoded units arrived, which differ from the "
            f"{cut.get('units', 0)} cut units"
        )
    for name, spread in plan.splits.items():
        shards = sorted(totals.splits.get(name, SplitTotals()).sizes)
        if shards != list(range(spread.shards)):
            raise RuntimeError(f"shards {shards} of {name} arrived instead of {spread.shards}")
    for order, counts in sorted(sources.items()):
        read, kept = (counts.get(name, 0) for name in (READ, KEPT))
        rejected = sum(counts.get(REJECTED, {}).values())
        if read != kept + rejected:
            raise RuntimeError(
                f"{plan.source_list.source(order).name}: {read} pairs read, but {kept} kept and "
                f"{rejected} rejected"
            )


def write_manifest(
    totals: Totals,
    digests: Mapping[str, str],
    alignment: Alignment,
    *,
    plan: DatasetPlan,
    version: str,
) -> str:
    """Write the manifest, and return its path.

    Raises:
      RuntimeError: A unit, shard or pair was lost or counted twice.
      UserError: A split is empty.
    """
    options = plan.options
    path = join(options.output, MANIFEST_FILE)
    if find_finished(plan):  # A repetition of this step; the work folder may no longer exist.
        return path
    check_totals(plan, totals)
    sources = describe_sources(plan, totals)
    splits = {
        name: describe_split(name, totals.splits[name], shards=spread.shards)
        for name, spread in plan.splits.items()
    }
    check_splits(splits, sources=sources)
    vocabularies = load_planned(options.output, digests)
    manifest = DatasetManifest(
        fingerprint=plan.fingerprint,
        version=version,
        corpus=plan.corpus,
        source_language=options.source_language,
        target_language=options.target_language,
        source_vocabulary_size=vocabularies.source.size,
        target_vocabulary_size=vocabularies.target.size,
        shared_vocabulary=options.is_shared,
        lines_read=sum(source[READ] for source in sources),
        pairs_kept=sum(source[KEPT] for source in sources),
        excluded_texts=totals.excluded_texts,
        unread_files=dict(plan.unread_files),
        rejected=dict(sorted(count_reasons(sources).items())),
        sources=sources,
        splits=splits,
        options=plan.resolved,
        alignment=alignment.as_json(options.alignment) if options.alignment else None,
        vocabulary_digests={
            name: digest_file(files.read_bytes(join(options.output, name)))
            for name in vocabularies.files
        },
    )
    plan.work.write_text(path, manifest.to_json())
    return path


def describe_split(name: str, totals: SplitTotals, *, shards: int) -> SplitInfo:
    """Return the manifest's entry for a split."""
    fields = {field.name for field in dataclasses.fields(SplitInfo)}

    return SplitInfo(
        shards=[shard_name(name, i, shards) for i in range(shards)],
        shard_sizes=[totals.sizes[shard] for shard in range(shards)],
        tables=[table_name(name, i, shards) for i in range(shards)] if name == TEST else [],
        **{name: value for name, value in vars(totals).items() if name in fields},
    )


def describe_sources(plan: DatasetPlan, totals: Totals) -> list[dict[str, Any]]:
    """Return the manifest's entry for each source."""
    sources = []
    for order in range(plan.source_count):
        counts = totals.counts["sources"].get(order, {})
        rejected, languages = counts.get(REJECTED, {}), counts.get(LANGUAGES, {})
        sources.append(
            {
                **plan.source_list.identity(order),
                HELD_OUT: order >= plan.held_out_from,
                READ: counts.get(READ, 0),
                KEPT: counts.get(KEPT, 0),
                **({MIXED: counts[MIXED]} if counts.get(MIXED) else {}),
                DECODED: counts.get(DECODED, 0),
                SHIFTED: _describe_shifted(totals, order),
                REJECTED: {name: count for name, count in sorted(rejected.items()) if count},
                LANGUAGES: {
                    side: dict(sorted(languages.get(side, {}).items()))
                    for side in ("source", "target")
                },
            }
        )
    return sources


def _describe_shifted(totals: Totals, order: int) -> dict[str, Any]:
    """Return the first line and the number of shifted pairs of a source; {} if there are none."""
    if order not in totals.first_shifted:
        return {}
    by_offset = dict(sorted(totals.counts["sources"][order][SHIFTED].items()))
    return {"first_line": totals.first_shifted[order] + 1, "pairs_by_offset": by_offset}


def check_splits(splits: Mapping[str, SplitInfo], *, sources: list[dict[str, Any]]) -> None:
    """Check that each split has pairs.

    Raises:
      UserError: A split is empty.
    """
    read = sum(source[READ] for source in sources)
    reasons = describe_reasons(count_reasons(sources)) or "none"
    held_out = [source["name"] for source in sources if source[HELD_OUT]]
    for name in splits:
        if not splits[name].records:
            fix = "Choose a corpus with at least two pairs that have different sources"
            if NOT_ALIGNED in reasons and not held_out:
                fix = (
                    f"Relax `alignment_filter`, which may reject the pairs of {name}, or raise "
                    f"`{name}_fraction`"
                )
            if held_out and name == VALIDATION:
                fix = f"Check the validation corpus {', '.join(held_out)}, or remove it"
            if name == TEST and all(splits[other].records for other in (TRAIN, VALIDATION)):
                fix = "Raise `test_fraction`, or remove it"
            raise UserError(
                f"there are no pairs for {name}: {read} pairs were read (rejected: {reasons}). "
                f"{fix}"
            )
