"""Messages and answers as Pub/Sub messages, within the limits of the service."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.errors import UserError
from pipelines.streams.addresses import PubsubName
from pipelines.streams.messages import (
    OWN_HEADERS,
    SMALLEST,
    Answer,
    Headers,
    Message,
    MessageFormat,
    deliver,
    fail,
)
from pipelines.texts.translating import FAILED

if TYPE_CHECKING:
    from google.pubsub_v1 import PubsubMessage

# https://cloud.google.com/pubsub/quotas#resource_limits
MOST_BYTES = 10_000_000  # of a message, and of a request
_MOST_ATTRIBUTES = 100
_LONGEST_ATTRIBUTE = 1024  # bytes of a value
_OVERHEAD = 500  # bytes that a request adds to its message, at most: the name of the topic


@dataclasses.dataclass(frozen=True, kw_only=True)
class PubsubTarget:
    """The topics for answers."""

    output: PubsubName
    dead_letter: PubsubName | None = None  # for failed messages
    form: MessageFormat = dataclasses.field(default_factory=MessageFormat)


def message_of(
    message: Any, subscription: PubsubName, *, milliseconds: int | None = None
) -> Message:
    """Return a message of a Pub/Sub client or of Beam as a `Message`.

    Args:
      message: The message; on Dataflow it can lack `message_id` and `publish_time`.
      subscription: The subscription that it comes from.
      milliseconds: Its time since 1970, if it has none itself.
    """
    if message.publish_time is not None:
        milliseconds = int(message.publish_time.timestamp() * 1000)
    return Message(
        value=message.data,
        key=(message.ordering_key or "").encode() or None,
        headers=tuple((name, value.encode()) for name, value in sorted(message.attributes.items())),
        source=f"{subscription.name}/{message.message_id or ''}",
        milliseconds=milliseconds,
    )


def make_message(answer: Answer, *, target: PubsubTarget) -> tuple[PubsubName, PubsubMessage, str]:
    """Return the topic, the Pub/Sub message and the status of an answer.

    Raises:
      UserError: Even the smallest form of the answer is larger than a message may be.
    """
    from google.pubsub_v1 import PubsubMessage

    if (left_out := len(answer.headers) - _MOST_ATTRIBUTES) > 0:
        answer = fail(
            answer.message,
            f"a message has at most {_MOST_ATTRIBUTES} attributes: {left_out} are left out",
            form=target.form,
        )
    for attempt in range(SMALLEST + 1):
        has_dead_letter = target.dead_letter is not None
        found = deliver(answer, attempt=attempt, form=target.form, has_dead_letter=has_dead_letter)
        message = PubsubMessage(
            data=found.value or b"",
            attributes=_attributes(found.headers),
            ordering_key=(found.key or b"").decode(),
        )
        if _size(message) <= MOST_BYTES:
            topic = target.dead_letter if found.is_dead_letter else target.output
            assert topic is not None
            return topic, message, FAILED if attempt else answer.status
    raise UserError(
        f"the message {answer.message.source} cannot be written: its attributes are larger than a "
        "Pub/Sub message may be"
    )


def _attributes(headers: Headers) -> dict[str, str]:
    """Return attributes: all of `tt`, and as many others as fit."""
    found = {name: value or b"" for name, value in headers}
    own = {name: found.pop(name) for name in OWN_HEADERS if name in found}
    kept = list(found.items())[: _MOST_ATTRIBUTES - len(own)]
    return {
        name: value[:_LONGEST_ATTRIBUTE].decode(errors="ignore")
        for name, value in [*kept, *own.items()]
    }


def _size(message: PubsubMessage) -> int:
    return _OVERHEAD + int(type(message).pb(message).ByteSize())
