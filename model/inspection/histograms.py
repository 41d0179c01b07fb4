"""Values counted in adjacent bins."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

_MOST = 0.999  # share of lengths that decides the bins


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of values in bins.

    Attributes:
      unit: Unit of the values, such as "tokens".
      edges: Edges of the bins, one more than there are bins; a bin includes its lower edge.
      counts: Values in each bin.
    """

    unit: str
    edges: list[float]
    counts: list[int]

    @classmethod
    def of(
        cls,
        values: npt.NDArray[np.floating] | npt.NDArray[np.integer] | Sequence[float],
        *,
        edges: Sequence[float],
        unit: str,
    ) -> Histogram:
        """Count values; values beyond the edges count in the first or the last bin.

        >>> Histogram.of([1, 2, 7, 99], edges=[0, 5, 10], unit="words").counts
        [2, 2]
        """
        inside = np.clip(np.asarray(values, np.float64), edges[0], edges[-1])
        counts, _ = np.histogram(inside, bins=np.asarray(edges, np.float64))
        return cls(unit=unit, edges=[float(edge) for edge in edges], counts=counts.tolist())

    @classmethod
    def of_lengths(cls, counts: Mapping[int, int]) -> Histogram:
        """Return counts of texts by their tokens in bins of one token, without empty texts.

        >>> Histogram.of_lengths({0: 5, 2: 3, 4: 1})
        Histogram(unit='tokens', edges=[2.0, 3.0, 4.0, 5.0], counts=[3, 0, 1])
        """
        there = [length for length, count in counts.items() if length and count]
        every = range(min(there), max(there) + 1) if there else range(0)
        edges = [float(edge) for edge in range(every.start, every.stop + 1)]
        return cls(unit="tokens", edges=edges, counts=[counts.get(each, 0) for each in every])

    def merged(self, bins: int) -> Histogram:
        """Merge neighboring bins, so that there are at most `bins`.

        >>> Histogram(unit="", edges=[0, 1, 2, 3], counts=[4, 5, 6]).merged(2)
        Histogram(unit='', edges=[0, 2, 3], counts=[9, 6])
        """
        at_once = -(-len(self.counts) // bins) or 1
        starts = range(0, len(self.counts), at_once)
        return Histogram(
            unit=self.unit,
            edges=[*(self.edges[start] for start in starts), self.edges[-1]],
            counts=[sum(self.counts[start : start + at_once]) for start in starts],
        )

    @property
    def total(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Return the value below which a share of all values lies, interpolated within its bin.

        A histogram without values has no quantile: None.

        >>> Histogram(unit="tokens", edges=[0, 8, 16], counts=[4, 4]).quantile(0.75)
        12.0
        """
        if not self.total:
            return None
        up_to = [0, *itertools.accumulate(self.counts)]
        wanted = share * self.total
        place = max(bisect.bisect_left(up_to, wanted), 1)
        while not self.counts[place - 1]:  # for the share 0, the first bin with values
            place += 1
        low, high = self.edges[place - 1], self.edges[place]
        return low + (high - low) * (wanted - up_to[place - 1]) / self.counts[place - 1]

    def trimmed(self) -> Histogram:
        """Drop empty bins at both ends.

        >>> Histogram(unit="", edges=[0, 1, 2, 3], counts=[0, 5, 0]).trimmed().edges
        [1, 2]
        """
        there = np.flatnonzero(self.counts)
        if not there.size:
            return self
        first, last = there[0], there[-1] + 1
        return Histogram(
            unit=self.unit, edges=self.edges[first : last + 1], counts=self.counts[first:last]
        )


def with_same_bins(histograms: Sequence[Histogram], *, bins: int) -> list[Histogram]:
    """Give histograms of lengths the same bins.

    The last bin includes the longest thousandth of each: otherwise a single text ten times as long
    as all others would leave the others a few bins.

    Args:
      histograms: In bins of one token, as from `Histogram.of_lengths`.
      bins: The most bins.

    >>> short, long = (Histogram.of_lengths(each) for each in ({2: 7, 3: 1}, {3: 5, 6: 2}))
    >>> [each.edges for each in with_same_bins([short, long], bins=3)]
    [[2.0, 4.0, 6.0, 8.0], [2.0, 4.0, 6.0, 8.0]]
    >>> [each.counts for each in with_same_bins([short, long], bins=3)]
    [[8, 0, 0], [5, 0, 2]]
    """
    there = [each for each in histograms if each.total]
    if not there:
        return list(histograms)
    first = int(min(each.edges[0] for each in there))
    last = max(math.ceil(each.quantile(_MOST) or 0) for each in there)
    width = max(1, math.ceil((last - first) / bins))
    edges = [float(edge) for edge in range(first, max(last, first + 1) + width, width)][: bins + 1]
    found = []
    for each in histograms:
        lengths = np.clip(each.edges[:-1], first, edges[-1] - 1)
        counts, _ = np.histogram(lengths, bins=edges, weights=each.counts)
        found.append(Histogram(unit=each.unit, edges=edges, counts=counts.astype(int).tolist()))
    return found
