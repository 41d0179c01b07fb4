"""Read, write and delete files on any file system that Beam supports.

A file gets its name only when it is complete. Until then, it has a temporary name in a folder of
the job. If a run is killed, a later run deletes its temporary files.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tt.model import folders as local_folders
from tt.model.errors import BadFileError, DiskFullError, UnfinishedError, UserError, explain_denied
from tt.model.folders import publish
from tt.pipelines.storage.listing import list_folder
from tt.pipelines.storage.paths import check_no_glob, file_systems, is_local, lookup_reason

if TYPE_CHECKING:  # imported only where needed, so that `tt --help` is fast
    import pyarrow as pa
    import pyarrow.parquet as pq

_UNCOMPRESSED = "uncompressed"  # Beam's CompressionTypes.UNCOMPRESSED
_GOOGLE = "gs://"
AT_ONCE = 16  # the maximum number of simultaneous requests
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# File systems on which a file appears when it is closed, and never appears if an error interrupts
# the writing. Beam's writers for S3 and Azure finish the upload even after an error.
_ATOMIC_SCHEMES = ("gs",)
_LEAST_READ = 64 << 10  # the bytes of a request for a part of a file


def make_folder(path: str) -> None:
    """Create a folder and its missing parents; do nothing on object stores."""
    if is_local(path):
        local_folders.make_folder(path)


def is_there(path: str) -> bool:
    """Return whether a file exists; raise the errors of the file system unchanged."""
    return bool(file_systems().exists(path))


def open_binary(path: str) -> IO[bytes]:
    """Open a file to read its bytes without decompression.

    Raises:
      UserError: Beam does not support the file system of the path.
    """
    try:
        file: IO[bytes] = file_systems().open(path, compression_type=_UNCOMPRESSED)
    except ValueError as error:
        raise UserError(f"{path} cannot be opened: {lookup_reason(path, error)}") from error
    return file


def open_input(path: str) -> IO[bytes]:
    """Open an input file of the user; see `open_binary`.

    Raises:
      BadFileError: The path is a symbolic link without a target.
      UserError: The file cannot be opened.
    """
    try:
        return open_binary(path)
    except OSError as error:
        if is_local(path) and Path(path).is_symlink() and not Path(path).exists():
            raise BadFileError(f"{path} is a symbolic link without a target") from error
        unknown = UserError(f"{path} cannot be opened: {error}")
        raise explain_denied(error) or unknown from error


def open_for_parts(path: str) -> IO[bytes]:
    """Open a file to read only parts of it; see `open_input`.

    By default, Beam's reader for Google Cloud Storage requests 16 MiB for every read, even if only
    a few bytes are needed.
    """
    if not path.startswith(_GOOGLE):
        return open_input(path)
    from apache_beam.io.gcp.gcsio import GcsIO

    google = GcsIO(_google_client(), pipeline_options={})
    try:
        file: IO[bytes] = google.open(path, "rb", read_buffer_size=_LEAST_READ)
    except OSError as error:
        raise UserError(f"{path} cannot be opened: {error}") from error
    return file


def read_bytes(path: str) -> bytes:
    """Read a whole file."""
    with open_binary(path) as file:
        return file.read()


def read_range(path: str, begin: int, end: int) -> bytes:
    """Read the bytes of a file from `begin` up to, but without, `end`.

    On gs:// this is a single request for exactly these bytes.

    Raises:
      EOFError: The file ends before `end`.
      FileNotFoundError: The file does not exist.
    """
    if begin == end:
        return b""
    read = _read_google if path.startswith(_GOOGLE) else _read_unbuffered
    data = read(path, begin, end)
    if len(data) < end - begin:
        raise EOFError(f"{path} ends {end - begin - len(data):,} bytes before byte {end:,}")
    return data


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
    """Yield the bytes of ranges of files, in order; see `read_range`.

    Unless all files are local, up to `AT_ONCE` ranges are requested simultaneously, and ranges that
    arrive early wait in memory.

    Args:
      ranges: Triples of a path, the first byte, and the byte after the last one.
    """
    if all(is_local(path) for path, _, _ in ranges):
        for path, begin, end in ranges:
            yield read_range(path, begin, end)
        return
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(read_range, *zip(*ranges, strict=True))


def _read_google(path: str, begin: int, end: int) -> bytes:
    from google.api_core.exceptions import NotFound

    bucket, _, name = path.removeprefix(_GOOGLE).partition("/")
    blob = _google_client().bucket(bucket).blob(name)
    try:  # a raw download counts the range in stored bytes, even if the object is compressed
        data: bytes = blob.download_as_bytes(
            start=begin, end=end - 1, raw_download=True, checksum=None
        )
    except NotFound as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    return data


@functools.cache
def _google_client() -> Any:
    """Return one client per process, with the credentials that Beam uses for its own clients."""
    from requests.adapters import HTTPAdapter

    client = file_systems().get_filesystem(_GOOGLE)._gcsIO().client
    # By default, the client keeps only 10 connections, and warns about each additional one.
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=AT_ONCE))
    return client


def _read_unbuffered(path: str, begin: int, end: int) -> bytes:
    """Read bytes without the buffer of Beam's file systems, which requests up to 16 MiB at once."""
    with open_binary(path) as file:
        raw = getattr(file, "raw", file)
        raw.seek(begin)
        parts = []
        while begin < end and (part := raw.read(end - begin)):
            parts.append(part)
            begin += len(part)
    return b"".join(parts)


def delete(paths: Sequence[str]) -> None:
    """Delete files by their exact names.

    Raises:
      UserError: The name of a remote file contains a glob character, so that Beam could delete
        other files.
    """
    for path in paths:
        check_no_glob(path)
    local = [path for path in paths if is_local(path)]
    for path in local:
        Path(path).unlink(missing_ok=True)
    if remote := [path for path in paths if not is_local(path)]:
        file_systems().delete(remote)


def move(old: str, new: str) -> None:
    """Move a file within its file system; an existing file with the new name is replaced.

    On an object store, an interrupted move can leave both files.
    """
    if is_local(old):
        make_folder(new.rpartition("/")[0])
        Path(old).replace(new)
    else:
        file_systems().rename([old], [new])


def delete_folder(output: str, name: str, *, own: re.Pattern[str]) -> None:
    """Delete a folder of a job in its output folder, but no files that the job did not write.

    On an object store, a folder without other files needs only a few requests per hundred files,
    whereas `delete` needs at least one request per file.

    Args:
      output: The output folder.
      name: The path of the folder in the output folder. The folder need not exist.
      own: Matches the paths of the job's files, relative to the output folder.

    Raises:
      UserError: The name of a remote folder contains a glob character.
    """
    folder = f"{output}/{name}"
    check_no_glob(folder)
    listed = list_folder(folder)
    found = [path for path in listed if own.fullmatch(path.removeprefix(f"{output}/"))]
    if is_local(folder):
        delete(found)
        # A killed deletion may have left only empty folders.
        inside = [Path(folder), *(each for each in Path(folder).rglob("*") if each.is_dir())]
        for each in sorted(inside, reverse=True):  # the deepest folders first
            if not each.is_symlink():
                with contextlib.suppress(OSError):  # it is not empty
                    each.rmdir()
    elif len(found) < len(listed):
        delete(found)
    elif found:
        file_systems().delete([f"{folder}/"])
        # Beam only logs errors of the deletion above. `delete` raises them for the remaining files.
        delete(list_folder(folder))


@contextlib.contextmanager
def write_whole(path: str, *, temporary_folder: str, run_id: str = "") -> Iterator[IO[bytes]]:
    """Open a file for writing; it gets its name only if the block ends without an error.

    Two workers may write the same path at the same time, because each uses its own temporary name.
    The second rename replaces the file with equal content. Google Cloud Storage needs no temporary
    name, because an object appears only when its upload ends. After the block, the content and the
    name of a local file are on the disk.

    Args:
      path: The path of the file.
      temporary_folder: The folder of the temporary file, on the same file system.
      run_id: The run that writes the file; it becomes part of the temporary name.

    Raises:
      DiskFullError: The disk is full, or the file exceeds a quota or a size limit.
      UnfinishedError: Somebody deleted the temporary folder.
    """
    if file_systems().get_scheme(path) in _ATOMIC_SCHEMES:
        with file_systems().create(path, compression_type=_UNCOMPRESSED) as file:
            yield file
        return
    # The temporary name does not contain the file's name, which may already have the maximum
    # length.
    unique = f"{run_id}.{uuid.uuid4().hex}" if run_id else uuid.uuid4().hex
    temporary = file_systems().join(temporary_folder, f"unfinished.{unique}.tmp")
    try:
        with file_systems().create(temporary, compression_type=_UNCOMPRESSED) as file:
            yield file
        if is_local(path):  # Beam would hide the system's error in an error of its own
            publish(temporary, path)
        else:
            file_systems().rename([temporary], [path])
    except BaseException as error:
        with contextlib.suppress(Exception):
            delete([temporary])
        is_deleted = is_local(temporary_folder) and not Path(temporary_folder).exists()
        if isinstance(error, FileNotFoundError) and is_deleted:
            raise deleted_error(temporary_folder) from error
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise DiskFullError(
                f"{path} cannot be written: {os.strerror(error.errno)}. Free some space and run "
                "the same command again to resume"
            ) from error
        raise


def deleted_error(folder: str) -> UnfinishedError:
    """Return the error for a folder that somebody deleted or emptied while the job was running."""
    return UnfinishedError(
        f"{folder} was deleted while the job was running. Delete the rest of the folder, and run "
        "the same command again"
    )


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
            raise deleted_error(folder) from error
        raise


def write_text(path: str, text: str, *, temporary_folder: str, run_id: str = "") -> None:
    """Write a UTF-8 text file; see `write_whole`."""
    with write_whole(path, temporary_folder=temporary_folder, run_id=run_id) as file:
        file.write(text.encode())


@contextlib.contextmanager
def open_parquet_writer(
    path: str, schema: pa.Schema, *, temporary_folder: str
) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet file for writing; see `write_whole`."""
    import pyarrow.parquet as pq

    with (
        write_whole(path, temporary_folder=temporary_folder) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        yield writer
