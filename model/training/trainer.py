"""The training loop, and how it resumes after a stop.

A checkpoint contains everything that the rest of a run depends on: weights, optimizer, position in
the data, the number of the batch (which seeds dropout), and the sums of the next report. A resumed
run therefore computes the same weights, bit by bit, as an uninterrupted run. A checkpoint does not
contain accumulated gradients, so a resumed run repeats the pending update from its first batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import platform
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tt.model.dataset.batches import Batch
from tt.model.dataset.manifest import TRAIN, VALIDATION
from tt.model.engines.machine import describe_machine
from tt.model.errors import UserError
from tt.model.formats.model_card import versions_of
from tt.model.training.checkpoints import RunSaver
from tt.model.training.initial_model import InitialModel
from tt.model.training.options import TrainingConfig
from tt.model.training.reports import Report, Reporter
from tt.model.training.run_folder import MODEL_FOLDER, RunFolder
from tt.model.training.schedule import learning_rate
from tt.model.training.splits import TrainingDataset
from tt.model.training.step import TrainingStep, Unread, UpdateScalars
from tt.model.training.stops import (
    StopRequest,
    Terminated,
    batches_per_look,
    not_finite,
    out_of_memory,
)
from tt.model.training.strategies import Workers
from tt.model.training.validation import Validator
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.transformer import Transformer, dtype_policy

# Batches that may be queued on a GPU. A signal ends the training after them.
_MOST_UNREAD = 10
_PROGRAMS = ("tt-translate", "tensorflow", "keras", "numpy", "sentencepiece")

_DRAWINGS = 10  # the number of times that attention maps are drawn, evenly over a training


class Trainer:
    """A run in progress: the model, the optimizer, the position in the data, and the run folder.

    `TrainJob.start` creates trainers.

    Args:
      data: The dataset and the options of the training.
      run: Path of the run folder.
      model_config: Architecture of the model.
      config: Configuration of the run, from `TrainJob.run_config`.
      strategy: The strategy that distributes the training.
      stop: A request object through which the caller can stop the training.
      initial: The model whose weights a new run starts from.

    Attributes:
      notes: Warnings for the user about resuming the run.

    Raises:
      UserError: The run folder contains another run, or another process trains there.
    """

    def __init__(
        self,
        *,
        data: TrainingDataset,
        run: str | Path,
        model_config: TransformerConfig,
        config: dict[str, Any],
        strategy: tf.distribute.Strategy,
        stop: StopRequest | None = None,
        initial: InitialModel | None = None,
    ) -> None:
        self.workers = Workers(strategy)
        self.data = dataclasses.replace(data, replicas=self.workers.replicas)
        self.training = training = data.training
        self.stop = stop or StopRequest()
        self.run = RunFolder(run)
        self._batches_an_update = training.batches_an_update(self.workers.replicas)
        self.model, self._step = _build(model_config, training, strategy)
        self._validator = Validator(
            self.model, step=self._step, data=self.data, workers=self.workers, stop=self.stop
        )
        self._reporter: Reporter | None = None
        self.scoring_seconds = 0.0  # for the user; no decision depends on the clock
        self._is_stopping = False
        self._batches_per_look = batches_per_look(strategy.extended.worker_devices)
        # Batches whose results are still on the device: the batch, its result, the number of its
        # update, and whether it completed that update.
        self._unread: list[tuple[Batch, Unread, int, bool]] = []
        self._lap_start = time.monotonic()
        try:
            self._saver = RunSaver(
                self.run,
                config,
                model=self.model,
                step=self._step,
                data=self.data,
                writes=self.workers.is_chief,
                initial=initial,
            )
            self.state = self._saver.restore()
            self.notes = self._saver.notes
            self._validator.check()
            self._saver.begin(self.state, self.workers)
        except BaseException:
            self.close()
            raise

    def train(self, report: Report, *, command: str = "") -> str:
        """Train from the last checkpoint to the last step, and export the model.

        Args:
          report: Called with each report; with several workers, only on the chief.
          command: The command line, for the log.

        Returns:
          The folder of the exported model.

        Raises:
          UserError: The loss is not finite, a shard is damaged, the disk is full, or a device runs
            out of memory. The last checkpoint stays.
          Terminated: The run stopped on request, and was saved.
        """
        with contextlib.closing(self):
            with contextlib.ExitStack() as stack:
                if self.workers.is_chief:
                    step, validated = self.state.step, self.state.validated
                    self._reporter = Reporter(
                        self.run, step=step, validated=validated, report=report
                    )
                    stack.callback(self._reporter.close)
                    if not self.is_done:
                        self._note_start(self._reporter, command)
                self._loop()
            self._end_if_told()
            if self.workers.is_chief:
                self._saver.export_final(self.state)
            self._end_if_told()
        return self.run.inside(MODEL_FOLDER)

    def close(self) -> None:
        """Release the run folder for other processes; `train` does this at its end."""
        self.run.release()

    def _note_start(self, reporter: Reporter, command: str) -> None:
        workers = self.workers
        machine = describe_machine(workers.strategy.extended.worker_devices)
        reporter.begin(
            command=command,
            versions={**versions_of(_PROGRAMS), "python": platform.python_version()},
            machine={**machine, "replicas": workers.replicas, "workers": workers.count},
        )

    def _loop(self) -> None:
        self.stop.check(self.workers)
        batches = self.data.batches(TRAIN).forever(self.state.position)
        self._settle()
        self._lap()
        while not self.is_done:
            while not self._train_on(next(batches)):
                self._save_and_stop_if_told()
            step = self.state.step
            if step % self.training.log_every == 0 or step >= self.training.steps:
                self._report()
            self._settle()

    def _train_on(self, batch: Batch) -> bool:
        """Train on a batch, and return whether it completed an update."""
        state = self.state
        tokens = float(np.count_nonzero(batch.target[:, 1:]))
        is_update = state.pending_batches + 1 >= self._batches_an_update
        update = state.step + 1
        scalars = UpdateScalars(
            place=np.int32(state.batches),
            tokens=np.float32(state.pending_tokens + tokens),
            rate=np.float32(self._rate(update)),
            update=np.float32(update),
            stop=np.float32(self.stop.is_made()),
        )
        run = self._step.update if is_update else self._step.accumulate
        try:
            result = run(batch.source, batch.target, scalars)
        except tf.errors.ResourceExhaustedError as error:
            (rows, source), target_length = batch.source.shape, batch.target.shape[1]
            raise out_of_memory(
                error,
                where=f"at step {update} of {self.training.steps}, in a batch of {rows} rows of "
                f"{source} source and {target_length} target tokens",
                last_good=self._saver.last_good(),
                fix=_advise_size(self._step, batch, scalars, data=self.data, workers=self.workers),
            ) from error
        state.add_batch(batch, tokens=tokens, is_update=is_update)
        self._unread.append((batch, result, update, is_update))
        if not self.workers.are_several:
            self._is_stopping = self.stop.is_made()
        elif state.batches % self._batches_per_look == 0:  # the same batches on all workers
            self._is_stopping = self._step.read(result).stops > 0
        if is_update and len(self._unread) >= _MOST_UNREAD:
            self._read_results()
        return is_update

    def _rate(self, update: int) -> float:
        return learning_rate(update, self.training, width=self.model.config.d_model)

    def _read_results(self) -> None:
        """Wait for the unread results, check them, and add them to the next report."""
        if not self._unread:
            return
        for batch, unread, update, is_update in self._unread:
            result = self._step.read(unread)
            if not math.isfinite(result.sums.loss + result.gradient_norm):
                raise not_finite(
                    f"loss is {result.sums.loss} and the gradient norm is {result.gradient_norm}",
                    step=update,
                    last_good=self._saver.last_good(),
                )
            self.state.add_result(result, batch=batch, is_update=is_update)
        self._unread.clear()
        self.state.meter["seconds"] = self.state.meter.get("seconds", 0.0) + self._lap()

    def _lap(self) -> float:
        """Return the seconds since the last call, and restart the measurement.

        After a validation or a save, the trainer calls this method and ignores the result.
        """
        start, self._lap_start = self._lap_start, time.monotonic()
        return self._lap_start - start

    def _report(self) -> None:
        self._read_results()
        rate = self._rate(self.state.step)
        progress = self.state.take_progress(steps=self.training.steps, learning_rate=rate)
        if self._reporter:
            self._reporter.tell(progress)

    def _settle(self) -> None:
        """Stop, validate or save after an update, if it is time for this."""
        state, training = self.state, self.training
        self._save_and_stop_if_told()
        if state.step == 0:
            return
        is_due = state.step % training.validate_every == 0 or state.step >= training.steps
        if is_due and state.validated < state.step:
            self._read_results()
            try:
                self._validate()
            except Terminated:
                self._save_stop()  # the resumed run repeats the validation
                raise
            except tf.errors.ResourceExhaustedError as error:
                with contextlib.suppress(UserError):  # saving may run out of memory, too
                    self._save_stop()
                where = f"in the validation at step {state.step}"
                last_good = self._saver.last_good()
                raise out_of_memory(error, where=where, last_good=last_good) from error
            self._lap()
        if state.step % training.save_every == 0 or self.is_done:
            self._read_results()
            self._saver.save(state)
            self._lap()

    @property
    def is_done(self) -> bool:
        """Whether the training is complete: all steps are done, or the run stopped early."""
        patience = self.training.patience
        is_early = patience is not None and self.state.since_best >= patience
        return self.state.step >= self.training.steps or is_early

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run has a checkpoint to resume from."""
        return bool(self._saver.checkpoints.kept.to_resume_from())

    def _save_and_stop_if_told(self) -> None:
        if self._is_stopping:
            self._save_stop()
            raise Terminated

    def _end_if_told(self) -> None:
        if self.stop.is_made():  # everything is saved, and no worker waits for another one
            raise Terminated

    def _validate(self) -> None:
        state, training = self.state, self.training
        validation = self._validator.validate(state.step)
        if not math.isfinite(validation.loss):
            what = f"validation loss is {validation.loss}"
            raise not_finite(what, step=state.step, last_good=self._saver.last_good())
        if training.scores_at(state.step):
            start = time.monotonic()
            validation = self._validator.with_scores(validation)
            self.scoring_seconds += time.monotonic() - start
            state.token_scores = validation.token_scores or {}
        place = state.add_validation(
            getattr(validation, training.best_metric),
            greater_is_better=training.best_metric in ("bleu", "chrf"),
            keep=training.keep_best,
        )
        if self.workers.is_chief and place is not None:
            self._saver.write_best(state, is_best=place == 0)
        if self._reporter:
            self._reporter.tell(dataclasses.replace(validation, is_best=place == 0))
            if _is_drawn(state.step, training=training):
                for i, images in enumerate(self._validator.attention()):
                    self._reporter.show(f"attention/sentence_{i}", images, step=state.step)

    def _save_stop(self) -> None:
        """Save the run without the batches that are accumulated for the next update."""
        if pending := self.state.pending_batches:
            del self._unread[-pending:]
            self.state.go_back_to_update()
        self._read_results()
        self._saver.save_stop(self.state)


def _is_drawn(step: int, *, training: TrainingConfig) -> bool:
    """Return whether to draw attention maps after a validation, which takes seconds."""
    before = max(0, step - training.validate_every)
    return step * _DRAWINGS // training.steps > before * _DRAWINGS // training.steps


def _advise_size(
    step: TrainingStep,
    batch: Batch,
    scalars: UpdateScalars,
    *,
    data: TrainingDataset,
    workers: Workers,
) -> str:
    """Return advice for batches that fit into memory, or "" if none is known.

    The function changes the weights; see `TrainingStep.find_fitting_tokens`, which several workers
    do not try out.
    """
    splits = data.manifest.splits
    longest = max(splits[name].longest for name in (TRAIN, VALIDATION))
    tokens = step.find_fitting_tokens(batch.source, batch.target, scalars, least=longest)
    if tokens is None:
        return ""
    training = data.training
    reason = "halves this batch" if workers.are_several else "fits"
    size = training.effective_batch_size or training.batch_tokens * data.replicas
    return (
        f"set `batch_tokens={tokens}`, which {reason}, and `effective_batch_size={size}`, which "
        "keeps the size of updates"
    )


def _build(
    config: TransformerConfig, training: TrainingConfig, strategy: tf.distribute.Strategy
) -> tuple[Transformer, TrainingStep]:
    keras.utils.set_random_seed(training.seed)
    try:
        with strategy.scope(), dtype_policy(training.compute_type):
            model = Transformer(config)
        step = TrainingStep(model, strategy=strategy, training=training)
    except tf.errors.ResourceExhaustedError as error:
        raise out_of_memory(error, where="while creating the model") from error
    return model, step
