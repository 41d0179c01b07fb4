"""What is seen of a run: reports to the caller, `train.jsonl`, and TensorBoard."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from model.runs.run_folder import LOG_FILE, TENSORBOARD_FOLDER, RunFolder, RunLog
from model.updates.loss import TokenSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The updates since the last report.

    Attributes:
      step: Updates done.
      steps: Updates in all.
      epoch: Passes over the data done.
      loss: What is minimised: mean cross-entropy of a target token with label smoothing, in nats.
      nll: Mean negative log-likelihood of a target token in nats, without smoothing.
      perplexity: exp of `nll`.
      accuracy: Share of target tokens whose logit is the greatest.
      learning_rate: Of the last update.
      gradient_norm: Mean global norm of the updates' gradients, before clipping.
      source_tokens_per_second: Real source tokens.
      target_tokens_per_second: Real target tokens.
      padding: Share of the positions of both sides that are padding.
      seconds_left: Until the last update, at the speed since the last report.
      skipped_updates: That were left out, as float16 could not hold their gradients; None where
        none was.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    learning_rate: float
    gradient_norm: float
    source_tokens_per_second: float
    target_tokens_per_second: float
    padding: float
    seconds_left: float
    skipped_updates: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation:
    """The validation split under the weights of a step.

    Attributes:
      step: Updates done.
      loss: As in `Progress`.
      nll: As in `Progress`.
      perplexity: As in `Progress`.
      accuracy: As in `Progress`.
      bleu: Of greedy translations, 0 to 100; None where nothing was translated.
      chrf: The same.
      bleu_signature: sacreBLEU's, or "".
      chrf_signature: The same.
      is_best: Whether it is better than every one before, by the run's metric.
    """

    step: int
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    bleu: float | None = None
    chrf: float | None = None
    bleu_signature: str = ""
    chrf_signature: str = ""
    is_best: bool = False


Report = Callable[[Progress | Validation], None]


@dataclasses.dataclass
class Meter:
    """Adds up what a report shows. It is saved with a checkpoint, so a report misses nothing.

    Attributes:
      loss: Label-smoothed, in nats.
      cross_entropy: Without smoothing: `nll` times the tokens.
      correct: Target tokens whose logit is the greatest.
      target_tokens: Real ones.
      source_tokens: Real ones.
      positions: Of both sides, padding included.
      gradient_norm: Sum over the updates.
      updates: How many.
      seconds: Spent on them.
      skipped: Of the updates, those that were left out.
    """

    loss: float = 0.0
    cross_entropy: float = 0.0
    correct: float = 0.0
    target_tokens: float = 0.0
    source_tokens: int = 0
    positions: int = 0
    gradient_norm: float = 0.0
    updates: int = 0
    seconds: float = 0.0
    skipped: int = 0

    def add(self, sums: TokenSums, *, source: np.ndarray, target: np.ndarray) -> None:
        """Adds a batch: what the model made of it, and its ids [B, S] and [B, T]."""
        self.loss += sums.loss
        self.cross_entropy += sums.cross_entropy
        self.correct += sums.correct
        self.target_tokens += sums.tokens
        self.source_tokens += int(np.count_nonzero(source))
        self.positions += source.size + target[:, 1:].size

    def progress(self, *, step: int, steps: int, epoch: int, learning_rate: float) -> Progress:
        """Returns the report on what was added up."""
        tokens, seconds = self.target_tokens, max(self.seconds, 1e-9)
        return Progress(
            step=step,
            steps=steps,
            epoch=epoch,
            loss=self.loss / tokens,
            nll=self.cross_entropy / tokens,
            perplexity=perplexity(self.cross_entropy / tokens),
            accuracy=self.correct / tokens,
            learning_rate=learning_rate,
            gradient_norm=self.gradient_norm / max(1, self.updates - self.skipped),
            source_tokens_per_second=self.source_tokens / seconds,
            target_tokens_per_second=tokens / seconds,
            padding=1 - (self.source_tokens + tokens) / self.positions,
            seconds_left=(steps - step) * seconds / self.updates,
            skipped_updates=self.skipped or None,
        )


def perplexity(nll: float) -> float:
    """Returns exp of a negative log-likelihood in nats; e^100 stands for all that is greater."""
    return math.exp(min(nll, 100.0))


class Clock:
    """Seconds of training alone, as they pass."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def lap(self) -> float:
        """Returns the seconds since the last lap, or since it was made."""
        now = time.monotonic()
        seconds, self._start = now - self._start, now
        return seconds


class Reporter:
    """Writes reports into a run folder and passes them on.

    Args:
      run: The run folder.
      step: Updates done; what was written of later ones is dropped.
      validated: Step of the last validation; later ones are dropped.
      report: The caller's.
    """

    def __init__(self, run: RunFolder, *, step: int, validated: int, report: Report) -> None:
        self._report = report
        with run.errors():
            self._log = RunLog(run.inside(LOG_FILE))
            self._log.keep_until(step=step, validated=validated)
            folder = run.inside(TENSORBOARD_FOLDER)
            drop_later_events(folder, step=step, validated=validated)
            self._run = run
            self._writer = tf.summary.create_file_writer(folder)

    def tell(self, what: Progress | Validation) -> None:
        """Passes a report on, to the log, to TensorBoard and to the caller."""
        kind = "validation" if isinstance(what, Validation) else "train"
        values = {k: v for k, v in dataclasses.asdict(what).items() if v not in (None, "")}
        with self._run.errors():
            self._log.write(kind=kind, **values)
            with self._writer.as_default(what.step):
                for name, value in values.items():
                    if isinstance(value, float):
                        tf.summary.scalar(f"{kind}/{name}", value)
            self._writer.flush()
        self._report(what)

    def show(self, name: str, images: list[np.ndarray], *, step: int) -> None:
        """Writes pictures, uint8 [height, width, 3] each, to TensorBoard."""
        with self._run.errors():
            with self._writer.as_default(step):
                for i, image in enumerate(images):
                    tf.summary.image(f"{name}/layer_{i}", image[None])
            self._writer.flush()

    def close(self) -> None:
        """Ends the files."""
        self._writer.close()


def drop_later_events(folder: str, *, step: int, validated: int) -> None:
    """Rewrites TensorBoard's files without what a killed run wrote after its last checkpoint."""
    if not tf.io.gfile.exists(folder):
        return
    for name in tf.io.gfile.listdir(folder):
        path = f"{folder}/{name}"
        if not name.startswith("events.out.tfevents"):
            continue  # a profile, for example
        if name.endswith(".tmp"):
            tf.io.gfile.remove(path)
            continue
        events = list(_read_events(path))
        kept = [
            event for event in events if event.step <= (step if _is_train(event) else validated)
        ]
        if len(kept) < len(events):
            with tf.io.TFRecordWriter(f"{path}.tmp") as writer:
                for event in kept:
                    writer.write(event.SerializeToString())
            tf.io.gfile.rename(f"{path}.tmp", path, overwrite=True)


def _read_events(path: str) -> Iterator[Any]:
    records = tf.data.TFRecordDataset(path).as_numpy_iterator()
    try:
        for record in records:
            yield tf.compat.v1.Event.FromString(record)
    except tf.errors.DataLossError:
        return  # the last one was being written when the run was killed


def _is_train(event: Any) -> bool:
    return all(value.tag.startswith("train/") for value in event.summary.value)
