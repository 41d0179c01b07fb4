"""What a run of the Parquet job is to do: looked up before anything is written."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from model.errors import UserError
from model.transformer.config import Decoding
from pipelines.runners.runner import set_file_system_options
from pipelines.storage import parquet
from pipelines.storage.files import list_files
from pipelines.translate.inputs import FoundInput, check_matches, check_place, inspect_input
from pipelines.translate.plan import (
    JOB_FOLDER,
    MANIFEST_FILE,
    PLAN_FILE,
    RETRY_FILE,
    TranslateOptions,
    check_plan,
    find_overwritten,
    installed_versions,
    make_plan,
    plan_digest,
    read_json,
)
from pipelines.translate.units import UnitStatistics

# In the output folder.
PLAN_PATH = f"{JOB_FOLDER}/{PLAN_FILE}"
MANIFEST_PATH = f"{JOB_FOLDER}/{MANIFEST_FILE}"
RETRY_PATH = f"{JOB_FOLDER}/{RETRY_FILE}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateJob:
    """What a run is to do; nothing has been written yet.

    Attributes:
      options: What to translate, and where to.
      output: The output folder, absolute or with its scheme.
      found: The input.
      plan: The content of `plan.json`.
      decoding: How translations are searched for.
      beam_arguments: Beam's own flags.
      run_id: Names this run.
      has_plan: Whether the plan stands in the folder already.
      existing: What lies in the folder and is to stay, relative to it.
      deleted: What lies there and is to be deleted first, in this order.
      manifest: That of a finished folder, else None.
      notices: Lines that the user should read.
    """

    options: TranslateOptions
    output: str
    found: FoundInput
    plan: dict[str, Any]
    decoding: Decoding
    beam_arguments: tuple[str, ...]
    run_id: str
    has_plan: bool = False
    existing: frozenset[str] = frozenset()
    deleted: tuple[str, ...] = ()
    manifest: dict[str, Any] | None = None
    notices: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all units."""
        return sum(file.rows for file in self.found.files)

    @functools.cached_property
    def plan_digest(self) -> str:
        """Tells units of this plan from those of any other."""
        return plan_digest(self.plan)

    def is_done(self, unit: UnitStatistics) -> bool:
        """Says whether a unit is finished for this run: not where that is deleted or redone."""
        if unit.run_id == self.run_id:
            return True
        return not self.deleted and unit.plan_digest == self.plan_digest

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to do."""
        if self.manifest is None:
            return False
        has_bad_units = bool(self.manifest["failed_rows"] or self.manifest["skipped_units"])
        return not (self.options.retry_failed and has_bad_units)


def plan_translation(
    *,
    options: TranslateOptions,
    model_fingerprint: str,
    decoding: Decoding,
    engine: Mapping[str, Any] | None = None,
    languages: Mapping[str, str] | None = None,
    beam_arguments: Sequence[str] = (),
) -> TranslateJob:
    """Looks at the input and at the output folder; writes nothing.

    Args:
      options: What to translate, and where to.
      model_fingerprint: Of the exported model; outputs of another one are not continued.
      decoding: How translations are searched for.
      engine: What computes, and how: part of the plan.
      languages: Of the model, "source" and "target": told in the plan, but no part of it.
      beam_arguments: Beam's own flags.

    Raises:
      UserError: The input or the output folder does not fit.
    """
    set_file_system_options(beam_arguments)
    output = parquet.normalize_path(options.output)
    check_place(options, output=output)
    found = inspect_input(options, has_n_best=decoding.n_best > 1)
    plan = make_plan(
        files=found.files,
        bad_files=found.bad_files,
        options=options,
        text_columns=found.text_columns,
        model_fingerprint=model_fingerprint,
        decoding=decoding,
        engine=engine or {},
        languages=languages,
    )
    check_matches(options.input, output=output, plan=plan)
    job = with_folder(
        TranslateJob(
            options=options,
            output=output,
            found=found,
            plan=plan,
            decoding=decoding,
            beam_arguments=tuple(beam_arguments),
            run_id=uuid.uuid4().hex,
        )
    )
    notices = [f"skipped: {reason}" for reason in found.bad_files.values()]
    if job.has_plan and (job.manifest is None or options.retry_failed):
        notices += _compare_versions(job.plan)
    return dataclasses.replace(job, notices=tuple(notices))


def with_folder(job: TranslateJob) -> TranslateJob:
    """Returns a job with what its output folder holds now.

    Raises:
      UserError: The folder holds another job or something else, or nothing to retry.
    """
    options, output = job.options, job.output
    sizes = {file.path.removeprefix(f"{output}/"): file.size for file in list_files(output)}
    existing = set(sizes)
    deleted: list[str] = []
    if options.overwrite:
        deleted = find_overwritten(job.plan, output=output, existing=existing)
        existing -= set(deleted)
    standing = check_plan(job.plan, output=output, existing=existing)
    manifest = _find_manifest(output=output, sizes={path: sizes[path] for path in existing})
    if options.retry_failed and manifest is None and RETRY_PATH not in existing:
        raise UserError(
            f"{options.output} is not finished, so that there is nothing to retry yet: run the "
            "same command without --retry-failed first"
        )
    return dataclasses.replace(
        job,
        plan=standing or {**job.plan, "versions": installed_versions()},
        has_plan=bool(standing),
        existing=frozenset(existing),
        deleted=tuple(deleted),
        manifest=manifest,
    )


def _find_manifest(*, output: str, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """Returns the manifest if it is still true: each output is there, with the size that it had.

    Args:
      output: The folder.
      sizes: Of the files in it, by path relative to it.
    """
    if MANIFEST_PATH not in sizes:
        return None
    manifest = read_json(f"{output}/{MANIFEST_PATH}")
    expected = manifest.get("output_bytes")
    if not isinstance(expected, dict):  # of an older tt
        return None
    is_true = all(sizes.get(path) == size for path, size in expected.items())
    return manifest if is_true else None


def _compare_versions(standing: dict[str, Any]) -> list[str]:
    ours, theirs = installed_versions(), standing["versions"]
    changed = [
        f"{name} was {theirs.get(name, 'not there')} and is {version}"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]
    if not changed:
        return []
    return [
        f"this run goes on under other versions than the one that began it: {'; '.join(changed)}. "
        "What is finished stays as it is, and the manifest says which units are whose"
    ]
