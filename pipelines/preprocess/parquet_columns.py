"""Two columns of a Parquet file as a source, and the choice of two columns of any table."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.errors import UserError
from tt.model.storage import files
from tt.model.storage.listing import ListedFile
from tt.model.storage.paths import is_local
from tt.pipelines.preprocess import sources
from tt.pipelines.preprocess.sources import (
    FLAG_FAULTS,
    OTHER_STATUS,
    STATUS_FAULTS,
    ColumnsSource,
    columns_of,
)
from tt.pipelines.tables import parquet
from tt.pipelines.tables.columns import has_dictionary, is_bytes, is_text, type_of
from tt.pipelines.tables.damage import explain_damage, with_remedy
from tt.pipelines.tables.forward import cut_by_bytes, even_sizes, rows_at_once, rows_within
from tt.pipelines.texts.limits import TRANSLATED

_FOOTER_BYTES = 64 << 10  # The first read from the end of a file; most footers are shorter.
_FEW_ROWS = 1024  # This many rows are decoded at once even if the footer does not limit their size.
_FIRST_ROWS = 4096  # the rows to check before a run
_MOST_PARTS = 4  # Reading all 4 parts of a row group decodes it 2.5 times.
_BUFFER_BYTES = 1 << 20  # Column chunks are streamed, because a row group may be the entire file.


@dataclasses.dataclass(frozen=True)
class ParquetColumns(ColumnsSource):
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
        groups = self._groups
        most = _MOST_PARTS * max_pairs if is_local(self.path) else max_pairs
        if any(rows > most or size > max_bytes for rows, size in groups):
            return None
        parts = (part for group in groups for part in _part(*group, max_pairs=max_pairs))
        return _join_groups(parts, max_pairs=max_pairs, max_bytes=max_bytes)

    def read_all(self) -> Iterator[pa.Table]:
        """Read all rows."""
        return self.read_rows(first_row=0, rows=sum(rows for rows, _ in self._groups))

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Read a run of consecutive rows.

        Raises:
          UserError: The file is damaged.
        """
        with (
            with_remedy(),
            files.open_input(self.path) as handle,
            explain_damage(f"{self.path} is damaged"),
        ):
            _, _, footer = parquet.open_footer(handle, path=self.path)
            handle.seek(0)
            file = pq.ParquetFile(
                handle, metadata=footer.metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False
            )
            groups = _group_sizes(file, self.columns())
            limit, most = sources.SLICE_BYTES, sources.SLICE_PAIRS
            fitting = [rows_within(limit, rows=n, total_bytes=b, most=most) for n, b in groups]
            most = min(fitting, default=1)
            columns = [str(name) for name in self.columns()]
            judgments = [_judgment_columns(file.schema_arrow, column) for column in columns]
            sure = rows_at_once(  # This many rows are certain to be within the limit.
                file.metadata, most_rows=most, most_bytes=limit, few_rows=1, columns=columns
            )
            batches = parquet.iter_rows(
                file,
                path=self.path,
                first_row=first_row,
                rows=rows,
                batch_rows=max(sure, min(_FEW_ROWS, most)),
                columns=[*columns, *itertools.chain.from_iterable(judgments)],
            )
            if sure < most or has_dictionary(file.schema_arrow):
                batches = _as_slices(batches, most_rows=most, most_bytes=limit)
            for batch in batches:
                faults: dict[int, str] = {}
                for names in judgments:
                    faults |= _find_faults(*(batch.column(name) for name in names))
                yield columns_of(batch, columns, faults=faults)

    def _first_rows(self) -> Iterator[pa.Table]:
        rows = sum(rows for rows, _ in self._groups)  # A unit of back-translations may have none.
        return self.read_rows(first_row=0, rows=min(rows, _FIRST_ROWS))

    @functools.cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """The number of rows and the approximate bytes of text of each row group."""
        return _group_sizes(_read_footer(self.path, self.listed), self.columns())


def _as_slices(
    batches: Iterator[pa.RecordBatch], *, most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Regroup the rows of batches into batches that are as large as the limits allow."""
    for piece in cut_by_bytes(batches, most_bytes=most_bytes):
        if piece:
            table = pa.Table.from_batches(piece).unify_dictionaries().combine_chunks()
            yield from table.to_batches(max_chunksize=most_rows)


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


def _read_footer(path: str, listed: Sequence[ListedFile] = ()) -> pq.ParquetFile:
    """Open a file to read its footer. If its size is listed, one or two range requests suffice."""
    with with_remedy():
        if is_local(path) or not listed:
            with files.open_for_parts(path) as handle:
                return parquet.open_footer(handle, path=path)[2]
        size = listed[0].size
        tail = files.read_range(path, max(0, size - _FOOTER_BYTES), size)
        needed = int.from_bytes(tail[-8:-4], "little") + 8
        if len(tail) < needed <= size:
            tail = files.read_range(path, size - needed, size)
        return parquet.open_footer(io.BytesIO(tail), path=path)[2]


def _group_sizes(file: pq.ParquetFile, columns: Sequence[str | int]) -> list[tuple[int, int]]:
    """Return the number of rows and the approximate bytes of text of each row group."""
    wanted = [i for i, column in enumerate(file.schema) if column.path in columns]
    return [
        (group.num_rows, sum(group.column(i).total_uncompressed_size for i in wanted))
        for group in parquet.row_groups(file)
    ]


def _part(rows: int, size: int, *, max_pairs: int) -> Iterator[tuple[int, int]]:
    """Cut a row group into the fewest parts of similar size; yield (rows, bytes) of each part.

    An empty row group has no parts.

    >>> list(_part(10, 500, max_pairs=4)), list(_part(3, 70, max_pairs=4))
    ([(4, 200), (4, 200), (2, 100)], [(3, 70)])
    """
    parts = max(1, math.ceil(rows / max_pairs))
    for part in even_sizes(total=rows, most=max(1, math.ceil(rows / parts))):
        yield part, size * part // rows


def _join_groups(groups: Iterable[tuple[int, int]], *, max_pairs: int, max_bytes: int) -> list[int]:
    """Join neighboring (rows, bytes) groups into runs within the limits; return the rows of each.

    >>> _join_groups([(3, 30), (4, 40), (5, 50), (1, 999)], max_pairs=9, max_bytes=100)
    [7, 5, 1]
    """
    sizes: list[int] = []
    rows_left = bytes_left = 0
    for rows, size in groups:
        if rows <= rows_left and size <= bytes_left:
            sizes[-1] += rows
        else:
            sizes.append(rows)
            rows_left, bytes_left = max_pairs, max_bytes
        rows_left -= rows
        bytes_left -= size
    return sizes


def _judgment_columns(schema: pa.Schema, column: str) -> list[str]:
    """Return the status and flags columns of a column that `tt translate-batch` wrote.

    A translation may be on either side of a corpus. In back-translations, it is the source. Other
    programs also write columns such as "target_score" and "target_status", but with other values.
    """
    status, flags, *others = (f"{column}_{name}" for name in ("status", "flags", "score", "error"))
    if not {status, *others}.issubset(schema.names):
        return []
    return [status, flags] if flags in schema.names else [status]


def _find_faults(statuses: pa.Array | None = None, flags: pa.Array | None = None) -> dict[int, str]:
    """Return the faults of missing and flagged translations, by row."""
    faults = {}
    for row, found in enumerate([] if flags is None else flags.to_pylist()):
        if found:
            faults[row] = FLAG_FAULTS.get(found[0], OTHER_STATUS)
    for row, status in enumerate([] if statuses is None else statuses.to_pylist()):
        if status not in TRANSLATED:
            faults[row] = STATUS_FAULTS.get(status, OTHER_STATUS)
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
