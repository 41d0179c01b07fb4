"""Translate units of work, which turn consecutive rows of a file into one output file.

`unit_records.py` decides which units are finished.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from tt.model.engines.batching import begin_rows
from tt.model.engines.translator import Translator, Work
from tt.model.errors import BadFileError, UserError
from tt.model.storage.paths import JOB_FOLDER
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.tables import parquet
from tt.pipelines.tables.columns import make_valid
from tt.pipelines.tables.formats import PARQUET
from tt.pipelines.tables.lakehouse import fit_rows
from tt.pipelines.tables.parquet import ForwardReader
from tt.pipelines.tables.writing import TableWriter
from tt.pipelines.texts.known import Learned
from tt.pipelines.texts.results import TranslatedTexts
from tt.pipelines.translate import plan
from tt.pipelines.translate.manifest import UnitStatistics
from tt.pipelines.translate.options import SKIP
from tt.pipelines.translate.pairs import make_pairs
from tt.pipelines.translate.plan import TableUnit
from tt.pipelines.translate.previous import count_null_keys, merge_rows, unknown_rows
from tt.pipelines.translate.table import (
    choose_rows,
    count_table,
    find_corrected,
    has_added,
    retry_table,
    translate_table,
)
from tt.pipelines.translate.unit_records import (
    UnitOptions,
    digest_of,
    find_finished,
    mark_reused,
    record_unit,
    write_statistics,
)
from tt.pipelines.translate.unit_rows import read_unit_rows


class _Translated(NamedTuple):
    """A translated table, and counts of its rows."""

    table: pa.Table
    found: TranslatedTexts
    kept_rows: int = 0
    null_keys: int = 0


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
    is_retry = options.job.retry_failed and found is not None and found.run_id != options.run_id
    try:
        if found is None or (is_retry and found.skipped and not unit.file.is_removed):
            return _write_unit(unit, attempt)
        if is_retry and found.failed_rows:
            return _retry_unit(unit, found, attempt)
        return mark_reused(found, options)
    except _FinishedMeanwhileError as other:
        return mark_reused(other.args[0], options)
    except Exception:
        # Another run may have finished the unit meanwhile, and may have deleted files of this run.
        if found is None and (record := find_finished(unit, options=options)):
            return mark_reused(record, options)
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


def _write_unit(unit: TableUnit, attempt: _Attempt) -> UnitStatistics:
    options = attempt.options
    try:
        statistics = _write_output(_translate_rows(unit, attempt), unit=unit, attempt=attempt)
    except BadInputError as error:
        if options.job.on_bad_file != SKIP:
            raise UserError(
                f"{error}. {error.args[0].remedy}, or skip such rows with `on_bad_file=skip`"
            ) from error
        _check_unfinished(unit, attempt)
        statistics = dataclasses.replace(_new_statistics(unit, options), skipped=str(error))
        write_statistics(statistics, options=options)
        return statistics
    return record_unit(statistics, options=options)


def _translate_rows(unit: TableUnit, attempt: _Attempt) -> Iterator[_Translated]:
    translator = attempt.load_translator()
    for table in read_input(unit, options=attempt.options, reader=attempt.reader):
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
    rest, known = rows_to_translate(table, unit=unit, options=options)
    if options.previous is None:
        return _Translated(*translate(rest))
    rest, found = translate(rest)
    return _Translated(
        merge_rows(table, known=known, translated=rest, options=options.table),
        found,
        kept_rows=known.num_rows,
        null_keys=count_null_keys(table, key=options.previous.key),
    )


def rows_to_translate(
    table: pa.Table, *, unit: TableUnit, options: UnitOptions
) -> tuple[pa.Table, pa.Table]:
    """Return the rows whose translation is unknown, and the known rows; see `PreviousRows.find`.

    Without earlier output, the table of known rows has no columns.
    """
    if options.previous is None:
        return table, pa.table({})
    chosen = choose_rows(table, where=options.table.where, partitions=unit.file.partitions)
    if options.memory is not None:  # corrections replace translations that would be kept
        is_corrected = find_corrected(
            table,
            options=options.table,
            memory=options.memory,
            partitions=unit.file.partitions,
        )
        chosen = [a and not b for a, b in zip(chosen, is_corrected, strict=True)]
    known = options.previous.find(table, chosen=chosen)
    return unknown_rows(table, known=known), known


class BadInputError(Exception):
    """The input rows of a unit cannot be read; the argument is the BadFileError."""


def read_input(
    unit: TableUnit, *, options: UnitOptions, reader: ForwardReader
) -> Iterator[pa.Table]:
    """Yield the rows of a unit with the columns of the output table, if there is one.

    Raises:
      BadInputError: The rows cannot be read.
      UserError: The input file has changed.
    """
    schema = unit.file.as_schema
    if schema is not None and not unit.rows:  # the file of an empty table does not exist
        yield schema.empty_table()
        return
    try:
        for table in read_unit_rows(unit, options=options, reader=reader):
            yield table if schema is None else fit_rows(table, schema, unit.file.table_partitions)
    except BadFileError as error:
        raise BadInputError(error) from error


def _retry_unit(unit: TableUnit, found: UnitStatistics, attempt: _Attempt) -> UnitStatistics:
    """Translate the failed rows of a unit again, and replace its output file.

    The whole unit is translated again if its output file is not Parquet, is damaged, is part of a
    corpus, or lacks some of the added columns or of the input columns that the translation needs.
    """
    options, partitions = attempt.options, unit.file.partitions
    can_retry = options.table.can_retry(partitions=dict(partitions))
    if options.job.format != PARQUET or options.job.corpus is not None or not can_retry:
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
            for table in _read_output(path, footer)
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
        kept_rows=found.kept_rows,
        null_keys=found.null_keys,
    )
    return record_unit(statistics, options=options)


def _read_output(path: str, footer: parquet.Contents) -> Iterator[pa.Table]:
    rows = footer.rows or 0
    with ForwardReader(path=path, end=rows, footer_checksum=footer.checksum) as reader:
        yield from reader.pieces(first_row=0, rows=rows, most_bytes=plan.UNIT_BYTES)


def _write_output(
    translated: Iterator[_Translated], *, unit: TableUnit, attempt: _Attempt
) -> UnitStatistics:
    start = time.monotonic()
    options = attempt.options
    path = f"{options.output}/{unit.output_path}"
    counts: dict[str, Any] = {}
    writer = TableWriter(
        file_format=options.job.format,
        compression=str(options.job.compression),
        temporary_folder=f"{options.output}/{JOB_FOLDER}",
        run_id=options.run_id,
    )
    tables = _count_tables(translated, counts=counts, unit=unit, attempt=attempt)
    size, checksum = writer.write(tables, path)
    if options.is_deduplicated:  # `deduplication.py` has counted these texts
        counts["remembered_texts"] = 0
    written = counts.pop("rows")
    for rows in (written, *(sum(each.values()) for each in counts["rows_by_status"].values())):
        if rows != unit.rows:
            raise RuntimeError(f"{path} has a status for {rows} of the unit's {unit.rows} rows")
    return dataclasses.replace(
        _new_statistics(unit, options),
        output_bytes=size,
        output_checksum=checksum,
        seconds=round(time.monotonic() - start, 3),
        run_rows=unit.rows - counts["kept_rows"],
        run_characters=counts["source_characters"],
        **{**counts, "work": Work(**counts["work"])},
    )


def _count_tables(
    translated: Iterator[_Translated],
    *,
    counts: dict[str, Any],
    unit: TableUnit,
    attempt: _Attempt,
) -> Iterator[pa.Table]:
    """Yield the tables to write, and add up the counts of their rows.

    Raises:
      _FinishedMeanwhileError: Another attempt has finished the unit, so the file must not appear.
    """
    options = attempt.options
    learned: list[Learned] = []
    for each in translated:
        if options.job.corpus is None:
            table, invalid = make_valid(each.table)  # readers refuse texts without UTF-8
            add_counts(counts, {"invalid_cells": invalid})
        else:
            table, dropped = make_pairs(
                each.table, fields=options.table, options=options.job.corpus
            )
            add_counts(counts, {"rows_dropped": dropped})
        add_counts(counts, count_table(each.table, each.found, options=options.table))
        add_counts(counts, {"kept_rows": each.kept_rows, "null_keys": each.null_keys})
        learned += each.found.learned
        del each  # frees the memory before the next table is read
        yield table
        del table
    if options.memory is not None:  # before the record, so that no entry is lost
        options.memory.store(learned)
    _check_unfinished(unit, attempt)


def _new_statistics(unit: TableUnit, options: UnitOptions) -> UnitStatistics:
    return UnitStatistics(
        output_path=unit.output_path,
        relative_path=unit.file.relative_path,
        first_row=unit.first_row,
        rows=unit.rows,
        file_rows=unit.file.rows or 0,
        plan_digest=digest_of(unit, options),
        run_id=options.run_id,
    )
