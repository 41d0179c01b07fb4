"""Where partitions are read on: what a group has committed, or where it begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.streams.kafka import clients
from pipelines.streams.kafka.clients import ANSWER_SECONDS
from pipelines.streams.kafka.committing import GroupReading

if TYPE_CHECKING:
    from confluent_kafka import Consumer


def list_partitions(consumer: Consumer, source: GroupReading) -> list[int]:
    """Lists the partitions of a source: those of its topic that are its share.

    Raises:
      UserError: The brokers do not answer, or the topic is gone.
    """
    import confluent_kafka

    name = source.topic.topic
    try:
        found = consumer.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
    except confluent_kafka.KafkaException as error:
        raise clients.explain_silence(
            [error.args[0]], brokers=source.topic.brokers, config=source.config
        ) from None
    if found.error is not None:
        raise clients.explain_error(found.error, brokers=source.topic.brokers)
    return source.choose(found.partitions)


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a partition is read on."""

    offset: int
    end: int  # the offset of the message that comes next
    is_committed: bool
    lost: int = 0  # messages that the brokers deleted before they were read
    sign: str = ""  # what stands beside the committed offset, see `Sign`


def find_positions(
    consumer: Consumer, source: GroupReading, partitions: Sequence[int], *, is_new: bool = False
) -> dict[int, Position]:
    """Finds where a group has got to.

    Args:
      consumer: A consumer of the group.
      source: What is read.
      partitions: Partitions of the topic.
      is_new: Whether they were added while the run goes on: all of their messages are to be read.

    Raises:
      UserError: The brokers do not answer.
    """
    import confluent_kafka
    from confluent_kafka import TopicPartition

    brokers, name = source.topic.brokers, source.topic.topic
    at_end = not is_new and clients.starts_at_end(clients.read_settings(source.config))
    found: dict[int, Position] = {}
    try:
        committed = consumer.committed(
            [TopicPartition(name, partition) for partition in partitions], timeout=ANSWER_SECONDS
        )
        for each in committed:
            if each.error is not None:
                raise clients.explain_error(each.error, brokers=brokers)
            first, end = consumer.get_watermark_offsets(
                TopicPartition(name, each.partition), timeout=ANSWER_SECONDS
            )
            is_committed = each.offset >= 0
            begin = each.offset if is_committed else end if at_end else first
            lost = max(first - begin, 0) if is_committed else 0
            found[each.partition] = Position(
                max(begin, first), max(begin, end), is_committed, lost, each.metadata or ""
            )
    except confluent_kafka.KafkaException as error:
        raise clients.explain_silence(
            [error.args[0]], brokers=brokers, config=source.config
        ) from None
    return found
