"""Clients of Kafka: made by the user's settings, and their errors told in one line.

The settings may hold passwords. They are read from the user's file wherever a client is made, so
that no pipeline, no log and no message has them.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from model.errors import ServiceError, UserError
from model.extras import install_extra
from pipelines.storage.files import read_bytes
from pipelines.storage.first_look import look_first
from pipelines.storage.paths import is_local
from pipelines.streams.addresses import KafkaTopic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 10.0  # that brokers have at the start

_TRANSACTION_SECONDS = 30.0  # new brokers first make a topic for transactions
_OTHER_ASSIGNORS = ("range", "roundrobin", "sticky")
SESSION_MSEC = 10_000  # after which the group gives the partitions of a dead member to others
POLL_MSEC = 600_000  # after which the group gives up a member that polls no more
# A member that dies in a transaction holds up its partitions for this long.
TRANSACTION_MSEC = 15_000

# Settings that options replace, or on which the delivery guarantees rest.
_OWN = {
    "bootstrap.servers": "give the brokers in the addresses",
    "metadata.broker.list": "give the brokers in the addresses",
    "group.id": "use `group`",
    "group.instance.id": "use `instance_id`",
    "group.protocol": "members use the classic protocol",
    "enable.auto.commit": "offsets are committed when translations are written",
    "enable.auto.offset.store": "offsets are committed when translations are written",
    "enable.partition.eof": "it is not needed",
    "isolation.level": "only committed messages are read",
    "partition.assignment.strategy": "members use cooperative-sticky",
    "transactional.id": "each member has its own",
}
RESET = "auto.offset.reset"  # where a new group begins
_RESETS = {"earliest": "earliest", "smallest": "earliest", "beginning": "earliest",
           "latest": "latest", "largest": "latest", "end": "latest"}  # fmt: skip

# Of one kind of client: the other would complain of them. The beginnings of librdkafka's names,
# https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
_CONSUMERS = (
    "auto.offset", "check.crcs", "fetch.", "isolation.level", "max.poll", "partition.assignment",
    "queued.", "session.timeout", "heartbeat.",
)  # fmt: skip
_PRODUCERS = (
    "acks", "request.required.acks", "batch.", "compression.", "delivery.timeout",
    "enable.idempotence", "linger.ms", "message.send.max.retries", "message.timeout", "partitioner",
    "queue.buffering", "queuing.strategy", "request.timeout", "retries", "sticky.partitioning",
    "transaction.",
)  # fmt: skip

_PROPERTY = re.compile(r'property[: ]+"([\w.]+)"')
_quiet = logging.getLogger(
    "tt.kafka"
)  # what librdkafka says of connections; errors come by callback
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def check_installed() -> None:
    """Checks that the client is installed.

    Raises:
      UserError: It is not.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"kafka:// needs a package that is not installed: {install_extra('kafka')}"
        ) from error


def read_settings(path: str | None) -> dict[str, str]:
    """Reads a file of librdkafka's settings, NAME=VALUE lines; # begins a comment line.

    Raises:
      UserError: It cannot be read, or says what is not its to say. No value is repeated.
    """
    if path is None:
        return {}
    try:
        lines = _read(path).decode().splitlines()
    except OSError as error:
        raise UserError(
            f"`kafka_config` {path} cannot be read: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"`kafka_config` {path} is not UTF-8 text") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals:
            raise UserError(f"`kafka_config` {path}, line {number}: not NAME=VALUE")
        if name in _OWN:
            raise UserError(f"`kafka_config` {path} must not have {name}: {_OWN[name]}")
        if name in found:
            raise UserError(f"`kafka_config` {path} has {name} twice: leave one out")
        if name == RESET and value not in _RESETS:
            raise UserError(f"`kafka_config` {path}: {RESET} must be earliest or latest")
        found[name] = value
    return found


def _read(path: str) -> bytes:
    if is_local(path):
        return Path(path).read_bytes()
    look_first([path])
    return read_bytes(path)


def start_at_end(consumer: Consumer, topic: KafkaTopic, *, config: str | None) -> None:
    """Commit the ends of the partitions, if a new group is to begin with the next message.

    Without a commit, a member that restarts before its first commit would skip messages.

    Args:
      consumer: A consumer of the group that has not subscribed yet.
      topic: The topic.
      config: File of the user's settings, which may set auto.offset.reset.

    Raises:
      KafkaException: The brokers do not answer.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    if _RESETS[read_settings(config).get(RESET, "earliest")] != "latest":
        return
    found = consumer.list_topics(topic.topic, timeout=ANSWER_SECONDS).topics[topic.topic]
    asked = [TopicPartition(topic.topic, partition) for partition in found.partitions]
    if any(each.offset >= 0 for each in consumer.committed(asked, timeout=ANSWER_SECONDS)):
        return
    for each in asked:
        each.offset = consumer.get_watermark_offsets(each, timeout=ANSWER_SECONDS)[1]
    try:
        consumer.commit(offsets=asked, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:  # another member has just done it
            raise


def make_consumer(
    brokers: str,
    *,
    group: str,
    config: str | None,
    note: Callable[[KafkaError], object],
    instance: str | None = None,
) -> Consumer:
    """Make a member of a consumer group that commits only when it is told to.

    Args:
      brokers: Bootstrap brokers of the cluster.
      group: Consumer group.
      config: File of the user's settings.
      note: Takes connection errors, in the thread that calls the consumer.
      instance: Name of a static member (`group.instance.id`).

    Raises:
      UserError: librdkafka does not accept a setting.
    """
    import confluent_kafka

    settings: dict[str, Any] = {
        "queued.max.messages.kbytes": 16_384,
        "session.timeout.ms": SESSION_MSEC,
        "heartbeat.interval.ms": 1000,  # a rebalance takes two or three of them
        "topic.metadata.refresh.interval.ms": 10_000,  # finds new partitions and deleted topics
        **_of_kind(read_settings(config), leave_out=_PRODUCERS),
        "bootstrap.servers": brokers,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
        # The member sets each position itself. A position that is lost must not be skipped.
        RESET: "error",
        "error_cb": note,
        "logger": _quiet,
    }
    settings.setdefault("max.poll.interval.ms", POLL_MSEC)
    if instance is not None:
        settings["group.instance.id"] = instance
    return _make(confluent_kafka.Consumer, settings, config=config)


def make_producer(
    brokers: str,
    *,
    config: str | None,
    note: Callable[[KafkaError], object],
    most_bytes: int | None = None,
    transactional_id: str | None = None,
) -> Producer:
    """Make a producer that keeps the order of messages and waits for all in-sync replicas.

    Args:
      brokers: Bootstrap brokers of the cluster.
      config: File of the user's settings.
      note: Takes connection errors, in the thread that calls the producer.
      most_bytes: Size of the largest message that the topics allow, if it is known.
      transactional_id: Makes a transactional producer.

    Raises:
      UserError: librdkafka does not accept a setting.
    """
    import confluent_kafka

    settings: dict[str, Any] = {
        "enable.idempotence": True,
        "linger.ms": 5,
        **_of_kind(read_settings(config), leave_out=_CONSUMERS),
        "bootstrap.servers": brokers,
        "allow.auto.create.topics": False,
        "error_cb": note,
        "logger": _quiet,
    }
    if most_bytes is not None:
        settings.setdefault("message.max.bytes", most_bytes)
    if transactional_id is not None:
        settings.setdefault("transaction.timeout.ms", TRANSACTION_MSEC)
        settings["transactional.id"] = transactional_id
        settings["enable.idempotence"] = True
    return _make(confluent_kafka.Producer, settings, config=config)


def _make_admin(
    brokers: str, *, config: str | None, note: Callable[[KafkaError], object]
) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    settings = {
        **_of_kind(read_settings(config), leave_out=(*_CONSUMERS, *_PRODUCERS)),
        "bootstrap.servers": brokers,
        "error_cb": note,
        "logger": _quiet,
    }
    return _make(AdminClient, settings, config=config)


def _of_kind(settings: Mapping[str, str], *, leave_out: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if not name.startswith(leave_out)}


def _make(
    kind: Callable[[dict[str, Any]], Any], settings: dict[str, Any], *, config: str | None
) -> Any:
    import confluent_kafka

    try:
        return kind(settings)
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        text = str(error)  # which may hold a value: it is not repeated
        found = _PROPERTY.search(text)
        named = found[1] if found else next((name for name in settings if name in text), None)
        what = f"{named} " if named else "a setting "
        raise UserError(
            f"`kafka_config` {config}: librdkafka does not take {what}"
            "(see https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md for "
            "names and values): Java's names are others"
        ) from None


class FoundTopics(NamedTuple):
    """What the brokers say of topics."""

    partitions: dict[str, list[int]]  # by topic
    most_bytes: int | None  # size of the largest message that all of them take, if it is known
    cluster: str | None  # the ID of the cluster, if the brokers tell it


def find_topics(
    brokers: str, topics: Mapping[str, KafkaTopic], *, config: str | None
) -> FoundTopics:
    """Finds topics, and does not make any.

    Args:
      brokers: Brokers by which the cluster is found.
      topics: The topics, by what messages call them, "`input`".
      config: File of the user's settings.

    Raises:
      UserError: No broker answers, or there is no such topic.
    """
    import confluent_kafka

    errors: list[KafkaError] = []
    admin = _make_admin(brokers, config=config, note=errors.append)
    end = time.monotonic() + ANSWER_SECONDS
    try:
        cluster = admin.list_topics(timeout=ANSWER_SECONDS)
    except confluent_kafka.KafkaException as error:
        admin.poll(0)
        raise explain_silence([error.args[0], *errors], brokers=brokers, config=config) from None
    found = cluster.topics
    for name, topic in topics.items():
        if topic.topic not in found:
            raise UserError(
                f"there is no topic {topic.topic} at {brokers}, which {name} names: make it first, "
                "or check the name and your rights to see it"
            )
        if (fault := found[topic.topic].error) is not None:
            raise explain_error(fault, brokers=brokers)
    names = [topic.topic for topic in topics.values()]
    limits = _find_limits(admin, names, seconds=max(end - time.monotonic(), 1.0))
    partitions = {name: sorted(found[name].partitions) for name in names}
    return FoundTopics(partitions, limits, cluster.cluster_id)


def check_rights(
    brokers: str,
    *,
    config: str | None,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    group: str | None = None,
) -> None:
    """Check that the user may read and write topics and join a group.

    Brokers that do not tell the rights are not asked again: they refuse later.

    Args:
      brokers: Bootstrap brokers of the cluster.
      config: File of the user's settings.
      reads: Topics to read.
      writes: Topics to write.
      group: Consumer group to join.

    Raises:
      UserError: The user lacks a right, or the group is in use with another protocol.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AclOperation

    admin = _make_admin(brokers, config=config, note=lambda error: None)
    settings = {"include_authorized_operations": True, "request_timeout": ANSWER_SECONDS}
    for names, right in ((reads, AclOperation.READ), (writes, AclOperation.WRITE)):
        if not names:
            continue
        answers = admin.describe_topics(TopicCollection(list(names)), **settings)
        for name, answer in answers.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                rights = answer.result(ANSWER_SECONDS).authorized_operations
                if rights and right not in rights:
                    raise UserError(
                        f"this user must not {right.name.lower()} the topic {name} at {brokers}: "
                        f"grant {right.name}"
                    )
    if not group:
        return
    try:
        answer = admin.describe_consumer_groups([group], **settings)[group]
        found = answer.result(ANSWER_SECONDS)
    except TimeoutError:
        return
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise explain_error(error.args[0], brokers=brokers) from None
        return  # these brokers do not describe groups
    rights = found.authorized_operations
    if rights and AclOperation.READ not in rights:
        raise UserError(f"this user must not read as group {group} at {brokers}: grant READ")
    if found.members and found.partition_assignor in _OTHER_ASSIGNORS:
        raise _explain_protocol(group)


def find_missing_transactions(brokers: str, *, config: str | None) -> str:
    """Return why the brokers have no transactions; "" if they have.

    Raises:
      UserError: The user has no right to use transactions, or the brokers do not answer.
    """
    from confluent_kafka import KafkaError, KafkaException

    producer = make_producer(
        brokers,
        config=config,
        note=lambda error: None,
        transactional_id=f"tt-check-{uuid.uuid4().hex}",
    )
    try:
        producer.init_transactions(_TRANSACTION_SECONDS)
    except KafkaException as error:
        found = error.args[0]
        if found.code() in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
            return "these brokers have no transactions"
        if found.code() == KafkaError._TIMED_OUT:
            raise ServiceError(
                f"the brokers at {brokers} do not begin a transaction within "
                f"{_TRANSACTION_SECONDS:g} s. See their log, or use `delivery=at-least-once`"
            ) from None
        raise explain_error(found, brokers=brokers) from None
    return ""


def _find_limits(admin: Any, topics: list[str], *, seconds: float) -> int | None:
    """Returns the least `max.message.bytes` of topics; None if this user may not know."""
    import confluent_kafka
    from confluent_kafka.admin import ConfigResource

    wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    found = []
    for answer in admin.describe_configs(wanted, request_timeout=seconds).values():
        try:
            entry = answer.result(seconds).get("max.message.bytes")
        except (confluent_kafka.KafkaException, TimeoutError):
            continue  # the rights for it are others than those for messages
        if entry is not None and entry.value is not None:
            found.append(int(entry.value))
    return min(found, default=None)


def explain_silence(errors: list[KafkaError], *, brokers: str, config: str | None) -> UserError:
    """Returns what to tell the user where no broker gave an answer."""
    from confluent_kafka import KafkaError

    for error in errors:
        if error.code() == KafkaError._AUTHENTICATION:
            return explain_error(error, brokers=brokers)
        if error.code() == KafkaError._SSL:
            return UserError(
                f"the brokers at {brokers} and this machine do not agree on TLS: check the "
                "ssl. settings of `kafka_config`"
            )
    advice = "" if config else ", and give `kafka_config` if they want TLS or SASL"
    return ServiceError(
        f"no Kafka broker answers at {brokers} within {ANSWER_SECONDS:g} s: check that one runs "
        f"there{advice}"
    )


def explain_error(error: KafkaError, *, brokers: str) -> UserError:
    """Return what to tell the user about an error after which a client cannot continue."""
    from confluent_kafka import KafkaError

    code = error.code()
    if code == KafkaError._AUTHENTICATION:
        return UserError(
            f"the brokers at {brokers} do not know this user: check the sasl. settings of "
            "`kafka_config`"
        )
    denied = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "a topic",
        KafkaError.GROUP_AUTHORIZATION_FAILED: "the group of `group`",
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactions (IDs that begin with tt-)",
    }
    if code in denied:
        return UserError(
            f"the brokers at {brokers} do not let this user work with {denied[code]}: grant it"
        )
    if code == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
        return _explain_protocol("of `group`")
    if code == KafkaError.FENCED_INSTANCE_ID:
        return UserError(
            "another process of the group has the same `instance_id`: give each process its own"
        )
    gone = (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
    if code in gone:
        return UserError(
            f"a topic or partition at {brokers} was deleted. Create it, and run the same command "
            "again"
        )
    return ServiceError(
        f"the brokers at {brokers} answer with an error ({error.name()}). See their log, and run "
        "the same command again; it continues after the committed offsets"
    )


def _explain_protocol(group: str) -> UserError:
    return UserError(
        f"another program uses the consumer group {group} with another protocol than "
        "cooperative-sticky. Choose another `group`"
    )


def is_passing(error: KafkaError) -> bool:
    """Says whether a client overcomes an error by itself, by trying again."""
    from confluent_kafka import KafkaError

    passing = (
        KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
        KafkaError._TIMED_OUT, KafkaError._MAX_POLL_EXCEEDED, KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.BROKER_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION, KafkaError._WAIT_COORD,
    )  # fmt: skip
    return not error.fatal() and (bool(error.retriable()) or error.code() in passing)
