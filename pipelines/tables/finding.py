"""The files of tables that a user names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from model.errors import UserError
from pipelines.storage import listing
from pipelines.storage import paths as storage_paths
from pipelines.storage.listing import ListedFile, is_folder
from pipelines.storage.paths import is_local, normalize_path
from pipelines.tables.reading import table_suffix


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file that an argument named."""

    path: str  # absolute, or with its scheme
    # Where it lies below the folder or the fixed part of the glob, with "/"; a file that is named
    # itself has its name only.
    relative_path: str
    size: int | None = None  # bytes, as its folder lists it; None of a file that is named itself


def find_tables(arguments: Sequence[str]) -> list[FoundFile]:
    """Finds the files of tables that files, globs and folders name.

    In a folder every file with one of the `SUFFIXES` counts at any depth, but nothing whose name,
    or the name of a folder on its way, starts with "." or "_".

    Raises:
      UserError: An argument names nothing.
    """
    return [file for argument in arguments for file in _find_tables(argument)]


def _find_tables(argument: str) -> list[FoundFile]:
    path = normalize_path(argument)
    named = FoundFile(path=path, relative_path=path.rpartition("/")[2])
    # What is called like a file seldom is a folder, and an object store is asked for either.
    if not is_local(path) and table_suffix(path) and listing.exists(path):
        return [named]
    if is_folder(path):
        files = listing.list_with_links(path, leaves_out=is_left_out)
        found = _below(path.rstrip("/") + "/", [file for file in files if table_suffix(file.path)])
        if not found:
            raise UserError(
                f"the input folder {argument} holds no *.parquet, *.csv, *.tsv, *.jsonl or *.arrow "
                "file: name another one, or Parquet files of other names by a glob"
            )
    elif listing.exists(path):
        found = [named]
    elif re.search(r"[*?[]", path):
        base = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] + "/"
        found = _below(base, listing.find_listed(path))
        if not found:
            storage_paths.check_is_open(path)
            raise UserError(f"no file matches the input {argument}: check the path")
    else:
        raise UserError(f"no such input file or folder: {argument} (check the path)")
    return found


def _below(base: str, files: Sequence[ListedFile]) -> list[FoundFile]:
    return [
        FoundFile(path=file.path, relative_path=file.path.removeprefix(base), size=file.size)
        for file in files
    ]


def is_left_out(name: str) -> bool:
    """Says whether a file or folder of this name is none of the user's tables."""
    return name.startswith((".", "_")) or name == "lost+found"  # the root of a disk has one
