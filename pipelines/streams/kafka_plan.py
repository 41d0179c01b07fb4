"""Check topics, rights and the brokers' transactions before a run."""

from __future__ import annotations

import dataclasses

from model.errors import counted, require
from pipelines.storage.paths import normalize_path
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka_clients import Cluster, check_installed
from pipelines.streams.kafka_member import KafkaPlan
from pipelines.streams.kafka_writer import Outputs
from pipelines.streams.messages import MessageFormat
from pipelines.streams.options import AT_LEAST_ONCE, EXACTLY_ONCE, StreamOptions


def plan_topics(options: StreamOptions, *, form: MessageFormat) -> KafkaPlan:
    """Check the brokers and topics of a stream; reads and writes no message.

    Args:
      options: The options of a stream from a topic to a topic.
      form: Where the texts are in its messages.

    Raises:
      UserError: The client is not installed, no broker answers, a topic does not exist, or the
        user lacks a right.
    """
    check_installed()
    options = dataclasses.replace(
        options, kafka_config=options.kafka_config and normalize_path(options.kafka_config)
    )
    source, target, failed = options.source, options.target, options.failed
    assert isinstance(source, KafkaTopic)
    assert isinstance(target, KafkaTopic)
    outputs = {"`output`": target}
    if isinstance(failed, KafkaTopic):
        require(
            failed.brokers == target.brokers,
            "`dead_letter` must have the brokers of `output`",
            str(failed),
        )
        outputs["`dead_letter`"] = failed
    reading, writing = (Cluster(each.brokers, options.kafka_config) for each in (source, target))
    partitions, here = reading.find_topics({"`input`": source})
    of_outputs, there = writing.find_topics(outputs)
    names = [topic.topic for topic in outputs.values()]
    group = options.group or ""
    reading.check_rights(read=source.topic, write=names if reading == writing else (), group=group)
    delivery, notices = options.delivery, []
    if delivery == EXACTLY_ONCE:
        problem = "the topics are in different clusters"
        if here == there:
            problem = writing.find_missing_transactions()
        if problem:
            delivery = AT_LEAST_ONCE
            notices.append(f"messages are delivered {delivery}: {problem}")
    count = counted(partitions[source.topic], "partition")
    return KafkaPlan(
        options=options,
        outputs=Outputs(
            cluster=writing,
            output=target.topic,
            dead_letter=outputs["`dead_letter`"].topic if len(outputs) > 1 else None,
            partitions=of_outputs,
            most_bytes=writing.find_limit(names),
            form=form,
        ),
        is_exactly_once=delivery == EXACTLY_ONCE,
        lines=(f"Reading {source} as group {group}: {count}, {delivery}",),
        notices=tuple(notices),
    )
