"""The plan of a stream: its input and output, checked but not yet read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pipelines.streams.messages import Answer, Message
from pipelines.streams.metrics import StreamMetrics
from pipelines.streams.options import StreamOptions

AnswerMessages = Callable[[Sequence[Message]], list[Answer]]


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

    def run(
        self,
        answer: AnswerMessages,
        *,
        metrics: StreamMetrics,
        stop: threading.Event,
        report: Callable[[str], object],
    ) -> None:
        """Translate messages until `stop` is set, then finish and commit the batch in progress.

        Args:
          answer: Translates messages; returns an answer for each, in order.
          metrics: Counts what happens.
          stop: Set by a signal or by another thread.
          report: Takes lines for the user.

        Raises:
          UserError: The input or output is gone, or a service refuses a request.
          KeyboardInterrupt: The user wants to stop at once; the batch in progress is not committed.
        """
