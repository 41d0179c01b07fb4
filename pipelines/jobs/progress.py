"""How far a job is, as one line."""

from __future__ import annotations

import dataclasses

from pipelines.runners.formatting import format_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
      phase: The current step, such as "encoding".
      done: Number of finished items of the phase.
      total: Number of items of the phase; 0 if it is unknown.
      noun: Name of the items, in the plural.
      earlier: Number of items that were finished before this run watched the phase.
      seconds: Seconds for which this run has watched the phase.
      details: More facts for the user.
    """

    phase: str
    done: int = 0
    total: int = 0
    noun: str = ""
    earlier: int = 0
    seconds: float = 0.0
    details: tuple[str, ...] = ()

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
        return ", ".join([*parts, *self.details])


class PhaseTimes:
    """Adds the duration of its phase and the earlier items to a progress."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, int]] = {}  # time and progress of the first look

    def add(self, progress: Progress, *, now: float) -> Progress:
        """Return the progress with `earlier` and `seconds`.

        Args:
          progress: The progress that the folder shows.
          now: The time of the look, in seconds from any start.
        """
        began, earlier = self._first.setdefault(progress.phase, (now, progress.done))
        return dataclasses.replace(progress, earlier=earlier, seconds=now - began)
