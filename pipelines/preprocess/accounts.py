"""Statistics of shards and splits, summed so that every pair is accounted for."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from model.dataset.manifest import (
    HISTOGRAM_STEP,
    PADDING_BATCH,
    TRAIN,
    VALIDATION,
    SplitInfo,
    ratio_places,
    shard_name,
)
from model.errors import UserError
from pipelines.pairs.encoding import UnitStatistics
from pipelines.pairs.spills import Headers, Places, SplitPlan


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
    length_ratios: list[int]
    padded_as_stored: int
    padded_by_length: int
    kept_by_source: dict[int, int]
    rejected_by_source: dict[int, dict[str, int]]
    size: int

    def to_json(self) -> str:
        """Returns it as text, for a rerun."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardStatistics:
        """Reads what `to_json` returned; JSON has made the orders of sources texts."""
        values = json.loads(text)
        for name in ("kept_by_source", "rejected_by_source"):
            values[name] = {int(order): value for order, value in values[name].items()}
        return cls(**values)


class ShardCounter:
    """Counts the records of a shard while they are written."""

    def __init__(self, *, split: str, shard: int) -> None:
        self._split = split
        self._shard = shard
        self._records = 0
        self._tokens = [0, 0]
        self._longest = 0
        self._lengths = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
        self._ratios = np.zeros(1, np.int64)
        self._padded_as_stored = 0
        self._padded_by_length = 0
        self._kept: collections.Counter[int] = collections.Counter()
        self._rejected: dict[int, collections.Counter[str]] = {}

    def count_kept(self, headers: Headers, places: Places) -> None:
        """Counts written records."""
        self._records += len(headers)
        both = [headers[name].astype(np.int64) for name in ("source_length", "target_length")]
        self._ratios = _add(self._ratios, np.bincount(ratio_places(*both), minlength=1))
        for side, lengths in enumerate(both):
            self._tokens[side] += int(lengths.sum())
            self._longest = max(self._longest, int(lengths.max(initial=0)))
            self._lengths[side] = _add(
                self._lengths[side], np.bincount(lengths // HISTOGRAM_STEP, minlength=1)
            )
            self._padded_by_length += int((-(-lengths // HISTOGRAM_STEP) * HISTOGRAM_STEP).sum())
            starts = np.arange(0, len(lengths), PADDING_BATCH)
            if starts.size:
                sizes = np.diff(starts, append=len(lengths))
                self._padded_as_stored += int((np.maximum.reduceat(lengths, starts) * sizes).sum())
        values, counts = np.unique(places.orders, return_counts=True)
        self._kept.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def count_rejected(self, reason: str, places: Places) -> None:
        """Counts records that were left out."""
        values, counts = np.unique(places.orders, return_counts=True)
        for order, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._rejected.setdefault(order, collections.Counter())[reason] += count

    def statistics(self, *, size: int) -> ShardStatistics:
        """Returns the counts, of a shard of `size` bytes."""
        return ShardStatistics(
            split=self._split,
            shard=self._shard,
            records=self._records,
            source_tokens=self._tokens[0],
            target_tokens=self._tokens[1],
            longest=self._longest,
            source_lengths=self._lengths[0].tolist(),
            target_lengths=self._lengths[1].tolist(),
            length_ratios=self._ratios.tolist(),
            padded_as_stored=self._padded_as_stored,
            padded_by_length=self._padded_by_length,
            kept_by_source=dict(self._kept),
            rejected_by_source={order: dict(c) for order, c in self._rejected.items()},
            size=size,
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
    source_lengths = target_lengths = length_ratios = np.zeros(1, np.int64)
    for s in own:
        source_lengths = _add(source_lengths, np.array(s.source_lengths))
        target_lengths = _add(target_lengths, np.array(s.target_lengths))
        length_ratios = _add(length_ratios, np.array(s.length_ratios))
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
        source_lengths=source_lengths.tolist() if records else [],
        target_lengths=target_lengths.tolist() if records else [],
        length_ratios=length_ratios.tolist() if records else [],
        padding_as_stored=waste(sum(s.padded_as_stored for s in own)),
        padding_by_length=waste(sum(s.padded_by_length for s in own)),
        shard_sizes=[s.size for s in sorted(own, key=lambda s: s.shard)],
    )


def sum_sources(
    identities: Sequence[dict[str, Any]],
    *,
    held_out_from: int,
    units: Sequence[UnitStatistics],
    shards: Sequence[ShardStatistics],
) -> list[dict[str, Any]]:
    """Adds up what was read, kept and rejected of each source, and checks that it is all.

    Raises:
      RuntimeError: Pairs were lost or counted twice.
    """
    read: collections.Counter[int] = collections.Counter()
    kept: collections.Counter[int] = collections.Counter()
    rejected: list[collections.Counter[str]] = [collections.Counter() for _ in identities]
    for unit in units:
        read[unit.order] += unit.rows
        rejected[unit.order].update(unit.rejected)
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
            "is_held_out": order >= held_out_from,
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
