"""Describe the progress of a job in one line, and add up counts of its units."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from tt.pipelines.runners.formatting import format_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a job.

    Attributes:
      phase: The name of the current phase, such as "encoding".
      done: The number of finished items of the phase.
      total: The number of all items of the phase; 0 if it is unknown.
      noun: The plural noun for the items, such as "rows".
      earlier: The number of items that were finished when this run first measured the phase.
      seconds: The time since this run first measured the phase.
    """

    phase: str
    done: int = 0
    total: int = 0
    noun: str = ""
    earlier: int = 0
    seconds: float = 0.0

    def describe(self) -> str:
        """Return the status line.

        >>> Progress(phase="reading", done=300, total=500, noun="pairs", seconds=2).describe()
        'reading: 300 of 500 pairs, 150 pairs/s, 0:01 left'
        >>> Progress(phase="training", seconds=3).describe()
        'training: 0:03'
        """
        if not self.total:
            return f"{self.phase}: {format_seconds(self.seconds)}"
        earlier = f" ({self.earlier:,} earlier)" if self.earlier else ""
        parts = [f"{self.phase}: {self.done:,} of {self.total:,} {self.noun}{earlier}"]
        here = self.done - self.earlier
        if here > 0 and self.seconds > 0:
            rate = here / self.seconds
            parts.append(f"{rate:,.3g} {self.noun}/s" if rate < 1 else f"{rate:,.0f} {self.noun}/s")
            parts.append(f"{format_seconds((self.total - self.done) / rate)} left")
        return ", ".join(parts)


@dataclasses.dataclass(kw_only=True)
class ProgressWatch(abc.ABC):
    """Measures the progress of a run, and the time since each phase began."""

    # For each phase, the time and the number of finished items at the first measurement.
    _first: dict[str, tuple[float, int]] = dataclasses.field(default_factory=dict, init=False)

    @abc.abstractmethod
    def find_phase(self) -> Progress:
        """Return the progress according to the output folder, without times.

        Raises:
          OSError, ValueError: A file was deleted, or its content is invalid.
        """

    def measure(self, now: float | None = None) -> Progress:
        """Return the current progress.

        Args:
          now: The current time in seconds, on any monotonic clock; None for the machine's clock.
        """
        now = time.monotonic() if now is None else now
        progress = self.find_phase()
        began, earlier = self._first.setdefault(progress.phase, (now, progress.done))
        return dataclasses.replace(progress, earlier=earlier, seconds=now - began)


def add_counts(total: dict[Any, Any], found: Mapping[Any, Any]) -> None:
    """Add counts, which may be nested, to totals of the same structure.

    >>> total = {"rows": 1, "by_status": {"ok": 1}}
    >>> add_counts(total, {"rows": 2, "by_status": {"failed": 2}})
    >>> total
    {'rows': 3, 'by_status': {'ok': 1, 'failed': 2}}
    """
    for name, value in found.items():
        if isinstance(value, Mapping):
            add_counts(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value
