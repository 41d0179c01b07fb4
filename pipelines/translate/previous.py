"""Keep the translations of rows whose key and texts have not changed since the last run.

A new generation of a job with `key` first moves the old output files to `_tt/previous/`. Each
worker machine copies their keys, texts and added columns into an Arrow file, and sorts the hashes
of keys and texts. A unit looks up its hashes, keeps the translations of equal rows, and translates
the other rows. Only the rows that it finds are read, so keys may be in any order.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.errors import UserError, first_line
from tt.model.folders import atomic_folder, default_cache, delete_stale, wait_for_lock
from tt.model.storage.files import open_binary
from tt.model.storage.listing import list_folder
from tt.model.storage.paths import is_local
from tt.pipelines.tables.columns import (
    cells_as_binary,
    column_of,
    is_text,
    is_text_list,
    map_type,
    path_in,
)
from tt.pipelines.tables.damage import explain_damage
from tt.pipelines.texts.results import SKIPPED, STATUS
from tt.pipelines.translate.job_folder import PREVIOUS_FOLDER
from tt.pipelines.translate.table import TableOptions, added_fields

_ROWS, _HASHES, _PLACES = "rows.arrow", "hashes.npy", "places.npy"
_OPENING = threading.Lock()
_ORDER = "tt_order"  # a column with the position of a row


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreviousRows:
    """The earlier output of a job, and how to compare its rows with rows of the input.

    Attributes:
      output: The output folder, absolute or with its scheme.
      key: The columns that identify a row.
      table: The options of the translated columns.
      plan_digest: The digest of this run's plan, which names the database.
    """

    output: str
    key: tuple[str, ...]
    table: TableOptions
    plan_digest: str

    def find(self, table: pa.Table, *, chosen: Sequence[bool]) -> pa.Table:
        """Return the rows of a table whose translations are known.

        A row is known if the earlier output has a translated row with the same key and the same
        texts. A key with a null value matches no row. If several earlier rows match, the first one
        counts.

        Args:
          table: Rows of the input.
          chosen: Whether to translate each row; other rows are not known.

        Returns:
          A table with the column "tt_order", which contains the indices of the known rows in
          ascending order, followed by the added columns of these rows.

        Raises:
          UserError: An earlier output file is damaged, or has columns of other types.
        """
        added = added_fields(table.schema, options=self.table)
        schema = pa.schema([pa.field(_ORDER, pa.int64()), *added])
        with _OPENING:  # the threads of a process share the rows
            earlier = _open_rows(self)
        if earlier is None or not table.num_rows:
            return schema.empty_table()
        with earlier.database.cursor() as database:  # threads must not share a connection
            unit = self._comparable(table, first=0)
            self._check_types(unit.schema, types=earlier.types, database=database)
            values = ", ".join(f"rows.{_quoted(field.name)}" for field in added)
            hashes = self._hash(unit, types=earlier.types, database=database)["hash"]
            database.register("rows", earlier.take(hashes))
            found: pa.Table = database.sql(
                f"SELECT DISTINCT ON (unit.{_ORDER}) unit.{_ORDER}, {values} FROM unit "
                f"JOIN rows ON {self._condition()} ORDER BY unit.{_ORDER}, rows.{_ORDER}"
            ).to_arrow_table()
        return found.cast(schema).filter(pa.array(chosen, pa.bool_()).take(found.column(_ORDER)))

    def delete(self) -> None:
        """Delete the copy on this machine unless it is in the output folder; the last step."""
        _open_rows.cache_clear()
        if not is_local(self.output):
            shutil.rmtree(self._copy, ignore_errors=True)
            self._copy.with_suffix(".lock").unlink(missing_ok=True)

    @property
    def _copy(self) -> Path:
        """The folder with the copy of the earlier rows on this machine."""
        content = f"{self.output} {self.plan_digest}"
        name = f"rows-{hashlib.blake2b(content.encode(), digest_size=16).hexdigest()}"
        if is_local(self.output):
            return Path(self.output, PREVIOUS_FOLDER, name)
        return default_cache() / "previous" / name

    def _check_types(
        self, schema: pa.Schema, *, types: Sequence[str], database: duckdb.DuckDBPyConnection
    ) -> None:
        """Check that DuckDB can compare the columns of a unit with the earlier columns."""
        for name, kind, own in zip(
            (*self.key, *self._texts), types, _types_of(self, schema, database), strict=True
        ):
            pairs = ((kind, own), (own, kind))
            tests = [f"can_cast_implicitly(NULL::{a}, NULL::{b})" for a, b in pairs]
            if kind != own and not any(database.sql(f"SELECT {', '.join(tests)}").fetchall()[0]):
                raise UserError(
                    f"the columns of `key` or the texts have other types than in the earlier "
                    f"output in {self.output} ({name!r}: {own} and {kind}). Write the columns with "
                    "the earlier types, or choose another `output`"
                )

    def _hash(
        self,
        rows: pa.Table,
        *,
        types: Sequence[str],
        database: duckdb.DuckDBPyConnection,
        where: str = "TRUE",
    ) -> dict[str, np.ndarray]:
        """Return the "hash" of the key and the texts of rows, and their "place".

        Args:
          rows: The result of `_comparable`, which becomes the table "unit" of the database.
          types: DuckDB's types of the earlier columns, because equal values of different types may
            have different hashes.
          database: A connection.
          where: The condition for these rows.
        """
        database.register("unit", rows)
        names = [*_names("key", self.key), *_names("text", self._texts)]
        values = [f"TRY_CAST({n} AS {kind})" for n, kind in zip(names, types, strict=True)]
        query = f"SELECT hash({', '.join(values)}) AS hash, {_ORDER} AS place FROM unit"
        return dict(database.sql(f"{query} WHERE {where}").fetchnumpy())

    def _condition(self) -> str:
        """Return the SQL condition for equal keys and equal texts."""
        keys = [f"unit.{name} = rows.{name}" for name in _names("key", self.key)]
        texts = [
            f"unit.{name} IS NOT DISTINCT FROM rows.{name}" for name in _names("text", self._texts)
        ]
        return " AND ".join([*keys, *texts])

    @property
    def _texts(self) -> tuple[str, ...]:
        """The columns that must be equal in addition to the key."""
        return (*self.table.fields, *self.table.language_columns)

    def _comparable(self, table: pa.Table, *, first: int) -> pa.Table:
        """Return the keys and the texts of a table, and the positions of its rows.

        Strings become bytes, because they may be invalid UTF-8, which DuckDB refuses.
        """
        names = [*_names("key", self.key), *_names("text", self._texts), _ORDER]
        columns = [_as_comparable(column_of(table, name)) for name in (*self.key, *self._texts)]
        order = pa.array(range(first, first + table.num_rows), pa.int64())
        return pa.table([*columns, order], names=names)

    def _batches(self) -> Iterator[pa.Table]:
        """Yield the keys, texts and added columns of the earlier output.

        Raises:
          BadFileError: An output file is damaged.
        """
        names = [self.table.name(*each) for each in self.table.added()]
        first = 0
        for path in previous_files(self.output):
            with (
                explain_damage(f"{path} is damaged, so its translations cannot be kept"),
                open_binary(path) as handle,
            ):
                file = pq.ParquetFile(handle)
                schema = file.schema_arrow
                top = {path_in(schema, name)[0] for name in (*self.key, *self._texts)}
                batches = file.iter_batches(columns=[*top, *names], use_threads=False)
                tables = (pa.Table.from_batches([batch]) for batch in batches)
                for table in itertools.chain([schema.empty_table()], tables):
                    rows = self._comparable(table, first=first)
                    for name in names:
                        rows = rows.append_column(name, table.column(name))
                    first += table.num_rows
                    yield rows


def previous_files(output: str) -> list[str]:
    """Return the paths of the earlier output files that a job keeps, in order."""
    paths = list_folder(f"{output}/{PREVIOUS_FOLDER}")
    return sorted(path for path in paths if path.endswith(".parquet"))


class _Earlier(NamedTuple):
    """The copy of the earlier rows, which the operating system maps into memory."""

    schema: pa.Schema
    batches: list[pa.RecordBatch]
    firsts: np.ndarray  # the place of the first row of each batch
    hashes: np.ndarray  # of the rows to keep, sorted
    places: np.ndarray  # of these rows
    types: list[str]  # DuckDB's types of the keys and the texts
    database: duckdb.DuckDBPyConnection  # an empty database that compares rows

    def take(self, hashes: np.ndarray) -> pa.Table:
        """Return the first row with each of the hashes, in the order of the rows."""
        indices = np.searchsorted(self.hashes, hashes)
        indices = indices[indices < len(self.hashes)]
        is_found = np.isin(self.hashes[indices], hashes)
        places = np.unique(self.places[indices[is_found]])
        pieces = np.split(places, np.searchsorted(places, self.firsts))[1:]
        rows = zip(self.batches, pieces, self.firsts, strict=True)
        taken = (batch.take(pa.array(piece - first)) for batch, piece, first in rows if len(piece))
        return pa.Table.from_batches(taken, self.schema)


@functools.lru_cache(maxsize=1)
def _open_rows(options: PreviousRows) -> _Earlier | None:
    """Open the copy of the earlier rows, which this function makes if it is missing.

    Returns None if there is no earlier output. Processes on one machine share the copy.
    """
    if not previous_files(options.output):
        return None
    folder = options._copy
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with wait_for_lock(folder.with_suffix(".lock")):  # another process may be making the copy
        if not folder.exists():
            delete_stale(folder.parent, "rows-*")  # of killed jobs with remote output
            with atomic_folder(folder, is_shared=True) as temporary:
                _copy_rows(options, temporary)
    reader = pa.ipc.open_file(pa.memory_map(str(folder / _ROWS)))
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    database = duckdb.connect(config={"threads": 1})
    return _Earlier(
        reader.schema,
        batches,
        firsts=np.cumsum([0, *(batch.num_rows for batch in batches)])[:-1],
        hashes=np.load(folder / _HASHES, mmap_mode="r"),
        places=np.load(folder / _PLACES, mmap_mode="r"),
        types=_types_of(options, reader.schema, database),
        database=database,
    )


def _types_of(
    options: PreviousRows, schema: pa.Schema, database: duckdb.DuckDBPyConnection
) -> list[str]:
    """Return DuckDB's types of the keys and the texts."""
    names = [*_names("key", options.key), *_names("text", options._texts)]
    return [str(kind) for kind in database.from_arrow(schema.empty_table().select(names)).types]


def _copy_rows(options: PreviousRows, folder: Path) -> None:
    """Write the rows of the earlier output and the hashes of the rows to keep into a folder.

    Sorting needs about 30 bytes of memory per row.
    """
    keys = [f"{name} IS NOT NULL" for name in _names("key", options.key)]
    # The status of a list column is a list, or null.
    statuses = [
        f"(CAST({_quoted(options.table.name(field, STATUS))} AS VARCHAR) LIKE '%{SKIPPED}%') "
        "IS NOT TRUE"
        for field in options.table.fields
    ]
    tables = options._batches()
    first = next(tables)
    hashes, places = list[np.ndarray](), list[np.ndarray]()
    try:
        with (
            duckdb.connect(config={"threads": 1}) as database,
            pa.ipc.new_file(str(folder / _ROWS), first.schema) as writer,
        ):
            types = _types_of(options, first.schema, database)
            for table in itertools.chain([first], tables):
                rows = table.cast(first.schema)
                writer.write_table(rows)
                where = " AND ".join([*keys, *statuses])
                found = options._hash(rows, types=types, database=database, where=where)
                hashes.append(found["hash"])
                places.append(found["place"])
    except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UserError(
            f"the columns `key` {', '.join(options.key)} cannot be compared: "
            f"{first_line(error)}. Choose columns of numbers, strings or dates"
        ) from error
    every_hash, every_place = np.concatenate(hashes), np.concatenate(places)
    order = np.argsort(every_hash, kind="stable")  # the first of several equal rows counts
    np.save(folder / _HASHES, every_hash[order])
    np.save(folder / _PLACES, every_place[order])


def merge_rows(
    table: pa.Table, *, known: pa.Table, translated: pa.Table, options: TableOptions
) -> pa.Table:
    """Return a translated table in the order of its input.

    Args:
      table: The rows of the input.
      known: The known rows; see `PreviousRows.find`.
      translated: The other rows, in their order, with the added columns.
      options: The options of the translated columns.
    """
    is_known = _mask(known, rows=table.num_rows)
    kept = _take(table, pc.indices_nonzero(is_known))
    kept = kept.select(translated.schema.names[: -len(options.added())])
    for field in translated.schema.names[-len(options.added()) :]:
        kept = kept.append_column(translated.schema.field(field), known.column(field))
    kept = kept.cast(translated.schema)
    places = pa.concat_arrays(
        [pc.indices_nonzero(is_known), pc.indices_nonzero(pc.invert(is_known))]
    )
    return _take(pa.concat_tables([kept, translated]), pc.sort_indices(places)).combine_chunks()


def unknown_rows(table: pa.Table, *, known: pa.Table) -> pa.Table:
    """Return the rows of a table that are not known."""
    return _take(table, pc.indices_nonzero(pc.invert(_mask(known, rows=table.num_rows))))


def _take(table: pa.Table, places: pa.Array) -> pa.Table:
    """Return rows of a table, which may contain views, for which Arrow has no kernel."""
    types = [map_type(kind, _without_view) for kind in table.schema.types]
    if types == table.schema.types:
        return table.take(places)
    fields = [field.with_type(kind) for field, kind in zip(table.schema, types, strict=True)]
    return table.cast(pa.schema(fields, table.schema.metadata)).take(places).cast(table.schema)


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def count_null_keys(table: pa.Table, *, key: tuple[str, ...]) -> int:
    """Count the rows whose key contains a null value."""
    is_null = [pc.is_null(column_of(table, name)) for name in key]
    return int(pc.sum(functools.reduce(pc.or_, is_null)).as_py() or 0)


def _mask(known: pa.Table, *, rows: int) -> pa.Array:
    """Return an array of booleans that are true for the known rows."""
    places = known.column(_ORDER).combine_chunks()
    return pc.is_in(pa.array(range(rows), pa.int64()), value_set=places)


def _as_comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of a key or of texts in the form in which Parquet returns it."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _as_comparable(pc.cast(column, kind.storage_type))
    if pa.types.is_timestamp(kind):  # DuckDB's timestamps with a time zone have a smaller range
        return pc.cast(column, pa.timestamp("ms" if kind.unit == "s" else kind.unit))
    if is_text(kind):
        return cells_as_binary(column)
    if pa.types.is_binary_view(kind):
        return pc.cast(column, pa.large_binary())
    if is_text_list(kind):
        plain = pc.cast(column, pa.list_(pa.large_string()))
        return pc.cast(plain, pa.list_(pa.large_binary()))
    return column


def _names(kind: str, columns: tuple[str, ...]) -> list[str]:
    return [f"tt_{kind}_{index}" for index in range(len(columns))]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
