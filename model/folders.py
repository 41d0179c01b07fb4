"""Local folders: durable files, locks, the cache, and atomic replacement.

A file system may write a rename to disk before the content of the renamed file. Therefore,
`publish` syncs the content, renames it, and syncs the folder. Only then may a caller rely on the
new name, for example to delete an older file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tt.model.errors import DiskFullError, UserError, is_of_tensorflow, plain_reason

# Some file systems cannot sync a folder, and some folders are writable but not readable.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


def publish(temporary: str | Path, path: str | Path) -> None:
    """Sync a file or a folder, rename it to `path`, and sync the parent folder.

    Raises:
      OSError: The content cannot be written, or the rename fails.
    """
    temporary, path = Path(temporary), Path(path)
    sync_tree(temporary)
    temporary.replace(path)
    sync_folder(path.parent)


def sync_tree(path: str | Path) -> None:
    """Sync a file, or a folder with all files and folders in it.

    Raises:
      OSError: The content cannot be written.
    """
    path = Path(path)
    if not path.is_dir():
        sync_file(path)
        return
    for child in path.iterdir():
        if not child.is_symlink():
            sync_tree(child)
    sync_folder(path)


def sync_file(path: str | Path) -> None:
    """Wait until the content of a file is on the disk.

    Raises:
      OSError: The content cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | Path) -> None:
    """Wait until the file names in a folder are on the disk, if the folder can be synced.

    Raises:
      OSError: The folder cannot be written.
    """
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def make_folder(path: str | Path) -> None:
    """Create a folder and its missing parents, and sync their parent folders.

    Raises:
      OSError: A folder cannot be created.
    """
    path = Path(path).absolute()
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        sync_folder(folder.parent)


# Second half of the advice on a full disk, after "free some space".
OTHER_OUTPUT = ", or choose another `output`"
OTHER_CACHE = ", or set XDG_CACHE_HOME to a folder with free space"
_DAY_SECONDS = 24 * 3600
_DISK_FULL = ("No space left", "File too large", "quota")


@contextlib.contextmanager
def storage_errors(
    path: str, *, what: str = "folder", remedy: str = OTHER_OUTPUT
) -> Iterator[None]:
    """Turn errors of TensorFlow and Python during writing into a UserError.

    Args:
      path: The folder to be written.
      what: A word for the folder in messages.
      remedy: Second half of the advice on a full disk, such as ", or choose another `output`".

    Raises:
      DiskFullError: The disk is full.
      UserError: The folder cannot be written for another reason.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or is_of_tensorflow(error)):
            raise
        reason = plain_reason(error)
        if isinstance(error, FileExistsError):  # a file has the name of a folder to create
            reason = f"{error.filename} is a file"
        if is_disk_full(error):
            reason = reason.rpartition("; ")[2]  # TensorFlow names its temporary file first
            raise DiskFullError(
                f"the disk of {path} is full ({reason}). Free some space{remedy}"
            ) from error
        raise UserError(
            f"the {what} {path} cannot be written: {reason}. Choose another {what}"
        ) from error


def is_disk_full(error: Exception) -> bool:
    """Return whether an error of Python or TensorFlow, which has no type for it, is a full disk."""
    return any(text in plain_reason(error) for text in _DISK_FULL)


def default_cache() -> Path:
    """Return the user's cache folder: `$XDG_CACHE_HOME/tt`, or `~/.cache/tt`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification requires programs to ignore an empty value and a relative path.
    return (given if given.is_absolute() else Path.home() / ".cache") / "tt"


def delete_stale(folder: Path, pattern: str, *, days: int = 1) -> None:
    """Delete the files and folders of killed processes, which are older than some days."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process may have deleted or renamed it
            if path.stat().st_mtime < time.time() - days * _DAY_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


_TRY_SECONDS = 1.0  # much longer than `is_locked` holds its lock
_PAUSE_SECONDS = 0.01
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # from a file system without locks
_LOCKED = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def lock_folder(
    folder: str | Path, *, name: str, activity: str = "", remedy: str
) -> Iterator[bool]:
    """Lock a local folder, and create it if it is missing.

    Yields whether the file system supports locks. The function retries for one second, because
    `is_locked` also locks the folder for a moment.

    Args:
      folder: The folder.
      name: Name of the lock file, which exists only inside the block. The kernel releases the lock
        when this process ends, even if the process is killed.
      activity: What the other process does, for the message. The default is "works in" the folder.
      remedy: What the user can do instead of waiting.

    Raises:
      UserError: Another process has locked the folder.
      OSError: The lock file cannot be written.
    """
    make_folder(folder)
    path = Path(folder, name)
    deadline = time.monotonic() + _TRY_SECONDS
    while True:
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    path.unlink(missing_ok=True)
                    yield False
                    return
                if error.errno not in _LOCKED:
                    raise
                if time.monotonic() >= deadline:
                    file.seek(0)
                    raise UserError(
                        f"another process {activity or f'works in {folder}'} ({file.read()}). "
                        f"Wait until it ends, or {remedy}"
                    ) from error
                time.sleep(_PAUSE_SECONDS)
                continue
            if not _is_file(file.fileno(), path):
                continue  # the other process deleted the file before it released the lock
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            try:
                yield True
            finally:
                # If the job deleted its folder, another process may have locked a new file.
                if _is_file(file.fileno(), path):
                    path.unlink(missing_ok=True)
            return


@contextlib.contextmanager
def wait_for_lock(path: str | Path) -> Iterator[None]:
    """Run the block while this process has locked a local file, and create the file if needed.

    The function waits until no other process has locked the file. On a file system without locks,
    several processes can run their blocks at once.

    Raises:
      OSError: The file cannot be written.
    """
    with Path(path).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases it
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield


def is_locked(folder: str | Path, *, name: str) -> bool:
    """Return whether a process has locked a local folder, without writing to the folder."""
    with contextlib.suppress(FileNotFoundError), Path(folder, name).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file releases it
        except OSError as error:
            return error.errno in _LOCKED
    return False


def _is_file(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the file at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def atomic_folder(
    output: Path, *, is_shared: bool = False, overwrite: bool = True
) -> Iterator[Path]:
    """Yield a new folder to write into; it replaces `output` unless the block raises an error.

    Args:
      output: The folder to publish.
      is_shared: Whether several processes may write `output` at once, as in a cache. Each process
        then writes a separate folder, and the first finished folder becomes `output`.
      overwrite: Whether `output` may be replaced if it is not empty.

    Raises:
      UserError: Another process is writing `output`, or has written it and `overwrite` is false.
      OSError: The folder cannot be written.
    """
    output = output.resolve()
    temporary = output.with_name(f".{output.name}.{uuid.uuid4().hex}.tmp")
    own = f".{glob.escape(output.name)}.{'[0-9a-f]' * 32}"  # the names of temporary folders
    lock: contextlib.AbstractContextManager[bool] = contextlib.nullcontext(False)
    if not is_shared:
        lock = lock_folder(
            output.parent,
            name=f".{output.name}.lock",
            activity=f"is writing {output}",
            remedy="choose another folder",
        )
    with lock as is_locked:
        if not (is_shared or overwrite or is_free(output)):
            raise UserError(
                f"{output} already exists: another process has just written it. Choose another "
                "folder, or set `overwrite`"
            )
        try:
            make_folder(output.parent)
            # Another process may be writing its folder now, unless this one has the lock.
            delete_stale(output.parent, f"{own}.tmp", days=0 if is_locked else 1)
            temporary.mkdir()
            yield temporary
            if overwrite and not is_shared and output.exists():
                output.replace(temporary.with_suffix(".old"))
            try:
                publish(temporary, output)
            except OSError:
                # If several processes write the folder, another one may have published it first.
                if not (is_shared and output.is_dir()):
                    raise
            if not is_shared:
                delete_stale(output.parent, f"{own}.old", days=0)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def is_free(output: Path) -> bool:
    """Return whether a local folder does not exist or is empty, so that it can be replaced.

    Links, mount points and the current folder are not free.
    """
    if output.is_symlink() or not output.is_dir():
        return not (output.is_symlink() or output.exists())
    is_used = output.is_mount() or output.resolve() == Path.cwd()
    return not is_used and not any(output.iterdir())
