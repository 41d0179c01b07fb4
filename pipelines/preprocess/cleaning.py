"""Normalize rows, replace spans by placeholders, filter pairs by text, and hold out pairs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.pipelines.preprocess import held_out as digests
from tt.pipelines.preprocess.entities import decode_entities
from tt.pipelines.preprocess.filters import (
    NOT_SAMPLED,
    STRAY_PLACEHOLDER,
    TOO_MANY_CHARACTERS,
    Filters,
    text_reasons,
)
from tt.pipelines.preprocess.held_out import (
    HeldOut,
    UInt64s,
    hash_each,
    held_out_reasons,
    hold_out,
    unite,
)
from tt.pipelines.preprocess.judging import Alignment, Judgments, UnitJudgments, judge_languages
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.placeholders import find_shared_spans, replace_shared_tokens
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.units import RowSlice, Unit

Flags = npt.NDArray[np.bool_]
_ONLY_MOJIBAKE = Filters(max_characters=65_535, min_letters=0, reject_identical=False)
_EMPTY = pa.scalar("", pa.large_string())
_SAMPLING = b"sampling"  # This salt makes the sample independent of the order of the records.
# A text with more than this many bytes per allowed character is rejected before normalization.
# UTF-8 has at most 4 bytes per character, and normalization deletes little more than white space.
_HUGE_RATIO = 16


@dataclasses.dataclass(frozen=True)
class CleanSlice:
    """The rows of a table that pass the text filters, as normalized texts."""

    rows: RowSlice  # all rows, as they were read
    positions: npt.NDArray[np.int64]  # positions of the passing rows in the table
    sources: list[str]  # normalized texts with placeholders
    targets: list[str]  # normalized texts with placeholders
    digests: list[bytes]  # digests of `sources`
    placeholders: npt.NDArray[np.uint8]  # number of placeholders on each side of a pair
    # Indices of the pairs with placeholders, and the texts of these pairs without placeholders.
    changed: npt.NDArray[np.int64]
    originals: tuple[list[str], list[str]]
    # The texts before placeholders replaced tokens, by index of the pair. Only pairs in which
    # placeholders replace both spans and tokens.
    only_spans: dict[int, tuple[str, str]]
    rejected: dict[int, str]  # reasons of the rejected rows, by position in the table
    decoded: npt.NDArray[np.bool_]  # whether HTML entities were decoded
    # The pairs before the language filter and the alignment filter; None if neither applies.
    unjudged: CleanSlice | None = None
    # The judgments of the pairs in `unjudged`; None if neither filter applies.
    judgments: Judgments | None = None

    @property
    def hashes(self) -> UInt64s:
        """Hashes of the sources with placeholders."""
        return digests.digest_halves(self.digests)[0]

    @property
    def plain_hashes(self) -> UInt64s:
        """Hashes of the sources without placeholders."""
        if not self.changed.size:
            return self.hashes
        plain = self.hashes.copy()
        plain[self.changed] = hash_each(self.originals[0])
        return plain

    def plain_pairs(self, places: Sequence[int]) -> tuple[list[str], list[str]]:
        """Return the sources and the targets of some pairs without placeholders, by index."""
        rows = {place: row for row, place in enumerate(self.changed.tolist())}
        sources, targets = (
            [plain[rows[place]] if place in rows else texts[place] for place in places]
            for texts, plain in zip((self.sources, self.targets), self.originals, strict=True)
        )
        return sources, targets


def filters_of(unit: Unit, plan: DatasetPlan) -> Filters:
    """Return the filters of a unit: a held-out unit keeps all pairs that can be encoded."""
    filters = plan.options.filters
    return filters.for_validation() if unit.is_held_out else filters


def clean_slices(
    unit: Unit, plan: DatasetPlan, *, threshold: float | None = None
) -> Iterator[CleanSlice]:
    """Read the rows of a unit, normalize them, and apply the text filters.

    Args:
      unit: The unit.
      plan: The plan.
      threshold: The smallest cosine of a pair to keep; None accepts every cosine.
    """
    judged = UnitJudgments(unit, plan) if plan.options.judges and not unit.is_held_out else None
    for rows in unit.read(plan.source_list):
        weight = 1.0 if unit.is_held_out else plan.source_list.weight(rows.order)
        clean, cased = _clean_rows(rows, plan, filters=filters_of(unit, plan), weight=weight)
        if judged is not None:
            judgments = judged.next(functools.partial(_unmasked_texts, clean, plan))
            kept = _without(clean, judgments.reasons(threshold=threshold))
            clean = dataclasses.replace(kept, unjudged=clean, judgments=judgments)
        if plan.placeholder_share and not unit.is_held_out:
            clean = _replace_tokens(clean, plan, cased=cased)
        yield clean
    if judged is not None:
        judged.store()


def compare_sides(unit: Unit, plan: DatasetPlan) -> Alignment:
    """Return the cosines of the pairs of a unit that pass the other text filters."""
    alignment = Alignment()
    for clean in clean_slices(unit, plan):
        assert clean.judgments is not None
        cosines = clean.judgments.cosines[clean.judgments.kept]
        alignment.count(cosines, clean.plain_hashes, clean.sources, clean.targets)
    return alignment


def _unmasked_texts(clean: CleanSlice, plan: DatasetPlan) -> tuple[list[str], list[str]]:
    """Return both texts of the passing rows, with decoded entities and without placeholders."""
    rows = clean.rows.table.take(clean.positions)
    columns = rows["source"], rows["target"]
    if plan.options.decode_entities:
        columns = decode_entities(columns[0])[0], decode_entities(columns[1])[0]
    return columns[0].to_pylist(), columns[1].to_pylist()


def _without(clean: CleanSlice, reasons: dict[int, str]) -> CleanSlice:
    """Reject the pairs whose indices are keys of `reasons`."""
    if not reasons:
        return clean
    is_kept = np.ones(len(clean.sources), np.bool_)
    is_kept[list(reasons)] = False
    chosen, chosen_changed = is_kept.tolist(), is_kept[clean.changed].tolist()
    originals, placeholders = clean.originals, clean.placeholders[is_kept]
    rejected = {int(clean.positions[index]): reason for index, reason in reasons.items()}
    return dataclasses.replace(
        clean,
        positions=clean.positions[is_kept],
        sources=list(itertools.compress(clean.sources, chosen)),
        targets=list(itertools.compress(clean.targets, chosen)),
        digests=list(itertools.compress(clean.digests, chosen)),
        placeholders=placeholders,
        decoded=clean.decoded[is_kept],
        changed=np.flatnonzero(placeholders),
        originals=(
            list(itertools.compress(originals[0], chosen_changed)),
            list(itertools.compress(originals[1], chosen_changed)),
        ),
        rejected=clean.rejected | rejected,
    )


def _clean_rows(
    rows: RowSlice, plan: DatasetPlan, *, filters: Filters, weight: float
) -> tuple[CleanSlice, tuple[list[str], list[str]]]:
    """Return the clean rows, and the texts of all rows before lower-casing."""
    table, normalization = rows.table, plan.options.normalization
    is_huge = _is_huge(table, filters.max_characters)
    pairs = normalize_pairs(
        (
            _without_huge_texts(table["source"], is_huge),
            _without_huge_texts(table["target"], is_huge),
        ),
        plan.options,
    )
    sources, targets = pairs.sources, pairs.targets
    rejected: dict[int, str] = {}
    # Without its capitals, mojibake such as "Ã©" is not recognized.
    if normalization.lowercase and filters.reject_mojibake:
        rejected = text_reasons(*pairs.cased, filters=_ONLY_MOJIBAKE)
    rejected |= text_reasons(sources, targets, filters=filters)
    rejected |= dict.fromkeys(pairs.stray, STRAY_PLACEHOLDER)
    rejected |= dict.fromkeys(np.flatnonzero(is_huge).tolist(), TOO_MANY_CHARACTERS)
    if table["fault"].null_count < table.num_rows:
        faults = enumerate(table["fault"].to_pylist())
        rejected |= {position: fault for position, fault in faults if fault}
    if weight < 1:
        rejected = _not_sampled(sources, targets, weight=weight) | rejected
    positions = np.arange(table.num_rows)
    placeholders = np.zeros(table.num_rows, np.uint8)
    placeholders[list(pairs.placeholders)] = list(pairs.placeholders.values())
    if rejected:
        is_kept = np.ones(table.num_rows, np.bool_)
        is_kept[list(rejected)] = False
        sources = list(itertools.compress(sources, is_kept.tolist()))
        targets = list(itertools.compress(targets, is_kept.tolist()))
        positions, placeholders = positions[is_kept], placeholders[is_kept]
    changed = np.flatnonzero(placeholders)
    originals = [pairs.originals[i] for i in positions[changed].tolist()]
    clean = CleanSlice(
        rows=rows,
        positions=positions,
        sources=sources,
        targets=targets,
        digests=digests.digest_texts(sources),
        placeholders=placeholders,
        changed=changed,
        originals=([text for text, _ in originals], [text for _, text in originals]),
        only_spans={},
        rejected=rejected,
        decoded=pairs.decoded[positions],
    )
    return clean, pairs.cased


def _replace_tokens(
    clean: CleanSlice, plan: DatasetPlan, *, cased: tuple[list[str], list[str]]
) -> CleanSlice:
    """Replace tokens by placeholders in the pairs whose plain source has one of the highest hashes.

    Pairs with the lowest hashes form the validation split, so validation pairs keep their tokens.

    Args:
      clean: The pairs.
      plan: The plan.
      cased: The texts of all rows before lower-casing, by position in the table.
    """
    normalization, protection = plan.options.normalization, plan.options.protection
    hashes = clean.plain_hashes
    chosen = np.flatnonzero(hashes >= np.uint64((1 - plan.placeholder_share) * 2**64))
    sources, targets, source_digests = [*clean.sources], [*clean.targets], [*clean.digests]
    placeholders = clean.placeholders.copy()
    before: dict[int, tuple[str, str]] = {}
    for index, position in zip(chosen.tolist(), clean.positions[chosen].tolist(), strict=True):
        source, target, count = replace_shared_tokens(
            cased[0][position],
            cased[1][position],
            variation=int(hashes[index]),
            protection=protection,
        )
        if count > placeholders[index]:
            before[index] = sources[index], targets[index]
            if normalization.lowercase:
                source, target = normalization.lower([source, target])
            sources[index], targets[index], placeholders[index] = source, target, count
            [source_digests[index]] = digests.digest_texts([source])
    changed = np.flatnonzero(placeholders)
    originals = dict(zip(clean.changed.tolist(), zip(*clean.originals, strict=True), strict=True))
    only_spans = {index: pair for index, pair in before.items() if index in originals}
    originals = before | originals
    return dataclasses.replace(
        clean,
        sources=sources,
        targets=targets,
        digests=source_digests,
        placeholders=placeholders,
        changed=changed,
        originals=(
            [originals[i][0] for i in changed.tolist()],
            [originals[i][1] for i in changed.tolist()],
        ),
        only_spans=only_spans,
    )


def _not_sampled(
    sources: Sequence[str], targets: Sequence[str], *, weight: float
) -> dict[int, str]:
    """Return the positions of the pairs outside of the sample, with the reason NOT_SAMPLED.

    Only the texts of a pair decide, so a larger sample contains all pairs of a smaller sample.
    """
    found = digests.digest_pairs(digests.digest_texts(sources), targets, salt=_SAMPLING)
    is_out = digests.digest_halves(found)[1] >= np.uint64(weight * 2**64)
    return dict.fromkeys(np.flatnonzero(is_out).tolist(), NOT_SAMPLED)


def _is_huge(table: pa.Table, max_characters: int) -> Flags:
    """Return which rows have a text that is too long to normalize.

    A line of 100 MB would need 2 GB of memory, because normalization makes several copies.
    """
    lengths = [pc.fill_null(pc.binary_length(table[side]), 0) for side in ("source", "target")]
    return np.asarray(pc.greater(pc.max_element_wise(*lengths), _HUGE_RATIO * max_characters))


def _without_huge_texts(texts: pa.ChunkedArray, is_huge: Flags) -> pa.ChunkedArray:
    """Replace the huge texts and the nulls of a column by empty texts."""
    if is_huge.any():
        texts = pc.if_else(pa.array(is_huge), _EMPTY, texts)
    return texts.fill_null("")


def find_split_pairs(unit: Unit, plan: DatasetPlan) -> HeldOut:
    """Find and hash the pairs of a unit that the split by hash puts into validation or test.

    The split puts a pair into validation if the hash of its source without placeholders is below
    `plan.validation_below`, and otherwise into test if it is below `plan.test_below`. If the unit
    has no pair for validation, the result has the pairs with the smallest hash, because they become
    the validation split if no unit has a pair below the limit. The alignment filter does not apply
    here, because the threshold for a share is not known yet; it may reject these pairs later.
    """
    options, sources_of_run = plan.options, plan.source_list
    limit = plan.validation_below - 1
    last = max(limit, plan.test_below - 1)
    found: list[HeldOut] = []
    for rows in unit.read(sources_of_run) if last >= 0 else ():
        is_huge = _is_huge(rows.table, options.filters.max_characters)
        sources = _without_huge_texts(rows.table["source"], is_huge)
        if options.decode_entities:
            sources, _ = decode_entities(sources)
        chosen = np.flatnonzero(hash_each(options.normalization.column(sources)) <= np.uint64(last))
        if chosen.size:  # Only these few rows need normalization and filters.
            few = dataclasses.replace(rows, table=rows.table.take(chosen))
            weight = sources_of_run.weight(rows.order)
            clean, _ = _clean_rows(few, plan, filters=options.filters, weight=weight)
            if options.checks_languages:
                judged = judge_languages(*_unmasked_texts(clean, plan), plan=plan)
                clean = _without(clean, judged.reasons(threshold=None))
            is_validation = clean.plain_hashes < np.uint64(plan.validation_below)
            if is_validation.any():
                of_split = _hold_out(clean, is_validation, by=options.holds_out_by)
                found.append(HeldOut(validation_up_to=limit, of_split=of_split))
            if not is_validation.all():
                of_test = _hold_out(clean, ~is_validation, by=options.holds_out_by)
                found.append(HeldOut(of_test=of_test))
    if not plan.has_held_out and all(part.validation_up_to is None for part in found):
        for clean in clean_slices(unit, plan):
            if clean.sources:
                least = int(clean.plain_hashes.min())
                is_least = clean.plain_hashes <= np.uint64(least)
                of_split = _hold_out(clean, is_least, by=options.holds_out_by)
                found.append(HeldOut(validation_up_to=least, of_split=of_split))
    return unite(found)


def _hold_out(clean: CleanSlice, is_chosen: Flags, *, by: str) -> HeldOut:
    """Hash the chosen pairs, with and without placeholders."""
    rows = np.flatnonzero(is_chosen).tolist()
    plain = np.flatnonzero(is_chosen[clean.changed]).tolist()
    pairs = [(clean.sources[row], clean.targets[row]) for row in rows]
    pairs += [(clean.originals[0][row], clean.originals[1][row]) for row in plain]
    return hold_out([source for source, _ in pairs], [target for _, target in pairs], by=by)


def find_held_out(
    clean: CleanSlice,
    held_out: HeldOut,
    *,
    is_validation: Flags,
    is_test: Flags,
    is_short: tuple[Flags, Flags],
    find_short: Callable[[list[str], list[str]], tuple[Flags, Flags]],
) -> dict[int, str]:
    """Return the reasons to reject held-out pairs, by index in `clean`.

    A pair with placeholders is also compared without them, because the placeholders of a text
    depend on the other side of its pair. The same held-out text may therefore have none.

    Args:
      clean: The pairs.
      held_out: The hashes of held-out pairs and texts.
      is_validation: Whether each pair is in the validation split. `held_out.of_split` does not
        apply to these pairs.
      is_test: Whether each pair is in the test split. `held_out.of_test` applies only to training
        pairs.
      is_short: Flags of the short sources and of the short targets, both with placeholders.
      find_short: Returns these flags for given sources and targets.
    """
    if held_out.is_empty:
        return {}
    forms = [(np.arange(len(clean.sources)), clean.hashes, clean.targets, is_short)]
    if clean.changed.size:
        sources, targets = clean.originals
        forms.append((clean.changed, hash_each(sources), targets, find_short(sources, targets)))
    if clean.only_spans:
        places = np.array([*clean.only_spans])
        sources, targets = (list(side) for side in zip(*clean.only_spans.values(), strict=True))
        forms.append((places, hash_each(sources), targets, find_short(sources, targets)))
    reasons: dict[int, str] = {}
    for places, source_hashes, targets, short in forms:
        target_hashes = hash_each(targets)
        found = held_out_reasons(source_hashes, target_hashes, held_out, is_short=short)
        for part, is_exempt in (
            (held_out.of_split, is_validation),
            (held_out.of_test, is_validation | is_test),
        ):
            if part is not None:
                others = held_out_reasons(source_hashes, target_hashes, part, is_short=short)
                found |= {i: reason for i, reason in others.items() if not is_exempt[places[i]]}
        for i, reason in found.items():
            reasons.setdefault(int(places[i]), reason)
    return reasons


def hash_pairs(tables: Iterable[pa.Table], options: PreprocessOptions) -> HeldOut:
    """Hash the pairs of held-out corpora, as the rule `options.holds_out_by` requires.

    Pairs with placeholders are also hashed without them.
    """
    found = []
    for table in tables:
        table = table.filter(pc.is_null(table["fault"]))
        columns = table["source"].fill_null(""), table["target"].fill_null("")
        pairs = normalize_pairs(columns, options)
        rows = [row for row in zip(pairs.sources, pairs.targets, strict=True) if all(row)]
        rows += pairs.originals.values()
        sources, targets = [source for source, _ in rows], [target for _, target in rows]
        found.append(hold_out(sources, targets, by=options.holds_out_by))
    return unite(found)


class NormalizedPairs(NamedTuple):
    """Normalized pairs with placeholders. Positions count from 0."""

    sources: list[str]
    targets: list[str]
    cased: tuple[list[str], list[str]]  # sources and targets before lower-casing
    placeholders: dict[int, int]  # number on each side, by position; only pairs with placeholders
    originals: dict[int, tuple[str, str]]  # source and target without placeholders, by position
    # Positions of pairs whose original text contains a placeholder token. The vocabulary could not
    # distinguish this token from a placeholder that replaces a span.
    stray: list[int]
    decoded: npt.NDArray[np.bool_]  # whether HTML entities were decoded


def normalize_pairs(
    columns: tuple[pa.ChunkedArray, pa.ChunkedArray], options: PreprocessOptions
) -> NormalizedPairs:
    """Normalize pairs, and replace the spans that both sides of a pair share by placeholders.

    HTML entities are decoded first, so an escaped tag becomes a span. Spans are compared before the
    texts are lower-cased.

    Args:
      columns: The sources and the targets, without nulls.
      options: Options with the normalization and the definition of spans.
    """
    normalization, protection = options.normalization, options.protection
    decoded = np.zeros(len(columns[0]), np.bool_)
    if options.decode_entities:
        (source_column, is_changed), (target_column, others) = map(decode_entities, columns)
        columns, decoded = (source_column, target_column), is_changed | others
    with_case = dataclasses.replace(normalization, lowercase=False)
    sources, targets = (with_case.column(side) for side in columns)
    placeholders: dict[int, int] = {}
    originals: dict[int, tuple[str, str]] = {}
    stray: list[int] = []
    if protection.is_on and sources:
        replaced, stray = find_shared_spans(sources, targets, protection=protection)
        for row, (source, target, count) in replaced.items():
            originals[row] = sources[row], targets[row]
            sources[row], targets[row], placeholders[row] = source, target, count
    cased = sources, targets
    if normalization.lowercase:
        sources, targets = normalization.lower(sources), normalization.lower(targets)
        originals = {
            row: (source, target)
            for row, texts in originals.items()
            for source, target in [normalization.lower([*texts])]
        }
    return NormalizedPairs(sources, targets, cased, placeholders, originals, stray, decoded)
