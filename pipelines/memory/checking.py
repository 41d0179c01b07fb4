"""Check the folder of a memory before a job or a command starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tt.model.errors import UserError, no_access
from tt.model.storage.listing import exists, is_folder
from tt.model.storage.paths import contains, is_local, normalize_path, real_path


def check_memory(
    memory: str | None,
    *,
    input_paths: Sequence[str] = (),
    output: str | None = None,
    must_exist: bool = False,
) -> None:
    """Check the folder of a memory, and write nothing.

    Args:
      memory: The path that the user gave; None if there is none.
      input_paths: Input folders, which must not contain the memory.
      output: The output folder, which must not contain the memory; None if there is none.
      must_exist: Whether the memory must exist; otherwise, the user must be able to write it.

    Raises:
      UserError: The path is not a folder, the folder is inside another one, or the user has no
        permission.
    """
    if memory is None:
        return
    path = normalize_path(memory).rstrip("/")
    if not is_folder(path):
        if exists(path):
            raise UserError(f"`memory` must be a folder. Received the file {memory}")
        if must_exist:
            raise UserError(
                f"there is no memory at {memory}. Check the path, or create the memory with "
                "`tt memory add` or `tt translate-batch --memory`"
            )
    for name, other in [*(("input", each) for each in input_paths), ("output", output)]:
        if other is not None and contains(real_path(normalize_path(other)), path):
            raise UserError(
                f"`memory` must not be inside the {name} folder {other}, because its files would "
                f"count as tables. Received: {memory}"
            )
    if is_local(path):
        _check_rights(Path(path), mode=os.R_OK if must_exist else os.R_OK | os.W_OK)


def _check_rights(path: Path, *, mode: int) -> None:
    """Check the folder, its folder of entries, and the parent in which they must be created."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    for folder in (there, path / "entries"):
        if folder.exists() and not os.access(folder, mode | os.X_OK, effective_ids=True):
            raise no_access(folder, reason="permission denied")
