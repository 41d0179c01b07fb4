"""Streams on Dataflow, by Beam's own connectors around `TranslateMessages`.

Beam's Kafka connector is written in Java: the machine that submits the job starts it as an
expansion service. It commits offsets after a bundle is written, so that messages are written at
least once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.gcp.pubsub import PubsubMessage, ReadFromPubSub, WriteToPubSub
from apache_beam.io.kafka import ReadFromKafka, WriteToKafka
from apache_beam.options.pipeline_options import GoogleCloudOptions, StandardOptions

from model.errors import require
from pipelines.remote import dataflow
from pipelines.runners.beam_options import (
    LOCAL_RUNNER,
    find_runner_name,
    is_dataflow,
    parse_arguments,
)
from pipelines.streams.addresses import KafkaTopic, PubsubName
from pipelines.streams.kafka.clients import read_settings
from pipelines.streams.kafka.member import KafkaPlan
from pipelines.streams.kafka.writer import Outputs
from pipelines.streams.messages import SMALLEST, Answer, Message, deliver
from pipelines.streams.options import EXACTLY_ONCE, StreamOptions
from pipelines.streams.plan import StreamPlan
from pipelines.streams.pubsub.messages import PubsubTarget, make_message, message_of
from pipelines.streams.transforms import TranslateMessages

JOB = "translate-stream"
_DEAD_LETTERS, _ANSWERS = "dead_letters", "answers"
# Settings that have the same names and values in librdkafka and in Java, and hold no secret.
_SHARED_SETTINGS = frozenset({"security.protocol", "sasl.mechanism", "client.id", "client.rack"})
_MOST_BYTES = 1_000_000  # of a message: below the default limit of brokers and of Java's producer
_ADDED_BYTES = 200  # that a message adds to its key, value and headers, at most


class _Header(NamedTuple):
    """A header as a row for Java."""

    key: str
    value: bytes


class _Record(NamedTuple):
    """A Kafka message as a row for Java."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[_Header]
    topic: str
    partition: int
    timestamp: int | None


beam.coders.registry.register_coder(_Header, beam.coders.RowCoder)
beam.coders.registry.register_coder(_Record, beam.coders.RowCoder)


def is_elsewhere(arguments: Sequence[str]) -> bool:
    """Return whether Beam's flags name another runner than that of this machine.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return find_runner_name(arguments) != LOCAL_RUNNER.lower()


def check_runner(
    options: StreamOptions, *, arguments: Sequence[str], accelerator: str | None
) -> tuple[list[str], list[str]]:
    """Return Beam's flags with the settings of a stream, and warnings.

    Args:
      options: The options of the stream.
      arguments: Beam's flags.
      accelerator: GPUs of each worker, "nvidia-l4".

    Raises:
      UserError: The runner cannot run streams, or an option is not for it.
    """
    require(
        is_dataflow(arguments),
        "streams run on Dataflow or on this machine: leave out the runner, and start the same "
        "command on as many machines as you like",
        find_runner_name(arguments),
    )
    for name in ("metrics_port", "metrics_file", "instance_id"):
        require(
            getattr(options, name) is None,
            f"`{name}` is for a stream on this machine: leave it out, and see the job's page",
        )
    parsed = parse_arguments(arguments)
    require(
        not parsed.view_as(GoogleCloudOptions).flexrs_goal,
        "`spot` uses Dataflow's Flexible Resource Scheduling, which is for jobs that end: leave it "
        "out",
    )
    notices = []
    if isinstance(options.source, KafkaTopic):
        require(
            shutil.which("java") is not None,
            "Beam's Kafka connector needs Java on the machine that submits the job: install it",
        )
        _read_shared_settings(options.kafka_config)
        if options.delivery == EXACTLY_ONCE:
            notices.append("messages are delivered at-least-once: Beam's connector commits later")
    found = dataflow.with_settings(arguments, job=JOB, shares_model=True, accelerator=accelerator)
    is_said = parsed.view_as(StandardOptions).streaming
    return found if is_said else [*found, "--streaming"], notices


def with_hints(
    arguments: Sequence[str], *, model_bytes: Callable[[], int], accelerator: str | None
) -> list[str]:
    """Add the resources of a worker, for all steps: otherwise Dataflow would not fuse them.

    See `dataflow.translating_hints` for the arguments.

    Raises:
      UserError: Beam cannot read a flag.
    """
    hints = dataflow.translating_hints(arguments, model_bytes=model_bytes, accelerator=accelerator)
    options = parse_arguments(arguments).view_as(StandardOptions)
    given = {hint.partition("=")[0] for hint in options.resource_hints or []}
    added = [f"--resource_hint={name}={hint}" for name, hint in hints.items() if name not in given]
    return [*arguments, *added]


def build(pipeline: beam.Pipeline, *, plan: StreamPlan, translate: TranslateMessages) -> None:
    """Wire Beam's connectors around the translation.

    Args:
      pipeline: Gets the steps.
      plan: The checked topics.
      translate: The translation.
    """
    is_kafka = isinstance(plan, KafkaPlan)
    read, write, parse, make = _of_kafka(plan) if is_kafka else _of_pubsub(plan)
    row = _Record if is_kafka else PubsubMessage
    answers = (
        pipeline
        | "Read" >> read
        | "Messages" >> beam.ParDo(parse)
        | "Translate messages" >> translate
    )
    typed = beam.ParDo(make).with_output_types(row, **{_DEAD_LETTERS: row})
    made = answers | "Make messages" >> typed.with_outputs(_DEAD_LETTERS, main=_ANSWERS)
    _ = made[_ANSWERS] | "Write" >> write(plan.options.target)
    if plan.options.failed is not None:
        _ = made[_DEAD_LETTERS] | "Write dead letters" >> write(plan.options.failed)


_Parts = tuple[beam.PTransform, Callable[[Any], beam.PTransform], beam.DoFn, beam.DoFn]


def _of_kafka(plan: Any) -> _Parts:
    settings = _read_shared_settings(plan.options.kafka_config)
    source = plan.options.source
    assert isinstance(source, KafkaTopic)
    own = {
        "group.id": str(plan.options.group),
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
    }
    read = ReadFromKafka(
        consumer_config={**settings, "bootstrap.servers": source.brokers, **own},
        topics=[source.topic],
        commit_offset_in_finalize=True,
        with_metadata=True,
    )

    def write(topic: KafkaTopic) -> beam.PTransform:
        config = {**settings, "bootstrap.servers": topic.brokers}
        return WriteToKafka(config, topic.topic, with_headers=True)

    return read, write, _ReadRecord(), _MakeRecord(plan.outputs)


def _of_pubsub(plan: Any) -> _Parts:
    read = ReadFromPubSub(subscription=plan.source.subscription, with_attributes=True)

    def write(topic: PubsubName) -> beam.PTransform:
        return WriteToPubSub(topic.topic, with_attributes=True)

    return read, write, _ReadPubsub(plan.source), _MakePubsub(plan.target)


def _read_shared_settings(config: str | None) -> dict[str, str]:
    """Read the settings that Beam's Java connector can have; the job contains them.

    Raises:
      UserError: The file has another setting.
    """
    settings = read_settings(config)
    others = ", ".join(sorted(settings.keys() - _SHARED_SETTINGS))
    require(
        not others,
        f"`kafka_config` {config} has settings that Beam's Java connector does not know, or that "
        "would put a secret into the job. Use brokers without a password in the workers' network, "
        "or run the stream on machines of your own",
        others,
    )
    return settings


class _ReadRecord(beam.DoFn):
    """Rows of Beam's Kafka connector to `Message`s."""

    def process(self, record: Any) -> Iterator[Message]:
        """Yield the message."""
        yield Message(
            value=record.value,
            key=record.key,
            headers=tuple((each.key, each.value) for each in record.headers or ()),
            source=f"{record.topic}/{record.partition}/{record.offset}",
            partition=record.partition,
            offset=record.offset,
            milliseconds=record.timestamp,
        )


class _MakeRecord(beam.DoFn):
    """Answers to rows for Beam's Kafka connector."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def process(self, answer: Answer) -> Iterator[Any]:
        """Yield the largest form of an answer that the topic takes, tagged if a dead letter.

        A retry would not make a message smaller, and Dataflow retries forever.
        """
        outputs = self._outputs
        most = min(outputs.most_bytes or _MOST_BYTES, _MOST_BYTES)
        for attempt in range(SMALLEST + 1):
            found = deliver(
                answer,
                attempt=attempt,
                form=outputs.form,
                has_dead_letter=outputs.dead_letter is not None,
            )
            headers = [_Header(name, value or b"") for name, value in found.headers]
            size = len(found.key or b"") + len(found.value or b"") + _ADDED_BYTES
            if size + sum(len(each.key) + len(each.value) for each in headers) <= most:
                break
        topic = (outputs.dead_letter if found.is_dead_letter else None) or outputs.output
        row = _Record(
            key=found.key,
            value=found.value,
            headers=headers,
            topic=topic,
            partition=answer.message.partition % outputs.partitions[topic],
            timestamp=answer.message.milliseconds,
        )
        yield beam.pvalue.TaggedOutput(_DEAD_LETTERS, row) if found.is_dead_letter else row


class _ReadPubsub(beam.DoFn):
    """Pub/Sub messages of Beam to `Message`s; the time of a message is that of the element."""

    def __init__(self, subscription: PubsubName) -> None:
        self._subscription = subscription

    def process(self, message: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Message]:
        """Yield the message."""
        yield message_of(message, self._subscription, milliseconds=timestamp.micros // 1000)


class _MakePubsub(beam.DoFn):
    """Answers to Pub/Sub messages of Beam."""

    def __init__(self, target: PubsubTarget) -> None:
        self._target = target

    def process(self, answer: Answer) -> Iterator[Any]:
        """Yield the message, tagged if it is a dead letter."""
        topic, made, _ = make_message(answer, target=self._target)
        message = PubsubMessage(made.data, dict(made.attributes), ordering_key=made.ordering_key)
        is_failed = topic == self._target.dead_letter
        yield beam.pvalue.TaggedOutput(_DEAD_LETTERS, message) if is_failed else message
