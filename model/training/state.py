"""The training state that a checkpoint stores next to the weights, and the sums for reports."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np

from tt.model.dataset.batches import Batch, Position
from tt.model.training.reports import Progress
from tt.model.training.step import StepResult


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean negative log-likelihood in nats, at most e^100."""
    return math.exp(min(nll, 100.0))


_BEGINNING = Position()


@dataclasses.dataclass
class TrainingState:
    """The progress of a run, saved with the weights."""

    step: int = 0  # number of updates so far
    batches: int = 0  # number of batches so far, in all epochs
    pending_batches: int = 0  # number of batches that are accumulated for the next update
    pending_tokens: float = 0.0  # number of real target tokens in the pending batches
    position: Position = _BEGINNING  # position of the next batch
    update_start: Position = _BEGINNING  # first batch of the pending update, or of the last update
    replicas: int = 1  # number of replicas that share each of the last batches
    validated: int = 0  # step of the last validation
    # (value, step) of the best validations by the run's metric, the best first.
    best: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    since_best: int = 0  # number of validations since the best one
    # Sums since the last report, saved so that the next report is complete; see `add_result`.
    meter: dict[str, float] = dataclasses.field(default_factory=dict)
    # `Validation.token_scores` of the last validation with translations; empty if an older version
    # of `tt` wrote the state.
    token_scores: dict[str, float] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Return the state as JSON, which restores all numbers exactly."""
        return json.dumps(dataclasses.asdict(self))

    def add_batch(self, batch: Batch, *, tokens: float, is_update: bool) -> None:
        """Count a batch and advance the position.

        Args:
          batch: The batch.
          tokens: Number of its real target tokens.
          is_update: Whether this batch completed an update.
        """
        if self.pending_batches == 0:
            self.update_start = batch.start
        self.batches += 1
        self.position = batch.following
        self.pending_batches = 0 if is_update else self.pending_batches + 1
        self.pending_tokens = 0.0 if is_update else self.pending_tokens + tokens
        self.step += is_update

    def add_result(self, result: StepResult, *, batch: Batch, is_update: bool) -> None:
        """Add the result of a batch to the sums of the next report.

        Args:
          result: The result of the training step.
          batch: The batch.
          is_update: Whether this batch completed an update.
        """
        sums = result.sums._asdict()
        added = {
            "target_tokens": sums.pop("tokens"),
            **sums,
            "source_tokens": int(np.count_nonzero(batch.source)),
            "positions": batch.source.size + batch.target[:, 1:].size,  # including padding
            "gradient_norm": result.gradient_norm,
            "updates": int(is_update),
        }
        self.meter |= {name: self.meter.get(name, 0) + value for name, value in added.items()}

    def take_progress(self, *, steps: int, learning_rate: float) -> Progress:
        """Return a report on the updates since the last report, and start the next one.

        Args:
          steps: Number of updates in the whole run.
          learning_rate: Learning rate of the last update.
        """
        meter, self.meter = self.meter, {}
        tokens, seconds = meter["target_tokens"], max(meter["seconds"], 1e-9)
        return Progress(
            step=self.step,
            steps=steps,
            epoch=self.position.epoch,
            loss=meter["loss"] / tokens,
            nll=meter["cross_entropy"] / tokens,
            perplexity=perplexity(meter["cross_entropy"] / tokens),
            accuracy=meter["correct"] / tokens,
            learning_rate=learning_rate,
            gradient_norm=meter["gradient_norm"] / max(1, meter["updates"]),
            source_tokens_per_second=meter["source_tokens"] / seconds,
            target_tokens_per_second=tokens / seconds,
            padding=1 - (meter["source_tokens"] + tokens) / meter["positions"],
            seconds_left=(steps - self.step) * seconds / meter["updates"],
        )

    def go_back_to_update(self) -> None:
        """Discard the pending batches, so that their update starts again with its first batch."""
        self.batches -= self.pending_batches
        self.position = self.update_start
        self.pending_batches, self.pending_tokens = 0, 0.0

    def add_validation(
        self, value: float | None, *, greater_is_better: bool, keep: int
    ) -> int | None:
        """Record a validation at the current step.

        Args:
          value: Value of the run's metric, or None if this validation did not measure it.
          greater_is_better: Whether a greater value is better.
          keep: Number of best validations to remember.

        Returns:
          The rank of the validation (0 is the best), or None if it is not among the `keep` best.
        """
        self.validated = self.step
        if value is None:
            return None
        entry, sign = (value, self.step), -1 if greater_is_better else 1
        ranked = sorted([*self.best, entry], key=lambda each: (sign * each[0], each[1]))
        place = ranked.index(entry)
        self.best = ranked[:keep]
        self.since_best = 0 if place == 0 else self.since_best + 1
        return place if place < keep else None

    @classmethod
    def from_json(cls, text: str) -> TrainingState:
        """Return the state that `to_json` wrote."""
        values = json.loads(text)
        for name in ("position", "update_start"):
            values[name] = Position(*values[name])
        values["best"] = [(value, step) for value, step in values["best"]]
        return cls(**values)
