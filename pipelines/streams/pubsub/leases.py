"""Messages in hand: each is leased, until it is acknowledged or given back.

Pub/Sub sends a message again when its lease is over. So the leases of all that is read are
extended as long as this process lives, and a model may take its time; those of a process that is
killed end by themselves, and nothing is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from model.errors import ServiceError
from pipelines.streams.addresses import PubsubName
from pipelines.streams.live_run import find_run
from pipelines.streams.pubsub import clients

if TYPE_CHECKING:
    from google.pubsub_v1 import SubscriberClient

REQUEST_SECONDS = 10.0  # that the service has for a request
_MOST_IDS = 1000  # of a request, which may have 512 KiB
_LOOKS = 3  # at the leases while one lasts


class Leases:
    """The leases of a subscription in this process.

    Args:
      subscription: Whose messages are leased.
      deadline: Seconds that a lease lasts, 10 to 600.
      run: Name of the `LiveRun`.
    """

    def __init__(self, subscription: PubsubName, *, deadline: int, run: str) -> None:
        self.client: SubscriberClient = clients.make_subscriber()
        self.fault: Exception | None = None  # after which nothing will be acknowledged
        self._path = subscription.subscription
        self._name = f"`input` ({subscription})"
        self._deadline = deadline
        self._live = find_run(run)
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._left: list[str] = []  # what the service did not take as acknowledged, in time
        self._closed = threading.Event()
        self._extending = threading.Thread(target=self._extend_all, daemon=True)
        self._extending.start()

    def hold(self, ids: Iterable[str]) -> None:
        """Keeps messages from coming again."""
        with self._lock:
            self._held.update(ids)

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Says that messages are done; where the service does not answer, the next call does it.

        What it raises would only be logged by Beam, and is `fault`: the reader raises it.
        """
        with self._lock:
            wanted, self._left = [*self._left, *ids], []
        try:
            left = self._in_parts(wanted, self._acknowledge)
        except Exception as error:
            self.fault, left = error, wanted
        with self._lock:
            self._left += left
            self._held -= set(wanted) - set(left)

    def release(self, ids: Iterable[str]) -> None:
        """Gives messages back, which come again at once."""
        wanted = list(ids)
        with self._lock:
            self._held -= set(wanted)
        self._in_parts(wanted, lambda part: self._modify(part, 0))

    def close(self) -> None:
        """Acknowledges what the service did not take before, and lets go of it.

        Raises:
          UserError: It does not take it.
        """
        if self._left and self.fault is None:
            self.acknowledge(())
        self._closed.set()
        self._extending.join()
        self.client.transport.close()
        if self.fault is not None:
            raise self.fault
        if self._left:
            raise ServiceError(
                f"Pub/Sub does not take the last acknowledgements of {self._name}: what was "
                "written since is written once more by the next run"
            )

    def _extend_all(self) -> None:
        while not self._closed.wait(self._deadline / _LOOKS):
            with self._lock:
                held = list(self._held)
            try:
                self._in_parts(held, lambda part: self._modify(part, self._deadline))
            except Exception as error:  # of a thread: the reader raises it
                self.fault = error
                return

    def _in_parts(self, ids: list[str], send: Callable[[list[str]], None]) -> list[str]:
        """Sends ids, so many at a time; returns those of which the service took no notice.

        A subscription that delivers exactly once refuses ids whose lease is over: their messages
        come again, as those of any lease that is over.
        """
        from google.api_core.exceptions import (
            FailedPrecondition,
            GoogleAPICallError,
            InvalidArgument,
        )
        from google.auth.exceptions import GoogleAuthError

        left = []
        for first in range(0, len(ids), _MOST_IDS):
            part = ids[first : first + _MOST_IDS]
            try:
                send(part)
            except (FailedPrecondition, InvalidArgument) as error:
                self._live.note_trouble(f"leases are over ({type(error).__name__})")
            except (GoogleAPICallError, GoogleAuthError) as error:
                if clients.is_passing(error):
                    left += part
                    self._live.note_trouble(clients.describe_trouble(error))
                else:
                    self.fault = clients.explain_error(error, name=self._name, path=self._path)
                    return left + ids[first:]
        return left

    def _acknowledge(self, ids: list[str]) -> None:
        request = {"subscription": self._path, "ack_ids": ids}
        self.client.acknowledge(request=request, retry=None, timeout=REQUEST_SECONDS)

    def _modify(self, ids: list[str], seconds: int) -> None:
        request = {
            "subscription": self._path, "ack_ids": ids, "ack_deadline_seconds": seconds,
        }  # fmt: skip
        self.client.modify_ack_deadline(request=request, retry=None, timeout=REQUEST_SECONDS)
