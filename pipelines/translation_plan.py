"""What a Parquet job is to do and what it did: input files, units, plan and manifest.

`_tt/plan.json` holds all that decides what the output holds and is written first;
`_tt/manifest.json` holds what came out and is written last. No transforms here: `translate` has
them.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems

from model.config import MAX_SOURCE_TOKENS
from model.errors import UserError
from pipelines import parquet
from pipelines.cells import STATUSES
from pipelines.files import open_binary, write_text

TRANSLATION = "translation"
SCORE = "translation_score"
STATUS = "translation_status"

COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")

JOB_FOLDER = "_tt"
TEMPORARY_SUFFIX = ".tmp"  # not .parquet: others glob for that
PLAN_FILE = "plan.json"
MANIFEST_FILE = "manifest.json"
FORMAT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """What to translate, and where to.

    Attributes:
      input: Files, globs, and folders, of which every `*.parquet` at any depth counts.
      output: A folder.
      text_column: The column to translate; None for the only one that holds strings.
      unit_rows: The most rows of a unit of work, which is an output file.
      max_source_tokens: The most ids of a text, BOS and EOS counted; a longer one is not
        translated, and its status says so.
      compression: Of the output files.
    """

    input: tuple[str, ...]
    output: str
    text_column: str | None = None
    unit_rows: int = 8192
    max_source_tokens: int = MAX_SOURCE_TOKENS
    compression: str = "zstd"

    def __post_init__(self) -> None:
        if not self.input:
            raise UserError("no input: name Parquet files, folders or globs")
        if not self.output:
            raise UserError("no output: name a folder")
        if self.unit_rows < 1:
            raise UserError(f"unit rows must be at least 1. Received: {self.unit_rows}")
        if self.max_source_tokens < 3:
            raise UserError(
                "max source tokens must be at least 3 (BOS, a piece and EOS). "
                f"Received: {self.max_source_tokens}"
            )
        if self.compression not in COMPRESSIONS:
            raise UserError(
                f"compression must be one of {', '.join(COMPRESSIONS)}. "
                f"Received: {self.compression!r}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A planned input file.

    Attributes:
      path: Where it is now.
      relative_path: What its outputs are named after.
      size: Bytes.
      rows: Rows.
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
      first_row: Index in the file.
      rows: Rows of the unit; 0 only for the one unit of a file without rows.
      output_path: Relative to the output folder.
      was_finished: Whether its output was there when this run began.
    """

    path: str
    relative_path: str
    first_row: int
    rows: int
    output_path: str
    was_finished: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """What the manifest needs of a unit."""

    relative_path: str
    rows_by_status: dict[str, int]
    was_reused: bool


def output_stem(relative_path: str) -> str:
    """Returns the output's path up to its number.

    >>> output_stem("x/part.parquet")
    'x/part'
    """
    return relative_path.removesuffix(parquet.SUFFIX)


def plan_units(file: InputFile, *, unit_rows: int) -> list[Unit]:
    """Cuts a file into runs of at most `unit_rows` rows; one without rows gives one empty unit."""
    count = max(1, -(-file.rows // unit_rows))
    return [
        Unit(
            path=file.path,
            relative_path=file.relative_path,
            first_row=index * unit_rows,
            rows=min(unit_rows, file.rows - index * unit_rows),
            output_path=(
                f"{output_stem(file.relative_path)}-{index:05d}-of-{count:05d}{parquet.SUFFIX}"
            ),
        )
        for index in range(count)
    ]


def inspect_input(options: TranslateOptions) -> tuple[list[InputFile], str]:
    """Reads every footer.

    Returns:
      The input files, and the column to translate.

    Raises:
      UserError: A file is missing or no Parquet, names collide, or there is no one text column.
    """
    found = parquet.find_files(options.input)
    paths_by_stem: dict[str, str] = {}
    for file in found:
        other = paths_by_stem.setdefault(output_stem(file.relative_path), file.path)
        if other is not file.path:
            raise UserError(
                f"{other} and {file.path} would have the same output files, "
                f"{output_stem(file.relative_path)}-*{parquet.SUFFIX}: name the folder that holds "
                "both, or translate them into two folders"
            )
    footers = parquet.read_footers([file.path for file in found])
    text_column = options.text_column
    for file, footer in zip(found, footers, strict=True):
        for name in (TRANSLATION, SCORE, STATUS):
            if name in footer.schema.names:
                raise UserError(
                    f"{file.path} has a column {name!r} already, which is the name of a column "
                    "that is added: rename or drop it"
                )
        column = parquet.find_text_column(
            schema=footer.schema, text_column=options.text_column, path=file.path
        )
        if text_column not in (None, column):
            raise UserError(
                f"the files must agree on the column to translate; it is {text_column!r} in "
                f"{found[0].path} and {column!r} in {file.path}. Translate them into two folders"
            )
        text_column = column
    assert text_column is not None  # there is at least one file
    files = [
        InputFile(
            path=file.path,
            relative_path=file.relative_path,
            size=footer.size,
            rows=footer.rows,
            footer_checksum=footer.checksum,
        )
        for file, footer in zip(found, footers, strict=True)
    ]
    return files, text_column


def check_place(options: TranslateOptions, *, output: str) -> None:
    """Checks that the output can be a folder there, and that no rerun would read its own output.

    Raises:
      UserError: It is a file, or lies in an input folder.
    """
    if FileSystems.exists(output) and not parquet.is_folder(output):
        raise UserError(f"the output must be a folder; {options.output} is a file")
    for argument in options.input:
        path = parquet.normalize_path(argument)
        if parquet.is_folder(path) and f"{output}/".startswith(f"{path}/"):
            raise UserError(
                f"the output folder {options.output} lies in the input folder {argument}: "
                "choose one outside"
            )


def make_plan(
    *,
    files: Sequence[InputFile],
    options: TranslateOptions,
    text_column: str,
    model_fingerprint: str,
    decoding: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the content of `plan.json`: all that decides what the output holds."""
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
        "options": {
            "text_column": text_column,
            "unit_rows": options.unit_rows,
            "max_source_tokens": options.max_source_tokens,
            "compression": options.compression,
        },
        "model_fingerprint": model_fingerprint,
        "decoding": dict(decoding),
    }
    return dict(json.loads(json.dumps(plan)))  # as it reads back: a tuple is a list there


def find_difference(theirs: Any, ours: Any, *, key: str = "") -> tuple[str, Any, Any] | None:
    """Finds the first difference of two JSON values: its key, and both values.

    >>> find_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})
    ('b.c', 2, 3)
    """
    if theirs == ours:
        return None
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            path = f"{key}.{name}" if key else name
            found = find_difference(theirs.get(name, "absent"), ours.get(name, "absent"), key=path)
            if found:
                return found
    return key, theirs, ours


def check_plan(plan: dict[str, Any], *, output: str, existing: Sequence[str]) -> bool:
    """Tells whether this plan stands in the folder already; False for an empty folder.

    Raises:
      UserError: The folder holds another plan, or something else.
    """
    if f"{JOB_FOLDER}/{PLAN_FILE}" not in existing:
        # A run that was killed before its plan stood leaves a temporary file.
        foreign = [path for path in existing if not path.startswith(f"{JOB_FOLDER}/")]
        if foreign:
            raise UserError(
                f"the output folder {output} holds something else ({foreign[0]}): "
                "choose an empty or a new one"
            )
        return False
    difference = find_difference(read_json(f"{output}/{JOB_FOLDER}/{PLAN_FILE}"), plan)
    if difference:
        key, theirs, ours = difference
        raise UserError(
            f"the output folder {output} belongs to another run: {key} was {theirs!r} there and "
            f"is {ours!r} now. Choose another folder, or the same files and options"
        )
    return True


def make_manifest(*, plan: dict[str, Any], statistics: Sequence[UnitStatistics]) -> dict[str, Any]:
    """Returns the content of `manifest.json`.

    Raises:
      RuntimeError: A file has other rows out than in.
    """
    files = {
        name: {"rows": 0, "units": 0, "rows_by_status": dict.fromkeys(STATUSES, 0)}
        for name in plan["input"]
    }
    for unit in statistics:
        file: dict[str, Any] = files[unit.relative_path]
        file["units"] += 1
        file["rows"] += sum(unit.rows_by_status.values())
        for status, rows in unit.rows_by_status.items():
            file["rows_by_status"][status] += rows
    for name, planned in plan["input"].items():
        if files[name]["rows"] != planned["rows"]:
            raise RuntimeError(f"{name}: {planned['rows']} rows in, {files[name]['rows']} out")
    return {
        "format": FORMAT,
        "files": files,
        "rows": sum(planned["rows"] for planned in plan["input"].values()),
        "rows_by_status": {
            status: sum(unit.rows_by_status[status] for unit in statistics) for status in STATUSES
        },
        "units": len(statistics),
        "reused_units": sum(unit.was_reused for unit in statistics),
        "model_fingerprint": plan["model_fingerprint"],
        "decoding": plan["decoding"],
        "options": plan["options"],
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("tt-translate", "apache-beam", "pyarrow", "tensorflow"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def write_json(content: dict[str, Any], *, output: str, name: str) -> None:
    """Writes the plan or the manifest of an output folder, whole or not at all."""
    folder = f"{output}/{JOB_FOLDER}"
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_text(f"{folder}/{name}", text, temporary_folder=folder)


def read_json(path: str) -> Any:
    """Reads the plan or the manifest.

    Raises:
      UserError: The file is damaged.
    """
    try:
        with open_binary(path) as handle:
            return json.loads(handle.read())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): choose another output folder") from error
