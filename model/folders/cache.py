"""The folder of caches of this user, and folders in it that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from model.errors import UserError

# What to do where the disk is full, beside making room.
OTHER_CACHE = ", or set XDG_CACHE_HOME to a folder with room"

_STALE_SECONDS = 24 * 3600


def default_cache() -> Path:
    """Returns the folder of caches of this user: `$XDG_CACHE_HOME/tt`, or `~/.cache/tt`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says that relative paths are to be ignored; so is an empty one.
    return (given if given.is_absolute() else Path.home() / ".cache") / "tt"


def make_whole(folder: Path, write: Callable[[Path], None]) -> Path:
    """Makes a folder of a cache, unless it is there.

    Any number of processes may make the same one at once: each writes a folder of its own, and
    the first that is whole gets the name.

    Args:
      folder: Whose content its name determines.
      write: Makes the folder that it is given, which is not there.

    Returns:
      `folder`.

    Raises:
      UserError: The cache cannot be written.
    """
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        delete_stale(folder.parent, f"*{folder.name}.*.tmp")
        write(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written: {error.strerror or error}. Set XDG_CACHE_HOME to a "
            "folder with room"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def delete_stale(folder: Path, pattern: str) -> None:
    """Deletes what killed processes left; what is being written is younger than a day."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process deletes it or gave it its name
            if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
