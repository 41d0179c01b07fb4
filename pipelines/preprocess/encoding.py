"""A unit of rows to records with their headers, and to rejected pairs."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.dataset.manifest import TRAIN, VALIDATION
from model.engines import machine
from model.errors import UserError
from model.text.normalization import TextNormalization
from model.text.spans import Protection
from model.text.vocabulary import FlatIds, VocabularyPair
from pipelines.preprocess import digests
from pipelines.preprocess.cleaning import CleanSlice, Flags, clean_slices, find_held_out
from pipelines.preprocess.corpora import SourceList
from pipelines.preprocess.examples import ExampleWriter, with_texts
from pipelines.preprocess.filters import (
    Filters,
    token_reasons,
)
from pipelines.preprocess.held_out import (
    HeldOut,
    hash_each,
    seem_short,
)
from pipelines.preprocess.rejected import Rejections
from pipelines.preprocess.spills import HEADER, Batch, Headers, SpillPart, SplitPlan, without_copies
from pipelines.preprocess.units import Unit
from pipelines.texts.judging import find_lost_ends
from pipelines.texts.languages import sample_languages, share_first_rows

_SPECIAL_IDS = 2  # BOS and EOS


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


def training_lines(
    unit: Unit,
    sources_of_run: SourceList,
    *,
    normalization: TextNormalization,
    options: EncodingOptions,
    held_out: HeldOut,
) -> tuple[list[str], list[str], collections.Counter[str]]:
    """Return the source and target lines of a unit that a vocabulary may be trained on.

    The third value counts the rejected pairs by reason. The lines contain no held-out pair, and no
    held-out text unless it seems short: tokens cannot be counted before there is a vocabulary.
    """
    sources: list[str] = []
    targets: list[str] = []
    rejected: collections.Counter[str] = collections.Counter()
    for clean in clean_slices(
        unit,
        sources_of_run,
        normalization=normalization,
        filters=options.filters,
        protection=options.protection,
    ):
        rejected.update(clean.rejected.values())
        hashes = hash_each(clean.sources)
        is_validation = held_out.is_validation(clean.hash_plain_sources(hashes))
        are_short = functools.partial(_seem_short, options=options)
        reasons = find_held_out(
            clean,
            held_out,
            hashes=hashes,
            is_validation=is_validation,
            is_short=are_short(clean.sources, clean.targets),
            are_short=are_short,
        )
        rejected.update(reasons.values())
        is_left = ~is_validation
        is_left[list(reasons)] = False
        for row in np.flatnonzero(is_left).tolist():
            sources.append(clean.sources[row])
            targets.append(clean.targets[row])
    return sources, targets, rejected


def _seem_short(
    sources: list[str], targets: list[str], *, options: EncodingOptions
) -> tuple[Flags, Flags]:
    tokens = options.short_tokens
    return seem_short(sources, tokens=tokens), seem_short(targets, tokens=tokens)


def _encode_ahead(
    slices: Iterator[CleanSlice], vocabularies: VocabularyPair
) -> Iterator[tuple[CleanSlice, FlatIds, FlatIds]]:
    """Yields slices with their ids; a thread encodes each while the one before is worked on.

    SentencePiece does not need the interpreter's lock, which other work on a slice has for most of
    its time: so two threads on two cores seldom wait for each other. On a single core the thread
    would only take turns with this one, so there is none.
    """

    def encode(clean: CleanSlice) -> tuple[CleanSlice, FlatIds, FlatIds]:
        source = vocabularies.source.encode_flat(clean.sources)
        return clean, source, vocabularies.target.encode_flat(clean.targets)

    if machine.cores() == 1:
        yield from map(encode, slices)
        return
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        before: concurrent.futures.Future[tuple[CleanSlice, FlatIds, FlatIds]] | None = None
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
    """Clean, encode, filter and serialize the pairs of a unit.

    Held-out pairs are rejected. A unit that is held out itself keeps all pairs that can be encoded.
    """

    def are_short(sources: list[str], targets: list[str]) -> tuple[Flags, Flags]:
        most = options.short_tokens + _SPECIAL_IDS
        return (
            vocabularies.source.encode_flat(sources).lengths <= most,
            vocabularies.target.encode_flat(targets).lengths <= most,
        )

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
    slices = clean_slices(
        unit,
        sources_of_run,
        normalization=vocabularies.source.normalization,
        filters=filters,
        protection=options.protection,
    )
    shares = share_first_rows(sources_of_run.names())
    for clean, source_ids, target_ids in _encode_ahead(slices, vocabularies):
        rows_read[clean.order] += clean.table.num_rows
        part, hashes = _make_headers(clean, options=options)
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
        is_validation = held_out.is_validation(part["source_hash"])
        reasons = find_held_out(
            clean,
            held_out,
            hashes=hashes,
            is_validation=is_validation,
            is_short=(source_tokens <= options.short_tokens, target_tokens <= options.short_tokens),
            are_short=are_short,
        ) | token_reasons(source_tokens, target_tokens, filters=filters)
        kept = np.arange(len(part))
        if reasons:
            clean.rejected.update(
                (int(clean.positions[place]), reason) for place, reason in reasons.items()
            )
            kept = np.delete(kept, list(reasons))
            part = part[kept]
        is_validation = unit.is_held_out | is_validation[kept]
        for row in np.flatnonzero(is_validation).tolist():
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
    parts = _split(batch, validation_records, plans=options.plans)
    if options.deduplicate != "none" and not unit.is_held_out:
        parts = [dataclasses.replace(part, batch=without_copies(part.batch)) for part in parts]
    statistics = UnitStatistics(
        order=unit.order,
        index=unit.index,
        rows=[[part.order, part.rows] for part in unit.parts],
        rejected=rejections.counts(),
        excluded_texts=held_out.excluded,
        languages=[(*key, count) for key, count in sorted(languages.items())],
    )
    return EncodedUnit(parts=parts, rejections=rejections, statistics=statistics)


def _make_headers(
    clean: CleanSlice, *, options: EncodingOptions
) -> tuple[Headers, digests.UInt64s]:
    """Return the headers of pairs, and the hashes of their sources with placeholders.

    Only whole pairs are duplicates with placeholders: a model would see the same pair twice. The
    split, and duplicates of one side, go by the texts without placeholders, as whether a text has
    any depends on the other side.
    """
    salt = digests.seed_salt(options.seed)
    source_digests = digests.digest_texts(clean.sources)
    pair_digests = digests.digest_pairs(source_digests, clean.targets, salt=salt)
    groups = pair_digests
    if options.deduplicate in ("source", "target"):
        side = ("source", "target").index(options.deduplicate)
        plain = digests.digest_texts(clean.targets) if side else source_digests.copy()
        originals = digests.digest_texts(clean.originals[side])
        for place, digest in zip(clean.changed.tolist(), originals, strict=True):
            plain[place] = digest
        groups = digests.digest_sides(plain, salt=salt)
    hashes, _ = digests.digest_halves(source_digests)
    headers = np.zeros(len(clean.sources), HEADER)
    headers["source_hash"] = clean.hash_plain_sources(hashes)
    headers["key"] = digests.digest_halves(pair_digests)[0]
    headers["group_high"], headers["group_low"] = digests.digest_halves(groups)
    return headers, hashes


def _split(
    batch: Batch, validation_records: Mapping[int, bytes], *, plans: Mapping[str, SplitPlan]
) -> list[SpillPart]:
    """Return the training and the validation records of a unit.

    `validation_records` are the validation records, with their texts, by position.
    """
    if not len(batch.records):
        return []
    chosen = np.array(list(validation_records), np.int64)
    records = list(validation_records.values())
    headers = batch.headers[chosen]  # a copy
    headers["size"] = np.fromiter(map(len, records), np.uint32, len(records))
    validation = Batch(headers, pa.array(records, pa.large_binary()))
    for_training = batch.select(np.delete(np.arange(len(batch.records)), chosen))
    return [
        SpillPart(split=TRAIN, batch=for_training, plan=plans[TRAIN]),
        SpillPart(split=VALIDATION, batch=validation, plan=plans[VALIDATION]),
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """What encoding a unit found; JSON, so that a spill's footer can hold it."""

    order: int  # the place of the first source of the unit's group among all sources
    index: int  # the place of the unit in its group
    rows: list[list[int]]  # the orders of its sources, each with the rows that were read
    rejected: list[tuple[int, str, int]]  # pairs rejected: source's order, reason, number
    excluded_texts: int = 0  # of the files of `exclude`
    # Texts that were looked at: source's order, side, language that they seem to be in, number.
    languages: list[tuple[int, str, str, int]] = dataclasses.field(default_factory=list)
