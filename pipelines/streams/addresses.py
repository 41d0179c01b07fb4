"""Where messages come from and go to: kafka://HOST:PORT[,HOST:PORT]/TOPIC."""

from __future__ import annotations

import dataclasses
import re

from model.errors import UserError, require

KAFKA = "kafka://"
_BROKER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LAST_PORT = 65_535


@dataclasses.dataclass(frozen=True)
class KafkaTopic:
    """A topic of a Kafka cluster.

    Attributes:
      brokers: Brokers by which the cluster is found, "host:9092,other:9092".
      topic: Its name.
    """

    brokers: str
    topic: str

    @classmethod
    def parse(cls, text: str, *, name: str) -> KafkaTopic:
        """Reads an address.

        Args:
          text: What the user gave.
          name: What messages call it, "`input`".

        Raises:
          UserError: It is no such address, or holds a password.

        >>> KafkaTopic.parse("kafka://a:9092,b:9092/titles", name="`input`")
        KafkaTopic(brokers='a:9092,b:9092', topic='titles')
        """
        example = "kafka://localhost:9092/titles"
        if "@" in text:  # and is not repeated: it may hold a password
            raise UserError(
                f"{name} must be an address without a user or password, as in {example}: those "
                "belong into the file of `kafka_config`"
            )
        require(text.startswith(KAFKA), f"{name} must be a topic of Kafka, as in {example}", text)
        brokers, _, topic = text.removeprefix(KAFKA).partition("/")
        found = [_BROKER.fullmatch(broker) for broker in brokers.split(",")]
        require(
            all(each is not None and 0 < int(each["port"]) <= _LAST_PORT for each in found),
            f"{name} must name brokers with their ports, as in {example}",
            text,
        )
        require(
            _TOPIC.fullmatch(topic) is not None and topic not in (".", ".."),
            f"{name} must name a topic of letters, digits, '.', '_' and '-', as in {example}",
            text,
        )
        return cls(brokers, topic)

    def __str__(self) -> str:
        return f"{KAFKA}{self.brokers}/{self.topic}"
