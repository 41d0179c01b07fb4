"""The files of tables that a user names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from model.errors import UserError, counted
from pipelines.storage import listing
from pipelines.storage import paths as storage_paths
from pipelines.storage.listing import ListedFile, is_folder
from pipelines.storage.paths import JOB_FOLDER, is_local, normalize_path
from pipelines.tables.reading import table_suffix

_MOST_NAMES = 5  # of what is left out, in a line
_LOST = "lost+found"  # the root of a disk has one
_OWN_FOLDERS = (f"{JOB_FOLDER}/", f"{_LOST}/")  # never a user's tables


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file that an argument named."""

    path: str  # absolute, or with its scheme
    # Where it lies below the folder or the fixed part of the glob, with "/"; a file that is named
    # itself has its name only.
    relative_path: str
    size: int | None = None  # bytes, as its folder lists it; None of a file that is named itself


def find_tables(
    arguments: Sequence[str], *, warn: Callable[[str], object] = lambda line: None
) -> list[FoundFile]:
    """Find the files of tables that files, globs and folders name.

    In a folder every file with one of the `SUFFIXES` counts at any depth, except files and folders
    whose names start with "." or "_".

    Args:
      arguments: Files, globs and folders.
      warn: Receives a line for each folder in which such files or folders were skipped.

    Raises:
      UserError: An argument names nothing, or a pipe or device.
    """
    found = [file for argument in arguments for file in _find_tables(argument, warn=warn)]
    for file in found:
        if listing.is_pipe_or_device(file.path):
            raise UserError(
                f"the input {file.path} is a pipe or a device, and tables are read more than once: "
                "write it to a file first"
            )
    return found


def _find_tables(argument: str, *, warn: Callable[[str], object]) -> list[FoundFile]:
    path = normalize_path(argument)
    named = FoundFile(path=path, relative_path=path.rpartition("/")[2])
    # What is called like a file seldom is a folder, and an object store is asked for either.
    if not is_local(path) and table_suffix(path) and listing.exists(path):
        return [named]
    if is_folder(path):
        left_out: list[str] = []
        files = listing.list_with_links(path, leaves_out=is_left_out, on_left_out=left_out.append)
        skipped = _describe_left_out(left_out, folder=path)
        found = _below(path.rstrip("/") + "/", [file for file in files if table_suffix(file.path)])
        if not found:
            raise UserError(
                f"the input folder {argument} holds no *.parquet, *.csv, *.tsv, *.jsonl or *.arrow "
                "file: name another one, or Parquet files of other names by a glob"
                + (f". Skipped: {skipped}" if skipped else "")
            )
        if skipped:
            warn(f"skipped in {argument}: {skipped}")
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


def _describe_left_out(paths: Sequence[str], *, folder: str) -> str:
    """Return how many tables and folders of tables were left out and why, or ""."""
    base = folder.rstrip("/") + "/"
    names = sorted(path.removeprefix(base) for path in paths)
    folders = [name for name in names if name.endswith("/") and not name.endswith(_OWN_FOLDERS)]
    files = [name for name in names if table_suffix(name)]
    counts = [
        counted(len(some), noun) for some, noun in ((files, "file"), (folders, "folder")) if some
    ]
    if not counts:
        return ""
    shown = [*files, *folders]
    more = ", ..." if len(shown) > _MOST_NAMES else ""
    return (
        f"{' and '.join(counts)} with a name that starts with . or _ "
        f"({', '.join(shown[:_MOST_NAMES])}{more}). To translate such files, name them or use a "
        "glob"
    )


def _below(base: str, files: Sequence[ListedFile]) -> list[FoundFile]:
    return [
        FoundFile(path=file.path, relative_path=file.path.removeprefix(base), size=file.size)
        for file in files
    ]


def is_left_out(name: str) -> bool:
    """Tell whether to leave out a file or folder of this name when a folder is listed."""
    return name.startswith((".", "_")) or name == _LOST
