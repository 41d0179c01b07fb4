"""The folder of caches of this user."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

# What to do where the disk is full, beside making room.
OTHER_CACHE = ", or set XDG_CACHE_HOME to a folder with room"
_STALE_SECONDS = 24 * 3600


def default_cache() -> Path:
    """Returns the folder of caches of this user: `$XDG_CACHE_HOME/tt`, or `~/.cache/tt`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says that relative paths are to be ignored; so is an empty one.
    return (given if given.is_absolute() else Path.home() / ".cache") / "tt"


def delete_stale(folder: Path, pattern: str) -> None:
    """Deletes what killed processes left; what is being written is younger than a day."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process deletes it or gave it its name
            if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
