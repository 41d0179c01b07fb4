"""The options of a translation of a stream, and its addresses.

kafka://HOST:PORT[,HOST:PORT]/TOPIC
pubsub://PROJECT/SUBSCRIPTION to read, pubsub://PROJECT/TOPIC to write
a folder or glob to watch, a folder to write
"""

from __future__ import annotations

import dataclasses
import re

from tt.model.errors import UserError, accept_one_string, one_of, require, require_one_of
from tt.pipelines.texts.options import TextOptions

_LAST_PORT = 65_535
_LONGEST_LATENCY = 60.0  # seconds
DEFAULT_LATENCY = 0.1
DEFAULT_BATCH = 1000
DEFAULT_POLL = 10.0
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
_SCHEME = re.compile(r"[A-Za-z0-9+.-]+:/")
_FILE_SYSTEMS = ("gs:/", "s3:/", "hdfs:/", "file:/")


@dataclasses.dataclass(frozen=True)
class KafkaTopic:
    """A topic of a Kafka cluster.

    Attributes:
      brokers: Brokers by which the cluster is found, "host:9092,other:9092".
      topic: The name of the topic.
    """

    brokers: str
    topic: str

    def __str__(self) -> str:
        return f"kafka://{self.brokers}/{self.topic}"


@dataclasses.dataclass(frozen=True)
class PubsubName:
    """A subscription or a topic of Pub/Sub.

    Attributes:
      project: The Google project.
      name: The name in the project.
    """

    project: str
    name: str

    @property
    def subscription(self) -> str:
        """Pub/Sub's name of the subscription."""
        return f"projects/{self.project}/subscriptions/{self.name}"

    @property
    def topic(self) -> str:
        """Pub/Sub's name of the topic."""
        return f"projects/{self.project}/topics/{self.name}"

    def __str__(self) -> str:
        return f"pubsub://{self.project}/{self.name}"


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder of files, or a glob of them."""

    path: str


Address = KafkaTopic | PubsubName | Folder


def parse_address(text: str, *, name: str) -> Address:
    """Read an address.

    Args:
      text: The text that the user gave.
      name: The name of the option in messages, "`input`".

    Raises:
      UserError: It is no address, or contains a password.

    >>> parse_address("kafka://a:9092,b:9092/titles", name="`input`")
    KafkaTopic(brokers='a:9092,b:9092', topic='titles')
    >>> parse_address("pubsub://my-project/titles", name="`output`")
    PubsubName(project='my-project', name='titles')
    """
    if text.startswith("kafka://") and "@" in text:  # and is not repeated: it may hold a password
        raise UserError(
            f"{name} must be an address without a user or password: those belong into the file of "
            "`kafka_config`"
        )
    if found := _KAFKA.fullmatch(text):
        return KafkaTopic(*found.groups())
    if found := _PUBSUB.fullmatch(text):
        return PubsubName(*found.groups())
    scheme = _SCHEME.match(text)
    require(
        bool(text) and (scheme is None or scheme[0] in _FILE_SYSTEMS),
        f"{name} must be kafka://HOST:PORT/TOPIC, pubsub://PROJECT/NAME, or a folder",
        text,
    )
    return Folder(text)


# The options for some kinds of input.
_ONLY: tuple[tuple[str, tuple[str, ...], tuple[type, ...]], ...] = (
    ("only for Kafka", ("group", "kafka_config", "instance_id", "delivery"), (KafkaTopic,)),
    ("for messages", ("dead_letter", "max_latency", "max_batch"), (KafkaTopic, PubsubName)),
    ("for folders", ("poll",), (Folder,)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """The options of a translation of a stream.

    Attributes:
      input: Kafka topic, kafka://HOST:PORT/TOPIC; Pub/Sub subscription, pubsub://PROJECT/NAME; or
        folder or glob to watch. Separate several brokers by commas.
      output: Kafka topic, Pub/Sub topic, pubsub://PROJECT/TOPIC, or folder to write.
      group: Consumer group. Processes with the same group share the partitions of the topic.
      fields: Field of JSON messages, or column of tables, to translate; repeatable.

        Separate nested fields by dots (product.title). By default the whole message is the text,
        and a table has one column of strings.
      dead_letter: Write failed messages to this topic. By default they go to `output`.

        A failed message is written as it came, with the reason in a header.
      delivery: How often a Kafka message may be written: "exactly-once" or "at-least-once".

        Exactly-once writes translations and offsets in one transaction. Brokers without
        transactions get at-least-once.
      max_latency: Seconds that a message may wait for others before its batch starts.
      max_batch: Most messages per batch.
      instance_id: Kafka's group.instance.id: a restarted process gets its partitions back.
      kafka_config: File of librdkafka settings for TLS and SASL, with NAME=VALUE lines.
      poll: Seconds between two looks at a watched folder.
      metrics_port: Serve /metrics for Prometheus and /healthz at this port.
      metrics_address: Listen at this address for `metrics_port`.
      metrics_file: Append the metrics to this file as a line of JSON every 10 seconds.
      texts: How texts are translated.
    """

    input: str
    output: str
    group: str | None = None
    fields: tuple[str, ...] = ()
    dead_letter: str | None = None
    delivery: str = one_of(DELIVERIES, default=EXACTLY_ONCE)
    max_latency: float = DEFAULT_LATENCY
    max_batch: int = DEFAULT_BATCH
    instance_id: str | None = None
    kafka_config: str | None = None
    poll: float = DEFAULT_POLL
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    metrics_file: str | None = None
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        accept_one_string(self)
        self._check_addresses()
        require(
            all(all(field.split(".")) for field in self.fields),
            "each of `fields` must be a name, or names with dots between",
            ", ".join(map(repr, self.fields)),
        )
        twice = sorted({field for field in self.fields if self.fields.count(field) > 1})
        require(not twice, "each of `fields` must be another field", f"{', '.join(twice)} twice")
        require(
            0 < self.max_latency <= _LONGEST_LATENCY,  # not NaN
            f"`max_latency` must be more than 0 and at most {_LONGEST_LATENCY:g} seconds",
            self.max_latency,
        )
        require_one_of("`delivery`", self.delivery, DELIVERIES)
        require(self.max_batch >= 1, "`max_batch` must be at least 1", self.max_batch)
        require(self.poll > 0, "`poll` must be more than 0 seconds", self.poll)  # not NaN
        port = self.metrics_port
        in_range = port is None or 0 < port <= _LAST_PORT
        require(in_range, f"`metrics_port` must be 1 to {_LAST_PORT}", port)
        require(
            port is not None or self.metrics_address == LOOPBACK,
            "`metrics_address` needs `metrics_port`: give the port, too",
            self.metrics_address,
        )

    def _check_addresses(self) -> None:
        source, target, failed = self.source, self.target, self.failed
        require(
            len({type(each) for each in (source, target, failed) if each is not None}) == 1,
            "`input`, `output` and `dead_letter` must be of one kind: all of Kafka, all of "
            "Pub/Sub, or folders",
            ", ".join(filter(None, (self.input, self.output, self.dead_letter))),
        )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for what, names, kinds in _ONLY:
            for name in names:
                is_right = isinstance(source, kinds) or getattr(self, name) == defaults[name]
                require(is_right, f"`{name}` is {what}: leave it out")
        if isinstance(source, KafkaTopic):  # a subscription and a topic may be namesakes
            require(bool(self.group), "`group` is missing: name the consumer group")
            require(
                source != target,
                "`output` is the topic of `input`, so that translations would be translated "
                "again: name another",
            )
            require(failed != source, "`dead_letter` is the topic of `input`: name another")
        require(failed != target, "`dead_letter` is the topic of `output`: name another")

    @property
    def source(self) -> Address:
        """The topic, subscription or folder to read."""
        return parse_address(self.input, name="`input`")

    @property
    def target(self) -> Address:
        """The topic or folder to write."""
        return parse_address(self.output, name="`output`")

    @property
    def failed(self) -> Address | None:
        """The topic for failed messages, if they have one of their own."""
        if self.dead_letter is None:
            return None
        return parse_address(self.dead_letter, name="`dead_letter`")
