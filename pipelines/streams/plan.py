"""The interface between the job and a broker: a checked input and output, and a run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pipelines.streams.messages import Answer, Message
from pipelines.streams.metrics import StreamMetrics
from pipelines.streams.options import StreamOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRun:
    """What a run works with.

    Attributes:
      answer: Translates messages; returns an answer for each, in order.
      metrics: Counts what happens.
      stop: Set when the run is to finish and commit the batch in progress.
      report: Takes lines for the user.
    """

    answer: Callable[[Sequence[Message]], list[Answer]]
    metrics: StreamMetrics
    stop: threading.Event
    report: Callable[[str], object]


class StreamPlan(Protocol):
    """Reads messages from a checked input and writes their answers to a checked output."""

    @property
    def options(self) -> StreamOptions:
        """The options of the stream."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines that say where reading begins."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings for the user."""

    def run(self, run: StreamRun) -> None:
        """Translate messages until the run is stopped.

        Raises:
          UserError: The input or output is gone, or a service refuses a request.
          KeyboardInterrupt: The user wants to stop at once; the batch in progress is not committed.
        """
