"""Work that takes long, and how much of it is done, for whoever shows it.

What works says so here, and counts; the command line looks. So nothing takes a reporter along.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator

BYTES = "bytes"


@dataclasses.dataclass(eq=False)
class Work:
    """Some work of known size."""

    name: str  # such as "checking digests"
    total: int
    unit: str  # of what is counted, in the plural: `BYTES`, "sentences"
    done: int = 0
    began: float = dataclasses.field(default_factory=time.monotonic)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def add(self, count: int) -> None:
        """Counts what is done; any thread may."""
        with self._lock:
            self.done += count


_works: list[Work] = []


@contextlib.contextmanager
def long_work(name: str, *, total: int, unit: str = BYTES) -> Iterator[Work]:
    """Says that the `with` block does so much work.

    >>> with long_work("scoring", total=10, unit="sentences") as work:
    ...     work.add(4)
    ...     current_work().done
    4
    >>> current_work()
    """
    work = Work(name, total, unit)
    _works.append(work)
    try:
        yield work
    finally:
        _works.remove(work)


def current_work() -> Work | None:
    """Returns the work that began last and goes on, or None."""
    return next(iter(_works.copy()[::-1]), None)
