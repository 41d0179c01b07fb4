"""The options of `tt translate-stream`, and the addresses of its input and output.

An address has one of these forms:

kafka://HOST:PORT[,HOST:PORT]/TOPIC
pubsub://PROJECT/SUBSCRIPTION as the input, pubsub://PROJECT/TOPIC as the output
"""

from __future__ import annotations

import dataclasses
import re

from tt.model.errors import UserError, checked, one_of, require, require_one_of
from tt.pipelines.texts.options import TextOptions

_LAST_PORT = 65_535
_LONGEST_LATENCY = 60.0  # seconds
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
DELIVERIES = (EXACTLY_ONCE, AT_LEAST_ONCE)
LOOPBACK = "127.0.0.1"

_BROKER = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}"
_KAFKA = re.compile(rf"kafka://({_BROKER}(?:,{_BROKER})*)/((?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,249}})")
_PUBSUB = re.compile(
    r"pubsub://((?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9])"
    r"/((?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254})"
)


@dataclasses.dataclass(frozen=True)
class KafkaTopic:
    """A Kafka topic.

    Attributes:
      brokers: Bootstrap brokers of the cluster, "host:9092,other:9092".
      topic: Name of the topic.
    """

    brokers: str
    topic: str

    def __str__(self) -> str:
        return f"kafka://{self.brokers}/{self.topic}"


@dataclasses.dataclass(frozen=True)
class PubsubName:
    """A Pub/Sub subscription or topic.

    Attributes:
      project: Google Cloud project.
      name: Name of the subscription or topic in the project.
    """

    project: str
    name: str

    @property
    def subscription(self) -> str:
        """The full resource name, if this is a subscription."""
        return f"projects/{self.project}/subscriptions/{self.name}"

    @property
    def topic(self) -> str:
        """The full resource name, if this is a topic."""
        return f"projects/{self.project}/topics/{self.name}"

    def __str__(self) -> str:
        return f"pubsub://{self.project}/{self.name}"


Address = KafkaTopic | PubsubName


def parse_address(text: str, *, name: str) -> Address:
    """Parse the address of an input or output.

    Args:
      text: The address that the user gave.
      name: The name of the option in error messages, such as "`input`".

    Raises:
      UserError: The text is not an address, or contains a user or password.

    >>> parse_address("kafka://a:9092,b:9092/titles", name="`input`")
    KafkaTopic(brokers='a:9092,b:9092', topic='titles')
    >>> parse_address("pubsub://my-project/titles", name="`output`")
    PubsubName(project='my-project', name='titles')
    """
    # The error does not repeat the address, because it may contain a password.
    if text.startswith("kafka://") and "@" in text:
        raise UserError(
            f"{name} must not contain a user or password. Set them in the file of `kafka_config`"
        )
    if found := _KAFKA.fullmatch(text):
        return KafkaTopic(*found.groups())
    if found := _PUBSUB.fullmatch(text):
        return PubsubName(*found.groups())
    raise UserError(
        f"{name} must be kafka://HOST:PORT/TOPIC or pubsub://PROJECT/NAME; to translate the files "
        f"of a folder as they arrive, use `tt translate-batch --watch 30s`. Received: {text}"
    )


# Kinds of input: their name in errors, the options that only they have, and the types of their
# addresses.
_ONLY: tuple[tuple[str, tuple[str, ...], tuple[type, ...]], ...] = (
    ("Kafka", ("group", "kafka_config", "instance_id", "delivery"), (KafkaTopic,)),
    ("Kafka and Pub/Sub", ("dead_letter", "max_latency", "max_batch"), (KafkaTopic, PubsubName)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """Where to publish metrics.

    Attributes:
      metrics_port: Serve /metrics for Prometheus and /healthz on this port.
      metrics_address: Listen on this address for `metrics_port`.
      metrics_file: Append the metrics to this file as a JSON line every 10 seconds.
    """

    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    metrics_file: str | None = None

    def __post_init__(self) -> None:
        port = self.metrics_port
        in_range = port is None or 0 < port <= _LAST_PORT
        require(in_range, f"`metrics_port` must be 1 to {_LAST_PORT}", port)
        require(
            port is not None or self.metrics_address == LOOPBACK,
            f"`metrics_address` {self.metrics_address} needs `metrics_port`. Set `metrics_port`, "
            "or remove `metrics_address`",
        )


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions(MetricsOptions):
    """The options of a stream.

    Attributes:
      input: Read from kafka://HOST:PORT/TOPIC or pubsub://PROJECT/SUBSCRIPTION.

        Several brokers are separated by commas.
      output: Write to kafka://HOST:PORT/TOPIC or pubsub://PROJECT/TOPIC.
      group: Join this consumer group, whose members share the partitions of the topic.
      fields: Translate this field of JSON messages; repeatable.

        Separate nested fields by dots (product.title). By default, the whole message is the text.
      dead_letter: Write failed messages to this topic instead of `output`.

        A failed message is written unchanged, with the reason in a header.
      delivery: Write each Kafka message exactly once, or at least once.

        Exactly-once writes translations and offsets in one transaction. Without transactions, or if
        the topics are in different clusters, messages are delivered at least once.
      max_latency: Start a batch at most this many seconds after its first message.
      max_batch: Translate at most N messages per batch.
      instance_id: Use this group.instance.id, so that a restarted process gets its partitions back.
      kafka_config: Read librdkafka settings for TLS and SASL from this file of NAME=VALUE lines.
      texts: How to translate the texts.
    """

    input: str
    output: str
    group: str | None = None
    fields: tuple[str, ...] = ()
    dead_letter: str | None = None
    delivery: str = one_of(DELIVERIES, default=EXACTLY_ONCE)
    max_latency: float = 0.1
    max_batch: int = 1000
    instance_id: str | None = None
    kafka_config: str | None = None
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_addresses()
        require(
            all(all(field.split(".")) for field in self.fields),
            "each of `fields` must be a name, or names separated by dots",
            ", ".join(map(repr, self.fields)),
        )
        twice = sorted({field for field in self.fields if self.fields.count(field) > 1})
        require(not twice, "`fields` must not name a field twice", f"{', '.join(twice)} twice")
        require(
            0 < self.max_latency <= _LONGEST_LATENCY,  # not NaN
            f"`max_latency` must be more than 0 and at most {_LONGEST_LATENCY:g} seconds",
            self.max_latency,
        )
        require_one_of("`delivery`", self.delivery, DELIVERIES)
        require(self.max_batch >= 1, "`max_batch` must be at least 1", self.max_batch)

    def _check_addresses(self) -> None:
        source, target, failed = self.source, self.target, self.failed
        require(
            len({type(each) for each in (source, target, failed) if each is not None}) == 1,
            "`input`, `output` and `dead_letter` must all be Kafka topics, or all be Pub/Sub names",
            ", ".join(filter(None, (self.input, self.output, self.dead_letter))),
        )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for what, names, kinds in _ONLY:
            for name in names:
                is_valid = isinstance(source, kinds) or getattr(self, name) == defaults[name]
                require(is_valid, f"`{name}` is only for {what}. Remove the option")
        if isinstance(source, KafkaTopic):  # a subscription and a topic may have the same name
            require(bool(self.group), "`group` is missing. Set the name of the consumer group")
            require(
                source != target,
                "`output` is the same topic as `input`, so translations would be translated "
                "again. Choose another topic",
            )
            require(
                failed != source, "`dead_letter` is the same topic as `input`. Choose another topic"
            )
        require(
            failed != target, "`dead_letter` is the same topic as `output`. Choose another topic"
        )

    @property
    def source(self) -> Address:
        """The topic or subscription to read."""
        return parse_address(self.input, name="`input`")

    @property
    def target(self) -> Address:
        """The topic to write to."""
        return parse_address(self.output, name="`output`")

    @property
    def failed(self) -> Address | None:
        """The topic for failed messages, or None if they are written to `output`."""
        if self.dead_letter is None:
            return None
        return parse_address(self.dead_letter, name="`dead_letter`")
