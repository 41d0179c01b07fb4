"""Where a run stands, beside its weights."""

from __future__ import annotations

import dataclasses
import json

from model.dataset import Position
from model.reporting import Meter


@dataclasses.dataclass
class TrainingState:
    """Where a run stands, saved with the weights.

    Attributes:
      step: Updates done.
      batches: Batches done, in all epochs.
      pending_batches: Of them, those that are accumulated for the next update.
      pending_tokens: Real target tokens of the pending batches.
      position: Of the next batch.
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
    replicas: int = 1
    validated: int = 0
    best: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    since_best: int = 0
    meter: Meter = dataclasses.field(default_factory=Meter)

    def to_json(self) -> str:
        """Returns all of it; numbers come back bit by bit."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TrainingState:
        """Reads what `to_json` wrote."""
        values = json.loads(text)
        values["position"] = Position(*values["position"])
        values["best"] = [(value, step) for value, step in values["best"]]
        values["meter"] = Meter(**values["meter"])
        return cls(**values)
