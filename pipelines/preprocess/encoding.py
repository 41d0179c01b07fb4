"""Encode a unit of rows into records with headers, and collect its rejected pairs."""

from __future__ import annotations

import collections
import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.dataset.manifest import TRAIN, VALIDATION
from tt.model.dataset.tfrecords import ExampleWriter, one_ahead, with_texts
from tt.model.errors import UserError
from tt.model.text.vocabulary import VocabularyPair
from tt.pipelines.preprocess import held_out as digests
from tt.pipelines.preprocess.cleaning import (
    CleanSlice,
    Flags,
    clean_slices,
    filters_of,
    find_held_out,
)
from tt.pipelines.preprocess.filters import token_reasons
from tt.pipelines.preprocess.held_out import HeldOut, hash_each, seem_short
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.rejected import REJECTED_SCHEMA, rejected_texts
from tt.pipelines.preprocess.spills import (
    HEADER,
    Batch,
    Headers,
    join_batches,
    without_copies,
)
from tt.pipelines.preprocess.units import Unit
from tt.pipelines.texts.judging import find_lost_ends
from tt.pipelines.texts.languages import sample_languages, share_first_rows

_SPECIAL_IDS = 2  # BOS and EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedUnit:
    """The records of a unit by split, its rejected pairs, and its statistics."""

    parts: dict[str, Batch]
    rejected: pa.Table  # a table of `REJECTED_SCHEMA`
    statistics: UnitStatistics


def training_lines(
    unit: Unit, plan: DatasetPlan, held_out: HeldOut
) -> tuple[list[str], list[str], collections.Counter[str]]:
    """Return the source and target lines of a unit that may train a vocabulary.

    The third value counts the rejected pairs by reason. The lines contain no held-out pairs, and
    no held-out texts except short texts. Before the vocabulary exists, the function can only
    estimate which texts are short.
    """

    def find_short(sources: list[str], targets: list[str]) -> tuple[Flags, Flags]:
        tokens = plan.short_tokens
        return seem_short(sources, tokens=tokens), seem_short(targets, tokens=tokens)

    sources: list[str] = []
    targets: list[str] = []
    rejected: collections.Counter[str] = collections.Counter()
    for clean in clean_slices(unit, plan):
        rejected.update(clean.rejected.values())
        hashes = hash_each(clean.sources)
        is_validation = held_out.is_validation(clean.hash_plain_sources(hashes))
        reasons = find_held_out(
            clean,
            held_out,
            hashes=hashes,
            is_validation=is_validation,
            is_short=find_short(clean.sources, clean.targets),
            find_short=find_short,
        )
        rejected.update(reasons.values())
        is_remaining = ~is_validation
        is_remaining[list(reasons)] = False
        sources += itertools.compress(clean.sources, is_remaining.tolist())
        targets += itertools.compress(clean.targets, is_remaining.tolist())
    return sources, targets, rejected


def encode_unit(
    unit: Unit, plan: DatasetPlan, vocabularies: VocabularyPair, held_out: HeldOut
) -> EncodedUnit:
    """Clean, encode, filter and serialize the pairs of a unit.

    The function rejects held-out pairs, unless the unit itself is held out. A held-out unit keeps
    all pairs that can be encoded.

    Raises:
      UserError: A source has lost or gained rows since it was cut.
    """

    def find_short(sources: list[str], targets: list[str]) -> tuple[Flags, Flags]:
        most = plan.short_tokens + _SPECIAL_IDS
        return encode_source(sources).lengths <= most, encode_target(targets).lengths <= most

    encode_source, encode_target = vocabularies.source.encode_flat, vocabularies.target.encode_flat
    writer = ExampleWriter(max(vocabularies.source.size, vocabularies.target.size))
    filters = filters_of(unit, plan)
    if unit.is_held_out:
        held_out = HeldOut()
    batches: dict[str, list[Batch]] = {TRAIN: [], VALIDATION: []}
    rejected = [REJECTED_SCHEMA.empty_table()]
    rejected_counts: collections.Counter[tuple[int, str]] = collections.Counter()
    rows_read: collections.Counter[int] = collections.Counter()
    languages: collections.Counter[tuple[int, str, str]] = collections.Counter()
    shares = share_first_rows(plan.source_list.names())
    # SentencePiece releases Python's interpreter lock, so it runs in parallel with the other work.
    slices = one_ahead(
        (clean, encode_source(clean.sources), encode_target(clean.targets))
        for clean in clean_slices(unit, plan)
    )
    for clean, source_ids, target_ids in slices:
        order = clean.rows.order
        rows_read[order] += clean.rows.table.num_rows
        part, hashes = _make_headers(clean, plan)
        part["order"] = order
        part["row"] = rows = clean.rows.first_row + clean.positions
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
        is_validation = held_out.is_validation(part["source_hash"]) | unit.is_held_out
        reasons = find_held_out(
            clean,
            held_out,
            hashes=hashes,
            is_validation=is_validation,
            is_short=(source_tokens <= plan.short_tokens, target_tokens <= plan.short_tokens),
            find_short=find_short,
        ) | token_reasons(source_tokens, target_tokens, filters=filters)
        clean.rejected.update(
            (int(clean.positions[place]), reason) for place, reason in reasons.items()
        )
        is_kept = np.ones(len(part), np.bool_)
        is_kept[list(reasons)] = False
        batches[TRAIN].append(Batch(part, encoded).select(np.flatnonzero(is_kept & ~is_validation)))
        places = np.flatnonzero(is_kept & is_validation)
        with_their_texts = [
            with_texts(encoded[place].as_py(), clean.sources[place], clean.targets[place])
            for place in places.tolist()
        ]
        part = part[places]  # a copy, so the sizes of `part` can change
        part["size"] = list(map(len, with_their_texts))
        batches[VALIDATION].append(Batch(part, pa.array(with_their_texts, pa.large_binary())))
        if clean.rejected:
            rejected.append(rejected_texts(clean.rows, clean.rejected, sources=plan.source_list))
            rejected_counts.update((order, reason) for reason in clean.rejected.values())

    for expected in unit.parts:
        if rows_read[expected.order] != expected.rows:
            raise UserError(
                f"{plan.source_list.source(expected.order).name} changed while it was read: a "
                f"unit has {rows_read[expected.order]} rows instead of {expected.rows}. Run the "
                "same command again"
            )

    parts = {split: join_batches(found) for split, found in batches.items()}
    if plan.options.deduplicate != "none" and not unit.is_held_out:
        parts = {split: without_copies(batch) for split, batch in parts.items()}
    statistics = UnitStatistics(
        order=unit.order,
        index=unit.index,
        rows=[[part.order, part.rows] for part in unit.parts],
        rejected=[(*key, count) for key, count in sorted(rejected_counts.items())],
        excluded_texts=held_out.excluded,
        languages=[(*key, count) for key, count in sorted(languages.items())],
    )
    return EncodedUnit(parts=parts, rejected=pa.concat_tables(rejected), statistics=statistics)


def _make_headers(clean: CleanSlice, plan: DatasetPlan) -> tuple[Headers, digests.UInt64s]:
    """Return the headers of pairs, and the hashes of their sources with placeholders.

    Deduplication by pair compares texts with placeholders, because equal records add nothing to
    training. The split, and deduplication by one side, use the texts without placeholders, because
    the placeholders of a text depend on the other side of its pair.
    """
    salt = plan.options.seed.to_bytes(8, "little", signed=True)
    source_digests = digests.digest_texts(clean.sources)
    pair_digests = digests.digest_pairs(source_digests, clean.targets, salt=salt)
    groups, options = pair_digests, plan.options
    if options.deduplicate in ("source", "target"):
        side = ("source", "target").index(options.deduplicate)
        plain = digests.digest_texts(clean.targets) if side else source_digests.copy()
        originals = digests.digest_texts(clean.originals[side])
        for place, digest in zip(clean.changed.tolist(), originals, strict=True):
            plain[place] = digest
        groups = digests.digest_each(plain, salt=salt)
    hashes, _ = digests.digest_halves(source_digests)
    headers = np.zeros(len(clean.sources), HEADER)
    headers["source_hash"] = clean.hash_plain_sources(hashes)
    headers["key"] = digests.digest_halves(pair_digests)[0]
    headers["group_high"], headers["group_low"] = digests.digest_halves(groups)
    return headers, hashes


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """Statistics of an encoded unit, as JSON values that the footer of a spill stores."""

    order: int  # position of the first source of the unit's group among all sources
    index: int  # position of the unit in its group
    rows: list[list[int]]  # (position of a source, number of rows read from it) pairs
    rejected: list[tuple[int, str, int]]  # (position of a source, reason, number of pairs) triples
    excluded_texts: int = 0  # number of texts in the files of `exclude`
    # Counts of the texts in the sample for language detection: (position of a source, side,
    # detected language, number of texts).
    languages: list[tuple[int, str, str, int]] = dataclasses.field(default_factory=list)
