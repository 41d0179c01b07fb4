"""What is saved of a run and exported from it: checkpoints, the best weights, models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from model.engines.tensorflow_engine import export_model
from model.errors import UserError
from model.formats.about import About
from model.runs.checkpoints import Checkpoints, Kept, NoneReadableError, best_name, named_weights
from model.runs.run_folder import BEST_MODEL_FOLDER, MODEL_FOLDER, RunFolder
from model.text.vocabulary import VocabularyPair
from model.training.remains import find_models, how_to_go_on, restart_from_model
from model.training.state import TrainingState
from model.transformer.config import TrainingConfig
from model.transformer.transformer import Transformer
from model.updates.step import TrainingStep


class RunSaver:
    """Writes what a run needs to go on, and reads it again.

    Args:
      run: The run folder, claimed.
      model: What is trained.
      step: Holds the optimizer; what it accumulates is not saved.
      training: How it is trained.
      vocabulary_folder: Whose vocabularies go into exported models.
      vocabularies: That lie there.
      about: What is known of the run's models, whatever their steps.
      writes: Whether this process writes the run folder; one of several workers does.

    Attributes:
      checkpoints: Of the run.
    """

    def __init__(
        self,
        run: RunFolder,
        *,
        model: Transformer,
        step: TrainingStep,
        training: TrainingConfig,
        vocabulary_folder: Path,
        vocabularies: VocabularyPair,
        about: About,
        writes: bool,
    ) -> None:
        self.checkpoints = Checkpoints(run)
        self._run = run
        self._model = model
        self._training = training
        self._vocabulary_folder = vocabulary_folder
        self._vocabularies = vocabularies
        self._about = about
        self._writes = writes
        self._state = tf.Variable("", dtype=tf.string)
        self._written = ""
        parts = {"weights": named_weights(model), "adam": step.adam, "state": self._state}
        if step.loss_scale:
            parts["loss_scale"] = step.loss_scale
        self._checkpoint = tf.train.Checkpoint(**parts)
        self._accumulator = step.accumulator

    def restore(
        self, note: Callable[[str], None], *, replicas: int, from_model: bool = False
    ) -> TrainingState | None:
        """Restores the newest checkpoint that can be read.

        Args:
          note: Told of each that cannot.
          replicas: That train together.
          from_model: Whether the run goes on from its model where there is none; then it is saved
            at once.

        Returns:
          Where the run stood, or None where nothing was saved.

        Raises:
          UserError: None of the checkpoints can be read, or more steps are done than are wanted.
        """
        checkpoints = self.checkpoints
        try:
            name = checkpoints.restore_last(self._checkpoint, note)
        except NoneReadableError as error:
            if not from_model:
                remedy = how_to_go_on(find_models(self._run))
                raise UserError(f"{error}: put them back{remedy}") from error
            name = None
        if name is None:
            return self._restart(note, replicas=replicas) if from_model else None
        if from_model:
            note(
                f"{self._run.path} goes on from its checkpoints: --restart-from-model is for runs "
                "that have lost them"
            )
        state = TrainingState.from_json(self._state.numpy().decode())
        self._check_steps(state)
        # After an older checkpoint than the newest, some of its best may be gone.
        state.best = [each for each in state.best if checkpoints.has(best_name(each[1]))]
        checkpoints.kept.best = [best_name(step) for _, step in state.best]
        self._written = state.to_json()
        if state.pending_batches:  # earlier versions saved what a stop had interrupted
            pending = tf.train.Checkpoint(accumulator=self._accumulator)
            pending.read(checkpoints.path(name)).expect_partial()
        if self._writes and not checkpoints.has_left_out:
            checkpoints.delete_others()
        return state

    def _restart(self, note: Callable[[str], None], *, replicas: int) -> TrainingState:
        """Goes on from the weights of the run's model, and saves that before anything else."""
        found = restart_from_model(
            self._run,
            model=self._model,
            metric=self._training.best_metric,
            batches_an_update=self._training.batches_an_update(replicas),
            replicas=replicas,
        )
        state = found.state
        self._check_steps(state)
        weights = {v.path: v.numpy() for v in found.weights.trainable_variables}
        for variable in self._model.trainable_variables:
            variable.assign(weights[variable.path])
        if found.best and self._writes:
            best = tf.train.Checkpoint(weights=named_weights(found.best))
            self.checkpoints.write(best, best_name(state.best[0][1]))
        self.checkpoints.kept = Kept()
        self.save_stop(state)
        note(found.note)
        return state

    def _check_steps(self, state: TrainingState) -> None:
        if self._training.steps < state.step:
            raise UserError(
                f"{self._run.path} has done {state.step} steps already. Received: --steps "
                f"{self._training.steps}; `tt export --checkpoint` exports an earlier one"
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

    def write_best(self, step: int, *, is_best: bool) -> None:
        """Writes the weights of one of the best validations; they count from the next save on.

        Args:
          step: Of the validation.
          is_best: Whether it is the best of all; then the model is exported, too.
        """
        weights = tf.train.Checkpoint(weights=named_weights(self._model))
        self.checkpoints.write(weights, best_name(step))
        if is_best:
            self._export(self._model, BEST_MODEL_FOLDER, steps=step)

    def export_final(self, step: int) -> None:
        """Exports the model at the end, or the mean of the checkpoints that were asked for.

        Args:
          step: At the end.
        """
        model, names = self._model, []
        if self._training.average != "none":
            model = Transformer(self._model.config)
            names = self.checkpoints.names(self._training.average)
            self.checkpoints.load_average(model, names)
        self._export(model, MODEL_FOLDER, steps=step, checkpoints=names)

    def last_good(self) -> str:
        """Returns the path of the last checkpoint, or "none"."""
        found = self.checkpoints.kept.to_go_on_from()
        return self.checkpoints.path(found[0]) if found else "none"

    def _write(self, state: TrainingState, name: str, *, last: list[str], stop: str | None) -> None:
        self._written = state.to_json()
        if self._writes:
            self._state.assign(self._written)
            self.checkpoints.write(self._checkpoint, name)
            best = [best_name(step) for _, step in state.best]
            self.checkpoints.keep(Kept(last=last, best=best, stop=stop))

    def _export(
        self, model: Transformer, name: str, *, steps: int, checkpoints: Sequence[str] = ()
    ) -> None:
        about = dataclasses.replace(self._about, steps=steps, checkpoints=[*checkpoints])
        with self._run.errors(), self._run.scratch() as scratch:
            folder = Path(scratch) / MODEL_FOLDER
            export_model(
                model,
                folder,
                vocabulary_folder=self._vocabulary_folder,
                vocabularies=self._vocabularies,
                about=about,
            )
            self._run.publish(folder, name)
