"""Read and write the files of a translation job in `_tt/`, and derive the progress from them."""

from __future__ import annotations

import base64
import dataclasses
import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tt.model.engines.batching import rows_in_progress
from tt.model.errors import UserError
from tt.model.json_files import describe_differences
from tt.model.storage.files import (
    delete_folder,
    move,
    open_binary,
    read_bytes,
    write_text,
    write_whole,
)
from tt.model.storage.listing import exists, list_folder
from tt.model.storage.paths import JOB_FOLDER
from tt.pipelines.jobs.folders import LOCK_FILE, check_claim, lock_output
from tt.pipelines.jobs.progress import Progress, ProgressWatch
from tt.pipelines.tables.ranges import LineRange
from tt.pipelines.translate.generations import (
    InputChanges,
    TranslatedFiles,
    check_changes,
    check_tables,
    find_changes,
    is_other_input,
)
from tt.pipelines.translate.manifest import (
    SkippedFile,
    read_statistics,
)
from tt.pipelines.translate.options import DELETE, TranslateOptions
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
    stem_of_input,
)

ROWS_FOLDER = f"{JOB_FOLDER}/rows"  # the rows of each unit, for files without random access
MODEL_FOLDER = f"{JOB_FOLDER}/model"  # a converted model for workers on other machines
PREVIOUS_FOLDER = f"{JOB_FOLDER}/previous"  # the output of earlier generations of a job with `key`
SENTENCES_FOLDER = f"{JOB_FOLDER}/sentences"  # a record per generation; see `deduplication.py`
GROUPS_FOLDER = f"{JOB_FOLDER}/groups"  # a record per group of sentences, until a job ends
MEMORY_FOLDER = f"{JOB_FOLDER}/memory"  # the translations of sentences, without a user's memory
TEMPORARY_FOLDERS = (ROWS_FOLDER, MODEL_FOLDER)  # exist until a run ends
_NEEDED_UNTIL_THE_END = (PREVIOUS_FOLDER, MEMORY_FOLDER, GROUPS_FOLDER)
TEMPORARY_SUFFIX = ".tmp"  # not .parquet, so that globs of readers do not match temporary files
PLAN_PATH = f"{JOB_FOLDER}/plan.json"
INPUT_PATH = f"{JOB_FOLDER}/input.jsonl"  # the input files of a run, for its workers
FILES_FOLDER = f"{JOB_FOLDER}/files"  # a record for each file whose rows the job has counted
MANIFEST_PATH = f"{JOB_FOLDER}/manifest.json"
RETRY_PATH = f"{JOB_FOLDER}/retry.json"  # the old manifest while a retry is running
# The job's own files, relative to the output folder. The user may have other files there.
OWN_FILES = re.compile(
    rf"{JOB_FOLDER}/(?:lock|(?:job|plan|manifest|retry)\.json|input\.jsonl|unfinished\.[^/]+|"
    r"(?:units|files|sentences)/.+\.json|memory/entries/.+\.(?:parquet|tmp)|"
    r"bad_rows\.parquet|bad_rows/\w+/.+\.parquet|rows/\w+/.+\.arrow|groups/\w+/\d+\.json|(?:model|previous)/[0-9a-f]{32}/.+|"
    r"previous/\.?rows-[0-9a-f]{32}[./].+)"  # see `PreviousRows`
)


def statistics_path(output_path: str) -> str:
    """Return the path of a unit's statistics, relative to the output folder.

    >>> statistics_path("x/part-00000-of-00002.parquet")
    '_tt/units/x/part-00000-of-00002.json'
    """
    return f"{UNITS_FOLDER}/{output_stem(output_path)}.json"


def rows_path(output_path: str, *, plan_digest: str) -> str:
    """Return the path of a unit's input rows, relative to the output folder.

    >>> rows_path("x/part-00000-of-00002.parquet", plan_digest="7f")
    '_tt/rows/7f/x/part-00000-of-00002.arrow'
    """
    return f"{ROWS_FOLDER}/{plan_digest}/{output_stem(output_path)}.arrow"


def sentences_path(plan_digest: str) -> str:
    """Return the path of the counts of a generation's sentences, relative to the output folder."""
    return f"{SENTENCES_FOLDER}/{plan_digest}.json"


def group_path(group: int, *, plan_digest: str) -> str:
    """Return the path of the record of a group of sentences, relative to the output folder."""
    return f"{GROUPS_FOLDER}/{plan_digest}/{group:05d}.json"


def model_place(output: str, *, plan_digest: str) -> str:
    """Return the folder from which workers load the converted model."""
    return f"{output}/{MODEL_FOLDER}/{plan_digest}"


def delete_temporary_folders(output: str, *, is_finished: bool = False) -> None:
    """Delete the rows and models that runs wrote to an output folder for their workers.

    Args:
      output: The output folder.
      is_finished: Whether the job is finished, so that it does not need its earlier output and its
        memory either.
    """
    for folder in (*TEMPORARY_FOLDERS, *(_NEEDED_UNTIL_THE_END if is_finished else ())):
        delete_folder(output, folder, own=OWN_FILES)


def clean_up(output: str, *, existing: Iterable[str]) -> None:
    """Delete the files of a run that was killed after it wrote the manifest.

    Raises:
      UserError: Another run uses the output folder.
    """
    if any(path.startswith((*TEMPORARY_FOLDERS, *_NEEDED_UNTIL_THE_END)) for path in existing):
        with lock_output(output, folder=JOB_FOLDER):
            delete_temporary_folders(output, is_finished=True)


def check_plan(
    plan: Mapping[str, Any],
    *,
    output: str,
    existing: Iterable[str],
    options: TranslateOptions,
    is_table: bool = False,
) -> tuple[dict[str, Any], InputChanges]:
    """Return the plan in the folder if the job may continue it, and the changes of its input.

    The plan is {} if the run must write a first plan. If a run failed before its first unit,
    another plan may use the folder. If the plan in the folder is truncated, the unit records
    determine the job that the folder belongs to.

    Args:
      plan: The plan of the requested job.
      output: The output folder.
      existing: Paths of the files in the folder, relative to it.
      options: The options of the requested job.
      is_table: Whether the folder is a table, which may contain files of other programs.

    Raises:
      UserError: The folder belongs to another plan, or contains other files; or the input has
        changed, and the options do not allow this.
    """
    existing = set(existing)
    saved = find_json(f"{output}/{PLAN_PATH}") if PLAN_PATH in existing else None
    is_truncated = saved is None and PLAN_PATH in existing
    if is_truncated and _has_other_units(plan, output=output, existing=existing):
        raise UserError(
            f"{output}/{PLAN_PATH} is truncated, and the folder contains units of another job. Run "
            "that job's command, choose another `output`, or set `overwrite`"
        )
    outputs = _outputs(saved or plan, existing)
    others = sorted(path for path in existing - outputs if not OWN_FILES.fullmatch(path))
    if is_table:
        others = sorted(set(others) & planned_outputs(plan).keys())
    # A new generation first moves or deletes the output of the earlier ones.
    has_earlier = saved is not None and "generations" in saved
    has_work = has_earlier or not existing.isdisjoint({MANIFEST_PATH, *outputs})
    has_work |= any(path.startswith(f"{UNITS_FOLDER}/") for path in existing)
    if saved and has_work:
        check_tables(plan, saved=saved, output=output, is_table=is_table)
    changes, requested = InputChanges(), record_of(plan)
    can_change = saved and has_work and options.limit is None
    if saved and can_change and record_of(saved).options == requested.options:
        translated = _find_translated(saved, output=output, existing=existing, is_table=is_table)
        is_deleting = options.removed == DELETE
        if not is_other_input(saved, plan, options=options):  # else, it belongs to another job
            changes = find_changes(saved, plan, translated=translated, is_deleting=is_deleting)
        check_changes(changes, translated=translated, options=options)
    if saved and saved["options"].get("limit") != options.limit:
        # Another limit chooses other files, although the input itself may be the same.
        requested = dataclasses.replace(requested, inputs=record_of(saved).inputs)
    is_resumed = bool(changes) or check_claim(
        output,
        saved=record_of(saved) if saved else None,
        requested=requested,
        has_work=has_work,
        foreign=() if is_truncated else others,
        remedy="set `overwrite`",
    )
    tables = (path for path in others if not path.startswith(f"{JOB_FOLDER}/"))
    if strange := [path for path in tables if path.endswith(planned_suffix(plan))]:
        raise UserError(
            f"the output folder {output} contains a table that is not part of this job "
            f"({strange[0]}), and readers of the folder would mistake it for output. Move it to "
            "another folder"
        )
    return saved or {} if is_resumed else {}, changes


def _find_translated(
    saved: Mapping[str, Any], *, output: str, existing: Collection[str], is_table: bool
) -> TranslatedFiles:
    """Return the files of a saved plan with translations; see `check_plan`."""
    begun, incomplete, skipped = set[str](), set[str](), set[str]()
    for path in planned_outputs(saved, existing):
        record = statistics_path(path)
        # Other programs may have rewritten the output files in a table.
        if path in existing or (is_table and record in existing):
            begun.add(stem_of_input(path))
            continue
        found = read_statistics(output=output, path=record) if record in existing else None
        (skipped if found and found.skipped else incomplete).add(stem_of_input(path))
    stems = {name: output_stem(name) for name in saved["input"]}
    return TranslatedFiles(
        begun={name for name, stem in stems.items() if stem in begun},
        whole={name for name, stem in stems.items() if stem not in incomplete},
        skipped={name for name, stem in stems.items() if stem in skipped},
    )


def keep_previous(paths: Iterable[str], *, output: str, plan: Mapping[str, Any]) -> None:
    """Move output files to the folder of earlier output, where units look up known rows.

    Args:
      paths: The output files, relative to the output folder.
      output: The output folder.
      plan: The plan that the files belong to.
    """
    for path in paths:
        move(f"{output}/{path}", f"{output}/{PREVIOUS_FOLDER}/{plan_digest(plan)}/{path}")


def _has_other_units(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> bool:
    """Return whether the first unit record that can be read belongs to another plan."""
    paths = (path for path in existing if path.startswith(f"{UNITS_FOLDER}/"))
    records = filter(None, (read_statistics(output=output, path=path) for path in paths))
    record = next(records, None)
    return record is not None and record.plan_digest != plan_digest(plan)


def find_overwritten(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> list[str]:
    """Return the files that `overwrite` deletes, relative to the folder, with the plan last.

    If the folder has an unfinished job with the same plan, nothing is deleted, because the run
    resumes that job.

    Raises:
      UserError: The folder contains files that no job wrote.
    """
    existing = set(existing)
    saved = find_json(f"{output}/{PLAN_PATH}") if PLAN_PATH in existing else None
    has_manifest = MANIFEST_PATH in existing and find_json(f"{output}/{MANIFEST_PATH}") is not None
    has_been_finished = has_manifest or RETRY_PATH in existing  # a retry deletes the manifest
    is_same = saved is not None and not record_of(saved).compare(record_of(plan))
    if is_same and not has_been_finished:
        return []
    outputs = _outputs(saved or plan, existing)
    if saved is None:  # without a plan, only files with a unit record count as output
        tables = (path for path in existing if path.endswith(planned_suffix(plan)))
        outputs |= {path for path in tables if statistics_path(path) in existing}
    foreign = sorted(path for path in existing - outputs if not OWN_FILES.fullmatch(path))
    check_claim(output, saved=None, requested=record_of(plan), foreign=foreign, remedy="")
    kept = f"{JOB_FOLDER}/{LOCK_FILE}"  # another process may have locked it
    return sorted(existing - {kept}, key=lambda path: (path == PLAN_PATH, path))


def _outputs(plan: Mapping[str, Any], existing: set[str]) -> set[str]:
    """Return the output files of a plan, if the folder contains a plan."""
    return set(planned_outputs(plan, existing)) if PLAN_PATH in existing else set()


def write_json(content: Mapping[str, Any], *, output: str, path: str, run_id: str) -> None:
    """Write a JSON file in an output folder; the file is either complete or absent."""
    folder = f"{output}/{JOB_FOLDER}"
    write_text(f"{output}/{path}", to_text(content), temporary_folder=folder, run_id=run_id)


def to_text(content: Mapping[str, Any]) -> str:
    """Return the content of a JSON file in an output folder."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_json(path: str) -> dict[str, Any]:
    """Read the plan or the manifest.

    Raises:
      UserError: The file is truncated or damaged.
    """
    content = find_json(path)
    if content is None:
        raise UserError(f"{path} is truncated. Run the job's command again")
    return content


def find_json(path: str) -> dict[str, Any] | None:
    """Read the plan or the manifest; return None if a crash of the machine truncated the file.

    Raises:
      UserError: The file has another format.
    """
    try:
        content = json.loads(read_bytes(path))
    except ValueError:
        return None
    needed = "input" if path.endswith(PLAN_PATH) else "output_bytes"
    if not isinstance(content, dict) or content.get("format") != FORMAT or needed not in content:
        raise UserError(f"{path} does not have format {FORMAT}. Choose another `output`")
    return content


def write_input(
    files: Iterable[InputFile | SkippedFile], *, output: str, plan_digest: str, run_id: str
) -> None:
    """Write the input files of a run, one per line, so that the pipeline itself stays small."""
    folder = f"{output}/{JOB_FOLDER}"
    path = f"{output}/{INPUT_PATH}"
    with write_whole(path, temporary_folder=folder, run_id=run_id) as handle:
        for content in itertools.chain([{"plan_digest": plan_digest}], map(_as_json, files)):
            handle.write(f"{json.dumps(content)}\n".encode())


def read_input(output: str, *, plan_digest: str) -> Iterator[InputFile | SkippedFile]:
    """Yield the input files of a run, in the order in which they were written.

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
    """Write the record of a file whose rows have been counted, or of a bad file."""
    path = f"{FILES_FOLDER}/{file.relative_path}.json"
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
    """Return the error for an output folder that another run has overwritten."""
    return UserError(
        f"another run has overwritten the output folder {output}. Choose another `output` for one "
        "of the two runs"
    )


def _as_json(file: InputFile | SkippedFile) -> dict[str, Any]:
    if isinstance(file, SkippedFile):
        return {"skipped": dataclasses.asdict(file)}
    schemas = {name: _encode_schema(getattr(file, name)) for name in ("schema", "as_schema")}
    return {**vars(file), **schemas}


def _from_json(content: dict[str, Any]) -> InputFile | SkippedFile:
    if "skipped" in content:
        return SkippedFile(**content["skipped"])
    return InputFile(
        **{
            **content,
            "schema": _decode_schema(content["schema"]),
            "as_schema": _decode_schema(content["as_schema"]),
            **{
                name: tuple(map(tuple, content[name]))
                for name in ("partitions", "table_partitions")
            },
            "group_rows": tuple(content["group_rows"]),
            "ranges": tuple(LineRange(*each) for each in content["ranges"]),
        }
    )


def _encode_schema(schema: pa.Schema | None) -> str | None:
    return None if schema is None else base64.b64encode(schema.serialize()).decode()


def _decode_schema(text: str | None) -> pa.Schema | None:
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def find_manifest(
    *, output: str, sizes: Mapping[str, int], is_table: bool = False
) -> dict[str, Any] | None:
    """Return the manifest if it is complete and all output files exist with the listed sizes.

    The files of a table are committed before the manifest is written. After that, other programs
    may replace them, for example to compact the table.
    """
    manifest = find_json(f"{output}/{MANIFEST_PATH}") if MANIFEST_PATH in sizes else None
    if manifest is None or is_table:
        return manifest
    is_complete = all(sizes.get(path) == size for path, size in manifest["output_bytes"].items())
    return manifest if is_complete else None


def compare_versions(saved: Mapping[str, Any]) -> list[str]:
    """Return a notice if the installed versions differ from the versions in the plan."""
    changed = describe_differences(saved["versions"], installed_versions())
    if not changed:
        return []
    return [
        f"this run resumes a job that other versions began: {'; '.join(changed)}. Finished units "
        "are not translated again, and the manifest lists the versions of each unit"
    ]


@dataclasses.dataclass(kw_only=True)
class TranslateWatch(ProgressWatch):
    """Measures the progress of a run by listing the records of finished units.

    Attributes:
      output: The output folder.
      unit_rows: The number of rows in each unit, by the path of the unit's record.
      is_retry: Whether only failed rows are translated, so that all records exist from the start.
      uncounted: The files whose rows the job counts.
      find_unit_rows: Returns the number of rows in each unit of an uncounted file, or None before
        the job has counted its rows.
      limit: The maximum number of rows of the job; None for all rows. The job stops counting files
        when it has found enough rows.
      groups: The number of groups of sentences that the job translates before the units.
      plan_digest: The digest of the plan, which is in the paths of the records of groups.
    """

    output: str
    unit_rows: dict[str, int]
    is_retry: bool = False
    uncounted: list[str] = dataclasses.field(default_factory=list)
    find_unit_rows: Callable[[str], Mapping[str, int] | None] = lambda path: None
    limit: int | None = None
    groups: int = 0
    plan_digest: str = ""
    _most: int = dataclasses.field(default=0, init=False)  # the maximum number of rows so far

    def find_phase(self) -> Progress:
        """Return the progress according to the records of units."""
        if self.is_retry:
            return Progress(phase="retrying failed rows")
        if self.groups and not exists(f"{self.output}/{sentences_path(self.plan_digest)}"):
            done = len(list_folder(f"{self.output}/{GROUPS_FOLDER}/{self.plan_digest}"))
            phase = "translating distinct sentences"
            return Progress(phase=phase, done=done, total=self.groups, noun="groups")
        self._find_counted()
        root, rows = f"{self.output}/", sum(self.unit_rows.values())
        paths = [path.removeprefix(root) for path in list_folder(f"{root}{UNITS_FOLDER}")]
        done = sum(self.unit_rows.get(path, 0) for path in paths)
        if done == rows:
            is_counting = self.uncounted and rows != self.limit
            phase = "counting rows" if is_counting else "writing the manifest"
            return Progress(phase=phase)
        # While a unit is being written, its rows count neither as done nor as in progress, so the
        # sum may decrease for a moment.
        self._most = min(rows, max(self._most, done + rows_in_progress()))
        return Progress(phase="translating", done=self._most, total=rows, noun="rows")

    def _find_counted(self) -> None:
        folder = f"{self.output}/{FILES_FOLDER}"
        records = set(list_folder(folder) if self.uncounted else ())
        for path in tuple(self.uncounted):
            has_record = f"{folder}/{path}.json" in records
            if has_record and (found := self.find_unit_rows(path)) is not None:
                self.unit_rows |= found
                self.uncounted.remove(path)
