"""Rows to normalized pairs with placeholders that pass the text filters, and pairs to hold out."""

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
_SAMPLING = b"sampling"  # makes other hashes than those of the order
_HUGE = 16  # bytes, times the most characters: 4 bytes each, and as much again in white space
_TOKEN = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
_MAYBE_SPAN = re.compile(MAYBE_SPAN)


@dataclasses.dataclass(frozen=True)
class CleanSlice:
    """Normalized texts of those rows of a table that no text filter rejects."""

    rows: RowSlice  # the rows as they were read
    positions: npt.NDArray[np.int64]  # in the table, of the texts
    sources: list[str]  # normalized
    targets: list[str]  # normalized
    placeholders: npt.NDArray[np.uint8]  # on each side
    # Places of the texts that have some, and those texts without them.
    changed: npt.NDArray[np.int64]
    originals: tuple[list[str], list[str]]
    rejected: dict[int, str]  # the other positions, and the reason of each

    def hash_plain_sources(self, hashes: UInt64s) -> UInt64s:
        """Return the hashes of the sources without placeholders, from those with placeholders."""
        if not self.changed.size:
            return hashes
        plain = hashes.copy()
        plain[self.changed] = hash_each(self.originals[0])
        return plain


def filters_of(unit: Unit, plan: DatasetPlan) -> Filters:
    """Return the filters of a unit: a held-out corpus keeps all pairs that can be encoded."""
    filters = plan.options.filters
    return filters.for_validation() if unit.is_held_out else filters


def clean_slices(unit: Unit, plan: DatasetPlan) -> Iterator[CleanSlice]:
    """Read the rows of a unit, normalize them, and reject pairs by their texts."""
    for rows in unit.read(plan.source_list):
        weight = 1.0 if unit.is_held_out else plan.source_list.weight(rows.order)
        yield _clean_rows(rows, plan, filters=filters_of(unit, plan), weight=weight)


def _clean_rows(
    rows: RowSlice, plan: DatasetPlan, *, filters: Filters, weight: float
) -> CleanSlice:
    table, normalization = rows.table, plan.options.normalization
    is_huge = _is_huge(table, filters.max_characters)
    pairs = normalize_pairs(
        (_shortened(table["source"], is_huge), _shortened(table["target"], is_huge)),
        plan.options,
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
    """Return the reason of those pairs that are not in the sample of a share, by position.

    The sample is a function of the texts: a greater share has all pairs that a lesser one has.
    """
    found = digests.digest_pairs(digests.digest_texts(sources), targets, salt=_SAMPLING)
    is_out = digests.digest_halves(found)[1] >= np.uint64(weight * 2**64)
    return dict.fromkeys(np.flatnonzero(is_out).tolist(), NOT_SAMPLED)


def _is_huge(table: pa.Table, max_characters: int) -> Flags:
    """Tell which rows have a text that is too long to be normalized, however short it would get.

    A line of 100 MB, with its copies on the way through normalization, would need 2 GB.
    """
    lengths = [pc.fill_null(pc.binary_length(table[side]), 0) for side in ("source", "target")]
    return np.asarray(pc.greater(pc.max_element_wise(*lengths), _HUGE * max_characters))


def _shortened(texts: pa.ChunkedArray, is_huge: Flags) -> pa.ChunkedArray:
    """Empty the huge texts of a column, and fill its nulls."""
    if is_huge.any():
        texts = pc.if_else(pa.array(is_huge), _EMPTY, texts)
    return texts.fill_null("")


def find_validation(unit: Unit, plan: DatasetPlan) -> HeldOut:
    """Find the pairs of a unit that the split by hash puts into validation, and hash them.

    They are the pairs whose source without placeholders hashes below `plan.validation_below`. If
    there are none, they are the pairs with the least hash, so that no validation split is empty.
    """
    options, sources_of_run = plan.options, plan.source_list
    limit = plan.validation_below - 1
    found: list[HeldOut] = []
    for rows in unit.read(sources_of_run) if limit >= 0 else ():
        is_huge = _is_huge(rows.table, options.filters.max_characters)
        sources = options.normalization.column(_shortened(rows.table["source"], is_huge))
        chosen = np.flatnonzero(hash_each(sources) <= np.uint64(limit))
        if chosen.size:  # the filters are worth their time for these few rows only
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
    """Hash the pairs whose source has at most the hash `up_to`, with placeholders and without."""
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
    are_short: Callable[[list[str], list[str]], tuple[Flags, Flags]],
) -> dict[int, str]:
    """Return the reasons of the pairs that are held out, with placeholders or without, by place.

    A text that training must not see may have been held out without placeholders, as nobody knows
    which spans its other side would share.

    Args:
      clean: The pairs.
      held_out: What is held out.
      hashes: Hashes of the sources with placeholders.
      is_validation: Whether each pair is in the validation split, to which `of_split` belongs.
      is_short: Whether the sources and the targets with placeholders are short.
      are_short: Tells the same of other sources and targets.
    """
    if held_out.is_empty:
        return {}
    forms = [(np.arange(len(clean.sources)), hashes, clean.targets, is_short)]
    if clean.changed.size:
        sources, targets = clean.originals
        forms.append((clean.changed, hash_each(sources), targets, are_short(sources, targets)))
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
    """Hash what is held out of tables of pairs by the rule of the options.

    A pair with placeholders is held out with them and without.
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
    placeholders: int  # on each side


class NormalizedPairs(NamedTuple):
    """Pairs of normalized texts with placeholders; positions count from 0."""

    sources: list[str]
    targets: list[str]
    cased: tuple[list[str], list[str]]  # both sides before they were lower-cased
    placeholders: dict[int, int]  # on each side, by position; the other pairs have none
    originals: dict[int, tuple[str, str]]  # texts of those pairs without placeholders
    # Pairs that hold the text of a placeholder which is none: no vocabulary could tell them apart.
    stray: list[int]


def normalize_pairs(
    columns: tuple[pa.ChunkedArray, pa.ChunkedArray], options: PreprocessOptions
) -> NormalizedPairs:
    """Normalize pairs of texts, and put placeholders for the spans on both sides of each.

    Spans are compared before letters become lower-case.

    Args:
      columns: Sources and targets, without nulls.
      options: They say what is normalized, and what a span is.
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
    """Put the same placeholder for each span that stands on both sides, numbered by the source.

    A text that stands several times is replaced as often as it does on both sides, in order. More
    spans than there are placeholders stay as they are.

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
    numbered = [*zip(shared, PLACEHOLDERS, strict=False)]  # as many as there are
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
    """Return the pairs with shared spans after their replacement, and the strays, by position."""
    # Of users' own patterns, nothing is known before they have searched a text.
    maybe: Iterable[int] = range(len(sources))
    if not protection.protect_regex:
        # Arrow finds out fast that most sources have no span.
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
            counts = [len(_TOKEN.findall(text)) for text in (source, target)]
            if counts != [expected, expected]:
                stray.append(row)
    return replaced, sorted(stray)
