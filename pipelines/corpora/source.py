"""A source: a corpus, or a file of one."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from pipelines.runners.formatting import megabytes
from pipelines.storage import listing
from pipelines.storage.listing import ListedFile


class Source(abc.ABC):
    """A corpus, or a file of one."""

    # Kind of the source, as the manifest says it: "text", "tsv", "jsonl", "parquet", ...
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
    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Returns the numbers of rows to read at a time, in order; None: only all at once.

        They are `max_pairs` at most, with about `max_bytes` of text at most.
        """

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows of a source that has `sizes`, in tables of `ROW_SCHEMA`."""
        raise TypeError(f"{self.name} is read all at once")

    def read_all(self) -> Iterator[pa.Table]:
        """Reads all rows of a source that has no `sizes`, in tables of `ROW_SCHEMA`."""
        raise TypeError(f"{self.name} is read in parts")

    def file_of(self, row: int) -> str:
        """Returns the file that a row stands in, for the list of rejected pairs."""
        return self.name

    def as_json(self) -> dict[str, Any]:
        """Returns what it is made of, as JSON takes it, with its kind."""
        itself: Any = self  # each kind is a dataclass
        fields = [field.name for field in dataclasses.fields(itself) if field.compare]
        return {"kind": self.kind, **{name: getattr(self, name) for name in fields}}


class FileSource(Source):
    """A source that is one file, or a pair of files, with its columns; a base of dataclasses."""

    given_name: str  # the name that the user gave the corpus, or ""
    listed: tuple[ListedFile, ...]  # its files as they were listed, or none if they were not

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

    def first_pair(self) -> list[str] | None:
        """Returns the first pair of texts, of which none is blank; None if none is near the start.

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
        """Yields tables, of which the first has the first rows."""
        return self.read_all()

    def file_identities(self) -> list[dict[str, Any]]:
        """Returns path, bytes and time of change of each file; asks for those not listed."""
        if self.listed and all(file.changed for file in self.listed):
            return [
                {"path": file.path, "bytes": file.size, "changed": file.changed}
                for file in self.listed
            ]
        return [listing.file_identity(path) for path in self.paths()]

    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the source from another."""
        return {
            "kind": self.kind,
            "name": self.name,
            "files": self.file_identities(),
            "columns": self.columns(),
        }

    def describe(self) -> str:
        """Returns a line on what would be read."""
        size = sum(file["bytes"] for file in self.file_identities())
        return describe_source(self, where=" + ".join(self.paths()), size=megabytes(size))


def listed_field() -> Any:
    """Makes the field `FileSource.listed`: it is no part of what a source is."""
    return dataclasses.field(default=(), compare=False, repr=False)


class ColumnsSource(FileSource):
    """A source that is two columns of one file; a base of dataclasses."""

    path: str
    source_column: str | int  # its number or name
    target_column: str | int  # likewise

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
