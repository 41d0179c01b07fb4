"""What is saved of a run and exported from it: checkpoints, the best weights, models."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from model.dataset.manifest import TRAIN
from model.errors import UserError, counted
from model.formats.model_card import TrainingData, describe_run
from model.formats.weights import save_model
from model.training.checkpoints import (
    AVERAGE,
    Checkpoints,
    Kept,
    best_name,
    check_not_lost,
    named_weights,
)
from model.training.identity import describe_dataset
from model.training.initial_model import InitialModel
from model.training.options import run_config, run_defaults
from model.training.run_folder import BEST_MODEL_FOLDER, MODEL_FOLDER, RunFolder
from model.training.splits import TrainingDataset
from model.training.state import TrainingState
from model.training.step import TrainingStep
from model.training.strategies import Workers
from model.transformer.transformer import Transformer


class RunSaver:
    """Claims the run folder, and writes and restores what a run needs to resume.

    `initial` is the model whose weights a new run gets; `dataset_name` is the user's name of the
    dataset. `notes` are lines for the user on how the run was resumed. One of several workers
    `writes`. The gradients that a step accumulates are not saved.

    Raises:
      UserError: The folder holds another run or something else, another process trains there, or
        its checkpoints are gone.
    """

    def __init__(
        self,
        run: RunFolder,
        *,
        model: Transformer,
        step: TrainingStep,
        data: TrainingDataset,
        dataset_name: str,
        writes: bool,
        initial: InitialModel | None,
    ) -> None:
        self._run = run
        self._model = model
        self._data, self._training = data, data.training
        self.writes = writes
        self._initial = initial
        self._config = run_config(
            model=model.config,
            training=data.training,
            data=TrainingData.of(data.manifest),
            replicas=data.replicas,
            initial=initial,
        )
        self._described = self._config | describe_dataset(data.manifest, folder=dataset_name)
        self._dataset_name = dataset_name
        self.notes = check_not_lost(run, dataset=dataset_name)
        if writes:
            self.notes += run.claim(
                self._described,
                vocabulary_folder=data.folder,
                defaults=run_defaults(model=model.config, training=data.training),
            )
        self.checkpoints = Checkpoints(run)
        self._state = tf.Variable("", dtype=tf.string)
        self._written = ""
        parts = {"weights": named_weights(model), "adam": step.adam, "state": self._state}
        self._average = step.average
        if step.average:
            parts[AVERAGE] = named_weights(model, step.average.means)
        self._checkpoint = tf.train.Checkpoint(**parts)

    def restore(self) -> TrainingState:
        """Restore the newest checkpoint that can be read, for the replicas that train now.

        Raises:
          UserError: No checkpoint can be read, or more steps are done than are wanted.
        """
        replicas = self._data.replicas
        state = self._load() or self._begin_anew(replicas)
        if state.replicas != replicas:
            self.notes.append(
                f"resuming with {counted(replicas, 'replica')} what {state.replicas} trained: from "
                "here on the updates are others than those of an undisturbed run, and what is left "
                "of the last window of pairs waits for the next epoch"
            )
            if state.position.batch:
                # Batches are cut anew, so none of this window's may be read: some pairs were.
                before = dataclasses.replace(self._data, replicas=state.replicas).batches(TRAIN)
                state.position = before.next_window(state.position)
            state.update_start = state.position
            state.replicas = replicas
        return state

    def _begin_anew(self, replicas: int) -> TrainingState:
        if self._initial:
            self._initial.load_into(self._model)
            self._begin_average()
        return TrainingState(replicas=replicas)

    def _load(self) -> TrainingState | None:
        """Return the state of the newest checkpoint that can be read, or None if there is none."""
        checkpoints = self.checkpoints
        name = checkpoints.restore_last(
            self._checkpoint, self.notes.append, dataset=self._dataset_name
        )
        if name is None:
            return None
        state = TrainingState.from_json(self._state.numpy().decode())
        self._check_steps(state)
        # After an older checkpoint than the newest, some of its best may be gone.
        state.best = [each for each in state.best if checkpoints.has(best_name(each[1]))]
        checkpoints.kept.best = [best_name(step) for _, step in state.best]
        self._written = state.to_json()
        if self.writes and not checkpoints.has_left_out:
            checkpoints.delete_others()
        return state

    def _begin_average(self) -> None:
        if self._average:
            self._average.begin()

    def begin(self, state: TrainingState, workers: Workers) -> None:
        """Writes what is trained, once it is sure that it will be; all workers must call this.

        Raises:
          UserError: They do not train the same run.
        """
        config = self._config
        if initial := config.get("init_from"):  # which may have another path on each machine
            config = {**config, "init_from": initial["fingerprint"]}
        described = json.dumps(config) + state.to_json()
        if workers.are_several and not workers.are_equal(described):
            raise UserError(
                "the workers do not train the same run from the same checkpoint: give all of them "
                "the same command, and a `run` and a `dataset` that all of them see"
            )
        if self.writes:
            self._run.write_config(self._described)

    def _check_steps(self, state: TrainingState) -> None:
        if self._training.steps < state.step:
            raise UserError(
                f"`steps` must be at least the {state.step} that {self._run.path} has done. "
                f"Received: {self._training.steps}; `tt export --checkpoint` exports an earlier one"
            )

    def save(self, state: TrainingState) -> None:
        """Saves all that resuming needs, and what the last and the best are."""
        kept, name = self.checkpoints.kept, f"ckpt-{state.step}"
        if name in kept.last:  # what is in it is older: nothing that counts is written over
            self.save_stop(state)
            return
        last = [*kept.last, name][-self._training.keep_checkpoints :]
        self._write(state, name, last=last, stop=None)

    def save_stop(self, state: TrainingState) -> None:
        """Saves all that resuming needs, between the checkpoints that were asked for."""
        name = f"stop-{state.batches}-{state.validated}"
        if state.to_json() != self._written:
            self._write(state, name, last=self.checkpoints.kept.last, stop=name)

    def write_best(self, state: TrainingState, *, is_best: bool) -> None:
        """Writes the weights of one of the best validations; they count from the next save on.

        If it is the best of all, the model is exported, too.
        """
        weights = tf.train.Checkpoint(weights=named_weights(self._model))
        self.checkpoints.write(weights, best_name(state.step))
        if is_best:
            self._export(self._model, BEST_MODEL_FOLDER, state=state)

    def export_final(self, state: TrainingState) -> None:
        """Exports the model of the last step, or the mean of the checkpoints asked for."""
        model, names = self._model, []
        if self._training.average != "none":
            model = Transformer(self._model.config)
            names = self.checkpoints.names(self._training.average)
            self.checkpoints.load_average(model, names)
        self._export(model, MODEL_FOLDER, state=state, checkpoints=names)

    def last_good(self) -> str:
        """Returns the path of the last checkpoint, or "none"."""
        found = self.checkpoints.kept.to_go_on_from()
        return self.checkpoints.path(found[0]) if found else "none"

    def _write(self, state: TrainingState, name: str, *, last: list[str], stop: str | None) -> None:
        self._written = state.to_json()
        if self.writes:
            self._state.assign(self._written)
            self.checkpoints.write(self._checkpoint, name)
            best = [best_name(step) for _, step in state.best]
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
