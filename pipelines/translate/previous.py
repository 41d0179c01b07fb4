"""Keep the translations of rows whose key and texts have not changed since the last run.

A new generation of a job with `key` first moves the old output files to `_tt/previous/`. Each
worker machine copies their keys, texts and added columns into a DuckDB database. A unit looks up
its rows in this database, keeps the translations that it finds, and translates the other rows.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.errors import UserError, first_line
from tt.model.folders import wait_for_lock
from tt.pipelines.storage.files import open_binary
from tt.pipelines.storage.listing import list_folder
from tt.pipelines.storage.paths import is_local
from tt.pipelines.tables.columns import (
    cells_as_binary,
    column_of,
    is_text,
    is_text_list,
    path_in,
)
from tt.pipelines.tables.damage import explain_damage
from tt.pipelines.texts.translating import SKIPPED, STATUS
from tt.pipelines.translate.job_folder import PREVIOUS_FOLDER
from tt.pipelines.translate.table import TableOptions, added_fields

_MEMORY = "1GB"  # DuckDB writes larger intermediate results to the disk
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
        with _OPENING:  # DuckDB sets up a database in the first thread that opens it
            opened = _open_database(self)
        if opened is None or not table.num_rows:
            return schema.empty_table()
        with opened.cursor() as database:  # threads must not share a connection
            unit = self._comparable(table, first=0)
            database.register("unit", unit)
            values = ", ".join(f"rows.{_quoted(field.name)}" for field in added)
            # If the earlier rows are in the order of the key, DuckDB reads only the range of these
            # rows, instead of all rows for each unit.
            key = _names("key", self.key)[0]
            in_range, params = "", {}
            if not pa.types.is_nested(unit.column(key).type):
                in_range = f"WHERE {key} BETWEEN $least AND $most"
                params = _least_and_most(unit.column(key))
            query = (
                f"SELECT DISTINCT ON (unit.{_ORDER}) unit.{_ORDER}, {values} FROM unit JOIN "
                f"(FROM rows {in_range}) AS rows ON {self._condition()} "
                f"ORDER BY unit.{_ORDER}, rows.{_ORDER}"
            )
            try:
                found: pa.Table = database.sql(query, params=params).to_arrow_table()
            except (duckdb.BinderException, duckdb.ConversionException) as error:
                raise UserError(
                    f"the columns of `key` or the texts have other types than in the earlier "
                    f"output in {self.output} ({first_line(error)}). Write the columns with the "
                    "earlier types, or choose another `output`"
                ) from error
        return found.cast(schema).filter(pa.array(chosen, pa.bool_()).take(found.column(_ORDER)))

    def _condition(self) -> str:
        """Return the SQL condition for equal keys and equal texts."""
        keys = [f"unit.{name} = rows.{name}" for name in _names("key", self.key)]
        texts = [
            f"unit.{name} IS NOT DISTINCT FROM rows.{name}" for name in _names("text", self._texts)
        ]
        names = [_quoted(self.table.name(field, STATUS)) for field in self.table.fields]
        # The status of a list column is a list, or null.
        statuses = [
            f"(CAST(rows.{name} AS VARCHAR) LIKE '%{SKIPPED}%') IS NOT TRUE" for name in names
        ]
        return " AND ".join([*keys, *texts, *statuses])

    @property
    def _texts(self) -> tuple[str, ...]:
        """The columns that must be equal in addition to the key."""
        return (*self.table.fields, *self.table.language_columns)

    def _comparable(self, table: pa.Table, *, first: int) -> pa.Table:
        """Return the keys and the texts of a table, and the positions of its rows.

        Strings become bytes, because they may be invalid UTF-8, which DuckDB refuses.
        """
        names = [*_names("key", self.key), *_names("text", self._texts), _ORDER]
        columns = [_as_bytes(column_of(table, name)) for name in (*self.key, *self._texts)]
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
                for batch in itertools.chain([pa.RecordBatch.from_pylist([], schema)], batches):
                    table = pa.Table.from_batches([batch])
                    rows = self._comparable(table, first=first)
                    for name in names:
                        rows = rows.append_column(name, table.column(name))
                    first += batch.num_rows
                    yield rows


def previous_files(output: str) -> list[str]:
    """Return the paths of the earlier output files that a job keeps, in order."""
    paths = list_folder(f"{output}/{PREVIOUS_FOLDER}")
    return sorted(path for path in paths if path.endswith(".parquet"))


@functools.lru_cache(maxsize=4)
def _open_database(options: PreviousRows) -> duckdb.DuckDBPyConnection | None:
    """Open the database, which this function makes if it is missing.

    Returns None if there is no earlier output. Processes on one machine share the database.
    """
    if not previous_files(options.output):
        return None
    folder = Path(tempfile.gettempdir(), f"tt-previous-{options.plan_digest}")
    if is_local(options.output):
        folder = Path(options.output, PREVIOUS_FOLDER)
    folder.mkdir(exist_ok=True)
    path = folder / f"rows-{options.plan_digest}.duckdb"
    with wait_for_lock(folder / "rows.lock"):  # another process may be making the database
        if not path.exists():
            _make_database(options, path)
    return duckdb.connect(str(path), read_only=True, config={"threads": 1})


def _make_database(options: PreviousRows, path: Path) -> None:
    # If this process is killed, the job deletes the file at its end, unless the output is remote.
    temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    broken: list[UserError] = []  # DuckDB replaces errors of the batches with errors of its own

    def batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        try:
            for table in tables:
                yield from table.to_batches()
        except UserError as error:
            broken.append(error)
            raise

    tables = options._batches()
    first = next(tables)
    reader = pa.RecordBatchReader.from_batches(
        first.schema, batches(itertools.chain([first], tables))
    )
    try:
        with duckdb.connect(str(temporary), config={"memory_limit": _MEMORY}) as database:
            database.register("earlier", reader)
            database.execute("CREATE TABLE rows AS SELECT * FROM earlier")
    except duckdb.Error as error:
        if broken:
            raise broken[0] from error
        raise UserError(
            f"the columns `key` {', '.join(options.key)} cannot be compared: "
            f"{first_line(error)}. Choose columns of numbers, strings or dates"
        ) from error
    temporary.replace(path)


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
    kept = table.filter(is_known)
    kept = kept.select(translated.schema.names[: -len(options.added())])
    for field in translated.schema.names[-len(options.added()) :]:
        kept = kept.append_column(translated.schema.field(field), known.column(field))
    kept = kept.cast(translated.schema)
    places = pa.concat_arrays(
        [pc.indices_nonzero(is_known), pc.indices_nonzero(pc.invert(is_known))]
    )
    return pa.concat_tables([kept, translated]).take(pc.sort_indices(places)).combine_chunks()


def unknown_rows(table: pa.Table, *, known: pa.Table) -> pa.Table:
    """Return the rows of a table that are not known."""
    return table.filter(pc.invert(_mask(known, rows=table.num_rows)))


def count_null_keys(table: pa.Table, *, key: tuple[str, ...]) -> int:
    """Count the rows whose key contains a null value."""
    is_null = [pc.is_null(column_of(table, name)) for name in key]
    return int(pc.sum(functools.reduce(pc.or_, is_null)).as_py() or 0)


def _least_and_most(column: pa.ChunkedArray) -> dict[str, Any]:
    """Return the least and the greatest value of a key; both are None if all values are null."""
    values = pc.sort_indices(column)  # nulls are at the end
    count = len(column) - column.null_count
    if not count:
        return {"least": None, "most": None}
    least, most = (column[values[place].as_py()].as_py() for place in (0, count - 1))
    return {"least": least, "most": most}


def _mask(known: pa.Table, *, rows: int) -> pa.Array:
    """Return an array of booleans that are true for the known rows."""
    places = known.column(_ORDER).combine_chunks()
    return pc.is_in(pa.array(range(rows), pa.int64()), value_set=places)


def _as_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if is_text(column.type):
        return cells_as_binary(column)
    if is_text_list(column.type):
        plain = pc.cast(column, pa.list_(pa.large_string()))
        return pc.cast(plain, pa.list_(pa.large_binary()))
    return column


def _names(kind: str, columns: tuple[str, ...]) -> list[str]:
    return [f"tt_{kind}_{index}" for index in range(len(columns))]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
