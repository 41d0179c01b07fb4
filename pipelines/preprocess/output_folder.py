"""The dataset folder: which run may write to it, and whether all that it holds is whole."""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from model.dataset.corpora import HELD_OUT, compare_corpora
from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.errors import UserError
from model.folders.differences import describe_differences
from model.folders.lock import lock_folder
from model.text.vocabulary import VOCABULARY_FILE
from pipelines.corpora.opening import SourceList
from pipelines.pairs.work_folder import LOCK_FILE, RUN_FILE, WORK_FOLDER, WorkFolder
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
            difference = _describe_difference(manifest.options, manifest.sources, plan)
            raise UserError(
                f"the folder {output} holds a finished dataset of {manifest.pairs_kept:,} pairs "
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
        difference = _describe_difference(run["options"], _begun_sources(root + begun[0]), plan)
        raise UserError(f"{output} holds an unfinished dataset {difference}: {remedy}")
    foreign = [name for name in names if not name.startswith(f"{WORK_FOLDER}/")]
    if foreign and not begun:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UserError(f"{output} holds something else ({shown}): {remedy}")
    return None


@contextlib.contextmanager
def lock_output(output: str) -> Iterator[None]:
    """Keep other runs on this machine out of a local dataset folder during the `with` block.

    Raises:
      UserError: Another run works in the folder, or the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        if paths.is_local(output):
            folder = join(output, WORK_FOLDER)
            try:
                stack.enter_context(
                    lock_folder(folder, name=LOCK_FILE, remedy="choose another `output`")
                )
            except OSError as error:
                raise _cannot_write(output, error) from error
        yield


def _cannot_write(output: str, error: OSError) -> UserError:
    return UserError(
        f"{output} cannot be written: {error.strerror or error}. Choose another `output`"
    )


def claim_output(plan: PreprocessPlan, *, run_id: str = "") -> DatasetManifest | None:
    """Check the folder like `check_output`, and mark it; return a finished manifest.

    Args:
      plan: What the folder is for.
      run_id: The name of the run that works there from now on. On an object store, which has no
        locks, other runs of the plan may work there at the same time.

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
        run = {
            "fingerprint": plan.fingerprint,
            "options": plan.options.resolved(),
            "run": run_id,
            "held_out_from": plan.held_out_from,
        }
        work.write_text(work.run_file, json.dumps(run))
    except OSError as error:
        raise _cannot_write(output, error) from error
    return None


def is_last_run(plan: PreprocessPlan, *, run_id: str) -> bool:
    """Says whether no other run has joined this one in the folder since it was claimed."""
    run_file = plan.work.run_file
    if not files.is_there(run_file):  # deleted by another run, with the rest
        return False
    return bool(json.loads(files.read_bytes(run_file)).get("run") == run_id)


def _begun_sources(run_file: str) -> list[dict[str, Any]]:
    """Returns the corpora of an unfinished run as a manifest lists them."""
    run = json.loads(files.read_bytes(run_file))
    lines = files.read_bytes(WorkFolder(paths.folder_of(run_file)).sources).splitlines()
    identities = [json.loads(line)["identity"] for line in lines]
    first = run.get("held_out_from")
    if first is None:  # a run of an older tt
        return identities
    return [{**found, HELD_OUT: order >= first} for order, found in enumerate(identities)]


def _describe_difference(
    saved: dict[str, Any], sources: Sequence[Mapping[str, Any]], plan: PreprocessPlan
) -> str:
    before, now = as_given(saved), as_given(plan.options.resolved())
    # A language that is another one has another script.
    ignored = [
        f"filters.{side}_script"
        for side in ("source", "target")
        if before.get(f"{side}_language") != now.get(f"{side}_language")
    ]
    options = describe_differences(
        before,
        now,
        ignored=ignored,
        words={
            "protect": _describe_placeholders,
            "vocabulary": lambda *_: ["`vocabulary` names other models"],
            "exclude": lambda *_: ["the files of `exclude` are others, or have changed"],
        },
    )
    corpora = compare_corpora(
        sources,
        [
            {**identity, HELD_OUT: order >= plan.held_out_from}
            for order, identity in enumerate(plan.identities)
        ],
    )
    found = [f"with other options ({'; '.join(options)})"] if options else []
    found += [f"from other input ({'; '.join(corpora)})"] if corpora else []
    return f"made {' and '.join(found) or 'by another version of tt or of its libraries'}"


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
