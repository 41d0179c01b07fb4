"""Two columns of a Parquet file as a source, and the choice of two columns of any table."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.errors import UserError
from tt.model.storage.listing import ListedFile
from tt.model.storage.paths import is_local
from tt.pipelines.preprocess import sources
from tt.pipelines.tables.columns import is_bytes, is_text, type_of
from tt.pipelines.tables.damage import with_remedy
from tt.pipelines.tables.parquet import ForwardReader, open_footer, row_groups
from tt.pipelines.tables.pieces import even_sizes
from tt.pipelines.texts.flags import TRANSLATED

_FIRST_ROWS = 4096  # the rows to check before a run
_MOST_PARTS = 4  # Reading all 4 parts of a row group decodes it 2.5 times.


@dataclasses.dataclass(frozen=True)
class ParquetColumns(sources.ColumnsSource):
    """Two string columns of a Parquet file. Nulls count as empty texts.

    A dotted column is a field of a struct: "translation.en" is the field "en" of "translation". A
    translation by `tt translate-batch` has columns with its status and flags: if the status is not
    "ok" or there are flags, the row gets a fault.
    """

    kind: ClassVar[str] = "parquet"

    def text_bytes(self) -> int:
        """Return about how many bytes of text the columns contain."""
        return sum(size for _, size in self._groups)

    def describe(self) -> str:
        """Return a line about the source: kind, file, size and pairs."""
        pairs = sum(rows for rows, _ in self._groups)
        return self._describe(where=self.path, size=self.file_identities()[0]["bytes"], pairs=pairs)

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Return the number of rows of each read; None if a row group is too large to cut.

        A read is a run of row groups, or a part of a row group. Reading a part also decodes all
        earlier rows of its row group. For a few parts of a local file, this takes less time than a
        single worker that cuts the file while the others wait.
        """
        most = _MOST_PARTS * max_pairs if is_local(self.path) else max_pairs
        if any(rows > most or size > max_bytes for rows, size in self._groups):
            return None
        return _cut_groups(self._groups, max_pairs=max_pairs, max_bytes=max_bytes)

    def read_all(self) -> Iterator[pa.Table]:
        """Read all rows."""
        return self.read_rows(first_row=0, rows=sum(rows for rows, _ in self._groups))

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Read a run of consecutive rows.

        Raises:
          UserError: The file is damaged.
        """
        columns = [str(column) for column in self.columns()]
        with (
            with_remedy(),
            ForwardReader(
                path=self.path,
                end=first_row + rows,
                choose_columns=lambda schema: [*columns, *_judgment_columns(schema, columns)],
                is_bulk=True,
            ) as reader,
        ):
            judged = _judgment_columns(reader.file_schema, columns)
            most_bytes = sources.SLICE_BYTES
            for piece in reader.pieces(first_row=first_row, rows=rows, most_bytes=most_bytes):
                for batch in piece.to_batches(max_chunksize=sources.SLICE_PAIRS):
                    faults = _find_faults(batch.select(judged))
                    yield sources.columns_of(batch, columns, faults=faults)

    def _first_rows(self) -> Iterator[pa.Table]:
        rows = sum(rows for rows, _ in self._groups)  # A unit of back-translations may have none.
        return self.read_rows(first_row=0, rows=min(rows, _FIRST_ROWS))

    @functools.cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """The number of rows and the approximate bytes of text of each row group."""
        return _group_sizes(_read_footer(self.path, self.listed), self.columns())


def open_columns(
    path: str,
    choices: Sequence[tuple[str, str]],
    *,
    given_name: str = "",
    listed: tuple[ListedFile, ...] = (),
    are_in_name: bool = False,
) -> ParquetColumns:
    """Open the first pair of columns that a file has, and check that the columns contain strings.

    Args:
      path: The file.
      choices: (source column, target column) pairs, the preferred pair first.
      given_name: The name that the user gave the corpus, or "".
      listed: The listing entry of the file, if there is one.
      are_in_name: Whether the user gave the columns in the corpus string.

    Raises:
      UserError: The file is not Parquet, or it has none of the column pairs.
    """
    footer = _read_footer(path, listed)
    columns = choose_columns(footer.schema_arrow, choices, path=path, are_in_name=are_in_name)
    source = ParquetColumns(path, *columns, given_name=given_name, listed=listed)
    vars(source)["_groups"] = _group_sizes(footer, columns)  # avoids a second read of the footer
    return source


def _read_footer(path: str, listed: Sequence[ListedFile]) -> pq.ParquetFile:
    with with_remedy():
        return open_footer(path, size=listed[0].size if listed else None)[2]


def _group_sizes(file: pq.ParquetFile, columns: Sequence[str | int]) -> list[tuple[int, int]]:
    """Return the number of rows and the approximate bytes of text of each row group."""
    wanted = [i for i, column in enumerate(file.schema) if column.path in columns]
    return [
        (group.num_rows, sum(group.column(i).total_uncompressed_size for i in wanted))
        for group in row_groups(file)
    ]


def _cut_groups(groups: Iterable[tuple[int, int]], *, max_pairs: int, max_bytes: int) -> list[int]:
    """Cut row groups into the fewest parts of similar size, and join neighboring parts into runs.

    Args:
      groups: (rows, bytes) pairs.
      max_pairs: The maximum rows of a run.
      max_bytes: The maximum bytes of a run, unless it is a single part.

    Returns:
      The rows of each run.

    >>> _cut_groups([(3, 30), (4, 40), (5, 50), (1, 999)], max_pairs=9, max_bytes=100)
    [7, 5, 1]
    >>> _cut_groups([(10, 500), (0, 0), (2, 0)], max_pairs=4, max_bytes=1000)
    [4, 4, 4]
    """
    runs: list[int] = []
    rows_left = bytes_left = 0
    for rows, size in groups:
        parts = max(1, math.ceil(rows / max_pairs))
        for part in even_sizes(total=rows, most=max(1, math.ceil(rows / parts))):
            part_bytes = size * part // rows
            if part <= rows_left and part_bytes <= bytes_left:
                runs[-1] += part
            else:
                runs.append(part)
                rows_left, bytes_left = max_pairs, max_bytes
            rows_left -= part
            bytes_left -= part_bytes
    return runs


def _judgment_columns(schema: pa.Schema, columns: Iterable[str]) -> list[str]:
    """Return the flags and status columns of the columns that `tt translate-batch` wrote.

    A translation may be on either side of a corpus. In back-translations, it is the source. Other
    programs also write columns such as "target_score" and "target_status", but with other values.
    """
    names: list[str] = []
    for column in columns:
        flags, *needed = (f"{column}_{name}" for name in ("flags", "status", "score", "error"))
        if set(needed).issubset(schema.names):
            names += [flags, needed[0]] if flags in schema.names else needed[:1]
    return names


def _find_faults(judgments: pa.RecordBatch) -> dict[int, str]:
    """Return the faults of missing and flagged translations, by row."""
    faults = {}
    for name, column in zip(judgments.schema.names, judgments.columns, strict=True):
        for row, value in enumerate(column.to_pylist()):
            if name.endswith("_flags") and value:
                faults[row] = sources.FLAG_FAULTS.get(value[0], sources.OTHER_STATUS)
            elif name.endswith("_status") and value not in TRANSLATED:
                faults[row] = sources.STATUS_FAULTS.get(value, sources.OTHER_STATUS)
    return faults


def choose_columns(
    schema: pa.Schema,
    choices: Sequence[tuple[str, str]],
    *,
    path: str,
    are_in_name: bool = False,
) -> tuple[str, str]:
    """Return the first pair of columns that a file has, and check that they contain strings.

    Args:
      schema: Schema of the file.
      choices: (source column, target column) pairs, the preferred pair first.
      path: The file.
      are_in_name: Whether the user gave the columns in the corpus string.

    Raises:
      UserError: A column is missing or does not contain strings.
    """
    there = (each for each in choices if all(type_of(schema, name) for name in each))
    columns = next(there, choices[0])
    places = ("after the first colon", "after the second colon")
    if not are_in_name:
        places = ("as `source_column`", "as `target_column`")
    for place, column in zip(places, columns, strict=True):
        kind = type_of(schema, column)
        # In JSON, the type is null if the first texts are null.
        if kind is not None and (is_text(kind) or is_bytes(kind) or pa.types.is_null(kind)):
            continue
        names = list(_text_names(schema))
        remedy = "Choose another file: this file has no text columns"
        if names:
            remedy = f"Choose a text column {place}: {', '.join(names)}"
        if kind is not None:
            raise UserError(
                f"column {column!r} of {path} must contain strings. Received: {kind}. {remedy}"
            )
        near = difflib.get_close_matches(column, names, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise UserError(f"{path} has no column {column!r}, or has it twice. {meant}{remedy}")
    return columns


def _text_names(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type if is_text(inner.type))
        elif is_text(field.type):
            yield field.name
