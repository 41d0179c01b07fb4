"""Read, write and delete files on this machine and on object stores.

A file gets its name only when it is complete. Until then, a local file has a temporary name in a
folder of the job; if a run is killed, a later run deletes its temporary files. An object appears
only when its upload ends.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import io
import itertools
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from tt.model import folders as local_folders
from tt.model.errors import BadFileError, DiskFullError, UnfinishedError, UserError, explain_denied
from tt.model.folders import publish
from tt.model.storage.listing import exists, find_file, list_files, list_folder
from tt.model.storage.paths import is_local, split_path
from tt.model.storage.stores import explain, open_store

AT_ONCE = 16  # the maximum number of simultaneous requests
_READ_BYTES = 16 << 20  # the bytes of a request, if a file is read from front to back
_PART_BYTES = 64 << 20  # larger objects are uploaded in parts of this size
_PARTS_AT_ONCE = 2  # the number of parts in memory


def make_folder(path: str) -> None:
    """Create a folder and its missing parents; do nothing on object stores."""
    if is_local(path):
        local_folders.make_folder(path)


class _RemoteFile(io.RawIOBase):
    """An object, read by one request for each range of bytes."""

    def __init__(self, path: str) -> None:
        self._path, self._size, self._position = path, find_file(path).size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._position + len(buffer))
        data = read_range(self._path, self._position, max(self._position, end))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def open_binary(path: str, *, is_read_in_parts: bool = False) -> IO[bytes]:
    """Open a file to read its bytes without decompression.

    Args:
      path: The path of the file.
      is_read_in_parts: Whether each read of an object is a request for exactly its bytes.

    Raises:
      OSError: The file does not exist, or cannot be read.
      UserError: The store does not answer, or denies access.
    """
    if is_local(path):
        return Path(path).open("rb")
    file = _RemoteFile(path)
    return cast("IO[bytes]", file) if is_read_in_parts else io.BufferedReader(file, _READ_BYTES)


def open_input(path: str, *, is_read_in_parts: bool = False) -> IO[bytes]:
    """Open an input file of the user; see `open_binary`.

    Raises:
      BadFileError: The path is a symbolic link without a target.
      UserError: The file cannot be opened.
    """
    try:
        return open_binary(path, is_read_in_parts=is_read_in_parts)
    except OSError as error:
        if is_local(path) and Path(path).is_symlink() and not Path(path).exists():
            raise BadFileError(f"{path} is a symbolic link without a target") from error
        unknown = UserError(f"{path} cannot be opened: {error}")
        raise explain_denied(error) or unknown from error


def open_for_parts(path: str) -> IO[bytes]:
    """Open a file to read only parts of it; see `open_input`."""
    return open_input(path, is_read_in_parts=True)


def read_bytes(path: str) -> bytes:
    """Read a whole file, on an object store by one request."""
    if is_local(path):
        return Path(path).read_bytes()
    with open_store(path) as (store, key):
        return bytes(store.get(key).bytes())


def read_text(path: str) -> str:
    """Read a UTF-8 text file."""
    return read_bytes(path).decode()


def read_range(path: str, begin: int, end: int) -> bytes:
    """Read the bytes of a file from `begin` up to, but without, `end`.

    On an object store this is a single request for exactly these bytes.

    Raises:
      EOFError: The file ends before `end`.
      FileNotFoundError: The file does not exist.
    """
    if begin == end:
        return b""
    if is_local(path):
        with Path(path).open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
    else:
        with open_store(path) as (store, key):
            data = bytes(store.get_range(key, start=begin, end=end))
    if len(data) < end - begin:
        raise EOFError(f"{path} ends {end - begin - len(data):,} bytes before byte {end:,}")
    return data


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
    """Yield the bytes of ranges of files, in order; see `read_range`.

    Unless all files are local, up to `AT_ONCE` ranges are requested simultaneously. Ranges that
    arrive early wait in memory, and no further range is requested until the caller takes them.

    Args:
      ranges: Triples of a path, the first byte, and the byte after the last one.
    """
    if all(is_local(path) for path, _, _ in ranges):
        for path, begin, end in ranges:
            yield read_range(path, begin, end)
        return
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        requests = (pool.submit(read_range, *each) for each in ranges)
        waiting = collections.deque(itertools.islice(requests, AT_ONCE))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(itertools.islice(requests, 1))


def delete(paths: Sequence[str]) -> None:
    """Delete files by their exact names; missing files are no error.

    Raises:
      UserError: The store does not answer, or denies access.
    """
    remote: dict[str, list[str]] = {}
    for path in paths:
        if is_local(path):
            Path(path).unlink(missing_ok=True)
        else:
            root, key = split_path(path)
            remote.setdefault(root, []).append(key)
    for root, keys in remote.items():
        try:
            with open_store(root) as (store, _):
                store.delete(keys)
        except FileNotFoundError:  # Google Cloud Storage stops at a missing object
            for key in keys:
                with contextlib.suppress(FileNotFoundError), open_store(root) as (store, _):
                    store.delete(key)


def move(old: str, new: str) -> None:
    """Move a file within its storage; an existing file with the new name is replaced.

    On an object store, an interrupted move can leave both files.
    """
    if is_local(old):
        make_folder(new.rpartition("/")[0])
        Path(old).replace(new)
        return
    with open_store(old) as (store, key):
        store.rename(key, split_path(new)[1])


def delete_folder(output: str, name: str, *, own: re.Pattern[str]) -> None:
    """Delete a folder of a job in its output folder, but no files that the job did not write.

    Args:
      output: The output folder.
      name: The path of the folder in the output folder. The folder need not exist.
      own: Matches the paths of the job's files, relative to the output folder.

    Raises:
      UserError: The store does not answer, or denies access.
    """
    folder = f"{output}/{name}"
    delete([p for p in list_folder(folder) if own.fullmatch(p.removeprefix(f"{output}/"))])
    if is_local(folder):
        # A killed deletion may have left only empty folders.
        for inside, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty, or a link
                Path(inside).rmdir()


class _Upload(io.RawIOBase):
    """An object that appears when `publish` is called. Closing it early publishes nothing."""

    def __init__(self, path: str) -> None:
        import obstore

        self._path, self._size = path, 0
        with open_store(path) as (store, key):
            self._writer = obstore.open_writer(
                store, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        content = bytes(data)  # the writer keeps it until the upload, but callers reuse buffers
        with explain(self._path):
            self._writer.write(content)
        self._size += len(content)
        return len(content)

    def publish(self) -> None:
        with explain(self._path):
            self._writer.close()

    def abandon(self, error: BaseException) -> None:
        """Delete the uploaded parts."""
        with contextlib.suppress(Exception):
            self._writer.__exit__(type(error), error, None)


@contextlib.contextmanager
def write_whole(path: str, *, temporary_folder: str, run_id: str = "") -> Iterator[IO[bytes]]:
    """Open a file for writing; it gets its name only if the block ends without an error.

    Two workers may write the same path at the same time. The second file replaces the first one
    with equal content. After the block, the content and the name of a local file are on the disk.

    Args:
      path: The path of the file.
      temporary_folder: The folder of the temporary file, on the same file system; unused on object
        stores.
      run_id: The run that writes the file; it becomes part of the temporary name.

    Raises:
      DiskFullError: The disk is full, or the file exceeds a quota or a size limit.
      UserError: The store does not answer, or denies access.
    """
    if not is_local(path):
        upload = _Upload(path)
        try:
            yield cast("IO[bytes]", upload)
            upload.publish()
        except BaseException as error:
            upload.abandon(error)
            raise
        return
    # The temporary name does not contain the file's name, which may already have the maximum
    # length.
    unique = f"{run_id}.{uuid.uuid4().hex}" if run_id else uuid.uuid4().hex
    temporary = Path(temporary_folder, f"unfinished.{unique}.tmp")
    try:
        with _explain_full_disk(path):
            local_folders.make_folder(Path(path).parent)
            with temporary.open("wb") as file:
                yield file
            publish(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _explain_full_disk(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if local_folders.is_disk_full(error):
            raise DiskFullError(
                f"{path} cannot be written: {error.strerror}. Free some space and run "
                "the same command again to resume"
            ) from error
        raise


@contextlib.contextmanager
def explain_deletion(folder: str, *, marker: str) -> Iterator[None]:
    """Run the block; if a local folder was deleted, replace any error with one that says so.

    Args:
      folder: The folder.
      marker: A file that exists while the block runs, relative to the folder.

    Raises:
      UnfinishedError: The block raised an error, and the file `marker` no longer exists.
    """
    try:
        yield
    except Exception as error:
        if is_local(folder) and not Path(folder, marker).exists():
            raise UnfinishedError(
                f"{folder} was deleted while the job was running. Delete the rest of the folder, "
                "and run the same command again"
            ) from error
        raise


def write_text(path: str, text: str, *, temporary_folder: str = "", run_id: str = "") -> None:
    """Write a UTF-8 text file; see `write_whole`."""
    folder = temporary_folder or path.rpartition("/")[0] or "."
    with write_whole(path, temporary_folder=folder, run_id=run_id) as file:
        file.write(text.encode())


def copy(source: str, target: str, *, temporary_folder: str = "") -> None:
    """Copy a file within or between storages; see `open_binary` and `write_whole`."""
    with (
        open_binary(source) as file,
        write_whole(target, temporary_folder=temporary_folder) as written,
    ):
        shutil.copyfileobj(file, written, _READ_BYTES)


def write_new(path: str, text: str) -> bool:
    """Write a small text file unless it exists; return whether this call wrote the file.

    If the store does not support such requests, no call writes the file. A killed process can leave
    an incomplete local file.

    Raises:
      UserError: The store does not answer, or denies access; or the disk is full.
    """
    make_folder(path.rpartition("/")[0])
    with contextlib.suppress(FileExistsError, NotImplementedError):
        if is_local(path):
            with _explain_full_disk(path), Path(path).open("x", encoding="utf-8") as file:
                file.write(text)
            local_folders.sync_file(path)
        else:
            with open_store(path) as (store, key):
                store.put(key, text.encode(), mode="create")
        return True
    return False


@contextlib.contextmanager
def local_copy(path: str, *, without: Collection[str] = ()) -> Iterator[str]:
    """Yield the path of a local copy, which exists during the block; do not copy local files.

    Args:
      path: A file or a folder.
      without: Names of large files. Their copies have the right sizes, but contain only zeros.

    Raises:
      UserError: There is no such file or folder. If the block raises a UserError, the message then
        contains `path` instead of the path of the copy.
    """
    if is_local(path):
        yield path
        return
    path = path.rstrip("/")
    with tempfile.TemporaryDirectory() as scratch:
        copied = f"{scratch}/{path.rpartition('/')[2]}"
        found = list_files(path) or ([find_file(path)] if exists(path) else [])
        if not found:
            raise UserError(f"{path} does not exist. Choose another path")
        for file in found:
            target = Path(copied + file.path.removeprefix(path))
            if target.name in without:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
                os.truncate(target, file.size)
            else:
                copy(file.path, str(target), temporary_folder=scratch)
        try:
            yield copied
        except UserError as error:
            raise type(error)(str(error).replace(copied, path)) from error
