"""Pub/Sub on this machine, with leases: messages that are not acknowledged are delivered again.

It implements only the parts that a stream needs. Google's emulator needs Java, and is not available
in all registries.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import datetime
import threading
import time

import grpc
from google.protobuf import empty_pb2
from google.pubsub_v1 import types

HOST = "127.0.0.1"
PROJECT = "some-project"
PATIENCE = 300.0  # seconds until a test gives up


class PubsubService:
    """A service that keeps its messages in memory, even while it is stopped.

    Attributes:
      pulled: Number of messages that were sent to readers.
      extended: Number of requests that extended leases.
      returned: Number of messages that readers returned.
      largest: Largest size of a publish request in bytes. Like Google, it refuses larger requests.
    """

    def __init__(self):
        self.pulled = self.extended = self.returned = 0
        self.largest = 10_000_000
        self.refused = set()  # topics and subscriptions to which access is denied
        self.requests = []  # the ordering keys of each request to publish
        self._lock = threading.Condition()
        self._topics = collections.defaultdict(list)  # messages, for tests
        self._subscriptions = {}  # name -> (topic, seconds, waiting, leased)
        self._count = 0
        self._server, self.port = None, 0
        self.start()

    @property
    def address(self):
        return f"{HOST}:{self.port}"

    def start(self):
        kinds = {
            "Publisher": {
                "Publish": (self._publish, types.PublishRequest, types.PublishResponse),
                "GetTopic": (self._get_topic, types.GetTopicRequest, types.Topic),
            },
            "Subscriber": {
                "Acknowledge": (self._acknowledge, types.AcknowledgeRequest, None),
                "ModifyAckDeadline": (self._modify, types.ModifyAckDeadlineRequest, None),
                "GetSubscription": (
                    self._get_subscription, types.GetSubscriptionRequest, types.Subscription,
                ),
            },
        }  # fmt: skip
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(32),
            options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)],
        )
        for service, methods in kinds.items():
            handlers = {
                name: grpc.unary_unary_rpc_method_handler(
                    call,
                    request_deserializer=asked.deserialize,
                    response_serializer=(
                        answered.serialize if answered else empty_pb2.Empty.SerializeToString
                    ),
                )
                for name, (call, asked, answered) in methods.items()
            }
            if service == "Subscriber":
                handlers["StreamingPull"] = grpc.stream_stream_rpc_method_handler(
                    self._stream,
                    request_deserializer=types.StreamingPullRequest.deserialize,
                    response_serializer=types.StreamingPullResponse.serialize,
                )
            self._server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(f"google.pubsub.v1.{service}", handlers)]
            )
        self.port = self._server.add_insecure_port(f"{HOST}:{self.port}")
        self._server.start()

    def stop(self):
        self._server.stop(0).wait()

    # Methods for tests.

    def make_topic(self):
        with self._lock:
            name = f"topic-{len(self._topics)}"
            self._topics[f"projects/{PROJECT}/topics/{name}"] = []
            return f"pubsub://{PROJECT}/{name}"

    def make_subscription(self, topic, *, seconds=10, **fields):
        with self._lock:
            name = f"subscription-{len(self._subscriptions)}"
            path = f"projects/{PROJECT}/subscriptions/{name}"
            description = types.Subscription(
                name=path, topic=_path(topic), ack_deadline_seconds=seconds, **fields
            )
            self._subscriptions[path] = _Subscription(description)
            return f"pubsub://{PROJECT}/{name}"

    def put(self, topic, values, *, keys=None, attributes=None, first=0):
        """Publish texts; the attribute `n` contains their numbers, which start at `first`."""
        messages = [
            types.PubsubMessage(
                data=value,
                ordering_key=keys[number] if keys else "",
                attributes={"n": str(first + number), **(attributes or {})},
            )
            for number, value in enumerate(values)
        ]
        with self._lock:
            self._add(_path(topic), messages)

    def messages(self, topic):
        """Return the messages that were published to a topic."""
        with self._lock:
            return list(self._topics[_path(topic)])

    def delete(self, subscription):
        """Delete a subscription, as its owner may do at any time."""
        with self._lock:
            self._subscriptions.pop(_path(subscription, "subscriptions")).is_deleted = True

    def unacknowledged(self, subscription):
        """Return the number of messages that a subscription still has."""
        found = self._subscriptions[_path(subscription, "subscriptions")]
        with self._lock:
            return len(found.waiting) + len(found.leased)

    def leased(self, subscription):
        """Return the number of messages under a lease, whose reader may have ended."""
        found = self._subscriptions[_path(subscription, "subscriptions")]
        with self._lock:
            now = time.monotonic()
            return sum(end > now for _, end in found.leased.values())

    def wait_for(self, topic, count, *, process=None, distinct=False):
        """Wait until a topic has `count` messages; with `distinct`, from different sources."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.messages(topic)
            if (
                len({each.attributes["tt-source"] for each in found} if distinct else found)
                >= count
            ):
                return
            if process is not None:
                assert process.is_alive()
            time.sleep(0.02)
        raise AssertionError(f"{len(self.messages(topic))} of {count} messages arrived")

    def wait_until_acknowledged(self, subscription, *, process):
        """Wait until all messages are acknowledged, even those that a killed process leased."""
        self.wait_until(lambda: not self.unacknowledged(subscription), process=process)

    @staticmethod
    def wait_until(condition, *, process):
        """Wait until a condition is true."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert process.is_alive()
            assert time.monotonic() < end
            time.sleep(0.02)

    # Methods for clients.

    def _add(self, topic, messages):
        for message in messages:
            self._count += 1
            message.message_id = str(self._count)
            message.publish_time = datetime.datetime.now(datetime.UTC)
            self._topics[topic].append(message)
            for subscription in self._subscriptions.values():
                if subscription.description.topic == topic:
                    subscription.waiting.append(message)
        self._lock.notify_all()
        return [message.message_id for message in messages]

    def _publish(self, request, context):
        if request.topic not in self._topics:
            context.abort(grpc.StatusCode.NOT_FOUND, "Resource not found")
        if request.topic in self.refused:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "User not authorized")
        keys = {message.ordering_key for message in request.messages}
        attributes = [message.attributes for message in request.messages]
        if (
            types.PublishRequest.pb(request).ByteSize() > self.largest
            or len(request.messages) > 1000
            or len(keys) > 1
            or any(len(each) > 100 for each in attributes)
            or any(len(v.encode()) > 1024 for each in attributes for v in each.values())
            or any(not m.data and not m.attributes for m in request.messages)
        ):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request is not valid")
        with self._lock:
            self.requests.append((request.topic, *keys, len(request.messages)))
            return types.PublishResponse(message_ids=self._add(request.topic, request.messages))

    def _stream(self, requests, context):
        """Send messages to a reader of a subscription, until the reader leaves."""
        first = next(requests)
        found = self._find(first.subscription, context)
        threading.Thread(target=self._listen, args=(requests, found), daemon=True).start()
        is_exact = found.description.enable_exactly_once_delivery
        is_ordered = found.description.enable_message_ordering
        with self._lock:
            held = set()  # IDs of the leases of this reader
            while context.is_active():
                if found.is_deleted:
                    context.abort(grpc.StatusCode.NOT_FOUND, "Resource not found")
                if found.description.name in self.refused:
                    context.abort(grpc.StatusCode.PERMISSION_DENIED, "User not authorized")
                held &= found.leased.keys()
                room = (first.max_outstanding_messages or 1000) - len(held)
                if messages := found.lease(min(room, 100), first.stream_ack_deadline_seconds):
                    self.pulled += len(messages)
                    held |= {each.ack_id for each in messages}
                    properties = {
                        "exactly_once_delivery_enabled": is_exact,
                        "message_ordering_enabled": is_ordered,
                    }
                    self._lock.release()
                    try:
                        yield types.StreamingPullResponse(
                            received_messages=messages, subscription_properties=properties
                        )
                    finally:
                        self._lock.acquire()
                else:
                    self._lock.wait(0.05)

    @staticmethod
    def _listen(requests, found):
        """Receive the further requests of a reader, which are heartbeats."""
        with contextlib.suppress(Exception):  # the stream has ended
            for request in requests:
                if request.stream_ack_deadline_seconds:
                    found.seconds = request.stream_ack_deadline_seconds

    def _acknowledge(self, request, context):
        found = self._find(request.subscription, context)
        with self._lock:
            for each in request.ack_ids:
                found.leased.pop(each, None)
        return empty_pb2.Empty()

    def _modify(self, request, context):
        found = self._find(request.subscription, context)
        with self._lock:
            for each in request.ack_ids:
                if each in found.leased:
                    message, _ = found.leased[each]
                    found.leased[each] = message, time.monotonic() + request.ack_deadline_seconds
            if request.ack_deadline_seconds:
                self.extended += 1
            else:
                self.returned += len(request.ack_ids)
            self._lock.notify_all()
        return empty_pb2.Empty()

    def _find(self, name, context):
        if name not in self._subscriptions:
            context.abort(grpc.StatusCode.NOT_FOUND, "Resource not found")
        return self._subscriptions[name]

    def _get_topic(self, request, context):
        if request.topic not in self._topics:
            context.abort(grpc.StatusCode.NOT_FOUND, "Resource not found")
        return types.Topic(name=request.topic)

    def _get_subscription(self, request, context):
        return self._find(request.subscription, context).description


class _Subscription:
    """Waiting messages, and leased messages with the end of their leases."""

    def __init__(self, description):
        self.description = description
        self.waiting = collections.deque()
        self.leased = {}
        self.seconds = 0
        self.is_deleted = False
        self._leases = 0

    def lease(self, most, seconds=0):
        now = time.monotonic()
        for each, (message, end) in list(self.leased.items()):
            if end < now:
                del self.leased[each]
                self.waiting.appendleft(message)
        found = []
        while self.waiting and len(found) < most:
            message = self.waiting.popleft()
            self._leases += 1
            each = f"{message.message_id}-{self._leases}"
            self.leased[each] = message, now + (seconds or self.description.ack_deadline_seconds)
            found.append(types.ReceivedMessage(ack_id=each, message=message))
        return found


def _path(url, kind="topics"):
    name = url.rpartition("/")[2]
    return f"projects/{PROJECT}/{kind}/{name}"
