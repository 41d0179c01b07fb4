"""A run folder, on this machine or on a file system that TensorFlow knows, such as gs://.

config.json     what is trained and how; another configuration is refused
train.jsonl     a line for each report and each validation
checkpoints/    see `model.training.checkpoints`
tensorboard/    the same numbers, and attention images
vocabulary/     what turns text to ids and back
model/          the exported model at the end
best_model/     the exported model of the best validation
train.lock      locked by the process that trains here, while it does
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from model.errors import UserError, first_line
from model.folders.durable import sync_folder
from model.folders.lock import check_lock, lock_folder
from model.folders.remote import (
    copy_file,
    is_local,
    make_folder,
    read_text,
    storage_errors,
    write_text,
)
from model.formats.model_card import About, describe_run
from model.text.vocabulary import VocabularyPair, load_vocabularies
from model.training.identity import DATASET_SOURCE, describe_difference, fill_defaults
from model.transformer.config import TransformerConfig

CONFIG_FILE = "config.json"
LOG_FILE = "train.jsonl"
CHECKPOINT_FOLDER = "checkpoints"
TENSORBOARD_FOLDER = "tensorboard"
VOCABULARY_FOLDER = "vocabulary"
MODEL_FOLDER = "model"
BEST_MODEL_FOLDER = "best_model"
LOCK_FILE = "train.lock"
_FORMAT = 2  # of the configuration and the checkpoints
_SCRATCH = ".export-"  # what the names of folders for exports begin with
# What there is where making the folder was cut short.
_UNFINISHED = {VOCABULARY_FOLDER, LOCK_FILE, f"{CONFIG_FILE}.tmp"}
_REMOTE = ("gs://", "ram://")  # the second is TensorFlow's memory, for tests
_OTHER_FOLDER = "train in another folder with `run`"
_NAME_A_RUN = "name the run folder of a `tt train`"


class RunFolder:
    """A run folder by its `path`."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path).rstrip("/")
        if not self.path:
            raise UserError(f"{str(path)!r} is no folder for a run: name one with `run`")
        if not is_local(self.path) and not self.path.startswith(_REMOTE):
            raise UserError(
                f"the run folder {self.path} is on a file system that training cannot write "
                "checkpoints to: name a local folder or one on gs:// with `run`"
            )
        self._lock = contextlib.ExitStack()

    def inside(self, *names: str) -> str:
        """Returns the path of something in the folder."""
        return "/".join((self.path, *names))

    def claim(
        self,
        config: dict[str, Any],
        *,
        vocabulary_folder: Path,
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Make the folder for a run, or check that it holds this run; return lines for the user.

        No other process can claim a local folder until `release` or the end of this process.
        `config` is the result of `run_config` with the fields that `describe_dataset` adds.
        `defaults` is the result of `run_defaults`.

        Raises:
          UserError: It holds another run or something else, another process trains there, or it
            cannot be written.
        """
        self.check_place()
        config = {"format": _FORMAT, **config}
        notes = []
        if is_local(self.path) and not self._take_lock():
            notes.append(
                f"{self.path} is on a file system without locks: let no other process train there"
            )
        has_trained = self._has_checkpoints()
        if self._has_config():
            self._check(config, has_trained=has_trained, defaults=defaults or {})
        with self.errors():
            for name in self._names():
                if name.startswith(_SCRATCH):  # of an export that was killed
                    tf.io.gfile.rmtree(self.inside(name))
            make_folder(self.inside(VOCABULARY_FOLDER))
            _copy_vocabularies(
                vocabulary_folder, self.inside(VOCABULARY_FOLDER), has_trained=has_trained
            )
        return notes

    def check_place(self) -> None:
        """Checks that a run may be here, this or another; writes nothing.

        Raises:
          UserError: There is something else.
        """
        with _reading(self.path):
            is_file = tf.io.gfile.exists(self.path) and not tf.io.gfile.isdir(self.path)
        if is_file:
            raise UserError(f"{self.path} is a file: name a folder for the run with `run`")
        if self._has_config():
            self.load_config()
        elif self._names() - _UNFINISHED:
            raise UserError(
                f"{self.path} holds something else than a run: choose another folder with `run`"
            )

    def write_config(self, config: dict[str, Any]) -> None:
        """Writes what a claimed folder trains, once it is sure that it will."""
        text = json.dumps({"format": _FORMAT, **config}, indent=2) + "\n"
        with self.errors():
            write_text(self.inside(CONFIG_FILE), text)

    def release(self) -> None:
        """Lets other processes claim the folder."""
        self._lock.close()

    def load_config(self) -> dict[str, Any]:
        """Returns what `write_config` wrote, and its format.

        Raises:
          UserError: There is no run, or one of another version of tt.
        """
        return _read_config(self.path)

    def dataset_folder(self) -> str | None:
        """Return the dataset folder that the run was begun with, or None if that is unknown.

        Raises:
          UserError: The folder holds something else, or a run of another version of tt.
        """
        if not self._has_config():
            return None
        with self.config_errors():
            source = self.load_config().get(DATASET_SOURCE) or {}
            return source.get("folder")

    def begun(self, *, dataset: str) -> dict[str, Any] | None:
        """Returns the configuration of what the same command would go on with.

        That is what was trained here, or was about to be on the dataset of that fingerprint.

        Raises:
          UserError: The folder holds something else, or a run of another version of tt.
        """
        if not self._has_config():
            return None
        config = self._load_whole_config()
        is_same = config.get("dataset") == dataset
        return config if is_same or self._has_checkpoints() else None

    def check(
        self,
        config: dict[str, Any],
        *,
        is_alone: bool,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Check that a run could `claim` the folder now, and write nothing.

        `config` and `defaults` are those of `claim`. With `is_alone`, no other process may hold the
        folder, such as another worker of the run.

        Raises:
          UserError: It holds another run, or another process trains there.
        """
        if not self._has_config():
            return
        config = {"format": _FORMAT, **config}
        self._check(config, has_trained=self._has_checkpoints(), defaults=defaults or {})
        if is_alone and is_local(self.path):
            check_lock(self.path, name=LOCK_FILE, activity="trains", remedy=_OTHER_FOLDER)

    def _has_config(self) -> bool:
        with _reading(self.path):
            return bool(tf.io.gfile.exists(self.inside(CONFIG_FILE)))

    def _has_checkpoints(self) -> bool:
        with _reading(self.path):
            return bool(tf.io.gfile.glob(self.inside(CHECKPOINT_FOLDER, "*.index")))

    def model_config(self) -> TransformerConfig:
        """Returns the architecture that the run trains."""
        with self.config_errors():
            return TransformerConfig(**self.load_config()["model"])

    def about(self) -> About:
        """Returns what is known of the run's models, whatever their steps."""
        with self.config_errors():
            return describe_run(self.load_config())

    def vocabularies(self, folder: Path) -> VocabularyPair:
        """Copies the vocabularies into a local folder and loads them from there.

        Raises:
          UserError: They are not there.
        """
        source = self.inside(VOCABULARY_FOLDER)
        try:
            for name in tf.io.gfile.listdir(source):
                tf.io.gfile.copy(f"{source}/{name}", str(folder / name), overwrite=True)
        except tf.errors.OpError as error:
            raise UserError(f"{source} cannot be read: {error.message}") from error
        try:
            return load_vocabularies(folder)
        except UserError as error:  # which names the copy
            raise UserError(str(error).replace(str(folder), source)) from error

    def publish(self, folder: Path, name: str) -> None:
        """Moves a local folder with an exported model into the run folder, by that name."""
        target = self.inside(name)
        with self.errors():
            if is_local(self.path):
                if Path(target).exists():  # out of the way; it goes with the scratch folder
                    Path(target).rename(folder.with_name("replaced"))
                folder.rename(target)  # `save_model` has synced its content
                sync_folder(self.path)
                return
            if tf.io.gfile.exists(target):
                tf.io.gfile.rmtree(target)
            tf.io.gfile.makedirs(target)
            # Without its configuration a model folder is unfinished.
            for file in sorted(folder.iterdir(), key=lambda file: file.name == CONFIG_FILE):
                tf.io.gfile.copy(str(file), f"{target}/{file.name}")

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """Returns a new local folder, on the same disk as a local run."""
        return tempfile.TemporaryDirectory(
            prefix=_SCRATCH, dir=self.path if is_local(self.path) else None
        )

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which failing to write becomes a UserError."""
        remedy = "; the same command goes on from the last checkpoint"
        return storage_errors(self.path, what="run folder", remedy=remedy)

    def _take_lock(self) -> bool:
        """Locks the folder; returns whether its file system can."""
        lock = lock_folder(self.path, name=LOCK_FILE, activity="trains", remedy=_OTHER_FOLDER)
        with self.errors():
            return self._lock.enter_context(lock)

    def _names(self) -> set[str]:
        """Returns what is in the folder; nothing where there is none."""
        with _reading(self.path):
            if not tf.io.gfile.exists(self.path):
                return set()
            return {name.rstrip("/") for name in tf.io.gfile.listdir(self.path)}

    def _check(
        self, config: dict[str, Any], *, has_trained: bool, defaults: Mapping[str, Any]
    ) -> None:
        saved = self._load_whole_config()
        with self.config_errors():
            difference = describe_difference(
                fill_defaults(saved, defaults), fill_defaults(config, defaults)
            )
        if difference and has_trained:
            raise UserError(
                f"{self.path} holds another run: {difference}. Give the same options to resume "
                "it, or another `run`"
            )

    @contextlib.contextmanager
    def config_errors(self) -> Iterator[None]:
        """Turn the errors of a configuration that lacks a part into a UserError."""
        try:
            yield
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.inside(CONFIG_FILE)} cannot be read: {error!r}") from error

    def _load_whole_config(self) -> dict[str, Any]:
        config = self.load_config()
        if not all(isinstance(config.get(part), dict) for part in ("model", "training")):
            raise UserError(f"{self.inside(CONFIG_FILE)} cannot be read: a part of it is missing")
        return config


@contextlib.contextmanager
def _reading(folder: str) -> Iterator[None]:
    """Turn the errors of looking into the folder into a UserError."""
    try:
        yield
    except tf.errors.OpError as error:
        reason = first_line(error.message or error)
        remedy = "check the path and your rights there"
        if not is_local(folder):
            remedy = "check network, bucket and credentials"
        raise UserError(
            f"the run folder {folder} cannot be read ({reason}): {remedy}, or name another "
            "one with `run`"
        ) from error


def _read_config(folder: str) -> dict[str, Any]:
    path = f"{folder}/{CONFIG_FILE}"
    try:
        config: dict[str, Any] = json.loads(read_text(path))
        found = config.get("format")
    except tf.errors.NotFoundError:
        raise UserError(f"no run at {folder} (it has no {CONFIG_FILE}): {_NAME_A_RUN}") from None
    except tf.errors.OpError as error:
        if is_local(folder) and Path(folder).is_file():
            raise UserError(f"{folder} is a file: {_NAME_A_RUN}") from error
        raise UserError(f"{path} cannot be read: {error.message}") from error
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error!r}). Restore it, or {_OTHER_FOLDER}") from error
    if "training" not in config:
        raise UserError(
            f"{folder} is no run folder ({CONFIG_FILE} there is something else's): {_NAME_A_RUN}"
        )
    if found != _FORMAT:
        raise UserError(
            f"{path} has format {found}, this tt goes on with {_FORMAT}: train in another "
            "folder with `run`"
        )
    return config


def _copy_vocabularies(folder: Path, run_folder: str, *, has_trained: bool) -> None:
    """Copy the files of the vocabularies, except those that a run in progress has already."""
    for name in load_vocabularies(folder).files:
        # Files of the same run are equal, unless a copy was cut short.
        source, copied = folder / name, f"{run_folder}/{name}"
        is_whole = (
            has_trained
            and tf.io.gfile.exists(copied)
            and tf.io.gfile.stat(copied).length == source.stat().st_size
        )
        if not is_whole:
            copy_file(str(source), copied)
