"""A process that translates messages of a Pub/Sub subscription; several can share one.

The client library pulls messages and extends their leases in threads of its own. The main thread
translates. Another thread publishes the batch before, then acknowledges its messages.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import queue
import time
from typing import Any

from model.errors import GoneError, counted
from pipelines.streams import pubsub_clients as clients
from pipelines.streams.addresses import PubsubName
from pipelines.streams.batches import BATCH_BYTES, BatchLimit
from pipelines.streams.messages import Answer
from pipelines.streams.options import StreamOptions
from pipelines.streams.plan import StreamRun
from pipelines.streams.pubsub_messages import PubsubTarget, make_message, message_of

_CLOSE_SECONDS = 10.0  # for the client to return the messages that it fetched ahead
_IDLE_SECONDS = 0.1  # between two looks at whether to stop
_TROUBLE_SECONDS = 5.0  # without an answer, after which the status line says so
# Arguments of the client's `publish`, which therefore takes no attributes with these names.
_TAKEN_NAMES = frozenset({"self", "topic", "data", "ordering_key", "retry", "timeout"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PubsubPlan:
    """A stream from a subscription to a topic; see `StreamPlan`."""

    options: StreamOptions
    source: PubsubName
    target: PubsubTarget
    lines: tuple[str, ...]
    notices: tuple[str, ...] = ()

    def run(self, run: StreamRun) -> None:
        """Translate until `stop` is set; see `StreamPlan`."""
        PubsubMember(self, run).run()


class PubsubMember:
    """Pulls, translates, publishes and acknowledges.

    Args:
      plan: The subscription, topics and options.
      run: The translator and the metrics; it says when to stop.
    """

    def __init__(self, plan: PubsubPlan, run: StreamRun) -> None:
        from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
        from google.cloud.pubsub_v1.types import PublisherOptions

        self._plan, self._options = plan, plan.options
        self._run, self._metrics, self._stop = run, run.metrics, run.stop
        self._subscriber = SubscriberClient()
        self._publisher = PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=True)
        )
        self._limit = BatchLimit(plan.options.max_batch)
        self._pulled: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_closing = False

    def run(self) -> None:
        """Translate until `stop` is set, then finish the batch in progress and return the rest.

        Raises:
          UserError: The subscription or a topic is gone or refused, or Pub/Sub does not answer.
          KeyboardInterrupt: The user wants to stop at once; nothing more is acknowledged.
        """
        from google.cloud.pubsub_v1.types import FlowControl

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
                published = publisher.submit(self._publish, batch, answers)
            if published is not None:
                published.result()
        finally:
            self._metrics.note_assigned(False)
            publisher.shutdown(wait=False, cancel_futures=True)
            self._is_closing = True
            while not self._pulled.empty():  # before the client stops to send requests
                self._pulled.get().nack()
            pulling.cancel()
            concurrent.futures.wait([pulling], timeout=_CLOSE_SECONDS)
            self._publisher.stop()
            self._subscriber.close()

    def _receive(self, message: Any) -> None:
        """Take a message in a thread of the client, or return it to the subscription."""
        if self._is_closing:
            message.nack()
        else:
            self._pulled.put(message)

    def _take(self, *, is_busy: bool) -> list[Any]:
        """Return the messages of the next batch; none if none comes within a moment."""
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

    def _publish(self, batch: list[Any], answers: list[Answer]) -> None:
        """Publish answers, wait until the service has them, then acknowledge their messages."""
        from google.pubsub_v1 import PublisherClient

        self._metrics.note_waiting(True)
        sent: list[Any] = []
        statuses = []
        for answer in answers:
            topic, message, status = make_message(answer, target=self._plan.target)
            statuses.append(status)
            attributes = dict(message.attributes)
            if attributes.keys() & _TAKEN_NAMES:
                self._wait(sent)  # keeps the order of its key
                request = {"topic": topic.topic, "messages": [message]}
                PublisherClient.publish(self._publisher, request=request)
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
        lost = sum(each.exception() is not None for each in acknowledged)
        if lost:
            self._run.report(
                f"tt: warning: Pub/Sub did not accept the acknowledgment of "
                f"{counted(lost, 'message')}, which may come again"
            )
        self._metrics.note_waiting(False)

    def _wait(self, sent: list[Any]) -> None:
        from google.api_core.exceptions import GoogleAPICallError

        for topic, found in sent:
            while True:
                try:
                    found.result(_TROUBLE_SECONDS)
                    break
                except concurrent.futures.TimeoutError:
                    self._metrics.note_trouble("no answer from Pub/Sub")
                except GoogleAPICallError as error:
                    name = f"`output` or `dead_letter` ({topic})"
                    raise _explain(error, name=name, path=topic.topic) from None

    def _check_pulling(self, pulling: Any) -> None:
        """Raise the error that ended the pull."""
        from google.api_core.exceptions import GoogleAPICallError

        try:
            pulling.result()
        except GoogleAPICallError as error:
            name, path = f"`input` ({self._plan.source})", self._plan.source.subscription
            raise _explain(error, name=name, path=path) from None


def _explain(error: Exception, *, name: str, path: str) -> Exception:
    from google.api_core.exceptions import NotFound

    found = clients.explain_error(error, name=name, path=path)
    return GoneError(str(found)) if isinstance(error, NotFound) else found
