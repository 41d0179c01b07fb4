"""Answers to topics of Pub/Sub: all of a bundle are there when `flush` returns, or it raises."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from model.errors import UserError
from pipelines.streams.addresses import PubsubName
from pipelines.streams.live_run import find_run
from pipelines.streams.messages import OWN_HEADERS, Answer, MessageFormat, deliver, fail
from pipelines.streams.pubsub import clients
from pipelines.texts.translating import FAILED

if TYPE_CHECKING:
    from google.pubsub_v1 import PubsubMessage

# https://cloud.google.com/pubsub/quotas#resource_limits
MOST_BYTES = 10_000_000  # of a message, and of a request
_MOST_MESSAGES = 1000  # of a request
_MOST_ATTRIBUTES = 100
_LONGEST_ATTRIBUTE = 1024  # bytes of a value
_OVERHEAD = 100  # bytes of a message besides its own, at most

_AT_ONCE = 16  # requests: those of one ordering key follow one another
REQUEST_SECONDS = 30.0  # that the service has for a request
PATIENCE_SECONDS = 300.0  # for which it is asked again
RETRY_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PubsubTarget:
    """Where answers go."""

    output: PubsubName
    dead_letter: PubsubName | None = None  # for those that failed
    form: MessageFormat = dataclasses.field(default_factory=MessageFormat)
    run: str = ""  # name of the `LiveRun`

    def open(self) -> PubsubWriter:
        """Makes a writer.

        Raises:
          UserError: There are no credentials.
        """
        return PubsubWriter(self)


class PubsubWriter:
    """Writes answers; those with one ordering key keep their order."""

    def __init__(self, target: PubsubTarget) -> None:
        self._target = target
        self._live = find_run(target.run)
        self._client = clients.make_publisher()
        self._threads = concurrent.futures.ThreadPoolExecutor(_AT_ONCE)
        self._pending: list[Answer] = []

    def write(self, answer: Answer) -> None:
        """Takes an answer, which `flush` sends."""
        self._pending.append(answer)

    def flush(self) -> None:
        """Sends all answers, and waits until the service has them.

        Raises:
          UserError: It did not take one.
        """
        pending, self._pending = self._pending, []
        if not pending:
            return
        made = [make_message(answer, target=self._target) for answer in pending]
        groups: dict[tuple[PubsubName, str], list[PubsubMessage]] = {}
        for topic, message, _ in made:  # a request has one ordering key
            groups.setdefault((topic, message.ordering_key), []).append(message)
        sending = [
            self._threads.submit(self._send_all, topic, messages)
            for (topic, _), messages in groups.items()
        ]
        for each in sending:
            each.result()
        now = time.time()
        self._live.note_written(
            [status for _, _, status in made],
            [
                None if (sent := answer.message.milliseconds) is None else max(now - sent / 1000, 0)
                for answer in pending
            ],
        )
        self._live.note_trouble("")

    def close(self) -> None:
        """Drops what is not flushed: its bundle has failed."""
        self._threads.shutdown()
        self._client.transport.close()

    def _send_all(self, topic: PubsubName, messages: list[PubsubMessage]) -> None:
        for part in _in_requests(messages):
            self._send(topic, part)

    def _send(self, topic: PubsubName, messages: list[PubsubMessage]) -> None:
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        end = time.monotonic() + PATIENCE_SECONDS
        request = {"topic": topic.topic, "messages": messages}
        while True:
            try:
                self._client.publish(request=request, retry=None, timeout=REQUEST_SECONDS)
                return
            except (GoogleAPICallError, GoogleAuthError) as error:
                if not clients.is_passing(error) or time.monotonic() > end:
                    name = "`output`" if topic == self._target.output else "`dead_letter`"
                    raise clients.explain_error(
                        error, name=f"{name} ({topic})", path=topic.topic
                    ) from None
                self._live.note_trouble(clients.describe_trouble(error))
                time.sleep(RETRY_SECONDS)


def make_message(answer: Answer, *, target: PubsubTarget) -> tuple[PubsubName, PubsubMessage, str]:
    """Returns where an answer goes, what is sent of it, and its status then.

    Raises:
      UserError: Its attributes alone are larger than a message may be.
    """
    from google.pubsub_v1 import PubsubMessage

    if (left_out := len(answer.headers) - _MOST_ATTRIBUTES) > 0:
        answer = fail(
            answer.message,
            f"there is room for {_MOST_ATTRIBUTES} attributes: {left_out} are left out",
            form=target.form,
        )
    attempt = 0
    while delivery := deliver(
        answer,
        attempt=attempt,
        form=target.form,
        has_dead_letter=target.dead_letter is not None,
    ):
        message = PubsubMessage(
            data=delivery.value or b"",
            attributes=_attributes(delivery.headers),
            ordering_key=(answer.message.key or b"").decode(),
        )
        if _size(message) <= MOST_BYTES:
            topic = target.dead_letter if delivery.is_dead_letter else target.output
            assert topic is not None
            return topic, message, FAILED if attempt else answer.status
        attempt += 1
    raise UserError(
        f"the message {answer.message.source} cannot be written: its attributes alone are "
        "larger than a message of Pub/Sub may be"
    )


def _attributes(headers: tuple[tuple[str, bytes | None], ...]) -> dict[str, str]:
    """Returns the attributes of a message: those of tt, and as many of its own as have room."""
    found = {name: value or b"" for name, value in headers}
    own = {name: found.pop(name) for name in OWN_HEADERS if name in found}
    kept = list(found.items())[: _MOST_ATTRIBUTES - len(own)]
    return {
        name: value[:_LONGEST_ATTRIBUTE].decode(errors="ignore")
        for name, value in [*kept, *own.items()]
    }


def _size(message: PubsubMessage) -> int:
    attributes = sum(len(name) + len(value.encode()) for name, value in message.attributes.items())
    return _OVERHEAD + len(message.data) + attributes + 4 * len(message.attributes)


def _in_requests(messages: list[Any]) -> Iterator[list[Any]]:
    """Cuts messages into requests that are not too large.

    A request that holds one message may be as large as a message.
    """
    part: list[Any] = []
    size = 0
    for message in messages:
        more = _size(message)
        if part and (size + more > MOST_BYTES or len(part) == _MOST_MESSAGES):
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    if part:
        yield part
