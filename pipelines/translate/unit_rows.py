"""Divide files into units, and read the rows of a unit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.model.storage.files import open_binary, write_whole
from tt.model.storage.paths import JOB_FOLDER
from tt.pipelines.tables import parquet
from tt.pipelines.tables.columns import cast_table, has_dictionary
from tt.pipelines.tables.faults import FAULT
from tt.pipelines.tables.formats import PARQUET
from tt.pipelines.tables.jsonl import RAW_LINE
from tt.pipelines.tables.parquet import ForwardReader, changed_error
from tt.pipelines.tables.pieces import combine_chunks, cut_by_bytes
from tt.pipelines.tables.ranges import LineRange
from tt.pipelines.tables.reading import OpenTable
from tt.pipelines.translate import plan
from tt.pipelines.translate.bad_rows import BadRows
from tt.pipelines.translate.inputs import unchanged_file, with_fix
from tt.pipelines.translate.job_folder import rows_path
from tt.pipelines.translate.plan import InputFile, TableUnit, count_rows_read, cut_runs, plan_units
from tt.pipelines.translate.unit_records import UnitOptions, find_finished

# If row groups are larger than runs, several runs decode the same rows. If runs decode a row more
# often than this on average, the job first copies the rows of each unit to a separate file.
_MOST_READS_PER_ROW = 1.2


def cut_file(file: InputFile, *, options: UnitOptions) -> list[list[TableUnit]]:
    """Divide a file into units, and the units into runs; a run is read in one pass.

    Units of a text file with ranges read their own ranges. Other files without random access are
    read only once: this function copies the rows of each unfinished unit to a separate file. It
    does the same with a Parquet file whose row groups are so large that runs would read many rows
    several times.

    Raises:
      UserError: The file is damaged, or has changed since the job was planned.
    """
    plain = dataclasses.replace(file, group_rows=(), ranges=())  # units do not need them
    units = plan_units(plain, unit_rows=options.job.unit_rows, suffix=options.job.suffix)
    if file.ranges:  # with a limit, there are fewer units
        parts = zip(units, file.ranges, strict=False)
        return [[dataclasses.replace(unit, part=part)] for unit, part in parts]
    if file.schema is None:
        runs = cut_runs(units, group_rows=file.group_rows, most=options.most_at_once)
        read = count_rows_read(runs, group_rows=file.group_rows)
        if read <= _MOST_READS_PER_ROW * (file.rows or 0):
            return runs
    units = [_with_rows_path(unit, options) for unit in units]
    if file.schema is None:
        units = _copy_parquet_rows(units, file=file, options=options)
    elif any(unit.rows_path for unit in units):
        _copy_rows(units, file=file, options=options)
    return [[unit] for unit in units]


def open_run(units: Sequence[TableUnit], *, options: UnitOptions) -> ForwardReader:
    """Return a reader for the units of a run, which opens the Parquet file at the first read."""
    file, last = units[0].file, units[-1]
    return ForwardReader(
        path=file.path,
        end=last.first_row + last.rows,
        footer_checksum=file.footer_checksum,
        choose_columns=functools.partial(
            file.choose_columns,
            choose=functools.partial(
                options.table.columns_to_read, partitions=dict(file.partitions)
            ),
        ),
    )


def _copy_parquet_rows(
    units: list[TableUnit], *, file: InputFile, options: UnitOptions
) -> list[TableUnit]:
    """Copy the rows of Parquet units to separate files, and return the units.

    If the rows of a unit cannot be read, the unit is returned without `rows_path`, so that only
    this unit fails later.
    """
    spread = []
    with open_run(units, options=options) as reader:
        for unit in units:
            if unit.rows_path:
                try:
                    pieces = reader.pieces(
                        first_row=unit.first_row, rows=unit.rows, most_bytes=plan.UNIT_BYTES
                    )
                    _write_rows(pieces, unit=unit, options=options)
                except BadFileError:
                    unit = dataclasses.replace(unit, rows_path="")
            spread.append(unit)
    return spread


def _with_rows_path(unit: TableUnit, options: UnitOptions) -> TableUnit:
    """Return the unit with a path for its rows, unless the unit is finished."""
    found = find_finished(unit, options=options)
    is_bad = found and (found.skipped or found.failed_rows)
    if found and not (options.job.retry_failed and is_bad and not unit.file.is_removed):
        return unit
    path = rows_path(unit.output_path, plan_digest=options.plan_digest)
    return dataclasses.replace(unit, rows_path=path)


def _copy_rows(units: list[TableUnit], *, file: InputFile, options: UnitOptions) -> None:
    written = 0
    try:
        with (
            unchanged_file(file),
            _open_table(file, options=options, has_checksum=True) as opened,
            contextlib.ExitStack() as stack,
        ):
            bad_rows = BadRows(file, options=options, opened=stack)
            runs = opened.batch_runs([unit.rows for unit in units])
            for unit, run in zip(units, map(bad_rows.collect, runs), strict=True):
                if unit.rows_path:
                    tables = _tables_of(run, file=file, schema=opened.schema, options=options)
                    written += _write_rows(tables, unit=unit, options=options)
                else:
                    written += sum(batch.num_rows for batch in run)
            found = opened.finish()
    except BadFileError as error:
        fixed = with_fix(error, has_others=options.has_others)
        raise (changed_error(file.path) if file.changed is None else fixed) from error
    if written != file.rows or found != (file.size, file.footer_checksum):
        raise changed_error(file.path)


def _open_table(file: InputFile, *, options: UnitOptions, **how: Any) -> OpenTable:
    has_lines = options.job.keeps_lines(file.path)
    read = options.job.read
    return OpenTable(file.path, options=read, schema=file.schema, has_lines=has_lines, **how)


def _tables_of(
    run: Iterator[pa.RecordBatch], *, file: InputFile, schema: pa.Schema, options: UnitOptions
) -> Iterator[pa.Table]:
    """Yield the rows of a unit with the columns that the job needs, and the column of faults.

    Args:
      run: The rows, with the messages of faults.
      file: The file.
      schema: The schema of the open file, because serialization loses details of fixed-size lists.
      options: The options of the run.
    """
    partitions = dict(file.partitions)
    chosen = options.table.columns_to_read(schema, partitions=partitions)
    if options.job.keeps_lines(file.path):
        used = options.table.used_columns(schema, partitions=partitions)
        chosen = [index for index, name in enumerate(schema.names) if name in used]
        chosen.append(len(schema))
        schema = schema.append(pa.field(RAW_LINE, pa.large_binary()))
    last = len(schema)  # the index of the column of faults
    schema = pa.schema([schema.field(index) for index in chosen], schema.metadata)
    kept = parquet.schema_as_read(schema) if options.job.format == PARQUET else schema
    schema, kept = (each.append(pa.field(FAULT, pa.string())) for each in (schema, kept))
    for piece in _pieces_of_run((batch.select([*chosen, last]) for batch in run), schema=schema):
        # Each table has one chunk, so that the output's bytes depend only on the rows.
        yield cast_table(piece, kept, path=file.path).combine_chunks()


def _pieces_of_run(batches: Iterator[pa.RecordBatch], *, schema: pa.Schema) -> Iterator[pa.Table]:
    """Return the rows of a unit, as several tables if they exceed the memory of a unit."""
    if has_dictionary(schema):  # all batches of a table must have the same dictionary
        batches = iter(
            pa.Table.from_batches(batches, schema=schema).unify_dictionaries().to_batches()
        )
    return cut_by_bytes(batches, schema=schema, most_bytes=plan.UNIT_BYTES)


def _write_rows(tables: Iterator[pa.Table], *, unit: TableUnit, options: UnitOptions) -> int:
    """Write the rows of a unit to its `rows_path`; return the number of rows."""
    path = f"{options.output}/{unit.rows_path}"
    compressed = pa.ipc.IpcWriteOptions(compression="lz4")
    first = next(tables)
    rows = 0
    with (
        write_whole(
            path, temporary_folder=f"{options.output}/{JOB_FOLDER}", run_id=options.run_id
        ) as handle,
        pa.ipc.new_stream(handle, first.schema, options=compressed) as writer,
    ):
        for table in itertools.chain([first], tables):
            writer.write_table(table)
            rows += table.num_rows
    return rows


def read_unit_rows(
    unit: TableUnit, *, options: UnitOptions, reader: ForwardReader
) -> Iterator[pa.Table]:
    """Yield the rows of a unit as one table, or as several tables if they need much memory.

    Raises:
      BadFileError: The input file is damaged.
      UserError: The input file has changed.
    """
    if unit.part is not None:
        yield from _read_part(unit, part=unit.part, options=options)
        return
    if not unit.rows_path:
        yield from reader.pieces(
            first_row=unit.first_row, rows=unit.rows, most_bytes=plan.UNIT_BYTES
        )
        return
    with (
        open_binary(f"{options.output}/{unit.rows_path}") as handle,
        pa.ipc.open_stream(handle) as stream,
    ):
        tables = cut_by_bytes(stream, schema=stream.schema, most_bytes=plan.UNIT_BYTES)
        yield from map(combine_chunks, tables)


def _read_part(unit: TableUnit, *, part: LineRange, options: UnitOptions) -> Iterator[pa.Table]:
    """Yield the rows of a unit of a text file, and write its bad rows."""
    file, rows = unit.file, 0
    try:
        with (
            unchanged_file(file),
            _open_table(file, options=options, part=part) as opened,
            contextlib.ExitStack() as stack,
        ):
            bad_rows = BadRows(file, options=options, opened=stack, first_row=unit.first_row)
            run = bad_rows.collect(next(opened.batch_runs([unit.rows])))
            for table in _tables_of(run, file=file, schema=opened.schema, options=options):
                rows += table.num_rows
                yield table
    except BadFileError as error:  # counting the rows has found no such problem
        raise changed_error(file.path) from error
    if rows != unit.rows:
        raise changed_error(file.path)
