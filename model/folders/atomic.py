"""Atomic folders: either whole or absent, after a power loss too."""

from __future__ import annotations

import contextlib
import glob
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from model.errors import UserError
from model.folders.cache import delete_stale
from model.folders.durable import make_folder, publish
from model.folders.lock import lock_folder

_UNIQUE = "[0-9a-f]" * 32  # pattern of the part of a temporary name that is random


@contextlib.contextmanager
def atomic_folder(
    output: Path, *, is_shared: bool = False, overwrite: bool = True
) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces `output` unless the block raises.

    Only one process at a time can write `output`. If `is_shared`, several processes may write it at
    once, as in a cache: each writes a folder of its own, and the first finished one stays.

    Args:
      output: The folder to publish.
      is_shared: Whether several processes may write the same folder.
      overwrite: Whether a folder that is not empty may be replaced.

    Raises:
      UserError: Another process is writing `output`, or has written it and `overwrite` is false.
      OSError: The folder cannot be written.
    """
    output = output.resolve()
    temporary = output.with_name(f".{output.name}.{uuid.uuid4().hex}.tmp")
    with contextlib.nullcontext(False) if is_shared else _lock(output) as is_locked:
        if not (is_shared or overwrite or is_free(output)):
            raise UserError(
                f"{output} exists already, another process has just written it: choose another "
                "folder, or `overwrite`"
            )
        try:
            make_folder(output.parent)
            _delete_leftovers(output, is_locked=is_locked)
            temporary.mkdir()
            yield temporary
            if overwrite and not is_shared:
                _replace(temporary, output)
                return
            try:
                publish(temporary, output)
            except OSError:
                if not (is_shared and output.is_dir()):  # else another process was faster
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _lock(output: Path) -> contextlib.AbstractContextManager[bool]:
    return lock_folder(
        output.parent,
        name=f".{output.name}.lock",
        subject=f"is writing {output}",
        remedy="choose another folder",
    )


def _delete_leftovers(output: Path, *, is_locked: bool) -> None:
    """Delete the temporary folders of killed processes, but none that a process still writes."""
    name = glob.escape(output.name)
    if not is_locked:
        delete_stale(output.parent, f"*{name}.*.tmp")
        return
    # Exactly the temporary names of this folder: "a.b" has the temporary folder ".a.b.0123.tmp".
    for path in output.parent.glob(f".{name}.{_UNIQUE}.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def _replace(temporary: Path, output: Path) -> None:
    replaced = temporary.with_suffix(".old")
    if output.exists():
        output.replace(replaced)
    publish(temporary, output)
    for path in output.parent.glob(f".{glob.escape(output.name)}.{_UNIQUE}.old"):
        shutil.rmtree(path, ignore_errors=True)


def is_free(output: Path) -> bool:
    """Says whether a local folder can be written as a new one: it is not there, or can be replaced.

    The latter is an empty one, but no link, no root of a disk, and not the current folder.
    """
    if output.is_symlink() or not output.is_dir():
        return not (output.is_symlink() or output.exists())
    is_used = output.is_mount() or output.resolve() == Path.cwd()
    return not is_used and not any(output.iterdir())
