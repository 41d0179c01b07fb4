"""What a Parquet job is to do: its options, its units of work, and the plan that says so.

`_tt/plan.json` holds all that decides what the output holds and is written first. No transforms
here: `translate` has them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.errors import UserError
from model.formats.about import versions_of
from model.transformer.config import BATCH_TOKENS, Decoding, option_flag
from pipelines.storage import parquet
from pipelines.storage.files import ListedFile, open_binary, write_text
from pipelines.texts.translating import CellOptions

COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
FAIL, SKIP = "fail", "skip"
ON_BAD_FILE = (FAIL, SKIP)

JOB_FOLDER = "_tt"
UNITS_FOLDER = f"{JOB_FOLDER}/units"
TEMPORARY_SUFFIX = ".tmp"  # not .parquet: others glob for that
PLAN_FILE = "plan.json"
MANIFEST_FILE = "manifest.json"
RETRY_FILE = "retry.json"  # the manifest that a retry under way has made untrue
LOCK_FILE = "lock"
FORMAT = 1

# What is read of a plan or a manifest that stands there.
_PARTS: dict[str, dict[str, type]] = {
    PLAN_FILE: {"input": dict, "bad_files": dict, "options": dict, "versions": dict},
    MANIFEST_FILE: {
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
    },
}

_SKIPPED = "skipped"  # in place of a bad file's reason, which may be worded otherwise
_SHOWN_INPUTS = 3  # of those that differ

_LONGEST_WRITE = 24 * 3600  # seconds that a temporary file of another run may still be written

_PROGRAMS = ("tt-translate", "apache-beam", "pyarrow", "sentencepiece", "tensorflow", "ctranslate2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """What to translate, and where to.

    Attributes:
      input: Files, globs, and folders, of which every `*.parquet` at any depth counts.
      output: A folder.
      text_columns: The columns to translate; none for the only one that holds strings.
      unit_rows: The most rows of a unit of work, which is an output file.
      limit: Only so many rows, the first of all; None for all.
      compression: Of the output files.
      cells: How cells are treated.
      on_bad_file: Of a file that is no good Parquet or lacks a text column: `fail`, or `skip` it.
      max_failed: The share of rows that may fail or be skipped without failing the run.
      overwrite: Delete what another or a finished job left in the output folder, and start again.
        A job that this very command began goes on.
      retry_failed: Translate the failed rows of a finished output folder again, and no others.
    """

    input: tuple[str, ...]
    output: str
    text_columns: tuple[str, ...] = ()
    unit_rows: int = 8192
    limit: int | None = None
    compression: str = "zstd"
    cells: CellOptions = dataclasses.field(default_factory=CellOptions)
    on_bad_file: str = FAIL
    max_failed: float = 0.001
    overwrite: bool = False
    retry_failed: bool = False

    def __post_init__(self) -> None:
        if not self.input:
            raise UserError("no input: name Parquet files, folders or globs")
        if not self.output:
            raise UserError("no output: name a folder")
        if self.unit_rows < 1:
            raise UserError(f"--unit-rows must be at least 1. Received: {self.unit_rows}")
        if self.limit is not None and self.limit < 1:
            raise UserError(
                "--limit must be at least 1; leave it out to translate all rows. "
                f"Received: {self.limit}"
            )
        for flag, value, choices in (
            ("--compression", self.compression, COMPRESSIONS),
            ("--on-bad-file", self.on_bad_file, ON_BAD_FILE),
        ):
            if value not in choices:
                raise UserError(f"{flag} must be one of {', '.join(choices)}. Received: {value!r}")
        if not 0 <= self.max_failed <= 1:  # of NaN, too
            raise UserError(
                f"--max-failed must be a share of the rows, 0 to 1. Received: {self.max_failed}"
            )
        if twice := {name for name in self.text_columns if self.text_columns.count(name) > 1}:
            raise UserError(
                "each --text-column must be another one. Received twice: "
                f"{', '.join(sorted(twice))}"
            )
        if self.overwrite and self.retry_failed:
            raise UserError(
                "--overwrite starts again and --retry-failed keeps what is there: choose one"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A planned input file.

    Attributes:
      path: Where it is now.
      relative_path: What its outputs are named after.
      size: Bytes.
      rows: Rows to translate: all of them, but for a limit.
      footer_checksum: Tells a rewritten file from the one that was planned.
    """

    path: str
    relative_path: str
    size: int
    rows: int
    footer_checksum: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """A run of rows of one input file, and the output file that it becomes.

    Attributes:
      path: The input file.
      relative_path: The input file's, which stands for the file in the manifest.
      footer_checksum: The input file's.
      first_row: Index in the file.
      rows: Rows of the unit; 0 only for the one unit of a file without rows.
      output_path: Relative to the output folder.
    """

    path: str
    relative_path: str
    footer_checksum: str
    first_row: int
    rows: int
    output_path: str


def output_stem(relative_path: str) -> str:
    """Returns the output's path up to its number.

    >>> output_stem("x/part.parquet")
    'x/part'
    """
    return relative_path.removesuffix(parquet.SUFFIX)


def plan_output_paths(*, relative_path: str, rows: int, unit_rows: int) -> list[str]:
    """Names the output files of an input file; one without rows has one output file.

    >>> plan_output_paths(relative_path="x/part.parquet", rows=3, unit_rows=2)
    ['x/part-00000-of-00002.parquet', 'x/part-00001-of-00002.parquet']
    """
    count = max(1, math.ceil(rows / unit_rows))
    stem = output_stem(relative_path)
    return [f"{stem}-{index:05d}-of-{count:05d}{parquet.SUFFIX}" for index in range(count)]


def plan_units(file: InputFile, *, unit_rows: int) -> list[Unit]:
    """Cuts a file into runs of at most `unit_rows` rows; one without rows gives one empty unit."""
    paths = plan_output_paths(relative_path=file.relative_path, rows=file.rows, unit_rows=unit_rows)
    return [
        Unit(
            path=file.path,
            relative_path=file.relative_path,
            footer_checksum=file.footer_checksum,
            first_row=index * unit_rows,
            rows=min(unit_rows, file.rows - index * unit_rows),
            output_path=path,
        )
        for index, path in enumerate(paths)
    ]


def statistics_path(output_path: str) -> str:
    """Returns where a unit's statistics lie, relative to the output folder.

    >>> statistics_path("x/part-00000-of-00002.parquet")
    '_tt/units/x/part-00000-of-00002.json'
    """
    return f"{UNITS_FOLDER}/{output_path.removesuffix(parquet.SUFFIX)}.json"


def make_plan(
    *,
    files: Sequence[InputFile],
    bad_files: Mapping[str, str],
    options: TranslateOptions,
    text_columns: Sequence[str],
    model_fingerprint: str,
    decoding: Decoding,
    engine: Mapping[str, Any],
    languages: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the content of `plan.json`: all that decides what the output holds, and versions.

    Args:
      files: The input files.
      bad_files: Those that are skipped, by relative path, and why.
      options: What to translate.
      text_columns: The columns to translate.
      model_fingerprint: Of the model.
      decoding: How translations are searched for.
      engine: What computes, and how.
      languages: Codes of the model's, "source" and "target", as far as they are known.
    """
    plan = {
        "format": FORMAT,
        "input": {
            file.relative_path: {
                "size": file.size,
                "rows": file.rows,
                "footer_checksum": file.footer_checksum,
            }
            for file in files
        },
        "bad_files": dict(bad_files),
        "options": {
            "text_columns": list(text_columns),
            "unit_rows": options.unit_rows,
            "limit": options.limit,
            "compression": options.compression,
            **dataclasses.asdict(options.cells),
        },
        "model_fingerprint": model_fingerprint,
        # The default is one number, whatever device translates: so another one may go on.
        "decoding": {
            **dataclasses.asdict(decoding),
            "batch_tokens": decoding.batch_tokens or BATCH_TOKENS,
        },
        "engine": dict(engine),
        "languages": dict(languages or {}),
        "versions": installed_versions(),
    }
    return dict(json.loads(json.dumps(plan)))  # as it reads back: a tuple is a list there


def planned_outputs(plan: Mapping[str, Any]) -> list[str]:
    """Names the output files of a plan, relative to the output folder."""
    return [
        path
        for name, file in plan["input"].items()
        for path in plan_output_paths(
            relative_path=name, rows=file["rows"], unit_rows=plan["options"]["unit_rows"]
        )
    ]


def describe_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Says in the user's words where two plans differ; [] where one goes on from the other.

    Args:
      theirs: The content of `plan.json`.
      ours: What it would be now.
    """
    theirs, ours = _decisive(theirs), _decisive(ours)
    found = []
    if theirs.get("model_fingerprint") != ours["model_fingerprint"]:
        found.append("--model: another model now")
    for part in ("engine", "decoding", "options"):
        then, now = theirs.get(part, {}), ours[part]
        found += [
            f"{_flag(name)}: {_show(then.get(name))} then, {_show(now.get(name))} now"
            for name in {**then, **now}
            if then.get(name) != now.get(name)
        ]
    found += _describe_inputs(theirs, ours)
    if theirs != ours and not found:
        found.append("it was begun by another version of tt")
    return found


def _flag(option: str) -> str:
    flags = {"name": "--engine", "text_columns": "--text-column"}
    return flags.get(option, option_flag(option))


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value in (None, "") else str(value)


def _describe_inputs(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    then, now = ({**plan["input"], **plan["bad_files"]} for plan in (theirs, ours))
    has_other_limit = theirs["options"].get("limit") != ours["options"]["limit"]
    found = []
    for name in {**then, **now}:
        before, after = ({**file, "rows": 0} if isinstance(file, dict) else file
                         for file in (then.get(name), now.get(name)))  # fmt: skip
        if before == after or (has_other_limit and None in (before, after)):
            continue  # the limit alone decides how many rows count, and of which files
        if before is None or after is None:
            became = "is new" if before is None else "is gone"
        elif _SKIPPED in (before, after):
            became = "was skipped then" if before == _SKIPPED else "is skipped now"
        else:
            became = "has changed"
        found.append(f"the input {name} {became}")
    more = len(found) - _SHOWN_INPUTS
    return [*found[:_SHOWN_INPUTS], f"{more:,} more inputs"] if more > 1 else found


def check_plan(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> dict[str, Any]:
    """Returns the plan that stands in the folder; {} of a folder that holds nothing finished.

    A run that failed before its first unit does not keep the folder from another plan.

    Args:
      plan: That of this run.
      output: The folder.
      existing: What it holds, relative to it.

    Raises:
      UserError: The folder holds another plan, or something else.
    """
    existing = list(existing)
    if f"{JOB_FOLDER}/{PLAN_FILE}" not in existing:
        # A run that was killed before its plan stood leaves a temporary file.
        _check_is_ours(existing, outputs=(), output=output)
        return {}
    standing = read_json(f"{output}/{JOB_FOLDER}/{PLAN_FILE}")
    differences = describe_differences(standing, plan)
    if differences and not _has_work(standing, existing=existing):
        _check_is_ours(existing, outputs=(), output=output)
        return {}
    if differences:
        raise UserError(
            f"the output folder {output} belongs to another run: {'; '.join(differences)}. Choose "
            "another folder, the same files and options, or --overwrite"
        )
    return standing


def _has_work(plan: Mapping[str, Any], *, existing: Sequence[str]) -> bool:
    """Says whether a folder holds what the units of its plan left, or the manifest."""
    known = {f"{JOB_FOLDER}/{MANIFEST_FILE}", *planned_outputs(plan)}
    return any(
        path in known
        or (path.startswith(f"{UNITS_FOLDER}/") and not path.endswith(TEMPORARY_SUFFIX))
        for path in existing
    )


def _decisive(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a plan that another run must share to go on from it."""
    part = {key: value for key, value in plan.items() if key not in ("versions", "languages")}
    part["bad_files"] = dict.fromkeys(plan.get("bad_files", {}), _SKIPPED)  # whatever the reason
    return part


def plan_digest(plan: Mapping[str, Any]) -> str:
    """Returns what tells units of this plan from those of any other: hex blake2b."""
    content = json.dumps(_decisive(plan), sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def find_overwritten(plan: Mapping[str, Any], *, output: str, existing: Iterable[str]) -> list[str]:
    """Lists the files that overwriting deletes, relative to the folder: the plan is the last.

    Nothing is deleted of an unfinished job of the same plan: it goes on.

    Args:
      plan: That of this run.
      output: The folder.
      existing: What it holds, relative to it.

    Raises:
      UserError: The folder holds files that no job of ours made.
    """
    existing = list(existing)
    plan_path = f"{JOB_FOLDER}/{PLAN_FILE}"
    outputs: set[str] = set()
    if plan_path in existing:
        standing = read_json(f"{output}/{plan_path}")
        outputs.update(planned_outputs(standing))
        has_been_finished = any(
            f"{JOB_FOLDER}/{name}" in existing for name in (MANIFEST_FILE, RETRY_FILE)
        )
        if not has_been_finished and plan_digest(standing) == plan_digest(plan):
            return []
    _check_is_ours(existing, outputs=outputs, output=output)
    kept = f"{JOB_FOLDER}/{LOCK_FILE}"  # by whoever holds it
    return sorted(set(existing) - {kept}, key=lambda path: (path == plan_path, path))


def _check_is_ours(existing: Iterable[str], *, outputs: Iterable[str], output: str) -> None:
    planned = set(outputs)
    for path in existing:
        if path not in planned and not path.startswith(f"{JOB_FOLDER}/"):
            raise UserError(
                f"the output folder {output} holds something else ({path}): "
                "choose an empty or a new one"
            )


def find_leftovers(
    files: Iterable[ListedFile], *, run_id: str, is_alone: bool, now: float
) -> list[str]:
    """Finds the temporary files that nobody is writing any more.

    Args:
      files: Of the job's folder.
      run_id: Of a run of which all units are finished.
      is_alone: Whether no other run can be at work.
      now: Seconds since 1970.
    """
    return [
        file.path
        for file in files
        if file.path.endswith(TEMPORARY_SUFFIX)
        and (is_alone or f".{run_id}." in file.path or 0 < file.changed < now - _LONGEST_WRITE)
    ]


@functools.cache
def installed_versions() -> dict[str, str]:
    """Returns the versions of what decides the bytes of an output file."""
    return versions_of(_PROGRAMS)


def write_json(content: Mapping[str, Any], *, output: str, path: str, run_id: str) -> None:
    """Writes JSON below an output folder, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    folder = f"{output}/{JOB_FOLDER}"
    write_text(f"{output}/{path}", text, temporary_folder=folder, run_id=run_id)


def read_json(path: str) -> dict[str, Any]:
    """Reads the plan or the manifest.

    Raises:
      UserError: The file is damaged.
    """
    try:
        with open_binary(path) as handle:
            content: Any = json.loads(handle.read())
        for key, kind in _PARTS[path.rpartition("/")[2]].items():
            if not (isinstance(content, dict) and isinstance(content.get(key), kind)):
                raise ValueError(f"it has no {key!r} of the type {kind.__name__}")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): choose another output folder") from error
    return dict(content)
