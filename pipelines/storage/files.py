"""Files on any file system that Beam knows, written so that a name never stands for a part.

A file is written under a temporary name and renamed once it is whole. Temporaries lie in the
work folder of the job, which is deleted at its end: a killed job leaves none behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib.util
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from model.errors import DiskFullError, UserError
from model.extras import pip_install

# What Beam lacks for file systems that it knows, by scheme: the module and the package.
_PACKAGES = {
    "s3": ("boto3", "boto3"),
    "hdfs": ("hdfs", "hdfs"),
    "azfs": ("azure", "apache-beam[azure]"),
}

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_local(path: str) -> bool:
    """Says whether a path is on this machine."""
    return FileSystems.get_scheme(path) is None


def make_folder(path: str) -> None:
    """Makes a folder and its parents; on object stores, which have none, this does nothing."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 (the path may be of any file system)


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading its bytes as they are.

    Raises:
      UserError: The path is of no file system that Beam knows.
    """
    try:
        file: IO[bytes] = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except ValueError as error:
        raise UserError(f"{path} cannot be opened: {lookup_reason(path, error)}") from error
    return file


def exists(path: str) -> bool:
    """Says whether there is a file.

    Raises:
      UserError: The file system is not known, not installed, or does not answer, or a folder on
        the way may not be searched.
    """
    try:
        found = bool(FileSystems.exists(path))
    except (ValueError, BeamIOError) as error:
        raise lookup_error(path, error) from error
    if not found:
        check_is_open(path)
    return found


def read_bytes(path: str) -> bytes:
    """Reads a whole file."""
    with open_binary(path) as file:
        return file.read()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A file as its folder lists it.

    Attributes:
      path: Of the file.
      size: Bytes.
      changed: When, in seconds since 1970; 0 where the file system does not say.
    """

    path: str
    size: int
    changed: float


def list_files(folder: str) -> list[ListedFile]:
    """Lists all files below a folder, by path; a folder that does not exist has none.

    Links to folders are not followed, and folders that may not be read are left out.

    Raises:
      UserError: The file system is not known, not installed, or does not answer.
    """
    root = folder.rstrip("/") + "/"
    if is_local(folder):  # Beam's globs have no way to say that a bracket is a bracket
        found = []
        for path in Path(root).rglob("*"):
            try:
                status = path.stat()
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                continue  # renamed or deleted just now, or a link that leads nowhere
            if stat.S_ISREG(status.st_mode):
                name = root + os.path.relpath(path, root)
                found.append(ListedFile(path=name, size=status.st_size, changed=status.st_mtime))
    else:
        before_glob = re.split(r"[*?[]", root, maxsplit=1)[0]
        found = [
            ListedFile(
                path=metadata.path,
                size=metadata.size_in_bytes,
                changed=metadata.last_updated_in_seconds or 0,
            )
            for metadata in _match(before_glob + "**", shown=folder)
            if metadata.path.startswith(root)
        ]
    return sorted(found, key=lambda file: file.path)


def list_folder(folder: str) -> list[str]:
    """Lists the paths of all files below a folder, sorted; see `list_files`."""
    return [file.path for file in list_files(folder)]


def list_with_links(folder: str, *, leaves_out: Callable[[str], bool]) -> list[str]:
    """Lists the paths of all files below a folder, sorted, those behind links to folders as well.

    Each folder is read once, though links may lead back or twice to one: under its own path if it
    lies there, else under that of a link. A link that leads nowhere is listed as a file.

    Args:
      folder: Local, or of a file system that has no links.
      leaves_out: Tells by its name whether a folder or file has no part in it.

    Raises:
      UserError: A folder cannot be read, or the file system is not known, not installed, or does
        not answer.
    """
    if not is_local(folder):
        root = folder.rstrip("/") + "/"
        return [
            path
            for path in list_folder(folder)
            if not any(map(leaves_out, path.removeprefix(root).split("/")))
        ]
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    folders, links = [folder.rstrip("/") or "/"], list[str]()
    while folders or links:
        path = folders.pop() if folders else links.pop(0)  # links last: most lead to what is read
        try:
            status = Path(path).stat()
            with os.scandir(path) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:  # deleted just now
            continue
        except OSError as error:
            raise UserError(
                f"the folder {path} cannot be read: {error.strerror}. Name others, or files"
            ) from error
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in inside:
            if leaves_out(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112 -- raises nothing
                links.append(entry.path)
            elif entry.is_symlink() or entry.is_file():
                found.append(entry.path)
    return sorted(found)


def delete(paths: Sequence[str]) -> None:
    """Deletes files by their exact names.

    Raises:
      UserError: A name that is not local holds what object stores take for a glob.
    """
    for path in paths:
        check_no_glob(path)
    local = [path for path in paths if is_local(path)]
    for path in local:
        Path(path).unlink(missing_ok=True)
    if remote := [path for path in paths if not is_local(path)]:
        FileSystems.delete(remote)


def check_no_glob(path: str) -> None:
    """Checks that an object store takes a name for itself: Beam deletes by globs there.

    Raises:
      UserError: The path is not local and has a character of globs.
    """
    if not is_local(path) and re.search(r"[*?[\]]", path):
        raise UserError(
            f"{path} has one of the characters * ? [ ], by which other files of an object store "
            "might be deleted: choose another name"
        )


def delete_folder(folder: str) -> None:
    """Deletes a folder with all that is in it, where it is there."""
    if is_local(folder):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        delete(list_folder(folder))


@contextlib.contextmanager
def write_whole(path: str, *, temporary_folder: str, run_id: str = "") -> Iterator[IO[bytes]]:
    """Opens a file for writing that gets its name only when the block ends without an error.

    Two workers may write the same path at once: each has its own temporary name, and the rename
    of the second replaces a file of equal content.

    Args:
      path: Of the file.
      temporary_folder: Where it lies until then.
      run_id: Put into the temporary name, to tell it from those of other runs.
    """
    # Not after the file: its name may be as long as names may be.
    unique = f"{run_id}.{uuid.uuid4().hex}" if run_id else uuid.uuid4().hex
    temporary = FileSystems.join(temporary_folder, f"unfinished.{unique}.tmp")
    try:
        with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield file
        if is_local(path):  # Beam would put its own error around that of the system
            Path(temporary).replace(path)
        else:
            FileSystems.rename([temporary], [path])
    except BaseException as error:
        with contextlib.suppress(Exception):
            delete([temporary])
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise DiskFullError(
                f"{path} cannot be written: {os.strerror(error.errno)}. Make room and run the "
                "same command again: it goes on from what is finished"
            ) from error
        raise


def write_text(path: str, text: str, *, temporary_folder: str, run_id: str = "") -> None:
    """Writes a UTF-8 text file, whole or not at all; see `write_whole`."""
    with write_whole(path, temporary_folder=temporary_folder, run_id=run_id) as file:
        file.write(text.encode())


@contextlib.contextmanager
def open_parquet_writer(
    path: str, schema: pa.Schema, *, temporary_folder: str
) -> Iterator[pq.ParquetWriter]:
    """Opens a Parquet file for writing, whole or not at all."""
    with (
        write_whole(path, temporary_folder=temporary_folder) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        yield writer


def write_parquet(path: str, table: pa.Table, *, temporary_folder: str) -> None:
    """Writes a Parquet file, whole or not at all."""
    with open_parquet_writer(path, table.schema, temporary_folder=temporary_folder) as writer:
        writer.write_table(table)


def file_identity(path: str) -> dict[str, Any]:
    """Returns what tells one version of a file from another: path, size and time of change."""
    metadata = FileSystems.get_filesystem(path).metadata(path)
    return {
        "path": path,
        "bytes": metadata.size_in_bytes,
        "changed": metadata.last_updated_in_seconds,
    }


def find_files(pattern: str) -> list[str]:
    """Returns the files that a path or a glob names, sorted.

    Raises:
      UserError: The file system is not known, not installed, or does not answer.
    """
    if FileSystems.get_scheme(pattern) is None and os.path.isfile(pattern):  # noqa: PTH113
        return [pattern]  # a name with brackets in it is still a name
    return sorted(metadata.path for metadata in _match(pattern, shown=pattern))


def _match(pattern: str, *, shown: str) -> list[FileMetadata]:
    try:
        [result] = FileSystems.match([pattern])
    except (ValueError, BeamIOError) as error:
        raise lookup_error(shown, error) from error
    return list(result.metadata_list)


def lookup_error(path: str, error: Exception) -> UserError:
    """Returns what to tell the user of a path that Beam's file systems cannot find."""
    return UserError(f"{path} cannot be looked up: {lookup_reason(path, error)}")


def lookup_reason(path: str, error: Exception) -> str:
    """Says why Beam's file systems cannot find a path."""
    scheme = FileSystems.get_scheme(path)
    module, package = _PACKAGES.get(scheme, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        return f"it needs a package that is not installed: {pip_install(package)}"
    if isinstance(error, ValueError) and scheme not in (None, "gs", *_PACKAGES):
        known = ", ".join(f"{name}://" for name in _PACKAGES)
        return f"{scheme}:// is no file system that tt knows, which are local paths, gs://, {known}"
    return " ".join(str(error).split())


def check_is_open(path: str) -> None:
    """Checks that the folders on the way to a local path, or to a glob, may be searched.

    What lies behind one that may not be looks as if it were not there.

    Raises:
      UserError: One may not be.
    """
    if is_local(path) and (folder := _closed_folder(path)):
        raise UserError(f"{path} cannot be looked up: permission denied for {folder}")


def _closed_folder(path: str) -> str:
    """Returns the first folder on the way to a path that may not be searched, or ""."""
    folder = "/"
    for part in os.path.abspath(path).split("/")[1:]:  # noqa: PTH100 (a glob is no Path)
        inside = os.path.join(folder, part)  # noqa: PTH118
        try:
            if re.search(r"[*?[]", part):
                with os.scandir(folder):
                    return ""
            os.stat(inside)  # noqa: PTH116
        except PermissionError:
            return folder
        except OSError:
            return ""
        folder = inside
    return ""
