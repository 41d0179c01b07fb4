"""The last step of a translation job: add up the units, and write the manifest."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping

from tt.model.errors import UnfinishedError
from tt.model.storage.files import delete, read_bytes
from tt.model.storage.listing import ListedFile, list_files
from tt.pipelines.tables.lakehouse import OutputTable
from tt.pipelines.translate.bad_rows import join_bad_rows
from tt.pipelines.translate.job_folder import (
    MANIFEST_PATH,
    OWN_FILES,
    PLAN_PATH,
    RETRY_PATH,
    TEMPORARY_SUFFIX,
    delete_temporary_folders,
    overwritten_error,
    read_input,
    read_json,
    sentences_path,
    statistics_path,
    write_json,
)
from tt.pipelines.translate.lakehouse import committed_files, publish_units
from tt.pipelines.translate.manifest import SkippedFile, UnitTotals, make_manifest, read_statistics
from tt.pipelines.translate.plan import InputFile, plan_digest, planned_outputs
from tt.pipelines.translate.unit_records import UnitOptions

_LONGEST_WRITE = 24 * 3600  # the maximum time to write a temporary file, in seconds


def find_leftovers(
    files: Iterable[ListedFile], *, run_id: str, is_exclusive: bool, now: float
) -> list[str]:
    """Return the paths of temporary files that no run is still writing.

    Args:
      files: The files of the job's folder.
      run_id: The name of this run, whose units are all finished.
      is_exclusive: Whether no other run can use the folder.
      now: The current time, in seconds since 1970.
    """
    return [
        file.path
        for file in files
        if file.path.endswith(TEMPORARY_SUFFIX)
        and (is_exclusive or f".{run_id}." in file.path or 0 < file.changed < now - _LONGEST_WRITE)
    ]


def recorded_sizes(
    expected: Mapping[str, int],
    *,
    output: str,
    sizes: Mapping[str, int],
    committed: Collection[str] = (),
) -> dict[str, int]:
    """Return the size of each output file in bytes, for the manifest.

    A second attempt at a unit may replace the file and the record of the first attempt, while the
    runner keeps the statistics of the first attempt. In this case, the record has the right size.

    Args:
      expected: The size of each output file according to the runner, by relative path.
      output: The output folder.
      sizes: The actual size of each file in the folder, by relative path.
      committed: The output files of earlier generations that are part of a table. Other programs
        may have rewritten them.

    Raises:
      UnfinishedError: An output file is missing, or does not match its record.
    """
    found = dict(expected)
    for path, size in expected.items():
        if sizes.get(path) == size or path in committed:
            continue
        record = read_statistics(output=output, path=statistics_path(path))
        if record is None or record.output_bytes != sizes.get(path):
            raise UnfinishedError(
                f"{output}/{path} was changed or deleted while the job was running. Run the same "
                "command again to translate this unit again"
            )
        found[path] = record.output_bytes
    return found


def write_manifest(
    totals: UnitTotals,
    *,
    options: UnitOptions,
    is_exclusive: bool,
    unread_files: Mapping[str, int],
    table: OutputTable | None = None,
) -> None:
    """Write the manifest, which is the last step of the job.

    The runner may repeat this step, which then writes the same manifest.

    Args:
      totals: The totals of all units.
      options: The options of the job's units. Its memory gets the entries of the job.
      is_exclusive: Whether no other run can use the folder.
      unread_files: The number of files in input folders that are no tables, by ending.
      table: The table to which the output files are added first; None for a folder.

    Raises:
      UserError: Another run has overwritten the folder, or an output file has changed.
    """
    output, run_id, digest = options.output, options.run_id, options.plan_digest
    plan = read_json(f"{output}/{PLAN_PATH}")
    if plan_digest(plan) != digest:
        raise overwritten_error(output)
    if options.memory is not None and not options.memory.is_temporary:
        options.memory.merge()
    folder = f"{output}/"
    listed = list_files(output)
    every = UnitTotals()  # Beam does not allow changes of `totals`
    every.merge(totals)
    # Other files in the folder of sentences belong to plans that another plan has replaced.
    digests = {digest, *(each.get("plan_digest", "") for each in plan.get("generations", ()))}
    sentences = {f"{folder}{sentences_path(each)}" for each in digests}
    for file in listed:
        if file.path in sentences:
            every.add_sentences(json.loads(read_bytes(file.path)))
    every_file = [*read_input(output, plan_digest=digest)]
    skipped = [file for file in every_file if isinstance(file, SkippedFile)]
    skipped += [totals.bad_files[name] for name in sorted(totals.bad_files)]
    manifest = make_manifest(
        plan={**plan, "bad_files": {file.relative_path: file.reason for file in skipped}},
        totals=every,
        bad_rows={file.relative_path: file.rows for file in skipped},
        max_failed=options.job.max_failed,
    )
    manifest["unread_files"] = dict(unread_files)
    manifest["bad_rows"] = join_bad_rows(
        [file for file in every_file if isinstance(file, InputFile)],
        output=output,
        plan_digest=digest,
        run_id=run_id,
        existing={file.path.removeprefix(folder) for file in listed},
    )
    manifest["output_bytes"] = recorded_sizes(
        manifest["output_bytes"],
        output=output,
        sizes={file.path.removeprefix(folder): file.size for file in listed},
        committed=planned_outputs(
            {**plan, "input": committed_files(plan, committed=plan.get("committed", 0))}
        ),
    )
    files = [file for file in listed if OWN_FILES.fullmatch(file.path.removeprefix(folder))]
    # Delete these before writing the manifest, because no run looks for them in a finished folder.
    delete(find_leftovers(files, run_id=run_id, is_exclusive=is_exclusive, now=time.time()))
    if table is not None:
        planned = read_input(output, plan_digest=digest)
        publish_units(table, planned, plan=plan, sizes=manifest["output_bytes"])
    write_json(manifest, output=output, path=MANIFEST_PATH, run_id=run_id)
    # Delete these only now, because the runner may repeat earlier steps, which need these files.
    delete_temporary_folders(output, is_finished=True)
    delete([file.path for file in files if file.path.endswith(f"/{RETRY_PATH}")])
