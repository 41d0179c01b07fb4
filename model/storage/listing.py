"""List the files in folders, and the files that match globs, on any storage."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tt.model.errors import UserError
from tt.model.storage.paths import check_searchable, is_local, join, real_path, split_path
from tt.model.storage.stores import open_store

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A file in the list of a folder.

    Attributes:
      path: The path of the file.
      size: The size, in bytes.
      changed: The modification time, in seconds since 1970; 0 if it is unknown.
      tag: The ETag of an object; "" for a local file.
    """

    path: str
    size: int
    changed: float
    tag: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        """The values that identify a version of the file, for JSON."""
        tag = {"tag": self.tag} if self.tag else {}
        return {"path": self.path, "bytes": self.size, "changed": self.changed, **tag}


def _object(path: str, found: Mapping[str, Any]) -> ListedFile:
    """Return the list entry of an object.

    Some stores return other fractions of a second, or no quotation marks around the tag, if they
    are asked for a single object.
    """
    return ListedFile(
        path=path,
        size=found["size"],
        changed=float(int(found["last_modified"].timestamp())),
        tag=(found["e_tag"] or "").strip('"'),
    )


def find_file(path: str) -> ListedFile:
    """Return the list entry of a file.

    Raises:
      FileNotFoundError: There is no such file.
      UserError: The store does not answer, or denies access.
    """
    if is_local(path):
        status = os.stat(path)  # noqa: PTH116 -- paths stay strings
        return ListedFile(path=path, size=status.st_size, changed=status.st_mtime)
    with open_store(path) as (store, key):
        if not key:  # stores answer with the bucket
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _object(path, store.head(key))


def find_size(path: str) -> int | None:
    """Return the size of a file in bytes, or None if there is no such file.

    Raises:
      UserError: The store does not answer, or the user may not search a folder of the path.
    """
    try:
        return find_file(path).size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        check_searchable(path)
        return None


def exists(path: str) -> bool:
    """Return whether a file or a local folder exists; see `find_size`."""
    return find_size(path) is not None


def list_files(folder: str) -> list[ListedFile]:
    """List all files below a folder, sorted by path; return [] if the folder does not exist.

    Links to folders are not followed. Folders without read permission are skipped.

    Raises:
      UserError: The store does not answer, or denies access.
    """
    root = folder.rstrip("/") + "/"
    found: list[ListedFile] = []
    if is_local(folder):
        for parent, _, names in os.walk(root):
            paths = (join(parent, name) for name in names)
            found += [_listed(path) for path in paths if os.path.isfile(path)]  # noqa: PTH113
    else:
        # Some programs create empty objects with the names of folders.
        objects = list(_list_objects(root))
        folders = {folder, root, *(file.path.rpartition("/")[0] for file in objects)}
        found = [file for file in objects if file.size or file.path not in folders]
    return sorted(found, key=lambda file: file.path)


def _list_objects(folder: str, *, most: int = 1000) -> Iterator[ListedFile]:
    """Yield the objects below a folder, in pages of at most `most` objects."""
    root, _ = split_path(folder)
    # A name that no folder can have raises FileNotFoundError.
    with contextlib.suppress(FileNotFoundError), open_store(folder) as (store, prefix):
        for page in store.list(prefix or None, chunk_size=most):
            yield from (_object(f"{root}/{each['path']}", each) for each in page)


def list_folder(folder: str) -> list[str]:
    """List the sorted paths of all files below a folder; see `list_files`."""
    return [file.path for file in list_files(folder)]


def list_with_links(
    folder: str,
    *,
    is_skipped: Callable[[str], bool],
    on_skipped: Callable[[str], object] = lambda path: None,
) -> list[ListedFile]:
    """List all files below a folder, and below links to other folders, sorted by path.

    Each folder is listed only once, even if several links point to it. Its files are listed under
    the folder's own path if that is below `folder`, and otherwise under the path of a link. A
    dangling link is listed as a file.

    Args:
      folder: The folder.
      is_skipped: Tells whether to skip files and folders with a given name.
      on_skipped: Receives the path of each skipped file or folder; the path of a folder ends with
        a slash.

    Raises:
      UserError: A folder cannot be read, or the store does not answer or denies access.
    """
    if not is_local(folder):
        return _without_skipped(folder, is_skipped=is_skipped, on_skipped=on_skipped)
    found: list[ListedFile] = []
    seen: set[str] = set()
    roots = [folder.rstrip("/") or "/"]
    while roots:
        # Links are followed last, because most links point to a folder that is listed anyway.
        for path, folders, names in os.walk(roots.pop(0), onerror=_refuse_folder):
            if real_path(path) in seen:
                folders.clear()
                continue
            seen.add(real_path(path))
            directories = set(folders)
            folders[:] = sorted(name for name in folders if not is_skipped(name))
            for name in sorted([*directories, *names]):
                inside = join(path, name)
                if is_skipped(name):
                    on_skipped(inside + "/" * (name in directories))
                elif name in directories:
                    roots += [inside] * os.path.islink(inside)  # noqa: PTH114
                elif os.path.isfile(inside) or os.path.islink(inside):  # noqa: PTH113, PTH114
                    found.append(_listed(inside))
    return sorted(found, key=lambda file: file.path)


def _refuse_folder(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # the folder was just deleted
        raise UserError(
            f"the folder {error.filename} cannot be read: {error.strerror}. Choose other folders, "
            "or the paths of files"
        ) from error


def _without_skipped(
    folder: str, *, is_skipped: Callable[[str], bool], on_skipped: Callable[[str], object]
) -> list[ListedFile]:
    """Do the same as `list_with_links` on an object store, which has no folders and links."""
    root = folder.rstrip("/") + "/"
    found: list[ListedFile] = []
    skipped: dict[str, None] = {}
    for file in list_files(folder):
        parts = file.path.removeprefix(root).split("/")
        first = next((i for i, part in enumerate(parts) if is_skipped(part)), None)
        if first is None:
            found.append(file)
        else:
            path = root + "/".join(parts[: first + 1])
            skipped[path + "/" * (first + 1 < len(parts))] = None
    for path in skipped:
        on_skipped(path)
    return found


def _listed(path: str) -> ListedFile:
    """Return the list entry of a local file; a dangling link has the size 0."""
    try:
        return find_file(path)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return ListedFile(path=path, size=0, changed=0)


def is_pipe_or_device(path: str) -> bool:
    """Return whether a local path can be opened, but is neither a file nor a folder."""
    is_found = is_local(path) and os.path.exists(path)  # noqa: PTH110 -- paths stay strings
    return is_found and not (os.path.isfile(path) or os.path.isdir(path))  # noqa: PTH112, PTH113


def file_identity(path: str) -> dict[str, Any]:
    """Return the path, size, modification time and ETag, which identify a version of a file.

    Raises:
      FileNotFoundError: There is no such file.
      UserError: The store does not answer, or denies access.
    """
    return find_file(path).identity


def _has_changed(identity: Mapping[str, Any]) -> bool:
    if is_pipe_or_device(identity["path"]):
        return False
    try:
        return not file_identity(identity["path"]).items() >= identity.items()
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def unchanged(identities: Iterable[Mapping[str, Any]]) -> Iterator[None]:
    """Run the block, then check that files still have the same `file_identity`.

    If the block raises an error and a file has changed, the error about the change replaces it.
    Pipes are not checked, because writing to a pipe changes its modification time.

    Raises:
      UserError: A file has changed, or no longer exists.
    """
    try:
        yield
    finally:
        for identity in identities:
            if _has_changed(identity):
                raise UserError(
                    f"{identity['path']} has changed since the job was planned. Run the same "
                    "command again"
                )


def find_listed(pattern: str) -> list[ListedFile]:
    """Return the files that match a path or a glob, sorted by path.

    Raises:
      UserError: The store does not answer, or denies access.
    """
    if is_local(pattern):
        # The name of an existing file may contain brackets.
        if os.path.isfile(pattern):  # noqa: PTH113 -- paths stay strings
            return [_listed(pattern)]
        found = glob.glob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207
        return [_listed(path) for path in sorted(found) if not os.path.isdir(path)]  # noqa: PTH112
    split_path(pattern)
    folder = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    matches = compile_glob(pattern)
    return [file for file in list_files(folder) if matches.fullmatch(file.path)]


def compile_glob(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression for the paths that `find_listed` finds for a glob.

    >>> compile_glob("a/**/[!b]*.tsv").pattern
    'a/(?:.*/)?[^b][^/]*\\.tsv'
    """
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^]]+\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(
            known.get(part) or (part.replace("[!", "[^") if part[:1] == "[" else re.escape(part))
            for part in parts
        )
    )


def is_folder(path: str) -> bool:
    """Return whether a path is a folder; on an object store, whether it contains any object."""
    if is_local(path):
        return os.path.isdir(path)  # noqa: PTH112
    return next(_list_objects(path, most=1), None) is not None


def list_names(folder: str) -> list[str]:
    """Return the sorted names in a folder; [] if the folder does not exist."""
    if is_local(folder):
        here = Path(folder)
        return sorted(path.name for path in here.iterdir()) if here.is_dir() else []
    try:
        with open_store(folder) as (store, prefix):
            found = store.list_with_delimiter(prefix or None)
    except FileNotFoundError:  # no folder has such a name
        return []
    names = [each["path"] for each in found["objects"]] + list(found["common_prefixes"])
    return sorted(name.rstrip("/").rpartition("/")[2] for name in names)
