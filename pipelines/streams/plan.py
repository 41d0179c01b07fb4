"""The interface between the job and a broker: a plan, a run, and the size of batches."""

from __future__ import annotations

import abc
import dataclasses
import threading
from collections.abc import Callable, Sequence

from tt.pipelines.inference.model_loading import FoundModel
from tt.pipelines.streams.messages import Answer, Message, Outputs
from tt.pipelines.streams.metrics import Metrics, StreamMetrics
from tt.pipelines.streams.options import StreamOptions


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoppableRun:
    """A run that has metrics, and that a user can stop; any thread may call its methods."""

    model: FoundModel
    lines: tuple[str, ...]  # say what the run will do
    notices: tuple[str, ...] = ()  # warnings for the user
    metrics: StreamMetrics = dataclasses.field(default_factory=StreamMetrics)
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    def look(self) -> Metrics:
        """Return the current state of the run."""
        return self.metrics.look()

    def drain(self) -> None:
        """Ask the run to finish the batch or file in progress; a signal handler may call it."""
        self.stop.set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamPlan(abc.ABC):
    """Reads messages from a checked input and writes their answers to a checked output."""

    options: StreamOptions
    outputs: Outputs
    lines: tuple[str, ...]  # say where reading begins
    notices: tuple[str, ...] = ()  # warnings for the user

    @abc.abstractmethod
    def run(self, run: StreamRun) -> None:
        """Translate messages until the run is stopped.

        Raises:
          UserError: The input or output is gone, or a service refuses a request.
          KeyboardInterrupt: The user wants to stop at once; the batch in progress is not committed.
        """


MOST_SECONDS = 30.0  # that a batch may take; the group waits for a member that is this long away
BATCH_BYTES = 8_000_000  # of messages; a batch and its translations are in memory together
_FIRST = 64  # messages, before the speed of the model is known
_GROWTH = 4  # a model that was fast for short texts may be slow for the next ones


class BatchLimit:
    """The number of messages in the next batch, from the speed of the batches before it.

    Args:
      most: Largest number of messages, whatever the speed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.messages = min(most, _FIRST)

    def note(self, *, messages: int, seconds: float) -> None:
        """Adapt the limit to a batch of so many messages that took so many seconds.

        >>> limit = BatchLimit(1000)
        >>> limit.note(messages=64, seconds=1.0); limit.messages
        256
        >>> limit.note(messages=250, seconds=125.0); limit.messages
        60
        """
        possible = int(MOST_SECONDS * messages / max(seconds, 1e-6))
        self.messages = max(1, min(self._most, possible, max(_FIRST, _GROWTH * messages)))
