"""The files of one checkpoint, `NAME.data-*` and `NAME.index`, which TensorFlow reads and writes.

TensorFlow accesses only local files. `tt` copies a checkpoint on an object store from or to a
scratch folder.
"""

from __future__ import annotations

import contextlib
import glob
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tt.model.folders import make_folder, sync_file, sync_folder
from tt.model.storage import files, listing
from tt.model.storage.paths import is_local


def write_checkpoint(checkpoint: tf.train.Checkpoint, path: str) -> None:
    """Write a checkpoint, and sync it to disk or upload it.

    Args:
      checkpoint: The values to write.
      path: The path prefix of the checkpoint's files, which must not exist on an object store.
    """
    folder, _, name = path.rpartition("/")
    if is_local(path):
        make_folder(folder)
        checkpoint.write(path)
        for file in Path(folder).glob(f"{name}.*"):
            sync_file(file)
        sync_folder(folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint.write(f"{scratch}/{name}")
        # The last file is .index, without which a checkpoint does not exist.
        for file in sorted(Path(scratch).glob(f"{name}.*")):
            files.copy(str(file), f"{folder}/{file.name}")


@contextlib.contextmanager
def readable(path: str) -> Iterator[str]:
    """Yield a local path of a checkpoint without [ * ?, which TensorFlow interprets in a read."""
    if is_local(path) and glob.escape(path) == path:
        yield path
        return
    folder, _, name = path.rpartition("/")
    with tempfile.TemporaryDirectory() as scratch:
        if is_local(path):
            link = Path(scratch, "checkpoints")
            link.symlink_to(Path(folder).absolute())
            yield f"{link}/{name}"
            return
        for file in listing.list_names(folder):
            if file.startswith(f"{name}."):
                files.copy(f"{folder}/{file}", f"{scratch}/{file}", temporary_folder=scratch)
        yield f"{scratch}/{name}"


def read_step(path: str) -> int | None:
    """Return the step of a checkpoint, or None if the checkpoint cannot be read.

    On an object store, the name of a regular checkpoint is enough, because a download may take
    minutes.
    """
    name = path.rpartition("/")[2]
    if not is_local(path) and name.startswith("ckpt-"):
        return int(name.removeprefix("ckpt-"))
    with readable(path) as local:
        return step_in(local)


def step_in(path: str) -> int | None:
    """Return the step of a readable checkpoint, or None if it is damaged or contains no state."""
    try:
        reader = tf.train.load_checkpoint(path)
        [state] = [name for name in reader.get_variable_to_shape_map() if name.startswith("state/")]
        return int(json.loads(reader.get_tensor(state))["step"])
    except (tf.errors.OpError, IndexError, ValueError, KeyError):  # truncated, or just deleted
        return None
