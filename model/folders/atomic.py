"""Atomic folders: whole, or not there."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from model.folders.cache import delete_stale


@contextlib.contextmanager
def atomic_folder(output: Path, *, is_shared: bool = False) -> Iterator[Path]:
    """Gives a new folder to write into; it replaces `output` if nothing is raised.

    If it is shared, several processes may make it at once, as in a cache: each writes a folder of
    its own, and the first that is whole becomes `output` and stays.
    """
    output = output.resolve()
    name = f".{output.name}.{uuid.uuid4().hex}.tmp" if is_shared else f".{output.name}.tmp"
    temporary = output.with_name(name)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if is_shared:
            delete_stale(output.parent, f"*{output.name}.*.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        if not is_shared:
            _replace(temporary, output)
            return
        try:
            temporary.rename(output)
        except OSError:
            if not output.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(temporary: Path, output: Path) -> None:
    replaced = output.with_name(f".{output.name}.old")
    shutil.rmtree(replaced, ignore_errors=True)
    if output.exists():
        output.replace(replaced)
    temporary.replace(output)
    shutil.rmtree(replaced, ignore_errors=True)


def is_free(output: Path) -> bool:
    """Says whether a local folder can be written as a new one: it is not there, or can be replaced.

    The latter is an empty one, but no link, no root of a disk, and not the current folder.
    """
    if output.is_symlink() or not output.is_dir():
        return not (output.is_symlink() or output.exists())
    is_used = output.is_mount() or output.resolve() == Path.cwd()
    return not is_used and not any(output.iterdir())
