"""The dataset folder: claimed by one run, continued, or refused."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.errors import UserError
from model.folders.differences import describe_differences
from model.text.vocabulary import VOCABULARY_FILE
from pipelines.corpora.opening import SourceList
from pipelines.pairs.work_folder import RUN_FILE, WORK_FOLDER
from pipelines.preprocess.options import as_given
from pipelines.preprocess.plan import DatasetPlan, PreprocessPlan
from pipelines.storage import files, listing, paths
from pipelines.storage.paths import join


def check_output(plan: PreprocessPlan) -> DatasetManifest | None:
    """Checks that the folder is ours to write to; returns a finished manifest.

    Raises:
      UserError: The folder holds something else.
    """
    output, work = plan.options.output, plan.work
    remedy = f"choose another `output`, or remove {output} first"
    if paths.is_local(output) and Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"{output} is a file, not a folder: choose another `output`")
    root = f"{output.rstrip('/')}/"
    names = [path.removeprefix(root) for path in listing.list_folder(output)]
    if MANIFEST_FILE in names:
        manifest = DatasetManifest.load(output, read=files.read_bytes)
        if manifest.fingerprint != plan.fingerprint:
            difference = _describe_difference(manifest.options, plan)
            raise UserError(
                f"{output} holds a finished dataset of {manifest.pairs_kept:,} pairs "
                f"{difference}: {remedy}"
            )
        return manifest
    begun = [name for name in names if fnmatch.fnmatch(name, f"{WORK_FOLDER}/*/{RUN_FILE}")]
    if begun and root + begun[0] != work.run_file:
        run = json.loads(files.read_bytes(root + begun[0]))
        if run["fingerprint"] == plan.fingerprint:
            raise UserError(
                f"{output} holds an unfinished dataset of another version of tt: finish it with "
                f"that, or {remedy}"
            )
        raise UserError(
            f"{output} holds an unfinished dataset "
            f"{_describe_difference(run['options'], plan)}: {remedy}"
        )
    foreign = [name for name in names if not name.startswith(f"{WORK_FOLDER}/")]
    if foreign and not begun:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UserError(f"{output} holds something else ({shown}): {remedy}")
    return None


def claim_output(plan: PreprocessPlan, *, run_id: str = "") -> DatasetManifest | None:
    """Checks the folder like `check_output`, and marks it; returns a finished manifest.

    Args:
      plan: What the folder is for.
      run_id: The name of the run that works there from now on, beside others of the plan.

    Raises:
      UserError: The folder holds something else, or cannot be written.
    """
    output, work = plan.options.output, plan.work
    if finished := check_output(plan):
        files.delete_folder(join(output, WORK_FOLDER))
        return finished
    try:
        files.make_folder(work.path)
        text = SourceList.text(plan.sources, identities=plan.identities, groups=plan.groups)
        work.write_text(work.sources, text)
        run = {"fingerprint": plan.fingerprint, "options": plan.options.resolved(), "run": run_id}
        work.write_text(work.run_file, json.dumps(run))
    except OSError as error:
        raise UserError(
            f"{output} cannot be written: {error.strerror or error}. Choose another `output`"
        ) from error
    return None


def is_last_run(plan: PreprocessPlan, *, run_id: str) -> bool:
    """Says whether no other run has joined this one in the folder since it was claimed."""
    run_file = plan.work.run_file
    if not files.is_there(run_file):  # deleted by another run, with the rest
        return False
    return bool(json.loads(files.read_bytes(run_file)).get("run") == run_id)


def _describe_difference(saved: dict[str, Any], plan: PreprocessPlan) -> str:
    differences = describe_differences(
        as_given(saved),
        as_given(plan.options.resolved()),
        words={
            "protect": _describe_placeholders,
            "vocabulary": lambda *_: ["`vocabulary` names other models"],
            "exclude": lambda *_: ["the files of `exclude` are others, or have changed"],
        },
    )
    if not differences:
        return "made from other input (a corpus of another name, size or time of change)"
    return f"made with other options ({'; '.join(differences)})"


def _describe_placeholders(before: bool | None, now: bool | None) -> list[str]:
    if now:
        return ["its texts have no placeholders, as with `protect=False`"]
    return ["its texts have placeholders, as with `protect`"]


def find_finished(plan: DatasetPlan) -> DatasetManifest | None:
    """Returns the manifest of the folder, if a run of the same plan has finished it."""
    output = plan.options.output
    if not listing.exists(join(output, MANIFEST_FILE)):
        return None
    manifest = DatasetManifest.load(output, read=files.read_bytes)
    return manifest if manifest.fingerprint == plan.fingerprint else None


def abandon_output(output: str) -> None:
    """Removes what a run wrote until a user's error ended it: the corrected command starts anew."""
    files.delete_folder(join(output, WORK_FOLDER))
    root = f"{output.rstrip('/')}/"
    patterns = ("rejected-*.parquet", "*-of-*.tfrecord", VOCABULARY_FILE, "*.spm")
    names = [path.removeprefix(root) for path in listing.list_folder(output)]
    ours = [
        f"{root}{name}"
        for name in names
        if "/" not in name and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    files.delete(ours)
    if paths.is_local(output) and not any(Path(output).iterdir()):
        Path(output).rmdir()
