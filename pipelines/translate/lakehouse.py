"""Tables of Delta Lake and Iceberg as the input and the output of a translation job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tt.model.errors import UserError, require
from tt.pipelines.tables import lakehouse
from tt.pipelines.tables.finding import FoundFile, find_tables
from tt.pipelines.tables.formats import PARQUET, ReadOptions
from tt.pipelines.tables.lakehouse import (
    DELTA,
    ICEBERG,
    AddedFile,
    OutputTable,
    TableFile,
    find_table_files,
    fit_file,
    fit_output,
    parse_address,
    plain_type,
)
from tt.pipelines.tables.parquet import Contents
from tt.pipelines.translate.generations import gone_files
from tt.pipelines.translate.job_folder import statistics_path
from tt.pipelines.translate.manifest import SkippedFile, read_statistics
from tt.pipelines.translate.options import REDO, TranslateOptions
from tt.pipelines.translate.plan import InputFile, plan_digest, plan_units, planned_outputs


def find_input(
    arguments: Sequence[str],
    *,
    options: ReadOptions,
    warn: Callable[[str], object],
    unread: list[str],
) -> list[FoundFile]:
    """Find the input files that paths, globs, folders and the addresses of tables name.

    See `find_tables` for the other parameters.

    Raises:
      UserError: An argument matches no file, or a table cannot be read.
    """
    found: list[FoundFile] = []
    for argument in arguments:
        address = parse_address(argument)
        found += (
            find_tables(argument, options=options, warn=warn, unread=unread)
            if address is None
            else find_table_files(address)
        )
    return found


def find_places(arguments: Iterable[str]) -> list[str]:
    """Return the paths that arguments name; a catalog knows the paths of Iceberg tables."""
    found = []
    for argument in arguments:
        address = parse_address(argument)
        if address is None or address.kind != ICEBERG:
            found.append(argument if address is None else address.name)
    return found


def open_output(options: TranslateOptions) -> OutputTable | None:
    """Return the output table of a job; None if the output is a folder.

    Raises:
      UserError: `tt` cannot write the table, or cannot do so with these options.
    """
    table = lakehouse.open_output(options.output)
    if table is not None:
        require(
            options.format == PARQUET, "tables contain Parquet. Remove `format`", options.format
        )
        rule = "a corpus needs a folder. Change `output`"
        require(options.corpus is None, rule, options.output)
        is_set = {
            "overwrite": options.overwrite,
            "retry_failed": options.retry_failed,
            "changed": options.changed == REDO,
            "key": bool(options.key),
        }
        for name, is_replacing in is_set.items():
            require(
                not is_replacing,
                f"`{name}` cannot replace files that are part of a table. Remove the option, or "
                "choose a folder as the `output`",
            )
    return table


def fit_contents(contents: Contents, file: FoundFile) -> Contents:
    """Return the contents of a file with the schema of its table, if it belongs to a table.

    Raises:
      BadFileError: A column was renamed, or its type was changed, after the file was written.
    """
    if not isinstance(file, TableFile):
        return contents
    return dataclasses.replace(contents, schema=fit_file(contents.schema, file))


def fit_to_table(
    table: OutputTable,
    *,
    schema: pa.Schema,
    added: Sequence[pa.Field],
    file: FoundFile,
    is_parquet: bool,
) -> OutputTable:
    """Return an output table with the schema of its new files.

    Args:
      table: The table. After the first call, it has the schema of the files before this one.
      schema: The schema of an input file.
      added: The columns that the job adds to it.
      file: The input file.
      is_parquet: Whether the file is Parquet.

    Raises:
      UserError: The table cannot store the rows of the file, or the files differ.
    """
    if not is_parquet:
        raise UserError(
            f"{table.address} can only be written from Parquet files and tables, but the input "
            f"contains {file.path}. Convert this file to Parquet first"
        )
    partitions = file.partitions if isinstance(file, TableFile) else ()
    names = tuple(name for name, _ in partitions)
    columns = table.partition_columns
    if table.address.kind == DELTA and table.schema is None and table.files_schema is None:
        columns = names  # a new table has the partitions of the input
    if missing := sorted(set(columns) - set(names)):
        raise UserError(
            f"{table.address} is partitioned by {missing[0]!r}, but {file.path} is not. Choose a "
            "table without partitions, or with the partitions of the input"
        )
    fitted = fit_output(table, pa.schema([*schema, *added]))
    for field in added:  # these columns are not cast
        if fitted.field(field.name).type != plain_type(field.type):
            raise UserError(
                f"{table.address} stores the column {field.name!r} as "
                f"{fitted.field(field.name).type}, but tt adds it as {field.type}. Choose another "
                "table"
            )
    if table.files_schema not in (None, fitted):
        raise UserError(
            f"all rows of {table.address} must have the same columns, but {file.path} has other "
            "columns than the files before it. Translate these files into separate tables"
        )
    return dataclasses.replace(table, files_schema=fitted, partition_columns=columns)


def cast_schema(
    contents: Contents, file: FoundFile, *, table: OutputTable | None, schema: pa.Schema
) -> pa.Schema | None:
    """Return the schema to which the rows of a file are cast; None to keep the file's own.

    Args:
      contents: The contents of the file itself.
      file: The file.
      table: The output table with the schema of its files; None for a folder.
      schema: The schema of the file, or of its table.
    """
    if table is not None and table.files_schema is not None:
        schema = pa.schema([table.files_schema.field(name) for name in schema.names])
    elif not isinstance(file, TableFile):
        return None
    own = contents.schema.remove_metadata()
    return None if own.equals(schema, check_metadata=True) else schema


def publish_units(
    table: OutputTable,
    files: Iterable[InputFile | SkippedFile],
    *,
    plan: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> None:
    """Add the output files of all generations that are not in the table yet, in one commit.

    Args:
      table: The table.
      files: The input files of the job.
      plan: The content of `plan.json`.
      sizes: The size of each output file in bytes, by relative path.

    Raises:
      UserError: The table was changed, so that the files no longer fit.
      ServiceError: The commit failed.
    """
    number = len(plan.get("generations", [{}]))
    added = []
    for file in files:
        if isinstance(file, SkippedFile):
            continue
        if plan["input"][file.relative_path].get("generation", 1) <= plan.get("committed", 0):
            continue
        partitions = dict(file.table_partitions)
        for unit in plan_units(file, unit_rows=plan["options"]["unit_rows"]):
            # Skipped units have no output file. Scans of Iceberg leave out files without rows, so
            # that no later commit could remove them.
            if unit.output_path in sizes and unit.rows:
                added.append(
                    AddedFile(
                        path=unit.output_path,
                        size=sizes[unit.output_path],
                        rows=unit.rows,
                        partitions=tuple(
                            (name, partitions[name]) for name in table.partition_columns
                        ),
                    )
                )
    lakehouse.publish(
        table,
        added,
        job=_job_name(plan),
        generation=number,
        removed=plan.get("removed_outputs", ()),
    )


def _job_name(plan: Mapping[str, Any]) -> str:
    """Return the name of a job in the commits of all its generations."""
    first = plan.get("generations", [{}])[0]
    return f"tt-{first.get('plan_digest') or plan_digest(plan)}"


def last_committed(table: OutputTable, *, plan: Mapping[str, Any], is_finished: bool) -> int:
    """Return the number of the last generation whose output is part of a table; 0 if none is.

    Args:
      table: The table.
      plan: The plan in the output folder.
      is_finished: Whether the folder has a manifest, which is written after the commit.

    Raises:
      ServiceError: The table or its catalog does not answer.
    """
    if is_finished:
        return len(plan.get("generations", [{}]))
    known: int = plan.get("committed", 0)  # the snapshots of an Iceberg table can expire
    return max(known, lakehouse.last_commit(table, job=_job_name(plan)))


def committed_files(plan: Mapping[str, Any], *, committed: int) -> dict[str, Any]:
    """Return the input files of a plan whose output is part of the table."""
    return {
        name: file for name, file in plan["input"].items() if file.get("generation", 1) <= committed
    }


def find_removed(
    table: OutputTable, saved: Mapping[str, Any], plan: Mapping[str, Any], *, committed: int
) -> list[str]:
    """Return the output files that the next commit removes from a table, as relative paths.

    Args:
      table: The table.
      saved: The plan in the output folder.
      plan: The plan of the next generation.
      committed: The result of `last_committed`.

    Raises:
      UserError: Another program has rewritten the files.
      ServiceError: The table or its catalog does not answer.
    """
    gone = gone_files(saved, plan).keys()
    files = committed_files(saved, committed=committed)
    outputs = planned_outputs({**saved, "input": {n: f for n, f in files.items() if n in gone}})
    records = {
        path: read_statistics(output=table.location, path=statistics_path(path)) for path in outputs
    }
    removed = [
        path
        for path, record in records.items()
        if record is None or (record.rows and not record.skipped)
    ]
    if len(saved.get("generations", [{}])) > committed:  # the saved plan was not committed
        removed += saved.get("removed_outputs", ())
    lakehouse.check_contains(table, removed)
    return removed
