"""Two columns of a Parquet file as a source."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from model.errors import UnsupportedFileError, UserError
from pipelines.corpora import rows as corpora_rows
from pipelines.corpora.rows import (
    FLAG_FAULTS,
    MALFORMED,
    STATUS_FAULTS,
    TRANSLATED,
    decode_columns,
)
from pipelines.corpora.source import (
    ColumnsSource,
    describe_source,
    even_sizes,
    listed_field,
    rows_within,
)
from pipelines.runners.formatting import megabytes
from pipelines.storage import files, parquet
from pipelines.storage.listing import ListedFile, is_pipe_or_device
from pipelines.storage.memory import cut_by_bytes, has_dictionary, rows_at_once
from pipelines.storage.parquet import cells_as_binary, is_text
from pipelines.storage.paths import is_local

_FOOTER_BYTES = 64 << 10  # of a file's end, read at once: most footers are shorter
_FEW_ROWS = 1024  # that are read at once, whatever the footer leaves open of their lengths
_FIRST_ROWS = 20  # among which a first pair is looked for
_MOST_PARTS = 4  # of a row group, whose parts then decode 2.5 rows for each of theirs
_BUFFER_BYTES = 1 << 20  # column chunks are streamed through it: a row group may be the file


@dataclasses.dataclass(frozen=True)
class ParquetColumns(ColumnsSource):
    """Two string columns of a Parquet file; a null counts as empty.

    A dotted column reaches into a struct: "translation.en" is the field "en" of "translation". A
    target that `tt translate-batch` wrote has status and flags beside it: a row that is not "ok",
    or has a flag, gets a fault that names why.
    """

    kind: ClassVar[str] = "parquet"

    path: str
    source_column: str
    target_column: str
    given_name: str = ""
    listed: tuple[ListedFile, ...] = listed_field()

    def text_bytes(self) -> int:
        """Returns about how many bytes of text there are."""
        return sum(size for _, size in self._groups)

    def describe(self) -> str:
        """Returns a line on what would be read."""
        pairs = sum(rows for rows, _ in self._groups)
        size = megabytes(self.file_identities()[0]["bytes"])
        return describe_source(self, where=self.path, size=size, pairs=pairs)

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int] | None:
        """Returns the rows of runs of row groups or of their parts; None where one is too large.

        Each part of a row group decodes all that lies before it. Of a local file that takes less
        than to have one worker cut the file, while the others wait, as long as the parts are few.
        """
        groups = self._groups
        most = _MOST_PARTS * max_pairs if is_local(self.path) else max_pairs
        if any(rows > most or size > max_bytes for rows, size in groups):
            return None
        parts = (part for group in groups for part in _part(*group, max_pairs=max_pairs))
        return _join_groups(parts, max_pairs=max_pairs, max_bytes=max_bytes)

    def read_all(self) -> Iterator[pa.Table]:
        """Reads all rows."""
        return self.read_rows(first_row=0, rows=sum(rows for rows, _ in self._groups))

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows.

        Raises:
          UserError: The file is damaged.
        """
        with _opened_parquet(self.path) as file:
            groups = _group_sizes(file, self.columns())
            limit, most = corpora_rows.SLICE_BYTES, corpora_rows.SLICE_PAIRS
            fitting = [rows_within(limit, rows=n, total_bytes=b, most=most) for n, b in groups]
            most = min(fitting, default=1)
            columns = [self.source_column, self.target_column]
            judged = [_judgements(file.schema_arrow, column) for column in columns]
            sure = rows_at_once(  # to be within the limit
                file.metadata, most_rows=most, most_bytes=limit, few_rows=1, columns=columns
            )
            batches = parquet.iter_rows(
                file,
                path=self.path,
                first_row=first_row,
                rows=rows,
                batch_rows=max(sure, min(_FEW_ROWS, most)),
                columns=[*columns, *itertools.chain.from_iterable(judged)],
            )
            if sure < most or has_dictionary(file.schema_arrow):
                batches = _as_slices(batches, most_rows=most, most_bytes=limit)
            for batch in batches:
                sides = (_column(batch, self.source_column), _column(batch, self.target_column))
                faults: dict[int, str] = {}
                for names in judged:
                    faults |= _find_faults(*(batch.column(name) for name in names))
                yield decode_columns(*map(cells_as_binary, sides), faults=faults)

    def _first_rows(self) -> Iterator[pa.Table]:
        return self.read_rows(first_row=0, rows=_FIRST_ROWS)

    @functools.cached_property
    def has_translations(self) -> bool:
        """Whether `tt translate-batch` wrote the targets."""
        with _read_footer(self.path, self.listed) as footer:
            return bool(_judgements(footer.schema_arrow, self.target_column))

    @functools.cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """Rows of each row group, and about how many bytes of text."""
        with _read_footer(self.path, self.listed) as footer:
            return _group_sizes(footer, self.columns())


def _as_slices(
    batches: Iterator[pa.RecordBatch], *, most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of batches, which may be far smaller than slices need be."""
    for piece, _ in cut_by_bytes(batches, most_bytes=most_bytes):
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
    """Opens the first pair of columns that a file has, and checks that they hold strings.

    `are_in_name` says that the user gave them in the corpus's name, behind its colons.

    Raises:
      UserError: The file is not Parquet, or has none of the pairs; then it is about the first.
    """
    with _read_footer(path, listed) as footer:
        schema = footer.schema_arrow
        there = (each for each in choices if _has(schema, each))
        columns = next(there, choices[0])
        check_columns(schema, columns, path=path, are_in_name=are_in_name)
        source = ParquetColumns(path, *columns, given_name=given_name, listed=listed)
        vars(source).update(  # the footer is not read again
            _groups=_group_sizes(footer, columns),
            has_translations=bool(_judgements(schema, columns[1])),
        )
        return source


@contextlib.contextmanager
def _opened_parquet(path: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; turn what Arrow raises on damaged data into the user's error."""
    if is_pipe_or_device(path):
        raise UserError(
            f"{path} is a pipe or a device, and Parquet is not read from front to back: write it "
            "to a file first"
        )
    with files.open_binary(path) as handle, _damage_told(path):
        file = pq.ParquetFile(handle, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        handle.seek(-8, os.SEEK_END)
        footer_bytes = int.from_bytes(handle.read(4), "little")
        parquet.check_is_not_encrypted(file, footer_bytes=footer_bytes, path=path)
        yield file


@contextlib.contextmanager
def _read_footer(path: str, listed: tuple[ListedFile, ...]) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file for its footer: of a size that is known by one or two ranges."""
    if is_local(path) or not listed:
        with _opened_parquet(path) as file:
            yield file
        return
    size = listed[0].size
    tail = files.read_range(path, max(0, size - _FOOTER_BYTES), size)
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < needed <= size:
        tail = files.read_range(path, size - needed, size)
    with _damage_told(path):
        file = pq.ParquetFile(pa.BufferReader(tail))
        parquet.check_is_not_encrypted(file, footer_bytes=needed - 8, path=path)
        yield file


@contextlib.contextmanager
def _damage_told(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if not files.is_damage(error):
            raise
        reason = " ".join(str(error).split())
        if files.is_unsupported(error):
            raise UserError(
                f"{path} cannot be read, since Arrow cannot do it: {reason}. "
                f"{UnsupportedFileError.remedy}"
            ) from error
        raise UserError(
            f"{path} is not a Parquet file, or is damaged: {reason}. Fetch it again"
        ) from error


def _group_sizes(file: pq.ParquetFile, columns: Sequence[str | int]) -> list[tuple[int, int]]:
    """Returns, of each row group, its rows and about how many bytes of text the columns have."""
    metadata = file.metadata
    wanted = [i for i, column in enumerate(file.schema) if column.path in columns]
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [
        (group.num_rows, sum(group.column(i).total_uncompressed_size for i in wanted))
        for group in groups
    ]


def _part(rows: int, size: int, *, max_pairs: int) -> Iterator[tuple[int, int]]:
    """Cuts a row group into as few parts of like size as fit; yields (rows, bytes) of each.

    Of an empty one there is none.

    >>> list(_part(10, 500, max_pairs=4)), list(_part(3, 70, max_pairs=4))
    ([(4, 200), (4, 200), (2, 100)], [(3, 70)])
    """
    parts = max(1, math.ceil(rows / max_pairs))
    for part in even_sizes(total=rows, most=max(1, math.ceil(rows / parts))):
        yield part, size * part // rows


def _join_groups(groups: Iterable[tuple[int, int]], *, max_pairs: int, max_bytes: int) -> list[int]:
    """Joins neighbouring row groups, of (rows, bytes), to runs; returns the rows of these.

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


def _judgements(schema: pa.Schema, column: str) -> list[str]:
    """Names the columns of status and flags beside another, if `tt translate-batch` wrote it.

    A translation may be either side of a corpus: it is the source of one of back-translations.
    """
    score, *judged = (f"{column}_{name}" for name in ("score", "status", "flags"))
    there = [name for name in judged if name in schema.names]
    return there if score in schema.names and there[:1] == judged[:1] else []


def _find_faults(statuses: pa.Array | None = None, flags: pa.Array | None = None) -> dict[int, str]:
    """Returns the faults of rows without a translation to learn from, by their position."""
    faults = {}
    for row, found in enumerate([] if flags is None else flags.to_pylist()):
        if found:
            faults[row] = FLAG_FAULTS.get(found[0], MALFORMED)
    for row, status in enumerate([] if statuses is None else statuses.to_pylist()):
        if status != TRANSLATED:
            faults[row] = STATUS_FAULTS.get(status, MALFORMED)
    return faults


def _path_in_schema(schema: pa.Schema, column: str) -> list[str]:
    return [column] if column in schema.names else column.split(".")


def _column(batch: pa.RecordBatch, column: str) -> pa.Array:
    first, *inner = _path_in_schema(batch.schema, column)
    values = batch.column(first)
    return pc.struct_field(values, inner) if inner else values


def check_columns(
    schema: pa.Schema, columns: tuple[str, str], *, path: str, are_in_name: bool = False
) -> None:
    """Checks that two columns of a file are there and hold strings.

    Args:
      schema: Schema of the file.
      columns: Columns of the source and of the target.
      path: The file.
      are_in_name: Whether they were given in the corpus's name, behind its colons.

    Raises:
      UserError: It is not so.
    """
    places = ("behind the first colon", "behind the second colon")
    if not are_in_name:
        places = ("as `source_column`", "as `target_column`")
    for place, column in zip(places, columns, strict=True):
        kind = _kind_of(schema, column)
        if kind is not None and is_text(kind):
            continue
        names = list(_text_names(schema))
        remedy = "name another file: this has no column of strings"
        if names:
            remedy = f"name one of {', '.join(names)} {place}"
        if kind is not None:
            raise UserError(
                f"column {column!r} of {path} must hold strings. Received: {kind} ({remedy})"
            )
        near = difflib.get_close_matches(column, names, n=1)
        meant = f"did you mean {near[0]}? Else " if near else ""
        raise UserError(f"{path} has no column {column!r}, or more than one: {meant}{remedy}")


def _has(schema: pa.Schema, columns: tuple[str, str]) -> bool:
    return all(_kind_of(schema, column) is not None for column in columns)


def _kind_of(schema: pa.Schema, column: str) -> pa.DataType | None:
    """Returns the type of a column, or None where there is not exactly one of that name."""
    kind: pa.DataType = pa.struct(list(schema))
    for name in _path_in_schema(schema, column):
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def _text_names(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type if is_text(inner.type))
        elif is_text(field.type):
            yield field.name
