"""Check topics, rights and the brokers' transactions before a run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from model.errors import counted
from pipelines.storage.paths import normalize_path
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.member import KafkaMember
from pipelines.streams.kafka.writer import Output, Outputs
from pipelines.streams.messages import MessageFormat
from pipelines.streams.metrics import StreamMetrics
from pipelines.streams.options import AT_LEAST_ONCE, EXACTLY_ONCE, StreamOptions
from pipelines.streams.plan import AnswerMessages


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaPlan:
    """A stream from a topic to a topic; see `StreamPlan`."""

    options: StreamOptions
    topic: KafkaTopic  # to read
    outputs: Outputs
    is_exactly_once: bool
    lines: tuple[str, ...]
    notices: tuple[str, ...] = ()

    def run(
        self,
        answer: AnswerMessages,
        *,
        metrics: StreamMetrics,
        stop: threading.Event,
        report: Callable[[str], object],
    ) -> None:
        """Join the group and translate until `stop` is set; see `StreamPlan`."""
        member = KafkaMember(
            options=self.options,
            topic=self.topic,
            outputs=self.outputs,
            is_exactly_once=self.is_exactly_once,
            answer=answer,
            metrics=metrics,
            stop=stop,
            report=report,
        )
        member.run()


def plan_topics(options: StreamOptions, *, form: MessageFormat) -> KafkaPlan:
    """Check the brokers and topics of a stream; reads and writes no message.

    Args:
      options: The options of a stream from a topic to a topic.
      form: Where the texts are in its messages.

    Raises:
      UserError: The client is not installed, no broker answers, a topic does not exist, or the
        user lacks a right.
    """
    clients.check_installed()
    source, target, failed = options.source, options.target, options.failed
    assert isinstance(source, KafkaTopic)
    assert isinstance(target, KafkaTopic)
    assert failed is None or isinstance(failed, KafkaTopic)
    config = options.kafka_config and normalize_path(options.kafka_config)
    options = dataclasses.replace(options, kafka_config=config)
    found = _find_all(options, {"`input`": source, "`output`": target, "`dead_letter`": failed})
    clients.check_rights(
        source.brokers, reads=[source.topic], group=options.group or "", config=config
    )
    for topic in filter(None, (target, failed)):
        clients.check_rights(topic.brokers, writes=[topic.topic], config=config)

    def output(topic: KafkaTopic) -> Output:
        at = found[topic.brokers]
        return Output(topic, partitions=len(at.partitions[topic.topic]), most_bytes=at.most_bytes)

    outputs = Outputs(
        output=output(target),
        dead_letter=None if failed is None else output(failed),
        form=form,
        config=config,
    )
    is_exactly_once, notices = options.delivery == EXACTLY_ONCE, []
    if is_exactly_once:
        clusters = {
            found[topic.brokers].cluster for topic in filter(None, (source, target, failed))
        }
        problem = "the topics are in different clusters"
        if len(clusters) == 1:
            problem = clients.find_missing_transactions(target.brokers, config=config)
        if problem:
            is_exactly_once = False
            notices.append(f"messages are delivered {AT_LEAST_ONCE}: {problem}")
    partitions = counted(len(found[source.brokers].partitions[source.topic]), "partition")
    delivery = EXACTLY_ONCE if is_exactly_once else AT_LEAST_ONCE
    return KafkaPlan(
        options=options,
        topic=source,
        outputs=outputs,
        is_exactly_once=is_exactly_once,
        lines=(f"Reading {source} as group {options.group}: {partitions}, {delivery}",),
        notices=tuple(notices),
    )


def _find_all(
    options: StreamOptions, topics: dict[str, KafkaTopic | None]
) -> dict[str, clients.FoundTopics]:
    """Return the topics by their brokers."""
    of_brokers: dict[str, dict[str, KafkaTopic]] = {}
    for name, topic in topics.items():
        if topic is not None:
            of_brokers.setdefault(topic.brokers, {})[name] = topic
    return {
        brokers: clients.find_topics(brokers, named, config=options.kafka_config)
        for brokers, named in of_brokers.items()
    }
