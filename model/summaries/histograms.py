"""Values counted in bins that stand side by side."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of values in bins.

    Attributes:
      unit: What the values are, such as "tokens".
      edges: Edges of the bins, one more than there are bins; a bin holds its lower edge.
      counts: Values in each bin.
    """

    unit: str
    edges: list[float]
    counts: list[int]

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"{len(self.counts)} bins have {len(self.edges)} edges")

    @classmethod
    def of(
        cls,
        values: npt.NDArray[np.floating] | npt.NDArray[np.integer] | Sequence[float],
        *,
        edges: Sequence[float],
        unit: str,
    ) -> Histogram:
        """Counts values; what lies beyond the edges counts in the first or the last bin.

        >>> Histogram.of([1, 2, 7, 99], edges=[0, 5, 10], unit="words").counts
        [2, 2]
        """
        inside = np.clip(np.asarray(values, np.float64), edges[0], edges[-1])
        counts, _ = np.histogram(inside, bins=np.asarray(edges, np.float64))
        return cls(unit=unit, edges=[float(edge) for edge in edges], counts=counts.tolist())

    @property
    def total(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Returns the value below which a share of all lies, in a line through its bin.

        None of a histogram without values.

        >>> Histogram(unit="tokens", edges=[0, 8, 16], counts=[4, 4]).quantile(0.75)
        12.0
        """
        if not self.total:
            return None
        up_to = [0, *itertools.accumulate(self.counts)]
        wanted = share * self.total
        place = min(max(bisect.bisect_left(up_to, wanted), 1), len(self.counts))
        while not self.counts[place - 1]:  # of the value 0, that of the first that is there
            place += 1
        low, high = self.edges[place - 1], self.edges[place]
        return low + (high - low) * (wanted - up_to[place - 1]) / self.counts[place - 1]

    def trimmed(self) -> Histogram:
        """Returns it without empty bins at its ends.

        >>> Histogram(unit="", edges=[0, 1, 2, 3], counts=[0, 5, 0]).trimmed().edges
        [1, 2]
        """
        there = [place for place, count in enumerate(self.counts) if count]
        if not there:
            return self
        first, last = there[0], there[-1] + 1
        return Histogram(
            unit=self.unit, edges=self.edges[first : last + 1], counts=self.counts[first:last]
        )
