"""Create Kafka clients with the user's settings, and explain their errors in one line.

The settings may contain passwords. Each client reads them from the user's file, so that no
pipeline, log or message contains them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tt.model.errors import GoneError, ServiceError, UserError, require
from tt.model.extras import install_extra
from tt.model.storage.files import read_bytes
from tt.model.storage.stores import check_buckets
from tt.pipelines.streams.options import KafkaTopic

with contextlib.suppress(ImportError):  # from the extra `kafka`; see `check_installed`
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource
ANSWER_SECONDS = 10.0  # time limit for an answer of the brokers before a run
_TRANSACTION_SECONDS = 30.0  # longer, because new brokers first create a topic for transactions
_RESET = "auto.offset.reset"  # the position from which a new group reads
_RESETS = ("earliest", "smallest", "beginning", "latest", "largest", "end")

# Settings for all clients. By default, librdkafka forgets all brokers when they are down. The
# transaction of a producer then waits forever for a coordinator that librdkafka no longer knows.
_COMMON = {"metadata.recovery.strategy": "none"}
# Settings that users cannot change, because tt's options or its delivery guarantees determine them.
_OWN = (
    "bootstrap.servers", "metadata.broker.list", "group.id", "group.instance.id", "group.protocol",
    "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "isolation.level",
    "partition.assignment.strategy", "transactional.id", "enable.idempotence",
)  # fmt: skip
_CONSUMER = {
    "queued.max.messages.kbytes": 4096,  # per partition, fetched ahead
    "session.timeout.ms": 10_000,  # until the group reassigns the partitions of a dead member
    "heartbeat.interval.ms": 1000,  # a rebalance takes two or three heartbeats
    "max.poll.interval.ms": 600_000,  # until the group removes a member that is stuck in a batch
    "topic.metadata.refresh.interval.ms": 10_000,  # to find new partitions and deleted topics
}
_OWN_CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    _RESET: "error",  # the member sets each position, so that no lost message goes unnoticed
}
_PRODUCER = {
    "linger.ms": 5,
    "transaction.timeout.ms": 15_000,  # a dead member blocks its partitions this long
}
_OWN_PRODUCER = {"enable.idempotence": True, "allow.auto.create.topics": False}

# This logger is silent, because librdkafka also reports errors to a callback.
_quiet = logging.getLogger("tt.kafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def check_installed() -> None:
    """Check that the Kafka client is installed.

    Raises:
      UserError: The client is not installed.
    """
    require(
        importlib.util.find_spec("confluent_kafka") is not None,
        f"kafka:// needs a package that is not installed. Install it: {install_extra('kafka')}",
    )


def read_settings(path: str | None) -> dict[str, str]:
    """Read a file of librdkafka settings: NAME=VALUE lines, and comment lines that start with #.

    Raises:
      UserError: The file cannot be read, or has a setting that tt makes itself. The error does not
        repeat any values.
    """
    if path is None:
        return {}
    name = f"`kafka_config` {path}"
    try:
        check_buckets([path])
        lines = read_bytes(path).decode().splitlines()
    except OSError as error:
        raise UserError(
            f"{name} cannot be read: {error.strerror or error}. Check the path and your permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 text. Convert it to UTF-8") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not key or key.startswith("#"):
            continue
        require(bool(equals), f"{name}, line {number}: a setting must be NAME=VALUE")
        require(
            key not in _OWN,
            f"{name} must not have {key}, which tt sets itself. Remove this setting",
        )
        is_valid = key != _RESET or value in _RESETS
        require(is_valid, f"{name}: {_RESET} must be earliest or latest")
        found[key] = value
    return found


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Creates clients for a Kafka cluster, and checks its topics.

    Attributes:
      brokers: Bootstrap brokers, "host:9092,other:9092".
      config: File with the user's settings.
    """

    brokers: str
    config: str | None = None

    def consumer(
        self, group: str, *, note: Callable[[KafkaError], object], instance: str | None = None
    ) -> Consumer:
        """Create a member of a consumer group that commits only on request.

        Args:
          group: Consumer group.
          note: Called with connection errors, in the thread that calls the consumer.
          instance: Name of a static member (`group.instance.id`).

        Raises:
          UserError: librdkafka refuses a setting.
        """
        own = {**_OWN_CONSUMER, "group.id": group, "error_cb": note}
        if instance is not None:
            own["group.instance.id"] = instance
        return self._make(Consumer, _CONSUMER, own)

    def producer(
        self,
        *,
        note: Callable[[KafkaError], object] = lambda error: None,
        most_bytes: int | None = None,
        transactional_id: str | None = None,
    ) -> Producer:
        """Create a producer that keeps the order of messages and waits for all in-sync replicas.

        Args:
          note: Called with connection errors, in the thread that calls the producer.
          most_bytes: Size of the largest message that the topics allow, if it is known.
          transactional_id: ID of a transactional producer.

        Raises:
          UserError: librdkafka refuses a setting.
        """
        own: dict[str, Any] = {**_OWN_PRODUCER, "error_cb": note}
        if transactional_id is not None:
            own["transactional.id"] = transactional_id
        limit = {} if most_bytes is None else {"message.max.bytes": most_bytes}
        return self._make(Producer, {**_PRODUCER, **limit}, own)

    def find_topics(self, topics: Mapping[str, KafkaTopic]) -> tuple[dict[str, int], str | None]:
        """Return the number of partitions of each topic, and the ID of the cluster.

        Args:
          topics: The topics by their names in error messages, such as "`input`".

        Raises:
          UserError: No broker answers, or a topic does not exist.
        """
        errors: list[KafkaError] = []
        admin = self._make(AdminClient, {}, {"error_cb": errors.append})
        try:
            cluster = admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            admin.poll(0)
            raise self._explain_no_answer([*errors, error.args[0]]) from None
        partitions = {}
        for name, topic in topics.items():
            found = cluster.topics.get(topic.topic)
            if found is None or (found.error is not None and is_gone(found.error)):
                raise UserError(
                    f"there is no topic {topic.topic} at {self.brokers}, but {name} names it. "
                    "Create the topic, or check its name and your permissions"
                )
            if found.error is not None:
                raise self.explain(found.error)
            partitions[topic.topic] = len(found.partitions)
        return partitions, cluster.cluster_id

    def find_limit(self, topics: Sequence[str]) -> int | None:
        """Return the smallest `max.message.bytes` of topics, or None if it may not be read."""
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        # The client must exist until the answers arrive, so it needs a variable.
        admin = self._make(AdminClient, {}, {})
        found = []
        for answer in admin.describe_configs(wanted, request_timeout=ANSWER_SECONDS).values():
            with contextlib.suppress(KafkaException, TimeoutError):
                entry = answer.result(ANSWER_SECONDS).get("max.message.bytes")
                if entry is not None and entry.value is not None:
                    found.append(int(entry.value))
        return min(found, default=None)

    def find_missing_transactions(self) -> str:
        """Return why the brokers offer no transactions, or "" if they do.

        Raises:
          UserError: The user may not use transactions, or the brokers do not answer.
        """
        producer = self.producer(transactional_id=f"tt-check-{uuid.uuid4().hex}")
        try:
            producer.init_transactions(_TRANSACTION_SECONDS)
        except KafkaException as error:
            found = error.args[0]
            if found.code() in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
                return "the brokers do not support transactions"
            raise self.explain(found) from None
        return ""

    def start_at_end(self, consumer: Consumer, topic: str) -> None:
        """Commit the ends of the partitions if a new group must start with the next message.

        Without this commit, a member that restarts before its first commit would skip messages.

        Raises:
          KafkaException: The brokers do not answer.
        """
        if read_settings(self.config).get(_RESET, _RESETS[0]) in _RESETS[:3]:
            return
        found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        asked = [TopicPartition(topic, partition) for partition in found.partitions]
        if any(each.offset >= 0 for each in consumer.committed(asked, timeout=ANSWER_SECONDS)):
            return
        for each in asked:
            each.offset = consumer.get_watermark_offsets(each, timeout=ANSWER_SECONDS)[1]
        try:
            consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:  # another member just did it
                raise

    def explain(self, error: KafkaError) -> UserError:
        """Return the error to raise when a client cannot continue."""
        if text := _explain(error):
            kind = GoneError if is_gone(error) else UserError
            return kind(f"the brokers at {self.brokers} {text}")
        return ServiceError(
            f"the brokers at {self.brokers} answer with an error ({error.name()}). Check their "
            "log, and run the same command again. It resumes at the committed offsets"
        )

    def _explain_no_answer(self, errors: Sequence[KafkaError]) -> UserError:
        for error in errors:
            if _explain(error):
                return self.explain(error)
        advice = "" if self.config else ", and set `kafka_config` if the brokers need TLS or SASL"
        return ServiceError(
            f"no Kafka broker answers at {self.brokers} within {ANSWER_SECONDS:g} s. Check that a "
            f"broker runs there{advice}"
        )

    def _make(self, kind: Callable[[Any], Any], defaults: Any, own: Any) -> Any:
        """Create a client. librdkafka ignores settings for other kinds of clients."""
        settings = {**_COMMON, **defaults, **read_settings(self.config), **own, "logger": _quiet}
        try:
            return kind({**settings, "bootstrap.servers": self.brokers})
        except (KafkaException, TypeError, ValueError) as error:
            named = next((name for name in settings if name in str(error)), "a setting")
            raise UserError(
                f"librdkafka does not accept {named} in `kafka_config` {self.config}. Choose "
                "settings from https://github.com/confluentinc/librdkafka/blob/master/"
                "CONFIGURATION.md, because the settings of Java's client differ"
            ) from None  # the error of librdkafka may contain a value


# Errors from which a client does not recover by itself. Each has the rest of the sentence "the
# brokers at ...".
_GONE = "no longer have a topic or partition. Create the topic, and run the same command again"
_PERMANENT = {
    "_AUTHENTICATION": "do not know this user. Check the sasl.* settings in `kafka_config`",
    "_SSL": "and this machine do not agree on TLS. Check the ssl.* settings in `kafka_config`",
    "TOPIC_AUTHORIZATION_FAILED": "do not let this user use a topic. Grant READ and DESCRIBE on "
    "`input`, and WRITE and DESCRIBE on `output` and `dead_letter`",
    "GROUP_AUTHORIZATION_FAILED": "do not let this user join `group`. Grant READ on the group",
    "CLUSTER_AUTHORIZATION_FAILED": "do not let this user write. Grant IDEMPOTENT_WRITE on the "
    "cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "do not let this user use transactions. Grant WRITE "
    "on transactional IDs that begin with tt-, or set `delivery=at-least-once`",
    "INCONSISTENT_GROUP_PROTOCOL": "have a program in the consumer group that does not use the "
    "cooperative-sticky protocol. Choose another `group`",
    "FENCED_INSTANCE_ID": "have another process with the same `instance_id`. Set another "
    "`instance_id` for each process",
    "UNKNOWN_TOPIC_OR_PART": _GONE,
    "_UNKNOWN_TOPIC": _GONE,
    "_UNKNOWN_PARTITION": _GONE,
}


def is_transient(error: KafkaError) -> bool:
    """Return whether a client recovers from an error by itself."""
    return not error.fatal() and not _explain(error)


def is_gone(error: KafkaError) -> bool:
    """Return whether an error means that a topic or partition does not exist."""
    return _explain(error) == _GONE


def _explain(error: KafkaError) -> str:
    """Return the rest of the sentence "the brokers at ...", or "" for a transient error."""
    name = error.name()
    if name == "_FATAL" and "group.instance.id" in error.str():
        name = "FENCED_INSTANCE_ID"
    return _PERMANENT.get(name, "")
