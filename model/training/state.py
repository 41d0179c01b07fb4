"""Where a run stands, beside its weights."""

from __future__ import annotations

import dataclasses
import json

from model.dataset.windows import Position
from model.runs.reports import Meter


@dataclasses.dataclass
class TrainingState:
    """Where a run stands, saved with the weights.

    Attributes:
      step: Updates done.
      batches: Batches done, in all epochs.
      pending_batches: Of them, those that are accumulated for the next update.
      pending_tokens: Real target tokens of the pending batches.
      position: Of the next batch.
      update_start: Of the first batch of the last update, or of the one that is accumulated.
      replicas: That the last batches were cut for.
      validated: Step of the last validation.
      best: (value, step) of the best validations by the run's metric, the best first.
      since_best: Validations since the best one.
      meter: What the next report shows.
    """

    step: int = 0
    batches: int = 0
    pending_batches: int = 0
    pending_tokens: float = 0.0
    position: Position = dataclasses.field(default_factory=Position)
    update_start: Position = dataclasses.field(default_factory=Position)
    replicas: int = 1
    validated: int = 0
    best: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    since_best: int = 0
    meter: Meter = dataclasses.field(default_factory=Meter)

    def to_json(self) -> str:
        """Returns all of it; numbers come back bit by bit."""
        return json.dumps(dataclasses.asdict(self))

    def go_back_to_update(self) -> None:
        """Forgets the batches that are accumulated: the next one is the first of them."""
        self.batches -= self.pending_batches
        self.position = self.update_start
        self.pending_batches, self.pending_tokens = 0, 0.0

    def add_validation(
        self, value: float | None, *, greater_is_better: bool, keep: int
    ) -> int | None:
        """Notes a validation at this step.

        Args:
          value: By the run's metric; None where that was not measured.
          greater_is_better: Of two values.
          keep: How many of the best validations count.

        Returns:
          Its place among the best ones, 0 being the best; None if it is none of them.
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
        values.setdefault("update_start", values["position"])  # not in the first checkpoints
        for name in ("position", "update_start"):
            position = Position(*values[name])
            if len(values[name]) < len(position):  # in the first checkpoints, windows had 8192
                position = position._replace(before=8192 * position.window)
            values[name] = position
        values["best"] = [(value, step) for value, step in values["best"]]
        values["meter"] = Meter(**values["meter"])
        return cls(**values)
