"""The file to write: checked first, and never left half written."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

from model.errors import DiskFullError, UserError
from model.folders.durable import publish


def check_output(path: str, *, overwrite: bool) -> Path:
    """Check that a file can be written into a folder that exists.

    Raises:
      UserError: The file exists, is a folder, or its folder does not exist or is not writable.
    """
    if "://" in path:
        raise UserError(f"`output` must be a file of this machine. Received: {path}")
    output = Path(path)
    if output.is_dir():
        raise UserError(f"{output} is a folder: name a file with `output`")
    if output.exists() and not overwrite:
        raise UserError(f"{output} is there already: name another `output`, or `overwrite`")
    if not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent}: make it, or name another `output`")
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"{output.parent} may not be written to: name another `output`")
    return output


def write_whole_file(output: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it.

    Raises:
      UserError: The file cannot be written.
    """
    temporary = output.with_name(f".tt.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        publish(temporary, output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        kind = DiskFullError if error.errno == errno.ENOSPC else UserError
        reason = error.strerror or error
        raise kind(f"{output} cannot be written ({reason}): name another `output`") from error
