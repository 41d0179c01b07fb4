"""Count the rows of input files that can only be read from their start."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping

from tt.model.errors import BadFileError
from tt.pipelines.tables.formats import JSONL
from tt.pipelines.tables.parquet import Contents, changed_error
from tt.pipelines.tables.ranges import LineRange
from tt.pipelines.tables.reading import find_row_ranges, scan_file
from tt.pipelines.translate.inputs import check_table, unchanged_file, with_contents, with_fix
from tt.pipelines.translate.job_folder import (
    read_counted,
    read_input,
    statistics_path,
    write_counted,
)
from tt.pipelines.translate.manifest import SkippedFile
from tt.pipelines.translate.options import SKIP
from tt.pipelines.translate.plan import InputFile, fitting_rows, plan_units
from tt.pipelines.translate.unit_records import UnitOptions

_OFFSET_BYTES = 4  # the memory of a cell in addition to its text


def count_rows(
    file: InputFile | SkippedFile, *, options: UnitOptions, limit: int = sys.maxsize
) -> InputFile | SkippedFile:
    """Return a file with its number of rows and its schema; read the file if they are unknown.

    The result is saved, so that a later run does not read the file again. A bad file is returned as
    a `SkippedFile`.

    Args:
      file: The file.
      options: The options of the run.
      limit: The maximum number of rows of the file.

    Raises:
      UserError: The file has changed, or it is bad and `on_bad_file` is not "skip".
    """
    if isinstance(file, SkippedFile) or file.rows is not None:
        return file
    digest = file.plan_digest or options.plan_digest
    place = {"output": options.output, "plan_digest": digest}
    found = read_counted(file.relative_path, **place)
    if found is not None and (isinstance(found, InputFile) or options.job.on_bad_file == SKIP):
        return found
    try:
        with unchanged_file(file):
            contents, ranges = _scan(file, options=options)
        check_table(
            contents,
            path=file.path,
            table=options.table,
            file_format=options.job.format,
            key=options.job.key,
            partitions=dict(file.partitions),
            is_corpus=options.job.corpus is not None,
            keeps_lines=options.job.keeps_lines(file.path),
        )
        if file.footer_checksum not in ("", contents.checksum):
            raise changed_error(file.path)
        found = with_contents(file, contents)
        found = dataclasses.replace(found, rows=min(limit, found.rows or 0), ranges=tuple(ranges))
    except BadFileError as error:
        if options.job.on_bad_file != SKIP:
            raise with_fix(error, has_others=options.has_others) from error
        found = SkippedFile(relative_path=file.relative_path, reason=str(error), rows=None)
    write_counted(found, run_id=options.run_id, **place)
    return found


def _scan(file: InputFile, *, options: UnitOptions) -> tuple[Contents, list[LineRange]]:
    """Return the contents of a file, and the rows of each unit if several workers can read them.

    The rows of CSV, TSV and text are then only counted, because their schema is known.
    """
    read, unit_rows = options.job.read, options.job.unit_rows
    if file.changed is None:  # the job recognizes a small file by its whole content
        return scan_file(file.path, options=read), []
    digest = hashlib.blake2b(digest_size=16)
    find = functools.partial(find_row_ranges, file.path, options=read, size=file.size)
    file_format = read.format_of(file.path)
    has_types = file.schema is None or (file_format is not None and file_format.name == JSONL)
    ranges = find(most_rows=unit_rows, update=None if has_types else digest.update)
    if has_types or not ranges:
        contents = scan_file(file.path, options=read)
    else:
        rows = sum(each.rows for each in ranges)
        contents = Contents(
            size=file.size,
            rows=rows,
            checksum=digest.hexdigest(),
            schema=file.schema,
            content_bytes=file.size + _OFFSET_BYTES * rows * len(file.schema or ()),
        )
    fitting = fitting_rows(rows=contents.rows or 0, content_bytes=contents.content_bytes)
    if ranges and fitting and fitting < unit_rows:
        ranges = find(most_rows=fitting)
    return contents, ranges


def read_files(output: str, *, options: UnitOptions) -> Iterator[InputFile | SkippedFile]:
    """Yield the input files of a run.

    If the job has a row limit, this function counts the rows of files until it reaches the limit.
    """
    left = options.job.limit
    for file in read_input(output, plan_digest=options.plan_digest):
        if isinstance(file, SkippedFile):
            continue
        if left is None:
            yield file
        elif left > 0:
            found = count_rows(file, options=options, limit=left)
            left -= found.rows or 0
            yield found


def find_unit_rows(
    relative_path: str, *, output: str, plan_digests: Mapping[str, str], unit_rows: int
) -> dict[str, int] | None:
    """Return the number of rows in each unit of a file, by the path of the unit's record.

    Returns None before the rows of the file have been counted, and {} if the file is skipped.

    Args:
      relative_path: The relative path of the file.
      output: The output folder.
      plan_digests: The digest of the plan of each file's generation, by the file's relative path.
      unit_rows: The maximum number of rows in a unit.
    """
    digest = plan_digests[relative_path]
    file = read_counted(relative_path, output=output, plan_digest=digest)
    if not isinstance(file, InputFile):
        return None if file is None else {}
    units = plan_units(file, unit_rows=unit_rows)
    return {statistics_path(unit.output_path): unit.rows for unit in units}
