"""The interface between the job and a broker: a plan, a run, and the size of batches."""

from __future__ import annotations

import abc
import dataclasses
import threading
from collections.abc import Callable, Sequence

from tt.pipelines.streams.messages import Answer, Message, Outputs
from tt.pipelines.streams.metrics import StreamMetrics
from tt.pipelines.streams.options import StreamOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRun:
    """The translator, metrics and stop event of a run.

    Attributes:
      answer: Translates messages, and returns one answer per message, in order.
      metrics: Counts the work of the run.
      stop: Set when the run must finish and commit the batch in progress.
      report: Prints a line for the user.
    """

    answer: Callable[[Sequence[Message]], list[Answer]]
    metrics: StreamMetrics
    stop: threading.Event
    report: Callable[[str], object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamPlan(abc.ABC):
    """A checked stream, which translates messages from its input to its output."""

    options: StreamOptions
    outputs: Outputs
    lines: tuple[str, ...]  # describe the input to the user
    notices: tuple[str, ...] = ()  # warnings for the user

    @abc.abstractmethod
    def run(self, run: StreamRun) -> None:
        """Translate messages until the run is stopped.

        Raises:
          UserError: The input or output no longer exists, or a service refuses a request.
          KeyboardInterrupt: The user wants to stop at once; the batch in progress is not committed.
        """


MOST_SECONDS = 30.0  # maximum time per batch, because a rebalance waits for the batch in progress
BATCH_BYTES = 8_000_000  # maximum size of the messages of a batch, which are in memory together
_FIRST = 64  # maximum messages per batch until the speed of the model is known
_GROWTH = 4  # maximum growth from one batch to the next, because its texts may be slower


class BatchLimit:
    """The number of messages in the next batch, based on the speed of earlier batches.

    Args:
      most: Largest number of messages per batch, at any speed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.messages = min(most, _FIRST)

    def note(self, *, messages: int, seconds: float) -> None:
        """Adapt the limit to the size and the duration of a translated batch.

        >>> limit = BatchLimit(1000)
        >>> limit.note(messages=64, seconds=1.0); limit.messages
        256
        >>> limit.note(messages=250, seconds=125.0); limit.messages
        60
        """
        possible = int(MOST_SECONDS * messages / max(seconds, 1e-6))
        self.messages = max(1, min(self._most, possible, max(_FIRST, _GROWTH * messages)))
