"""A run folder, on this machine or on a file system that TensorFlow knows, such as gs://.

config.json     the configuration of the run; `tt` refuses another one
train.jsonl     a line for each report and each validation
checkpoints/    see `tt.model.training.checkpoints`
tensorboard/    the same numbers, and attention images
vocabulary/     copies of the dataset's vocabularies
model/          the exported model at the end
best_model/     the exported model of the best validation
train.lock      a lock, which the process that trains here holds
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tt.model.errors import UserError
from tt.model.folders import lock_folder, sync_folder
from tt.model.formats.model_card import About, describe_run
from tt.model.remote_files import (
    copy_file,
    is_local,
    make_folder,
    plain_reason,
    read_text,
    storage_errors,
    write_text,
)
from tt.model.text.vocabulary import VocabularyPair, load_vocabularies
from tt.model.training.options import DATASET_SOURCE, describe_difference
from tt.model.transformer.config import TransformerConfig

CONFIG_FILE = "config.json"
LOG_FILE = "train.jsonl"
CHECKPOINT_FOLDER = "checkpoints"
TENSORBOARD_FOLDER = "tensorboard"
VOCABULARY_FOLDER = "vocabulary"
MODEL_FOLDER = "model"
BEST_MODEL_FOLDER = "best_model"
LOCK_FILE = "train.lock"
_FORMAT = 2  # of the configuration and the checkpoints
_SCRATCH = ".export-"  # the names of temporary folders for exports begin with this
# These names can exist without a configuration: a process was killed when it made the folder.
_UNFINISHED = {VOCABULARY_FOLDER, LOCK_FILE, f"{CONFIG_FILE}.tmp"}
_REMOTE = ("gs://", "ram://")  # the second is TensorFlow's memory, for tests


class RunFolder:
    """A run folder by its `path`."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path).rstrip("/")
        if not self.path or not (is_local(self.path) or self.path.startswith(_REMOTE)):
            raise UserError(f"`run` must be a local folder or one on gs://. Received: {path}")
        self._lock = contextlib.ExitStack()

    def inside(self, *names: str) -> str:
        """Return the path of something in the folder."""
        return "/".join((self.path, *names))

    def claim(self, config: dict[str, Any], *, vocabulary_folder: Path) -> list[str]:
        """Make the folder for a run, or check that it holds this run; return lines for the user.

        No other process can claim a local folder until `release` or the end of this process.
        `config` is the result of `run_config`.

        Raises:
          UserError: It holds another run or something else, another process trains there, or it
            cannot be written.
        """
        self.check_place()
        notes = []
        if is_local(self.path):
            lock = lock_folder(
                self.path,
                name=LOCK_FILE,
                activity=f"trains in {self.path}",
                remedy="train in another folder with `run`",
            )
            with self.errors():
                if not self._lock.enter_context(lock):
                    notes.append(
                        f"{self.path} is on a file system without locks: let no other process "
                        "train there"
                    )
        self.check(config)
        with self.errors():
            for name in self._names():
                if name.startswith(_SCRATCH):  # of an export that was killed
                    tf.io.gfile.rmtree(self.inside(name))
            make_folder(self.inside(VOCABULARY_FOLDER))
            has_trained = self._has_checkpoints()
            for name in load_vocabularies(vocabulary_folder).files:
                # Files of the same run are equal, unless a copy was cut short.
                source, copied = vocabulary_folder / name, self.inside(VOCABULARY_FOLDER, name)
                is_copied = has_trained and tf.io.gfile.exists(copied)
                if not (is_copied and tf.io.gfile.stat(copied).length == source.stat().st_size):
                    copy_file(str(source), copied)
        return notes

    def check_place(self) -> None:
        """Check that the folder is free or holds some run; write nothing.

        Raises:
          UserError: It holds something else.
        """
        with self._reading():
            if tf.io.gfile.exists(self.path) and not tf.io.gfile.isdir(self.path):
                raise UserError(f"{self.path} is a file: name a folder for the run with `run`")
        if self._has_config():
            self.load_config()
        elif self._names() - _UNFINISHED:
            raise UserError(
                f"{self.path} holds something else than a run: choose another folder with `run`"
            )

    def check(self, config: dict[str, Any]) -> None:
        """Check that the folder holds no other run, and write nothing.

        `config` is the result of `run_config`.

        Raises:
          UserError: It holds another run.
        """
        if not self._has_config():
            return
        saved = self.load_config()
        with self.config_errors():
            difference = describe_difference(saved, {"format": _FORMAT, **config})
        if difference and self._has_checkpoints():
            raise UserError(
                f"{self.path} holds another run: {difference}. Give the same options to resume "
                "it, or another `run`"
            )

    def write_config(self, config: dict[str, Any]) -> None:
        """Write the configuration of a run that will be trained in a claimed folder."""
        text = json.dumps({"format": _FORMAT, **config}, indent=2) + "\n"
        with self.errors():
            write_text(self.inside(CONFIG_FILE), text)

    def release(self) -> None:
        """Let other processes claim the folder."""
        self._lock.close()

    def load_config(self) -> dict[str, Any]:
        """Return the configuration of the run.

        Raises:
          UserError: There is no run, or a run of another version of `tt`.
        """
        path = self.inside(CONFIG_FILE)
        remedy = "name the run folder of a `tt train`"
        try:
            config: dict[str, Any] = json.loads(read_text(path))
            is_run = all(isinstance(config.get(part), dict) for part in ("model", "training"))
        except tf.errors.NotFoundError:
            raise UserError(f"no run at {self.path} (it has no {CONFIG_FILE}): {remedy}") from None
        except (tf.errors.OpError, ValueError, AttributeError) as error:
            raise UserError(
                f"{path} cannot be read ({plain_reason(error)}): restore it, or {remedy}"
            ) from error
        if not is_run:
            raise UserError(
                f"{self.path} is no run folder ({CONFIG_FILE} there is something else's): {remedy}"
            )
        if config.get("format") != _FORMAT:
            raise UserError(
                f"{path} has format {config.get('format')}, this tt resumes {_FORMAT}: "
                "train in another folder with `run`"
            )
        return config

    def dataset_folder(self) -> str | None:
        """Return the dataset folder of the run, or None if that is unknown.

        Raises:
          UserError: The folder holds something else, or a run of another version of `tt`.
        """
        config = self.load_config() if self._has_config() else {}
        with self.config_errors():
            return (config.get(DATASET_SOURCE) or {}).get("folder")

    def begun(self, *, dataset: str) -> dict[str, Any] | None:
        """Return the configuration of the run that the same command would resume.

        A run without a checkpoint counts only if its dataset has the fingerprint `dataset`.

        Raises:
          UserError: The folder holds something else, or a run of another version of `tt`.
        """
        config = self.load_config() if self._has_config() else {}
        is_begun = config.get("dataset") == dataset or self._has_checkpoints()
        return config if config and is_begun else None

    def model_config(self) -> TransformerConfig:
        """Return the architecture that the run trains."""
        with self.config_errors():
            return TransformerConfig(**self.load_config()["model"])

    def about(self) -> About:
        """Return the part of a model card that holds for all models of the run."""
        with self.config_errors():
            return describe_run(self.load_config())

    def vocabularies(self, folder: Path) -> VocabularyPair:
        """Copy the vocabularies into a local folder and load them from there.

        Raises:
          UserError: They are missing.
        """
        source = self.inside(VOCABULARY_FOLDER)
        with self._reading():
            for name in tf.io.gfile.listdir(source):
                tf.io.gfile.copy(f"{source}/{name}", str(folder / name), overwrite=True)
        try:
            return load_vocabularies(folder)
        except UserError as error:  # which names the copy
            raise UserError(str(error).replace(str(folder), source)) from error

    def publish(self, folder: Path, name: str) -> None:
        """Move a local folder with an exported model into the run folder, under that name."""
        target = self.inside(name)
        with self.errors():
            if is_local(self.path):
                if Path(target).exists():  # it is deleted together with the scratch folder
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
        """Return a new local folder, on the same disk as a local run."""
        return tempfile.TemporaryDirectory(
            prefix=_SCRATCH, dir=self.path if is_local(self.path) else None
        )

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that turns errors of writing into a UserError."""
        remedy = "; the same command resumes from the last checkpoint"
        return storage_errors(self.path, what="run folder", remedy=remedy)

    @contextlib.contextmanager
    def config_errors(self) -> Iterator[None]:
        """Turn the errors of a configuration that lacks a part into a UserError."""
        try:
            yield
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.inside(CONFIG_FILE)} cannot be read: {error!r}") from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the errors of reading the folder into a UserError."""
        try:
            yield
        except tf.errors.OpError as error:
            raise UserError(
                f"the run folder {self.path} cannot be read ({plain_reason(error)}): check the "
                "path, the network and your rights there, or name another one with `run`"
            ) from error

    def _has_config(self) -> bool:
        with self._reading():
            return bool(tf.io.gfile.exists(self.inside(CONFIG_FILE)))

    def _has_checkpoints(self) -> bool:
        with self._reading():
            return bool(tf.io.gfile.glob(self.inside(CHECKPOINT_FOLDER, "*.index")))

    def _names(self) -> set[str]:
        """Return the names in the folder; none if it does not exist."""
        with self._reading():
            is_there = tf.io.gfile.exists(self.path)
            names = tf.io.gfile.listdir(self.path) if is_there else []
            return {name.rstrip("/") for name in names}
