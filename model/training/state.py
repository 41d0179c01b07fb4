"""The state of a run beside its weights, and what its reports add up."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np

from tt.model.dataset.batches import Batch, Position
from tt.model.training.reports import Progress
from tt.model.training.step import StepResult


def perplexity(nll: float) -> float:
    """Returns exp of a negative log-likelihood in nats; e^100 stands for all that is greater."""
    return math.exp(min(nll, 100.0))


_BEGINNING = Position()


@dataclasses.dataclass
class TrainingState:
    """Where a run stands, saved with the weights."""

    step: int = 0  # updates done
    batches: int = 0  # batches done, in all epochs
    pending_batches: int = 0  # those of them that are accumulated for the next update
    pending_tokens: float = 0.0  # their real target tokens
    position: Position = _BEGINNING  # of the next batch
    update_start: Position = _BEGINNING  # of the first batch of the last or the pending update
    replicas: int = 1  # that the last batches were cut for
    validated: int = 0  # step of the last validation
    # (value, step) of the best validations by the run's metric, the best first.
    best: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    since_best: int = 0  # validations since the best one
    # Sums since the last report, saved so that a report misses nothing; see `add_result`.
    meter: dict[str, float] = dataclasses.field(default_factory=dict)
    # Of the last validation that translated, see `Validation`; {} of runs of an older `tt`.
    token_scores: dict[str, float] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Returns all of it; numbers come back bit by bit."""
        return json.dumps(dataclasses.asdict(self))

    def add_batch(self, batch: Batch, *, tokens: float, is_update: bool) -> None:
        """Notes a batch of so many real target tokens, and whether it was its update's last."""
        if self.pending_batches == 0:
            self.update_start = batch.start
        self.batches += 1
        self.position = batch.following
        self.pending_batches = 0 if is_update else self.pending_batches + 1
        self.pending_tokens = 0.0 if is_update else self.pending_tokens + tokens
        self.step += is_update

    def add_result(self, result: StepResult, *, batch: Batch, is_update: bool) -> None:
        """Add the result of a batch to the next report, and whether it was its update's last."""
        sums = result.sums._asdict()
        added = {
            "target_tokens": sums.pop("tokens"),
            **sums,
            "source_tokens": int(np.count_nonzero(batch.source)),
            "positions": batch.source.size + batch.target[:, 1:].size,  # padding included
            "gradient_norm": result.gradient_norm,
            "updates": int(is_update),
        }
        self.meter |= {name: self.meter.get(name, 0) + value for name, value in added.items()}

    def take_progress(self, *, steps: int, learning_rate: float) -> Progress:
        """Return the report since the last one, of a run of `steps` updates."""
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
        """Forgets the batches that are accumulated: the next one is the first of them."""
        self.batches -= self.pending_batches
        self.position = self.update_start
        self.pending_batches, self.pending_tokens = 0, 0.0

    def add_validation(
        self, value: float | None, *, greater_is_better: bool, keep: int
    ) -> int | None:
        """Notes a validation at this step: the run's metric, None where that was not measured.

        Returns its place among the `keep` best ones, 0 being the best; None if it is none of them.
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
        """Reads what `to_json` wrote."""
        values = json.loads(text)
        for name in ("position", "update_start"):
            values[name] = Position(*values[name])
        values["best"] = [(value, step) for value, step in values["best"]]
        return cls(**values)
