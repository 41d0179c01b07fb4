"""The Parquet files of a folder, in the order of the input that they were made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import UserError, counted
from pipelines.translate.job_folder import MANIFEST_PATH, PLAN_PATH, read_json
from pipelines.translate.plan import planned_outputs, planned_suffix

_UNIT = re.compile(r"(.*)-(\d{5,})-of-\d{5,}\.parquet")  # an output file of `tt translate-batch`


def find_parquet(path: str) -> list[Path]:
    """Return the Parquet files that a path names; a text has none.

    Files of `tt translate-batch` are in the order of its plan, without skipped units. In any other
    folder, files are sorted by the name of the input file and their number; hidden files, and files
    in hidden folders, do not count.

    Raises:
      UserError: A folder has no Parquet, or a file of its plan is missing.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [folder] if folder.suffix == ".parquet" else []
    plan = _read_job_file(folder, PLAN_PATH)
    if plan:
        return _planned_files(folder, plan)
    found = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*.parquet")}
    shown = [name for name in found if not any(part[0] in "._" for part in name.split("/"))]
    if not shown:
        raise UserError(f"{path} holds no *.parquet: name the output of `tt translate-batch`")
    return [found[name] for name in sorted(shown, key=_input_order)]


def planned_language(path: str) -> str:
    """Return the target language that a folder of `tt translate-batch` records, or ""."""
    languages = _read_job_file(Path(path), PLAN_PATH).get("languages")
    return str(languages.get("target", "")) if isinstance(languages, Mapping) else ""


def describe_skipped(path: str) -> list[str]:
    """Return a line on the rows without translations, because the job skipped them."""
    skipped = sum(unit["rows"] for unit in _skipped_units(Path(path)))
    if not skipped:
        return []
    return [f"{path} has no translations of {counted(skipped, 'row')}, which its job skipped"]


def _planned_files(folder: Path, plan: Mapping[str, Any]) -> list[Path]:
    if (suffix := planned_suffix(plan)) != ".parquet":
        raise UserError(
            f"the output folder must hold Parquet; {folder} was written as {suffix}: translate "
            "with `format=parquet`, or name texts"
        )
    written = _read_job_file(folder, MANIFEST_PATH).get("output_bytes")
    existing = [path.relative_to(folder).as_posix() for path in folder.rglob(f"*{suffix}")]
    files = [
        folder / name
        for name in planned_outputs(plan, existing)
        if written is None or name in written
    ]
    for file in files:
        if not file.is_file():
            raise UserError(
                f"{folder} is not finished ({file} is missing): run its `tt translate-batch` again"
            )
    return files


def _skipped_units(folder: Path) -> list[dict[str, Any]]:
    return list(_read_job_file(folder, MANIFEST_PATH).get("skipped_units", ()))


def _read_job_file(folder: Path, name: str) -> Mapping[str, Any]:
    path = folder / name
    return read_json(str(path)) if path.is_file() else {}


def _input_order(name: str) -> tuple[str, int]:
    numbered = _UNIT.fullmatch(name)
    return (f"{numbered[1]}.parquet", int(numbered[2])) if numbered else (name, 0)
