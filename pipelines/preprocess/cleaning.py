"""Normalize rows, replace spans by placeholders, filter pairs by text, and hold out pairs."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.text.spans import BRACKET, MAYBE_SPAN, PLACEHOLDERS, Protection, Span
from tt.pipelines.preprocess import held_out as digests
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
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.units import RowSlice, Unit

Flags = npt.NDArray[np.bool_]
_ONLY_MOJIBAKE = Filters(max_characters=65_535, min_letters=0, reject_identical=False)
_EMPTY = pa.scalar("", pa.large_string())
_SAMPLING = b"sampling"  # This salt makes the sample independent of the order of the records.
# A text with more than this many bytes per allowed character is rejected before normalization.
# UTF-8 has at most 4 bytes per character, and normalization deletes little more than white space.
_HUGE_RATIO = 16
_PLACEHOLDER = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
_MAYBE_SPAN = re.compile(MAYBE_SPAN)


@dataclasses.dataclass(frozen=True)
class CleanSlice:
    """The rows of a table that pass the text filters, as normalized texts."""

    rows: RowSlice  # all rows, as they were read
    positions: npt.NDArray[np.int64]  # positions of the passing rows in the table
    sources: list[str]  # normalized texts with placeholders
    targets: list[str]  # normalized texts with placeholders
    placeholders: npt.NDArray[np.uint8]  # number of placeholders on each side of a pair
    # Indices of the pairs with placeholders, and the texts of these pairs without placeholders.
    changed: npt.NDArray[np.int64]
    originals: tuple[list[str], list[str]]
    rejected: dict[int, str]  # reasons of the rejected rows, by position in the table

    def hash_plain_sources(self, hashes: UInt64s) -> UInt64s:
        """Return hashes of the plain sources, given the hashes of the sources with placeholders."""
        if not self.changed.size:
            return hashes
        plain = hashes.copy()
        plain[self.changed] = hash_each(self.originals[0])
        return plain


def filters_of(unit: Unit, plan: DatasetPlan) -> Filters:
    """Return the filters of a unit: a held-out unit keeps all pairs that can be encoded."""
    filters = plan.options.filters
    return filters.for_validation() if unit.is_held_out else filters


def clean_slices(unit: Unit, plan: DatasetPlan) -> Iterator[CleanSlice]:
    """Read the rows of a unit, normalize them, and apply the text filters."""
    for rows in unit.read(plan.source_list):
        weight = 1.0 if unit.is_held_out else plan.source_list.weight(rows.order)
        yield _clean_rows(rows, plan, filters=filters_of(unit, plan), weight=weight)


def _clean_rows(
    rows: RowSlice, plan: DatasetPlan, *, filters: Filters, weight: float
) -> CleanSlice:
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
    return CleanSlice(
        rows=rows,
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


def find_validation(unit: Unit, plan: DatasetPlan) -> HeldOut:
    """Find the pairs of a unit that the split by hash puts into validation, and hash them.

    The split puts a pair into validation if the hash of its source without placeholders is below
    `plan.validation_below`. If the unit has no such pair, the result has the pairs with the
    smallest hash, because they become the validation split if no unit has a pair below the limit.
    """
    options, sources_of_run = plan.options, plan.source_list
    limit = plan.validation_below - 1
    found: list[HeldOut] = []
    for rows in unit.read(sources_of_run) if limit >= 0 else ():
        is_huge = _is_huge(rows.table, options.filters.max_characters)
        sources = options.normalization.column(_without_huge_texts(rows.table["source"], is_huge))
        chosen = np.flatnonzero(hash_each(sources) <= np.uint64(limit))
        if chosen.size:  # Only these few rows need normalization and filters.
            few = dataclasses.replace(rows, table=rows.table.take(chosen))
            weight = sources_of_run.weight(rows.order)
            clean = _clean_rows(few, plan, filters=options.filters, weight=weight)
            if clean.sources:
                found.append(_hold_out(clean, up_to=limit, by=options.holds_out_by))
    if not found:
        for clean in clean_slices(unit, plan):
            if clean.sources:
                least = int(clean.hash_plain_sources(hash_each(clean.sources)).min())
                found.append(_hold_out(clean, up_to=least, by=options.holds_out_by))
    return unite(found)


def _hold_out(clean: CleanSlice, *, up_to: int, by: str) -> HeldOut:
    """Hash the pairs whose source hash is at most `up_to`, with and without placeholders."""
    is_chosen = clean.hash_plain_sources(hash_each(clean.sources)) <= np.uint64(up_to)
    rows = np.flatnonzero(is_chosen).tolist()
    plain = np.flatnonzero(is_chosen[clean.changed]).tolist()
    pairs = [(clean.sources[row], clean.targets[row]) for row in rows]
    pairs += [(clean.originals[0][row], clean.originals[1][row]) for row in plain]
    of_split = hold_out([source for source, _ in pairs], [target for _, target in pairs], by=by)
    return HeldOut(validation_up_to=up_to, of_split=of_split)


def find_held_out(
    clean: CleanSlice,
    held_out: HeldOut,
    *,
    hashes: UInt64s,
    is_validation: Flags,
    is_short: tuple[Flags, Flags],
    find_short: Callable[[list[str], list[str]], tuple[Flags, Flags]],
) -> dict[int, str]:
    """Return the reasons to reject held-out pairs, by index in `clean`.

    A pair with placeholders is also compared without them, because the placeholders of a text
    depend on the other side of its pair. The same held-out text may therefore have none.

    Args:
      clean: The pairs.
      held_out: The hashes of held-out pairs and texts.
      hashes: Hashes of the sources with placeholders.
      is_validation: Whether each pair is in the validation split. `held_out.of_split` does not
        apply to these pairs.
      is_short: Flags of the short sources and of the short targets, both with placeholders.
      find_short: Returns these flags for given sources and targets.
    """
    if held_out.is_empty:
        return {}
    forms = [(np.arange(len(clean.sources)), hashes, clean.targets, is_short)]
    if clean.changed.size:
        sources, targets = clean.originals
        forms.append((clean.changed, hash_each(sources), targets, find_short(sources, targets)))
    reasons: dict[int, str] = {}
    for places, source_hashes, targets, short in forms:
        target_hashes = hash_each(targets)
        found = held_out_reasons(source_hashes, target_hashes, held_out, is_short=short)
        if held_out.of_split is not None:
            of_split = held_out.of_split
            others = held_out_reasons(source_hashes, target_hashes, of_split, is_short=short)
            found |= {i: reason for i, reason in others.items() if not is_validation[places[i]]}
        for i, reason in found.items():
            reasons.setdefault(int(places[i]), reason)
    return reasons


def hash_pairs(tables: Iterable[pa.Table], options: PreprocessOptions) -> HeldOut:
    """Hash the pairs of held-out corpora, as the rule `options.holds_out_by` requires.

    Pairs with placeholders are also hashed without them.
    """
    found = []
    for table in tables:
        columns = table["source"].fill_null(""), table["target"].fill_null("")
        pairs = normalize_pairs(columns, options)
        rows = [row for row in zip(pairs.sources, pairs.targets, strict=True) if all(row)]
        rows += pairs.originals.values()
        sources, targets = [source for source, _ in rows], [target for _, target in rows]
        found.append(hold_out(sources, targets, by=options.holds_out_by))
    return unite(found)


class Replaced(NamedTuple):
    """A pair with placeholders."""

    source: str
    target: str
    placeholders: int  # number of placeholders on each side


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


def normalize_pairs(
    columns: tuple[pa.ChunkedArray, pa.ChunkedArray], options: PreprocessOptions
) -> NormalizedPairs:
    """Normalize pairs, and replace the spans that both sides of a pair share by placeholders.

    Spans are compared before the texts are lower-cased.

    Args:
      columns: The sources and the targets, without nulls.
      options: Options with the normalization and the definition of spans.
    """
    normalization, protection = options.normalization, options.protection
    with_case = dataclasses.replace(normalization, lowercase=False)
    sources, targets = (with_case.column(side) for side in columns)
    placeholders: dict[int, int] = {}
    originals: dict[int, tuple[str, str]] = {}
    stray: list[int] = []
    if protection.is_on and sources:
        replaced, stray = _find_shared_spans(sources, targets, protection=protection)
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
    return NormalizedPairs(sources, targets, cased, placeholders, originals, stray)


def replace_shared_spans(source: str, target: str, *, protection: Protection) -> Replaced:
    """Replace the spans that both sides share by placeholders, which are equal on both sides.

    The order of the spans in the source determines the numbers of the placeholders. Repeated spans
    are paired in order. Spans without a counterpart remain, and so do spans for which there is no
    placeholder left.

    >>> replace_shared_spans("{a} has %d %s.", "%s de {a}: %d %d.", protection=Protection())
    Replaced(source='⟦1⟧ has ⟦2⟧ ⟦3⟧.', target='⟦3⟧ de ⟦1⟧: ⟦2⟧ %d.', placeholders=3)
    """
    if not (protection.protect_regex or _MAYBE_SPAN.search(target)):
        return Replaced(source, target, 0)
    in_source = protection.find(source)
    if not any(source[start:end] in target for start, end, *_ in in_source):
        return Replaced(source, target, 0)
    in_target: collections.defaultdict[str, list[Span]] = collections.defaultdict(list)
    for span in reversed(protection.find(target)):
        in_target[target[span.start : span.end]].append(span)
    shared = [
        (span, in_target[text].pop())
        for span in in_source
        if in_target[text := source[span.start : span.end]]
    ]
    numbered = [*zip(shared, PLACEHOLDERS, strict=False)]  # at most one span per placeholder
    return Replaced(
        _replace(source, [(own, placeholder) for (own, _), placeholder in numbered]),
        _replace(target, sorted((other, placeholder) for (_, other), placeholder in numbered)),
        len(numbered),
    )


def _replace(text: str, replacements: Sequence[tuple[Span, str]]) -> str:
    parts: list[str] = []
    end = 0
    for span, replacement in replacements:
        parts += [text[end : span.start], replacement]
        end = span.end
    return "".join([*parts, text[end:]])


def _find_shared_spans(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    protection: Protection,
) -> tuple[dict[int, Replaced], list[int]]:
    """Return the pairs after replacement, by position, and the positions of stray placeholders."""
    # Only a search in all texts finds the matches of the user's patterns.
    maybe: Iterable[int] = range(len(sources))
    if not protection.protect_regex:
        # Arrow quickly finds the few sources that may contain a span.
        column = pa.array(sources, pa.large_string())
        found = np.asarray(pc.match_substring_regex(column, MAYBE_SPAN))
        maybe = np.flatnonzero(found).tolist()
    replaced: dict[int, Replaced] = {}
    for row in maybe:
        pair = replace_shared_spans(sources[row], targets[row], protection=protection)
        if pair.placeholders:
            replaced[row] = pair
    stray = []
    for row in {*maybe, *(i for i, text in enumerate(targets) if BRACKET in text)}:
        source, target, expected = replaced.get(row, (sources[row], targets[row], 0))
        if BRACKET in source or BRACKET in target:
            counts = [len(_PLACEHOLDER.findall(text)) for text in (source, target)]
            if counts != [expected, expected]:
                stray.append(row)
    return replaced, sorted(stray)
