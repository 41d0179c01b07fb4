"""What became of every pair: the rejected ones, the statistics, and the manifest made of them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from model.artifacts import (
    HISTOGRAM_STEP,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    SplitInfo,
    shard_name,
)
from model.errors import UserError
from pipelines.records import Batch, Place, SplitPlan
from pipelines.sources import Source

# A duplicate has its survivor's place instead of texts. Lines and rows are counted from 1.
REJECTED_SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("corpus", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("survivor_corpus", pa.string()),
        ("survivor_file", pa.string()),
        ("survivor_line", pa.int64()),
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejection:
    """A pair that was left out.

    Attributes:
      reason: Its code.
      place: Where the pair stands.
      source: Its source text, or None for what the merge found.
      target: Its target text, or None.
      survivor: Where the pair stands that was kept instead of a duplicate.
    """

    reason: str
    place: Place
    source: str | None = None
    target: str | None = None
    survivor: Place | None = None


def rejected_table(rejections: Sequence[Rejection], sources: Sequence[Source]) -> pa.Table:
    """Makes the table of a `rejected-*.parquet`, by place."""

    def row(rejection: Rejection) -> dict[str, Any]:
        place, survivor = rejection.place, rejection.survivor
        values = {
            "reason": rejection.reason,
            "corpus": sources[place.order].name,
            "file": sources[place.order].file_of(place.row),
            "line": place.row + 1,
            "source": rejection.source,
            "target": rejection.target,
        }
        if survivor:
            values["survivor_corpus"] = sources[survivor.order].name
            values["survivor_file"] = sources[survivor.order].file_of(survivor.row)
            values["survivor_line"] = survivor.row + 1
        return values

    ordered = sorted(rejections, key=lambda r: (r.place.order, r.place.row))
    return pa.Table.from_pylist([row(r) for r in ordered], schema=REJECTED_SCHEMA)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """What encoding a unit found; JSON, so that a spill's footer can hold it.

    Attributes:
      order: The place of the unit's source among all sources.
      index: The place of the unit in its source.
      rows: Rows read.
      rejected: Pairs rejected, by reason.
      least_source_hash: The least hash of a source that was kept; None for held-out units and
        where nothing was kept.
      held_out: Hashes of the sources of a held-out unit, in hexadecimal, 16 digits each.
    """

    order: int
    index: int
    rows: int
    rejected: dict[str, int]
    least_source_hash: int | None = None
    held_out: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardStatistics:
    """What merging a shard kept and left out, the latter by source and reason."""

    split: str
    shard: int
    records: int
    source_tokens: int
    target_tokens: int
    longest: int
    source_lengths: list[int]
    target_lengths: list[int]
    kept_by_source: dict[int, int]
    rejected_by_source: dict[int, dict[str, int]]


class ShardCounter:
    """Counts the records of a shard while they are written."""

    def __init__(self, *, split: str, shard: int) -> None:
        self._split = split
        self._shard = shard
        self._records = 0
        self._tokens = [0, 0]
        self._longest = 0
        self._lengths = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
        self._kept: collections.Counter[int] = collections.Counter()
        self._rejected: dict[int, collections.Counter[str]] = {}

    def count_kept(self, batch: Batch, orders: np.ndarray[Any, Any]) -> None:
        """Counts written records, given their sources."""
        self._records += len(batch.records)
        for side, column in enumerate(("source_length", "target_length")):
            lengths = batch.headers[column].astype(np.int64)
            self._tokens[side] += int(lengths.sum())
            self._longest = max(self._longest, int(lengths.max(initial=0)))
            self._lengths[side] = _add(
                self._lengths[side], np.bincount(lengths // HISTOGRAM_STEP, minlength=1)
            )
        values, counts = np.unique(orders, return_counts=True)
        self._kept.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def count_rejected(self, rejections: Iterable[Rejection]) -> None:
        """Counts records that were left out."""
        for rejection in rejections:
            by_reason = self._rejected.setdefault(rejection.place.order, collections.Counter())
            by_reason[rejection.reason] += 1

    def statistics(self) -> ShardStatistics:
        """Returns the counts."""
        return ShardStatistics(
            split=self._split,
            shard=self._shard,
            records=self._records,
            source_tokens=self._tokens[0],
            target_tokens=self._tokens[1],
            longest=self._longest,
            source_lengths=self._lengths[0].tolist(),
            target_lengths=self._lengths[1].tolist(),
            kept_by_source=dict(self._kept),
            rejected_by_source={order: dict(c) for order, c in self._rejected.items()},
        )


def _add(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


def sum_split(split: str, plan: SplitPlan, shards: Sequence[ShardStatistics]) -> SplitInfo:
    """Adds up the shards of a split."""
    own = [s for s in shards if s.split == split]
    if sorted(s.shard for s in own) != list(range(plan.shards)):
        raise RuntimeError(f"shards of {split}: {sorted(s.shard for s in own)} of {plan.shards}")
    source_lengths = target_lengths = np.zeros(1, np.int64)
    for s in own:
        source_lengths = _add(source_lengths, np.array(s.source_lengths))
        target_lengths = _add(target_lengths, np.array(s.target_lengths))
    records = sum(s.records for s in own)
    return SplitInfo(
        shards=[shard_name(split, i, plan.shards) for i in range(plan.shards)],
        records=records,
        source_tokens=sum(s.source_tokens for s in own),
        target_tokens=sum(s.target_tokens for s in own),
        longest=max(s.longest for s in own),
        source_lengths=source_lengths.tolist() if records else [],
        target_lengths=target_lengths.tolist() if records else [],
    )


def sum_sources(
    sources: Sequence[Source],
    *,
    held_out_from: int,
    units: Sequence[UnitStatistics],
    shards: Sequence[ShardStatistics],
) -> list[dict[str, Any]]:
    """Adds up what was read, kept and rejected of each source, and checks that it is all.

    Raises:
      RuntimeError: Pairs were lost or counted twice.
    """
    summed = []
    for order, source in enumerate(sources):
        rejected: collections.Counter[str] = collections.Counter()
        for unit in units:
            if unit.order == order:
                rejected.update(unit.rejected)
        for shard in shards:
            rejected.update(shard.rejected_by_source.get(order, {}))
        read = sum(unit.rows for unit in units if unit.order == order)
        kept = sum(shard.kept_by_source.get(order, 0) for shard in shards)
        if read != kept + rejected.total():
            raise RuntimeError(
                f"{source.name}: {read} pairs read, but {kept} kept and {rejected.total()} rejected"
            )
        summed.append(
            {
                "name": source.name,
                "is_held_out": order >= held_out_from,
                "read": read,
                "kept": kept,
                "rejected": dict(sorted(rejected.items())),
            }
        )
    return summed


def check_splits(train: SplitInfo, validation: SplitInfo, *, sources: list[dict[str, Any]]) -> None:
    """Checks that there is something to train and to validate on.

    Raises:
      UserError: A split is empty.
    """
    read = sum(source["read"] for source in sources)
    rejected: collections.Counter[str] = collections.Counter()
    for source in sources:
        rejected.update(source["rejected"])
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(rejected.items())) or "none"
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


def describe_manifest(manifest: DatasetManifest) -> list[str]:
    """Returns the lines that sum up a dataset for its user."""
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in manifest.rejected.items())
    lines = [
        f"{manifest.lines_read:,} pairs read, {manifest.pairs_kept:,} kept, "
        f"{manifest.lines_read - manifest.pairs_kept:,} rejected"
        + (f" ({reasons})" if reasons else "")
    ]
    for name, split in manifest.splits.items():
        mean_source = split.source_tokens / max(split.records, 1)
        mean_target = split.target_tokens / max(split.records, 1)
        lines.append(
            f"{name}: {split.records:,} pairs in {len(split.shards)} shard(s), "
            f"{split.source_tokens:,} source and {split.target_tokens:,} target tokens "
            f"(on average {mean_source:.1f} and {mean_target:.1f}, at most {split.longest})"
        )
    if manifest.shared_vocabulary:
        lines.append(f"vocabulary: {manifest.source_vocabulary_size:,} pieces, shared")
    else:
        lines.append(
            f"vocabularies: {manifest.source_vocabulary_size:,} source and "
            f"{manifest.target_vocabulary_size:,} target pieces"
        )
    return lines
