"""Files on this machine or on a file system that TensorFlow knows, such as gs://."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from model.errors import DiskFullError, UserError

# What to do where the disk is full, beside making room.
OTHER_OUTPUT = ", or name another `output`"


def is_local(path: str) -> bool:
    """Says whether a path is on this machine."""
    return "://" not in path


@contextlib.contextmanager
def storage_errors(
    path: str, *, what: str = "folder", remedy: str = OTHER_OUTPUT
) -> Iterator[None]:
    """Turns what TensorFlow and Python raise where `path` cannot be written into a UserError.

    `what` is a word for it; `remedy` is advice where the disk is full, beside making room.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        message = str(error.message) if isinstance(error, tf.errors.OpError) else error.strerror
        reason = (message or str(error)).splitlines()[0]
        if isinstance(error, FileExistsError):  # of a folder that must be one
            reason = f"{error.filename} is a file"
        # TensorFlow has no error of its own for a full disk.
        if any(text in reason for text in ("No space left", "File too large", "quota")):
            raise DiskFullError(
                f"the disk of {path} is full ({reason}): make room there{remedy}"
            ) from error
        raise UserError(
            f"the {what} {path} cannot be written: {reason}. Name another one"
        ) from error


def read_text(path: str) -> str:
    """Reads a text file of any file system that TensorFlow knows."""
    with tf.io.gfile.GFile(path, "r") as file:
        return str(file.read())


def write_text(path: str, text: str) -> None:
    """Writes a text file under a temporary name, then renames it into place."""
    temporary = f"{path}.tmp"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(text)
    tf.io.gfile.rename(temporary, path, overwrite=True)


def copy_file(source: str, target: str) -> None:
    """Copies a file over another; not every file system cuts off what was there before."""
    if tf.io.gfile.exists(target):
        tf.io.gfile.remove(target)
    tf.io.gfile.copy(source, target)
