"""The options of a translation of a stream."""

from __future__ import annotations

import dataclasses

from model.errors import require
from pipelines.streams.addresses import KafkaTopic
from pipelines.texts.options import TextOptions

_LAST_PORT = 65_535
_LONGEST_LATENCY = 60.0  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """What to translate as it comes, and where to.

    Attributes:
      input: Topic to read, kafka://HOST:PORT/TOPIC; several brokers are separated by commas.
      output: Topic to write, kafka://HOST:PORT/TOPIC.
      group: Consumer group whose offsets say what is done: the same group goes on where the last
        run ended, and must have no other reader. A new group begins with the oldest message.
      fields: Field of JSON messages to translate, with dots where it is inside others
        (product.title); repeatable. By default the whole message is the text.
      dead_letter: Topic for messages that fail, as they came, with the reason in a header. By
        default they go to `output`, with the status "failed".
      max_latency: Seconds that a message may wait for others, to be translated together with them,
        before its translation begins.
      max_batch: Most messages that are translated together, and are read twice after a crash.
      kafka_config: File of librdkafka's settings for TLS and SASL, NAME=VALUE lines.
      metrics_port: Port at which this machine's programs find metrics as Prometheus reads them.
      metrics_file: File to which metrics are appended as a line of JSON every 10 seconds.
      texts: How texts are treated.
    """

    input: str
    output: str
    group: str
    fields: tuple[str, ...] = ()
    dead_letter: str | None = None
    max_latency: float = 0.5
    max_batch: int = 256
    kafka_config: str | None = None
    metrics_port: int | None = None
    metrics_file: str | None = None
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        topics = {"`input`": self.source, "`output`": self.target, "`dead_letter`": self.failed}
        require(
            self.source != self.target,
            "`output` is the topic of `input`, so that translations would be translated again: "
            "name another",
        )
        for name in ("`input`", "`output`"):
            require(
                topics["`dead_letter`"] != topics[name],
                f"`dead_letter` is the topic of {name}: name another, or leave it out",
            )
        require(bool(self.group), "`group` is empty: name the consumer group")
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

    @property
    def source(self) -> KafkaTopic:
        """The topic to read."""
        return KafkaTopic.parse(self.input, name="`input`")

    @property
    def target(self) -> KafkaTopic:
        """The topic to write."""
        return KafkaTopic.parse(self.output, name="`output`")

    @property
    def failed(self) -> KafkaTopic | None:
        """The topic of messages that fail, if they have one of their own."""
        if self.dead_letter is None:
            return None
        return KafkaTopic.parse(self.dead_letter, name="`dead_letter`")
