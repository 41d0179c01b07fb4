"""Where messages come from and go to.

kafka://HOST:PORT[,HOST:PORT]/TOPIC
pubsub://PROJECT/SUBSCRIPTION to read, pubsub://PROJECT/TOPIC to write
a folder or glob to watch, a folder to write
"""

from __future__ import annotations

import dataclasses
import re

from model.errors import UserError, require

KAFKA = "kafka://"
_BROKER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LAST_PORT = 65_535

PUBSUB = "pubsub://"
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_SCHEME = re.compile(r"[A-Za-z0-9+.-]+:/")
_FILE_SYSTEMS = ("gs:/", "s3:/", "hdfs:/", "file:/")
_RESOURCE = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254}")


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


@dataclasses.dataclass(frozen=True)
class PubsubName:
    """A subscription or a topic of Pub/Sub.

    Attributes:
      project: Its Google project.
      name: Its name in the project.
    """

    project: str
    name: str

    @classmethod
    def parse(cls, text: str, *, name: str) -> PubsubName:
        """Reads an address.

        Args:
          text: What the user gave.
          name: What messages call it, "`input`".

        Raises:
          UserError: It is no such address.

        >>> PubsubName.parse("pubsub://my-project/titles", name="`output`")
        PubsubName(project='my-project', name='titles')
        """
        project, _, resource = text.removeprefix(PUBSUB).partition("/")
        require(
            text.startswith(PUBSUB)
            and _PROJECT.fullmatch(project) is not None
            and _RESOURCE.fullmatch(resource) is not None,
            f"{name} must name a project and a subscription or topic in it, as in "
            f"{PUBSUB}my-project/titles",
            text,
        )
        return cls(project, resource)

    @property
    def subscription(self) -> str:
        """What Pub/Sub calls the subscription of this name."""
        return f"projects/{self.project}/subscriptions/{self.name}"

    @property
    def topic(self) -> str:
        """What Pub/Sub calls the topic of this name."""
        return f"projects/{self.project}/topics/{self.name}"

    def __str__(self) -> str:
        return f"{PUBSUB}{self.project}/{self.name}"


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder of files, or a glob of them."""

    path: str

    @classmethod
    def parse(cls, text: str, *, name: str) -> Folder:
        """Reads a path.

        Raises:
          UserError: It looks like an address.
        """
        scheme = _SCHEME.match(text)
        require(
            bool(text) and (scheme is None or scheme[0] in _FILE_SYSTEMS),
            f"{name} must be {KAFKA}HOST:PORT/TOPIC, {PUBSUB}PROJECT/NAME, or a folder",
            text,
        )
        return cls(text)

    def __str__(self) -> str:
        return self.path


Address = KafkaTopic | PubsubName | Folder


def parse_address(text: str, *, name: str) -> Address:
    """Reads an address of any kind.

    Raises:
      UserError: It is none.

    >>> str(parse_address("pubsub://my-project/titles", name="`output`"))
    'pubsub://my-project/titles'
    """
    if text.startswith(PUBSUB):
        return PubsubName.parse(text, name=name)
    if text.startswith(KAFKA):
        return KafkaTopic.parse(text, name=name)
    return Folder.parse(text, name=name)
