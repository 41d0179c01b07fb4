"""A unit of work: a run of rows of one file to one output file, and what doing it took.

A unit is finished when its output file and its statistics, `_tt/units/...json`, are both there and
fit each other. The statistics come second, so that a unit that was cut short is done again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from model.engines.progress import begin_rows
from model.engines.translator import Translator, Work
from model.errors import BadFileError, UserError
from pipelines.storage import parquet
from pipelines.storage.files import make_folder, open_binary, read_bytes, write_whole
from pipelines.storage.listing import exists
from pipelines.storage.parquet import ForwardReader
from pipelines.storage.paths import is_local
from pipelines.tables.formats import PARQUET, output_suffix
from pipelines.tables.reading import OpenTable
from pipelines.tables.writing import file_state, write_table
from pipelines.texts.translating import TranslatedTexts
from pipelines.translate.job_folder import (
    JOB_FOLDER,
    read_glossary,
    rows_path,
    statistics_path,
    write_json,
)
from pipelines.translate.options import SKIP
from pipelines.translate.plan import (
    InputFile,
    TableUnit,
    count_rows_read,
    cut_runs,
    installed_versions,
    plan_units,
)
from pipelines.translate.table import (
    TableOptions,
    count_failed_rows,
    count_flags,
    count_statuses,
    has_added,
    retry_table,
    translate_table,
)

# Rows that may be read for each row of a file on an object store; where runs would read more, its
# rows are put into files of the job's.
_MOST_READ = 1.2


def _this_worker() -> dict[str, Any]:
    thread = threading.get_ident()
    return {"host": socket.gethostname(), "process": os.getpid(), "thread": thread}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """What the manifest and the progress line need of a unit; also the content of its JSON."""

    output_path: str  # the output file, relative to the output folder
    relative_path: str  # the input file's
    first_row: int  # index in the input file
    rows: int  # rows of the unit
    plan_digest: str = ""  # digest of the plan under which it was done
    skipped: str = ""  # why there is no output file; "" where there is one
    output_bytes: int = 0  # size of the output file
    output_checksum: str = ""  # checksum of its footer if it is Parquet, else of all
    # Rows of each of the STATUSES, by text column.
    rows_by_status: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    # Rows of each of the FLAGS, by text column; none of a unit that an older `tt` did.
    rows_by_flag: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    failed_rows: int = 0  # rows of which a cell failed
    texts: int = 0  # texts that had to be translated, each occurrence counted
    distinct_texts: int = 0  # texts that the model translated
    source_characters: int = 0  # characters of all texts
    terms_found: int = 0  # terms of the glossary in all texts
    terms_kept: int = 0  # those of them whose translation stands in the text's
    work: Work = dataclasses.field(default_factory=Work)  # work of the model
    seconds: float = 0.0  # seconds that the last run worked on it, reading and writing included
    run_id: str = ""  # name of that run
    run_rows: int = 0  # rows that it translated
    run_characters: int = 0  # their characters
    # Worker that did it: its host, process and thread.
    worker: dict[str, Any] = dataclasses.field(default_factory=_this_worker)
    # Versions of its programs.
    versions: dict[str, str] = dataclasses.field(default_factory=installed_versions)
    was_reused: bool = False  # whether an earlier run had done it

    @property
    def rows_out(self) -> int:
        """Rows of the output file."""
        return 0 if self.skipped else self.rows

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file."""
        content = dataclasses.asdict(self)
        del content["was_reused"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> UnitStatistics:
        """Makes statistics of the content of their file.

        Raises:
          TypeError, ValueError, KeyError: It is not what `to_json` returns.
        """
        return cls(**content | {"work": Work(**content["work"])})


def read_statistics(*, output: str, path: str) -> UnitStatistics | None:
    """Reads the statistics of a unit; None if missing or of another version of `tt`."""
    if not exists(f"{output}/{path}"):
        return None
    content = read_bytes(f"{output}/{path}")
    try:
        return UnitStatistics.from_json(json.loads(content))
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitOptions:
    """How units are done."""

    output: str
    table: TableOptions
    compression: str  # compression of the output files
    on_bad_file: str  # `fail`, or `skip` units that cannot be read
    run_id: str  # name of this run
    plan_digest: str  # digest of this run's plan; a unit done under another plan is done again
    retry_failed: bool = False  # whether the failed rows of finished units are translated again
    format: str = PARQUET  # format of the output files
    most_at_once: int = 1  # units that a worker reads at once, and does one after the other
    # Digest of the glossary, which workers read in the job's folder: `table` has none until then.
    glossary_digest: str | None = None

    @property
    def suffix(self) -> str:
        """Suffix of the output files."""
        return output_suffix(file_format=self.format, compression=self.compression)

    def with_glossary(self) -> UnitOptions:
        """Returns these options with the glossary, if there is one, as units need them.

        Raises:
          UserError: Another run has overwritten the folder.
        """
        if self.glossary_digest is None:
            return self
        glossary = read_glossary(self.output, digest=self.glossary_digest)
        return dataclasses.replace(self, table=dataclasses.replace(self.table, glossary=glossary))


def cut_file(file: InputFile, *, unit_rows: int, options: UnitOptions) -> list[list[TableUnit]]:
    """Cuts a file into units, and these into runs, of which each is read at once.

    A file that is read from its start is read once: the rows of each unit that there is something
    to do for are put into a file of the job's. So are those of Parquet on an object store where
    runs would read much of it again, since a row group holds more rows than a run does.

    Raises:
      UserError: The file has changed since the run was planned.
    """
    plain = dataclasses.replace(file, group_rows=())  # units need not carry them
    units = plan_units(plain, unit_rows=unit_rows, suffix=options.suffix)
    if file.schema is None:
        runs = cut_runs(units, group_rows=file.group_rows, most=options.most_at_once)
        read = count_rows_read(runs, group_rows=file.group_rows)
        if is_local(file.path) or read <= _MOST_READ * file.rows:
            return runs
    units = [
        dataclasses.replace(unit, rows_path=rows_path(unit.output_path, run_id=options.run_id))
        if _needs_rows(unit, options)
        else unit
        for unit in units
    ]
    if file.schema is None:
        units = _spread_parquet(units, file=file, options=options)
    elif any(unit.rows_path for unit in units):
        _spread_rows(units, file=file, schema=file.schema, options=options)
    return [[unit] for unit in units]


def open_run(units: Sequence[TableUnit]) -> ForwardReader:
    """Opens the Parquet file of a run of units; nothing is read before rows are asked for."""
    file, last = units[0].file, units[-1]
    return ForwardReader(
        file.path,
        footer_checksum=file.footer_checksum,
        end=last.first_row + last.rows,
        most_rows=max(unit.rows for unit in units),
    )


def _spread_parquet(
    units: list[TableUnit], *, file: InputFile, options: UnitOptions
) -> list[TableUnit]:
    """Returns the units; those whose rows cannot be read without a path to them, to fail alone."""
    spread = []
    with open_run(units) as reader:
        for unit in units:
            if unit.rows_path:
                try:
                    table = reader.read(first_row=unit.first_row, rows=unit.rows)
                    _write_rows(table, unit=unit, options=options)
                except BadFileError:
                    unit = dataclasses.replace(unit, rows_path="")
            spread.append(unit)
    return spread


def _needs_rows(unit: TableUnit, options: UnitOptions) -> bool:
    found = find_finished(unit, options=options)
    return found is None or (options.retry_failed and bool(found.skipped or found.failed_rows))


def _spread_rows(
    units: list[TableUnit], *, file: InputFile, schema: pa.Schema, options: UnitOptions
) -> None:
    is_parquet = options.format == PARQUET
    written = 0
    try:
        with OpenTable(file.path, schema=schema) as opened:
            kept = parquet.schema_as_read(schema) if is_parquet else schema
            tables = opened.runs([unit.rows for unit in units])
            for unit, table in zip(units, tables, strict=False):
                written += 1
                if unit.rows_path:
                    # One chunk, so that the bytes of the output depend on nothing but the rows.
                    table = table.unify_dictionaries().cast(kept).combine_chunks()
                    _write_rows(table, unit=unit, options=options)
            found = opened.finish()
    except BadFileError as error:
        raise parquet.changed_error(file.path) from error
    if written != len(units) or found != (file.size, file.footer_checksum):
        raise parquet.changed_error(file.path)


def _write_rows(table: pa.Table, *, unit: TableUnit, options: UnitOptions) -> None:
    path = f"{options.output}/{unit.rows_path}"
    make_folder(path.rpartition("/")[0])
    compressed = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        write_whole(
            path, temporary_folder=f"{options.output}/{JOB_FOLDER}", run_id=options.run_id
        ) as handle,
        pa.ipc.new_stream(handle, table.schema, options=compressed) as writer,
    ):
        writer.write_table(table)


def _read_rows(unit: TableUnit, *, options: UnitOptions, reader: ForwardReader) -> pa.Table:
    """Reads the rows of a unit.

    Raises:
      BadFileError: The input is damaged.
      UserError: The input has changed.
    """
    if not unit.rows_path:
        return reader.read(first_row=unit.first_row, rows=unit.rows)
    with open_binary(f"{options.output}/{unit.rows_path}") as handle:
        return pa.ipc.open_stream(handle).read_all()


def finish_unit(
    unit: TableUnit, *, options: UnitOptions, translator: Translator, reader: ForwardReader
) -> UnitStatistics:
    """Does what is missing of a unit, with the reader of its run (see `open_run`).

    Two copies at once write the same files.

    Raises:
      UserError: The input cannot be read and is not to be skipped, or has changed.
    """
    try:
        return _do_what_is_missing(unit, options=options, translator=translator, reader=reader)
    finally:
        pa.default_memory_pool().release_unused()  # else Arrow keeps what the largest unit took


def _do_what_is_missing(
    unit: TableUnit, *, options: UnitOptions, translator: Translator, reader: ForwardReader
) -> UnitStatistics:
    found = find_finished(unit, options=options)
    if found is None:
        return _write_unit(unit, options=options, translator=translator, reader=reader)
    if found.run_id == options.run_id:  # another copy of this unit, or this again
        return found
    if options.retry_failed and found.skipped:
        return _write_unit(unit, options=options, translator=translator, reader=reader)
    if options.retry_failed and found.failed_rows:
        return _retry_unit(unit, found, options=options, translator=translator, reader=reader)
    return dataclasses.replace(found, was_reused=True, run_rows=0, run_characters=0)


def find_finished(unit: TableUnit, *, options: UnitOptions) -> UnitStatistics | None:
    """Returns the statistics of a finished unit; None if it is not, so that it is done again."""
    found = read_statistics(output=options.output, path=statistics_path(unit.output_path))
    if found is None or (found.first_row, found.rows) != (unit.first_row, unit.rows):
        return None
    if found.plan_digest != options.plan_digest:  # a worker of a job that was overwritten
        return None
    if found.skipped:
        return found if options.on_bad_file == SKIP else None
    path = f"{options.output}/{unit.output_path}"
    if not exists(path):
        return None
    try:
        is_whole = file_state(path) == (found.output_bytes, found.output_checksum)
    except BadFileError:
        return None
    return found if is_whole else None


def _write_unit(
    unit: TableUnit, *, options: UnitOptions, translator: Translator, reader: ForwardReader
) -> UnitStatistics:
    start = time.monotonic()
    try:
        table = _read_rows(unit, options=options, reader=reader)
    except BadFileError as error:
        if options.on_bad_file != SKIP:
            raise UserError(
                f"{error}. Fetch the file again, or go on without such rows by `on_bad_file=skip`"
            ) from error
        statistics = dataclasses.replace(_new_statistics(unit, options), skipped=str(error))
    else:
        with begin_rows(unit.rows):
            table, found = translate_table(table, options=options.table, translator=translator)
        statistics = _write_output(table, unit=unit, options=options, found=found, start=start)
    _write_statistics(statistics, options=options)
    return statistics


def _retry_unit(
    unit: TableUnit,
    found: UnitStatistics,
    *,
    options: UnitOptions,
    translator: Translator,
    reader: ForwardReader,
) -> UnitStatistics:
    """Replaces the output file by one in which the failed rows have been tried again.

    Where the output file is damaged, or does not hold the types of the columns, or lacks some, all
    of the unit is done again.
    """
    if options.format != PARQUET:
        return _write_unit(unit, options=options, translator=translator, reader=reader)
    start = time.monotonic()
    try:
        table = parquet.read_rows(
            path=f"{options.output}/{unit.output_path}",
            first_row=0,
            rows=unit.rows,
            footer_checksum=found.output_checksum,
        )
    except BadFileError:
        return _write_unit(unit, options=options, translator=translator, reader=reader)
    if not has_added(table, options=options.table):
        return _write_unit(unit, options=options, translator=translator, reader=reader)
    table, retried = retry_table(table, options=options.table, translator=translator)
    statistics = _write_output(table, unit=unit, options=options, found=retried, start=start)
    statistics = dataclasses.replace(  # with what the first time took
        statistics,
        texts=found.texts + retried.texts,
        distinct_texts=found.distinct_texts + retried.distinct_texts,
        source_characters=found.source_characters,
        terms_found=found.terms_found,  # which a failed row was counted among
        terms_kept=found.terms_kept + retried.terms.kept,
        work=found.work + retried.work,
        run_rows=found.failed_rows,
    )
    _write_statistics(statistics, options=options)
    return statistics


def _write_output(
    table: pa.Table, *, unit: TableUnit, options: UnitOptions, found: TranslatedTexts, start: float
) -> UnitStatistics:
    path = f"{options.output}/{unit.output_path}"
    make_folder(path.rpartition("/")[0])
    with write_whole(
        path, temporary_folder=f"{options.output}/{JOB_FOLDER}", run_id=options.run_id
    ) as handle:
        write_table(table, handle, file_format=options.format, compression=options.compression)
    size, checksum = file_state(path)
    counts = count_statuses(table, options=options.table)
    for rows in (table.num_rows, *(sum(of_column.values()) for of_column in counts.values())):
        if rows != unit.rows:
            raise RuntimeError(f"{path} has {rows} rows with a status of the unit's {unit.rows}")
    return dataclasses.replace(
        _new_statistics(unit, options),
        output_bytes=size,
        output_checksum=checksum,
        rows_by_status=counts,
        rows_by_flag=count_flags(table, options=options.table),
        failed_rows=count_failed_rows(table, options=options.table),
        texts=found.texts,
        distinct_texts=found.distinct_texts,
        source_characters=found.source_characters,
        terms_found=found.terms.found,
        terms_kept=found.terms.kept,
        work=found.work,
        seconds=round(time.monotonic() - start, 3),
        run_rows=unit.rows,
        run_characters=found.source_characters,
    )


def _new_statistics(unit: TableUnit, options: UnitOptions) -> UnitStatistics:
    return UnitStatistics(
        output_path=unit.output_path,
        relative_path=unit.file.relative_path,
        first_row=unit.first_row,
        rows=unit.rows,
        plan_digest=options.plan_digest,
        run_id=options.run_id,
    )


def _write_statistics(statistics: UnitStatistics, *, options: UnitOptions) -> None:
    path = statistics_path(statistics.output_path)
    make_folder(f"{options.output}/{path}".rpartition("/")[0])
    write_json(statistics.to_json(), output=options.output, path=path, run_id=options.run_id)
