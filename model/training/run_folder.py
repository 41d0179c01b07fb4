"""A run folder, on this machine or on an object store.

config.json     the configuration of the run; `tt` refuses to resume with another configuration
train.jsonl     one line per report and per validation
checkpoints/    see `tt.model.training.checkpoints`
tensorboard/    the numbers of train.jsonl as curves, and attention images
vocabulary/     copies of the dataset's vocabularies
model/          the exported model at the end of the training
best_model/     the exported model of the best validation
train.lock      the lock of the process that trains in this folder
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tt.model.errors import UserError, plain_reason
from tt.model.folders import lock_folder, storage_errors, sync_folder
from tt.model.formats.model_card import About, TrainingData, describe_run
from tt.model.json_files import parse_fields, parse_json
from tt.model.storage import files, listing
from tt.model.storage.paths import is_local, normalize_path
from tt.model.storage.stores import check_buckets
from tt.model.text.vocabulary import VocabularyPair, load_vocabularies
from tt.model.training.options import DATASET_SOURCE, TrainingConfig, describe_difference
from tt.model.transformer.config import TransformerConfig

CONFIG_FILE = "config.json"
LOG_FILE = "train.jsonl"
CHECKPOINT_FOLDER = "checkpoints"
INDEX_FILE = "checkpoints.json"  # in the folder of the checkpoints
TENSORBOARD_FOLDER = "tensorboard"
VOCABULARY_FOLDER = "vocabulary"
MODEL_FOLDER = "model"
BEST_MODEL_FOLDER = "best_model"
LOCK_FILE = "train.lock"
_FORMAT = 2  # version of the configuration and the checkpoints
_SCRATCH = ".export-"  # prefix of the temporary folders
# These files can exist without a configuration if a process was killed while it created the folder.
_UNFINISHED = {VOCABULARY_FOLDER, LOCK_FILE}
_CHECKPOINT = re.compile(r"(ckpt|best)-\d+|stop-\d+-\d+")


def is_checkpoint(name: str) -> bool:
    """Return whether a name is the name of a checkpoint."""
    return _CHECKPOINT.fullmatch(name) is not None


@dataclasses.dataclass(kw_only=True)
class Kept:
    """The names of the valid checkpoints."""

    last: list[str]  # newest at the end
    best: list[str]  # best validation first
    stop: str | None  # checkpoint of a stopped run; newer than all others

    def to_resume_from(self) -> list[str]:
        """Return the checkpoints that a run can resume from, newest first."""
        return [*([self.stop] if self.stop else []), *self.last[::-1]]


def parse_index(text: str, *, path: str) -> Kept:
    """Return the names in an index.

    Raises:
      UserError: The index is damaged.
    """
    try:
        kept = parse_fields(Kept, parse_json(text, dict))
        for name in [*kept.to_resume_from(), *kept.best]:
            if not is_checkpoint(name):
                raise ValueError(f"{name!r} is not the name of a checkpoint")
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}). Delete it to resume from the newest checkpoint in that "
            "folder"
        ) from error
    return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class _InitialModel:
    model: str
    fingerprint: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RunConfig:
    """The types of the values in the configuration of a run."""

    model: TransformerConfig
    training: TrainingConfig
    dataset: str
    replicas: int
    data: TrainingData | None = None
    dataset_source: dict[str, Any] | None = None
    init_from: _InitialModel | None = None


def check_config(config: dict[str, Any], *, path: str) -> None:
    """Check the types of all values in the configuration of a run.

    Raises:
      UserError: A value is missing, or has another type or range.
    """
    try:
        parse_fields(_RunConfig, config)
        parse_fields(TransformerConfig, config["model"], has_others=False)
        parse_fields(TrainingConfig, config["training"], has_others=False)
    except (TypeError, UserError) as error:
        raise UserError(
            f"{path} is damaged ({error}). Restore the file, or choose another `run`"
        ) from error


class RunFolder:
    """A run folder, which may not exist yet.

    Raises:
      UserError: The path is invalid, or its object store does not answer or denies access.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path).rstrip("/")
        if not self.path:
            raise UserError(f"`run` must be a folder other than the root. Received: {path}")
        if not is_local(str(path)):
            self.path = normalize_path(str(path))
            check_buckets([self.path])
        self._lock = contextlib.ExitStack()

    def inside(self, *names: str) -> str:
        """Return the path of a file or folder in the run folder."""
        return "/".join((self.path, *names))

    def claim(self, config: dict[str, Any], *, vocabulary_folder: Path) -> list[str]:
        """Create and lock the folder of a run, or check and lock an existing one.

        No other process can claim a local folder until `release` or the end of this process.

        Args:
          config: Configuration of the run, from `TrainJob.run_config`.
          vocabulary_folder: Folder whose vocabularies are copied into the run folder.

        Returns:
          Warnings for the user.

        Raises:
          UserError: The folder contains another run or other files, another process trains there,
            or the folder cannot be written.
        """
        self.check_place()
        notes = []
        if is_local(self.path):
            lock = lock_folder(
                self.path,
                name=LOCK_FILE,
                activity=f"trains in {self.path}",
                remedy="choose another `run`",
            )
            with self.errors():
                if not self._lock.enter_context(lock):
                    notes.append(
                        f"{self.path} is on a file system without locks. Check that no other "
                        "process trains there"
                    )
        self.check(config)
        with self.errors():
            for name in self._names():
                if name.startswith(_SCRATCH):  # a killed process left it
                    shutil.rmtree(self.inside(name))
            has_trained = self._has_checkpoints()
            copies = listing.list_files(self.inside(VOCABULARY_FOLDER))
            sizes = {file.path: file.size for file in copies}
            for name in load_vocabularies(vocabulary_folder).files:
                # All copies of the same run have equal content, so comparing the sizes is enough.
                content = (vocabulary_folder / name).read_bytes()
                copied_size = sizes.get(self.inside(VOCABULARY_FOLDER, name))
                if not (has_trained and copied_size == len(content)):
                    self.write(content, VOCABULARY_FOLDER, name)
        return notes

    def check_place(self) -> None:
        """Check that the folder is empty, missing or a run folder, without writing to it.

        Raises:
          UserError: The folder contains other files, or the path is a file.
        """
        with self._reading():
            if listing.exists(self.path) and not listing.is_folder(self.path):
                raise UserError(f"{self.path} is a file. Choose a folder as `run`")
        if self._has_config():
            self.load_config()
        elif any(not each.startswith(_SCRATCH) for each in self._names() - _UNFINISHED):
            raise UserError(
                f"{self.path} contains files that belong to no run. Choose another `run`"
            )

    def check(self, config: dict[str, Any]) -> None:
        """Check that the folder does not contain another run, without writing to it.

        Args:
          config: Configuration of the requested run, from `TrainJob.run_config`.

        Raises:
          UserError: The folder contains a run with another configuration.
        """
        if not self._has_config():
            return
        saved = self.load_config()
        difference = describe_difference(saved, {"format": _FORMAT, **config})
        if difference and self._has_checkpoints():
            raise UserError(
                f"{self.path} contains another run: {difference}. Set the same options to resume "
                "that run, or choose another `run`"
            )

    def write_config(self, config: dict[str, Any]) -> None:
        """Write the configuration of a run into the folder, after `claim`."""
        text = json.dumps({"format": _FORMAT, **config}, indent=2) + "\n"
        self.write(text.encode(), CONFIG_FILE)

    def write(self, content: bytes, *names: str) -> None:
        """Write a file in the run folder, or replace it.

        Raises:
          UserError: The file cannot be written.
        """
        path = self.inside(*names)
        with (
            self.errors(),
            self.scratch() as scratch,
            files.write_whole(path, temporary_folder=scratch) as file,
        ):
            file.write(content)

    def release(self) -> None:
        """Let other processes claim the folder."""
        self._lock.close()

    def load_config(self) -> dict[str, Any]:
        """Return the configuration of the run.

        Raises:
          UserError: The folder contains no run, or a run of an incompatible version of `tt`.
        """
        path = self.inside(CONFIG_FILE)
        remedy = "a run folder that `tt train` wrote"
        try:
            config: dict[str, Any] = parse_json(files.read_text(path), dict)
        except FileNotFoundError:
            raise UserError(
                f"{self.path} is not a run folder, because it has no {CONFIG_FILE}. Choose {remedy}"
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} cannot be read ({plain_reason(error)}). Restore the file, or choose "
                f"{remedy}"
            ) from error
        if not config.keys() >= {"model", "training"}:
            raise UserError(
                f"{self.path} is not a run folder, because its {CONFIG_FILE} does not describe a "
                f"training. Choose {remedy}"
            )
        if config.get("format") != _FORMAT:
            raise UserError(
                f"{path} has format {config.get('format')}, and this version of tt resumes only "
                f"format {_FORMAT}. Choose another `run`"
            )
        check_config(config, path=path)
        return config

    def dataset_folder(self) -> str | None:
        """Return the dataset folder of the run, or None if it is unknown.

        Raises:
          UserError: The configuration is invalid, or an incompatible version of `tt` wrote it.
        """
        config = self.load_config() if self._has_config() else {}
        return (config.get(DATASET_SOURCE) or {}).get("folder")

    def resumed_config(self, *, dataset: str) -> dict[str, Any] | None:
        """Return the configuration of the run to resume, or None if a new run starts.

        Args:
          dataset: Fingerprint of the requested dataset. A run without a checkpoint is resumed only
            if it uses this dataset.

        Raises:
          UserError: The configuration is invalid, or an incompatible version of `tt` wrote it.
        """
        config = self.load_config() if self._has_config() else {}
        is_resumed = config.get("dataset") == dataset or self._has_checkpoints()
        return config if config and is_resumed else None

    def model_config(self) -> TransformerConfig:
        """Return the architecture of the model that the run trains."""
        return TransformerConfig(**self.load_config()["model"])

    def about(self) -> About:
        """Return the part of the model card that all models of the run share."""
        return describe_run(self.load_config())

    def vocabularies(self, folder: Path) -> VocabularyPair:
        """Copy the vocabularies into a local folder and load them from there.

        Raises:
          UserError: The vocabularies are missing or damaged.
        """
        source = self.inside(VOCABULARY_FOLDER)
        with self._reading():
            for name in listing.list_names(source):
                (folder / name).write_bytes(files.read_bytes(f"{source}/{name}"))
        try:
            return load_vocabularies(folder)
        except UserError as error:  # its message contains the path of the copy
            raise UserError(str(error).replace(str(folder), source)) from error

    def publish(self, folder: Path, name: str) -> None:
        """Move a local folder with an exported model into the run folder.

        Args:
          folder: The local folder, inside of a `scratch` folder.
          name: Name of the model folder in the run folder. An existing folder is replaced.
        """
        target = self.inside(name)
        with self.errors():
            if is_local(self.path):
                if Path(target).exists():  # move it into the scratch folder, which is deleted later
                    Path(target).rename(folder.with_name("replaced"))
                folder.rename(target)  # `save_model` has already synced the content to disk
                sync_folder(self.path)
                return
            # A model folder without a configuration counts as unfinished.
            files.delete([f"{target}/{CONFIG_FILE}"])
            files.delete(listing.list_folder(target))
            for file in sorted(folder.iterdir(), key=lambda file: file.name == CONFIG_FILE):
                files.copy(str(file), f"{target}/{file.name}")

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """Return a new temporary folder, on the same disk as the run if the run is local."""
        return tempfile.TemporaryDirectory(
            prefix=_SCRATCH, dir=self.path if is_local(self.path) else None
        )

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that turns write errors into a `UserError`."""
        remedy = "; the same command resumes from the last checkpoint"
        if is_local(self.path):
            return storage_errors(self.path, what="run folder", remedy=remedy)
        # Errors of object stores are already explained, so this is an error of a scratch folder.
        return storage_errors(tempfile.gettempdir(), what="temporary folder", remedy=remedy)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn read errors into a `UserError`."""
        try:
            yield
        except OSError as error:
            inside = error.filename if error.filename != self.path else None
            place = inside or f"the run folder {self.path}"
            raise UserError(
                f"{place} cannot be read ({plain_reason(error)}). Check the path and your "
                "permissions, or choose another `run`"
            ) from error

    def _has_config(self) -> bool:
        with self._reading():
            return listing.exists(self.inside(CONFIG_FILE))

    def _has_checkpoints(self) -> bool:
        with self._reading():
            return bool(self.find_checkpoints("ckpt", "stop"))

    def find_checkpoints(self, *kinds: str) -> list[str]:
        """Return the names of the checkpoints of some kinds: "ckpt", "best" or "stop".

        Copies with other names, for example ckpt-500-copy, are ignored.
        """
        found = listing.list_names(self.inside(CHECKPOINT_FOLDER))
        names = [file.removesuffix(".index") for file in found if file.endswith(".index")]
        return [name for name in names if is_checkpoint(name) and name.split("-")[0] in kinds]

    def _names(self) -> set[str]:
        """Return the names in the folder, or an empty set if the folder does not exist."""
        with self._reading():
            return set(listing.list_names(self.path))
