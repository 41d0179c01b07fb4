"""Units of work: runs of consecutive rows of a source, read as tables of (source, target, fault).

A row that cannot be a pair has a fault, a reason code, and is rejected later: so rows keep their
places, and each is accounted for.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from pipelines.corpora.rows import ROW_SCHEMA
from pipelines.corpora.source import Source
from pipelines.pairs.work_folder import WorkFolder
from pipelines.storage import files

# A unit ends at whichever limit comes first.
MAX_UNIT_PAIRS = 128 * 1024  # two threads hold one each, with its records
MAX_UNIT_BYTES = 256 << 20  # of text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """A run of consecutive rows of one source: the unit of work."""

    source: Source
    order: int  # the place of the source among all sources of the run
    index: int  # the place of the unit in its source
    first_row: int  # row of the source that the unit starts with, from 0
    rows: int  # number of rows, at most `MAX_UNIT_PAIRS`
    is_held_out: bool = False  # whether its pairs are for validation as a whole
    chunk: str = ""  # the file that a cutting step wrote the rows to, or "" for those read in place

    @property
    def label(self) -> str:
        """A name that no other unit of the run has."""
        return f"{self.order:03d}-{self.index:05d}"

    def read(self) -> Iterator[pa.Table]:
        """Reads the rows, in order, in tables of `ROW_SCHEMA` of at most `SLICE_PAIRS` rows."""
        if not self.chunk:
            return self.source.read_rows(first_row=self.first_row, rows=self.rows)
        return _read_chunk(self.chunk)


def cut_source(
    source: Source, *, order: int, is_held_out: bool, max_pairs: int, work: WorkFolder
) -> Iterator[Unit]:
    """Yields the units of a source, in order; of one that is read all at once it writes chunks.

    The work folder holds the chunks, and the list of the units' row counts once it is known.
    """
    first_row = 0
    for index, (rows, chunk) in enumerate(_sizes_and_chunks(source, order, max_pairs, work)):
        yield Unit(
            source=source,
            order=order,
            index=index,
            first_row=first_row,
            rows=rows,
            is_held_out=is_held_out,
            chunk=chunk,
        )
        first_row += rows


def _sizes_and_chunks(
    source: Source, order: int, max_pairs: int, work: WorkFolder
) -> Iterator[tuple[int, str]]:
    index_path = work.index(order)
    sizes = source.sizes(max_pairs=max_pairs, max_bytes=MAX_UNIT_BYTES)
    if sizes is not None:
        if not files.is_there(index_path):
            work.write_text(index_path, json.dumps(sizes))
        yield from ((rows, "") for rows in sizes)
        return
    # The index is written when all chunks are: with it a rerun need not read the source again.
    if files.is_there(index_path):
        for index, rows in enumerate(json.loads(files.read_bytes(index_path))):
            yield rows, work.chunk(order, index)
        return
    sizes = []
    for index, run in enumerate(_in_runs(source.read_all(), max_pairs)):
        chunk = work.chunk(order, index)
        if files.is_there(chunk):
            rows = sum(table.num_rows for table in run)
        else:
            rows = _write_chunk(chunk, run, work=work)
        sizes.append(rows)
        yield rows, chunk
    work.write_text(index_path, json.dumps(sizes))


def _in_runs(tables: Iterator[pa.Table], max_pairs: int) -> Iterator[Iterator[pa.Table]]:
    """Groups tables into runs; each is to be read to its end before the next is asked for.

    A run has `max_pairs` rows, unless its text comes to `MAX_UNIT_BYTES` before, or it is the last.
    """
    pending = _next_table(tables)

    def run() -> Iterator[pa.Table]:
        nonlocal pending
        room, size = max_pairs, 0
        while pending is not None and room and size < MAX_UNIT_BYTES:
            piece = pending.slice(0, room)
            room -= piece.num_rows
            size += piece.nbytes
            pending = pending.slice(piece.num_rows)
            yield piece
            del piece  # before the next is read: it may be of many MB
            if not pending.num_rows:
                pending = None
                pending = _next_table(tables)

    while pending is not None:
        yield run()


def _next_table(tables: Iterator[pa.Table]) -> pa.Table | None:
    return next((table for table in tables if table.num_rows), None)


def _write_chunk(path: str, tables: Iterable[pa.Table], *, work: WorkFolder) -> int:
    rows = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        work.write_whole(path) as file,
        pa.ipc.new_file(file, ROW_SCHEMA, options=options) as writer,
    ):
        for table in tables:
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _read_chunk(path: str) -> Iterator[pa.Table]:
    with files.open_binary(path) as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(index)])
