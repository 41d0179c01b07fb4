"""Files and folders that survive a power loss once they have their names.

A file system may write a rename to disk before the content of the renamed file. Therefore,
`publish` syncs the content, renames it, and syncs the folder. Only then may a caller rely on the
new name, for example to delete an older file. Everything here is for local paths: an object store
keeps a file as soon as its upload ends.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

# Some file systems cannot sync a folder, and a folder that a user may write can be unreadable.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


def publish(temporary: str | Path, path: str | Path) -> None:
    """Sync a file or a folder, rename it to `path`, and sync the folder around it.

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
    """Wait until the disk has the content of a file.

    Raises:
      OSError: The content cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | Path) -> None:
    """Wait until the disk has the names in a folder, if it can be synced.

    Raises:
      OSError: The folder cannot be written.
    """
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def make_folder(path: str | Path) -> None:
    """Make a folder and its missing parents, and sync the folders around them.

    Raises:
      OSError: A folder cannot be made.
    """
    path = Path(path).absolute()
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        sync_folder(folder.parent)
