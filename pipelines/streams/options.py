"""The options of a translation of a stream."""

from __future__ import annotations

import dataclasses

from model.errors import accept_one_string, require
from pipelines.streams.addresses import Address, Folder, KafkaTopic, parse_address
from pipelines.texts.options import TextOptions

_LAST_PORT = 65_535
_LONGEST_LATENCY = 60.0  # seconds
DEFAULT_LATENCY = 0.5
DEFAULT_BATCH = 1000
DEFAULT_POLL = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """What to translate as it comes, and where to.

    Attributes:
      input: Topic of Kafka to read, kafka://HOST:PORT/TOPIC, several brokers separated by commas;
        or subscription of Pub/Sub, pubsub://PROJECT/SUBSCRIPTION; or folder or glob to watch.
      output: Topic to write, kafka://HOST:PORT/TOPIC or pubsub://PROJECT/TOPIC; or folder.
      group: Consumer group of Kafka whose offsets say what is done: the same group goes on where
        the last run ended, and must have no other reader. A new group begins with the oldest
        message. Pub/Sub has none.
      fields: Field of JSON messages, or column of tables, to translate, with dots where it is
        inside others (product.title); repeatable. By default the whole message is the text, and a
        table has one column of strings.
      dead_letter: Topic for messages that fail, as they came, with the reason in a header. By
        default they go to `output`, with the status "failed".
      max_latency: Seconds that a message may wait for others, to be translated together with them,
        before its translation begins.
      max_batch: Most messages that are translated together, and are read twice after a crash.
      kafka_config: File of librdkafka's settings for TLS and SASL, NAME=VALUE lines.
      poll: Seconds between two looks at a watched folder.
      metrics_port: Port at which this machine's programs find metrics as Prometheus reads them.
      metrics_file: File to which metrics are appended as a line of JSON every 10 seconds.
      texts: How texts are treated.
    """

    input: str
    output: str
    group: str | None = None
    fields: tuple[str, ...] = ()
    dead_letter: str | None = None
    max_latency: float = DEFAULT_LATENCY
    max_batch: int = DEFAULT_BATCH
    kafka_config: str | None = None
    poll: float = DEFAULT_POLL
    metrics_port: int | None = None
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
        require(self.max_batch >= 1, "`max_batch` must be at least 1", self.max_batch)
        require(
            self.metrics_port is None or 0 < self.metrics_port <= _LAST_PORT,
            f"`metrics_port` must be 1 to {_LAST_PORT}",
            self.metrics_port,
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
        for name, value in (("`group`", self.group), ("`kafka_config`", self.kafka_config)):
            require(is_kafka or value is None, f"{name} is for Kafka alone: leave it out", value)

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
