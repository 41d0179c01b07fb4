"""Files on this machine or on a file system that TensorFlow supports, such as gs://."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tt.model import folders
from tt.model.errors import DiskFullError, UserError, first_line
from tt.model.folders import publish, sync_file, sync_folder

# Second half of the advice on a full disk, after "free some space".
OTHER_OUTPUT = ", or choose another `output`"
# Lines in TensorFlow's messages that are headings or locations in source code.
_CONTEXT = re.compile(r':\s*$|^\s*File "|\[\[|^\s*Detected at node|root error\(s\) found')
_NOISE = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]|^\s*\(\d+\) [A-Z_]+:", re.MULTILINE)
_DISK_FULL = ("No space left", "File too large", "quota")


def is_local(path: str) -> bool:
    """Return whether a path is on this machine."""
    return "://" not in path


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
    except (OSError, tf.errors.OpError) as error:
        reason = plain_reason(error)
        if isinstance(error, FileExistsError):  # a file has the name of a folder to create
            reason = f"{error.filename} is a file"
        # TensorFlow has no error type for a full disk.
        if any(text in reason for text in _DISK_FULL):
            reason = reason.rpartition("; ")[2]  # TensorFlow names its temporary file first
            raise DiskFullError(
                f"the disk of {path} is full ({reason}). Free some space{remedy}"
            ) from error
        raise UserError(
            f"the {what} {path} cannot be written: {reason}. Choose another {what}"
        ) from error


def plain_reason(error: Exception) -> str:
    """Return the most informative line of an error from TensorFlow or Python, without internals.

    >>> plain_reason(ValueError("{{function_node SaveV2}} a.tmp; No space left [Op:SaveV2]"))
    'a.tmp; No space left'
    """
    message = error.message if isinstance(error, tf.errors.OpError) else None
    if isinstance(error, OSError):
        message = error.strerror
    text = _NOISE.sub("", str(message or error))
    lines = [line for line in text.splitlines() if line.strip() and not _CONTEXT.search(line)]
    return first_line("\n".join(lines) if lines else (text if text.strip() else error))


def read_text(path: str) -> str:
    """Read a text file on any file system that TensorFlow supports."""
    with tf.io.gfile.GFile(path, "r") as file:
        return str(file.read())


def write_text(path: str, text: str) -> None:
    """Write a text file under a temporary name, then rename it to `path`."""
    temporary = f"{path}.tmp"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(text)
    if is_local(path):
        publish(temporary, path)
    else:
        tf.io.gfile.rename(temporary, path, overwrite=True)


def make_folder(path: str) -> None:
    """Create a folder and its missing parents."""
    if is_local(path):
        folders.make_folder(path)
    else:
        tf.io.gfile.makedirs(path)


def copy_file(source: str, target: str) -> None:
    """Copy a file, and replace an existing target.

    Some file systems do not truncate an existing file, so this function deletes the target first.
    """
    if tf.io.gfile.exists(target):
        tf.io.gfile.remove(target)
    tf.io.gfile.copy(source, target)
    if is_local(target):
        sync_file(target)
        sync_folder(Path(target).parent)
