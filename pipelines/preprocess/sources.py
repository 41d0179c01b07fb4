"""Sources: a corpus, or a file of one, read as Arrow tables of source, target and fault."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tt.model.errors import UserError
from tt.pipelines.runners.formatting import megabytes
from tt.pipelines.storage import listing
from tt.pipelines.storage.listing import ListedFile
from tt.pipelines.tables import text
from tt.pipelines.tables.columns import cells_as_binary, column_of
from tt.pipelines.tables.damage import with_remedy
from tt.pipelines.tables.finding import UTF8, compression_ending
from tt.pipelines.tables.forward import cut_by_bytes
from tt.pipelines.tables.reading import OpenTable, read_head_lines
from tt.pipelines.tables.text import LineReader, line_slices
from tt.pipelines.texts.limits import FLAGS

SLICE_PAIRS = text.SLICE_LINES
SLICE_BYTES = 32 << 20  # of text, both sides; a longer line is a slice of its own
MALFORMED = "malformed"  # too few columns, or not the JSON that was asked for
INVALID_UTF8 = "invalid_utf8"
# Of sentences; only unit sizes and the number of buckets and default shards rest on it.
_EXPANSION = {".gz": 4, ".bz2": 5, ".zst": 4}
_MOST_NAMES = 20  # of keys, in a message

# Faults of rows of `tt translate-batch`, by their status or by a flag: rows without a translation
# to learn from, and doubtful ones.
TRANSLATED = "ok"
STATUS_FAULTS = {
    status: f"translation_{status}"
    for status in (
        "copied", "empty", "failed", "flagged", "incomplete", "null", "split", "too_long",
        "unknown",
    )
}  # fmt: skip
FLAG_FAULTS = {flag: f"flag_{flag}" for flag in FLAGS}
# Every table has the same dictionary of faults: a chunk file takes only one.
_FAULTS = (MALFORMED, INVALID_UTF8, *STATUS_FAULTS.values(), *FLAG_FAULTS.values())

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
    """Make a table of lines; one that is not UTF-8 gets a fault, and U+FFFD for invalid bytes."""
    columns = [pa.array(lines, pa.large_binary()) for lines in (sources, targets)]
    return decode_columns(*columns, faults=faults)


def decode_columns(
    sources: pa.Array, targets: pa.Array, *, faults: dict[int, str] | None = None
) -> pa.Table:
    """Make a table of columns of large_binary; see `decode_lines`."""
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
    """Make a table of `ROW_SCHEMA`."""
    places: list[int | None] = [None] * len(sources)
    for row, fault in (faults or {}).items():
        places[row] = _FAULTS.index(fault)
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(places, pa.int8()), pa.array(_FAULTS, pa.string())
    )
    return pa.table([sources, targets, reasons], schema=ROW_SCHEMA)


class Source(abc.ABC):
    """A corpus, or a file of one; each kind is a dataclass."""

    # Kind of the source, as the manifest says it: "text", "tsv", "jsonl", "parquet", ...
    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name in the manifest and among the rejected pairs."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what tells one state of the source from another, as JSON takes it.

        It has the keys kind, name, files (their paths, bytes and times of change) and columns.
        """

    @abc.abstractmethod
    def text_bytes(self) -> int:
        """Return about how many bytes of text the source holds."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return a line about the source: kind, files, size, and pairs if they are known."""

    @abc.abstractmethod
    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Return the numbers of rows to read at a time, in order; None: only all at once.

        They are `max_pairs` at most, with about `max_bytes` of text at most.
        """

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Read a run of rows of a source that has `sizes`, in tables of `ROW_SCHEMA`."""
        raise TypeError(f"{self.name} is read all at once")

    def read_all(self) -> Iterator[pa.Table]:
        """Read all rows of a source that has no `sizes`, in tables of `ROW_SCHEMA`."""
        raise TypeError(f"{self.name} is read in parts")

    def file_of(self, row: int) -> str:
        """Return the file of a row, for the list of rejected pairs."""
        return self.name

    def as_json(self) -> dict[str, Any]:
        """Return its fields, as JSON takes them, with its kind."""
        itself: Any = self
        fields = [field.name for field in dataclasses.fields(itself) if field.compare]
        return {"kind": self.kind, **{name: getattr(self, name) for name in fields}}

    def _describe(self, *, where: str, size: int, pairs: int | None = None) -> str:
        named = where if self.name == where else f"{self.name} = {where}"
        known = "" if pairs is None else f", {pairs:,} pairs"
        return f"{self.kind}  {named}  {megabytes(size)}{known}"


@dataclasses.dataclass(frozen=True)
class FileSource(Source):
    """A source that is one file, or a pair of files: by default text that is read all at once."""

    given_name: str = dataclasses.field(default="", kw_only=True)  # the corpus's name, or ""
    encoding: str = dataclasses.field(default=UTF8, kw_only=True)  # as `find_encoding` names it
    # The files as they were listed, or none: no part of what a source is.
    listed: tuple[ListedFile, ...] = dataclasses.field(
        default=(), compare=False, repr=False, kw_only=True
    )

    @abc.abstractmethod
    def paths(self) -> list[str]:
        """Return the files of the source."""

    def columns(self) -> list[str | int]:
        """Return the columns of the source and of the target, if the kind has columns."""
        return []

    @property
    def name(self) -> str:
        """The name that it was given, or else its files."""
        return self.given_name or " + ".join(self.paths())

    def file_of(self, row: int) -> str:
        """Return the file of a row: of a pair of files, the file of the source."""
        return self.paths()[0]

    def first_pair(self) -> list[str] | None:
        """Return the first pair of texts, of which none is blank; None if none is near the start.

        Raises:
          UserError: A file cannot be read.
        """
        for rows in itertools.islice(self._first_rows(), 1):
            columns = (rows[name].to_pylist() for name in ("source", "target", "fault"))
            for *pair, fault in zip(*columns, strict=True):
                if not fault and all(text and text.strip() for text in pair):
                    return pair
        return None

    def _first_rows(self) -> Iterator[pa.Table]:
        """Yield tables, of which the first has the first rows."""
        return self.read_all()

    def file_identities(self) -> list[dict[str, Any]]:
        """Return path, bytes and time of change of each file; ask for those not listed."""
        if self.listed and all(file.changed for file in self.listed):
            return [
                {"path": file.path, "bytes": file.size, "changed": file.changed}
                for file in self.listed
            ]
        return [listing.file_identity(path) for path in self.paths()]

    def identity(self) -> dict[str, Any]:
        """Return what tells one state of the source from another."""
        identity = {
            "kind": self.kind,
            "name": self.name,
            "files": self.file_identities(),
            "columns": self.columns(),
        }
        return identity if self.encoding == UTF8 else identity | {"encoding": self.encoding}

    def text_bytes(self) -> int:
        """Estimate how many bytes of text there are, by the usual rate of compression."""
        return sum(
            file["bytes"] * _EXPANSION.get(compression_ending(file["path"]), 1)
            for file in self.file_identities()
        )

    def describe(self) -> str:
        """Return a line about the source."""
        size = sum(file["bytes"] for file in self.file_identities())
        line = self._describe(where=" + ".join(self.paths()), size=size)
        compressed = any(compression_ending(path) for path in self.paths())
        encoding = "" if self.encoding == UTF8 else f", {self.encoding}"
        return line + (" compressed" if compressed else "") + encoding

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Return None: the place of a row is known only after all rows before it are read."""
        return None


@dataclasses.dataclass(frozen=True)
class TextPair(FileSource):
    """Two files of which each line of one translates the same line of the other."""

    kind: ClassVar[str] = "text"

    source_path: str
    target_path: str

    def paths(self) -> list[str]:
        """Return the files."""
        return [self.source_path, self.target_path]

    def read_all(self) -> Iterator[pa.Table]:
        """Read both files in step.

        Raises:
          UserError: One file has more lines than the other, or cannot be read.
        """
        limit = max(1, SLICE_BYTES // 2)
        with (
            with_remedy(),
            LineReader(self.source_path, slice_bytes=limit, encoding=self.encoding) as sources,
            LineReader(self.target_path, slice_bytes=limit, encoding=self.encoding) as targets,
        ):
            while number := min(sources.look_ahead(), targets.look_ahead()):
                yield decode_lines(sources.take(number), targets.take(number))
            if sources.look_ahead() or targets.look_ahead():
                raise UserError(
                    f"{self.source_path} has {sources.count_to_end()} lines and "
                    f"{self.target_path} has {targets.count_to_end()}: line-aligned files must "
                    "have equally many, so check that both are whole and belong together"
                )


@dataclasses.dataclass(frozen=True)
class ColumnsSource(FileSource):
    """A source that is two columns of one file."""

    path: str
    source_column: str | int  # its number or name
    target_column: str | int

    def paths(self) -> list[str]:
        """Return the file."""
        return [self.path]

    def columns(self) -> list[str | int]:
        """Return the two columns."""
        return [self.source_column, self.target_column]

    def read_all(self) -> Iterator[pa.Table]:
        """Read the file; a line without the two texts becomes a fault, and is kept as it is."""
        split = self._split
        with with_remedy():
            for lines in line_slices(self.path, encoding=self.encoding, slice_bytes=SLICE_BYTES):
                pairs, faults = [], {}
                for row, line in enumerate(lines):
                    pair: tuple[bytes | None, bytes | None] = (line, b"")
                    try:
                        pair = split(line)
                    except UnicodeDecodeError:
                        pass  # `decode_lines` finds it again and says so
                    except (ValueError, TypeError, LookupError, RecursionError):
                        faults[row] = MALFORMED
                    pairs.append(pair)
                yield decode_lines(*zip(*pairs, strict=True), faults=faults)

    def _split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Return the two texts of a line, of a kind that has lines."""
        raise TypeError(f"{self.path} has no lines")


@dataclasses.dataclass(frozen=True)
class Tsv(ColumnsSource):
    """A file with a pair per line, its columns between tabs and counted from 0."""

    kind: ClassVar[str] = "tsv"

    source_column: int = 0
    target_column: int = 1

    @functools.cached_property
    def _splits(self) -> int:
        return max(self.source_column, self.target_column) + 1

    def _split(self, line: bytes) -> tuple[bytes, bytes]:
        cells = line.split(b"\t", self._splits)
        return cells[self.source_column], cells[self.target_column]


@dataclasses.dataclass(frozen=True)
class Jsonl(ColumnsSource):
    """A file with a JSON object per line, and a text under each of two of its keys.

    A dotted key reaches into objects: "translation.en" finds "A" in {"translation": {"en": "A"}}.
    A null counts as empty.
    """

    kind: ClassVar[str] = "jsonl"

    def _split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        value = json.loads(line.decode())
        return text_at(value, str(self.source_column)), text_at(value, str(self.target_column))


@dataclasses.dataclass(frozen=True)
class TableColumns(ColumnsSource):
    """Two columns of a CSV or Arrow file."""

    kind: ClassVar[str] = "table"

    def read_all(self) -> Iterator[pa.Table]:
        """Read the file.

        Raises:
          UserError: A row or the file is damaged.
        """
        with with_remedy(), OpenTable(self.path) as table:
            for batch in table.batches():
                for first in range(0, batch.num_rows, SLICE_PAIRS):
                    rows = columns_of(batch.slice(first, SLICE_PAIRS), self.columns())
                    for piece, _ in cut_by_bytes(rows.to_batches(), most_bytes=SLICE_BYTES):
                        yield pa.Table.from_batches(piece)


def columns_of(
    batch: pa.RecordBatch, columns: Iterable[str | int], *, faults: dict[int, str] | None = None
) -> pa.Table:
    """Return the table of two columns or fields of a batch."""
    sides = [cells_as_binary(column_of(batch, str(name))) for name in columns]
    return decode_columns(*sides, faults=faults)


def text_at(value: Any, key: str) -> bytes | None:
    """Return the text, as UTF-8, under a key of a JSON object, or None if it is null.

    Raises:
      KeyError: There is no such key.
      TypeError: The key leads through a value that is no object, or to one that is no string.
      ValueError: The string is not valid Unicode: it holds half a surrogate pair.

    >>> text_at({"translation": {"en": "A"}}, "translation.en")
    b'A'
    """
    for part in [key] if key in value else key.split("."):
        value = value[part]
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{key} holds {value!r}")
    return value.encode()


def find_keys(
    path: str, choices: Sequence[tuple[str, str]], *, are_named: bool = True, encoding: str = UTF8
) -> tuple[str, str]:
    """Return the first pair of keys under which an object at the start of a file has texts.

    If there are no objects, it is the first choice; also if the user named the keys, as the texts
    may begin after the first 512 KB.

    Raises:
      UserError: There are objects, and none has both keys of any pair.
    """
    found: dict[str, None] = {}  # in order
    has_objects = False
    lines, is_whole = read_head_lines(path, encoding=encoding)
    for line in lines:
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue
        for keys in choices:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                for key in keys:
                    text_at(value, key)
                return keys
        if isinstance(value, dict):
            has_objects = True
            found |= dict.fromkeys(_names_of_texts(value))
    if not has_objects or (are_named and not is_whole):
        return choices[0]
    wanted = " or ".join(" and ".join(map(repr, keys)) for keys in choices)
    more = ", ..." if len(found) > _MOST_NAMES else ""
    raise UserError(
        f"{path} has no texts under the keys {wanted}: its first objects have "
        f"{', '.join(list(found)[:_MOST_NAMES]) or 'none'}{more}. Name two of them, as in "
        f"{path}:SOURCE:TARGET or with `source_column` and `target_column`"
    )


def _names_of_texts(value: dict[str, Any]) -> Iterator[str]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from (f"{key}.{name}" for name in _names_of_texts(inner))
        elif inner is None or isinstance(inner, str):
            yield key


def even_sizes(*, total: int, most: int) -> list[int]:
    """Cut a number of rows into units of `most`, of which the last may be smaller.

    >>> even_sizes(total=25, most=10)
    [10, 10, 5]
    """
    return [min(most, total - first) for first in range(0, total, most)]


def rows_within(limit: int, *, rows: int, total_bytes: int, most: int) -> int:
    """Return how many average rows hold at most `limit` bytes: at least 1, at most `most`.

    >>> rows_within(1000, rows=50, total_bytes=5000, most=16), rows_within(9, rows=0, \
total_bytes=0, most=16)
    (10, 16)
    """
    return max(1, min(most, limit * rows // total_bytes)) if total_bytes else most
