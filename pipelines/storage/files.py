"""Files on any file system that Beam knows, written so that a name never stands for a part.

Temporaries lie in the work folder of the job, deleted at its end: a killed job leaves none behind.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tt.model import folders as local_folders
from tt.model.errors import BadFileError, DiskFullError, UnfinishedError, UserError, explain_denied
from tt.model.folders import publish
from tt.pipelines.storage.listing import list_folder
from tt.pipelines.storage.paths import check_no_glob, file_systems, is_local, lookup_reason

if TYPE_CHECKING:  # the help of a command needs none
    import pyarrow as pa
    import pyarrow.parquet as pq

_AS_IT_IS = "uncompressed"  # Beam's CompressionTypes.UNCOMPRESSED
_GOOGLE = "gs://"
AT_ONCE = 16  # requests that are waited for
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# File systems where a file appears when it is closed, and not at all if an error ends its writing.
# Beam's writers for S3 and Azure finish their upload even then.
_APPEAR_WHOLE = ("gs",)
_LEAST_READ = 64 << 10  # bytes of a request for a part of a file


def make_folder(path: str) -> None:
    """Make a folder and its missing parents; do nothing on object stores, which have none."""
    if is_local(path):
        local_folders.make_folder(path)


def is_there(path: str) -> bool:
    """Says whether a file exists; errors of its file system are raised as they are."""
    return bool(file_systems().exists(path))


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading its bytes as they are.

    Raises:
      UserError: The path is of no file system that Beam knows.
    """
    try:
        file: IO[bytes] = file_systems().open(path, compression_type=_AS_IT_IS)
    except ValueError as error:
        raise UserError(f"{path} cannot be opened: {lookup_reason(path, error)}") from error
    return file


def open_input(path: str) -> IO[bytes]:
    """Opens a file that the user named; see `open_binary`.

    Raises:
      BadFileError: It is a link that leads nowhere.
      UserError: It cannot be opened.
    """
    try:
        return open_binary(path)
    except OSError as error:
        if is_local(path) and Path(path).is_symlink() and not Path(path).exists():
            raise BadFileError(f"{path} is a link that leads nowhere") from error
        unknown = UserError(f"{path} cannot be opened: {error}")
        raise explain_denied(error) or unknown from error


def open_for_parts(path: str) -> IO[bytes]:
    """Opens a file of which parts are read; see `open_input`.

    Beam's reader of Google Cloud Storage else asks for 16 MiB with every read, wanted or not.
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
    """Reads a whole file."""
    with open_binary(path) as file:
        return file.read()


def read_range(path: str, begin: int, end: int) -> bytes:
    """Reads a file's bytes from `begin` to before `end`: one request, and no byte more, on gs://.

    Raises:
      EOFError: The file ends before.
      FileNotFoundError: There is no such file.
    """
    if begin == end:
        return b""
    read = _read_google if path.startswith(_GOOGLE) else _read_unbuffered
    data = read(path, begin, end)
    if len(data) < end - begin:
        raise EOFError(f"{path} ends {end - begin - len(data):,} bytes before byte {end:,}")
    return data


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
    """Reads ranges of files, each a path with `begin` and `end`, in order; see `read_range`.

    Where they are not local, some are asked for at once, and those that have come wait in memory.
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
    try:  # raw: an object that says it is compressed has its bounds in compressed bytes
        data: bytes = blob.download_as_bytes(
            start=begin, end=end - 1, raw_download=True, checksum=None
        )
    except NotFound as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    return data


@functools.cache
def _google_client() -> Any:
    """Makes the client of this process as Beam makes one for each file, with its credentials."""
    from requests.adapters import HTTPAdapter

    client = file_systems().get_filesystem(_GOOGLE)._gcsIO().client
    for scheme in ("https://", "http://"):  # else it keeps 10 connections, and warns of others
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=AT_ONCE))
    return client


def _read_unbuffered(path: str, begin: int, end: int) -> bytes:
    """Reads bytes below the buffer of Beam's file systems, which asks for up to 16 MiB at once."""
    with open_binary(path) as file:
        raw = getattr(file, "raw", file)
        raw.seek(begin)
        parts = []
        while begin < end and (part := raw.read(end - begin)):
            parts.append(part)
            begin += len(part)
    return b"".join(parts)


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
        file_systems().delete(remote)


def delete_folder(folder: str) -> None:
    """Deletes a folder, if it exists, with all that is in it.

    On object stores that takes a few requests for a hundred files, where `delete` takes some for
    each.

    Raises:
      UserError: The name is not local and holds what object stores take for a glob.
    """
    if is_local(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    check_no_glob(folder)
    if list_folder(folder):
        file_systems().delete([folder.rstrip("/") + "/"])
        delete(list_folder(folder))  # what is left raises here: Beam only logs it there


@contextlib.contextmanager
def write_whole(path: str, *, temporary_folder: str, run_id: str = "") -> Iterator[IO[bytes]]:
    """Open a file for writing that gets its name only when the block ends without an error.

    Two workers may write the same path at once: each has its own temporary name, with `run_id` in
    it, and the rename of the second replaces a file of equal content. Google Cloud Storage needs
    no temporary name, because an object appears when its upload ends. A local file and its name
    are on the disk when this returns.
    """
    if file_systems().get_scheme(path) in _APPEAR_WHOLE:
        with file_systems().create(path, compression_type=_AS_IT_IS) as file:
            yield file
        return
    # Not after the file: its name may be as long as names may be.
    unique = f"{run_id}.{uuid.uuid4().hex}" if run_id else uuid.uuid4().hex
    temporary = file_systems().join(temporary_folder, f"unfinished.{unique}.tmp")
    try:
        with file_systems().create(temporary, compression_type=_AS_IT_IS) as file:
            yield file
        if is_local(path):  # Beam would put its own error around that of the system
            publish(temporary, path)
        else:
            file_systems().rename([temporary], [path])
    except BaseException as error:
        with contextlib.suppress(Exception):
            delete([temporary])
        is_deleted = is_local(temporary_folder) and not Path(temporary_folder).exists()
        if isinstance(error, FileNotFoundError) and is_deleted:
            raise deleted_error(temporary_folder) from error
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise DiskFullError(
                f"{path} cannot be written: {os.strerror(error.errno)}. Make room and run the "
                "same command again: it goes on from what is finished"
            ) from error
        raise


def deleted_error(folder: str) -> UnfinishedError:
    """Return the error of a job whose folder somebody deletes, or empties, while the job runs."""
    return UnfinishedError(
        f"{folder} was deleted while the job ran: delete what is left of it, and run the same "
        "command again"
    )


@contextlib.contextmanager
def explain_deletion(folder: str, *, mark: str) -> Iterator[None]:
    """Say that a local folder was deleted, whatever the block raises because of that.

    Args:
      folder: The folder.
      mark: The path, below the folder, of a file that exists until the block has succeeded.

    Raises:
      UnfinishedError: The block raises, and the mark is gone.
    """
    try:
        yield
    except Exception as error:
        if is_local(folder) and not Path(folder, mark).exists():
            raise deleted_error(folder) from error
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
    import pyarrow.parquet as pq

    with (
        write_whole(path, temporary_folder=temporary_folder) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        yield writer
