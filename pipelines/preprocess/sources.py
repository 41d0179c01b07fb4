"""Sources: corpora or files of corpora, read as Arrow tables of source, target and fault."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.storage import listing
from tt.model.storage.listing import ListedFile
from tt.pipelines.preprocess.filters import TOO_MANY_CHARACTERS
from tt.pipelines.preprocess.headers import is_header
from tt.pipelines.runners.formatting import megabytes
from tt.pipelines.tables.columns import cells_as_binary, column_of
from tt.pipelines.tables.damage import with_remedy
from tt.pipelines.tables.faults import NOT_UTF8, Fault, split_faults
from tt.pipelines.tables.formats import TSV, UTF8, ReadOptions, compression_ending
from tt.pipelines.tables.pieces import cut_by_bytes
from tt.pipelines.tables.ranges import LineRange, can_be_cut, find_aligned_ranges
from tt.pipelines.tables.reading import OpenTable, find_row_ranges, open_aligned
from tt.pipelines.tables.text_files import MAX_LINE_BYTES, TOO_LONG
from tt.pipelines.texts.flags import FLAGS

SLICE_PAIRS = 16 * 1024
SLICE_BYTES = 32 << 20  # text of both sides per slice; a longer line gets its own slice
MALFORMED = "malformed"  # The line has too few columns, or is not the expected JSON.
INVALID_UTF8 = "invalid_utf8"
_REASONS = {NOT_UTF8: INVALID_UTF8, TOO_LONG: TOO_MANY_CHARACTERS}  # of bad rows; else MALFORMED
HEADER = "header"  # The first line of a TSV file contains the names of its columns.
# Estimates of text bytes per compressed byte. They affect only the sizes of units, buckets and
# default shards.
_EXPANSION = {".gz": 4, ".bz2": 5, ".zst": 4}

# Faults of rows that `tt translate-batch` wrote, by status and by flag. Such rows are
# rejected, because they have no translation, or a flagged translation.
STATUS_FAULTS = {
    status: f"translation_{status}"
    for status in (
        "copied", "empty", "failed", "flagged", "incomplete", "null", "skipped", "split",
        "too_long", "unknown",
    )
}  # fmt: skip
FLAG_FAULTS = {flag: f"flag_{flag}" for flag in FLAGS}
OTHER_STATUS = "translation_other"  # a status or a flag that this version of `tt` does not know
# Every table has the same dictionary of faults, because a chunk file can contain only one.
_FAULTS = (
    MALFORMED, INVALID_UTF8, HEADER, TOO_MANY_CHARACTERS, OTHER_STATUS,
    *STATUS_FAULTS.values(), *FLAG_FAULTS.values(),
)  # fmt: skip

ROW_SCHEMA = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("fault", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def decode_lines(
    sources: Sequence[bytes | None],
    targets: Sequence[bytes | None],
    *,
    faults: dict[int, str] | None = None,
) -> pa.Table:
    """Return a table of lines; invalid UTF-8 becomes U+FFFD, and its line gets a fault."""
    columns = [pa.array(lines, pa.large_binary()) for lines in (sources, targets)]
    return decode_columns(*columns, faults=faults)


def decode_columns(
    sources: pa.Array, targets: pa.Array, *, faults: dict[int, str] | None = None
) -> pa.Table:
    """Return a table of two large_binary columns, decoded as in `decode_lines`.

    A text above the limit of a line gets a fault and becomes null, so that no later step sees it.
    """
    faults = dict(faults or {})
    columns = []
    for column in (sources, targets):
        is_long = pc.greater(pc.binary_length(column), MAX_LINE_BYTES)
        if pc.any(is_long).as_py():
            faults |= dict.fromkeys(
                np.flatnonzero(is_long.fill_null(False)).tolist(), TOO_MANY_CHARACTERS
            )
            column = pc.if_else(is_long, None, column)
        try:
            columns.append(column.cast(pa.large_string()))
        except pa.ArrowInvalid:  # At least one line is not UTF-8; the loop finds which.
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
    """Return a table of `ROW_SCHEMA`, given the faults by row."""
    places: list[int | None] = [None] * len(sources)
    for row, fault in (faults or {}).items():
        places[row] = _FAULTS.index(fault)
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(places, pa.int8()), pa.array(_FAULTS, pa.string())
    )
    return pa.table([sources, targets, reasons], schema=ROW_SCHEMA)


class Source(abc.ABC):
    """A corpus, or a file of a corpus. Each kind is a dataclass."""

    # The kind of the source in the manifest: "text", "tsv", "jsonl", "parquet", ...
    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the source in the manifest and in the tables of rejected pairs."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return JSON values that change with the source.

        The keys are kind, name, files (with paths, bytes and modification times) and columns.
        """

    @abc.abstractmethod
    def text_bytes(self) -> int:
        """Return about how many bytes of text the source contains."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return a line about the source: kind, files, size, and pairs if known."""

    @abc.abstractmethod
    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Return the number of rows of each read, in order; None if all rows must be read at once.

        Each read has at most `max_pairs` rows, and at most about `max_bytes` of text.
        """

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Read a run of rows in tables of `ROW_SCHEMA`, unless `sizes` returns None."""
        raise TypeError(f"{self.name} is read all at once")

    def read_all(self) -> Iterator[pa.Table]:
        """Read all rows in tables of `ROW_SCHEMA`, if `sizes` returns None."""
        raise TypeError(f"{self.name} is read in parts")

    def may_have_ranges(self) -> bool:
        """Return whether `find_ranges` can find ranges, without reading a file."""
        return False

    def find_ranges(self, *, max_pairs: int, max_bytes: int) -> list[list[LineRange]]:
        """Return ranges of lines that several workers can read; [] if one worker reads all rows.

        Each entry has a range of each file, with equal numbers of lines.

        Raises:
          UserError: A file cannot be read, or the files have different numbers of lines.
        """
        raise TypeError(f"{self.name} has no ranges")

    def read_ranges(self, ranges: Sequence[LineRange]) -> Iterator[pa.Table]:
        """Read an entry of `find_ranges` in tables of `ROW_SCHEMA`."""
        raise TypeError(f"{self.name} has no ranges")

    def file_of(self, row: int) -> str:
        """Return the file of a row, for the tables of rejected pairs."""
        return self.name

    def first_pair(self) -> list[str] | None:
        """Return the first pair without blank texts; None if the first table has no such pair.

        Raises:
          UserError: A file cannot be read.
        """
        rows = self.first_rows()
        if rows is not None:
            columns = (rows[name].to_pylist() for name in ("source", "target", "fault"))
            for *pair, fault in zip(*columns, strict=True):
                if not fault and all(text and text.strip() for text in pair):
                    return pair
        return None

    def first_rows(self) -> pa.Table | None:
        """Return a table of the first rows; None if there are no rows.

        Raises:
          UserError: A file cannot be read.
        """
        raise TypeError(f"the first rows of {self.name} are not needed")

    def as_json(self) -> dict[str, Any]:
        """Return the kind and the fields of the source as JSON values."""
        itself: Any = self
        fields = [field.name for field in dataclasses.fields(itself) if field.compare]
        return {"kind": self.kind, **{name: getattr(self, name) for name in fields}}

    def _describe(self, *, where: str, size: int, pairs: int | None = None) -> str:
        named = where if self.name == where else f"{self.name} = {where}"
        known = "" if pairs is None else f", {pairs:,} pairs"
        return f"{self.kind}  {named}  {megabytes(size)}{known}"


@dataclasses.dataclass(frozen=True)
class FileSource(Source):
    """A source in one file or a pair of files. By default, all rows must be read at once."""

    has_lines: ClassVar[bool] = False  # whether rows may be lines of the files
    given_name: str = dataclasses.field(default="", kw_only=True)  # the corpus's given name, or ""
    encoding: str = dataclasses.field(default=UTF8, kw_only=True)  # as `find_encoding` returns it
    # Listing entries of the files, or none. They do not belong to the identity of the source.
    listed: tuple[ListedFile, ...] = dataclasses.field(
        default=(), compare=False, repr=False, kw_only=True
    )

    @abc.abstractmethod
    def paths(self) -> list[str]:
        """Return the files of the source."""

    def columns(self) -> list[str | int]:
        """Return the source column and the target column, if the kind has columns."""
        return []

    @property
    def name(self) -> str:
        """The given name, or else the paths of the files."""
        return self.given_name or " + ".join(self.paths())

    def file_of(self, row: int) -> str:
        """Return the file of a row, which is the source file in a pair of files."""
        return self.paths()[0]

    def first_rows(self) -> pa.Table | None:
        """Return a table of the first rows, up to 16,384; None if there are no rows.

        Raises:
          UserError: A file cannot be read.
        """
        return next(self._first_rows(), None)

    def _first_rows(self) -> Iterator[pa.Table]:
        """Yield tables, of which the first contains the first rows."""
        return self.read_all()

    def file_identities(self) -> list[dict[str, Any]]:
        """Return the path, bytes and modification time of each file, from the listing if known."""
        if self.listed and all(file.changed for file in self.listed):
            return [file.identity for file in self.listed]
        return [listing.file_identity(path) for path in self.paths()]

    def identity(self) -> dict[str, Any]:
        """Return JSON values that change with the source."""
        identity = {
            "kind": self.kind,
            "name": self.name,
            "files": self.file_identities(),
            "columns": self.columns(),
        }
        return identity if self.encoding == UTF8 else identity | {"encoding": self.encoding}

    def text_bytes(self) -> int:
        """Estimate the bytes of text, assuming typical compression ratios."""
        return sum(
            file["bytes"] * _EXPANSION.get(compression_ending(file["path"]), 1)
            for file in self.file_identities()
        )

    def describe(self) -> str:
        """Return a line about the source: kind, files, size and encoding."""
        size = sum(file["bytes"] for file in self.file_identities())
        line = self._describe(where=" + ".join(self.paths()), size=size)
        compressed = any(compression_ending(path) for path in self.paths())
        encoding = "" if self.encoding == UTF8 else f", {self.encoding}"
        return line + (" compressed" if compressed else "") + encoding

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Return None, because a row can be found only by reading all rows before it."""
        return None

    def may_have_ranges(self) -> bool:
        """Return whether the lines of the files can be found without decoding the files."""
        return self.has_lines and all(
            can_be_cut(path, encoding=self.encoding) and not listing.is_pipe_or_device(path)
            for path in self.paths()
        )


@dataclasses.dataclass(frozen=True)
class TextPair(FileSource):
    """Two line-aligned text files."""

    kind: ClassVar[str] = "text"
    has_lines: ClassVar[bool] = True

    source_path: str
    target_path: str

    def paths(self) -> list[str]:
        """Return the source file and the target file."""
        return [self.source_path, self.target_path]

    def read_all(self) -> Iterator[pa.Table]:
        """Read both files in parallel, line by line.

        Raises:
          UserError: One file has more lines than the other, or cannot be read.
        """
        return self.read_ranges(())

    def read_ranges(self, ranges: Sequence[LineRange]) -> Iterator[pa.Table]:
        """Read a range of both files."""
        opened = open_aligned(self.paths(), encoding=self.encoding, parts=ranges)
        with with_remedy(), opened as batches:
            yield from _slices(batches, ("0", "1"))

    def find_ranges(self, *, max_pairs: int, max_bytes: int) -> list[list[LineRange]]:
        """Return ranges of the files of a large source; see `Source.find_ranges`."""
        sizes = [file["bytes"] for file in self.file_identities()]
        files = list(zip(self.paths(), sizes, strict=True))
        return find_aligned_ranges(files, most_rows=max_pairs, most_bytes=max_bytes)


@dataclasses.dataclass(frozen=True)
class ColumnsSource(FileSource):
    """Two columns of one file."""

    path: str
    source_column: str | int  # a number, or a name
    target_column: str | int
    input_format: str | None = dataclasses.field(default=None, kw_only=True)  # see `ReadOptions`
    delimiter: str | None = dataclasses.field(default=None, kw_only=True)

    def paths(self) -> list[str]:
        """Return the file."""
        return [self.path]

    def columns(self) -> list[str | int]:
        """Return the source column and the target column."""
        return [self.source_column, self.target_column]

    def identity(self) -> dict[str, Any]:
        """Return JSON values that change with the source."""
        chosen = {"input_format": self.input_format, "delimiter": self.delimiter}
        return super().identity() | {name: each for name, each in chosen.items() if each}


@dataclasses.dataclass(frozen=True)
class TableColumns(ColumnsSource):
    """Two columns of a CSV, JSON or Arrow file."""

    kind: ClassVar[str] = "table"
    has_lines: ClassVar[bool] = True

    def _options(self) -> ReadOptions:
        return ReadOptions(
            input_format=self.input_format, delimiter=self.delimiter, encoding=self.encoding
        )

    def _read_columns(self) -> Sequence[str | int]:
        """Return the columns to read; empty for all columns."""
        return ()

    def read_all(self) -> Iterator[pa.Table]:
        """Read the file.

        Raises:
          UserError: The file is damaged.
        """
        return self.read_ranges([None])

    def read_ranges(self, ranges: Sequence[LineRange | None]) -> Iterator[pa.Table]:
        """Read a range of the file."""
        with with_remedy(), self._open(*ranges) as table:
            yield from _slices(table.batches(), self.columns())

    def find_ranges(self, *, max_pairs: int, max_bytes: int) -> list[list[LineRange]]:
        """Return ranges of a large file; see `Source.find_ranges`."""
        [size] = [file["bytes"] for file in self.file_identities()]
        if size <= max_bytes:
            return []
        with with_remedy():
            found = find_row_ranges(
                self.path,
                options=self._options(),
                columns=self._read_columns(),
                size=size,
                most_rows=max_pairs,
                most_bytes=max_bytes,
            )
        return [[each] for each in found]

    def _open(self, part: LineRange | None) -> OpenTable:
        return OpenTable(
            self.path, options=self._options(), columns=self._read_columns(), part=part
        )


@dataclasses.dataclass(frozen=True)
class Tsv(TableColumns):
    """A tab-separated file with a pair per line. Columns count from 0."""

    kind: ClassVar[str] = "tsv"

    source_column: int = 0
    target_column: int = 1
    languages: Sequence[str] = dataclasses.field(default=(), kw_only=True)  # codes

    def _options(self) -> ReadOptions:
        return dataclasses.replace(super()._options(), input_format=TSV)

    def _read_columns(self) -> Sequence[str | int]:
        """Return the numbers of both columns."""
        return self.columns()

    def read_ranges(self, ranges: Sequence[LineRange | None]) -> Iterator[pa.Table]:
        """Read a range of the file. The first line may contain the names of the columns."""
        tables = super().read_ranges(ranges)
        if not (ranges[0] and ranges[0].begin) and (first := next(tables, None)) is not None:
            yield self._with_header(first)
        yield from tables

    def _with_header(self, table: pa.Table) -> pa.Table:
        source, target, fault = (table.column(name)[0].as_py() for name in ROW_SCHEMA.names)
        if fault or not is_header(source, target, languages=self.languages):
            return table
        first = table.slice(0, 1).combine_chunks()
        first = row_table(first.column(0), first.column(1), {0: HEADER})
        return pa.concat_tables([first, table.slice(1)])


@dataclasses.dataclass(frozen=True)
class Jsonl(TableColumns):
    """A file with a JSON object per line. Two of its keys contain the texts; null is an empty text.

    A dotted key reaches into objects; see `JsonTexts`.
    """

    kind: ClassVar[str] = "jsonl"

    def _read_columns(self) -> Sequence[str | int]:
        """Return both keys."""
        return self.columns()


def _slices(batches: Iterable[pa.RecordBatch], columns: Sequence[str | int]) -> Iterator[pa.Table]:
    """Yield two columns of batches in tables of `ROW_SCHEMA` with limited rows and bytes."""
    for batch in batches:
        for first in range(0, batch.num_rows, SLICE_PAIRS):
            some, faults = split_faults(batch.slice(first, SLICE_PAIRS))
            rows = columns_of(some, columns, bad_rows=faults)
            yield from cut_by_bytes(rows.to_batches(), schema=rows.schema, most_bytes=SLICE_BYTES)


def columns_of(
    batch: pa.RecordBatch,
    columns: Iterable[str | int],
    *,
    faults: dict[int, str] | None = None,
    bad_rows: Mapping[int, Fault] | None = None,
) -> pa.Table:
    """Return a table of two columns or fields of a batch, given their names and the faults.

    The source of a bad row without texts is its whole content.
    """
    sides = [cells_as_binary(column_of(batch, str(name))) for name in columns]
    faults = faults or {}
    if bad_rows:
        cells = [side.to_pylist() for side in sides]
        for row, fault in bad_rows.items():
            if cells[0][row] is cells[1][row] is None:
                cells[0][row], cells[1][row] = fault.content, b""
            faults[row] = _REASONS.get(fault.reason, MALFORMED)
        sides = [pa.array(side, pa.large_binary()) for side in cells]
    return decode_columns(*sides, faults=faults)
