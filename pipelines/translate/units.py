"""Translate units of work, which turn consecutive rows of a file into one output file.

A unit is finished if its output file exists and matches its record, `_tt/units/...json`. The record
is written after the output file, so a unit that was interrupted is translated again.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tt.model.engines.batching import begin_rows
from tt.model.engines.translator import Translator, Work
from tt.model.errors import BadFileError, UserError
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.memory.memory import TranslationMemory
from tt.pipelines.storage.files import make_folder, open_binary, write_whole
from tt.pipelines.storage.listing import exists
from tt.pipelines.storage.paths import JOB_FOLDER, is_local
from tt.pipelines.tables import parquet
from tt.pipelines.tables.columns import cast_table, has_dictionary
from tt.pipelines.tables.finding import PARQUET
from tt.pipelines.tables.forward import ForwardReader, cut_by_bytes, read_rows
from tt.pipelines.tables.lakehouse import fit_rows
from tt.pipelines.tables.parquet import changed_error
from tt.pipelines.tables.reading import OpenTable
from tt.pipelines.tables.writing import file_state, table_writer
from tt.pipelines.texts.remembering import Learned
from tt.pipelines.texts.translating import TranslatedTexts
from tt.pipelines.translate import plan
from tt.pipelines.translate.inputs import unchanged_file, with_fix
from tt.pipelines.translate.job_folder import rows_path, statistics_path, write_json
from tt.pipelines.translate.manifest import UnitStatistics, read_statistics
from tt.pipelines.translate.options import SKIP, TranslateOptions
from tt.pipelines.translate.plan import (
    InputFile,
    TableUnit,
    count_rows_read,
    cut_runs,
    plan_units,
)
from tt.pipelines.translate.previous import (
    PreviousOptions,
    count_null_keys,
    merge_rows,
    unknown_rows,
)
from tt.pipelines.translate.table import (
    TableOptions,
    choose_rows,
    count_table,
    find_corrected,
    has_added,
    retry_table,
    translate_table,
)

# If row groups are larger than runs, several runs decode the same rows. If the runs of a remote
# file decode each row more often than this on average, the job first copies the rows of each unit
# to a separate file.
_MOST_READS_PER_ROW = 1.2


class _Translated(NamedTuple):
    """A translated table, and counts of its rows."""

    table: pa.Table
    found: TranslatedTexts
    kept_rows: int = 0
    null_keys: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitOptions:
    """The options for translating units.

    Attributes:
      output: The output folder, absolute or with its scheme.
      job: The options of the job.
      table: The options of the translated columns.
      run_id: The name of this run.
      plan_digest: The digest of this run's plan. Units of other plans do not count as finished.
      memory: The translation memory, or None.
      most_at_once: The maximum number of units in a run, which a worker reads in one pass.
      has_others: Whether the job has several input files.
      previous: The earlier output whose translations the job keeps; None without `key`.
    """

    output: str
    job: TranslateOptions
    table: TableOptions
    run_id: str
    plan_digest: str
    memory: TranslationMemory | None = None
    most_at_once: int = 1
    has_others: bool = True
    previous: PreviousOptions | None = None


def cut_file(file: InputFile, *, options: UnitOptions) -> list[list[TableUnit]]:
    """Divide a file into units, and the units into runs; a run is read in one pass.

    A file without random access is read only once: this function copies the rows of each
    unfinished unit to a separate file. It does the same with a Parquet file on an object store
    whose row groups are so large that runs would read many rows several times.

    Raises:
      UserError: The file is damaged, or has changed since the job was planned.
    """
    plain = dataclasses.replace(file, group_rows=())  # units do not need the row groups
    units = plan_units(plain, unit_rows=options.job.unit_rows, suffix=options.job.suffix)
    if file.schema is None:
        runs = cut_runs(units, group_rows=file.group_rows, most=options.most_at_once)
        read = count_rows_read(runs, group_rows=file.group_rows)
        if is_local(file.path) or read <= _MOST_READS_PER_ROW * (file.rows or 0):
            return runs
    units = [_with_rows_path(unit, options) for unit in units]
    if file.schema is None:
        units = _copy_parquet_rows(units, file=file, options=options)
    elif any(unit.rows_path for unit in units):
        _copy_rows(units, file=file, schema=file.schema, options=options)
    return [[unit] for unit in units]


def open_run(units: Sequence[TableUnit], *, options: UnitOptions) -> ForwardReader:
    """Return a reader for the units of a run, which opens the Parquet file at the first read."""
    file, last = units[0].file, units[-1]
    return ForwardReader(
        file.path,
        footer_checksum=file.footer_checksum,
        end=last.first_row + last.rows,
        most_rows=max(unit.rows for unit in units),
        choose_columns=functools.partial(
            options.table.columns_to_read, partitions=dict(file.partitions)
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
    if found and not (options.job.retry_failed and (found.skipped or found.failed_rows)):
        return unit
    path = rows_path(unit.output_path, plan_digest=options.plan_digest)
    return dataclasses.replace(unit, rows_path=path)


def _copy_rows(
    units: list[TableUnit], *, file: InputFile, schema: pa.Schema, options: UnitOptions
) -> None:
    written = 0
    found = file.size, file.footer_checksum
    try:
        with unchanged_file(file), OpenTable(file.path, schema=schema) as opened:
            schema = opened.schema  # serialization loses details of fixed-size lists
            chosen = options.table.columns_to_read(schema, partitions=dict(file.partitions))
            schema = pa.schema([schema.field(index) for index in chosen], schema.metadata)
            kept = parquet.schema_as_read(schema) if options.job.format == PARQUET else schema
            runs = opened.batch_runs([unit.rows for unit in units])
            for unit, run in zip(units, runs, strict=True):
                if unit.rows_path:
                    pieces = _pieces_of_run((b.select(chosen) for b in run), schema=schema)
                    # Each table has one chunk, so that the output's bytes depend only on the rows.
                    tables = (
                        cast_table(piece, kept, path=file.path).combine_chunks() for piece in pieces
                    )
                    written += _write_rows(tables, unit=unit, options=options)
                else:
                    written += sum(batch.num_rows for batch in run)
            if file.footer_checksum:  # "" if only the head of the file has been read
                found = opened.finish()
    except BadFileError as error:
        fixed = with_fix(error, has_others=options.has_others)
        raise (changed_error(file.path) if file.changed is None else fixed) from error
    if written != file.rows or found != (file.size, file.footer_checksum):
        raise changed_error(file.path)


def _pieces_of_run(batches: Iterator[pa.RecordBatch], *, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a unit, as several tables if they exceed the memory of a unit."""
    if has_dictionary(schema):  # all batches of a table must have the same dictionary
        batches = iter(
            pa.Table.from_batches(batches, schema=schema).unify_dictionaries().to_batches()
        )
    for piece, _ in cut_by_bytes(batches, most_bytes=plan.UNIT_BYTES):
        yield pa.Table.from_batches(piece, schema=schema)


def _write_rows(tables: Iterator[pa.Table], *, unit: TableUnit, options: UnitOptions) -> int:
    """Write the rows of a unit to its `rows_path`; return the number of rows."""
    path = f"{options.output}/{unit.rows_path}"
    make_folder(path.rpartition("/")[0])
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


def _read_rows(
    unit: TableUnit, *, options: UnitOptions, reader: ForwardReader
) -> Iterator[pa.Table]:
    """Yield the rows of a unit as one table, or as several tables if they need much memory.

    Raises:
      BadFileError: The input file is damaged.
      UserError: The input file has changed.
    """
    if not unit.rows_path:
        yield from reader.pieces(
            first_row=unit.first_row, rows=unit.rows, most_bytes=plan.UNIT_BYTES
        )
        return
    with (
        open_binary(f"{options.output}/{unit.rows_path}") as handle,
        pa.ipc.open_stream(handle) as stream,
    ):
        for piece, is_whole in cut_by_bytes(stream, most_bytes=plan.UNIT_BYTES):
            table = pa.Table.from_batches(piece, schema=stream.schema)
            yield table if is_whole else table.combine_chunks()


def finish_unit(
    unit: TableUnit,
    *,
    options: UnitOptions,
    load_translator: Callable[[], Translator],
    reader: ForwardReader,
) -> UnitStatistics:
    """Translate a unit unless it is finished, and return its record.

    Two simultaneous attempts write the same files.

    Args:
      unit: The unit.
      options: The options of the run.
      load_translator: Returns the translator; called only if the unit is not finished.
      reader: The reader of the unit's run; see `open_run`.

    Raises:
      UserError: The input file is damaged and `on_bad_file` is not "skip", or the file has changed.
    """
    found = find_finished(unit, options=options)
    attempt = _Attempt(
        options=options, load_translator=load_translator, reader=reader, before=found
    )
    is_retry = options.job.retry_failed
    try:
        if found is None or (is_retry and found.skipped and found.run_id != options.run_id):
            return _write_unit(unit, attempt)
        if is_retry and found.failed_rows and found.run_id != options.run_id:
            return _retry_unit(unit, found, attempt)
        return _mark_reused(found, options)
    except _FinishedMeanwhileError as other:
        return _mark_reused(other.args[0], options)
    except Exception:
        # Another run may have finished the unit meanwhile, and may have deleted files of this run.
        if found is None and (record := find_finished(unit, options=options)):
            return _mark_reused(record, options)
        raise
    finally:
        # Without this call, Arrow keeps the memory that the largest unit needed.
        pa.default_memory_pool().release_unused()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Attempt:
    """The context of one attempt at a unit."""

    options: UnitOptions
    load_translator: Callable[[], Translator]
    reader: ForwardReader
    before: UnitStatistics | None  # the record that existed when the attempt began, if any


class _FinishedMeanwhileError(Exception):
    """Another attempt finished the unit after this one began; the argument is its record."""


def _check_unfinished(unit: TableUnit, attempt: _Attempt) -> None:
    """Check that no other attempt has finished the unit, because the first attempt wins.

    Raises:
      _FinishedMeanwhileError: Another attempt has finished the unit.
    """
    found = find_finished(unit, options=attempt.options)
    if found is not None and found != attempt.before:
        raise _FinishedMeanwhileError(found)


def _mark_reused(found: UnitStatistics, options: UnitOptions) -> UnitStatistics:
    """Return the record of a finished unit, marked as reused if an earlier run wrote it."""
    if found.run_id == options.run_id:
        return found
    return dataclasses.replace(found, was_reused=True, run_rows=0, run_characters=0)


def find_finished(unit: TableUnit, *, options: UnitOptions) -> UnitStatistics | None:
    """Return the record of a unit, or None if the unit is not finished."""
    found = read_statistics(output=options.output, path=statistics_path(unit.output_path))
    if found is None or (found.first_row, found.rows) != (unit.first_row, unit.rows):
        return None
    # A worker of an overwritten job may have written the record.
    if found.plan_digest != _digest_of(unit, options):
        return None
    if found.skipped:
        return found if options.job.on_bad_file == SKIP else None
    path = f"{options.output}/{unit.output_path}"
    if not exists(path):
        return None
    try:
        is_whole = file_state(path) == (found.output_bytes, found.output_checksum)
    except BadFileError:
        return None
    return found if is_whole else None


def _write_unit(unit: TableUnit, attempt: _Attempt) -> UnitStatistics:
    options = attempt.options
    try:
        statistics = _write_output(_translate_rows(unit, attempt), unit=unit, attempt=attempt)
    except _BadInputError as error:
        if options.job.on_bad_file != SKIP:
            raise UserError(
                f"{error}. {error.args[0].remedy}, or skip such rows with `on_bad_file=skip`"
            ) from error
        _check_unfinished(unit, attempt)
        statistics = dataclasses.replace(_new_statistics(unit, options), skipped=str(error))
        _write_statistics(statistics, options=options)
        return statistics
    return _record(unit, statistics, options=options)


def _translate_rows(unit: TableUnit, attempt: _Attempt) -> Iterator[_Translated]:
    translator = attempt.load_translator()
    for table in _read_input(unit, options=attempt.options, reader=attempt.reader):
        with begin_rows(table.num_rows):
            translated = translate_rows(
                table, unit=unit, options=attempt.options, translator=translator
            )
        del table
        yield translated
        del translated


def translate_rows(
    table: pa.Table, *, unit: TableUnit, options: UnitOptions, translator: Translator
) -> _Translated:
    """Translate the rows of a table, except rows whose translation is known."""
    translate = functools.partial(
        translate_table,
        options=options.table,
        translator=translator,
        partitions=unit.file.partitions,
        memory=options.memory,
    )
    if options.previous is None:
        return _Translated(*translate(table))
    chosen = choose_rows(table, where=options.table.where, partitions=unit.file.partitions)
    if options.memory is not None:  # corrections replace translations that would be kept
        is_corrected = find_corrected(table, options=options.table, memory=options.memory)
        chosen = [a and not b for a, b in zip(chosen, is_corrected, strict=True)]
    known = options.previous.find(table, chosen=chosen)
    rest, found = translate(unknown_rows(table, known=known))
    return _Translated(
        merge_rows(table, known=known, translated=rest, options=options.table),
        found,
        kept_rows=known.num_rows,
        null_keys=count_null_keys(table, key=options.previous.key),
    )


class _BadInputError(Exception):
    """The input rows of a unit cannot be read; the argument is the BadFileError."""


def _read_input(
    unit: TableUnit, *, options: UnitOptions, reader: ForwardReader
) -> Iterator[pa.Table]:
    try:
        for table in _read_rows(unit, options=options, reader=reader):
            schema = unit.file.as_schema
            yield table if schema is None else fit_rows(table, schema, unit.file.table_partitions)
    except BadFileError as error:
        raise _BadInputError(error) from error


def _retry_unit(unit: TableUnit, found: UnitStatistics, attempt: _Attempt) -> UnitStatistics:
    """Translate the failed rows of a unit again, and replace its output file.

    The whole unit is translated again if its output file is not Parquet, is damaged, or lacks some
    of the added columns or of the input columns that the translation needs.
    """
    options, partitions = attempt.options, unit.file.partitions
    can_retry = options.table.can_retry(partitions=dict(partitions))
    if options.job.format != PARQUET or not can_retry:
        return _write_unit(unit, attempt)
    path = f"{options.output}/{unit.output_path}"
    try:
        footer = parquet.read_footer(path)
        if not has_added(footer.schema.empty_table(), options=options.table):
            return _write_unit(unit, attempt)
        retried = (
            _Translated(
                *retry_table(
                    table,
                    options=options.table,
                    translator=attempt.load_translator(),
                    partitions=partitions,
                    memory=options.memory,
                )
            )
            for table in _read_groups(path, footer, checksum=found.output_checksum)
        )
        done = _write_output(retried, unit=unit, attempt=attempt)
    except BadFileError:
        return _write_unit(unit, attempt)
    statistics = dataclasses.replace(  # add the work of the first attempt
        done,
        texts=found.texts + done.texts,
        distinct_texts=found.distinct_texts + done.distinct_texts,
        remembered_texts=found.remembered_texts + done.remembered_texts,
        source_characters=found.source_characters,
        terms_found=found.terms_found,  # already includes the failed rows
        terms_kept=found.terms_kept + done.terms_kept,
        work=found.work + done.work,
        run_rows=found.failed_rows,
    )
    return _record(unit, statistics, options=options)


def _read_groups(path: str, footer: parquet.Contents, *, checksum: str) -> Iterator[pa.Table]:
    """Yield the row groups of an output file as tables; a file without rows gives one table."""
    first = 0
    for rows in footer.group_rows or (0,):
        yield read_rows(path=path, first_row=first, rows=rows, footer_checksum=checksum)
        first += rows


def _write_output(
    translated: Iterator[_Translated], *, unit: TableUnit, attempt: _Attempt
) -> UnitStatistics:
    start = time.monotonic()
    options = attempt.options
    path = f"{options.output}/{unit.output_path}"
    make_folder(path.rpartition("/")[0])
    counts: dict[str, Any] = {}
    learned: list[Learned] = []
    first = next(translated)  # most units are one table, so most work precedes opening the file
    schema, translated = first.table.schema, itertools.chain([first], translated)
    del first
    with write_whole(
        path, temporary_folder=f"{options.output}/{JOB_FOLDER}", run_id=options.run_id
    ) as handle:
        with table_writer(
            handle,
            schema,
            file_format=options.job.format,
            compression=str(options.job.compression),
        ) as write:
            for each in translated:
                write(each.table)
                add_counts(counts, count_table(each.table, each.found, options=options.table))
                add_counts(counts, {"kept_rows": each.kept_rows, "null_keys": each.null_keys})
                learned += each.found.learned
                del each  # frees the memory before the next table is read
        if options.memory is not None:  # before the record, so that no entry is lost
            options.memory.store(learned)
        _check_unfinished(unit, attempt)
    size, checksum = file_state(path)
    written = counts.pop("rows")
    for rows in (written, *(sum(each.values()) for each in counts["rows_by_status"].values())):
        if rows != unit.rows:
            raise RuntimeError(f"{path} has a status for {rows} of the unit's {unit.rows} rows")
    return dataclasses.replace(
        _new_statistics(unit, options),
        output_bytes=size,
        output_checksum=checksum,
        seconds=round(time.monotonic() - start, 3),
        run_rows=unit.rows,
        run_characters=counts["source_characters"],
        **{**counts, "work": Work(**counts["work"])},
    )


def _new_statistics(unit: TableUnit, options: UnitOptions) -> UnitStatistics:
    return UnitStatistics(
        output_path=unit.output_path,
        relative_path=unit.file.relative_path,
        first_row=unit.first_row,
        rows=unit.rows,
        file_rows=unit.file.rows or 0,
        plan_digest=_digest_of(unit, options),
        run_id=options.run_id,
    )


def _digest_of(unit: TableUnit, options: UnitOptions) -> str:
    return unit.file.plan_digest or options.plan_digest


def _record(unit: TableUnit, statistics: UnitStatistics, *, options: UnitOptions) -> UnitStatistics:
    """Write the record of a unit, and return a record that matches the output file.

    Two simultaneous attempts may write different scores, because processors round differently. The
    second attempt may replace the output file before or after the first one writes its record. The
    attempt that writes the last record compares this record with the file, so both match in the
    end.
    """
    while True:
        _write_statistics(statistics, options=options)
        size, checksum = file_state(f"{options.output}/{unit.output_path}")
        if (size, checksum) == (statistics.output_bytes, statistics.output_checksum):
            return statistics
        if found := find_finished(unit, options=options):  # the other attempt's record
            return _mark_reused(found, options)
        # The other attempt translated the same rows, so only the bytes differ.
        statistics = dataclasses.replace(statistics, output_bytes=size, output_checksum=checksum)


def _write_statistics(statistics: UnitStatistics, *, options: UnitOptions) -> None:
    path = statistics_path(statistics.output_path)
    make_folder(f"{options.output}/{path}".rpartition("/")[0])
    write_json(statistics.to_json(), output=options.output, path=path, run_id=options.run_id)
