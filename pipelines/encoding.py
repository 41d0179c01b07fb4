"""A unit of rows -> records with their keys, and rejected pairs. No Beam in it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from model.artifacts import TRAIN, VALIDATION
from model.vocabulary import TextNormalization, VocabularyPair
from pipelines.accounting import Rejection, UnitStatistics
from pipelines.cleaning import length_reason, text_reason
from pipelines.records import (
    HEADER,
    Batch,
    ExampleWriter,
    Place,
    SpillPart,
    SplitPlan,
    hash_pair,
    hash_text,
    seed_key,
)
from pipelines.sources import Unit

_ENCODED_AT_ONCE = 1024  # pairs
_SPECIAL_IDS = 2  # BOS and EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """What encoding has to know.

    Attributes:
      min_tokens: Fewest ids on each side, without BOS and EOS.
      max_tokens: Most ids on each side, without BOS and EOS.
      seed: Of the order.
      validation_below: Pairs whose source hashes below this are for validation.
      plans: How each split is spread.
    """

    min_tokens: int
    max_tokens: int
    seed: int
    validation_below: int
    plans: dict[str, SplitPlan]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedUnit:
    """The records of a unit by split, the pairs rejected, and the counts of both."""

    parts: list[SpillPart]
    rejections: list[Rejection]
    statistics: UnitStatistics


@dataclasses.dataclass(frozen=True)
class _Slice:
    """Normalised texts of the rows of a table that no filter of texts rejects."""

    table: pa.Table
    first_row: int
    rows: list[int]
    sources: list[str]
    targets: list[str]
    rejections: list[Rejection]

    def reject(self, row: int, *, reason: str, unit: Unit) -> Rejection:
        """Makes the rejection of one more row, with its texts as they were read."""
        return _rejection(
            reason, unit=unit, row=row, table=self.table, position=row - self.first_row
        )


def _clean_slices(unit: Unit, normalization: TextNormalization) -> Iterator[_Slice]:
    first = unit.first_row
    for table in unit.read():
        sources = normalization(table["source"].fill_null("").to_pylist())
        targets = normalization(table["target"].fill_null("").to_pylist())
        rows = list(range(first, first + table.num_rows))
        rejections = []
        faults = table["fault"]
        if faults.null_count < table.num_rows or not all(sources) or not all(targets):
            reasons = [
                fault or text_reason(source, target)
                for fault, source, target in zip(faults.to_pylist(), sources, targets, strict=True)
            ]
            rejections = [
                _rejection(reason, unit=unit, row=first + i, table=table, position=i)
                for i, reason in enumerate(reasons)
                if reason
            ]
            kept = [i for i, reason in enumerate(reasons) if not reason]
            rows = [rows[i] for i in kept]
            sources = [sources[i] for i in kept]
            targets = [targets[i] for i in kept]
        yield _Slice(table, first, rows, sources, targets, rejections)
        first += table.num_rows


def _rejection(reason: str, *, unit: Unit, row: int, table: pa.Table, position: int) -> Rejection:
    return Rejection(
        reason=reason,
        place=Place(unit.order, row),
        source=table["source"][position].as_py(),
        target=table["target"][position].as_py(),
    )


def training_lines(
    unit: Unit, normalization: TextNormalization, *, validation_below: int
) -> tuple[list[str], list[str]]:
    """Returns the source and target lines of a unit that a vocabulary may be trained on."""
    sources: list[str] = []
    targets: list[str] = []
    for clean in _clean_slices(unit, normalization):
        for source, target in zip(clean.sources, clean.targets, strict=True):
            if int.from_bytes(hash_text(source), "little") >= validation_below:
                sources.append(source)
                targets.append(target)
    return sources, targets


def encode_unit(
    unit: Unit, vocabularies: VocabularyPair, *, options: EncodingOptions
) -> EncodedUnit:
    """Cleans, encodes, filters and serialises the pairs of a unit."""
    encode_source = vocabularies.source.encode_normalized
    encode_target = vocabularies.target.encode_normalized
    serialize = ExampleWriter().serialize
    key = seed_key(options.seed)
    least, most = options.min_tokens + _SPECIAL_IDS, options.max_tokens + _SPECIAL_IDS

    records: list[bytes] = []
    keys: list[bytes] = []
    source_hashes: list[bytes] = []
    rows: list[int] = []
    lengths: list[tuple[int, int]] = []
    rejections: list[Rejection] = []
    rows_read = 0
    for clean in _clean_slices(unit, vocabularies.source.normalization):
        rows_read += clean.table.num_rows
        rejections += clean.rejections
        for i in range(0, len(clean.rows), _ENCODED_AT_ONCE):
            sources = clean.sources[i : i + _ENCODED_AT_ONCE]
            targets = clean.targets[i : i + _ENCODED_AT_ONCE]
            for row, source, target, source_ids, target_ids in zip(
                clean.rows[i : i + _ENCODED_AT_ONCE],
                sources,
                targets,
                encode_source(sources),
                encode_target(targets),
                strict=True,
            ):
                n, m = len(source_ids), len(target_ids)
                if not (least <= n <= most and least <= m <= most):
                    reason = length_reason(
                        n - _SPECIAL_IDS,
                        m - _SPECIAL_IDS,
                        min_tokens=options.min_tokens,
                        max_tokens=options.max_tokens,
                    )
                    rejections.append(clean.reject(row, reason=str(reason), unit=unit))
                    continue
                source_hash = hash_text(source)
                records.append(serialize(source_ids, target_ids))
                source_hashes.append(source_hash)
                keys.append(hash_pair(source_hash, target, key=key))
                rows.append(row)
                lengths.append((n, m))

    if rows_read != unit.rows:
        raise RuntimeError(f"{unit.label} gave {rows_read} rows of {unit.rows}: its input changed")

    headers = np.empty(len(records), HEADER)
    headers["key"] = np.frombuffer(b"".join(keys), "<u8")
    headers["source_hash"] = np.frombuffer(b"".join(source_hashes), "<u8")
    headers["row"] = rows
    headers["source_length"], headers["target_length"] = np.array(
        lengths or np.empty((0, 2)), np.uint32
    ).T
    headers["size"] = [len(record) for record in records]
    parts, least_hash = _split(
        Batch(headers, records), is_held_out=unit.is_held_out, options=options
    )
    counts = collections.Counter(rejection.reason for rejection in rejections)
    statistics = UnitStatistics(
        order=unit.order,
        index=unit.index,
        rows=rows_read,
        rejected=dict(sorted(counts.items())),
        least_source_hash=least_hash,
        held_out=headers["source_hash"].tobytes().hex() if unit.is_held_out else "",
    )
    return EncodedUnit(parts=parts, rejections=rejections, statistics=statistics)


def _split(
    batch: Batch, *, is_held_out: bool, options: EncodingOptions
) -> tuple[list[SpillPart], int | None]:
    """Splits records by the hash of their source, so that a source stands in one split only.

    Where none is for validation, copies of those with the least hash stand by as candidates:
    if that is so in the whole corpus, they are its validation split.

    Returns:
      The parts of the spill, and the least hash.
    """
    plans = options.plans
    if is_held_out:
        return [SpillPart(split=VALIDATION, batch=batch, plan=plans[VALIDATION])], None
    if not batch.records:
        return [], None
    hashes = batch.headers["source_hash"]
    least = int(hashes.min())
    is_validation = hashes < options.validation_below
    parts = [
        SpillPart(
            split=TRAIN, batch=batch.select(np.flatnonzero(~is_validation)), plan=plans[TRAIN]
        )
    ]
    if least < options.validation_below:
        chosen = np.flatnonzero(is_validation)
        parts.append(
            SpillPart(split=VALIDATION, batch=batch.select(chosen), plan=plans[VALIDATION])
        )
    else:
        chosen = np.flatnonzero(hashes == least)
        parts.append(
            SpillPart(
                split=VALIDATION,
                batch=batch.select(chosen),
                plan=SplitPlan(shards=1, buckets_per_shard=1),  # at the first shard
                is_candidate=True,
            )
        )
    return parts, least
