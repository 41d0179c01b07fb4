"""Units of work: runs of consecutive rows of sources, read as tables of (source, target, fault).

A row that cannot be a pair has a fault, which is a reason code. The row is rejected later, so that
the other rows keep their positions and each row is counted.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from tt.model.dataset.tfrecords import one_ahead
from tt.model.storage import files, listing
from tt.pipelines.preprocess.corpora import SourceList
from tt.pipelines.preprocess.sources import ROW_SCHEMA, Source
from tt.pipelines.preprocess.work_folder import WorkFolder, ends_with
from tt.pipelines.tables.ranges import LineRange

# A unit ends at the limit that it reaches first. A huge input has a larger limit of pairs.
MAX_UNIT_PAIRS = 128 * 1024  # Each of two threads has a unit and its records in memory.
MAX_UNIT_BYTES = 256 << 20  # bytes of text
_RANGE_BYTES = 64 << 20  # bytes of a unit of a text file that several workers cut

# Rows of a table that are processed together. Their texts, tokens and records fit into the cache of
# a core, which saves a tenth of the time on two cores.
_ROWS_AT_ONCE = 4096

_CHUNK_END = b"ARROW1"  # the last bytes of each complete Arrow file

_Rows = dict[int, int]  # number of rows of a unit, by the position of their source
_Unchanged = Callable[[], AbstractContextManager[None]]
_Grow = Callable[[int], int]
_Tagged = tuple[int, pa.Table]  # position of a source, and rows of it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A run of consecutive rows of one source."""

    order: int  # position of the source among all sources
    first_row: int  # first row of the part in the source, from 0
    rows: int  # number of rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit of work: a run of rows of one source, or of several small neighboring sources."""

    order: int  # position of the first source of the unit's group among all sources
    index: int  # position of the unit in its group
    parts: tuple[Part, ...]  # one per source, in order; at most `plan.unit_pairs` rows
    is_held_out: bool = False  # whether all its pairs are held out for validation
    chunk: str = ""  # path of the chunk file with the rows; "" if the sources are read directly

    @property
    def label(self) -> str:
        """A name that is unique in the run."""
        return f"{self.order:03d}-{self.index:05d}"

    @property
    def rows(self) -> int:
        """The total number of rows of all parts."""
        return sum(part.rows for part in self.parts)

    def read(self, sources: SourceList) -> Iterator[RowSlice]:
        """Read the rows in order, in slices of at most `_ROWS_AT_ONCE` rows of one source.

        Raises:
          UserError: A file has changed since the job was planned.
        """
        if self.chunk:
            yield from _slice_parts(_read_chunk(self.chunk), self.parts)
            return
        for part in self.parts:
            source = sources.source(part.order)
            with listing.unchanged(sources.files([part.order])):
                tables = source.read_rows(first_row=part.first_row, rows=part.rows)
                yield from _slice_parts(tables, [part])


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowSlice:
    """Some consecutive rows of one source."""

    order: int  # position of the source among all sources
    first_row: int  # first row of the table in the source, from 0
    table: pa.Table  # a table of `ROW_SCHEMA`


def _slice_parts(tables: Iterable[pa.Table], parts: Iterable[Part]) -> Iterator[RowSlice]:
    """Yield slices of tables with the positions of their rows; surplus rows join the last part."""
    following = iter(parts)
    part, done = None, 0
    for table in tables:
        if part is None or done >= part.rows:
            part, done = next(following, part), 0
        if part is None:
            raise RuntimeError("a unit without parts has rows")
        for begin in range(0, table.num_rows, _ROWS_AT_ONCE):
            piece = table.slice(begin, _ROWS_AT_ONCE)
            yield RowSlice(order=part.order, first_row=part.first_row + done + begin, table=piece)
        done += table.num_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of the work of cutting: a group, or the rows of one unit of a large text file.

    Attributes:
      orders: The positions of the group's sources among all sources.
      index: The position of the unit in its group.
      first_row: The first row of the unit in its source, from 0.
      ranges: The lines of the unit in each file of its source; empty for a whole group.
    """

    orders: range
    index: int = 0
    first_row: int = 0
    ranges: tuple[LineRange, ...] = ()


def find_pieces(
    orders: range, *, sources: SourceList, max_pairs: int, work: WorkFolder
) -> Iterator[Piece]:
    """Yield the pieces of a group.

    If the group is a large text file, the function writes the list of its units, so that a rerun
    need not count lines again.

    Args:
      orders: The positions of the group's sources among all sources. Only small sources share a
        group.
      sources: All sources.
      max_pairs: The maximum number of rows per unit.
      work: The work folder.

    Raises:
      UserError: A file has changed since the job was planned, or cannot be read.
    """
    group = orders.start
    source = sources.source(group)
    may_be_cut = len(orders) == 1 and source.may_have_ranges()
    units = _read_ranges(group, work) if may_be_cut else []
    if may_be_cut and not units:
        with listing.unchanged(sources.files(orders)):
            units = source.find_ranges(max_pairs=max_pairs, max_bytes=_RANGE_BYTES)
        if units:
            entries = [
                {"rows": {group: ranges[0].rows}, "chunk": True, "ranges": ranges}
                for ranges in units
            ]
            work.write_text(work.index(group), json.dumps(entries))
    first_row = 0
    for index, ranges in enumerate(units):
        yield Piece(orders=orders, index=index, first_row=first_row, ranges=tuple(ranges))
        first_row += ranges[0].rows
    if not units:
        yield Piece(orders=orders)


def _read_ranges(group: int, work: WorkFolder) -> list[list[LineRange]]:
    """Return the ranges of each unit of a group; [] if the list of units has none."""
    try:
        units = json.loads(files.read_bytes(work.index(group)))
        return [[LineRange(*each) for each in unit["ranges"]] for unit in units]
    except (FileNotFoundError, KeyError, ValueError):  # a truncated list is written again
        return []


def cut_piece(
    piece: Piece, *, sources: SourceList, is_held_out: bool, max_pairs: int, work: WorkFolder
) -> Iterator[Unit]:
    """Yield the units of a piece, in order, and write the chunk files of text.

    Raises:
      UserError: A file has changed since the job was planned, or cannot be read.
    """
    unchanged = functools.partial(listing.unchanged, sources.files(piece.orders))
    if not piece.ranges:
        members = [(order, sources.source(order)) for order in piece.orders]
        yield from cut_sources(
            members, is_held_out=is_held_out, max_pairs=max_pairs, work=work, unchanged=unchanged
        )
        return
    order = piece.orders.start
    chunk = work.chunk(order, piece.index)
    if not ends_with(chunk, _CHUNK_END):  # an earlier run has not finished it
        tables = sources.source(order).read_ranges(piece.ranges)
        _write_chunk(chunk, ((order, table) for table in tables), work=work, unchanged=unchanged)
    part = Part(order=order, first_row=piece.first_row, rows=piece.ranges[0].rows)
    yield Unit(order=order, index=piece.index, parts=(part,), is_held_out=is_held_out, chunk=chunk)


def cut_sources(
    members: Sequence[tuple[int, Source]],
    *,
    is_held_out: bool,
    max_pairs: int,
    work: WorkFolder,
    unchanged: _Unchanged,
    grow: _Grow = lambda text_bytes: 0,
    is_repeatable: bool = True,
) -> Iterator[Unit]:
    """Yield the units of a group of sources, in order, and write the chunk files of text.

    A chunk file that a killed run has finished is not written again. After the last unit, the
    function writes the row counts of all units to the work folder, so that a rerun need not read
    the sources again.

    Args:
      members: The (position, source) pairs of the group. Only small sources share a group.
      is_held_out: Whether all pairs of the group are held out for validation.
      max_pairs: The maximum number of rows per unit.
      work: The work folder.
      unchanged: Returns a context that raises an error at its end if a source has changed. Each
        chunk, and the list of row counts, gets its name only after such a context.
      grow: Returns another maximum for the next chunk, given the bytes of text that were read until
        then. The larger maximum applies.
      is_repeatable: Whether the sources contain the same rows each time, unlike pipes.
    """
    group = members[0][0]
    found = _find_units(group, work)
    units: list[dict[str, Any]] = []
    done: collections.Counter[int] = collections.Counter()
    with contextlib.nullcontext() if found else unchanged():
        for rows, chunk in found or _cut(
            members, max_pairs, work, unchanged, grow, is_repeatable=is_repeatable
        ):
            yield Unit(
                order=group,
                index=len(units),
                parts=tuple(
                    Part(order=order, first_row=done[order], rows=number)
                    for order, number in rows.items()
                ),
                is_held_out=is_held_out,
                chunk=chunk,
            )
            units.append({"rows": rows, "chunk": bool(chunk)})
            done.update(rows)
    if not found:
        work.write_text(work.index(group), json.dumps(units))


def read_index(content: bytes) -> list[tuple[_Rows, bool]]:
    """Parse the index of a group: the rows by source, and whether there is a chunk, per unit.

    Raises:
      ValueError: The index is truncated.
    """
    return [
        ({int(order): rows for order, rows in unit["rows"].items()}, unit["chunk"])
        for unit in json.loads(content)
    ]


def _find_units(group: int, work: WorkFolder) -> list[tuple[_Rows, str]] | None:
    """Return the rows and the chunk of each unit of a group; None if a file is incomplete."""
    if not listing.exists(work.index(group)):
        return None
    try:
        units = read_index(files.read_bytes(work.index(group)))
    except ValueError:
        return None
    found = [
        (rows, work.chunk(group, index) if has_chunk else "")
        for index, (rows, has_chunk) in enumerate(units)
    ]
    is_whole = all(ends_with(chunk, _CHUNK_END) for _, chunk in found if chunk)
    return found if is_whole else None


def _cut(
    members: Sequence[tuple[int, Source]],
    max_pairs: int,
    work: WorkFolder,
    unchanged: _Unchanged,
    grow: _Grow,
    *,
    is_repeatable: bool,
) -> Iterator[tuple[_Rows, str]]:
    group = members[0][0]
    sized = [
        (order, source, source.sizes(max_pairs=max_pairs, max_bytes=MAX_UNIT_BYTES))
        for order, source in members
    ]
    index = 0
    for is_in_place, run in itertools.groupby(sized, lambda member: member[2] is not None):
        if is_in_place:
            sizes = [(order, rows) for order, _, sizes in run for rows in sizes or ()]
            for rows in _join(sizes, max_pairs=max_pairs if len(members) > 1 else 0):
                yield rows, ""
                index += 1
            continue
        # One worker cuts the file while all other workers wait, so reading must be fast.
        tables = one_ahead(
            (order, table) for order, source, _ in run for table in source.read_all()
        )
        for pieces in _in_runs(tables, max_pairs, grow):
            chunk = work.chunk(group, index)
            if is_repeatable and ends_with(chunk, _CHUNK_END):
                yield _count_rows(pieces), chunk
            else:
                yield _write_chunk(chunk, pieces, work=work, unchanged=unchanged), chunk
            index += 1


def _join(sizes: Iterable[tuple[int, int]], *, max_pairs: int) -> Iterator[_Rows]:
    """Join (source, rows) runs into units of at most `max_pairs` rows, or of one larger run.

    >>> list(_join([(5, 30), (6, 20), (7, 60), (7, 40)], max_pairs=100))
    [{5: 30, 6: 20}, {7: 100}]
    """
    unit: collections.Counter[int] = collections.Counter()
    for order, rows in sizes:
        if unit and unit.total() + rows > max_pairs:
            yield dict(unit)
            unit.clear()
        unit[order] += rows
    if unit:
        yield dict(unit)


def _in_runs(tables: Iterator[_Tagged], max_pairs: int, grow: _Grow) -> Iterator[Iterator[_Tagged]]:
    """Group tables into runs. The caller must read each run to its end before the next run.

    A run has `max_pairs` rows, or more if `grow` says so. It has fewer if it is the last run, or if
    its text reaches `MAX_UNIT_BYTES` first.
    """
    pending = _next_table(tables)
    total = 0  # bytes of text in all runs

    def run() -> Iterator[_Tagged]:
        nonlocal pending, total
        room, size = max(max_pairs, grow(total)), 0
        while pending is not None and room and size < MAX_UNIT_BYTES:
            order, table = pending
            piece = table.slice(0, room)
            room -= piece.num_rows
            size += piece.drop_columns("fault").nbytes  # All pieces share the dictionary of faults.
            pending = order, table.slice(piece.num_rows)
            del table
            yield order, piece
            del piece  # It may have many MB, so it is freed before the next table is read.
            if not pending[1].num_rows:
                pending = None
                pending = _next_table(tables)
        total += size

    while pending is not None:
        yield run()


def _next_table(tables: Iterator[_Tagged]) -> _Tagged | None:
    return next((tagged for tagged in tables if tagged[1].num_rows), None)


def _count_rows(tables: Iterable[_Tagged]) -> _Rows:
    rows: collections.Counter[int] = collections.Counter()
    for order, table in tables:
        rows[order] += table.num_rows
    return dict(rows)


def _write_chunk(
    path: str, tables: Iterable[_Tagged], *, work: WorkFolder, unchanged: _Unchanged
) -> _Rows:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    rows: collections.Counter[int] = collections.Counter()
    with (
        work.write_whole(path) as file,
        unchanged(),
        pa.ipc.new_file(file, ROW_SCHEMA, options=options) as writer,
    ):
        for order, table in tables:
            writer.write_table(table)
            rows[order] += table.num_rows
    return dict(rows)


def _read_chunk(path: str) -> Iterator[pa.Table]:
    with files.open_binary(path) as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(index)])
