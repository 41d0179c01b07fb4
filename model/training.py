"""Training under a `tf.distribute` strategy: the step, checkpoints, resume, export."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from model.artifacts import TRAIN, VALIDATION, DatasetManifest, write_text_atomically
from model.config import TrainingConfig, TransformerConfig
from model.dataset import Batch, Position, TokenBatches
from model.errors import UserError
from model.layers import Dropout
from model.loss import TokenSums, batch_sums
from model.transformer import Transformer
from model.translator import export_model
from model.vocabulary import load_vocabularies

RUN_FILE = "config.json"
MODEL_FOLDER = "model"
CHECKPOINT_FOLDER = "checkpoints"
TENSORBOARD_FOLDER = "tensorboard"

STRATEGIES = ("one-device", "mirrored")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """What a progress line and a TensorBoard point show.

    Attributes:
      step: Updates done.
      steps: Updates in all.
      epoch: Passes over the data done.
      loss: Mean label-smoothed loss of a token since the last report, in nats.
      perplexity: exp of the mean cross-entropy without smoothing.
      accuracy: Share of target tokens whose logit is the greatest.
      learning_rate: Of the next update.
      tokens_per_second: Real target tokens.
      padding: Share of the padded target positions that are padding.
      seconds_left: Until the last update, at the speed since the last report.
      validation: Whether the numbers are of the validation split.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    perplexity: float
    accuracy: float
    learning_rate: float
    tokens_per_second: float
    padding: float
    seconds_left: float
    validation: bool = False


Report = Callable[[Progress], None]


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Equation 3 of the paper: up in a line, then down as the inverse square root of the step."""

    def __init__(self, peak: float, warmup_steps: int) -> None:
        super().__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the rate of the update after `step` updates."""
        ratio = (tf.cast(step, tf.float32) + 1.0) / self.warmup_steps
        return self.peak * tf.minimum(ratio, tf.math.rsqrt(ratio))


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Returns the strategy of a name: "one-device" or "mirrored" (all GPUs, or one CPU replica).

    Raises:
      UserError: There is no such strategy.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if name == "one-device":
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    if name == "mirrored":
        return tf.distribute.MirroredStrategy([d.name for d in gpus] if gpus else ["/cpu:0"])
    raise UserError(f"no strategy {name!r}: choose one of {', '.join(STRATEGIES)}")


class Trainer:
    """A run: a model, its optimizer, its place in the data, and the folder that keeps them.

    Args:
      dataset: A finished dataset folder.
      run: The run folder; one that is there already is resumed.
      model_config: The architecture.
      training: How to train.
      strategy: Where to train.

    Raises:
      UserError: The dataset is unfinished or has no records, a pair is longer than the token
        budget, or the run folder holds another run or something else.
    """

    def __init__(
        self,
        *,
        dataset: Path,
        run: Path,
        model_config: TransformerConfig,
        training: TrainingConfig,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self.manifest = DatasetManifest.load(dataset)
        self.dataset = dataset
        self.run = run
        self.training = training
        self.strategy = strategy
        self._replicas: int = strategy.num_replicas_in_sync
        self._check_data()
        config = {
            "model": dataclasses.asdict(model_config),
            "training": dataclasses.asdict(training),
            "dataset": self.manifest.fingerprint,
            "replicas": self._replicas,
        }
        _claim_run_folder(run, config)
        keras.utils.set_random_seed(training.seed)
        # 30 bits leave room in an int32 for the places that `Dropout` adds.
        self._dropout_seed = int(np.random.default_rng(training.seed).integers(2**30))
        peak = training.peak_learning_rate or (
            model_config.d_model**-0.5 * training.warmup_steps**-0.5
        )
        with strategy.scope():
            self.model = Transformer(model_config)
            # Adam as in section 5.3 of the paper.
            self.optimizer = keras.optimizers.Adam(
                WarmupSchedule(peak, training.warmup_steps), beta_1=0.9, beta_2=0.98, epsilon=1e-9
            )
            self.optimizer.build(self.model.trainable_variables)
        self._place = tf.Variable([0, 0, 0], dtype=tf.int64)
        self._checkpoints = tf.train.CheckpointManager(
            tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, place=self._place),
            str(run / CHECKPOINT_FOLDER),
            max_to_keep=training.keep_checkpoints,
        )
        self._checkpoints.restore_or_initialize()
        signature = [tf.TensorSpec([None, None], tf.int32)] * 2
        self._train_step = tf.function(self._train_on_batch, input_signature=signature)
        self._validation_step = tf.function(self._sums_of_batch, input_signature=signature)

    @property
    def step(self) -> int:
        """Updates of the weights done."""
        return int(self.optimizer.iterations.numpy())

    @property
    def place(self) -> Position:
        """Where in the data the next batch stands."""
        return Position(*self._place.numpy().tolist())

    def train(self, report: Report) -> Path:
        """Trains from the last checkpoint to the last step, and exports the model.

        Args:
          report: Called with each progress.

        Returns:
          The exported model's folder.
        """
        training = self.training
        writer = tf.summary.create_file_writer(str(self.run / TENSORBOARD_FOLDER))
        with writer.as_default():

            def tell(progress: Progress) -> None:
                _write_summary(progress)
                report(progress)

            meter = _Meter()
            for batch in self._training_batches():
                sums = self._train_step(batch.source, batch.target)
                meter.add(sums, batch)
                self._place.assign(batch.following)
                step = self.step
                is_last = step >= training.steps
                if is_last or step % training.log_every == 0:
                    tell(self._progress(meter))
                    meter = _Meter()
                with meter.pause():
                    if is_last or step % training.save_every == 0:
                        self._check_finite(float(sums.loss))
                        self._checkpoints.save(step)
                    if is_last or step % training.validate_every == 0:
                        tell(self.validate())
                        writer.flush()
        self.export()
        return self.run / MODEL_FOLDER

    def validate(self) -> Progress:
        """Returns loss, perplexity and accuracy on the whole validation split."""
        meter = _Meter()
        for batch in self._batches(VALIDATION).epoch(Position()):
            meter.add(self._validation_step(batch.source, batch.target), batch)
        return dataclasses.replace(self._progress(meter), validation=True)

    def export(self) -> None:
        """Writes the portable model folder."""
        export_model(
            self.model,
            self.run / MODEL_FOLDER,
            vocabulary_folder=self.dataset,
            vocabularies=load_vocabularies(self.dataset),
        )

    def gradients(self, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        """Returns the gradients that an update on a global batch would use, summed over replicas.

        Args:
          source: int32 [B, S], for all replicas together.
          target: int32 [B, T].
        """

        @tf.function
        def summed(source: tf.Tensor, target: tf.Tensor) -> list[tf.Tensor]:
            gradients = self.strategy.run(
                lambda source, target: self._replica_gradients(source, target)[0],
                args=(source, target),
            )
            return [self.strategy.reduce("SUM", gradient, axis=None) for gradient in gradients]

        return [gradient.numpy() for gradient in summed(source, target)]

    def _train_on_batch(self, source: tf.Tensor, target: tf.Tensor) -> TokenSums:
        def update(source: tf.Tensor, target: tf.Tensor) -> TokenSums:
            gradients, sums = self._replica_gradients(source, target)
            # Keras adds the gradients up over the replicas.
            self.optimizer.apply(gradients, self.model.trainable_variables)
            return sums

        return self._sum_over_replicas(self.strategy.run(update, args=(source, target)))

    def _replica_gradients(
        self, source: tf.Tensor, target: tf.Tensor
    ) -> tuple[list[tf.Tensor], TokenSums]:
        """Returns this replica's part of the gradient of the global batch's mean loss."""
        # Every replica gets the whole batch, takes its share of the rows, and divides by the
        # true number of tokens of all: uneven shares need no correction.
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        all_tokens = tf.cast(tf.math.count_nonzero(target[:, 1:]), tf.float32)
        step = tf.cast(self.optimizer.iterations.value, tf.int32)
        seed = tf.stack([self._dropout_seed, step * self._replicas + replica])
        variables = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            sums = batch_sums(
                self.model,
                source[replica :: self._replicas],
                target[replica :: self._replicas],
                smoothing=self.training.label_smoothing,
                dropout=Dropout(seed),
            )
            mean_loss = sums.loss / all_tokens
        gradients = tape.gradient(mean_loss, variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

    def _sums_of_batch(self, source: tf.Tensor, target: tf.Tensor) -> TokenSums:
        def sums(source: tf.Tensor, target: tf.Tensor) -> TokenSums:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return batch_sums(
                self.model,
                source[replica :: self._replicas],
                target[replica :: self._replicas],
                smoothing=self.training.label_smoothing,
            )

        return self._sum_over_replicas(self.strategy.run(sums, args=(source, target)))

    def _sum_over_replicas(self, sums: TokenSums) -> TokenSums:
        return TokenSums(*[self.strategy.reduce("SUM", value, axis=None) for value in sums])

    def _batches(self, split: str) -> TokenBatches:
        return TokenBatches(
            files=[self.dataset / name for name in self.manifest.splits[split].shards],
            max_tokens=self.training.batch_tokens,
            seed=self.training.seed,
            replicas=self._replicas,
            shuffle=split == TRAIN,
        )

    def _training_batches(self) -> Iterator[Batch]:
        """Yields batches from the saved place for as many updates as are left."""
        left = self.training.steps - self.step
        if left > 0:
            batches = self._batches(TRAIN).forever(self.place)
            for batch, _ in zip(batches, range(left), strict=False):
                yield batch

    def _progress(self, meter: _Meter) -> Progress:
        sums, seconds, positions, updates = meter.read()
        self._check_finite(sums.loss)
        return Progress(
            step=self.step,
            steps=self.training.steps,
            epoch=self.place.epoch,
            loss=sums.loss / sums.tokens,
            perplexity=math.exp(min(sums.cross_entropy / sums.tokens, 100.0)),
            accuracy=sums.correct / sums.tokens,
            learning_rate=float(self.optimizer.learning_rate),
            tokens_per_second=sums.tokens / seconds,
            padding=1 - sums.tokens / positions,
            seconds_left=(self.training.steps - self.step) * seconds / updates,
        )

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            kept = self._checkpoints.latest_checkpoint or "none"
            raise UserError(
                f"the loss is {loss} at step {self.step}, so training stopped and nothing of it "
                f"was saved (last good checkpoint: {kept}): lower --peak-learning-rate or raise "
                "--warmup-steps, in a new --run"
            )

    def _check_data(self) -> None:
        for name in (TRAIN, VALIDATION):
            split = self.manifest.splits[name]
            if split.records == 0:
                raise UserError(f"{self.dataset} has no {name} records: preprocess more pairs")
            budget = self.training.batch_tokens
            if split.longest > budget:
                raise UserError(
                    f"the longest pair of {self.dataset} has {split.longest} tokens, a batch "
                    f"{budget}: raise --batch-tokens, or preprocess with a lower --max-tokens"
                )


class _Meter:
    """Adds up the sums of batches; nothing is read from the device before the report."""

    def __init__(self) -> None:
        self._sums: list[TokenSums] = []
        self._positions = 0
        self._start = time.monotonic()
        self._paused = 0.0

    def add(self, sums: TokenSums, batch: Batch) -> None:
        self._sums.append(sums)
        self._positions += batch.target.shape[0] * (batch.target.shape[1] - 1)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves out the time of a checkpoint or a validation."""
        start = time.monotonic()
        yield
        self._paused += time.monotonic() - start

    def read(self) -> tuple[TokenSums, float, int, int]:
        """Returns the sums, the seconds and padded target positions, and the number of batches."""
        totals = np.sum([[float(value) for value in sums] for sums in self._sums], axis=0)
        seconds = time.monotonic() - self._start - self._paused
        return TokenSums(*totals.tolist()), seconds, self._positions, len(self._sums)


def _write_summary(progress: Progress) -> None:
    group = "validation" if progress.validation else "train"
    values = {"loss": progress.loss, "perplexity": progress.perplexity}
    values["accuracy"] = progress.accuracy
    if not progress.validation:
        values |= {
            "learning_rate": progress.learning_rate,
            "target_tokens_per_second": progress.tokens_per_second,
            "padding": progress.padding,
        }
    for name, value in values.items():
        tf.summary.scalar(f"{group}/{name}", value, step=progress.step)


def _claim_run_folder(run: Path, config: dict[str, Any]) -> None:
    """Writes the run's config, or checks that what was trained in the folder was this very run."""
    path = run / RUN_FILE
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file: name a folder for the run with --run")
    if path.is_file():
        try:
            found = json.loads(path.read_text("utf-8"))
            difference = _difference(_lasting(found), _lasting(config))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path} cannot be read: {error!r}") from error
        has_trained = tf.train.latest_checkpoint(str(run / CHECKPOINT_FOLDER)) is not None
        if difference and has_trained:
            raise UserError(
                f"{run} holds another run: {difference}. Give the same options to resume it, "
                "or another --run"
            )
    elif run.is_dir() and any(run.iterdir()):
        raise UserError(f"{run} holds something else than a run: choose another folder with --run")
    try:
        run.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, json.dumps(config, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"the run folder {run} cannot be written: {error}") from error


def _lasting(config: dict[str, Any]) -> dict[str, Any]:
    """Returns what the weights depend on, flat; the rest may change when a run is resumed."""
    may_change = ("steps", "validate_every", "save_every", "keep_checkpoints", "log_every")
    training = {k: v for k, v in config["training"].items() if k not in may_change}
    other = {k: v for k, v in config.items() if k not in ("model", "training")}
    return {**other, **config["model"], **training}


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Names the values that differ, or returns ""."""
    return ", ".join(
        f"{key} is {found.get(key)} there and {wanted.get(key)} here"
        for key in {**found, **wanted}
        if found.get(key) != wanted.get(key)
    )
