"""Rows to normalized pairs that pass the text filters, and the pairs of them to hold out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.text.normalization import TextNormalization
from model.text.placeholders import normalize_pairs
from model.text.spans import Protection
from pipelines.preprocess import digests
from pipelines.preprocess.corpora import SourceList
from pipelines.preprocess.filters import (
    NOT_SAMPLED,
    STRAY_PLACEHOLDER,
    TOO_MANY_CHARACTERS,
    Filters,
    text_reasons,
)
from pipelines.preprocess.held_out import HeldOut, hash_each, held_out_reasons, hold_out, unite
from pipelines.preprocess.rejected import Rejections
from pipelines.preprocess.units import RowSlice, Unit

Flags = npt.NDArray[np.bool_]
_ONLY_MOJIBAKE = Filters(max_characters=65_535, min_letters=0, reject_identical=False)
_EMPTY = pa.scalar("", pa.large_string())
_SAMPLING = b"sampling"  # makes other hashes than those of the order
_HUGE = 16  # bytes, times the most characters: 4 bytes each, and as much again in white space


@dataclasses.dataclass(frozen=True)
class CleanSlice:
    """Normalized texts of those rows of a table that no text filter rejects."""

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

    def hash_plain_sources(self, hashes: digests.UInt64s) -> digests.UInt64s:
        """Return the hashes of the sources without placeholders, from those with placeholders."""
        if not self.changed.size:
            return hashes
        plain = hashes.copy()
        plain[self.changed] = hash_each(self.originals[0])
        return plain

    def reject_into(self, rejections: Rejections) -> None:
        """Add the rejected rows, with their texts as they were read.

        Rows that are not in the sample of a corpus have only their place: they may be most of it.
        """
        if self.rejected:
            table = self.table.take(list(self.rejected))
            reasons = list(self.rejected.values())
            is_sampled = pa.array([reason != NOT_SAMPLED for reason in reasons])
            rejections.add_texts(
                order=self.order,
                reasons=reasons,
                rows=[self.first_row + position for position in self.rejected],
                sources=pc.if_else(is_sampled, table["source"], None),
                targets=pc.if_else(is_sampled, table["target"], None),
            )


def clean_slices(
    unit: Unit,
    sources_of_run: SourceList,
    *,
    normalization: TextNormalization,
    filters: Filters,
    protection: Protection,
) -> Iterator[CleanSlice]:
    """Read the rows of a unit, normalize them, and reject pairs by their texts."""
    for rows in unit.read(sources_of_run):
        yield _clean_rows(
            rows,
            weight=1.0 if unit.is_held_out else sources_of_run.weight(rows.order),
            normalization=normalization,
            filters=filters,
            protection=protection,
        )


def _clean_rows(
    rows: RowSlice,
    *,
    weight: float,
    normalization: TextNormalization,
    filters: Filters,
    protection: Protection,
) -> CleanSlice:
    table = rows.table
    is_huge = _is_huge(table, filters.max_characters)
    source, target = (
        pc.if_else(is_huge, _EMPTY, table[side]).fill_null("") for side in ("source", "target")
    )
    pairs = normalize_pairs((source, target), normalization=normalization, protection=protection)
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
        positions = np.delete(positions, list(rejected))
        sources = [sources[i] for i in positions.tolist()]
        targets = [targets[i] for i in positions.tolist()]
        placeholders = placeholders[positions]
    changed = np.flatnonzero(placeholders)
    originals = [pairs.originals[i] for i in positions[changed].tolist()]
    return CleanSlice(
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


def find_validation(
    unit: Unit,
    sources_of_run: SourceList,
    *,
    normalization: TextNormalization,
    filters: Filters,
    protection: Protection,
    validation_below: int,
    by: str,
) -> HeldOut:
    """Find the pairs of a unit that the split by hash puts into validation, and hash them.

    They are the pairs whose source without placeholders hashes below `validation_below`. If there
    are none, they are the pairs with the least hash, so that no validation split is empty.
    """
    clean_rows = functools.partial(
        _clean_rows,
        normalization=normalization,
        filters=filters,
        protection=protection,
    )
    limit = validation_below - 1
    found: list[HeldOut] = []
    for rows in unit.read(sources_of_run) if limit >= 0 else ():
        is_huge = _is_huge(rows.table, filters.max_characters)
        sources = pc.if_else(is_huge, _EMPTY, rows.table["source"]).fill_null("")
        hashes = hash_each(normalization.column(sources))
        chosen = np.flatnonzero(hashes <= np.uint64(limit))
        if chosen.size:  # the filters are worth their time for these few rows only
            few = dataclasses.replace(rows, table=rows.table.take(chosen))
            clean = clean_rows(few, weight=sources_of_run.weight(rows.order))
            if clean.sources:
                found.append(_hold_out(clean, up_to=limit, by=by))
    if not found:
        for rows in unit.read(sources_of_run):
            clean = clean_rows(rows, weight=sources_of_run.weight(rows.order))
            if clean.sources:
                least = int(clean.hash_plain_sources(hash_each(clean.sources)).min())
                found.append(_hold_out(clean, up_to=least, by=by))
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
    hashes: digests.UInt64s,
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
