"""Encode a unit of rows into records with headers, and collect its rejected pairs."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.dataset.manifest import TEST, TRAIN, VALIDATION
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
from tt.pipelines.preprocess.held_out import HeldOut, seem_short
from tt.pipelines.preprocess.languages import sample_languages, share_first_rows
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.rejected import REJECTED_SCHEMA, rejected_texts
from tt.pipelines.preprocess.shifts import find_windows
from tt.pipelines.preprocess.spills import (
    HEADER,
    Batch,
    Headers,
    join_batches,
    without_copies,
)
from tt.pipelines.preprocess.units import Unit
from tt.pipelines.texts.flags import find_lost_ends

_SPECIAL_IDS = 2  # BOS and EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedUnit:
    """The records of a unit by split, its rejected pairs, and its statistics."""

    parts: dict[str, Batch]
    rejected: pa.Table  # a table of `REJECTED_SCHEMA`
    statistics: UnitStatistics


def training_lines(
    unit: Unit, plan: DatasetPlan, held_out: HeldOut, *, threshold: float | None
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
    for clean in clean_slices(unit, plan, threshold=threshold):
        rejected.update(clean.rejected.values())
        is_validation = held_out.is_validation(clean.plain_hashes)
        is_test = ~is_validation & (clean.plain_hashes < np.uint64(plan.test_below))
        reasons = find_held_out(
            clean,
            held_out,
            is_validation=is_validation,
            is_test=is_test,
            is_short=find_short(clean.sources, clean.targets),
            find_short=find_short,
        )
        rejected.update(reasons.values())
        is_remaining = ~(is_validation | is_test)
        is_remaining[list(reasons)] = False
        sources += itertools.compress(clean.sources, is_remaining.tolist())
        targets += itertools.compress(clean.targets, is_remaining.tolist())
    return sources, targets, rejected


def encode_unit(
    unit: Unit,
    plan: DatasetPlan,
    vocabularies: VocabularyPair,
    held_out: HeldOut,
    *,
    threshold: float | None = None,
) -> EncodedUnit:
    """Clean, encode, filter and serialize the pairs of a unit.

    The function rejects held-out pairs, unless the unit itself is held out. A held-out unit keeps
    all pairs that can be encoded.

    Args:
      unit: The unit.
      plan: The plan.
      vocabularies: The vocabularies.
      held_out: The hashes of held-out pairs and texts.
      threshold: The smallest cosine of a pair to keep; None accepts every cosine.

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
    batches: dict[str, list[Batch]] = {split: [] for split in plan.splits}
    rejected = [REJECTED_SCHEMA.empty_table()]
    rejected_counts: collections.Counter[tuple[int, str]] = collections.Counter()
    rows_read: collections.Counter[int] = collections.Counter()
    languages: collections.Counter[tuple[int, str, str]] = collections.Counter()
    mixed: collections.Counter[int] = collections.Counter()
    decoded: collections.Counter[int] = collections.Counter()
    shifted: list[tuple[int, int, int, int]] = []
    shares = share_first_rows(plan.source_list.names())
    # SentencePiece releases Python's interpreter lock, so it runs in parallel with the other work.
    slices = one_ahead(
        (clean, encode_source(clean.sources), encode_target(clean.targets))
        for clean in clean_slices(unit, plan, threshold=threshold)
    )
    for clean, source_ids, target_ids in slices:
        order = clean.rows.order
        rows_read[order] += clean.rows.table.num_rows
        mixed[order] += clean.judgments.mixed if clean.judgments else 0
        decoded[order] += int(clean.decoded.sum())
        shifted += (
            (order, clean.rows.first_row + window.first_row, window.rows, window.offset)
            for window in find_windows(clean.rows.table)
            if window.offset
        )
        part = _make_headers(clean, plan)
        part["order"] = order
        part["row"] = clean.rows.first_row + clean.positions
        first = shares[order]
        # The sample also has pairs in wrong languages, so that it describes the whole corpus.
        every = clean.unjudged or clean
        found = sample_languages(
            clean.rows.first_row + every.positions,
            every.sources,
            every.targets,
            order=order,
            first_rows=first,
        )
        languages.update((order, *each) for each in found)
        part["source_length"], part["target_length"] = source_ids.lengths, target_ids.lengths
        encoded = writer.serialize(source_ids, target_ids)
        part["size"] = pc.binary_length(encoded)
        part["placeholders"] = clean.placeholders
        part["lost_end"] = find_lost_ends(clean.sources, clean.targets)
        source_tokens = source_ids.lengths - _SPECIAL_IDS
        target_tokens = target_ids.lengths - _SPECIAL_IDS
        is_validation = held_out.is_validation(part["source_hash"]) | unit.is_held_out
        is_test = ~is_validation & (part["source_hash"] < np.uint64(plan.test_below))
        reasons = find_held_out(
            clean,
            held_out,
            is_validation=is_validation,
            is_test=is_test,
            is_short=(source_tokens <= plan.short_tokens, target_tokens <= plan.short_tokens),
            find_short=find_short,
        ) | token_reasons(source_tokens, target_tokens, filters=filters)
        clean.rejected.update(
            (int(clean.positions[place]), reason) for place, reason in reasons.items()
        )
        is_kept = np.ones(len(part), np.bool_)
        is_kept[list(reasons)] = False
        if plan.test_below:
            places = np.flatnonzero(is_kept & is_test)
            batches[TEST].append(_plain_batch(clean, places, part, vocabularies, writer))
        of_training = np.flatnonzero(is_kept & ~is_validation & ~is_test)
        batches[TRAIN].append(Batch(part, encoded).select(of_training))
        places = np.flatnonzero(is_kept & is_validation)
        of_validation = Batch(part, encoded).select(places)
        texts = ([side[i] for i in places.tolist()] for side in (clean.sources, clean.targets))
        batches[VALIDATION].append(_with_texts(of_validation, *texts))
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
        mixed=[each for each in sorted(mixed.items()) if each[1]],
        decoded=sorted((+decoded).items()),
        shifted=shifted,
    )
    return EncodedUnit(parts=parts, rejected=pa.concat_tables(rejected), statistics=statistics)


def _with_texts(batch: Batch, sources: Sequence[str], targets: Sequence[str]) -> Batch:
    """Add the texts of the pairs to their records."""
    records = [
        with_texts(*each) for each in zip(batch.records.to_pylist(), sources, targets, strict=True)
    ]
    batch.headers["size"] = list(map(len, records))
    return Batch(batch.headers, pa.array(records, pa.large_binary()))


def _plain_batch(
    clean: CleanSlice,
    places: npt.NDArray[np.int64],
    headers: Headers,
    vocabularies: VocabularyPair,
    writer: ExampleWriter,
) -> Batch:
    """Return the records of some pairs without placeholders, and with their texts.

    The texts of a test set are input for translation, so they must contain the text that
    placeholders would replace.
    """
    headers = headers[places]  # a copy
    sources, targets = clean.plain_pairs(places.tolist())
    source_ids = vocabularies.source.encode_flat(sources)
    target_ids = vocabularies.target.encode_flat(targets)
    headers["source_length"], headers["target_length"] = source_ids.lengths, target_ids.lengths
    headers["placeholders"] = 0
    return _with_texts(Batch(headers, writer.serialize(source_ids, target_ids)), sources, targets)


def _make_headers(clean: CleanSlice, plan: DatasetPlan) -> Headers:
    """Return the headers of pairs.

    Deduplication by pair compares texts with placeholders, because equal records add nothing to
    training. The split, and deduplication by one side, use the texts without placeholders, because
    the placeholders of a text depend on the other side of its pair.
    """
    salt = plan.options.seed.to_bytes(8, "little", signed=True)
    pair_digests = digests.digest_pairs(clean.digests, clean.targets, salt=salt)
    groups, options = pair_digests, plan.options
    if options.deduplicate in ("source", "target"):
        side = ("source", "target").index(options.deduplicate)
        plain = digests.digest_texts(clean.targets) if side else [*clean.digests]
        originals = digests.digest_texts(clean.originals[side])
        for place, digest in zip(clean.changed.tolist(), originals, strict=True):
            plain[place] = digest
        groups = digests.digest_each(plain, salt=salt)
    headers = np.zeros(len(clean.sources), HEADER)
    headers["source_hash"] = clean.plain_hashes
    headers["key"] = digests.digest_halves(pair_digests)[0]
    headers["group_high"], headers["group_low"] = digests.digest_halves(groups)
    return headers


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
    # Counts of pairs with a side that is partly in another language: (position of a source, number
    # of pairs).
    mixed: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    # Counts of pairs with decoded HTML entities: (position of a source, number of pairs).
    decoded: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    # Windows whose sides are shifted against each other: (position of a source, first row in the
    # source, number of rows, offset of the targets).
    shifted: list[tuple[int, int, int, int]] = dataclasses.field(default_factory=list)
