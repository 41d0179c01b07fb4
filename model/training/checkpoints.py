"""The checkpoints of a run: the last ones, which resume it, and the weights of the best.

`checkpoints.json` names the checkpoints that count. It is written when they are whole, and only
then are others deleted: whenever a run is killed, the named checkpoints exist.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.dataset.manifest import TRAIN
from tt.model.errors import UserError, counted
from tt.model.folders import sync_file, sync_folder
from tt.model.formats.model_card import describe_run
from tt.model.formats.weights import save_model
from tt.model.long_work import long_work
from tt.model.remote_files import is_local, make_folder, plain_reason, read_text, write_text
from tt.model.training.initial_model import InitialModel
from tt.model.training.options import DATASET_SOURCE
from tt.model.training.reports import RunLog
from tt.model.training.run_folder import (
    BEST_MODEL_FOLDER,
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    LOG_FILE,
    MODEL_FOLDER,
    RunFolder,
)
from tt.model.training.splits import TrainingDataset
from tt.model.training.state import TrainingState
from tt.model.training.step import TrainingStep
from tt.model.training.strategies import Workers
from tt.model.transformer.transformer import Transformer

INDEX_FILE = "checkpoints.json"

# Reading a damaged or foreign checkpoint raises these; an IndexError if its data are cut off.
_DAMAGED = (
    tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError,
    tf.errors.InvalidArgumentError, AssertionError, ValueError, IndexError,
)  # fmt: skip
# TensorFlow has no class of its own for a damaged index; its message contains one of these.
_DAMAGED_TEXTS = ("sstable", "corrupt", "checksum", "No such file")
AVERAGE = "average"  # the part of a checkpoint with the moving average of the weights
_NAME = re.compile(r"(ckpt|best)-\d+|stop-\d+-\d+")


@dataclasses.dataclass
class Kept:
    """The names of the checkpoints that count."""

    last: list[str] = dataclasses.field(default_factory=list)  # the newest at the end
    best: list[str] = dataclasses.field(default_factory=list)  # of the best validations, best first
    stop: str | None = None  # made between them, only to resume from; newer than all others

    def to_resume_from(self) -> list[str]:
        """Return the checkpoints that a run can resume from, the newest first."""
        return [*([self.stop] if self.stop else []), *self.last[::-1]]


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
    """Return the updates that a checkpoint was saved after; None if it cannot be read."""
    try:
        reader = tf.train.load_checkpoint(str(path))
        [state] = [name for name in reader.get_variable_to_shape_map() if name.startswith("state/")]
        return int(json.loads(reader.get_tensor(state))["step"])
    except (tf.errors.OpError, IndexError, ValueError, KeyError):  # cut off, or deleted just now
        return None


def _named_weights(
    model: Transformer, values: Sequence[tf.Variable] | None = None
) -> dict[str, tf.Variable]:
    """Return a model's variables, or as many other `values`, by the paths of the variables.

    `tf.train.Checkpoint` does not find variables in Keras's lists.
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
        self._index = f"{self._folder}/{INDEX_FILE}"
        self.kept = self._load_index()

    def path(self, name: str) -> str:
        """Return the path of a checkpoint as TensorFlow takes it: its files begin with it."""
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
            self._delete(lambda found: found == name)
            raise

    def keep(self, kept: Kept) -> None:
        """Make these the checkpoints that count, then delete all others.

        The deletion begins only when the index is on the disk.
        """
        with self.run.errors():
            make_folder(self._folder)
            write_text(self._index, json.dumps(dataclasses.asdict(kept), indent=2) + "\n")
        self.kept = kept
        self.delete_others()

    def delete_others(self) -> None:
        """Delete checkpoints that do not count: a killed run was writing or deleting them."""
        wanted = {*self.kept.last, *self.kept.best, self.kept.stop}
        self._delete(lambda name: name not in wanted)

    def restore_last(
        self, checkpoint: tf.train.Checkpoint, note: Callable[[str], None]
    ) -> str | None:
        """Restore the newest checkpoint that can be read; return its name, or None without any.

        Later checkpoints no longer count. `note` gets a line for each that cannot be read.

        Raises:
          UserError: There are checkpoints but none can be read, or a file system fails.
        """
        names = self.kept.to_resume_from()
        for name in names:
            try:
                self._read(checkpoint, name)
            except (tf.errors.OpError, *_DAMAGED) as error:
                is_damaged = isinstance(error, _DAMAGED)
                if not (is_damaged or any(text in str(error) for text in _DAMAGED_TEXTS)):
                    raise self._cannot_be_read(name, error) from error
                reason = plain_reason(error)
            else:
                return name
            note(f"checkpoint {self.path(name)} cannot be read, so it is left out: {reason}")
            last = [other for other in self.kept.last if other != name]
            self.kept = Kept(last, self.kept.best)
        # Otherwise the run was killed while it wrote its first checkpoint.
        if len(names) > 1 or find_checkpoints(self.run, "best") or _has_saved(self.run):
            raise UserError(
                f"none of the checkpoints in {self._folder} can be read. {_remedy(self.run)}"
            )
        return None

    def names(self, which: str, count: int | None = None) -> list[str]:
        """Return the first `count` of the "last" or the "best" checkpoints, or all.

        Raises:
          UserError: There are fewer, or none.
        """
        found = self.kept.last[::-1] if which == "last" else self.kept.best
        if len(found) < (count or 1):
            keep = "--keep-checkpoints" if which == "last" else "--keep-best"
            raise UserError(
                f"{self._folder} must have {counted(count or 1, f'{which} checkpoint')}. Received: "
                f"{len(found)}; train on, or keep more with `tt train {keep}`"
            )
        return found[:count]

    def find(self, name: str | None) -> str:
        """Return a checkpoint: the newest "last", the first "best", or the one of a step.

        Raises:
          UserError: There is no such checkpoint.
        """
        if name in ("last", "best"):
            return self.names(name, 1)[0]
        kept = [*self.kept.last, *self.kept.best]
        for each in kept:
            if name in (each, each.partition("-")[2]):
                return each
        raise UserError(f"{self.run.path} has no checkpoint {name!r}: there are {', '.join(kept)}")

    def load_average(self, model: Transformer, names: Sequence[str]) -> None:
        """Set a model's weights to the mean of the weights of some checkpoints.

        In a run with moving averages, these are taken.

        Raises:
          UserError: One of them is missing or damaged, or of another architecture.
        """
        has_averages = bool(self.run.load_config()["training"].get("ema"))
        weights = _named_weights(model)
        sums: list[Any] = [np.zeros(v.shape, np.float64) for v in model.trainable_variables]
        with long_work("reading checkpoints", total=len(names), unit="checkpoints") as work:
            for name in names:
                # The checkpoint of a best validation contains only the weights that it validated.
                part = AVERAGE if has_averages and not name.startswith("best") else "weights"
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
        return UserError(f"checkpoint {self.path(name)} cannot be read: {plain_reason(error)}")

    def _load_index(self) -> Kept:
        if not tf.io.gfile.exists(self._index):
            # The run was killed before it named the first, or the file is lost: all of them count.
            names = find_checkpoints(self.run, "ckpt")
            return Kept(last=sorted(names, key=lambda name: int(name.removeprefix("ckpt-"))))
        try:
            kept = Kept(**json.loads(read_text(self._index)))
            if not all(map(_NAME.fullmatch, [*kept.to_resume_from(), *kept.best])):
                raise ValueError(kept)
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{self._index} is damaged ({error!r}). Delete it to resume from the newest "
                "checkpoint in that folder"
            ) from error
        return kept

    def _delete(self, is_unwanted: Callable[[str], bool]) -> None:
        if not tf.io.gfile.exists(self._folder):
            return
        for file in tf.io.gfile.listdir(self._folder):
            # TensorFlow begins with a folder such as ckpt-500_temp/. Other names are the user's.
            name = re.split(r"\.index$|\.data-|_temp", file, maxsplit=1)[0]
            if _NAME.fullmatch(name) and is_unwanted(name):
                path = f"{self._folder}/{file.rstrip('/')}"
                is_folder = tf.io.gfile.isdir(path)
                (tf.io.gfile.rmtree if is_folder else tf.io.gfile.remove)(path)


def _check_not_lost(run: RunFolder) -> list[str]:
    """Check that a run that saved checkpoints still has some; return lines for the user.

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
    # A run reports a step before it saves it.
    if step > first_save or _has_saved(run):
        raise UserError(f"the checkpoints of {run.path} are gone. {_remedy(run)}")
    if not step:
        return []
    return [f"{run.path} has no checkpoint of step {step:,} or before: training restarts at step 0"]


def _has_saved(run: RunFolder) -> bool:
    """Say whether a run has finished a checkpoint, even if it is lost."""
    traces = ((CHECKPOINT_FOLDER, INDEX_FILE), (MODEL_FOLDER, CONFIG_FILE))
    return any(tf.io.gfile.exists(run.inside(*names)) for names in traces)


def _remedy(run: RunFolder) -> str:
    """Return the advice to a user whose run cannot resume."""
    models = [run.inside(name) for name in (MODEL_FOLDER, BEST_MODEL_FOLDER)]
    found = [model for model in models if tf.io.gfile.exists(f"{model}/{CONFIG_FILE}")]
    from_model = f" from its model, with `init_from={found[0]}`" if found else ""
    return f"Restore {run.inside(CHECKPOINT_FOLDER)}, or train in another `run`{from_model}"


class RunSaver:
    """Claims the run folder, and writes and restores what a run needs to resume.

    `config` is the result of `run_config`; `initial` is the model whose weights a new run gets.
    `notes` are lines for the user on how the run was resumed. One of several workers `writes`. The
    gradients that a step accumulates are not saved.

    Raises:
      UserError: The folder holds another run or something else, another process trains there, or
        its checkpoints are gone.
    """

    def __init__(
        self,
        run: RunFolder,
        config: dict[str, Any],
        *,
        model: Transformer,
        step: TrainingStep,
        data: TrainingDataset,
        writes: bool,
        initial: InitialModel | None,
    ) -> None:
        self._run, self._config, self._model, self._initial = run, config, model, initial
        self._data, self._training, self._average = data, data.training, step.average
        self.writes = writes
        self.notes = _check_not_lost(run)
        if writes:
            self.notes += run.claim(self._config, vocabulary_folder=data.folder)
        self.checkpoints = Checkpoints(run)
        self._state = tf.Variable("", dtype=tf.string)
        self._written = ""
        parts = {"weights": _named_weights(model), "adam": step.adam, "state": self._state}
        if step.average:
            parts[AVERAGE] = _named_weights(model, step.average.means)
        self._checkpoint = tf.train.Checkpoint(**parts)

    def restore(self) -> TrainingState:
        """Restore the newest checkpoint that can be read, for the replicas that train now.

        Raises:
          UserError: No checkpoint can be read, or more steps are done than are wanted.
        """
        replicas = self._data.replicas
        state = self._load()
        if state is None:
            if self._initial:
                self._initial.load_into(self._model)
                if self._average:
                    self._average.begin()
            return TrainingState(replicas=replicas)
        if state.replicas != replicas:
            self.notes.append(
                f"resuming with {counted(replicas, 'replica')} what {state.replicas} trained: from "
                "here on the updates differ from those of an undisturbed run, and the rest of the "
                "last window of pairs is read in the next epoch"
            )
            if state.position.batch:
                # Other replicas cut other batches, and some pairs of this window were read.
                before = dataclasses.replace(self._data, replicas=state.replicas).batches(TRAIN)
                state.position = before.next_window(state.position)
            state.update_start = state.position
            state.replicas = replicas
        return state

    def _load(self) -> TrainingState | None:
        """Return the state of the newest checkpoint that can be read, or None if there is none."""
        checkpoints = self.checkpoints
        newest = checkpoints.kept.to_resume_from()[:1]
        name = checkpoints.restore_last(self._checkpoint, self.notes.append)
        if name is None:
            return None
        state = TrainingState.from_json(self._state.numpy().decode())
        if self._training.steps < state.step:
            raise UserError(
                f"`steps` must be at least the {state.step} that {self._run.path} has done. "
                f"Received: {self._training.steps}; `tt export --checkpoint` exports an earlier one"
            )
        # After an older checkpoint than the newest, some of its best may be gone.
        there = set(find_checkpoints(self._run, "best"))
        state.best = [each for each in state.best if f"best-{each[1]}" in there]
        checkpoints.kept.best = [f"best-{step}" for _, step in state.best]
        self._written = state.to_json()
        if self.writes and newest == [name]:
            checkpoints.delete_others()
        return state

    def begin(self, state: TrainingState, workers: Workers) -> None:
        """Write the configuration, once it is sure that it is trained; all workers must call this.

        Raises:
          UserError: They do not train the same run.
        """
        if workers.are_several:
            config = self._config | {DATASET_SOURCE: None}  # each machine may have other paths
            if initial := config.get("init_from"):
                config["init_from"] = initial["fingerprint"]
            if not workers.are_equal(json.dumps(config) + state.to_json()):
                raise UserError(
                    "the workers do not train the same run from the same checkpoint: give all of "
                    "them the same command, and a `run` and a `dataset` that all of them see"
                )
        if self.writes:
            self._run.write_config(self._config)

    def save(self, state: TrainingState) -> None:
        """Save the run, as one of the last checkpoints."""
        kept, name = self.checkpoints.kept, f"ckpt-{state.step}"
        if name in kept.last:  # it has older content, and no checkpoint that counts is overwritten
            self.save_stop(state)
            return
        last = [*kept.last, name][-self._training.keep_checkpoints :]
        self._write(state, name, last=last, stop=None)

    def save_stop(self, state: TrainingState) -> None:
        """Save the run between the checkpoints that the options ask for."""
        name = f"stop-{state.batches}-{state.validated}"
        if state.to_json() != self._written:
            self._write(state, name, last=self.checkpoints.kept.last, stop=name)

    def write_best(self, state: TrainingState, *, is_best: bool) -> None:
        """Write the weights of one of the best validations; they count after the next save.

        If it is the best of all, export the model, too.
        """
        weights = tf.train.Checkpoint(weights=_named_weights(self._model))
        self.checkpoints.write(weights, f"best-{state.step}")
        if is_best:
            self._export(self._model, BEST_MODEL_FOLDER, state=state)

    def export_final(self, state: TrainingState) -> None:
        """Export the model of the last step, or the mean of the checkpoints to average."""
        model, names = self._model, []
        if self._training.average != "none":
            model = Transformer(self._model.config)
            names = self.checkpoints.names(self._training.average)
            self.checkpoints.load_average(model, names)
        self._export(model, MODEL_FOLDER, state=state, checkpoints=names)

    def last_good(self) -> str:
        """Return the path of the last checkpoint, or "none"."""
        found = self.checkpoints.kept.to_resume_from()
        return self.checkpoints.path(found[0]) if found else "none"

    def _write(self, state: TrainingState, name: str, *, last: list[str], stop: str | None) -> None:
        self._written = state.to_json()
        if self.writes:
            self._state.assign(self._written)
            self.checkpoints.write(self._checkpoint, name)
            best = [f"best-{step}" for _, step in state.best]
            self.checkpoints.keep(Kept(last=last, best=best, stop=stop))

    def _export(
        self,
        model: Transformer,
        name: str,
        *,
        state: TrainingState,
        checkpoints: Sequence[str] = (),
    ) -> None:
        about = dataclasses.replace(
            describe_run(self._config),
            steps=state.step,
            checkpoints=[*checkpoints],
            token_scores=state.token_scores,
        )
        with self._run.errors(), self._run.scratch() as scratch:
            folder = Path(scratch) / MODEL_FOLDER
            save_model(
                model,
                folder,
                vocabulary_folder=self._data.folder,
                vocabularies=self._data.vocabularies,
                about=about,
            )
            self._run.publish(folder, name)
