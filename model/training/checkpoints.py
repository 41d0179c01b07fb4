"""The checkpoints of a run: the last few, all that resuming needs, and the weights of the best.

`checkpoints.json` names the checkpoints that count. It is written when they are whole, and only
then are others deleted: whenever a run is killed, those named are there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from model.errors import UserError, counted
from model.folders.durable import sync_file, sync_folder
from model.folders.long_work import long_work
from model.folders.remote import is_local, make_folder, plain_reason, read_text, write_text
from model.training.reporter import RunLog
from model.training.run_folder import (
    BEST_MODEL_FOLDER,
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    LOG_FILE,
    MODEL_FOLDER,
    RunFolder,
)
from model.transformer.transformer import Transformer

INDEX_FILE = "checkpoints.json"

# What reading a damaged or foreign checkpoint raises; an IndexError where its data are cut off.
_DAMAGED = (
    tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError,
    tf.errors.InvalidArgumentError, AssertionError, ValueError, IndexError,
)  # fmt: skip
# TensorFlow has no class of its own for an index that is no index: what its text has then.
_DAMAGED_TEXTS = ("sstable", "corrupt", "checksum", "No such file")
AVERAGE = "average"  # the part of a checkpoint with the moving average of the weights
_NAME = re.compile(r"(ckpt|best)-\d+|stop-\d+-\d+")


@dataclasses.dataclass
class Kept:
    """The names of the checkpoints that count."""

    last: list[str] = dataclasses.field(default_factory=list)  # the newest at the end
    best: list[str] = dataclasses.field(default_factory=list)  # of the best validations, best first
    stop: str | None = None  # made between them, only to go on from; newer than all others

    def to_go_on_from(self) -> list[str]:
        """Returns those that a run can go on from, the newest first."""
        return [*([self.stop] if self.stop else []), *self.last[::-1]]


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DAMAGED) or any(text in str(error) for text in _DAMAGED_TEXTS)


def best_name(step: int | str) -> str:
    """Returns the name of the weights of a validation."""
    return f"best-{step}"


def find_checkpoints(run: RunFolder, kind: str) -> list[str]:
    """Return the names of the checkpoints of a kind: "ckpt", "best" or "stop".

    A copy with another name, such as ckpt-500-copy, is no checkpoint of the run.
    """
    folder, pattern = run.inside(CHECKPOINT_FOLDER), f"{kind}-*.index"
    if is_local(folder):  # TensorFlow cannot look into a folder whose name is not UTF-8
        files = sorted(map(str, Path(folder).glob(pattern)))
    else:
        files = tf.io.gfile.glob(f"{folder}/{pattern}")
    names = [file.rpartition("/")[2].removesuffix(".index") for file in files]
    return [name for name in names if _NAME.fullmatch(name)]


def read_step(path: str | Path) -> int | None:
    """Returns the updates that a checkpoint was saved after; None if it cannot be read."""
    try:
        reader = tf.train.load_checkpoint(str(path))
        [state] = [name for name in reader.get_variable_to_shape_map() if name.startswith("state/")]
        return int(json.loads(reader.get_tensor(state))["step"])
    except (tf.errors.OpError, IndexError, ValueError, KeyError):  # cut off, or deleted just now
        return None


def named_weights(
    model: Transformer, values: Sequence[tf.Variable] | None = None
) -> dict[str, tf.Variable]:
    """Returns a model's variables by paths: `tf.train.Checkpoint` finds none in Keras's lists.

    Or, instead of them, as many other `values`.
    """
    own = values or [variable.value for variable in model.trainable_variables]
    return {
        variable.path: value for variable, value in zip(model.trainable_variables, own, strict=True)
    }


class Checkpoints:
    """The folder of checkpoints of a run."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._folder = run.inside(CHECKPOINT_FOLDER)
        self.kept = self._load_index()  # those that count
        self._found = bool(self.kept.to_go_on_from()) and not self._was_writing_its_first()
        # whether one of them could not be read, until the next is written
        self.has_left_out = False

    def has(self, name: str) -> bool:
        """Says whether there is such a checkpoint."""
        return bool(tf.io.gfile.exists(f"{self.path(name)}.index"))

    def path(self, name: str) -> str:
        """Returns the path of a checkpoint as TensorFlow takes it: files begin with it."""
        return f"{self._folder}/{name}"

    def write(self, checkpoint: tf.train.Checkpoint, name: str) -> None:
        """Write a checkpoint, which counts once `keep` names it, and sync it to disk.

        Raises:
          UserError: There is no room, or the folder cannot be written; no part of it stays.
        """
        try:
            with self.run.errors():
                make_folder(self._folder)
                checkpoint.write(self.path(name))
                if is_local(self._folder):
                    for file in Path(self._folder).glob(f"{name}.*"):
                        sync_file(file)
                    sync_folder(self._folder)
        except UserError:
            self._delete(name)
            raise

    def keep(self, kept: Kept) -> None:
        """Make these the checkpoints that count, then delete all others.

        The deletion begins only when the index is on the disk.
        """
        with self.run.errors():
            make_folder(self._folder)
            text = json.dumps(dataclasses.asdict(kept), indent=2) + "\n"
            write_text(f"{self._folder}/{INDEX_FILE}", text)
        self.kept = kept
        self.delete_others()

    def delete_others(self) -> None:
        """Deletes what does not count: what a killed run was writing, or had not yet deleted."""
        wanted = {*self.kept.last, *self.kept.best, self.kept.stop}
        if not tf.io.gfile.exists(self._folder):
            return
        for file in tf.io.gfile.listdir(self._folder):
            # TensorFlow begins with a folder such as ckpt-500_temp/. Other names are the user's.
            name = re.split(r"\.index$|\.data-|_temp", file, maxsplit=1)[0]
            if name not in wanted and _NAME.fullmatch(name):
                self._remove(file)

    def restore_last(
        self, checkpoint: tf.train.Checkpoint, note: Callable[[str], None], *, dataset: str
    ) -> str | None:
        """Restore the newest checkpoint that can be read; return its name, or None without any.

        Later checkpoints no longer count. `note` gets a line for each that cannot be read;
        `dataset` is the name of the dataset in the command that an error recommends.

        Raises:
          UserError: There are checkpoints but none can be read, or a file system fails.
        """
        for name in self.kept.to_go_on_from():
            try:
                self._read(checkpoint, name)
            except (tf.errors.OpError, *_DAMAGED) as error:
                if not _is_damage(error):
                    raise self._cannot_be_read(name, error) from error
                reason = plain_reason(error)
            else:
                return name
            note(f"checkpoint {self.path(name)} cannot be read, so it is left out: {reason}")
            self.has_left_out = True
            last = [other for other in self.kept.last if other != name]
            self.kept = Kept(last, self.kept.best)
        if self._found:
            raise UserError(
                f"none of the checkpoints in {self._folder} can be read. "
                f"{_remedy(self.run, dataset=dataset)}"
            )
        return None

    def names(self, which: str, count: int | None = None) -> list[str]:
        """Returns the "last" or the "best" checkpoints, so many of them, or all.

        Raises:
          UserError: There are fewer, or none.
        """
        found = self.kept.last[::-1] if which == "last" else self.kept.best
        if not found:
            raise UserError(f"{self._folder} has no {which} checkpoint: train on, until it has one")
        if count is not None and count > len(found):
            keep = "--keep-checkpoints" if which == "last" else "--keep-best"
            raise UserError(
                f"`count` must be at most {len(found)}, since {self._folder} has "
                f"{counted(len(found), f'{which} checkpoint')}. Received: {count}. "
                f"Give fewer, or keep more with `tt train {keep}`"
            )
        return found[:count]

    def load_average(self, model: Transformer, names: Sequence[str]) -> None:
        """Sets a model's weights to the mean of those of some checkpoints.

        Of a run with moving averages, these are what is taken.

        Raises:
          UserError: One of them is missing or damaged, or of another architecture.
        """
        has_averages = bool(self.run.load_config()["training"].get("ema"))
        weights = named_weights(model)
        sums: list[Any] = [np.zeros(v.shape, np.float64) for v in model.trainable_variables]
        with long_work("reading checkpoints", total=len(names), unit="checkpoints") as work:
            for name in names:
                # What is kept of a best validation has no other weights than those it was of.
                is_best = name.startswith(best_name(""))
                part = AVERAGE if has_averages and not is_best else "weights"
                try:
                    self._read(tf.train.Checkpoint(**{part: weights}), name)
                except (tf.errors.OpError, *_DAMAGED) as error:
                    raise self._cannot_be_read(name, error) from error
                for total, variable in zip(sums, model.trainable_variables, strict=True):
                    total += variable.numpy()
                work.add(1)
        for total, variable in zip(sums, model.trainable_variables, strict=True):
            variable.assign((total / len(names)).astype(np.float32))

    def _read(self, checkpoint: tf.train.Checkpoint, name: str) -> None:
        status = checkpoint.read(self.path(name))
        status.assert_existing_objects_matched().expect_partial()

    def _cannot_be_read(self, name: str, error: Exception) -> UserError:
        reason = plain_reason(error)
        return UserError(f"checkpoint {self.path(name)} cannot be read: {reason}")

    def _was_writing_its_first(self) -> bool:
        """Says whether the run was killed before any weights of it counted."""
        best = find_checkpoints(self.run, "best")
        is_exported = tf.io.gfile.exists(self.run.inside(MODEL_FOLDER))
        return not (self._has_index() or len(self.kept.last) > 1 or best or is_exported)

    def _has_index(self) -> bool:
        return bool(tf.io.gfile.exists(f"{self._folder}/{INDEX_FILE}"))

    def _load_index(self) -> Kept:
        path = f"{self._folder}/{INDEX_FILE}"
        if not self._has_index():
            # Killed before the first was named, or the file is lost: all that is there counts.
            names = find_checkpoints(self.run, "ckpt")
            return Kept(last=sorted(names, key=lambda name: int(name.removeprefix("ckpt-"))))
        try:
            values = json.loads(read_text(path))
            kept = Kept(**values)
            names = [*kept.last, *kept.best, *([kept.stop] if kept.stop else [])]
            if not all(_NAME.fullmatch(name) for name in names):
                raise ValueError(values)
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is damaged ({error!r}). Delete it to resume from the newest checkpoint in "
                "that folder"
            ) from error
        return kept

    def _delete(self, name: str) -> None:
        if tf.io.gfile.exists(self._folder):
            for file in tf.io.gfile.listdir(self._folder):
                if file.startswith((f"{name}.", f"{name}_temp")):
                    self._remove(file)

    def _remove(self, file: str) -> None:
        path = f"{self._folder}/{file.rstrip('/')}"
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)


def check_not_lost(run: RunFolder, *, dataset: str) -> list[str]:
    """Check that a run that saved checkpoints still has some; return lines for the user.

    `dataset` is the name of the dataset in the command that an error recommends.

    Raises:
      UserError: The checkpoints are gone, or the folder holds something else than a run.
    """
    if not tf.io.gfile.exists(run.inside(CONFIG_FILE)):
        return []
    if find_checkpoints(run, "ckpt") or find_checkpoints(run, "stop"):
        return []
    with run.config_errors():
        first_save = run.load_config()["training"]["save_every"]
    lines = RunLog(run.inside(LOG_FILE)).read()
    step = max((line["step"] for line in lines), default=0)
    reached = f" although {LOG_FILE} reaches step {step:,}" if step else ""
    # A run writes the weights of its best validation before it exports them, and both of them
    # before its first checkpoint. It reports a step before it saves it.
    models = _models(run)
    weights = find_checkpoints(run, "best")
    has_index = tf.io.gfile.exists(run.inside(CHECKPOINT_FOLDER, INDEX_FILE))
    has_exported = MODEL_FOLDER in models or (models and not weights)
    if has_index or has_exported or step > first_save:
        raise UserError(
            f"the checkpoints of {run.path} are gone{reached}. {_remedy(run, dataset=dataset)}"
        )
    if not step:
        return []
    return [f"{run.path} has no checkpoint{reached}: training restarts at step 0"]


def _remedy(run: RunFolder, *, dataset: str) -> str:
    """Return the advice to a user whose run cannot resume."""
    restore = f"Restore {run.inside(CHECKPOINT_FOLDER)}"
    models = _models(run)
    if not models:
        return f"{restore}, or train in another folder with `run`"
    words = ["tt", "train", "--dataset", dataset, "--run", f"{run.path}-2"]
    command = shlex.join([*words, "--init-from", run.inside(models[0])])
    return f"{restore}, or start another run from its model with `{command}`"


def _models(run: RunFolder) -> list[str]:
    """Return the names of the exported models of a run, the last model before the best."""
    names = (MODEL_FOLDER, BEST_MODEL_FOLDER)
    return [name for name in names if tf.io.gfile.exists(run.inside(name, CONFIG_FILE))]
