"""Atomic folders: either whole or absent, after a power loss too."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from model.folders.cache import delete_stale
from model.folders.durable import make_folder, publish


@contextlib.contextmanager
def atomic_folder(output: Path, *, is_shared: bool = False) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces `output` unless the block raises.

    If `is_shared`, several processes may make the same `output`, such as a folder of a cache. Each
    process writes its own folder. The first finished folder becomes `output` and stays.
    """
    output = output.resolve()
    name = f".{output.name}.{uuid.uuid4().hex}.tmp" if is_shared else f".{output.name}.tmp"
    temporary = output.with_name(name)
    try:
        make_folder(output.parent)
        if is_shared:
            delete_stale(output.parent, f"*{output.name}.*.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        if not is_shared:
            _replace(temporary, output)
            return
        try:
            publish(temporary, output)
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
    publish(temporary, output)
    shutil.rmtree(replaced, ignore_errors=True)


def is_free(output: Path) -> bool:
    """Says whether a local folder can be written as a new one: it is not there, or can be replaced.

    The latter is an empty one, but no link, no root of a disk, and not the current folder.
    """
    if output.is_symlink() or not output.is_dir():
        return not (output.is_symlink() or output.exists())
    is_used = output.is_mount() or output.resolve() == Path.cwd()
    return not is_used and not any(output.iterdir())
