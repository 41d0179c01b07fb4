"""What became of every pair: the rejected ones, the statistics, and the manifest made of them."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from model.dataset.manifest import (
    HISTOGRAM_STEP,
    PADDING_BATCH,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    SplitInfo,
    ratio_places,
    shard_name,
)
from model.errors import UserError
from pipelines.corpora.encodings import is_other_encoding
from pipelines.corpora.opening import Source
from pipelines.pairs.spills import Headers, Places, SplitPlan
from pipelines.pairs.units import INVALID_UTF8

_NAME_WIDTH = 40
_ROWS_AT_ONCE = 1 << 16

# A duplicate has its survivor's place instead of texts. Lines and rows are counted from 1.
REJECTED_SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("corpus", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("survivor_corpus", pa.string()),
        ("survivor_file", pa.string()),
        ("survivor_line", pa.int64()),
    ]
)


class SourceNames:
    """What the sources are called in a `rejected-*.parquet`, made once for many tables."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._names = pa.array([source.name for source in sources], pa.string())
        self._paths = pa.array([source.file_of(0) for source in sources], pa.string())

    def columns(self, places: Places) -> dict[str, pa.Array]:
        """Returns the columns that say where pairs stand."""
        orders = pa.array(places.orders)
        return {
            "corpus": self._names.take(orders),
            "file": self._paths.take(orders),
            "line": pa.array(places.rows + 1),
        }


class Rejections:
    """The pairs of a unit that were left out, each with its reason and its texts as read.

    Attributes:
      order: The place of the unit's source among all sources.
      reasons: Code of each.
      rows: Row of each in its source, from 0.
    """

    def __init__(self, order: int) -> None:
        self.order = order
        self.reasons: list[str] = []
        self.rows: list[int] = []
        self._sources: list[pa.ChunkedArray] = []
        self._targets: list[pa.ChunkedArray] = []

    def add_texts(
        self,
        *,
        reasons: list[str],
        rows: list[int],
        sources: pa.ChunkedArray,
        targets: pa.ChunkedArray,
    ) -> None:
        """Adds some pairs."""
        self.reasons += reasons
        self.rows += rows
        self._sources.append(sources)
        self._targets.append(targets)

    def table(self, names: SourceNames) -> pa.Table:
        """Makes the table of a `rejected-*.parquet`, by row."""
        places = Places(np.full(len(self.rows), self.order), np.array(self.rows, np.int64))
        columns = {
            "reason": pa.array(self.reasons, pa.string()),
            **names.columns(places),
            "source": _chunked(self._sources),
            "target": _chunked(self._targets),
        }
        return _rejected_table(columns, len(self.rows)).take(np.argsort(places.rows))


def duplicates_tables(
    duplicates: Places, survivors: Places, *, reason: str, names: SourceNames
) -> Iterator[pa.Table]:
    """Makes tables of a `rejected-*.parquet` of duplicates and what was kept instead."""
    for begin in range(0, len(duplicates.rows), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        rejected, kept = duplicates.select(part), names.columns(survivors.select(part))
        columns = {
            "reason": pa.repeat(reason, len(rejected.rows)),
            **names.columns(rejected),
            **{f"survivor_{name}": column for name, column in kept.items()},
        }
        yield _rejected_table(columns, len(rejected.rows))


def _chunked(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.large_string())


def _rejected_table(columns: dict[str, Any], count: int) -> pa.Table:
    return pa.table(
        [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in REJECTED_SCHEMA
        ],
        schema=REJECTED_SCHEMA,
    )


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
    """

    order: int
    index: int
    rows: int
    rejected: dict[str, int]
    least_source_hash: int | None = None


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


def describe_manifest(manifest: DatasetManifest) -> list[str]:
    """Returns the lines that sum up a dataset for its user."""
    lines = [
        f"{manifest.lines_read:,} pairs read, {manifest.pairs_kept:,} kept, "
        f"{manifest.lines_read - manifest.pairs_kept:,} rejected"
    ]
    lines += _table_of_sources(manifest.sources)
    lines += _describe_encodings(manifest.sources)
    lines += _describe_validation(manifest.sources)
    for name, split in manifest.splits.items():
        mean_source = split.source_tokens / max(split.records, 1)
        mean_target = split.target_tokens / max(split.records, 1)
        lines.append(
            f"{name}: {split.records:,} pairs in {len(split.shards)} shard(s), "
            f"{split.source_tokens:,} source and {split.target_tokens:,} target tokens "
            f"(on average {mean_source:.1f} and {mean_target:.1f}, at most {split.longest})"
        )
    if manifest.shared_vocabulary:
        vocabulary = f"vocabulary: {manifest.source_vocabulary_size:,} pieces, shared"
    else:
        vocabulary = (
            f"vocabularies: {manifest.source_vocabulary_size:,} source and "
            f"{manifest.target_vocabulary_size:,} target pieces"
        )
    if _has_small_vocabulary(manifest):
        wanted = manifest.options["vocabulary_size"]
        vocabulary += f": the corpus allows no more, where {wanted:,} are the default"
    return [*lines, vocabulary]


def _has_small_vocabulary(manifest: DatasetManifest) -> bool:
    """Says whether a vocabulary has fewer pieces than by default, as the corpus allowed no more."""
    options = manifest.options
    wanted = options.get("vocabulary_size", 0)  # 0: the vocabulary was given
    sizes = manifest.source_vocabulary_size, manifest.target_vocabulary_size
    kinds = (
        options[f"{side}_vocabulary_type"] or options["vocabulary_type"] if wanted else ""
        for side in ("source", "target")
    )
    return any(kind != "char" and size < wanted for kind, size in zip(kinds, sizes, strict=True))


def _describe_encodings(sources: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields a line on each text of which many lines are not in the encoding that was named."""
    for source in sources:
        invalid = source["rejected"].get(INVALID_UTF8, 0)
        is_text = source["kind"] in ("text", "tsv", "jsonl")
        if is_text and invalid and is_other_encoding(invalid=invalid, lines=source["read"]):
            encoding = source.get("encoding", "UTF-8")
            yield (
                f"warning: {invalid:,} of {source['read']:,} lines of {source['name']} are not "
                f"{encoding}: if it is in another encoding, such as latin-1 or cp1252, name that "
                "with --encoding and make the dataset again"
            )


def _describe_validation(sources: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the line that says how much of the validation corpora was kept, if there are any."""
    held_out = [source for source in sources if source["is_held_out"]]
    if not held_out:
        return []
    read, kept = (sum(source[count] for source in held_out) for count in ("read", "kept"))
    rejected: collections.Counter[str] = collections.Counter()
    for source in held_out:
        rejected.update(source["rejected"])
    if not rejected:
        return [f"validation corpus: all {read:,} pairs kept"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejected.items()))
    return [f"validation corpus: {kept:,} of {read:,} pairs kept, without {reasons}"]


def _table_of_sources(sources: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a table of what was read, kept and rejected, by source and reason."""
    # Files that one name was given to are one entry.
    totals: dict[str, collections.Counter[str]] = {}
    rejected: dict[str, collections.Counter[str]] = {}
    for source in sources:
        total = totals.setdefault(source["name"], collections.Counter())
        total.update({name: source[name] for name in ("read", "kept")})
        rejected.setdefault(source["name"], collections.Counter()).update(source["rejected"])
    if len(totals) > 1:
        totals["all"] = sum(totals.values(), collections.Counter())
        rejected["all"] = sum(rejected.values(), collections.Counter())
    rows: list[tuple[str, ...]] = [("", "read", "kept", "rejected")]
    for name, total in totals.items():
        reasons = rejected[name]
        counts = (total["read"], total["kept"], reasons.total())
        rows.append((_shorten(name), *(f"{count:,}" for count in counts)))
        rows += [(f"  {reason}", "", "", f"{n:,}") for reason, n in sorted(reasons.items())]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        "  ".join([name.ljust(first), *(c.rjust(w) for c, w in zip(cells, others, strict=True))])
        for name, *cells in rows
    ]


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :]
