"""Clients of Kafka: made by the user's settings, and their errors told in one line.

The settings may hold passwords. They are read from the user's file wherever a client is made, so
that no pipeline, no log and no message has them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
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

ANSWER_SECONDS = 10.0  # that brokers have at the start

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


def starts_at_end(settings: Mapping[str, str]) -> bool:
    """Says whether a new group begins with what comes next, not with the oldest message."""
    return _RESETS[settings.get(RESET, "earliest")] == "latest"


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
    from confluent_kafka.admin import AdminClient

    errors: list[KafkaError] = []
    settings = {
        **_of_kind(read_settings(config), leave_out=(*_CONSUMERS, *_PRODUCERS)),
        "bootstrap.servers": brokers,
        "error_cb": errors.append,
        "logger": _quiet,
    }
    admin = _make(AdminClient, settings, config=config)
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
    """Returns what to tell the user of an error after which a client cannot go on."""
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
    }
    if code in denied:
        return UserError(
            f"the brokers at {brokers} do not let this user work with {denied[code]}: grant it"
        )
    gone = (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
    if code in gone:
        return UserError(
            f"a topic or partition at {brokers} is gone: make it, and run the same command again"
        )
    if code == KafkaError._MSG_TIMED_OUT:
        return ServiceError(
            f"the brokers at {brokers} took a message neither at once nor in all tries: see that "
            "they run, and run the same command again; it goes on from what is committed"
        )
    return ServiceError(
        f"the brokers at {brokers} answer with an error ({error.name()}): see their log, and run "
        "the same command again; it goes on from what is committed"
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
