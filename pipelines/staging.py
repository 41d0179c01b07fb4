"""A dataset folder of another file system, copied to a local cache: training reads local files.

Each dataset has a folder of its own in the cache, named by its fingerprint. Any number of
processes may stage the same one at once: a file gets its name only when it is whole, and the
manifest is copied last.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from model.artifacts import MANIFEST_FILE, DatasetManifest
from model.errors import DiskFullError, UserError
from model.vocabulary import load_vocabularies
from pipelines import files
from pipelines.units import megabytes

_CHUNK_BYTES = 8 << 20  # shards may be of many GB
_LOOKUPS = 16  # at once: each waits for the answer of a server
_STALE_SECONDS = 24 * 3600
_PLAIN_NAME = re.compile(r"\w[\w.-]*")


def default_cache() -> Path:
    """Returns the folder of caches of this user: `$XDG_CACHE_HOME/tt`, or `~/.cache/tt`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says that relative paths are to be ignored; so is an empty one.
    return (given if given.is_absolute() else Path.home() / ".cache") / "tt"


def stage_dataset(dataset: str, *, cache: Path, report: Callable[[str], None]) -> Path:
    """Copies a finished dataset folder to this machine, unless it is there already.

    Only what the cache lacks is copied: a killed staging goes on where it was, and files that
    were deleted from the cache come back.

    Some file systems (s3, hdfs) want `runner.set_file_system_options` to be called before.

    Args:
      dataset: The dataset folder, of any file system that Beam knows. A local one is returned
        as it is.
      cache: Local folder; the copy is the folder in it that is named by the fingerprint.
      report: Takes a line that says what is copied, if anything is.

    Returns:
      The local folder.

    Raises:
      UserError: The dataset is unfinished or cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room; what was copied whole stays.
    """
    if files.is_local(dataset):
        return Path(dataset)
    dataset = dataset.rstrip("/")  # on object stores a//b is not a/b
    manifest = DatasetManifest.load(dataset, read=_read_manifest)
    shards = [name for split in manifest.splits.values() for name in split.shards]
    _check_names([manifest.fingerprint, *shards], manifest_path=f"{dataset}/{MANIFEST_FILE}")
    names = [*load_vocabularies(dataset, read=_read).files, *shards, MANIFEST_FILE]
    with ThreadPoolExecutor(_LOOKUPS) as pool:
        paths = [f"{dataset}/{name}" for name in names]
        sizes = dict(zip(names, pool.map(_remote_size, paths), strict=True))
    folder = cache / manifest.fingerprint
    _delete_stale(folder)
    missing = [name for name in names if not _is_whole(folder / name, sizes[name])]
    if missing:
        size = megabytes(sum(sizes[name] for name in missing))
        report(f"Staging {dataset} ({len(missing)} of {len(names)} files, {size}) to {folder}")
    # In any order but for the manifest: processes that begin together share the files between
    # them. The generator is our own, so that the caller's random numbers stay as they were.
    random.Random().shuffle(missing)
    for name in sorted(missing, key=lambda name: name == MANIFEST_FILE):
        if not _is_whole(folder / name, sizes[name]):  # by now another process may have copied it
            _copy(f"{dataset}/{name}", folder / name, size=sizes[name])
    return folder


def _check_names(names: list[str], *, manifest_path: str) -> None:
    """Raises unless all names are of files right inside a folder: others could lead out of it."""
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            raise UserError(
                f"{manifest_path} must name files inside its folder. Received: {name!r} "
                "(make the dataset again with `tt preprocess`)"
            )


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False  # if it cannot be written either, copying says why


def _delete_stale(folder: Path) -> None:
    """Deletes what killed processes left; a temporary file that is being written is younger."""
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):  # another process deletes it or gave it its name
            if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                path.unlink()


def _copy(source: str, target: Path, *, size: int) -> None:
    """Copies a file of another file system, whole or not at all."""
    try:
        with files.write_whole(str(target), temporary_folder=str(target.parent)) as file:
            copied = 0
            for chunk in _chunks(source):
                file.write(chunk)
                copied += len(chunk)
            if copied != size:
                raise UserError(
                    f"{source} should have {size:,} bytes. Received: {copied:,} (it was changed "
                    "or the connection broke: run the same command again)"
                )
    except DiskFullError as error:
        raise DiskFullError(f"{error}, or name another cache folder with --cache") from error
    except OSError as error:  # of the cache: those of the source are a `UserError` by now
        raise UserError(
            f"{target} cannot be written: {error.strerror or error}. Name another cache folder "
            "with --cache"
        ) from error


@contextlib.contextmanager
def _remote_errors(path: str) -> Iterator[None]:
    """Turns errors of reading into one line that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client library of each file system has its own
        reason = " ".join(str(error).split()) or repr(error)
        raise UserError(
            f"{path} cannot be read: {reason}. See that the dataset folder is complete and that "
            "you may read it"
        ) from error


def _chunks(path: str) -> Iterator[bytes]:
    with _remote_errors(path), files.open_binary(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _read(path: str) -> bytes:
    return b"".join(_chunks(path))


def _read_manifest(path: str) -> bytes:
    # Few file systems raise FileNotFoundError, by which an unfinished dataset is known.
    with _remote_errors(path):
        found = files.exists(path)
    if not found:
        raise FileNotFoundError(path)
    return _read(path)


def _remote_size(path: str) -> int:
    with _remote_errors(path):
        return int(files.file_identity(path)["bytes"])
