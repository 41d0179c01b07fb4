"""Files on this machine or on a file system that TensorFlow knows, such as gs://."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tt.model import folders
from tt.model.errors import DiskFullError, UserError, first_line
from tt.model.folders import publish, sync_file, sync_folder

# What to do where the disk is full, beside making room.
OTHER_OUTPUT = ", or name another `output`"
# Lines of TensorFlow's messages that are headings or places in the code.
_CONTEXT = re.compile(r':\s*$|^\s*File "|\[\[|^\s*Detected at node')
_NO_ROOM = ("No space left", "File too large", "quota")


def is_local(path: str) -> bool:
    """Says whether a path is on this machine."""
    return "://" not in path


@contextlib.contextmanager
def storage_errors(
    path: str, *, what: str = "folder", remedy: str = OTHER_OUTPUT
) -> Iterator[None]:
    """Turn the errors of TensorFlow and Python when they write `path` into a UserError.

    `what` is a word for `path`. `remedy` is advice next to making room on a full disk.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = plain_reason(error)
        if isinstance(error, FileExistsError):  # of a folder that must be one
            reason = f"{error.filename} is a file"
        # TensorFlow has no error of its own for a full disk.
        if any(text in reason for text in _NO_ROOM):
            reason = reason.rpartition("; ")[2]  # TensorFlow puts its temporary file before
            raise DiskFullError(
                f"the disk of {path} is full ({reason}): make room there{remedy}"
            ) from error
        raise UserError(
            f"the {what} {path} cannot be written: {reason}. Name another one"
        ) from error


def plain_reason(error: Exception) -> str:
    """Return the line of an error of TensorFlow or Python that says most, without internals.

    >>> plain_reason(ValueError("{{function_node SaveV2}} a.tmp; No space left [Op:SaveV2]"))
    'a.tmp; No space left'
    """
    message = error.message if isinstance(error, tf.errors.OpError) else None
    if isinstance(error, OSError):
        message = error.strerror
    text = re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", str(message or error))
    lines = [line for line in text.splitlines() if line.strip() and not _CONTEXT.search(line)]
    return first_line("\n".join(lines) if lines else (text if text.strip() else error))


def read_text(path: str) -> str:
    """Reads a text file of any file system that TensorFlow knows."""
    with tf.io.gfile.GFile(path, "r") as file:
        return str(file.read())


def write_text(path: str, text: str) -> None:
    """Write a text file under a temporary name, then publish it."""
    temporary = f"{path}.tmp"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(text)
    if is_local(path):
        publish(temporary, path)
    else:
        tf.io.gfile.rename(temporary, path, overwrite=True)


def make_folder(path: str) -> None:
    """Make a folder and its missing parents."""
    if is_local(path):
        folders.make_folder(path)
    else:
        tf.io.gfile.makedirs(path)


def copy_file(source: str, target: str) -> None:
    """Copy a file to a path, in place of any file there.

    Some file systems do not truncate an older file, so this function deletes it first.
    """
    if tf.io.gfile.exists(target):
        tf.io.gfile.remove(target)
    tf.io.gfile.copy(source, target)
    if is_local(target):
        sync_file(target)
        sync_folder(Path(target).parent)
