"""Find the files that a user names with paths, globs and folders.

This module imports no large library, so that `tt --help` is fast.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from tt.model.errors import UserError, counted
from tt.model.storage import listing
from tt.model.storage import paths as storage_paths
from tt.model.storage.listing import ListedFile, is_folder
from tt.model.storage.paths import is_local, normalize_path
from tt.pipelines.tables.formats import ReadOptions, table_suffix

_MOST_NAMES = 5  # the maximum number of skipped files that a notice lists
_LAKE_FILE = re.compile(r"(.*)/(?:(_delta_log)/|metadata/[^/]+\.metadata\.json)")
_LOST_AND_FOUND = "lost+found"  # a folder that Linux creates in the root of a disk


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundFile:
    """An input file that an argument names or matches.

    Attributes:
      path: The absolute path, or the path with its scheme.
      relative_path: The path relative to the folder or to the fixed part of the glob, with "/" as
        the separator; only the file's name if the argument is the file itself.
      size: The size in bytes, if the file has been listed.
      changed: The modification time in seconds since 1970, if the file has been listed.
    """

    path: str
    relative_path: str
    size: int | None = None
    changed: float | None = None


def find_tables(
    argument: str, *, options: ReadOptions, warn: Callable[[str], object], unread: list[str]
) -> list[FoundFile]:
    """Find the table files that a path, a glob or a folder names.

    A folder stands for all files in it, at any depth, that have the ending of a table format.
    This excludes .txt and .json files, because many folders contain such a file that describes
    their tables. With `input_format`, a folder stands for all files. Files and folders whose names
    start with "." or "_" are skipped.

    Args:
      argument: The path of a file or a folder, or a glob.
      options: How to read the files.
      warn: Receives a line for a folder in which files or folders were skipped.
      unread: A list that receives the files of a folder that have no ending of a table format.

    Raises:
      UserError: The argument matches no file, names a pipe or a device, or names a table of Delta
        Lake or Iceberg as if it were a folder.
    """
    found = _find_tables(argument, options=options, warn=warn, unread=unread)
    for file in found:
        if listing.is_pipe_or_device(file.path):
            raise UserError(
                f"the input {file.path} is a pipe or a device, but tt reads tables more than once. "
                "Write the table to a file first"
            )
    return found


def _find_tables(
    argument: str, *, options: ReadOptions, warn: Callable[[str], object], unread: list[str]
) -> list[FoundFile]:
    path = normalize_path(argument)
    named = [FoundFile(path=path, relative_path=path.rpartition("/")[2])]
    # A path that ends like a table is rarely a folder, and each check costs a request to the object
    # store.
    if not is_local(path) and table_suffix(path):
        with contextlib.suppress(UserError):  # the steps below report it unless it is a folder
            return [with_identity(named[0])]
    if is_folder(path):
        skipped: list[str] = []
        files = listing.list_with_links(path, is_skipped=is_skipped_name, on_skipped=skipped.append)
        _check_names([*skipped, *(file.path for file in files)])
        check_no_lake(path, [f"{path}/*"])  # the folder of a partition
        is_taken = functools.partial(_is_taken_from_folders, options=options)
        tables = [file for file in files if is_taken(file.path)]
        found = _below(path.rstrip("/") + "/", tables)
        unread += [file.path for file in files if not is_taken(file.path)]
        own = (f"{storage_paths.JOB_FOLDER}/", f"{_LOST_AND_FOUND}/")  # never a user's tables
        shown = [
            name.removeprefix(path.rstrip("/") + "/")
            for name in sorted(skipped)
            if is_taken(name) or (name.endswith("/") and not name.endswith(own))
        ]
        more = ", ..." if len(shown) > _MOST_NAMES else ""
        notice = (
            f"skipped {counted(len(shown), 'name')} starting with . or _ in {argument} "
            f"({', '.join(shown[:_MOST_NAMES])}{more}). To translate such files, choose their "
            "paths or a glob"
        )
        if not found:
            raise UserError(
                f"the input folder {argument} contains no *.parquet, *.csv, *.tsv, *.jsonl or "
                "*.arrow file. Choose another folder, or set `input_format` to read its other files"
                + (f" ({notice})" if shown else "")
            )
        if shown:
            warn(notice)
        return found
    if listing.exists(path):
        check_no_lake(path, [path])
        return named
    if re.search(r"[*?[]", path):
        base = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] + "/"
        if found := _below(base, listing.find_listed(path)):
            check_no_lake(path, [file.path for file in found])
            return found
        storage_paths.check_searchable(path)
    raise UserError(f"no file matches the input {argument}. Check the path")


def count_endings(paths: Sequence[str]) -> dict[str, int]:
    """Return the number of files by ending, the most frequent ending first.

    >>> count_endings(["x/a.pdf", "b.txt.bak", "c.PDF", "d/README"])
    {'.pdf': 2, '.txt.bak': 1, 'no ending': 1}
    """
    endings = collections.Counter[str]()
    for path in paths:
        stem, _, last = path.rpartition("/")[2].lower().rpartition(".")
        endings[f"{table_suffix(stem)}.{last}" if stem else "no ending"] += 1
    return dict(endings.most_common())


def describe_unread(endings: Mapping[str, int]) -> list[str]:
    """Return a line about the files in input folders that were not read, if there are any.

    >>> describe_unread({".txt.bak": 2, ".pdf": 1})
    ['3 files in the input folders were not read: 2 .txt.bak, 1 .pdf']
    """
    shown = ", ".join(f"{count:,} {ending}" for ending, count in endings.items())
    total = sum(endings.values())
    verb = "was" if total == 1 else "were"
    line = f"{counted(total, 'file')} in the input folders {verb} not read: {shown}"
    return [line] if endings else []


def _is_taken_from_folders(path: str, *, options: ReadOptions) -> bool:
    found = options.format_of(path)
    return found is not None and (options.input_format is not None or found.is_in_folders)


def _below(base: str, files: Sequence[ListedFile]) -> list[FoundFile]:
    return [
        FoundFile(
            path=file.path,
            relative_path=file.path.removeprefix(base),
            size=file.size,
            changed=file.changed,
        )
        for file in files
    ]


def with_identity(file: FoundFile) -> FoundFile:
    """Return a file with its size and its modification time, also if it has not been listed.

    Raises:
      UserError: The file was just deleted, or the file system does not answer.
    """
    if file.size is not None:
        return file
    try:
        found = listing.find_file(file.path)
    except OSError as error:
        raise UserError(f"{file.path} cannot be looked up: {error}") from error
    return dataclasses.replace(file, size=found.size, changed=found.changed)


def check_no_lake(argument: str, paths: Sequence[str], *, remedy: str | None = None) -> None:
    """Check that files do not belong to a table of Delta Lake or Iceberg.

    The folder of a table also contains the deleted and earlier versions of its rows.

    Args:
      argument: The path, folder or glob that a user gave. On an object store, where each check is a
        request, only folders are checked, with the names that are listed anyway.
      paths: The files that the argument names.
      remedy: The fix in the error; None to choose the address of the table.

    Raises:
      UserError: A folder of the files is the folder of a table.
    """
    if not is_local(argument):
        return
    for folder in dict.fromkeys(folder for path in paths for folder in _table_folders(path)):
        names = [f"{folder}/metadata/{name}" for name in listing.list_names(f"{folder}/metadata")]
        names += [f"{folder}/_delta_log/"] * is_folder(f"{folder}/_delta_log")
        _check_names(names, remedy=remedy)


def _table_folders(path: str) -> list[str]:
    """Return the folders of tables that may contain a data file."""
    folder = normalize_path(path).rpartition("/")[0]
    while "=" in folder.rpartition("/")[2]:  # the folder of a partition
        folder = folder.rpartition("/")[0]
    parent, _, name = folder.rpartition("/")
    return [folder, parent] if name == "data" else [folder]


def _check_names(names: Sequence[str], *, remedy: str | None = None) -> None:
    """Check that no path belongs to the log or the metadata of a table."""
    for table, log in (found.groups() for found in map(_LAKE_FILE.fullmatch, names) if found):
        kind = "a Delta table" if log else "an Iceberg table"
        address = f"delta:{table}" if log else "iceberg:CATALOG.NAMESPACE.TABLE"
        raise UserError(
            f"{table} is {kind}, and its files also contain deleted rows. "
            f"{remedy or f'Choose {address} as the input'}"
        )


def is_skipped_name(name: str) -> bool:
    """Return whether the search in a folder skips files and folders with this name."""
    return name.startswith((".", "_")) or name == _LOST_AND_FOUND
