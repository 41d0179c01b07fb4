"""A subscription of Pub/Sub as an unbounded source of Beam.

Beam's own reader of Pub/Sub, on its local runner, acknowledges messages before they are processed,
so that a kill loses them. This one acknowledges when the runner says that a bundle is done.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Iterable
from typing import Any

from apache_beam.coders import Coder, PickleCoder
from apache_beam.io.unbounded_source import CheckpointMark, UnboundedReader, UnboundedSource
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from pipelines.streams.addresses import PubsubName
from pipelines.streams.live_run import find_run
from pipelines.streams.messages import BUNDLE_BYTES, Message
from pipelines.streams.open_once import OpenOnce
from pipelines.streams.pubsub import clients
from pipelines.streams.pubsub.leases import Leases

WAIT_SECONDS = 0.02  # the longest that a reader waits for messages
PULL_SECONDS = 5.0  # that the service may take to find messages
AHEAD_BYTES = 16_000_000  # of messages, above which no more are fetched ahead
RETRY_SECONDS = 1.0  # between two pulls where it does not answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class PubsubSource(UnboundedSource):
    """The messages of a subscription."""

    subscription: PubsubName
    deadline: int = 10  # seconds that a lease lasts
    most: int = 256  # messages that are fetched ahead
    run: str = ""  # name of the `LiveRun`

    def split(self, desired_num_splits: int, options: Any = None) -> Iterable[PubsubSource]:
        """Returns this source: one worker reads all."""
        return [self]

    def create_reader(
        self, options: Any, checkpoint_mark: CheckpointMark | None
    ) -> UnboundedReader:
        """Makes a reader; what was read and not acknowledged comes again by itself."""
        return PubsubReader(self)

    def get_checkpoint_mark_coder(self) -> Coder:
        """Returns the coder of marks."""
        return PickleCoder()


@dataclasses.dataclass(frozen=True)
class PubsubMark(CheckpointMark):
    """The messages of a bundle, by the ids of their leases."""

    source: PubsubSource
    ids: tuple[str, ...]

    def finalize_checkpoint(self) -> None:
        """Acknowledges them; all are written."""
        leases_of(self.source).acknowledge(self.ids)


_leases: OpenOnce[PubsubSource, Leases] = OpenOnce(
    lambda source: Leases(source.subscription, deadline=source.deadline, run=source.run)
)


def leases_of(source: PubsubSource) -> Leases:
    """Returns the leases of a source in this process."""
    return _leases.find(source)


def close_leases(source: PubsubSource) -> None:
    """Ends the leases of a source.

    Raises:
      UserError: The last messages could not be acknowledged.
    """
    if (leases := _leases.take(source)) is not None:
        leases.close()


class PubsubReader(UnboundedReader):
    """Reads a subscription: a thread pulls, so that the model does not wait for the network."""

    def __init__(self, source: PubsubSource) -> None:
        self._source = source
        self._live = find_run(source.run)
        self._leases = leases_of(source)
        self._fault: Exception | None = None
        self._current: Message | None = None
        self._time = MIN_TIMESTAMP
        self._room = BUNDLE_BYTES  # for messages until the next mark
        self._read: list[str] = []  # ids of what was given since the last mark
        self._fetched: collections.deque[Any] = collections.deque()
        self._changed = threading.Condition()  # what was fetched, or whether this is closed
        self._is_closed = False
        self._pulling = threading.Thread(target=self._pull_all, daemon=True)
        self._pulling.start()

    def start(self) -> bool:
        """Reads the first message; returns whether there is one now."""
        return self.advance()

    def advance(self) -> bool:
        """Reads the next message; returns whether there is one now."""
        if fault := self._fault or self._leases.fault:
            raise fault
        if self._live.is_draining or self._room <= 0:
            return False
        with self._changed:
            if not self._fetched:
                self._changed.wait(WAIT_SECONDS)
            if not self._fetched:
                return False
            received = self._fetched.popleft()
            self._changed.notify_all()
        self._read.append(received.ack_id)
        self._current = message_of(received.message, self._source.subscription)
        self._room -= self._current.size
        return True

    def get_current(self) -> Message:
        """Returns the message."""
        assert self._current is not None
        return self._current

    def get_current_timestamp(self) -> Timestamp:
        """Returns when it was published."""
        assert self._current is not None
        assert self._current.milliseconds is not None
        now = min(Timestamp.now(), Timestamp(micros=1000 * self._current.milliseconds))
        self._time = max(self._time, now)
        return now

    def get_watermark(self) -> Timestamp:
        """Returns the time up to which all may have been read; the last of all ends the run."""
        return MAX_TIMESTAMP if self._live.is_draining else self._time

    def get_checkpoint_mark(self) -> PubsubMark:
        """Returns what was given since the last mark."""
        self._room = BUNDLE_BYTES
        read, self._read = self._read, []
        return PubsubMark(self._source, tuple(read))

    def close(self) -> None:
        """Gives back what was fetched ahead."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._pulling.join()
        self._leases.release([each.ack_id for each in self._fetched])

    def _pull_all(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and self._has_enough():
                    self._changed.wait()
                if self._is_closed or self._live.is_draining:
                    return
                room = self._source.most - len(self._fetched)
            try:
                received = self._pull(room)
            except Exception as error:  # of a thread: `advance` raises it
                self._fault = error
                return
            self._leases.hold([each.ack_id for each in received])
            with self._changed:
                self._fetched.extend(received)
                self._changed.notify_all()
                if self._fault is not None:
                    return

    def _has_enough(self) -> bool:
        size = sum(len(each.message.data) for each in self._fetched)
        return len(self._fetched) >= self._source.most or size > AHEAD_BYTES

    def _pull(self, most: int) -> list[Any]:
        from google.api_core.exceptions import GatewayTimeout, GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        path = self._source.subscription.subscription
        request = {"subscription": path, "max_messages": most}
        try:
            return list(
                self._leases.client.pull(
                    request=request, retry=None, timeout=PULL_SECONDS
                ).received_messages
            )
        except GatewayTimeout:
            return []  # there are none
        except (GoogleAPICallError, GoogleAuthError) as error:
            if clients.is_passing(error):
                self._live.note_trouble(clients.describe_trouble(error))
                with self._changed:
                    self._changed.wait(RETRY_SECONDS)
            else:
                self._fault = clients.explain_error(
                    error, name=f"`input` ({self._source.subscription})", path=path
                )
            return []


def message_of(message: Any, subscription: PubsubName) -> Message:
    """Returns a message of Pub/Sub's client, or of Beam, as messages are here."""
    attributes = sorted(message.attributes.items())
    return Message(
        value=message.data,
        key=message.ordering_key.encode() or None,
        headers=tuple((name, value.encode()) for name, value in attributes),
        source=f"{subscription.name}/{message.message_id}",
        milliseconds=int(message.publish_time.timestamp() * 1000),
    )
