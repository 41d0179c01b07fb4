"""The records of units, which show what is finished.

A unit is finished if its output file has the size in its record, `_tt/units/...json`. The record is
written after the output file, so a unit that was interrupted is translated again.
"""

from __future__ import annotations

import dataclasses

from tt.model.errors import counted
from tt.model.storage.files import write_new
from tt.model.storage.listing import find_size, list_files
from tt.model.storage.stores import StorageOptions
from tt.pipelines.memory.memory import TranslationMemory
from tt.pipelines.tables.writing import file_state
from tt.pipelines.translate.job_folder import statistics_path, to_text, write_json
from tt.pipelines.translate.manifest import UnitStatistics, read_statistics
from tt.pipelines.translate.options import SKIP, TranslateOptions
from tt.pipelines.translate.plan import UNITS_FOLDER, TableUnit
from tt.pipelines.translate.previous import PreviousRows
from tt.pipelines.translate.table import TableOptions


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
      is_deduplicated: Whether the job translates each distinct sentence before its units.
      committed: The plan digests of the generations whose output is part of the table. Other
        programs may have rewritten these output files.
      previous: The earlier output whose translations the job keeps; None without `key`.
      storage: The addresses of object stores.
    """

    output: str
    job: TranslateOptions
    table: TableOptions
    run_id: str
    plan_digest: str
    memory: TranslationMemory | None = None
    most_at_once: int = 1
    has_others: bool = True
    is_deduplicated: bool = False
    committed: frozenset[str] = frozenset()
    previous: PreviousRows | None = None
    storage: StorageOptions = dataclasses.field(
        default_factory=StorageOptions.of_this_process, compare=False
    )


def find_finished(unit: TableUnit, *, options: UnitOptions) -> UnitStatistics | None:
    """Return the record of a unit, or None if the unit is not finished."""
    found = read_statistics(output=options.output, path=statistics_path(unit.output_path))
    if found is None or (found.first_row, found.rows) != (unit.first_row, unit.rows):
        return None
    # A worker of an overwritten job may have written the record.
    if found.plan_digest != digest_of(unit, options):
        return None
    if found.plan_digest in options.committed:
        return found
    if found.skipped:
        return found if unit.file.is_removed or options.job.on_bad_file == SKIP else None
    is_whole = find_size(f"{options.output}/{unit.output_path}") == found.output_bytes
    return found if is_whole else None


def describe_newer_corrections(
    memory: TranslationMemory, *, output: str, is_table: bool
) -> list[str]:
    """Return a notice if the memory has corrections that are newer than a finished unit.

    Args:
      memory: The memory that the user chose.
      output: The output folder.
      is_table: Whether the output is a table.
    """
    times = [file.changed for file in list_files(f"{output}/{UNITS_FOLDER}") if file.changed]
    count = memory.count_corrections(after=min(times)) if times else 0
    if not count:
        return []
    fix = "choose another `output`" if is_table else "set `overwrite`"
    return [
        f"{counted(count, 'human translation')} in `memory` {'is' if count == 1 else 'are'} newer "
        f"than finished rows, which do not change. To apply the memory to all rows, {fix}"
    ]


def digest_of(unit: TableUnit, options: UnitOptions) -> str:
    """Return the digest of the plan that the record of a unit must contain."""
    return unit.file.plan_digest or options.plan_digest


def mark_reused(found: UnitStatistics, options: UnitOptions) -> UnitStatistics:
    """Return the record of a finished unit, marked as reused if an earlier run wrote it."""
    if found.run_id == options.run_id:
        return found
    return dataclasses.replace(found, was_reused=True, run_rows=0, run_characters=0)


def record_unit(statistics: UnitStatistics, *, options: UnitOptions) -> UnitStatistics:
    """Write the record of a unit, and return a record that matches the output file.

    Two simultaneous attempts may write different scores, because processors round differently. Both
    may replace the output file before one of them writes its record. Therefore, an attempt that
    finds another record compares the file with its own record after it has written that. The
    attempt that writes the last record sees the last file.
    """
    path = f"{options.output}/{statistics_path(statistics.output_path)}"
    if write_new(path, to_text(statistics.to_json())):
        return statistics
    while True:
        write_statistics(statistics, options=options)
        size, checksum = file_state(f"{options.output}/{statistics.output_path}")
        if (size, checksum) == (statistics.output_bytes, statistics.output_checksum):
            return statistics
        # The other attempt translated the same rows, so only the bytes differ.
        statistics = dataclasses.replace(statistics, output_bytes=size, output_checksum=checksum)


def write_statistics(statistics: UnitStatistics, *, options: UnitOptions) -> None:
    """Write the record of a unit, without a check of the output file."""
    path = statistics_path(statistics.output_path)
    write_json(statistics.to_json(), output=options.output, path=path, run_id=options.run_id)
