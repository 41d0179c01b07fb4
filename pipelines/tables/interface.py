"""The interface of the readers of all formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from tt.pipelines.tables.formats import DEFAULTS, ReadOptions
from tt.pipelines.tables.ranges import RowRules


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """What to read from a file.

    Attributes:
      path: The path of the file, for messages.
      options: How to read the file.
      schema: The schema that an earlier pass over the file found; None to infer the schema.
      has_lines: Whether the rows of JSONL have the column of lines; see `JsonlRows`.
      columns: The keys of JSON whose texts to read, or the numbers of the cells of TSV, whose first
        line then is a row. By default, the rows have all columns.
      is_head: Whether the stream is only the beginning of the file.
      head: The beginning of the file if the stream is a range of rows; see `find_ranges`.
      line: The number of the first line of the stream in the file.
    """

    path: str
    options: ReadOptions = DEFAULTS
    schema: pa.Schema | None = None
    has_lines: bool = False
    columns: Sequence[str | int] = ()
    is_head: bool = False
    head: bytes | None = None
    line: int = 1


class Rows(Protocol):
    """The rows of an open file. Bad rows have faults; see `faults.py`."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows; an inferred schema is complete only after the last row."""

    @property
    def rules(self) -> RowRules | None:
        """How lines form rows; None if the rows are not lines."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
