"""The two ends of a stream, whatever system its messages are in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from apache_beam.io.unbounded_source import UnboundedSource

from pipelines.streams.messages import Answer


class Writer(Protocol):
    """Writes answers, those of a bundle at a time."""

    def write(self, answer: Answer) -> None:
        """Sends an answer on its way.

        Raises:
          UserError: It is not taken.
        """

    def flush(self) -> None:
        """Returns when all that was sent is there for good.

        Raises:
          UserError: An answer was not taken.
        """

    def close(self) -> None:
        """Lets go of what is not flushed: its bundle has failed."""


class Target(Protocol):
    """Where answers go; must pickle, and holds no secret."""

    def open(self) -> Writer:
        """Makes a writer.

        Raises:
          UserError: The target is not there, or does not answer.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ends:
    """Where a stream comes from and goes to, both looked at.

    Attributes:
      sources: What is read: one source, or one for each share where several workers read; their
        marks say that a bundle is done when their checkpoint is final.
      target: What is written.
      lines: Lines that say where reading begins.
      notices: Lines that warn the user.
      close: Ends what the source has open in this process, when the pipeline has ended. It raises
        `UserError` where the last bundle could not be said to be done.
    """

    sources: tuple[UnboundedSource, ...]
    target: Target
    lines: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None
