"""Training: the loop over batches, and how it goes on after a stop.

Whatever a run depends on is in its checkpoint: weights, optimizer, place in the data, the number
that dropout's masks come from, and what the next report shows. So a run that was killed goes on bit
by bit as if nothing had happened. Gradients that were accumulated for an update are not there: that
update is made again from its first batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from model.dataset.manifest import TRAIN, VALIDATION, DatasetManifest
from model.dataset.windows import Batch, Position, TokenBatches, check_shards
from model.errors import UserError
from model.formats.about import TrainingData, describe_run
from model.runs.reports import Clock, Meter, Report, Reporter, Validation
from model.runs.run_folder import MODEL_FOLDER, RunFolder
from model.text.scores import tokenizer_notes
from model.text.vocabulary import load_vocabularies
from model.training.config import describe_dataset, run_config
from model.training.failures import (
    describe_records,
    not_finite,
    out_of_memory_for_model,
    out_of_memory_in_step,
    out_of_memory_in_validation,
)
from model.training.remains import find_remains
from model.training.saving import RunSaver
from model.training.splits import split_batches
from model.training.state import TrainingState
from model.training.stops import StopRequest, Terminated
from model.training.validation import Validator
from model.transformer.config import TrainingConfig, TransformerConfig
from model.transformer.transformer import Transformer, dtype_policy
from model.updates.optimizer import Schedule
from model.updates.step import Numbers, StepResult, TrainingStep, Unread
from model.updates.strategies import is_chief, is_multi_worker, translating_devices, worker_place

_MOST_UNREAD = 256  # batches


@dataclasses.dataclass(frozen=True)
class _Trained:
    """A batch whose result has not been read from the device yet.

    Attributes:
      batch: What was trained on.
      result: See `TrainingStep.read`.
      step: Number of the update that it belongs to.
      update_start: Where the first batch of that update stands.
      is_update: Whether it was the last batch of it.
    """

    batch: Batch
    result: Unread
    step: int
    update_start: Position
    is_update: bool


_WITHOUT_TEXTS = (
    "the dataset was made by an older version of tt, and its validation records have no texts: "
    "BLEU and chrF are taken against what the target's tokens decode to"
)


class Trainer:
    """A run: a model, its optimizer, its place in the data, and the folder that keeps them.

    Args:
      dataset: A finished dataset folder on this machine.
      run: The run folder; one that is there already is resumed.
      model_config: The architecture.
      training: How to train.
      strategy: Where to train.
      stop: What tells the run to stop where it can go on later; asked after every batch.
      restart_from_model: Whether a run whose checkpoints are gone goes on from its model.
      dataset_name: What the user knows the dataset by, where that is not its path.

    Attributes:
      model: What is trained.
      is_chief: Whether this process writes the run folder.
      notes: What a user should know of how the run was resumed, a line each.
      state: Where the run stands.
      stop: As given.

    Raises:
      UserError: The dataset is unfinished or damaged, has no records or another vocabulary, a
        pair is longer than the token budget, the run folder holds another run or something else,
        or another process trains there.
    """

    def __init__(
        self,
        *,
        dataset: Path,
        run: str | Path,
        model_config: TransformerConfig,
        training: TrainingConfig,
        strategy: tf.distribute.Strategy,
        stop: StopRequest | None = None,
        restart_from_model: bool = False,
        dataset_name: str = "",
    ) -> None:
        self.manifest = DatasetManifest.load(dataset)
        self.dataset = dataset
        self.training = training
        self.strategy = strategy
        self.stop = stop or StopRequest()
        self.notes = tokenizer_notes(self.manifest.target_language)
        self._replicas: int = strategy.num_replicas_in_sync
        self.is_chief = is_chief(strategy)
        self._is_multi_worker = is_multi_worker(strategy)
        self._vocabularies = load_vocabularies(dataset)
        self.manifest.check(
            dataset,
            vocabularies=self._vocabularies,
            model_sizes=(
                model_config.source_vocabulary_size,
                model_config.target_vocabulary_size,
            ),
            batch_tokens=training.batch_tokens,
        )
        self._batches_an_update = training.batches_an_update(self._replicas)
        for split in self.manifest.splits.values():
            check_shards([dataset / name for name in split.shards], split.shard_sizes)
        self.run = RunFolder(run)
        config = run_config(
            model=model_config,
            training=training,
            data=TrainingData.of(self.manifest),
            replicas=self._replicas,
        )
        folder = dataset_name or str(dataset.absolute())
        described = config | describe_dataset(self.manifest, folder=folder)
        self._schedule = Schedule(
            peak=training.peak_rate(model_config.d_model),
            warmup_steps=training.warmup_steps,
            kind=training.schedule,
        )
        keras.utils.set_random_seed(training.seed)
        try:
            with strategy.scope(), dtype_policy(training.compute_type):
                self.model = Transformer(model_config)
            self._step = TrainingStep(
                self.model,
                strategy=strategy,
                # 30 bits leave room in an int32 for the places that `Dropout` adds.
                seed=int(np.random.default_rng(training.seed).integers(2**30)),
                label_smoothing=training.label_smoothing,
                clip_norm=training.clip_norm,
                accumulates=training.effective_batch_size is not None,
                scales_loss=training.compute_type == "mixed_float16",
                jit=training.jit,
            )
        except tf.errors.ResourceExhaustedError as error:
            raise out_of_memory_for_model(error) from error
        self._validator = Validator(
            self.model,
            step=self._step,
            batches=self._batches(VALIDATION),
            vocabularies=self._vocabularies,
            language=self.manifest.target_language,
            max_sentences=training.score_sentences,
            check_stop=self._check_stop,
            devices=translating_devices(strategy),
            worker=worker_place(strategy),
        )
        self._reporter: Reporter | None = None
        self._is_stopping = False
        self._unread: list[_Trained] = []
        self._clock = Clock()
        self.state = TrainingState(replicas=self._replicas)
        try:
            remains = find_remains(self.run)
            is_lost = remains is not None and remains.is_lost
            if remains and not restart_from_model:
                if is_lost:
                    raise remains.refusal()
                self.notes += remains.notes()
            if self.is_chief:
                self.notes += self.run.claim(described, vocabulary_folder=dataset, is_lost=is_lost)
            self._saver = RunSaver(
                self.run,
                model=self.model,
                step=self._step,
                training=training,
                vocabulary_folder=dataset,
                vocabularies=self._vocabularies,
                about=describe_run(config),
                writes=self.is_chief,
            )
            self._restore(from_model=restart_from_model)
            self._check_workers(config)
            self._validator.read()
            if training.score_every != 0 and not self._validator.has_texts:
                self.notes.append(_WITHOUT_TEXTS)
            if self.is_chief:
                self.run.write_config(described)
        except BaseException:
            self.close()
            raise

    @property
    def traces(self) -> int:
        """How often the compiled functions of the step were traced."""
        return self._step.traces

    def train(self, report: Report) -> str:
        """Trains from the last checkpoint to the last step, and exports the model.

        Args:
          report: Called with each report; in multi-worker training, on the chief alone.

        Returns:
          The exported model's folder.

        Raises:
          UserError: The loss is not finite, a shard is damaged, the run folder is full, or a
            device has no memory for a batch; the last checkpoint stays.
          Terminated: The run was told to stop, and is saved.
        """
        with contextlib.closing(self):
            with contextlib.ExitStack() as stack:
                if self.is_chief:
                    step, validated = self.state.step, self.state.validated
                    self._reporter = Reporter(
                        self.run, step=step, validated=validated, report=report
                    )
                    stack.callback(self._reporter.close)
                self._loop()
            self._end_if_told()
            if self.is_chief:
                self._saver.export_final(self.state.step)
            self._end_if_told()
        return self.run.inside(MODEL_FOLDER)

    def close(self) -> None:
        """Lets other processes train in the run folder; the end of `train` does it, too."""
        self.run.release()

    def _loop(self) -> None:
        self._check_stop()
        batches = self._batches(TRAIN).forever(self.state.position)
        self._settle()
        self._clock.lap()
        while not self._is_done():
            while not self._train_on(next(batches)):
                self._stop_if_told()
            step = self.state.step
            if step % self.training.log_every == 0 or step >= self.training.steps:
                self._report()
            self._settle()

    def _train_on(self, batch: Batch) -> bool:
        """Trains on a batch; returns whether it was the last of its update."""
        state = self.state
        tokens = float(np.count_nonzero(batch.target[:, 1:]))
        is_update = state.pending_batches + 1 >= self._batches_an_update
        update = state.step + 1
        numbers = Numbers(
            place=np.int32(state.batches),
            tokens=np.float32(state.pending_tokens + tokens),
            rate=np.float32(self._schedule.rate(update)),
            update=np.float32(update),
            stop=np.float32(self.stop.is_made()),
        )
        run = self._step.update if is_update else self._step.accumulate
        try:
            result = run(batch.source, batch.target, numbers)
        except tf.errors.ResourceExhaustedError as error:
            raise out_of_memory_in_step(
                error,
                batch=batch,
                step=update,
                training=self.training,
                replicas=self._replicas,
                last_good=self._saver.last_good(),
            ) from error
        if state.pending_batches == 0:
            state.update_start = batch.start
        self._unread.append(_Trained(batch, result, update, state.update_start, is_update))
        self._is_stopping = (
            self._step.read(result).stops > 0  # so all workers stop after the same batch
            if self._is_multi_worker
            else self.stop.is_made()
        )
        state.batches += 1
        state.position = batch.following
        state.pending_batches = 0 if is_update else state.pending_batches + 1
        state.pending_tokens = 0.0 if is_update else state.pending_tokens + tokens
        state.step += is_update
        if is_update and len(self._unread) >= _MOST_UNREAD:
            self._read_results()
        return is_update

    def _read_results(self) -> None:
        """Waits for the device, and adds up what its results say."""
        if not self._unread:
            return
        meter = self.state.meter
        for unread in self._unread:
            result, batch = self._step.read(unread.result), unread.batch
            if not math.isfinite(result.sums.loss + result.gradient_norm):
                raise self._not_finite(unread, result)
            meter.add(result.sums, source=batch.source, target=batch.target)
            meter.gradient_norm += result.gradient_norm
            meter.updates += unread.is_update
            meter.skipped += int(result.skipped)
        self._unread.clear()
        meter.seconds += self._clock.lap()

    def _report(self) -> None:
        self._read_results()
        state = self.state
        progress = state.meter.progress(
            step=state.step,
            steps=self.training.steps,
            epoch=state.position.epoch,
            learning_rate=self._schedule.rate(state.step),
        )
        state.meter = Meter()
        if self._reporter:
            self._reporter.tell(progress)

    def _settle(self) -> None:
        """Does what is due after an update: stop, validate, save."""
        state, training = self.state, self.training
        self._stop_if_told()
        if state.step == 0:
            return
        is_due = state.step % training.validate_every == 0 or state.step >= training.steps
        if is_due and state.validated < state.step:
            self._read_results()
            try:
                self._validate()
            except Terminated:
                self._save_stop()  # as it was before: the validation is made when the run goes on
                raise
            except tf.errors.ResourceExhaustedError as error:
                with contextlib.suppress(UserError):  # that may have no memory, either
                    self._save_stop()
                raise out_of_memory_in_validation(
                    error, step=state.step, last_good=self._saver.last_good()
                ) from error
            self._clock.lap()
        if state.step % training.save_every == 0 or self._is_done():
            self._save()
            self._clock.lap()

    def _is_done(self) -> bool:
        patience = self.training.patience
        is_stopped_early = patience is not None and self.state.since_best >= patience
        return self.state.step >= self.training.steps or is_stopped_early

    def _stop_if_told(self) -> None:
        if self._is_stopping:
            self._save_stop()
            raise Terminated

    def _end_if_told(self) -> None:
        if self.stop.is_made():  # all is saved, and no worker waits for another any more
            raise Terminated

    def _check_stop(self) -> None:
        told: float = self.stop.is_made()
        if self._is_multi_worker:  # so all of them stop at the same place
            told = self._step.sum_over_workers(np.array([told]))[0]
        if told:
            raise Terminated

    def _validate(self) -> None:
        state, training = self.state, self.training
        validation = self._validator.validate(state.step)
        if not math.isfinite(validation.loss):
            raise not_finite(
                f"validation's loss is {validation.loss}",
                step=state.step,
                steps=training.steps,
                last_good=self._saver.last_good(),
            )
        if training.scores_at(state.step):
            validation = self._with_scores(validation)
        place = state.add_validation(
            getattr(validation, training.best_metric),
            greater_is_better=training.best_metric in ("bleu", "chrf"),
            keep=training.keep_best,
        )
        if self.is_chief and place is not None:
            self._saver.write_best(state.step, is_best=place == 0)
        if self._reporter:
            self._reporter.tell(dataclasses.replace(validation, is_best=place == 0))
            for i, images in enumerate(self._validator.attention()):
                self._reporter.show(f"attention/sentence_{i}", images, step=state.step)

    def _with_scores(self, validation: Validation) -> Validation:
        """Adds BLEU and chrF, which all workers find together."""
        bleu, chrf = self._validator.score()
        # As they went through float32 in every version, the best of runs can be compared.
        values = np.array([bleu.value, chrf.value], np.float32)
        return dataclasses.replace(
            validation,
            bleu=float(values[0]),
            chrf=float(values[1]),
            bleu_signature=bleu.signature,
            chrf_signature=chrf.signature,
        )

    def _save(self) -> None:
        self._read_results()
        self._saver.save(self.state)

    def _save_stop(self) -> None:
        self._drop_pending()
        self._read_results()
        self._saver.save_stop(self.state)

    def _drop_pending(self) -> None:
        """Goes back to the first batch of an update that is being accumulated."""
        pending = self.state.pending_batches
        if pending:
            del self._unread[-pending:]
            self.state.go_back_to_update()

    def _restore(self, *, from_model: bool) -> None:
        state = self._saver.restore(
            self.notes.append, replicas=self._replicas, from_model=from_model
        )
        if state is None:
            return
        self.state = state
        if state.replicas != self._replicas:
            self.notes.append(
                f"resuming with {self._replicas} replica(s) what {state.replicas} trained: from "
                "here on the updates are others than those of an undisturbed run, and what is "
                "left of the last window of pairs waits for the next epoch"
            )
            if state.position.batch:
                # Batches are cut anew, so none of this window's may be read: some pairs were.
                before = dataclasses.replace(self._batches(TRAIN), replicas=state.replicas)
                state.position = before.next_window(state.position)
            state.update_start = state.position
            state.replicas = self._replicas

    def _check_workers(self, config: dict[str, Any]) -> None:
        described = json.dumps(config) + self.state.to_json()
        if self._is_multi_worker and not self._step.is_equal_on_all_workers(described):
            raise UserError(
                "the workers do not train the same run from the same checkpoint: give all of them "
                "the same command, and a --run and a --dataset that all of them see"
            )

    def _batches(self, split: str) -> TokenBatches:
        return split_batches(
            self.dataset,
            split,
            manifest=self.manifest,
            vocabularies=self._vocabularies,
            training=self.training,
            replicas=self._replicas,
        )

    def _not_finite(self, unread: _Trained, result: StepResult) -> UserError:
        """Names the update whose loss or gradient is no number, and the records it read."""
        # They are read again: most of its batches may be forgotten, or from before a stop.
        before = itertools.takewhile(
            lambda batch: batch.start != unread.batch.start,
            self._batches(TRAIN).forever(unread.update_start),
        )
        return not_finite(
            f"loss is {result.sums.loss} and the gradient's norm {result.gradient_norm}",
            step=unread.step,
            steps=self.training.steps,
            last_good=self._saver.last_good(),
            read=describe_records(
                [*before, unread.batch], step=unread.step, run=self.run, writes=self.is_chief
            ),
        )
