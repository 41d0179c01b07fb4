"""Subscriptions and topics on Dataflow, which reads and writes Pub/Sub itself.

Its service acknowledges a message when what becomes of it is kept for good.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.gcp.pubsub import PubsubMessage, ReadFromPubSub, WriteToPubSub

from pipelines.streams.addresses import PubsubName
from pipelines.streams.messages import Answer, Message
from pipelines.streams.pubsub.source import message_of
from pipelines.streams.pubsub.writer import PubsubTarget, make_message

_FAILED, _WRITTEN = "failed", "written"


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class ReadSubscription(beam.PTransform):
    """The messages of a subscription."""

    subscription: PubsubName

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Message]:
        """Wires the transform."""
        return (
            begin
            | "Read"
            >> ReadFromPubSub(subscription=self.subscription.subscription, with_attributes=True)
            | "Messages" >> beam.Map(message_of, self.subscription)
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteTopics(beam.PTransform):
    """Answers to topics: those that failed to one of their own, if there is one."""

    target: PubsubTarget

    def expand(self, answers: beam.PCollection[Answer]) -> Any:
        """Wires the transform."""
        target = self.target
        if target.dead_letter is None:
            made = answers | "Make messages" >> beam.ParDo(_MakeMessages(target))
        else:
            both = answers | "Make messages" >> beam.ParDo(_MakeMessages(target)).with_outputs(
                _FAILED, main=_WRITTEN
            )
            made = both[_WRITTEN]
            _ = both[_FAILED] | "Write failed" >> _write(target.dead_letter)
        return made | "Write" >> _write(target.output)


def _write(topic: PubsubName) -> WriteToPubSub:
    return WriteToPubSub(topic.topic, with_attributes=True)


class _MakeMessages(beam.DoFn):
    def __init__(self, target: PubsubTarget) -> None:
        self._target = target

    def process(self, answer: Answer) -> Iterator[Any]:
        topic, made, _ = make_message(answer, target=self._target)
        message = PubsubMessage(made.data, dict(made.attributes), ordering_key=made.ordering_key)
        is_failed = topic == self._target.dead_letter
        yield beam.pvalue.TaggedOutput(_FAILED, message) if is_failed else message
