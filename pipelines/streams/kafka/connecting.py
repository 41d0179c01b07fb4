"""Topics, looked at before a run: are they there, and where does reading begin?"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from model.errors import counted
from pipelines.storage.paths import normalize_path
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.ends import Ends
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.connections import close_connection
from pipelines.streams.kafka.positions import Position, find_positions
from pipelines.streams.kafka.signs import check_alone
from pipelines.streams.kafka.source import KafkaSource
from pipelines.streams.kafka.writer import KafkaTarget
from pipelines.streams.messages import MessageFormat
from pipelines.streams.options import StreamOptions

LEAVE_SECONDS = 60.0  # after which a worker lets go of a share of which it reads nothing


def connect_topics(
    options: StreamOptions,
    *,
    form: MessageFormat,
    run: str,
    most_shares: int | None = None,
    report: Callable[[str], object] = lambda line: None,
) -> Ends:
    """Looks at brokers and topics; reads and writes no message.

    Args:
      options: The options of a stream from a topic to a topic.
      form: Where texts stand in its messages.
      run: Name of its `LiveRun`.
      most_shares: Sources among which the partitions are divided, at most: those of workers that
        may take over from one another. None is one source, whose worker is this process.
      report: Takes a line if there may be another run of the group, which takes a while to see.

    Raises:
      UserError: The client is not installed, no broker answers, a topic is not there, or another
        run works for the group.
    """
    clients.check_installed()
    topics = {
        name: address
        for name, address in (
            ("`input`", options.source), ("`output`", options.target),
            ("`dead_letter`", options.failed),
        )
        if isinstance(address, KafkaTopic)
    }  # fmt: skip
    _check_topics(topics, config=options.kafka_config)
    source = KafkaSource(
        topic=topics["`input`"],
        group=options.group or "",
        config=options.kafka_config and normalize_path(options.kafka_config),
        most=options.max_batch,
        run=run,
    )
    positions, term = _find_positions(source, report=report)
    source = dataclasses.replace(source, term=term)
    sources = [source]
    if most_shares is not None:
        shares = min(len(positions), most_shares)
        sources = source.divide(shares, leave_seconds=LEAVE_SECONDS)
    notices = [_describe_loss(source, partition, at) for partition, at in positions.items()]
    return Ends(
        sources=tuple(sources),
        target=KafkaTarget(
            output=topics["`output`"],
            dead_letter=topics.get("`dead_letter`"),
            form=form,
            config=source.config,
            run=run,
        ),
        lines=(_describe(source, positions),),
        notices=tuple(filter(None, notices)),
        close=functools.partial(close_connection, source),
    )


def _check_topics(topics: Mapping[str, KafkaTopic], *, config: str | None) -> None:
    of_brokers: dict[str, dict[str, KafkaTopic]] = {}
    for name, topic in topics.items():
        of_brokers.setdefault(topic.brokers, {})[name] = topic
    for brokers, named in of_brokers.items():
        clients.find_topics(brokers, named, config=config)


def _find_positions(
    source: KafkaSource, *, report: Callable[[str], object]
) -> tuple[dict[int, Position], int]:
    """Returns where a group has got to, and the term of a run that begins now."""
    topics = {"`input`": source.topic}
    found = clients.find_topics(source.topic.brokers, topics, config=source.config)
    consumer = clients.make_consumer(
        source.topic.brokers, group=source.group, config=source.config, note=lambda error: None
    )

    def find() -> dict[int, Position]:
        return find_positions(consumer, source, found.partitions[source.topic.topic])

    try:
        term = check_alone(
            lambda: {partition: at.sign for partition, at in find().items()},
            group=source.group,
            report=report,
        )
        return find(), term
    finally:
        consumer.close()


def _describe(source: KafkaSource, positions: Mapping[int, Position]) -> str:
    waiting = sum(each.end - each.offset for each in positions.values())
    return (
        f"Reading {source.topic} as group {source.group}: "
        f"{counted(len(positions), 'partition')}, {counted(waiting, 'message')} waiting"
    )


def _describe_loss(source: KafkaSource, partition: int, at: Position) -> str:
    if not at.lost:
        return ""
    return (
        f"{counted(at.lost, 'message')} of partition {partition} of {source.topic.topic} were "
        f"deleted by the brokers before the group {source.group} had read them: let the topic keep "
        "messages for longer"
    )
