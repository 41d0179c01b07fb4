"""Decide how many messages are translated together."""

from __future__ import annotations

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
