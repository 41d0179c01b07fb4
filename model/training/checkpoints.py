"""The checkpoints of a run: the last ones, to resume from, and the weights of the best validations.

The index `checkpoints.json` lists the valid checkpoints. It is written after the checkpoints that
it lists, and before other checkpoints are deleted. All listed checkpoints therefore exist, whenever
a run is killed.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.dataset.manifest import TRAIN
from tt.model.errors import UserError, counted, plain_reason
from tt.model.formats.model_card import describe_run
from tt.model.formats.weights import save_model
from tt.model.long_work import long_work
from tt.model.storage import files, listing
from tt.model.storage.paths import is_local
from tt.model.training.checkpoint_files import readable, step_in, write_checkpoint
from tt.model.training.initial_model import InitialModel
from tt.model.training.options import DATASET_SOURCE, TrainingConfig
from tt.model.training.reports import RunLog
from tt.model.training.run_folder import (
    BEST_MODEL_FOLDER,
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    INDEX_FILE,
    MODEL_FOLDER,
    Kept,
    RunFolder,
    is_checkpoint,
    parse_index,
)
from tt.model.training.splits import TrainingDataset
from tt.model.training.state import TrainingState
from tt.model.training.step import TrainingStep
from tt.model.training.strategies import Workers
from tt.model.transformer.transformer import Transformer

# TensorFlow raises these errors if a checkpoint is damaged or belongs to another model. An
# IndexError means that the data file is truncated.
_DAMAGED = (
    tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError,
    tf.errors.InvalidArgumentError, AssertionError, ValueError, IndexError,
)  # fmt: skip
# TensorFlow has no separate class for a damaged index, but the message contains such a text.
_DAMAGED_TEXTS = ("sstable", "corrupt", "checksum", "No such file")


def _named_weights(
    model: Transformer, values: Sequence[tf.Variable] | None = None
) -> dict[str, tf.Variable]:
    """Return a model's trainable variables, or `values` instead, by the variables' paths.

    `tf.train.Checkpoint` does not find variables in Keras's lists.
    """
    own = values or [variable.value for variable in model.trainable_variables]
    return {
        variable.path: value for variable, value in zip(model.trainable_variables, own, strict=True)
    }


class Checkpoints:
    """The checkpoint folder of a run."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._folder = run.inside(CHECKPOINT_FOLDER)
        self._index = f"{self._folder}/{INDEX_FILE}"
        self.kept = self._load_index()

    def path(self, name: str) -> str:
        """Return the path prefix of a checkpoint's files, as TensorFlow expects it."""
        return f"{self._folder}/{name}"

    def write(self, checkpoint: tf.train.Checkpoint, name: str) -> None:
        """Write a checkpoint and sync it to disk; it becomes valid when `keep` lists it.

        Raises:
          UserError: The disk is full, or the folder cannot be written. Partial files are deleted.
        """
        try:
            with self.run.errors():
                if not is_local(self._folder):
                    self._delete(lambda found: found == name)  # a killed run may have left it
                write_checkpoint(checkpoint, self.path(name))
        except UserError:
            self._delete(lambda found: found == name)
            raise

    def keep(self, kept: Kept) -> None:
        """Write the index of the valid checkpoints to disk, then delete all other checkpoints."""
        text = json.dumps(dataclasses.asdict(kept), indent=2) + "\n"
        self.run.write(text.encode(), CHECKPOINT_FOLDER, INDEX_FILE)
        self.kept = kept
        self.delete_others()

    def delete_others(self) -> None:
        """Delete the checkpoints that are not in the index, which a killed run may have left."""
        wanted = {*self.kept.last, *self.kept.best, self.kept.stop}
        self._delete(lambda name: name not in wanted)

    def restore_last(
        self, checkpoint: tf.train.Checkpoint, note: Callable[[str], None]
    ) -> str | None:
        """Restore the newest readable checkpoint; return its name, or None without a checkpoint.

        Newer checkpoints become invalid. `note` receives a message about each of them.

        Raises:
          UserError: No existing checkpoint can be read, or the file system fails.
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
            note(f"ignoring checkpoint {self.path(name)}, because it cannot be read: {reason}")
            last = [other for other in self.kept.last if other != name]
            self.kept = Kept(last=last, best=self.kept.best, stop=None)
        # If the run has no other checkpoint, it was killed while it wrote its first one.
        if len(names) > 1 or _has_saved(self.run):
            raise UserError(f"no checkpoint in {self._folder} can be read. {_remedy(self.run)}")
        return None

    def names(self, which: str, count: int | None = None) -> list[str]:
        """Return the names of the newest ("last") or "best" checkpoints: `count` of them, or all.

        Raises:
          UserError: The run has fewer checkpoints than `count`, or none.
        """
        found = self.kept.last[::-1] if which == "last" else self.kept.best
        if len(found) < (count or 1):
            keep = "--keep-checkpoints" if which == "last" else "--keep-best"
            raise UserError(
                f"{self._folder} has {counted(len(found), f'{which} checkpoint')}. Requested: "
                f"{count or 1:,}. Train longer, or keep more with `tt train {keep}`"
            )
        return found[:count]

    def find(self, name: str | None) -> str:
        """Return the name of a checkpoint; `name` is "last", "best", a step or the whole name.

        Raises:
          UserError: The run has no such checkpoint.
        """
        if name in ("last", "best"):
            return self.names(name, 1)[0]
        kept = [*self.kept.last, *self.kept.best]
        for each in kept:
            if name in (each, each.partition("-")[2]):
                return each
        raise UserError(
            f"{self.run.path} has no checkpoint {name!r}. Choose from: {', '.join(kept)}"
        )

    def load_average(self, model: Transformer, names: Sequence[str]) -> None:
        """Set a model's weights to the mean of the weights in some checkpoints.

        Raises:
          UserError: A checkpoint is missing or damaged, or has another architecture.
        """
        weights = _named_weights(model)
        sums: list[Any] = [np.zeros(v.shape, np.float64) for v in model.trainable_variables]
        with long_work("reading checkpoints", total=len(names), unit="checkpoints") as work:
            for name in names:
                try:
                    self._read(tf.train.Checkpoint(weights=weights), name)
                except (tf.errors.OpError, *_DAMAGED) as error:
                    raise self._cannot_be_read(name, error) from error
                for total, variable in zip(sums, model.trainable_variables, strict=True):
                    total += variable.numpy()
                work.add(1)
        for total, variable in zip(sums, model.trainable_variables, strict=True):
            variable.assign((total / len(names)).astype(np.float32))

    def _read(self, checkpoint: tf.train.Checkpoint, name: str) -> None:
        with readable(self.path(name)) as path:
            step = step_in(path)  # None for weights without a state
            if step is not None and name.startswith("ckpt-") and name != f"ckpt-{step}":
                raise ValueError(f"it is the checkpoint of step {step:,}")
            status = checkpoint.read(path).expect_partial()
        try:
            status.assert_existing_objects_matched()
        except AssertionError as error:  # its message prints the weights
            raise ValueError("its weights do not fit the architecture of the run") from error

    def _cannot_be_read(self, name: str, error: Exception) -> UserError:
        return UserError(
            f"checkpoint {self.path(name)} cannot be read ({plain_reason(error)}). Restore the "
            "run's files, check your permissions, or choose another checkpoint"
        )

    def _load_index(self) -> Kept:
        try:
            return parse_index(files.read_text(self._index), path=self._index)
        except FileNotFoundError:
            # The run was killed before it wrote the index, or the index is lost: use everything.
            names = self.run.find_checkpoints("ckpt")
            last = sorted(names, key=lambda name: int(name.removeprefix("ckpt-")))
            return Kept(last=last, best=[], stop=None)

    def _delete(self, is_unwanted: Callable[[str], bool]) -> None:
        for file in listing.list_names(self._folder):
            # TensorFlow first writes to a folder such as ckpt-500_temp/. Keep files with other
            # names, because the user put them there.
            name = re.split(r"\.index$|\.data-|_temp", file, maxsplit=1)[0]
            if is_checkpoint(name) and is_unwanted(name):
                path = f"{self._folder}/{file}"
                if is_local(path) and Path(path).is_dir():
                    shutil.rmtree(path)
                else:
                    files.delete([path])


def _check_not_lost(run: RunFolder) -> list[str]:
    """Check that a run that has saved checkpoints still has some; return warnings for the user.

    Raises:
      UserError: The checkpoints are missing, or the folder is not a run.
    """
    if not listing.exists(run.inside(CONFIG_FILE)):
        return []
    if run.find_checkpoints("ckpt", "stop"):
        return []
    if _has_saved(run):
        raise UserError(f"the checkpoints of {run.path} are missing. {_remedy(run)}")
    if not (step := _last_step(run)):
        return []
    return [
        f"{run.path} has no checkpoint, although it reached step {step:,}. Training restarts at "
        "step 0"
    ]


def _has_saved(run: RunFolder) -> bool:
    """Return whether a run has ever finished a checkpoint, even if the checkpoint is lost."""
    traces = ((CHECKPOINT_FOLDER, INDEX_FILE), (MODEL_FOLDER, CONFIG_FILE))
    if any(listing.exists(run.inside(*names)) for names in traces):
        return True
    if not listing.exists(run.inside(CONFIG_FILE)):
        return False
    first_save: int = run.load_config()["training"].get("save_every", TrainingConfig.save_every)
    return _last_step(run) > first_save  # a run reports a step before it saves that step


def _last_step(run: RunFolder) -> int:
    return max((line["step"] for line in RunLog(run).read()), default=0)


def _remedy(run: RunFolder) -> str:
    """Return advice for a user whose run cannot resume."""
    models = [run.inside(name) for name in (MODEL_FOLDER, BEST_MODEL_FOLDER)]
    found = [model for model in models if listing.exists(f"{model}/{CONFIG_FILE}")]
    from_model = f" from its model, with `init_from={found[0]}`" if found else ""
    return f"Restore {run.inside(CHECKPOINT_FOLDER)}, or train in another `run`{from_model}"


class RunSaver:
    """Claims the run folder, and saves and restores the run.

    Accumulated gradients are not saved.

    Args:
      run: The run folder.
      config: Configuration of the run, from `TrainJob.run_config`.
      model: The model.
      step: The training step, with the optimizer.
      data: The dataset.
      writes: Whether this process writes the run folder; only one of several workers does.
      initial: The model whose weights a new run starts from.

    Raises:
      UserError: The folder contains another run or other files, another process trains there, or
        the checkpoints are missing.
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
        self._data, self._training = data, data.training
        self.writes = writes
        self.notes = _check_not_lost(run)  # warnings for the user
        if writes:
            self.notes += run.claim(self._config, vocabulary_folder=data.folder)
        self.checkpoints = Checkpoints(run)
        self._state = tf.Variable("", dtype=tf.string)
        self._written = ""
        parts = {"weights": _named_weights(model), "adam": step.adam, "state": self._state}
        self._checkpoint = tf.train.Checkpoint(**parts)

    def restore(self) -> TrainingState:
        """Restore the newest readable checkpoint, or load the initial weights of a new run.

        If the number of replicas has changed, the training continues with the next window of pairs.

        Raises:
          UserError: No checkpoint can be read, or the run has already passed the last step.
        """
        replicas = self._data.replicas
        state = self._load()
        if state is None:
            if self._initial:
                self._initial.load_into(self._model)
            return TrainingState(replicas=replicas)
        if state.replicas != replicas:
            self.notes.append(
                f"resuming with {counted(replicas, 'replica')} instead of {state.replicas}. From "
                "now on, the weights differ from an uninterrupted run, and the current epoch skips "
                "the rest of its current window of pairs"
            )
            if state.position.batch:
                # With other replicas, the batches differ, and this window is already partly read.
                before = dataclasses.replace(self._data, replicas=state.replicas).batches(TRAIN)
                state.position = before.next_window(state.position)
            state.update_start = state.position
            state.replicas = replicas
        return state

    def _load(self) -> TrainingState | None:
        """Restore the newest readable checkpoint and return its state; None if there is none."""
        checkpoints = self.checkpoints
        newest = checkpoints.kept.to_resume_from()[:1]
        name = checkpoints.restore_last(self._checkpoint, self.notes.append)
        if name is None:
            return None
        state = TrainingState.from_json(self._state.numpy().decode())
        if self._training.steps < state.step:
            raise UserError(
                f"`steps` must be at least {state.step}, because {self._run.path} has already "
                f"reached that step. Received: {self._training.steps}. To get an earlier model, "
                "use `tt export --checkpoint`"
            )
        # If an older checkpoint was restored, some of its best checkpoints may be deleted already.
        there = set(self._run.find_checkpoints("best"))
        state.best = [each for each in state.best if f"best-{each[1]}" in there]
        checkpoints.kept.best = [f"best-{step}" for _, step in state.best]
        self._written = state.to_json()
        if self.writes and newest == [name]:
            checkpoints.delete_others()
        return state

    def begin(self, state: TrainingState, workers: Workers) -> None:
        """Write the configuration, after all checks; all workers must call this method.

        Raises:
          UserError: The workers do not train the same run.
        """
        if workers.are_several:
            config = self._config | {DATASET_SOURCE: None}  # paths may differ between machines
            if initial := config.get("init_from"):
                config["init_from"] = initial["fingerprint"]
            if not workers.are_equal(json.dumps(config) + state.to_json()):
                raise UserError(
                    "the workers do not train the same run from the same checkpoint. Start all "
                    "workers with the same command, and with `run` and `dataset` on a shared disk "
                    "or an object store"
                )
        if self.writes:
            self._run.write_config(self._config)

    def save(self, state: TrainingState) -> None:
        """Save the run as one of the last checkpoints."""
        kept, name = self.checkpoints.kept, f"ckpt-{state.step}"
        if name in kept.last:  # never overwrite a valid checkpoint, use another name
            self.save_stop(state)
            return
        last = [*kept.last, name][-self._training.keep_checkpoints :]
        self._write(state, name, last=last, stop=None)

    def save_stop(self, state: TrainingState) -> None:
        """Save the run between the regular checkpoints, unless nothing has changed since then."""
        name = f"stop-{state.batches}-{state.validated}"
        if state.to_json() != self._written:
            self._write(state, name, last=self.checkpoints.kept.last, stop=name)

    def write_best(self, state: TrainingState, *, is_best: bool) -> None:
        """Write the weights after a good validation; they become valid at the next save.

        If the validation is the best so far, export the model as well.
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
