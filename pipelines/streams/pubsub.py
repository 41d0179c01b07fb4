"""Translate the messages of a Pub/Sub subscription, which several processes can share.

Threads of the client library pull messages and extend their leases. The main thread translates.
Another thread publishes the previous batch, then acknowledges its messages.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import queue
import time
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
from google.cloud.pubsub_v1.types import FlowControl, PublisherOptions
from google.pubsub_v1 import PublisherClient as PlainPublisherClient
from google.pubsub_v1 import PubsubMessage

from tt.model.errors import GoneError, ServiceError, UserError, counted, require
from tt.pipelines.streams.messages import (
    OWN_HEADERS,
    Answer,
    Delivery,
    Headers,
    Message,
    Outputs,
    fail,
)
from tt.pipelines.streams.options import PubsubName, StreamOptions
from tt.pipelines.streams.plan import BATCH_BYTES, BatchLimit, StreamPlan, StreamRun
from tt.pipelines.texts.results import TextFields

_ANSWER_SECONDS = 10.0  # time limit for an answer of the service before a run
_CLOSE_SECONDS = 10.0  # time for the client to return the messages that it fetched ahead
_IDLE_SECONDS = 0.1  # between two checks whether to stop
_TROUBLE_SECONDS = 5.0  # time without an answer until the status line reports a problem
# https://cloud.google.com/pubsub/quotas#resource_limits
MOST_BYTES = 10_000_000  # maximum size of a message, and of a request
_MOST_ATTRIBUTES = 100
_LONGEST_ATTRIBUTE = 1024  # maximum bytes of a value
_OVERHEAD = 500  # maximum bytes that a request adds to a message, such as the topic's name
# Attributes cannot have these names in the client's `publish`, because its parameters have them.
_PARAMETER_NAMES = frozenset({"self", "topic", "data", "ordering_key", "retry", "timeout"})


def _explain(error: Exception, *, name: str, path: str) -> UserError:
    """Return the error to raise for an exception of a client.

    Args:
      error: The exception.
      name: The name in error messages, such as "`output` (pubsub://my-project/titles)".
      path: The name that Pub/Sub uses, such as "projects/my-project/topics/titles".
    """
    kind = path.split("/")[-2].removesuffix("s")
    if isinstance(error, exceptions.NotFound):
        return GoneError(
            f"{name} does not exist. Create it with `gcloud pubsub {kind}s create`, or choose "
            f"another {kind}. Received: {path}"
        )
    if isinstance(error, exceptions.PermissionDenied):
        return UserError(
            f"you have no permission to use {name} ({_reason(error)}). Get the roles "
            "pubsub.subscriber, pubsub.publisher and pubsub.viewer"
        )
    return ServiceError(
        f"Pub/Sub does not answer for {name} ({_reason(error)}). Check the network, and run the "
        "same command again"
    )


def _reason(error: Exception) -> str:
    found = getattr(error, "message", None) or str(error)
    return " ".join(str(found).split()).partition(". ")[0] or type(error).__name__


def message_of(
    message: Any, subscription: PubsubName, *, milliseconds: int | None = None
) -> Message:
    """Convert a message of a Pub/Sub client or of Beam to a `Message`.

    Args:
      message: The message; on Dataflow it can lack `message_id` and `publish_time`.
      subscription: The subscription that delivered the message.
      milliseconds: The timestamp since 1970 to use if the message has none.
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


def make_message(answer: Answer, *, target: Outputs) -> tuple[PubsubName, PubsubMessage, str]:
    """Return the topic, the Pub/Sub message and the status of an answer.

    Raises:
      UserError: Even the smallest form of the answer is too large for Pub/Sub.
    """
    if (attributes := len(answer.headers)) > _MOST_ATTRIBUTES:
        answer = fail(
            answer.message,
            f"the translated message needs {attributes} attributes, but Pub/Sub allows only "
            f"{_MOST_ATTRIBUTES}",
            form=target.form,
        )
    found = target.deliver_within(answer, fits=lambda found: _size(_encode(found)) <= MOST_BYTES)
    message = _encode(found)
    require(
        _size(message) <= MOST_BYTES,
        f"the message {answer.message.source} cannot be written, because its attributes are "
        "larger than a Pub/Sub message may be. Send smaller attributes",
    )
    return found.topic, message, found.status


def _encode(found: Delivery) -> PubsubMessage:
    return PubsubMessage(
        data=found.value or b"",
        attributes=_attributes(found.headers),
        ordering_key=(found.key or b"").decode(),
    )


def _attributes(headers: Headers) -> dict[str, str]:
    """Return the attributes of tt, and as many other attributes as Pub/Sub allows."""
    found = {name: value or b"" for name, value in headers}
    own = {name: found.pop(name) for name in OWN_HEADERS if name in found}
    kept = list(found.items())[: _MOST_ATTRIBUTES - len(own)]
    return {
        name: value[:_LONGEST_ATTRIBUTE].decode(errors="ignore")
        for name, value in [*kept, *own.items()]
    }


def _size(message: PubsubMessage) -> int:
    return _OVERHEAD + int(type(message).pb(message).ByteSize())


def plan_subscription(options: StreamOptions, *, form: TextFields) -> PubsubPlan:
    """Check a subscription and topics, without reading or writing messages.

    Args:
      options: The options of a stream from a subscription to a topic.
      form: The fields that contain texts.

    Raises:
      UserError: There are no credentials, Pub/Sub does not answer, or a subscription or topic does
        not exist or cannot be used.
    """
    source, target, failed = options.source, options.target, options.failed
    assert isinstance(source, PubsubName)
    assert isinstance(target, PubsubName)
    assert failed is None or isinstance(failed, PubsubName)
    topics = {"`output`": target, **({} if failed is None else {"`dead_letter`": failed})}
    found = _find_subscription(source, topics)
    for name, topic in topics.items():
        require(
            found.topic != topic.topic,
            f"{name} is the topic of the subscription {source}, so translations would be "
            "translated again. Choose another topic",
        )
    return PubsubPlan(
        options=options,
        source=source,
        outputs=Outputs(output=target, dead_letter=failed, form=form),
        lines=(f"Reading {source}, a subscription to {found.topic}",),
    )


def _find_subscription(source: PubsubName, topics: dict[str, PubsubName]) -> Any:
    """Return the description of a subscription, after a check that the topics exist."""
    settings: dict[str, Any] = {"retry": None, "timeout": _ANSWER_SECONDS}
    name, path = f"`input` ({source})", source.subscription
    try:
        with SubscriberClient() as subscriber:
            found = subscriber.get_subscription(subscription=path, **settings)
        with PublisherClient() as publisher:
            for what, topic in topics.items():
                name, path = f"{what} ({topic})", topic.topic
                publisher.get_topic(topic=path, **settings)
    except GoogleAuthError as error:
        raise UserError(
            f"Pub/Sub needs credentials ({_reason(error)}). Run `gcloud auth application-default "
            "login`, or set GOOGLE_APPLICATION_CREDENTIALS"
        ) from None
    except exceptions.GoogleAPICallError as error:
        found = _explain(error, name=name, path=path)
        # A GoneError is only for a name that is deleted during a run.
        raise UserError(str(found)) if isinstance(found, GoneError) else found from None
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class PubsubPlan(StreamPlan):
    """A checked stream from a subscription to a topic."""

    source: PubsubName

    def run(self, run: StreamRun) -> None:
        """Translate until `run.stop` is set; see `StreamPlan`."""
        PubsubMember(self, run).run()


class PubsubMember:
    """Pulls, translates, publishes and acknowledges messages.

    Args:
      plan: The subscription, topics and options.
      run: The translator, the metrics and the stop event.
    """

    def __init__(self, plan: PubsubPlan, run: StreamRun) -> None:
        self._plan, self._options = plan, plan.options
        self._run, self._metrics, self._stop = run, run.metrics, run.stop
        self._subscriber = SubscriberClient()
        self._publisher = PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=True)
        )
        self._limit = BatchLimit(plan.options.max_batch)
        # Not a `SimpleQueue`: after a signal, its `get` can wait longer than its timeout.
        self._pulled: queue.Queue[Any] = queue.Queue()
        self._is_closing = False

    def run(self) -> None:
        """Translate until `stop` is set, finish the batch in progress, and return the rest.

        Raises:
          UserError: The subscription or a topic was deleted or is refused, or Pub/Sub does not
            answer.
          KeyboardInterrupt: The user wants to stop at once; no further message is acknowledged.
        """
        path = self._plan.source.subscription
        flow = FlowControl(max_messages=2 * self._options.max_batch, max_bytes=2 * BATCH_BYTES)
        pulling = self._subscriber.subscribe(path, self._receive, flow_control=flow)
        self._metrics.note_assigned(True)
        publisher = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="publish")
        published: concurrent.futures.Future[None] | None = None
        try:
            while not self._stop.is_set():
                if pulling.done():
                    self._check_pulling(pulling)
                batch = self._take(is_busy=published is not None and not published.done())
                if published is not None and (batch or published.done()):
                    published.result()
                    published = None
                if not batch:
                    continue
                start = time.monotonic()
                answers = self._run.answer([message_of(each, self._plan.source) for each in batch])
                seconds = time.monotonic() - start
                self._limit.note(messages=len(batch), seconds=seconds)
                self._metrics.note_batch(len(batch), seconds=seconds)
                published = publisher.submit(self._publish, batch, answers, pulling)
            if published is not None:
                published.result()
        finally:
            self._metrics.note_assigned(False)
            publisher.shutdown(wait=False, cancel_futures=True)
            self._is_closing = True
            while not self._pulled.empty():  # before `cancel`, because the client must send them
                self._pulled.get().nack()
            pulling.cancel()
            concurrent.futures.wait([pulling], timeout=_CLOSE_SECONDS)
            self._publisher.stop()
            self._subscriber.close()

    def _receive(self, message: Any) -> None:
        """Queue a message in a thread of the client, or return it to the subscription."""
        if self._is_closing:
            message.nack()
        else:
            self._pulled.put(message)

    def _take(self, *, is_busy: bool) -> list[Any]:
        """Return the messages of the next batch, or an empty list if none arrives in a moment."""
        batch: list[Any] = []
        size = 0
        deadline = time.monotonic() + _IDLE_SECONDS
        while len(batch) < self._limit.messages and size < BATCH_BYTES:
            wait = max(deadline - time.monotonic(), 0.0)
            try:
                batch.append(self._pulled.get(timeout=wait) if wait else self._pulled.get_nowait())
            except queue.Empty:
                break
            size += batch[-1].size
            if len(batch) == 1:
                deadline = time.monotonic() + (0.0 if is_busy else self._options.max_latency)
        return batch

    def _publish(self, batch: list[Any], answers: list[Answer], pulling: Any) -> None:
        """Publish answers, wait until the service has stored them, and acknowledge the messages."""
        self._metrics.note_waiting(True)
        sent: list[Any] = []
        statuses = []
        for answer in answers:
            topic, message, status = make_message(answer, target=self._plan.outputs)
            statuses.append(status)
            attributes = dict(message.attributes)
            if attributes.keys() & _PARAMETER_NAMES:
                self._wait(sent)  # keeps the order of messages with the same key
                request = {"topic": topic.topic, "messages": [message]}
                PlainPublisherClient.publish(self._publisher, request=request)
                continue
            found = self._publisher.publish(
                topic.topic, message.data, ordering_key=message.ordering_key, **attributes
            )
            sent.append((topic, found))
        self._wait(sent)
        self._metrics.note_written(
            statuses, milliseconds=[each.message.milliseconds for each in answers]
        )
        acknowledged = [each.ack_with_response() for each in batch]
        if lost := sum(not _is_accepted(each, pulling) for each in acknowledged):
            self._run.report(
                f"tt: warning: Pub/Sub did not accept the acknowledgment of "
                f"{counted(lost, 'message')}, which Pub/Sub may deliver again"
            )
        self._metrics.note_waiting(False)

    def _wait(self, sent: list[Any]) -> None:
        """Wait until Pub/Sub has stored messages, given pairs of a topic and a future."""
        for topic, found in sent:
            while True:
                try:
                    found.result(_TROUBLE_SECONDS)
                    break
                except concurrent.futures.TimeoutError:
                    self._metrics.note_trouble("no answer from Pub/Sub")
                except exceptions.GoogleAPICallError as error:
                    name = f"`output` or `dead_letter` ({topic})"
                    raise _explain(error, name=name, path=topic.topic) from None

    def _check_pulling(self, pulling: Any) -> None:
        """Raise the error that ended the pull."""
        try:
            pulling.result()
        except exceptions.GoogleAPICallError as error:
            name, path = f"`input` ({self._plan.source})", self._plan.source.subscription
            raise _explain(error, name=name, path=path) from None


def _is_accepted(acknowledgment: Any, pulling: Any) -> bool:
    """Wait until Pub/Sub has accepted or refused an acknowledgment, or the pull has ended.

    After the end of the pull, the client sends no further acknowledgments.
    """
    while True:
        is_over = pulling.done()
        try:
            return acknowledgment.exception(0 if is_over else _TROUBLE_SECONDS) is None
        except concurrent.futures.TimeoutError:
            if is_over:
                return False
