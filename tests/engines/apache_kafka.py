"""Apache Kafka on this machine, started with tests/support/kafka_process.py."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import ClassVar

import kafka_process
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclBinding, AclPermissionType, NewPartitions, ResourcePatternType
from kafka_broker import PATIENCE, Broker

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".cache/kafka/lib"


class ApacheKafka(Broker):
    """An Apache Kafka broker that keeps its messages in a folder.

    Args:
      folder: The folder; if it already has messages, the broker serves them.
      settings: Further settings of the broker, with underscores instead of dots.

    Attributes:
      config: The file for `--kafka-config` to use the address with TLS and SASL.
    """

    # A new topic may refuse the first batch. Idempotence then keeps the order of the batches.
    producer_settings: ClassVar[dict] = {"enable.idempotence": True}
    delivery = "exactly-once"

    def __init__(self, folder, **settings):
        self._folder = folder
        self.config = folder / "client.properties"
        self._start({name.replace("_", "."): value for name, value in settings.items()})
        self.wait()

    def _start(self, settings=None):
        self._found = kafka_process.start(self._folder, settings=settings)
        self.address = self._found["address"]

    def stop(self):
        kafka_process.stop(self._folder)

    def kill(self):
        os.kill(self._found["process"], signal.SIGKILL)
        os.waitpid(self._found["process"], 0)

    def come_back(self):
        """Start the broker again, with its messages and its address."""
        self._start()

    def secure_url(self, topic):
        """Return the URL of a topic at the address with TLS and SASL."""
        return f"kafka://{self._found['secure_address']}/{topic}"

    def client_settings(self):
        """Return the settings in `config`."""
        lines = self.config.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def delete_topic(self, topic):
        self._admin.delete_topics([topic])[topic].result(PATIENCE)

    def delete_before(self, topic, offset):
        """Delete the messages of partition 0 before an offset, as a retention time does."""
        at = TopicPartition(topic, 0, offset)
        self._admin.delete_records([at])[at].result(PATIENCE)

    def allow_only(self, kind, name, operation):
        """Allow the user who logs in only one operation on a resource."""
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:tt", "*", operation,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        self._admin.create_acls([binding])[binding].result(PATIENCE)

    def add_partitions(self, topic, count):
        """Give a topic `count` partitions in total; return when the broker reports all of them."""
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(PATIENCE)
        end = time.monotonic() + PATIENCE
        while len(self._admin.list_topics(topic, timeout=5).topics[topic].partitions) < count:
            assert time.monotonic() < end
            time.sleep(0.05)


def running(folder, **settings):
    """Yield a broker with these settings; skip the test if it cannot run."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"Apache Kafka needs {program}, which is not installed")
    if not INSTALLED.exists():
        pytest.fail(f"{INSTALLED} does not exist: run `make test-stream`")
    broker = ApacheKafka(folder, **settings)
    yield broker
    broker.stop()
