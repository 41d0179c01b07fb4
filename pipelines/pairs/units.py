"""Units of work: runs of consecutive rows of a source, read as tables of (source, target, fault).

A row that cannot be a pair carries a fault (a reason code) and is rejected later, so that its
place is kept and every row is accounted for.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from pipelines.storage import files

# A unit, and a slice (what is read, and normalised, at a time), end at whichever comes first.
MAX_UNIT_PAIRS = 128 * 1024  # two threads hold one each, with its records
MAX_UNIT_BYTES = 256 << 20  # of text
SLICE_PAIRS = 16 * 1024
SLICE_BYTES = 32 << 20  # of text, both sides; a longer line is a slice of its own

MALFORMED = "malformed"  # too few columns, or not the JSON that was asked for
INVALID_UTF8 = "invalid_utf8"

# Every table has the same dictionary of faults: a chunk file takes only one.
_FAULTS = (MALFORMED, INVALID_UTF8)
ROW_SCHEMA = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("fault", pa.dictionary(pa.int8(), pa.string())),
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """A run of consecutive rows of one source: the unit of work.

    Attributes:
      source: Where the rows come from.
      order: The place of the source among all sources of the run.
      index: The place of the unit in its source.
      first_row: Row of the source that the unit starts with, from 0.
      rows: Number of rows, at most `MAX_UNIT_PAIRS`.
      is_held_out: Whether its pairs are for validation as a whole.
      chunk: The file that a cutting step wrote the rows to, or "" for those read in place.
    """

    source: Source
    order: int
    index: int
    first_row: int
    rows: int
    is_held_out: bool = False
    chunk: str = ""

    @property
    def label(self) -> str:
        """A name that no other unit of the run has."""
        return f"{self.order:03d}-{self.index:05d}"

    def read(self) -> Iterator[pa.Table]:
        """Reads the rows, in order, in tables of `ROW_SCHEMA` of at most `SLICE_PAIRS` rows."""
        if not self.chunk:
            return self.source.read_rows(first_row=self.first_row, rows=self.rows)
        return read_chunk(self.chunk)


class Source(abc.ABC):
    """A corpus, or a file of one.

    Attributes:
      kind: What it is, as the manifest says it: "text", "tsv", "jsonl", "parquet", ...
    """

    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name in the manifest and among the rejected pairs."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the source from another, as JSON takes it.

        It has the keys kind, name, files (their paths, bytes and times of change) and columns.
        """

    @abc.abstractmethod
    def text_bytes(self) -> int:
        """Returns about how many bytes of text the source holds."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Returns a line on what would be read: kind, files, size, pairs where they are known."""

    @abc.abstractmethod
    def cut(
        self, *, order: int, is_held_out: bool, max_pairs: int, work_folder: str
    ) -> Iterator[Unit]:
        """Yields the units, in order; may write chunk files under `work_folder`.

        Writes the list of the units' row counts to the `index_path` there, once it is known.
        """

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows; only sources whose units have no chunk are read so."""
        raise TypeError(f"{self.name} is read through chunks, not in place")

    def file_of(self, row: int) -> str:
        """Returns the file that a row stands in, for the list of rejected pairs."""
        return self.name


class FileSource(Source):
    """A source that is one file, or a pair of files, with its columns; a base of dataclasses.

    Attributes:
      given_name: The name that the user gave the corpus, or "".
    """

    given_name: str

    @abc.abstractmethod
    def paths(self) -> list[str]:
        """Returns the files that the corpus is read from."""

    def columns(self) -> list[str | int]:
        """Returns the columns of the source and of the target, where the kind has columns."""
        return []

    @property
    def name(self) -> str:
        """The name that it was given, or else its files."""
        return self.given_name or " + ".join(self.paths())

    def file_of(self, row: int) -> str:
        """Returns the file that a row stands in: of a pair of files, that of the source."""
        return self.paths()[0]

    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the source from another."""
        return {
            "kind": self.kind,
            "name": self.name,
            "files": [files.file_identity(path) for path in self.paths()],
            "columns": self.columns(),
        }

    def describe(self) -> str:
        """Returns a line on what would be read."""
        size = sum(files.file_identity(path)["bytes"] for path in self.paths())
        return describe_source(self, where=" + ".join(self.paths()), size=megabytes(size))


class ColumnsSource(FileSource):
    """A source that is two columns of one file; a base of dataclasses.

    Attributes:
      path: The file.
      source_column: Its number or name.
      target_column: Likewise.
    """

    path: str
    source_column: str | int
    target_column: str | int

    def paths(self) -> list[str]:
        """Returns the file."""
        return [self.path]

    def columns(self) -> list[str | int]:
        """Returns the two columns."""
        return [self.source_column, self.target_column]


def describe_source(source: Source, *, where: str, size: str, pairs: int | None = None) -> str:
    """Makes the line of `Source.describe`: kind, name if it has one, place, size and pairs."""
    named = where if source.name == where else f"{source.name} = {where}"
    known = "" if pairs is None else f", {pairs:,} pairs"
    return f"{source.kind}  {named}  {size}{known}"


def megabytes(size: int) -> str:
    """Writes a number of bytes in MB.

    >>> megabytes(1_234_567), megabytes(1234), megabytes(0)
    ('1.2 MB', '0.001 MB', '0 MB')
    """
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e6:.1g} MB"


# Cutting.


def index_path(work_folder: str, order: int) -> str:
    """Returns the path of the JSON list of the row counts of a source's units."""
    path: str = FileSystems.join(work_folder, f"units-{order:03d}.json")
    return path


def cut_in_place(
    source: Source,
    sizes: Sequence[int],
    *,
    order: int,
    is_held_out: bool,
    work_folder: str,
) -> Iterator[Unit]:
    """Yields units of these numbers of rows that are read where they lie, and writes the index."""
    path = index_path(work_folder, order)
    if not FileSystems.exists(path):
        files.write_text(path, json.dumps(list(sizes)), temporary_folder=work_folder)
    starts = itertools.accumulate(sizes, initial=0)
    for index, (first_row, rows) in enumerate(zip(starts, sizes, strict=False)):
        yield Unit(
            source=source,
            order=order,
            index=index,
            first_row=first_row,
            rows=rows,
            is_held_out=is_held_out,
        )


def cut_into_chunks(
    source: Source,
    tables: Iterator[pa.Table],
    *,
    order: int,
    is_held_out: bool,
    max_pairs: int,
    work_folder: str,
) -> Iterator[Unit]:
    """Reads the tables of a whole source once and writes them as chunk files, a unit each."""
    path = index_path(work_folder, order)
    first_row = 0

    def unit(index: int, rows: int) -> Unit:
        return Unit(
            source=source,
            order=order,
            index=index,
            first_row=first_row,
            rows=rows,
            is_held_out=is_held_out,
            chunk=chunk(index),
        )

    def chunk(index: int) -> str:
        name: str = FileSystems.join(work_folder, f"chunk-{order:03d}-{index:05d}.arrow")
        return name

    # The index is written when all chunks are: with it a rerun need not read the source again.
    if FileSystems.exists(path):
        with files.open_binary(path) as file:
            sizes = json.load(file)
        for index, rows in enumerate(sizes):
            yield unit(index, rows)
            first_row += rows
        return
    sizes = []
    for index, run in enumerate(_in_runs(tables, max_pairs)):
        if FileSystems.exists(chunk(index)):
            rows = sum(table.num_rows for table in run)
        else:
            rows = _write_chunk(chunk(index), run, temporary_folder=work_folder)
        sizes.append(rows)
        yield unit(index, rows)
        first_row += rows
    files.write_text(path, json.dumps(sizes), temporary_folder=work_folder)


def even_sizes(*, total: int, most: int) -> list[int]:
    """Cuts a number of rows into units of `most`, of which the last may be smaller.

    >>> even_sizes(total=25, most=10)
    [10, 10, 5]
    """
    return [min(most, total - first) for first in range(0, total, most)]


def rows_within(limit: int, *, rows: int, total_bytes: int, most: int) -> int:
    """Returns how many average rows hold at most `limit` bytes: at least 1, at most `most`.

    >>> rows_within(1000, rows=50, total_bytes=5000, most=16), rows_within(9, rows=0, \
total_bytes=0, most=16)
    (10, 16)
    """
    return max(1, min(most, limit * rows // total_bytes)) if total_bytes else most


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


def _write_chunk(path: str, tables: Iterable[pa.Table], *, temporary_folder: str) -> int:
    rows = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        files.write_whole(path, temporary_folder=temporary_folder) as file,
        pa.ipc.new_file(file, ROW_SCHEMA, options=options) as writer,
    ):
        for table in tables:
            writer.write_table(table)
            rows += table.num_rows
    return rows


def read_chunk(path: str) -> Iterator[pa.Table]:
    """Reads the tables of a chunk file."""
    with files.open_binary(path) as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(index)])


# Tables of rows.


def decode_lines(
    sources: Sequence[bytes | None],
    targets: Sequence[bytes | None],
    *,
    faults: dict[int, str] | None = None,
) -> pa.Table:
    """Makes a table of lines; one that is not UTF-8 gets a fault, and U+FFFD where it is not."""
    columns = [pa.array(lines, pa.large_binary()) for lines in (sources, targets)]
    return decode_columns(*columns, faults=faults)


def decode_columns(
    sources: pa.Array, targets: pa.Array, *, faults: dict[int, str] | None = None
) -> pa.Table:
    """Makes a table of columns of large_binary; see `decode_lines`."""
    faults = dict(faults or {})
    columns = []
    for column in (sources, targets):
        try:
            columns.append(column.cast(pa.large_string()))
        except pa.ArrowInvalid:  # some line is not UTF-8: look for it
            texts: list[str | None] = []
            for row, line in enumerate(column.to_pylist()):
                text = None if line is None else line.decode(errors="replace")
                if text is not None and text.encode() != line:
                    faults.setdefault(row, INVALID_UTF8)
                texts.append(text)
            columns.append(pa.array(texts, pa.large_string()))
    return row_table(columns[0], columns[1], faults)


def row_table(
    sources: pa.Array, targets: pa.Array, faults: dict[int, str] | None = None
) -> pa.Table:
    """Makes a table of `ROW_SCHEMA`."""
    if faults:
        codes = {fault: code for code, fault in enumerate(_FAULTS)}
        places = [codes[faults[row]] if row in faults else None for row in range(len(sources))]
        indices = pa.array(places, pa.int8())
    else:
        indices = pa.nulls(len(sources), pa.int8())
    reasons = pa.DictionaryArray.from_arrays(indices, pa.array(_FAULTS, pa.string()))
    return pa.table([sources, targets, reasons], schema=ROW_SCHEMA)
