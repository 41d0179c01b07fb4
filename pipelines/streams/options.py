"""The options of a translation of a stream."""

from __future__ import annotations

import dataclasses

from model.errors import accept_one_string, one_of, require, require_one_of
from pipelines.streams.addresses import Address, Folder, KafkaTopic, parse_address
from pipelines.texts.options import TextOptions

_LAST_PORT = 65_535
_LONGEST_LATENCY = 60.0  # seconds
DEFAULT_LATENCY = 0.1
DEFAULT_BATCH = 1000
DEFAULT_POLL = 10.0
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
DELIVERIES = (EXACTLY_ONCE, AT_LEAST_ONCE)
LOOPBACK = "127.0.0.1"


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
        require(
            self.metrics_port is None or 0 < self.metrics_port <= _LAST_PORT,
            f"`metrics_port` must be 1 to {_LAST_PORT}",
            self.metrics_port,
        )
        require(
            self.metrics_port is not None or self.metrics_address == LOOPBACK,
            "`metrics_address` needs `metrics_port`: give the port, too",
            self.metrics_address,
        )

    def _check_addresses(self) -> None:
        kinds = {type(each) for each in (self.source, self.target, self.failed) if each is not None}
        require(
            len(kinds) == 1,
            "`input`, `output` and `dead_letter` must be of one kind: all of Kafka, all of "
            "Pub/Sub, or folders",
            ", ".join(filter(None, (self.input, self.output, self.dead_letter))),
        )
        is_kafka = isinstance(self.source, KafkaTopic)
        if is_kafka:
            require(bool(self.group), "`group` is missing: name the consumer group")
        require(  # a subscription and a topic may be namesakes
            not is_kafka or self.source != self.target,
            "`output` is the topic of `input`, so that translations would be translated again: "
            "name another",
        )
        taken = {"`output`": self.target, **({"`input`": self.source} if is_kafka else {})}
        for name, address in taken.items():
            require(
                self.failed != address,
                f"`dead_letter` is the topic of {name}: name another, or leave it out",
            )
        is_folder = isinstance(self.source, Folder)
        of_messages = {
            "dead_letter": self.dead_letter is not None,
            "max_latency": self.max_latency != DEFAULT_LATENCY,
            "max_batch": self.max_batch != DEFAULT_BATCH,
        }
        for name, is_given in of_messages.items():
            require(not (is_folder and is_given), f"`{name}` is for messages: leave it out")
        require(is_folder or self.poll == DEFAULT_POLL, "`poll` is for folders: leave it out")
        require(self.poll > 0, "`poll` must be more than 0 seconds", self.poll)  # not NaN
        of_kafka = {
            "group": self.group is not None,
            "kafka_config": self.kafka_config is not None,
            "instance_id": self.instance_id is not None,
            "delivery": self.delivery != EXACTLY_ONCE,
        }
        for name, is_given in of_kafka.items():
            require(is_kafka or not is_given, f"`{name}` is only for Kafka: leave it out")

    @property
    def source(self) -> Address:
        """The topic or subscription to read."""
        return parse_address(self.input, name="`input`")

    @property
    def target(self) -> Address:
        """The topic to write."""
        return parse_address(self.output, name="`output`")

    @property
    def failed(self) -> Address | None:
        """The topic of messages that fail, if they have one of their own."""
        if self.dead_letter is None:
            return None
        return parse_address(self.dead_letter, name="`dead_letter`")
