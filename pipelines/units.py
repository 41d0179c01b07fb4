"""Units of work: runs of consecutive rows of a source, read as tables of (source, target, fault).

A row that cannot be a pair carries a fault (a reason code) and is rejected later, so that its
place is kept and every row is accounted for.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pipelines import files

MAX_UNIT_PAIRS = 256 * 1024
SLICE_PAIRS = 16 * 1024  # rows that are read, and normalised, at a time

MALFORMED = "malformed"  # too few columns
INVALID_UTF8 = "invalid_utf8"

ROW_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("target", pa.string()),
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
    """A corpus, or a file of one."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name in the manifest and among the rejected pairs."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the source from another, for the fingerprint."""

    @abc.abstractmethod
    def text_bytes(self) -> int:
        """Returns about how many bytes of text the source holds."""

    @abc.abstractmethod
    def cut(
        self, *, order: int, is_held_out: bool, max_pairs: int, work_folder: str
    ) -> Iterator[Unit]:
        """Yields the units, in order; may write chunk files under `work_folder`."""

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows; only sources whose units have no chunk are read so."""
        raise TypeError(f"{self.name} is read through chunks, not in place")

    def file_of(self, row: int) -> str:
        """Returns the file that a row stands in, for the list of rejected pairs."""
        return self.name

    def _cut_in_place(
        self, *, total: int, order: int, is_held_out: bool, max_pairs: int
    ) -> Iterator[Unit]:
        for index, first_row in enumerate(range(0, total, max_pairs)):
            yield Unit(
                source=self,
                order=order,
                index=index,
                first_row=first_row,
                rows=min(max_pairs, total - first_row),
                is_held_out=is_held_out,
            )


def decode_lines(
    sources: Sequence[bytes | None],
    targets: Sequence[bytes | None],
    *,
    faults: dict[int, str] | None = None,
) -> pa.Table:
    """Makes a table of lines; one that is not UTF-8 gets a fault, and U+FFFD where it is not."""
    faults = dict(faults or {})
    columns = []
    for lines in (sources, targets):
        try:
            columns.append(pa.array(lines, pa.binary()).cast(pa.string()))
        except pa.ArrowInvalid:  # some line is not UTF-8: look for it
            texts: list[str | None] = []
            for row, line in enumerate(lines):
                text = None if line is None else line.decode(errors="replace")
                if text is not None and text.encode() != line:
                    faults.setdefault(row, INVALID_UTF8)
                texts.append(text)
            columns.append(pa.array(texts, pa.string()))
    return row_table(columns[0], columns[1], faults)


def row_table(
    sources: pa.Array, targets: pa.Array, faults: dict[int, str] | None = None
) -> pa.Table:
    """Makes a table of `ROW_SCHEMA`."""
    kind = ROW_SCHEMA.field("fault").type
    if faults:
        reasons = pa.array([faults.get(row) for row in range(len(sources))], kind)
    else:
        reasons = pa.nulls(len(sources), kind)
    return pa.table([sources, targets, reasons], schema=ROW_SCHEMA)


def read_chunk(path: str) -> Iterator[pa.Table]:
    """Reads the tables of a chunk file."""
    with files.open_binary(path) as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(index)])
