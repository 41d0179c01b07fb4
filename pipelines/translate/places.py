"""Check the names of input files, and the place of the output folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tt.model.errors import UserError
from tt.model.storage import listing, paths
from tt.model.storage.paths import JOB_FOLDER
from tt.pipelines.tables.finding import FoundFile
from tt.pipelines.tables.lakehouse import parse_address
from tt.pipelines.translate.job_folder import PLAN_PATH
from tt.pipelines.translate.options import TranslateOptions
from tt.pipelines.translate.plan import output_stem, plan_output_paths, planned_outputs

_LONGEST_NAME = 255  # the maximum length of a file name on common file systems, in bytes
_CHOOSE_OUTPUT = "Choose another `output`"


def check_names(found: Sequence[FoundFile], *, output: str, suffix: str) -> None:
    """Check the names of input files, and that no two files have the same output files.

    Raises:
      UserError: A file is named twice, is in the output folder, or has an invalid name; or two
        files would have the same output files.
    """
    paths_by_stem: dict[str, str] = {}
    seen: set[str] = set()
    folder = paths.real_path(output)
    for file in found:
        if file.path in seen:
            raise UserError(f"the input contains {file.path} twice. Choose each file only once")
        seen.add(file.path)
        _check_name(file, output=output, suffix=suffix)
        if paths.contains(folder, file.path):
            raise UserError(f"the input file {file.path} is in the output folder. {_CHOOSE_OUTPUT}")
        other = paths_by_stem.setdefault(output_stem(file.relative_path), file.path)
        if other is not file.path:
            is_one_folder = other.rpartition("/")[0] == file.path.rpartition("/")[0]
            remedy = "Rename a file" if is_one_folder else "Choose the folder that contains both"
            raise UserError(
                f"{other} and {file.path} would have the same output files, "
                f"{output_stem(file.relative_path)}-*{suffix}. {remedy}, or translate them into "
                "separate folders"
            )


def _check_name(file: FoundFile, *, output: str, suffix: str) -> None:
    """Check that the names of the output files are valid for an input file."""
    name = file.relative_path
    try:
        file.path.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"the path of the input file {file.path!r} is not UTF-8. Rename it"
        ) from None
    if name.startswith(f"{JOB_FOLDER}/"):
        raise UserError(
            f"the output files of {file.path} would be in {JOB_FOLDER}/, the folder of the job's "
            f"own files. Choose the folder {JOB_FOLDER} itself, or files in it, as the input"
        )
    [longest] = plan_output_paths(
        relative_path=name.rpartition("/")[2], rows=1, unit_rows=1, suffix=suffix
    )
    excess = len(longest.encode()) - _LONGEST_NAME
    if paths.is_local(output) and excess > 0:
        raise UserError(
            f"the name of {file.path} is too long, because tt appends numbers to it for the output "
            f"files. Shorten it by {excess} bytes"
        )


def check_place(options: TranslateOptions, *, output: str) -> None:
    """Check that the output is not a file, and that it is not inside an input folder.

    A second run would read output files inside an input folder as input.

    Raises:
      UserError: The output is a file, or is inside an input folder.
    """
    if listing.exists(output) and not listing.is_folder(output):
        raise UserError(
            f"the output must be a folder; {options.output} is a file. {_CHOOSE_OUTPUT}"
        )
    for argument in options.input:
        if parse_address(argument):  # the output may be next to the files of a table
            continue
        path = paths.normalize_path(argument)
        if paths.contains(paths.real_path(path), output) and listing.is_folder(path):
            raise UserError(
                f"the output folder {options.output} is inside the input folder {argument}. "
                f"{_CHOOSE_OUTPUT}"
            )


def check_matches(arguments: Sequence[str], *, output: str, plan: Mapping[str, Any]) -> None:
    """Check that no input glob will match a file that the job writes.

    Raises:
      UserError: A glob matches an output file or the plan.
    """
    written = [PLAN_PATH, *planned_outputs(plan)]
    for argument in arguments:
        path = paths.normalize_path(argument)
        if parse_address(argument) or not re.search(r"[*?[]", path):
            continue
        if listing.exists(path) or listing.is_folder(
            path
        ):  # an existing name with brackets is not a glob
            continue
        # Beam's globs follow links in the part of the path before the first glob character, so the
        # paths are compared both with and without resolving these links.
        base = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] + "/"
        real_base = paths.real_path(base).rstrip("/") + "/"
        for pattern, folder in (
            (path, output),
            (real_base + path.removeprefix(base), paths.real_path(output)),
        ):
            matches = listing.compile_glob(pattern).match
            if any(matches(f"{folder}/{name}") for name in written):
                raise UserError(
                    f"the input glob {argument} matches files in the output folder {output}. "
                    f"{_CHOOSE_OUTPUT}"
                )
