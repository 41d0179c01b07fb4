"""A unit of rows to records with their headers, and to rejected pairs."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.dataset.manifest import TRAIN, VALIDATION
from model.engines import machine
from model.errors import UserError
from model.text.normalization import TextNormalization
from model.text.placeholders import normalize_pairs
from model.text.spans import Protection
from model.text.vocabulary import FlatIds, VocabularyPair
from pipelines.corpora.opening import SourceList
from pipelines.flags.ends import find_lost_ends
from pipelines.flags.language_sample import sample_languages, share_first_rows
from pipelines.pairs import digests
from pipelines.pairs.examples import ExampleWriter, with_texts
from pipelines.pairs.filters import (
    NOT_SAMPLED,
    STRAY_PLACEHOLDER,
    TOO_MANY_CHARACTERS,
    Filters,
    text_reasons,
    token_reasons,
)
from pipelines.pairs.held_out import HeldOut, held_out_reasons, seem_short
from pipelines.pairs.rejected import Rejections
from pipelines.pairs.spills import HEADER, Batch, Headers, SpillPart, SplitPlan, without_copies
from pipelines.pairs.units import Unit

_SPECIAL_IDS = 2  # BOS and EOS
_Flags = npt.NDArray[np.bool_]
_ONLY_MOJIBAKE = Filters(max_characters=65_535, min_letters=0, reject_identical=False)
_EMPTY = pa.scalar("", pa.large_string())
_SAMPLING = b"sampling"  # makes other hashes than those of the order
_HUGE = 16  # bytes, times the most characters: 4 bytes each, and as much again in white space


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """Options of encoding and splitting."""

    filters: Filters
    deduplicate: str  # part of a pair that duplicates share: one of `filters.DEDUPLICATE`
    short_tokens: int  # a side of so many tokens at most is not held out by itself
    seed: int  # seed of the order
    validation_below: int  # pairs whose source hashes below this are for validation
    plans: dict[str, SplitPlan]  # shards and buckets of each split
    protection: Protection  # what placeholders stand for


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedUnit:
    """The records of a unit by split, the pairs rejected, and the counts of both."""

    parts: list[SpillPart]
    rejections: Rejections
    statistics: UnitStatistics


@dataclasses.dataclass(frozen=True)
class _Slice:
    """Normalised texts of those rows of a table that no filter of texts rejects."""

    table: pa.Table  # the rows as they were read
    order: int  # the place of their source among all sources
    first_row: int  # row of the source that the table begins with
    positions: npt.NDArray[np.int64]  # in the table, of the texts
    sources: list[str]  # normalised
    targets: list[str]  # normalised
    placeholders: npt.NDArray[np.uint8]  # on each side
    # Places of the texts that have some, and those texts without them.
    changed: npt.NDArray[np.int64]
    originals: tuple[list[str], list[str]]
    rejected: dict[int, str]  # the other positions, and the reason of each

    def reject_into(self, rejections: Rejections) -> None:
        """Adds the rejected rows, with their texts as they were read."""
        if self.rejected:
            table = self.table.take(list(self.rejected))
            rejections.add_texts(
                order=self.order,
                reasons=list(self.rejected.values()),
                rows=[self.first_row + position for position in self.rejected],
                sources=table["source"],
                targets=table["target"],
            )


def _clean_slices(
    unit: Unit,
    sources_of_run: SourceList,
    *,
    normalization: TextNormalization,
    filters: Filters,
    protection: Protection,
) -> Iterator[_Slice]:
    for rows in unit.read(sources_of_run):
        table = rows.table
        is_huge = _is_huge(table, filters.max_characters)
        source, target = (
            pc.if_else(is_huge, _EMPTY, table[side]).fill_null("") for side in ("source", "target")
        )
        pairs = normalize_pairs(
            (source, target), normalization=normalization, protection=protection
        )
        sources, targets = pairs.sources, pairs.targets
        rejected: dict[int, str] = {}
        if normalization.lowercase and filters.reject_mojibake:  # capitals give it away: "Ã©"
            rejected = text_reasons(*pairs.cased, filters=_ONLY_MOJIBAKE)
        rejected |= text_reasons(sources, targets, filters=filters)
        rejected |= dict.fromkeys(pairs.stray, STRAY_PLACEHOLDER)
        rejected |= dict.fromkeys(np.flatnonzero(is_huge).tolist(), TOO_MANY_CHARACTERS)
        if table["fault"].null_count < table.num_rows:
            faults = enumerate(table["fault"].to_pylist())
            rejected |= {position: fault for position, fault in faults if fault}
        weight = 1.0 if unit.is_held_out else sources_of_run.weight(rows.order)
        if weight < 1:
            rejected = _not_sampled(sources, targets, weight=weight) | rejected
        positions = np.arange(table.num_rows)
        placeholders = np.zeros(table.num_rows, np.uint8)
        placeholders[list(pairs.placeholders)] = list(pairs.placeholders.values())
        if rejected:
            positions = np.delete(positions, list(rejected))
            sources = [sources[i] for i in positions.tolist()]
            targets = [targets[i] for i in positions.tolist()]
            placeholders = placeholders[positions]
        changed = np.flatnonzero(placeholders)
        originals = [pairs.originals[i] for i in positions[changed].tolist()]
        yield _Slice(
            table=table,
            order=rows.order,
            first_row=rows.first_row,
            positions=positions,
            sources=sources,
            targets=targets,
            placeholders=placeholders,
            changed=changed,
            originals=([text for text, _ in originals], [text for _, text in originals]),
            rejected=rejected,
        )


def _not_sampled(
    sources: Sequence[str], targets: Sequence[str], *, weight: float
) -> dict[int, str]:
    """Returns the reason of those pairs that are not in the sample of a share, by position.

    It is a function of the texts, so that a greater share has all that a lesser one has.
    """
    found = digests.digest_pairs(digests.digest_texts(sources), targets, salt=_SAMPLING)
    is_out = digests.digest_halves(found)[1] >= np.uint64(weight * 2**64)
    return dict.fromkeys(np.flatnonzero(is_out).tolist(), NOT_SAMPLED)


def _is_huge(table: pa.Table, max_characters: int) -> pa.ChunkedArray:
    """Tells which rows have a text that is too long to be normalised, however short it would get.

    A line of 100 MB, with its copies on the way through normalisation, would need 2 GB.
    """
    limit = _HUGE * max_characters
    return pc.or_(
        *(pc.fill_null(pc.greater(pc.binary_length(table[side]), limit), False)
          for side in ("source", "target"))
    )  # fmt: skip


def _reasons_of_originals(
    clean: _Slice, held_out: HeldOut, *, is_short: tuple[_Flags, _Flags]
) -> dict[int, str]:
    """Returns the reasons of pairs that are held out as they are without placeholders, by place.

    A text that training must not see stands on its own: nobody knows what the other side shares.
    """
    sources, targets = clean.originals
    hashes = digests.digest_halves(digests.digest_texts(sources))[0]
    reasons = held_out_reasons(hashes, targets, held_out, is_short=is_short)
    return {int(clean.changed[i]): reason for i, reason in reasons.items()}


def training_lines(
    unit: Unit,
    sources_of_run: SourceList,
    *,
    normalization: TextNormalization,
    options: EncodingOptions,
    held_out: HeldOut,
) -> tuple[list[str], list[str], collections.Counter[str]]:
    """Returns the source and target lines of a unit that a vocabulary may be trained on.

    And how many pairs were rejected, by reason. No held-out pair is among the lines, and no
    held-out text but those that seem short: tokens cannot be counted before there is a vocabulary.
    """
    sources: list[str] = []
    targets: list[str] = []
    rejected: collections.Counter[str] = collections.Counter()
    for clean in _clean_slices(
        unit,
        sources_of_run,
        normalization=normalization,
        filters=options.filters,
        protection=options.protection,
    ):
        rejected.update(clean.rejected.values())
        hashes, _ = digests.digest_halves(digests.digest_texts(clean.sources))
        is_short = _seem_short(clean.sources, clean.targets, options=options)
        reasons = held_out_reasons(hashes, clean.targets, held_out, is_short=is_short)
        if clean.changed.size:
            is_short = _seem_short(*clean.originals, options=options)
            reasons = _reasons_of_originals(clean, held_out, is_short=is_short) | reasons
        rejected.update(reasons.values())
        is_left = hashes >= options.validation_below
        is_left[list(reasons)] = False
        for row in np.flatnonzero(is_left).tolist():
            sources.append(clean.sources[row])
            targets.append(clean.targets[row])
    return sources, targets, rejected


def _seem_short(
    sources: list[str], targets: list[str], *, options: EncodingOptions
) -> tuple[_Flags, _Flags]:
    tokens = options.short_tokens
    return seem_short(sources, tokens=tokens), seem_short(targets, tokens=tokens)


def _encode_ahead(
    slices: Iterator[_Slice], vocabularies: VocabularyPair
) -> Iterator[tuple[_Slice, FlatIds, FlatIds]]:
    """Yields slices with their ids; a thread encodes each while the one before is worked on.

    SentencePiece does not need the interpreter's lock, which other work on a slice has for most of
    its time: so two threads on two cores seldom wait for each other. On a single core the thread
    would only take turns with this one, so there is none.
    """

    def encode(clean: _Slice) -> tuple[_Slice, FlatIds, FlatIds]:
        source = vocabularies.source.encode_flat(clean.sources)
        return clean, source, vocabularies.target.encode_flat(clean.targets)

    if machine.cores() == 1:
        yield from map(encode, slices)
        return
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        before: concurrent.futures.Future[tuple[_Slice, FlatIds, FlatIds]] | None = None
        for clean in slices:
            encoded = pool.submit(encode, clean)
            if before:
                yield before.result()
            before = encoded
        if before:
            yield before.result()


def encode_unit(
    unit: Unit,
    sources_of_run: SourceList,
    vocabularies: VocabularyPair,
    *,
    options: EncodingOptions,
    held_out: HeldOut,
) -> EncodedUnit:
    """Cleans, encodes, filters and serialises the pairs of a unit.

    Pairs that are held out are rejected, unless the unit is held out itself: then it is kept
    whole, but for what cannot be encoded.
    """
    writer = ExampleWriter(max(vocabularies.source.size, vocabularies.target.size))
    filters = options.filters
    if unit.is_held_out:
        held_out, filters = HeldOut(), filters.for_validation()
    headers: list[Headers] = [np.empty(0, HEADER)]
    records: list[pa.LargeBinaryArray] = [pa.array([], pa.large_binary())]
    done = 0  # records
    validation_records: dict[int, bytes] = {}
    rejections = Rejections()
    rows_read: collections.Counter[int] = collections.Counter()
    languages: collections.Counter[tuple[int, str, str]] = collections.Counter()
    slices = _clean_slices(
        unit,
        sources_of_run,
        normalization=vocabularies.source.normalization,
        filters=filters,
        protection=options.protection,
    )
    shares = share_first_rows(sources_of_run.names())
    for clean, source_ids, target_ids in _encode_ahead(slices, vocabularies):
        rows_read[clean.order] += clean.table.num_rows
        part = _make_headers(clean.sources, clean.targets, options=options)
        part["order"] = order = clean.order
        part["row"] = rows = clean.first_row + clean.positions
        first = shares[order]
        found = sample_languages(rows, clean.sources, clean.targets, order=order, first_rows=first)
        languages.update((order, *each) for each in found)
        part["source_length"], part["target_length"] = source_ids.lengths, target_ids.lengths
        encoded = writer.serialize(source_ids, target_ids)
        part["size"] = pc.binary_length(encoded)
        part["placeholders"] = clean.placeholders
        part["lost_end"] = find_lost_ends(clean.sources, clean.targets)
        source_tokens = source_ids.lengths - _SPECIAL_IDS
        target_tokens = target_ids.lengths - _SPECIAL_IDS
        is_short = source_tokens <= options.short_tokens, target_tokens <= options.short_tokens
        reasons = held_out_reasons(
            part["source_hash"], clean.targets, held_out, is_short=is_short
        ) | token_reasons(source_tokens, target_tokens, filters=filters)
        if clean.changed.size and not held_out.is_empty:
            sources, targets = clean.originals
            most = options.short_tokens + _SPECIAL_IDS
            is_short = (
                vocabularies.source.encode_flat(sources).lengths <= most,
                vocabularies.target.encode_flat(targets).lengths <= most,
            )
            reasons = _reasons_of_originals(clean, held_out, is_short=is_short) | reasons
        kept = np.arange(len(part))
        if reasons:
            clean.rejected.update(
                (int(clean.positions[place]), reason) for place, reason in reasons.items()
            )
            kept = np.delete(kept, list(reasons))
            part = part[kept]
        for row in _may_validate(part, unit=unit, options=options).tolist():
            place = kept[row]
            validation_records[done + row] = with_texts(
                encoded[int(place)].as_py(), clean.sources[place], clean.targets[place]
            )
        headers.append(part)
        records.append(encoded.take(pa.array(kept)) if reasons else encoded)
        done += len(part)
        clean.reject_into(rejections)

    for expected in unit.parts:
        if rows_read[expected.order] != expected.rows:
            raise UserError(
                f"{sources_of_run.source(expected.order).name} changed while it was read "
                f"({rows_read[expected.order]} rows of a unit of {expected.rows}): run the same "
                "command again"
            )

    batch = Batch(np.concatenate(headers), pa.concat_arrays(records))
    parts, least_hash = _split(
        batch, validation_records, is_held_out=unit.is_held_out, options=options
    )
    if options.deduplicate != "none" and not unit.is_held_out:
        parts = [
            dataclasses.replace(part, batch=without_copies(part.batch, apart=least_hash))
            for part in parts
        ]
    statistics = UnitStatistics(
        order=unit.order,
        index=unit.index,
        rows=[[part.order, part.rows] for part in unit.parts],
        rejected=rejections.counts(),
        excluded_texts=held_out.excluded,
        languages=[(*key, count) for key, count in sorted(languages.items())],
        least_source_hash=least_hash,
    )
    return EncodedUnit(parts=parts, rejections=rejections, statistics=statistics)


def _make_headers(
    sources: Sequence[str], targets: Sequence[str], *, options: EncodingOptions
) -> Headers:
    salt = digests.seed_salt(options.seed)
    source_digests = digests.digest_texts(sources)
    pair_digests = digests.digest_pairs(source_digests, targets, salt=salt)
    groups = pair_digests
    if options.deduplicate == "source":
        groups = digests.digest_sides(source_digests, salt=salt)
    elif options.deduplicate == "target":
        groups = digests.digest_sides(digests.digest_texts(targets), salt=salt)
    headers = np.zeros(len(sources), HEADER)
    headers["source_hash"] = digests.digest_halves(source_digests)[0]
    headers["key"] = digests.digest_halves(pair_digests)[0]
    headers["group_high"], headers["group_low"] = digests.digest_halves(groups)
    return headers


def _may_validate(part: Headers, *, unit: Unit, options: EncodingOptions) -> npt.NDArray[np.int64]:
    """Returns the rows of a part of a unit that `_split` may choose for validation."""
    if unit.is_held_out:
        return np.arange(len(part))
    hashes = part["source_hash"]
    least = hashes.min() if len(part) else 0
    return np.flatnonzero((hashes < options.validation_below) | (hashes == least))


def _split(
    batch: Batch,
    validation_records: Mapping[int, bytes],
    *,
    is_held_out: bool,
    options: EncodingOptions,
) -> tuple[list[SpillPart], int | None]:
    """Splits records by the hash of their source, so that a source stands in one split only.

    Where none is for validation, copies of those with the least hash stand by as candidates:
    if that is so in the whole corpus, they are its validation split. `validation_records` are
    those that may be for validation, with their texts, by position. Returns the parts of the
    spill, and the least hash.
    """
    plans = options.plans

    def for_validation(rows: npt.NDArray[np.int64]) -> Batch:
        """Returns the records at these positions as they are for validation."""
        records = [validation_records[row] for row in rows.tolist()]
        headers = batch.headers[rows]  # a copy
        headers["size"] = np.fromiter(map(len, records), np.uint32, len(records))
        return Batch(headers, pa.array(records, pa.large_binary()))

    if is_held_out:
        whole = for_validation(np.arange(len(batch.records)))
        return [SpillPart(split=VALIDATION, batch=whole, plan=plans[VALIDATION])], None
    if not len(batch.records):
        return [], None
    hashes = batch.headers["source_hash"]
    least = int(hashes.min())
    is_validation = hashes < options.validation_below
    for_training = batch.select(np.flatnonzero(~is_validation))
    has_validation = least < options.validation_below
    chosen = for_validation(np.flatnonzero(is_validation if has_validation else hashes == least))
    first_shard = SplitPlan(shards=1, buckets_per_shard=1)  # where candidates stand by
    plan = plans[VALIDATION] if has_validation else first_shard
    return [
        SpillPart(split=TRAIN, batch=for_training, plan=plans[TRAIN]),
        SpillPart(split=VALIDATION, batch=chosen, plan=plan, is_candidate=not has_validation),
    ], least


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """What encoding a unit found; JSON, so that a spill's footer can hold it."""

    order: int  # the place of the first source of the unit's group among all sources
    index: int  # the place of the unit in its group
    rows: list[list[int]]  # the orders of its sources, each with the rows that were read
    rejected: list[tuple[int, str, int]]  # pairs rejected: source's order, reason, number
    excluded_texts: int | None = None  # 0 of a held-out unit; None in the spill of an older `tt`
    # Texts that were looked at: source's order, side, language that they seem to be in, number.
    languages: list[tuple[int, str, str, int]] = dataclasses.field(default_factory=list)
    # The least hash of a source that was kept; None for held-out units and where nothing was kept.
    least_source_hash: int | None = None
