"""Compare a requested job with the state of its output folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tt.model.errors import UserError
from tt.model.storage.listing import list_files
from tt.pipelines.tables.lakehouse import OutputTable
from tt.pipelines.translate import job_folder
from tt.pipelines.translate.generations import InputChanges, gone_files, next_plan
from tt.pipelines.translate.lakehouse import find_removed, last_committed
from tt.pipelines.translate.options import TranslateOptions
from tt.pipelines.translate.plan import installed_versions, planned_outputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderState:
    """What a job finds in its output folder, and what it must do there first.

    Attributes:
      plan: The content of `plan.json`.
      changes: The changes of the input since the last run.
      has_plan: Whether the folder already contains the plan.
      existing: The files of the folder that remain, as relative paths.
      deleted: The files to delete first, as relative paths, in this order.
      previous_plan: The plan before this generation; None if this run begins no generation.
      moved: The output files whose translations are kept, as relative paths.
      manifest: The manifest of a finished folder, or None.
    """

    plan: dict[str, Any]
    changes: InputChanges = dataclasses.field(default_factory=InputChanges)
    has_plan: bool = False
    existing: frozenset[str] = frozenset()
    deleted: tuple[str, ...] = ()
    previous_plan: dict[str, Any] | None = None
    moved: tuple[str, ...] = ()
    manifest: dict[str, Any] | None = None


def find_state(
    requested: Mapping[str, Any],
    *,
    output: str,
    options: TranslateOptions,
    table: OutputTable | None,
) -> FolderState:
    """Return the state of an output folder.

    Args:
      requested: The plan of the request alone, without earlier generations.
      output: The output folder.
      options: The options of the job.
      table: The table to which the job adds its output files; None for a folder.

    Raises:
      UserError: The folder belongs to another job, has other files, or has nothing to retry; or
        another program has rewritten the table.
    """
    is_table = table is not None
    sizes = {file.path.removeprefix(f"{output}/"): file.size for file in list_files(output)}
    existing, deleted = set(sizes), list[str]()
    if options.overwrite:
        deleted = job_folder.find_overwritten(requested, output=output, existing=existing)
        existing -= set(deleted)
    saved, changes = job_folder.check_plan(
        requested, output=output, existing=existing, options=options, is_table=is_table
    )
    plan, moved = saved or dict(requested), list[str]()
    if changes:
        plan = next_plan(saved, requested, changes=changes, options=options)
        replaced, outputs = _find_replaced(saved, plan, existing=existing)
        existing -= {*replaced, *outputs}
        deleted += replaced
        if options.key:
            moved = outputs
        elif table is not None:
            finished = job_folder.MANIFEST_PATH in sizes
            committed = last_committed(table, plan=saved, is_finished=finished)
            plan["committed"] = committed
            # The last step of the job removes these files from the table.
            removed = find_removed(table, saved, plan, committed=committed)
            plan["removed_outputs"] = removed
            deleted += sorted(set(outputs) - set(removed))
        else:
            deleted += outputs
    manifest = None  # without a plan, the manifest may belong to another job
    if saved and not changes:
        manifest = job_folder.find_manifest(
            output=output, sizes={path: sizes[path] for path in existing}, is_table=is_table
        )
    is_begun = manifest is not None or job_folder.RETRY_PATH in existing or changes
    if options.retry_failed and not is_begun:
        raise UserError(
            f"{options.output} is not finished, so there is nothing to retry yet. Run the same "
            "command without `retry_failed` first"
        )
    has_plan = bool(saved) and not changes
    return FolderState(
        plan=plan if has_plan else {**plan, "versions": installed_versions()},
        changes=changes,
        has_plan=has_plan,
        existing=frozenset(existing),
        deleted=tuple(deleted),
        previous_plan=saved if changes else None,
        moved=tuple(moved),
        manifest=manifest,
    )


def _find_replaced(
    saved: Mapping[str, Any], plan: Mapping[str, Any], *, existing: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the files that a new generation deletes first, in order, and the replaced outputs.

    The manifest is deleted first, so that no run takes the folder for finished.

    Args:
      saved: The plan in the output folder.
      plan: The plan of the new generation.
      existing: Paths of the files in the folder, relative to it.
    """
    existing = set(existing)
    gone = gone_files(saved, plan)
    outputs = planned_outputs({**saved, "input": gone}, existing)
    records = [job_folder.statistics_path(path) for path in outputs]
    counted = [f"{job_folder.FILES_FOLDER}/{name}.json" for name in gone]
    deleted = (job_folder.MANIFEST_PATH, job_folder.RETRY_PATH, *records, *counted)
    return [path for path in deleted if path in existing], [p for p in outputs if p in existing]
