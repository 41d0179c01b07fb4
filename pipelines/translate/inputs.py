"""Check the input files of a job and their columns before the job writes anything."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from tt.model.errors import BadFileError, ColumnsError, UserError, counted
from tt.model.json_files import first_few
from tt.model.storage import listing, paths
from tt.model.storage.files import AT_ONCE
from tt.pipelines.tables.columns import (
    is_bytes,
    is_comparable,
    is_text,
    is_text_list,
    path_in,
    type_of,
)
from tt.pipelines.tables.conditions import ConditionError, parse_condition
from tt.pipelines.tables.finding import (
    FoundFile,
    count_endings,
    describe_unread,
    with_identity,
)
from tt.pipelines.tables.formats import PARQUET, ReadOptions
from tt.pipelines.tables.jsonl import is_json_text
from tt.pipelines.tables.lakehouse import OutputTable, TableFile
from tt.pipelines.tables.parquet import Contents
from tt.pipelines.tables.partitions import (
    PartitionValue,
    read_all_partitions,
    schema_with_partitions,
)
from tt.pipelines.tables.reading import inspect_file
from tt.pipelines.tables.writing import check_schema
from tt.pipelines.texts.results import ROW_FLAGS
from tt.pipelines.translate.column_types import add_types
from tt.pipelines.translate.lakehouse import cast_schema, find_input, fit_contents, fit_to_table
from tt.pipelines.translate.manifest import SkippedFile
from tt.pipelines.translate.options import SKIP, TranslateOptions
from tt.pipelines.translate.pairs import choose_texts
from tt.pipelines.translate.places import check_names
from tt.pipelines.translate.plan import InputFile, fitting_rows
from tt.pipelines.translate.table import TableOptions, added_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundInput:
    """The checked input of a job.

    Attributes:
      files: The files to translate. Their rows are limited to the job's `limit`.
      skipped: The bad files, with the reasons.
      text_columns: The names of the columns to translate.
      first_rows: The first rows of the first file with rows; None if that file is Parquet.
      table: The table to which the job adds its output files; None for a folder.
      unread_files: The number of files in folders that are no tables, by ending.
      facts: Facts for the plan that do not affect the output: the IDs of the Delta Lake and Iceberg
        tables of the input, and the types of each column that the output files keep.
      notices: Warnings for the user, one line each.
    """

    files: list[InputFile]
    skipped: list[SkippedFile]
    text_columns: tuple[str, ...]
    first_rows: pa.Table | None = None
    table: OutputTable | None = None
    unread_files: Mapping[str, int] = dataclasses.field(default_factory=dict)
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notices: tuple[str, ...] = ()


def inspect_input(
    options: TranslateOptions,
    *,
    has_n_best: bool = False,
    output: OutputTable | None = None,
    listed: Sequence[FoundFile] | None = None,
    unread: Sequence[str] = (),
) -> FoundInput:
    """Find the input files, and check the footer or the head of each file.

    Args:
      options: The options of the job.
      has_n_best: Whether the output has a column with several hypotheses.
      output: The table to which the job adds its output files; None for a folder.
      listed: The input files, if they have already been found.
      unread: The other files in the input folders, if they have already been found.

    Raises:
      UserError: A file is missing, is bad or lacks a column; file names collide; the text column is
        ambiguous; or the output format cannot store a column.
    """
    if options.where is not None:
        parse_condition(options.where)
    notices: list[str] = []
    found, unread = listed, list(unread)
    if found is None:
        found = find_input(options.input, options=options.read, warn=notices.append, unread=unread)
    unread_files = count_endings(unread)
    folder = paths.normalize_path(options.output) if output is None else output.location
    check_names(found, output=folder, suffix=options.suffix)
    kept: list[InputFile] = []
    first: Contents | None = None  # of the first file with rows
    skipped: list[SkippedFile] = []
    table = TableOptions.of(options, has_n_best=has_n_best)
    every_partition = read_all_partitions([file.relative_path for file in found])
    text_columns = options.text_columns
    types: dict[str, list[str]] = {}
    int96: dict[str, None] = {}  # the names of columns, in order
    left = options.limit  # rows that remain for other files; None if unknown or unlimited
    inspected = _inspect_files(found, options=options.read)
    for (file, contents), partitions in zip(inspected, every_partition, strict=True):
        try:
            if isinstance(contents, BadFileError):
                raise contents
            fitted = fit_contents(contents, file)
            columns = check_table(
                fitted,
                path=file.path,
                table=table,
                file_format=options.format,
                key=options.key,
                partitions=partitions,
                is_corpus=options.corpus is not None,
                keeps_lines=options.keeps_lines(file.path),
            )
        except BadFileError as error:
            if options.on_bad_file != SKIP:
                raise with_fix(error, has_others=len(found) > 1) from error
            rows = None if isinstance(contents, BadFileError) else contents.rows
            rows = rows if left is None else rows and min(rows, left)
            skipped.append(
                SkippedFile(relative_path=file.relative_path, reason=str(error), rows=rows)
            )
            continue
        if kept and columns != text_columns:
            raise UserError(
                f"all input files must have the same column to translate, but it is "
                f"{text_columns[0]!r} in {kept[0].path} and {columns[0]!r} in {file.path}. "
                "Translate these files into separate folders"
            )
        text_columns = columns
        if output is not None:
            added = added_fields(fitted.schema, options=dataclasses.replace(table, fields=columns))
            output = fit_to_table(
                output,
                schema=fitted.schema,
                added=added,
                file=file,
                is_parquet=contents.has_random_access,
            )
        elif options.corpus is None:
            add_types(types, fitted.schema, keeps=table.choice.keeps)
        if options.corpus is None:
            int96 |= dict.fromkeys(filter(table.choice.keeps, contents.int96))
        planned = with_contents(
            InputFile(
                path=file.path,
                relative_path=file.relative_path,
                size=contents.size,
                changed=contents.changed,
                written=_time_of(file) if contents.has_random_access else None,
                partitions=_used_partitions(partitions, table=table),
                table_partitions=file.partitions if isinstance(file, TableFile) else (),
                as_schema=cast_schema(contents, file, table=output, schema=fitted.schema),
            ),
            contents,
        )
        if left == 0:
            continue
        if left is not None and planned.rows is not None:
            planned = dataclasses.replace(planned, rows=min(left, planned.rows))
            left -= planned.rows or 0
        elif options.limit is not None:  # the job itself counts the rows
            planned = dataclasses.replace(planned, rows=None)
            left = None
        kept.append(planned)
        if first is None and planned.rows != 0:
            first = contents
    tables = sorted({file.table_id for file in found if isinstance(file, TableFile)})
    if not kept:
        raise UserError(
            f"no input file can be translated, {counted(len(skipped), 'file')} skipped. First "
            f"reason: {skipped[0].reason}"
        )
    return FoundInput(
        files=kept,
        skipped=skipped,
        text_columns=text_columns,
        first_rows=first and first.head,
        table=output,
        facts={"column_types": types, "tables": tables},
        unread_files=unread_files,
        notices=(*notices, *_describe_int96(list(int96)), *describe_unread(unread_files)),
    )


def _describe_int96(columns: list[str]) -> list[str]:
    if not columns:
        return []
    names = ", ".join(first_few([repr(name) for name in columns], noun="columns"))
    return [f"tt reads INT96 timestamps as microseconds in UTC: {names}"]


def _inspect_files(
    files: Sequence[FoundFile], *, options: ReadOptions
) -> Iterator[tuple[FoundFile, Contents | BadFileError]]:
    """Yield files with their contents; only a few file heads are in memory at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, len(files), AT_ONCE):
            some = files[start : start + AT_ONCE]
            inspect = functools.partial(_try_to_inspect, options=options)
            yield from zip(some, pool.map(inspect, some), strict=True)


def _try_to_inspect(file: FoundFile, *, options: ReadOptions) -> Contents | BadFileError:
    if isinstance(file, TableFile) and file.is_empty:
        return Contents(schema=pa.schema([]), rows=0, size=0, has_random_access=True)
    try:
        return inspect_file(file.path, options=options)
    except BadFileError as error:
        return error
    except UserError as error:
        if isinstance(file, TableFile) and not listing.exists(file.path):
            raise UserError(
                f"{file.address} has lost its data file {file.path}. The version may have been "
                "cleaned up. Choose a newer version"
            ) from error
        raise


def _time_of(file: FoundFile) -> float | None:
    """Return the modification time of a Parquet file; None if it is unknown or not needed."""
    if isinstance(file, TableFile):
        return None
    return with_identity(file).changed or None


def _used_partitions(
    partitions: Mapping[str, PartitionValue], *, table: TableOptions
) -> tuple[tuple[str, PartitionValue], ...]:
    """Return the names and values of the partition columns that the options use."""
    used = set[str | None]() if table.where is None else set(parse_condition(table.where).names)
    names = {name.lower() for name in (*used, *table.language_columns) if name is not None}
    return tuple((name, value) for name, value in partitions.items() if name.lower() in names)


def with_contents(file: InputFile, contents: Contents) -> InputFile:
    """Add the number of rows, the schema and the checksum of its contents to a planned file."""
    rows = contents.rows
    return dataclasses.replace(
        file,
        rows=rows,
        footer_checksum=contents.checksum,
        schema=None if contents.has_random_access else contents.schema,
        group_rows=contents.group_rows,
        fitting_rows=fitting_rows(rows=rows or 0, content_bytes=contents.content_bytes),
    )


@contextlib.contextmanager
def unchanged_file(file: InputFile) -> Iterator[None]:
    """Run a block that reads a planned file, then check that the file has not changed."""
    identity = {"path": file.path, "bytes": file.size, "changed": file.changed}
    with listing.unchanged([] if file.changed is None else [identity]):
        yield


class _ColumnError(BadFileError):
    """A file lacks a column, or the column does not contain texts."""

    remedy = "Set `text_columns`"


class _KeyColumnError(BadFileError):
    """A file lacks a column of the key."""

    remedy = "Set `key`"


def with_fix(error: BadFileError, *, has_others: bool = True) -> UserError:
    """Return the error for a bad file that stops the job, with the possible fixes.

    Args:
      error: The problem of the file.
      has_others: Whether the job has other files, so that skipping this one makes sense.
    """
    fix = "Check the file" if error.remedy == BadFileError.remedy else error.remedy
    skip = ", or skip such files with `on_bad_file=skip`" if has_others else ""
    return UserError(f"{error}. {fix}{skip}")


def check_table(
    contents: Contents,
    *,
    path: str,
    table: TableOptions,
    file_format: str,
    key: tuple[str, ...] = (),
    partitions: Mapping[str, PartitionValue],
    is_corpus: bool = False,
    keeps_lines: bool = False,
) -> tuple[str, ...]:
    """Return the columns of a file to translate, and check that its translation can be written.

    Args:
      contents: The schema and size of the file.
      path: The path of the file, for messages.
      table: The options of the translated columns.
      file_format: The output format.
      key: The columns that identify a row.
      partitions: The values of the file's partition columns.
      is_corpus: Whether the output consists of pairs of a text and its translation.
      keeps_lines: Whether the output contains the lines of the file, with added keys.

    Raises:
      BadFileError: All rows are bad, or the file lacks a column, or the column does not contain
        texts.
      ColumnsError: The user named no column, and several columns contain texts; the file already
        has an added column; the condition does not match the types of the columns; or the output
        format cannot store a column.
    """
    if contents.problem:
        raise BadFileError(
            f"{path} has no row that tt can read. The first one is in {contents.problem}"
        )
    schema, seen = contents.schema, schema_with_partitions(contents.schema, partitions)
    named = table.fields
    is_partial = not contents.has_all_columns
    wanted = [*named, *key, *table.language_columns]
    if named and is_partial and not all(type_of(seen, name) for name in wanted):
        return named  # the missing columns may occur after the head
    if contents.rows is not None and not (contents.rows or schema.names):
        raise BadFileError(f"{path} is empty, so it has no columns")
    columns = _find_text_columns(schema, seen=seen, table=table, path=path, key=key)
    _check_key(schema, key=key, columns=columns, table=table, path=path)
    table = dataclasses.replace(table, fields=columns)
    if is_corpus:
        table = dataclasses.replace(table, choice=choose_texts(columns))
        if is_text_list(type_of(schema, columns[0])):
            raise _ColumnError(
                f"pairs need a column of strings; {columns[0]!r} of {path} has lists"
            )
    elif not is_partial:
        table.choice.check(schema.names, path=path)
    _check_condition(seen, where=table.where, path=path, is_partial=is_partial)
    kept = [field for field in schema if table.choice.keeps(field.name) and not keeps_lines]
    taken = {*(field.name for field in kept), *partitions}
    added = added_fields(schema, options=table)
    for field in added:
        if field.name in taken:
            raise ColumnsError(
                f"{path} already has a column {field.name!r}, and tt adds a column with this name. "
                "Choose another name with `output_column`"
            )
    if file_format != PARQUET or not contents.has_random_access:
        joined = {table.name(column, ROW_FLAGS) for column in columns}
        whole = pa.schema([*kept, *added])
        check_schema(whole, file_format=file_format, joined=joined, path=path)
    return columns


def _check_condition(schema: pa.Schema, *, where: str | None, path: str, is_partial: bool) -> None:
    """Check that a condition matches a schema, which includes the partition columns."""
    if where is None:
        return
    condition = parse_condition(where)
    try:
        names = condition.columns(schema.names, path=path)
    except ConditionError:
        if is_partial:  # the missing column may occur after the head
            return
        raise
    condition.check(pa.schema([schema.field(name) for name in names]), path=path)


def _check_key(
    schema: pa.Schema,
    *,
    key: tuple[str, ...],
    columns: tuple[str, ...],
    table: TableOptions,
    path: str,
) -> None:
    """Check that the output will contain all columns by which a later run compares its rows."""
    if not key:
        return
    for name in key:
        if (kind := type_of(schema, name)) is None:
            raise _KeyColumnError(
                f"{path} has no column {name!r} for `key`. Its columns: {_columns(schema)}"
            )
        if not is_comparable(kind):
            raise ColumnsError(
                f"the column {name!r} of {path} has the type {kind}, which `key` cannot compare. "
                "Set `key` to columns of numbers, strings, dates or times"
            )
    compared = [*key, *columns, *table.language_columns]
    for name in compared:
        top = path_in(schema, name)[0]
        if top not in schema.names or not table.choice.keeps(top):
            raise ColumnsError(
                f"`key` compares the column {name!r} with the earlier output of {path}, so the "
                "output files must contain it. Keep the column, or remove `key`"
            )


def _find_text_columns(
    schema: pa.Schema, *, seen: pa.Schema, table: TableOptions, path: str, key: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the columns to translate: those that the user named, or the only text column.

    The columns of languages and the columns of the key are not translated unless the user
    names them. See `check_table`. The schema `seen` includes the partition columns.
    """
    text_columns = table.fields
    for name in table.language_columns:
        kind = type_of(seen, name)
        if kind is None or not (is_text(kind) or pa.types.is_null(kind)):
            side = "source" if name == table.source_column else "target"
            found = "no column" if kind is None else f"a column of {kind}"
            raise _ColumnError(
                f"`{side}_language_column` must be a column of strings; {path} has {found} "
                f"{name!r}. Its columns: {_columns(seen)}"
            )
    if not text_columns:
        names = [
            str(field.name)
            for field in schema
            if is_text(field.type)
            and not is_json_text(field)
            and field.name not in (*table.language_columns, *key)
        ]
        if not names:
            raise _ColumnError(
                f"{path} has no column of strings to translate. Its columns: {_columns(schema)}"
            )
        if len(set(names)) > 1:
            raise ColumnsError(
                f"{path} has {len(names)} columns of strings: {', '.join(names)}. "
                "Set `text_columns`"
            )
        text_columns = (names[0],)
    for name in text_columns:
        kind = type_of(schema, name)
        if kind is None:
            count = schema.names.count(name)
            problem = f"{count} columns named" if count else "no column"
            raise _ColumnError(f"{path} has {problem} {name!r}. Its columns: {_columns(schema)}")
        if name in schema.names and is_json_text(schema.field(name)):
            raise _ColumnError(
                f"a text column must contain strings; the values under the key {name!r} of {path} "
                "have several types"
            )
        # A column has Arrow's type null if all its values are null.
        is_readable = is_text(kind) or is_bytes(kind) or is_text_list(kind)
        if not (is_readable or pa.types.is_null(kind)):
            raise _ColumnError(
                f"a text column must contain strings or lists of strings; {name!r} of {path} is "
                f"{kind}. Its columns: {_columns(schema)}"
            )
    return text_columns


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"
