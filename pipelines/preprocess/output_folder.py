"""The dataset folder: which run may write to it, and whether all that it holds is whole."""

from __future__ import annotations

import fnmatch
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.dataset.manifest import HELD_OUT, MANIFEST_FILE, DatasetManifest, digest_file
from model.errors import BadFileError, UserError
from model.folders.differences import describe_differences, first_few
from model.text.vocabulary import VOCABULARY_FILE
from pipelines.jobs.locks import output_error
from pipelines.preprocess.corpora import SourceList
from pipelines.preprocess.options import as_given
from pipelines.preprocess.plan import DatasetPlan, PreprocessPlan
from pipelines.preprocess.work_folder import RUN_FILE, WORK_FOLDER, WorkFolder
from pipelines.storage import files, listing, paths
from pipelines.storage.paths import join


def check_output(plan: PreprocessPlan) -> DatasetManifest | None:
    """Check that the folder is ours to write to; return the manifest of a finished dataset.

    A dataset of this plan with a missing or damaged file is not finished: a run makes it again.

    Raises:
      UserError: The folder holds something else.
    """
    output, work = plan.options.output, plan.work
    remedy = f"choose another `output`, or remove {output} first"
    if paths.is_local(output) and Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"{output} is a file, not a folder: choose another `output`")
    root = f"{output.rstrip('/')}/"
    sizes = {file.path.removeprefix(root): file.size for file in listing.list_files(output)}
    names = list(sizes)
    manifest = _read_manifest(output) if MANIFEST_FILE in names else None
    if manifest:
        if manifest.fingerprint != plan.fingerprint:
            difference = _describe_difference(manifest.options, manifest.sources, plan)
            raise UserError(
                f"the folder {output} holds a finished dataset of {manifest.pairs_kept:,} pairs "
                f"{difference}: {remedy}"
            )
        return None if _find_damage(output, manifest, sizes) else manifest
    begun = [name for name in names if fnmatch.fnmatch(name, f"{WORK_FOLDER}/*/{RUN_FILE}")]
    if begun and root + begun[0] != work.run_file:
        [run] = _read_begun(root + begun[0], output=output, remedy=remedy)
        lines = _read_begun(
            WorkFolder(paths.folder_of(root + begun[0])).sources, output=output, remedy=remedy
        )
        sources = [
            {**line["identity"], HELD_OUT: order >= run["held_out_from"]}
            for order, line in enumerate(lines)
        ]
        difference = _describe_difference(run["options"], sources, plan)
        raise UserError(f"{output} holds an unfinished dataset {difference}: {remedy}")
    if MANIFEST_FILE in names and not begun:
        raise UserError(
            f"{join(output, MANIFEST_FILE)} is damaged, and nothing else says what the dataset was "
            f"made from: run `rm -r {shlex.quote(output)}`, and then the same command again, or "
            "choose another `output`"
        )
    foreign = [name for name in names if not name.startswith(f"{WORK_FOLDER}/")]
    if foreign and not begun:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UserError(f"{output} holds something else ({shown}): {remedy}")
    return None


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
    if finished := take_finished(plan):
        return finished
    try:
        files.make_folder(work.path)
        text = SourceList.text(plan.sources, identities=plan.identities, groups=plan.groups)
        work.write_text(work.sources, text)
        run = {
            "fingerprint": plan.fingerprint,
            "options": plan.resolved,
            "run": run_id,
            "held_out_from": plan.held_out_from,
        }
        work.write_text(work.run_file, json.dumps(run))
        _delete_manifest(plan)
    except OSError as error:
        raise output_error(output, error) from error
    return None


def is_last_run(plan: PreprocessPlan, *, run_id: str) -> bool:
    """Says whether no other run has joined this one in the folder since it was claimed."""
    run_file = plan.work.run_file
    if not files.is_there(run_file):  # deleted by another run, with the rest
        return False
    return bool(json.loads(files.read_bytes(run_file)).get("run") == run_id)


def _read_begun(path: str, *, output: str, remedy: str) -> list[dict[str, Any]]:
    """Read the lines of JSON in a file that an unfinished run wrote about itself.

    Raises:
      UserError: The file is missing or damaged.
    """
    try:
        return [json.loads(line) for line in files.read_bytes(path).splitlines() or [b""]]
    except (ValueError, FileNotFoundError) as error:
        raise UserError(
            f"{output} holds an unfinished dataset, and {path} is damaged, which says what it is "
            f"made from: {remedy}"
        ) from error


def _describe_difference(
    saved: dict[str, Any], sources: Sequence[Mapping[str, Any]], plan: PreprocessPlan
) -> str:
    options = describe_differences(as_given(saved), as_given(plan.resolved))
    corpora = _compare_corpora(
        sources,
        [
            {**identity, HELD_OUT: order >= plan.held_out_from}
            for order, identity in enumerate(plan.identities)
        ],
    )
    found = [f"with other options ({'; '.join(options)})"] if options else []
    found += [f"from other input ({'; '.join(corpora)})"] if corpora else []
    return f"made {' and '.join(found) or 'by another version of tt or of its libraries'}"


def _compare_corpora(
    saved: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a phrase for each corpus that differs."""
    keys = {key for identity in asked for key in identity}  # a manifest has results, too
    then = [{key: each[key] for key in keys & each.keys()} for each in saved]
    changed = [each["name"] for each in then if each not in asked]
    changed += [each["name"] for each in asked if each not in then]
    if not changed:
        return [] if then == list(asked) else ["the corpora are in another order"]
    names = dict.fromkeys(changed)
    return first_few([f"the corpus {name} has changed" for name in names], noun="corpora")


def find_finished(plan: DatasetPlan) -> DatasetManifest | None:
    """Return the manifest of the folder if a run of the same plan has written it."""
    output = plan.options.output
    if not listing.exists(join(output, MANIFEST_FILE)):
        return None
    manifest = _read_manifest(output)
    return manifest if manifest and manifest.fingerprint == plan.fingerprint else None


def _read_manifest(output: str) -> DatasetManifest | None:
    """Read the manifest of a folder; None if the file is damaged."""
    try:
        return DatasetManifest.load(output, read=files.read_bytes)
    except BadFileError:
        return None


def take_finished(plan: PreprocessPlan) -> DatasetManifest | None:
    """Return the manifest of a finished dataset, without what its run left in the work folder.

    Raises:
      UserError: The folder holds something else.
    """
    finished = check_output(plan)
    if finished:
        files.delete_folder(join(plan.options.output, WORK_FOLDER))
    return finished


def find_damage(plan: DatasetPlan) -> list[str]:
    """Return the missing and damaged files of a dataset that a run of the same plan has finished.

    Shards are compared by their size, and vocabularies by their digest.
    """
    manifest, output = find_finished(plan), plan.options.output
    if manifest is None:
        return []
    root = f"{output.rstrip('/')}/"
    sizes = {file.path.removeprefix(root): file.size for file in listing.list_files(output)}
    return _find_damage(output, manifest, sizes)


def _find_damage(output: str, manifest: DatasetManifest, sizes: Mapping[str, int]) -> list[str]:
    """Return the damaged files, given the sizes of all files by their path in the folder."""
    damaged = [
        name
        for split in manifest.splits.values()
        for name, size in zip(split.shards, split.shard_sizes, strict=True)
        if sizes.get(name) != size
    ]
    for name, digest in manifest.vocabulary_digests.items():
        if name not in sizes or digest_file(files.read_bytes(join(output, name))) != digest:
            damaged.append(name)
    return [join(output, name) for name in damaged]


def _delete_manifest(plan: PreprocessPlan) -> None:
    """Delete the manifest of a damaged dataset, which is made again.

    The run keeps the vocabularies that are whole: models may have been trained with them.
    """
    path = join(plan.options.output, MANIFEST_FILE)
    if manifest := find_finished(plan):
        for name in plan.options.model_files:
            if digest := manifest.vocabulary_digests.get(name):
                plan.work.write_text(plan.work.digest(name), digest)
    if files.is_there(path):
        files.delete([path])


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
