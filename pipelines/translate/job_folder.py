"""The folder of a job on tables, `_tt/`: the names in it, its claim, and its progress."""

from __future__ import annotations

import base64
import dataclasses
import io
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tt.model.engines.batching import rows_under_way
from tt.model.errors import UnfinishedError, UserError
from tt.model.json_files import describe_differences
from tt.pipelines.jobs.folders import LOCK_FILE, check_claim, lock_output
from tt.pipelines.jobs.progress import Progress, ProgressWatch
from tt.pipelines.storage.files import (
    delete,
    delete_folder,
    make_folder,
    open_binary,
    read_bytes,
    write_text,
    write_whole,
)
from tt.pipelines.storage.listing import ListedFile, exists, list_files, list_folder
from tt.pipelines.storage.paths import JOB_FOLDER
from tt.pipelines.translate.manifest import (
    SkippedFile,
    UnitTotals,
    make_manifest,
    read_statistics,
)
from tt.pipelines.translate.plan import (
    FORMAT,
    UNITS_FOLDER,
    InputFile,
    installed_versions,
    output_stem,
    plan_digest,
    planned_outputs,
    planned_suffix,
    record_of,
)

ROWS_FOLDER = f"{JOB_FOLDER}/rows"  # of files that are read from their start, cut into units
MODEL_FOLDER = f"{JOB_FOLDER}/model"  # of what was converted for workers of other machines
FOLDERS_OF_RUNS = (ROWS_FOLDER, MODEL_FOLDER)  # with a folder for a plan, until a run finishes it
TEMPORARY_SUFFIX = ".tmp"  # not .parquet: others glob for that
PLAN_PATH = f"{JOB_FOLDER}/plan.json"
INPUT_PATH = f"{JOB_FOLDER}/input.jsonl"  # what a run knows of each file, for its workers
FILES_FOLDER = f"{JOB_FOLDER}/files"  # a record of each file whose rows the job has counted
MANIFEST_PATH = f"{JOB_FOLDER}/manifest.json"
_LONGEST_WRITE = 24 * 3600  # seconds that a temporary file of another run may be written
RETRY_PATH = f"{JOB_FOLDER}/retry.json"  # the manifest that a retry under way has made untrue


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


def delete_folders_of_runs(output: str) -> None:
    """Delete what runs left for their workers in an output folder: rows and models."""
    for folder in FOLDERS_OF_RUNS:
        delete_folder(f"{output}/{folder}")


def clean_up(output: str, *, existing: Iterable[str]) -> None:
    """Delete what is left of a run that was killed between its manifest and its end.

    Raises:
      UserError: Another run is at work in the output folder.
    """
    if any(path.startswith(FOLDERS_OF_RUNS) for path in existing):
        with lock_output(output, folder=JOB_FOLDER):
            delete_folders_of_runs(output)


def check_plan(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> dict[str, Any]:
    """Return the plan of the folder; {} if the run has to write its plan.

    A run that failed before its first unit leaves the folder free for another plan. If the plan of
    the folder is truncated, the unit records tell whose folder it is.

    Args:
      plan: The plan that a user asks for.
      output: The output folder.
      existing: Paths of its files, relative to it.

    Raises:
      UserError: The folder belongs to another plan, or contains other files.
    """
    existing = set(existing)
    standing = find_json(f"{output}/{PLAN_PATH}") if PLAN_PATH in existing else None
    is_truncated = standing is None and PLAN_PATH in existing
    if is_truncated and _is_of_another(plan, output=output, existing=existing):
        raise UserError(
            f"{output}/{PLAN_PATH} is truncated, and the folder contains units of another job. Run "
            "that job's command, choose another `output`, or add `overwrite`"
        )
    outputs = _outputs(standing or plan, existing)
    others = [path for path in sorted(existing - outputs) if not path.startswith(f"{JOB_FOLDER}/")]
    is_resumed = check_claim(
        output,
        saved=record_of(standing) if standing else None,
        asked=record_of(plan),
        has_work=not existing.isdisjoint({MANIFEST_PATH, *outputs})
        or any(path.startswith(f"{UNITS_FOLDER}/") for path in existing),
        foreign=() if is_truncated else others,
        remedy="add `overwrite`",
    )
    if strange := [path for path in others if path.endswith(planned_suffix(plan))]:
        raise UserError(
            f"the output folder {output} holds a table that this run does not write "
            f"({strange[0]}), which a reader would take for a part of the output. Move it elsewhere"
        )
    return standing or {} if is_resumed else {}


def _is_of_another(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> bool:
    paths = (path for path in existing if path.startswith(f"{UNITS_FOLDER}/"))
    records = filter(None, (read_statistics(output=output, path=path) for path in paths))
    record = next(records, None)
    return record is not None and record.plan_digest != plan_digest(plan)


def find_overwritten(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> list[str]:
    """Return the files that overwriting deletes, relative to the folder; the plan comes last.

    An unfinished job of the same plan loses no files: the run resumes it.

    Raises:
      UserError: The folder contains files that no job of ours made.
    """
    existing = set(existing)
    standing = find_json(f"{output}/{PLAN_PATH}") if PLAN_PATH in existing else None
    has_manifest = MANIFEST_PATH in existing and find_json(f"{output}/{MANIFEST_PATH}") is not None
    has_been_finished = has_manifest or RETRY_PATH in existing  # a retry deletes the manifest
    is_same = standing is not None and plan_digest(standing) == plan_digest(plan)
    if is_same and not has_been_finished:
        return []
    outputs = _outputs(standing or plan, existing)
    if standing is None:  # a file with a unit record is an output
        tables = (path for path in existing if path.endswith(planned_suffix(plan)))
        outputs |= {path for path in tables if statistics_path(path) in existing}
    others = sorted(existing - outputs)
    foreign = [path for path in others if not path.startswith(f"{JOB_FOLDER}/")]
    check_claim(output, saved=None, asked=record_of(plan), foreign=foreign, remedy="")
    kept = f"{JOB_FOLDER}/{LOCK_FILE}"  # by whoever holds it
    return sorted(existing - {kept}, key=lambda path: (path == PLAN_PATH, path))


def _outputs(plan: Mapping[str, Any], existing: set[str]) -> set[str]:
    """Return the output files of a plan, if the folder has one."""
    return set(planned_outputs(plan, existing)) if PLAN_PATH in existing else set()


def find_leftovers(
    files: Iterable[ListedFile], *, run_id: str, is_alone: bool, now: float
) -> list[str]:
    """Return the temporary files that no run writes any more.

    All units of the run `run_id` are finished; `is_alone` says that no other run can be at work;
    `now` is in seconds since 1970.
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
      UserError: The file is of another format.
    """
    try:
        content = json.loads(read_bytes(path))
    except ValueError:
        return None
    needed = "input" if path.endswith(PLAN_PATH) else "output_bytes"
    if not isinstance(content, dict) or content.get("format") != FORMAT or needed not in content:
        raise UserError(f"{path} does not have format {FORMAT}. Choose another output folder")
    return content


def write_input(
    files: Iterable[InputFile | SkippedFile], *, output: str, plan_digest: str, run_id: str
) -> None:
    """Writes the files of a run, a line each, so that the job itself need not carry them."""
    folder = f"{output}/{JOB_FOLDER}"
    path = f"{output}/{INPUT_PATH}"
    with write_whole(path, temporary_folder=folder, run_id=run_id) as handle:
        for content in itertools.chain([{"plan_digest": plan_digest}], map(_as_json, files)):
            handle.write(f"{json.dumps(content)}\n".encode())


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
    if not exists(path):
        return None
    try:
        content = json.loads(read_bytes(path))
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("plan_digest") != plan_digest:
        return None
    return _from_json(content["file"])


def overwritten_error(output: str) -> UserError:
    """Returns the error of a run whose folder another run has taken."""
    return UserError(
        f"the output folder {output} belongs to another run now, which has overwritten it: choose "
        "another folder for one of them"
    )


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
    """Return a notice if this run has other versions than the run that wrote the plan."""
    changed = describe_differences(standing["versions"], installed_versions())
    if not changed:
        return []
    return [
        f"this run resumes a job of other versions: {'; '.join(changed)}. Finished units stay as "
        "they are, and the manifest lists the versions of each unit"
    ]


def write_manifest(
    totals: UnitTotals, *, output: str, max_failed: float, run_id: str, digest: str, is_alone: bool
) -> None:
    """Write the manifest of all units, the job's last step; a second attempt writes the same.

    Args:
      totals: The totals of all units.
      output: The output folder.
      max_failed: The share of rows that may fail or be skipped.
      run_id: Name of this run.
      digest: Digest of its plan.
      is_alone: Whether no other run can be at work in the folder.

    Raises:
      UserError: Another run has overwritten the folder, or an output file has changed.
    """
    plan = read_json(f"{output}/{PLAN_PATH}")
    if plan_digest(plan) != digest:
        raise overwritten_error(output)
    every_file = read_input(output, plan_digest=digest)
    skipped = [file for file in every_file if isinstance(file, SkippedFile)]
    skipped += [totals.bad_files[name] for name in sorted(totals.bad_files)]
    manifest = make_manifest(
        plan={**plan, "bad_files": {file.relative_path: file.reason for file in skipped}},
        totals=totals,
        bad_rows={file.relative_path: file.rows for file in skipped},
        max_failed=max_failed,
    )
    folder = f"{output}/"
    listed = list_files(output)
    manifest["output_bytes"] = recorded_sizes(
        manifest["output_bytes"],
        output=output,
        sizes={file.path.removeprefix(folder): file.size for file in listed},
    )
    files = [file for file in listed if file.path.startswith(f"{folder}{JOB_FOLDER}/")]
    # Before the manifest, after which no run looks for them any more.
    delete(find_leftovers(files, run_id=run_id, is_alone=is_alone, now=time.time()))
    write_json(manifest, output=output, path=MANIFEST_PATH, run_id=run_id)
    # After the manifest: if the runner does a step again, it may need any of the files before.
    delete_folders_of_runs(output)
    delete([file.path for file in files if file.path.endswith(f"/{RETRY_PATH}")])


@dataclasses.dataclass(kw_only=True)
class TranslateWatch(ProgressWatch):
    """Finds out the progress of a run from the names of the records of finished units.

    Attributes:
      output: The output folder.
      unit_rows: Rows of each unit, by the path of its record.
      is_retry: Whether only failed rows are translated, so that all records exist from the start.
      uncounted: Files whose rows the job counts.
      find_unit_rows: Returns the rows of the units of such a file, or None until they are counted.
      limit: The most rows of the job. The job counts no more files after these.
    """

    output: str
    unit_rows: dict[str, int]
    is_retry: bool = False
    uncounted: list[str] = dataclasses.field(default_factory=list)
    find_unit_rows: Callable[[str], Mapping[str, int] | None] = lambda path: None
    limit: int | None = None
    _most: int = dataclasses.field(default=0, init=False)  # rows done at an earlier look

    def find_phase(self) -> Progress:
        """Return the progress that the records of units show."""
        if self.is_retry:
            return Progress(phase="translating failed rows again")
        self._find_counted()
        root, rows = f"{self.output}/", sum(self.unit_rows.values())
        paths = [path.removeprefix(root) for path in list_folder(f"{root}{UNITS_FOLDER}")]
        done = sum(self.unit_rows.get(path, 0) for path in paths)
        if done == rows:
            is_counting = self.uncounted and rows != self.limit
            phase = "counting rows" if is_counting else "writing the manifest"
            return Progress(phase=phase)
        # While a unit is written, its rows are neither done nor in progress.
        self._most = min(rows, max(self._most, done + rows_under_way()))
        return Progress(phase="translating", done=self._most, total=rows, noun="rows")

    def _find_counted(self) -> None:
        folder = f"{self.output}/{FILES_FOLDER}"
        records = set(list_folder(folder) if self.uncounted else ())
        for path in tuple(self.uncounted):
            is_there = f"{folder}/{path}.json" in records
            if is_there and (found := self.find_unit_rows(path)) is not None:
                self.unit_rows |= found
                self.uncounted.remove(path)
