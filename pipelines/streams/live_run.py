"""A run under way, as this process sees it: what was counted, and whether it is to end.

The steps of a pipeline are pickled, so that they cannot hold what the command watches: they find it
by the name of the run. In another process they find one of their own, which nobody watches.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipelines.texts.translating import FAILED

RATE_SECONDS = 10.0  # over which the rate and the latencies are taken
TROUBLE_SECONDS = 15.0  # after which one is over that is not told again: clients try every 10
_MOST_LATENCIES = 20_000

_runs: dict[str, LiveRun] = {}
_lock = threading.RLock()  # a signal's handler may find a run while its thread does


class Metrics(NamedTuple):
    """What is known of a run at a moment."""

    messages: int  # that were written
    failed: int  # of them, those of which no translation could be made
    by_status: Mapping[str, int]
    rate: float  # messages a second in the last RATE_SECONDS
    p50: float | None  # seconds from a message's own time until it was written, of these messages
    p95: float | None
    lag: Mapping[int, int]  # messages by partition that are not committed
    trouble: str  # what keeps the run from its work; "" if nothing does
    left_out: int = 0  # files of a watched folder that cannot be read


class LiveRun:
    """The counts of a run, and its end; all methods may be called from any thread."""

    def __init__(self) -> None:
        self.is_draining = False  # a plain flag, which a signal's handler can set
        self._lock = threading.Lock()
        self._by_status: collections.Counter[str] = collections.Counter()
        self._latencies: collections.deque[tuple[float, float]] = collections.deque(
            maxlen=_MOST_LATENCIES
        )
        self._written: collections.deque[tuple[float, int]] = collections.deque()
        self._ends: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._left_out = 0
        self._trouble, self._troubled = "", 0.0
        self._start = time.monotonic()

    def note_written(self, statuses: Iterable[str], latencies: Iterable[float | None]) -> None:
        """Takes note of messages that the broker has.

        Args:
          statuses: What became of each.
          latencies: Seconds that each took, None where it has no time.
        """
        now = time.monotonic()
        with self._lock:
            before = self._by_status.total()
            self._by_status.update(statuses)
            self._written.append((now, self._by_status.total() - before))
            self._latencies += [(now, each) for each in latencies if each is not None]
            self._forget(now)

    def note_left_out(self) -> None:
        """Takes note of a file that cannot be read."""
        with self._lock:
            self._left_out += 1

    def note_ends(self, ends: Mapping[int, int]) -> None:
        """Takes note of the offsets, by partition, at which the input ends."""
        with self._lock:
            self._ends.update(ends)

    def note_done(self, offsets: Mapping[int, int]) -> None:
        """Takes note of the offsets, by partition, up to which all is committed."""
        with self._lock:
            self._done.update(offsets)

    def note_trouble(self, trouble: str) -> None:
        """Takes note of what keeps the run from its work; "" when it is over."""
        with self._lock:
            self._trouble, self._troubled = trouble, time.monotonic()

    def look(self) -> Metrics:
        """Returns what is known now."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            latencies = sorted(latency for _, latency in self._latencies)
            seconds = min(RATE_SECONDS, max(now - self._start, 1.0))
            return Metrics(
                messages=self._by_status.total(),
                failed=self._by_status[FAILED],
                by_status=dict(sorted(self._by_status.items())),
                rate=sum(count for _, count in self._written) / seconds,
                p50=_quantile(latencies, 0.5),
                p95=_quantile(latencies, 0.95),
                lag={
                    partition: max(end - self._done.get(partition, 0), 0)
                    for partition, end in sorted(self._ends.items())
                },
                trouble=self._trouble if now - self._troubled < TROUBLE_SECONDS else "",
                left_out=self._left_out,
            )

    def _forget(self, now: float) -> None:
        for seen in (self._latencies, self._written):
            while seen and seen[0][0] < now - RATE_SECONDS:
                seen.popleft()


def _quantile(values: list[float], share: float) -> float | None:
    """Returns the value below which a share of sorted values lies.

    >>> _quantile([1.0, 2.0, 3.0], 0.5), _quantile([], 0.5)
    (2.0, None)
    """
    if not values:
        return None
    return values[min(len(values) - 1, int(share * len(values)))]


def find_run(name: str) -> LiveRun:
    """Returns the run of this name in this process."""
    with _lock:
        return _runs.setdefault(name, LiveRun())


def forget_run(name: str) -> None:
    """Forgets a run that has ended."""
    with _lock:
        _runs.pop(name, None)
