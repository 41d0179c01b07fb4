"""The folder of a Parquet job, `_tt/`: the names in it, and who may work there."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from model.errors import UnfinishedError, UserError
from model.text.glossary import Glossary
from pipelines.jobs.locks import LOCK_FILE, lock_output
from pipelines.storage.files import (
    delete_folder,
    make_folder,
    open_binary,
    read_bytes,
    write_text,
    write_whole,
)
from pipelines.storage.listing import ListedFile, exists
from pipelines.storage.paths import JOB_FOLDER
from pipelines.translate.manifest import read_statistics
from pipelines.translate.plan import (
    InputFile,
    compare_plans,
    installed_versions,
    output_stem,
    plan_digest,
    planned_outputs,
    planned_suffix,
)

UNITS_FOLDER = f"{JOB_FOLDER}/units"
ROWS_FOLDER = f"{JOB_FOLDER}/rows"  # of files that are read from their start, cut into units
MODEL_FOLDER = f"{JOB_FOLDER}/model"  # of what was converted for workers of other machines
FOLDERS_OF_RUNS = (ROWS_FOLDER, MODEL_FOLDER)  # with a folder for a plan, until a run finishes it
TEMPORARY_SUFFIX = ".tmp"  # not .parquet: others glob for that
PLAN_PATH = f"{JOB_FOLDER}/plan.json"
INPUT_PATH = f"{JOB_FOLDER}/input.jsonl"  # what a run knows of each file, for its workers
FILES_FOLDER = f"{JOB_FOLDER}/files"  # a record of each file whose rows the job has counted
GLOSSARY_PATH = f"{JOB_FOLDER}/glossary.json"  # for workers, too: it may have many terms
MANIFEST_PATH = f"{JOB_FOLDER}/manifest.json"
RETRY_PATH = f"{JOB_FOLDER}/retry.json"  # the manifest that a retry under way has made untrue

# The parts of an existing plan or manifest that are read.
PARTS: dict[str, dict[str, type]] = {
    "plan.json": {"input": dict, "bad_files": dict, "options": dict, "versions": dict},
    "manifest.json": {
        "rows": int,
        "units": int,
        "texts": int,
        "distinct_texts": int,
        "failed_rows": int,
        "skipped_rows": int,
        "skipped_files": list,
        "skipped_units": list,
        "files": dict,
        "rows_by_status": dict,
        "work": dict,
        "output_bytes": dict,
    },
}

_glossary_lock = threading.Lock()
_glossaries: dict[str, Glossary] = {}  # the last one, by its digest
# Seconds that a temporary file of another run may still be written.
_LONGEST_WRITE = 24 * 3600


def statistics_path(output_path: str) -> str:
    """Returns where a unit's statistics lie, relative to the output folder.

    >>> statistics_path("x/part-00000-of-00002.parquet")
    '_tt/units/x/part-00000-of-00002.json'
    """
    return f"{UNITS_FOLDER}/{output_stem(output_path)}.json"


def rows_path(output_path: str, *, plan_digest: str) -> str:
    """Returns where the rows of a unit are put, relative to the output folder.

    >>> rows_path("x/part-00000-of-00002.parquet", plan_digest="7f")
    '_tt/rows/7f/x/part-00000-of-00002.arrow'
    """
    return f"{ROWS_FOLDER}/{plan_digest}/{output_stem(output_path)}.arrow"


def model_place(output: str, *, plan_digest: str) -> str:
    """Returns the folder for the model that is converted, of which workers load it."""
    return f"{output}/{MODEL_FOLDER}/{plan_digest}"


def clean_up(output: str, *, existing: Iterable[str]) -> None:
    """Deletes what is left of a run that was killed between its manifest and its end.

    Args:
      output: The output folder.
      existing: Paths of its files, relative to it.

    Raises:
      UserError: Another run is at work there.
    """
    paths = list(existing)
    if any(path.startswith(FOLDERS_OF_RUNS) for path in paths):
        with lock_output(output, folder=JOB_FOLDER):
            delete_folders_of_runs(output, existing=paths)


def delete_folders_of_runs(output: str, *, existing: Iterable[str]) -> None:
    """Deletes what runs left for their workers: rows and models.

    Args:
      output: The output folder.
      existing: Paths of its files, relative to it.
    """
    paths = list(existing)
    for folder in FOLDERS_OF_RUNS:
        if any(path.startswith(f"{folder}/") for path in paths):
            delete_folder(f"{output}/{folder}")


def check_plan(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> dict[str, Any]:
    """Return the plan of the folder; {} if the run has to write its plan.

    A run that failed before its first unit leaves the folder free for another plan. If the plan of
    the folder is truncated, the unit records tell whose folder it is. Existing files are relative
    to the folder.

    Raises:
      UserError: The folder holds another plan, or something else.
    """
    existing = list(existing)
    if PLAN_PATH not in existing:
        # A run that was killed before its plan stood leaves a temporary file.
        _check_is_ours(existing, outputs=(), output=output)
        return {}
    standing = find_json(f"{output}/{PLAN_PATH}")
    if standing is None:
        if _is_of_others(plan, output=output, existing=existing):
            raise UserError(
                f"{output}/{PLAN_PATH} is truncated, and the folder holds units of another run. "
                "Choose another folder, the same files and options, or `overwrite`"
            )
        _check_tables_are_ours(existing, plan=plan, output=output)
        return {}
    differences = compare_plans(standing, plan)
    if differences and not _has_work(standing, existing=existing):
        _check_is_ours(existing, outputs=(), output=output)
        return {}
    if differences:
        raise UserError(
            f"the output folder {output} belongs to another run: {'; '.join(differences)}. Choose "
            "another folder, the same files and options, or `overwrite`"
        )
    _check_tables_are_ours(existing, plan=standing, output=output)
    return standing


def _is_of_others(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> bool:
    """Return whether a folder has readable unit records, and none of them is of this plan."""
    digest = plan_digest(plan)
    has_records = False
    for path in existing:
        if _is_record(path) and (record := read_statistics(output=output, path=path)):
            if record.plan_digest == digest:
                return False
            has_records = True
    return has_records


def _is_record(path: str) -> bool:
    return path.startswith(f"{UNITS_FOLDER}/") and not path.endswith(TEMPORARY_SUFFIX)


def _has_work(plan: Mapping[str, Any], *, existing: Sequence[str]) -> bool:
    """Says whether a folder holds anything that the units of its plan wrote, or the manifest."""
    known = {MANIFEST_PATH, *planned_outputs(plan, existing)}
    return any(path in known or _is_record(path) for path in existing)


def find_overwritten(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> list[str]:
    """Return the files that overwriting deletes, relative to the folder; the plan comes last.

    An unfinished job of the same plan loses no files: the run resumes it.

    Raises:
      UserError: The folder holds files that no job of ours made.
    """
    existing = list(existing)
    outputs: set[str] = set()
    if PLAN_PATH in existing:
        standing = find_json(f"{output}/{PLAN_PATH}")
        if standing is None:  # it is truncated: what has a record is an output
            records = {path for path in existing if _is_record(path)}
            outputs.update(path for path in existing if statistics_path(path) in records)
            outputs.update(planned_outputs(plan, existing))
            is_same = not _is_of_others(plan, output=output, existing=existing)
        else:
            outputs.update(planned_outputs(standing, existing))
            is_same = plan_digest(standing) == plan_digest(plan)
        if is_same and not _has_been_finished(output, existing=existing):
            return []
    _check_is_ours(existing, outputs=outputs, output=output)
    kept = f"{JOB_FOLDER}/{LOCK_FILE}"  # by whoever holds it
    return sorted(set(existing) - {kept}, key=lambda path: (path == PLAN_PATH, path))


def _has_been_finished(output: str, *, existing: Sequence[str]) -> bool:
    """Return whether a run wrote the whole manifest, even if a retry has deleted it since."""
    if MANIFEST_PATH in existing:
        return _load_json(f"{output}/{MANIFEST_PATH}") is not None
    return RETRY_PATH in existing


def _check_is_ours(existing: Iterable[str], *, outputs: Iterable[str], output: str) -> None:
    planned = set(outputs)
    for path in existing:
        if path not in planned and not path.startswith(f"{JOB_FOLDER}/"):
            raise UserError(
                f"the output folder {output} holds something else ({path}): "
                "choose an empty or a new one"
            )


def _check_tables_are_ours(
    existing: Iterable[str], *, plan: Mapping[str, Any], output: str
) -> None:
    """Raises a UserError for a table among the outputs of a plan that is none of them."""
    existing = list(existing)
    outputs, suffix = set(planned_outputs(plan, existing)), planned_suffix(plan)
    for path in existing:
        if path.endswith(suffix) and path not in outputs and not path.startswith(f"{JOB_FOLDER}/"):
            raise UserError(
                f"the output folder {output} holds a table that this run does not write ({path}), "
                "and whoever reads the folder would take it for a part of it: move it elsewhere"
            )


def find_leftovers(
    files: Iterable[ListedFile], *, run_id: str, is_alone: bool, now: float
) -> list[str]:
    """Finds temporary files that no run writes any more.

    All units of the run `run_id` are finished; `is_alone` says that no other can be at work; `now`
    is in seconds since 1970.
    """
    return [
        file.path
        for file in files
        if file.path.endswith(TEMPORARY_SUFFIX)
        and (is_alone or f".{run_id}." in file.path or 0 < file.changed < now - _LONGEST_WRITE)
    ]


def write_json(content: Mapping[str, Any], *, output: str, path: str, run_id: str) -> None:
    """Writes JSON below an output folder, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    folder = f"{output}/{JOB_FOLDER}"
    write_text(f"{output}/{path}", text, temporary_folder=folder, run_id=run_id)


def read_json(path: str) -> dict[str, Any]:
    """Return the plan or the manifest.

    Raises:
      UserError: The file is truncated or damaged.
    """
    content = find_json(path)
    if content is None:
        raise UserError(f"{path} is truncated. Run its `tt translate-batch` again")
    return content


def find_json(path: str) -> dict[str, Any] | None:
    """Return the plan or the manifest; None if a crash of the machine truncated the file.

    Raises:
      UserError: The file holds other JSON, which no crash explains.
    """
    content = _load_json(path)
    if content is None:
        return None
    for key, kind in PARTS[path.rpartition("/")[2]].items():
        if not (isinstance(content, dict) and isinstance(content.get(key), kind)):
            raise UserError(
                f"{path} is damaged (it has no {key!r} of the type {kind.__name__}): choose "
                "another output folder"
            )
    return dict(content)


def _load_json(path: str) -> Any:
    """Return the content of a JSON file; None if it is not JSON, as if truncated."""
    try:
        return json.loads(read_bytes(path))
    except ValueError:
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A bad file that is left out."""

    relative_path: str
    reason: str
    rows: int | None  # rows in it that would be translated; None if the file does not say


def write_input(
    files: Iterable[InputFile | SkippedFile], *, output: str, plan_digest: str, run_id: str
) -> None:
    """Writes the files of a run, a line each, so that the job itself need not carry them."""
    folder = f"{output}/{JOB_FOLDER}"
    path = f"{output}/{INPUT_PATH}"
    with write_whole(path, temporary_folder=folder, run_id=run_id) as handle:
        handle.write(_line({"plan_digest": plan_digest}))
        for file in files:
            handle.write(_line(_as_json(file)))


def read_input(output: str, *, plan_digest: str) -> Iterator[InputFile | SkippedFile]:
    """Yields the files of a run, in the order in which they were written.

    Raises:
      UserError: Another run has overwritten the folder.
    """
    with open_binary(f"{output}/{INPUT_PATH}") as handle:
        lines: Iterator[dict[str, Any]] = map(json.loads, io.TextIOWrapper(handle, "utf-8"))
        if next(lines) != {"plan_digest": plan_digest}:
            raise overwritten_error(output)
        yield from map(_from_json, lines)


def write_counted(
    file: InputFile | SkippedFile, *, output: str, plan_digest: str, run_id: str
) -> None:
    """Write the record of a file whose rows the job has counted, or that is bad."""
    path = f"{FILES_FOLDER}/{file.relative_path}.json"
    make_folder(f"{output}/{path}".rpartition("/")[0])
    content = {"plan_digest": plan_digest, "file": _as_json(file)}
    write_json(content, output=output, path=path, run_id=run_id)


def read_counted(
    relative_path: str, *, output: str, plan_digest: str
) -> InputFile | SkippedFile | None:
    """Read the record of a file; return None if it is missing, truncated or of another plan."""
    path = f"{output}/{FILES_FOLDER}/{relative_path}.json"
    content = _load_json(path) if exists(path) else None
    if not isinstance(content, dict) or content.get("plan_digest") != plan_digest:
        return None
    return _from_json(content["file"])


def write_glossary(glossary: Glossary | None, *, output: str, run_id: str) -> None:
    """Writes the terms, if there are any, for workers: the job itself need not carry them."""
    if glossary is None:
        return
    content = {"exact": dict(glossary.exact), "any_case": dict(glossary.any_case)}
    write_json(content, output=output, path=GLOSSARY_PATH, run_id=run_id)


def read_glossary(output: str, *, digest: str) -> Glossary:
    """Reads the glossary of a run, once a process: threads share its terms.

    Args:
      output: The output folder.
      digest: The glossary's digest when the run was planned.

    Raises:
      UserError: Another run has overwritten the folder.
    """
    with _glossary_lock:
        if digest not in _glossaries:
            glossary = Glossary(**json.loads(read_bytes(f"{output}/{GLOSSARY_PATH}")))
            if glossary.digest != digest:
                raise overwritten_error(output)
            _glossaries.clear()
            _glossaries[digest] = glossary
        return _glossaries[digest]


def overwritten_error(output: str) -> UserError:
    """Returns the error of a run whose folder another run has taken."""
    return UserError(
        f"the output folder {output} belongs to another run now, which has overwritten it: choose "
        "another folder for one of them"
    )


def _line(content: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(content)}\n".encode()


def _as_json(file: InputFile | SkippedFile) -> dict[str, Any]:
    if isinstance(file, SkippedFile):
        return {"skipped": dataclasses.asdict(file)}
    schema = file.schema and base64.b64encode(file.schema.serialize()).decode()
    return {**vars(file), "schema": schema}


def _from_json(content: dict[str, Any]) -> InputFile | SkippedFile:
    if "skipped" in content:
        return SkippedFile(**content["skipped"])
    schema = content["schema"]
    if schema is not None:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    return InputFile(**{**content, "schema": schema, "group_rows": tuple(content["group_rows"])})


def find_manifest(*, output: str, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the manifest if it is whole and each output is there with the size it lists."""
    manifest = find_json(f"{output}/{MANIFEST_PATH}") if MANIFEST_PATH in sizes else None
    if manifest is None:
        return None
    is_true = all(sizes.get(path) == size for path, size in manifest["output_bytes"].items())
    return manifest if is_true else None


def recorded_sizes(
    expected: Mapping[str, int], *, output: str, sizes: Mapping[str, int]
) -> dict[str, int]:
    """Return the bytes of each output file, for the manifest.

    A second attempt of a unit may replace the file and the record of the first, whose statistics
    the runner keeps. Then the record gives the size.

    Args:
      expected: Bytes of each output file, by its path relative to the output folder.
      output: The output folder.
      sizes: Bytes of the files of the folder, by their paths relative to it.

    Raises:
      UnfinishedError: An output file is missing, or does not match its record.
    """
    found = dict(expected)
    for path, size in expected.items():
        if sizes.get(path) == size:
            continue
        record = read_statistics(output=output, path=statistics_path(path))
        if record is None or record.output_bytes != sizes.get(path):
            raise UnfinishedError(
                f"{output}/{path} was changed or deleted while the job ran. Run the same command "
                "again: it translates this unit again"
            )
        found[path] = record.output_bytes
    return found


def compare_versions(standing: Mapping[str, Any]) -> list[str]:
    """Returns a notice if this run has other versions than the one that wrote the plan."""
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
