"""Run a stream on Dataflow, with `TranslateMessages` between Beam's own connectors.

Beam's Kafka connector is written in Java. The machine that submits the job starts it as an
expansion service, and Dataflow runs it next to the Python workers. The connector commits offsets up
to five minutes after it has written a bundle, so messages are delivered at least once.

Dataflow retries a failed bundle forever, and no retry can fix a worker that has other versions than
the job. Therefore, such a worker does not raise an error, but marks all its messages as failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import apache_beam as beam
import grpc
import numpy as np
from apache_beam.io.gcp.pubsub import PubsubMessage, ReadFromPubSub, WriteToPubSub
from apache_beam.io.kafka import ReadFromKafka, WriteToKafka
from apache_beam.options.pipeline_options import CrossLanguageOptions, StandardOptions
from apache_beam.transforms import util
from apache_beam.utils.subprocess_server import JavaJarServer, SubprocessServer

from tt.model.engines.translator import Translator
from tt.model.errors import ServiceError, UserError, first_line, require
from tt.pipelines.inference.side_by_side import use_all_devices
from tt.pipelines.inference.transforms import ModelDoFn
from tt.pipelines.runners import dataflow
from tt.pipelines.runners.beam_options import find_runner_name, is_dataflow, parse_arguments
from tt.pipelines.runners.transforms import check_versions, versions_here
from tt.pipelines.streams.kafka_clients import read_settings
from tt.pipelines.streams.kafka_commits import KafkaOutputs
from tt.pipelines.streams.kafka_member import KafkaPlan
from tt.pipelines.streams.messages import (
    Answer,
    Delivery,
    Message,
    Outputs,
    answer_messages,
    fail,
)
from tt.pipelines.streams.options import EXACTLY_ONCE, KafkaTopic, PubsubName, StreamOptions
from tt.pipelines.streams.plan import StreamPlan
from tt.pipelines.streams.pubsub import PubsubPlan, make_message, message_of
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import FAILED, TextFields


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class TranslateMessages(beam.PTransform):
    """Translates each message to one answer, in batches that are no longer than a bundle."""

    load_translator: Callable[[], Translator]  # called once per worker process; must be picklable
    form: TextFields = dataclasses.field(default_factory=TextFields)
    options: TextOptions = dataclasses.field(default_factory=TextOptions)
    max_batch: int  # messages per batch
    versions: Mapping[str, str] = dataclasses.field(default_factory=versions_here)  # of the job

    def expand(self, messages: beam.PCollection[Message]) -> beam.PCollection[Answer]:
        """Wire the transform."""
        return (
            messages
            | "Batch"
            >> beam.BatchElements(min_batch_size=self.max_batch, max_batch_size=self.max_batch)
            | "Translate" >> beam.ParDo(_TranslateBatch(self))
        )


class _TranslateBatch(ModelDoFn):
    def __init__(self, config: TranslateMessages) -> None:
        super().__init__(config.load_translator, options=config.options)
        self._form, self._versions = config.form, dict(config.versions)
        self._fault = ""  # the reason why this worker cannot translate

    def setup(self) -> None:
        # `BatchElements` logs a line per bundle.
        logging.getLogger(util.__name__).setLevel(logging.WARNING)
        try:
            check_versions(self._versions)
        except UserError as error:
            self._fault = str(error)
            logging.error("all messages of this worker fail: %s", self._fault)
            return
        super().setup()
        self.model = dataclasses.replace(self.model, translator=use_all_devices(self.translator))

    def process(self, batch: list[Message]) -> Iterator[Answer]:
        if self._fault:
            self.count_rows(statuses={FAILED: len(batch)}, flags={})
            yield from (fail(each, self._fault, form=self._form) for each in batch)
            return
        answers, found = answer_messages(batch, form=self._form, model=self.model)
        self.count(found)
        yield from answers


JOB = "translate-stream"
_DEAD_LETTERS, _ANSWERS = "dead_letters", "answers"
# Settings that have the same names and values in librdkafka and in Java, and contain no secret.
_SHARED_SETTINGS = frozenset({"security.protocol", "sasl.mechanism", "client.id", "client.rack"})
# Name of the expansion service in Beam's option `beam_services`.
_EXPANSION_SERVICE = "sdks:java:io:expansion-service:shadowJar"
_MOST_BYTES = 1_000_000  # maximum size of a message if the limit of the topic is unknown
_REQUEST_BYTES = 1_048_576  # default limit of Java's producer for a request with one message
_BUFFER_BYTES = 30_000_000  # maximum size of a message that fits into the producer's 32 MiB
_ADDED_BYTES = 200  # maximum bytes of a message in addition to its key, value and headers
_HEADER_BYTES = 10  # maximum bytes of a header in addition to its name and value

# Rows for Java. Beam supports neither postponed annotations, which classes in this file would have,
# nor `bytes | None`: it would write such a field as a Python object, which Java cannot read. Java
# reads the partition as an int32.
_Bytes = Optional[bytes]  # noqa: UP045
_Int = Optional[int]  # noqa: UP045
_Header = NamedTuple("_Header", [("key", str), ("value", bytes)])  # noqa: UP014
_Record = NamedTuple(  # noqa: UP014
    "_Record",
    [
        ("key", _Bytes),
        ("value", _Bytes),
        ("headers", Sequence[_Header]),
        ("partition", np.int32),
        ("timestamp", _Int),
    ],
)
beam.coders.registry.register_coder(_Header, beam.coders.RowCoder)
beam.coders.registry.register_coder(_Record, beam.coders.RowCoder)


def check_runner(
    options: StreamOptions, *, arguments: Sequence[str], accelerator: str | None
) -> tuple[list[str], list[str]]:
    """Return Beam's flags with the settings for a stream, and warnings.

    Args:
      options: The options of the stream.
      arguments: Beam's flags.
      accelerator: GPUs per worker, such as "nvidia-l4".

    Raises:
      UserError: The runner cannot run streams, or does not support an option.
    """
    require(
        is_dataflow(arguments),
        "a stream runs only on Dataflow or on this machine. Received: "
        f"{find_runner_name(arguments)}. Remove the runner, and start the same command on several "
        "machines to share the work",
    )
    for name in ("metrics_port", "metrics_file", "instance_id"):
        require(
            getattr(options, name) is None,
            f"`{name}` is only for a stream on this machine. Remove the option, and check the "
            "job's page",
        )
    notices = []
    if isinstance(options.source, KafkaTopic):
        _read_shared_settings(options.kafka_config)
        if options.delivery == EXACTLY_ONCE:
            notices.append(
                "messages are delivered at-least-once: Beam's connector commits offsets up to five "
                "minutes later, and a new job translates the last messages again"
            )
    found = dataflow.with_settings(arguments, job=JOB, shares_model=True, accelerator=accelerator)
    is_given = parse_arguments(arguments).view_as(StandardOptions).streaming
    return found if is_given else [*found, "--streaming"], notices


def with_hints(
    arguments: Sequence[str], *, model_bytes: Callable[[], int], accelerator: str | None
) -> list[str]:
    """Add the resources of a worker to Beam's flags, as hints for all steps.

    Dataflow does not fuse steps that have different hints. See `dataflow.translating_hints` for the
    arguments.

    Raises:
      UserError: Beam cannot read a flag.
    """
    hints = dataflow.translating_hints(arguments, model_bytes=model_bytes, accelerator=accelerator)
    options = parse_arguments(arguments).view_as(StandardOptions)
    given = {hint.partition("=")[0] for hint in options.resource_hints or []}
    added = [f"--resource_hint={name}={hint}" for name, hint in hints.items() if name not in given]
    return [*arguments, *added]


def build(pipeline: beam.Pipeline, *, plan: StreamPlan, translate: TranslateMessages) -> None:
    """Add Beam's connectors and the translation between them to a pipeline.

    Args:
      pipeline: The pipeline that gets the steps.
      plan: The checked topics.
      translate: The translation.

    Raises:
      ServiceError: Beam cannot start its Kafka connector.
      UserError: The message size limit of a topic is too small, or the settings have changed.
    """
    row: Any = PubsubMessage
    with contextlib.ExitStack() as stack:
        if isinstance(plan, KafkaPlan):
            row = _Record
            stack.enter_context(_expansion_service(pipeline))
            read, parse, make, write = _kafka_steps(plan)
        else:
            assert isinstance(plan, PubsubPlan)
            read, parse, make, write = _pubsub_steps(plan)
        typed = make.with_output_types(row, **{_DEAD_LETTERS: row})
        made = (
            pipeline
            | "Read" >> read
            | "Messages" >> parse
            | "Translate messages" >> translate
            | "Make messages" >> typed.with_outputs(_DEAD_LETTERS, main=_ANSWERS)
        )
        _ = made[_ANSWERS] | "Write" >> write(plan.options.target)
        if plan.options.failed is not None:
            _ = made[_DEAD_LETTERS] | "Write dead letters" >> write(plan.options.failed)


@contextlib.contextmanager
def _expansion_service(pipeline: beam.Pipeline) -> Iterator[None]:
    """Start Beam's Java program at most once, as Beam's option `beam_services` configures it.

    Raises:
      ServiceError: The program cannot be downloaded or started.
    """
    services = pipeline.options.view_as(CrossLanguageOptions).beam_services
    try:
        with JavaJarServer.beam_services(services), SubprocessServer.cache_subprocesses():
            yield
    except (RuntimeError, OSError, grpc.RpcError) as error:
        reason = first_line(error).partition(". ")[0]
        raise ServiceError(
            f"Beam's Kafka connector does not start ({reason}). Check "
            "Java and the network, or set the path of its jar after -- with "
            f"""--beam_services='{{"{_EXPANSION_SERVICE}": "/path/to.jar"}}'"""
        ) from error


# Three steps that read rows, convert rows to messages, and convert answers to rows; and a function
# that returns the step for writing rows to a topic.
_Steps = tuple[beam.PTransform, beam.ParDo, beam.ParDo, Callable[[Any], beam.PTransform]]


def _kafka_steps(plan: KafkaPlan) -> _Steps:
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
    most_bytes = min(plan.outputs.most_bytes or _MOST_BYTES, _BUFFER_BYTES)
    request = {"max.request.size": str(max(most_bytes, _REQUEST_BYTES))}

    def write(topic: KafkaTopic) -> beam.PTransform:
        config = {**settings, "bootstrap.servers": topic.brokers, **request}
        return WriteToKafka(config, topic.topic, with_headers=True)

    make = beam.Map(_make_record, outputs=plan.outputs, most_bytes=most_bytes)
    return read, beam.Map(_read_record), make, write


def _pubsub_steps(plan: PubsubPlan) -> _Steps:
    read = ReadFromPubSub(subscription=plan.source.subscription, with_attributes=True)

    def write(topic: PubsubName) -> beam.PTransform:
        return WriteToPubSub(topic.topic, with_attributes=True)

    parse = beam.Map(_read_pubsub, subscription=plan.source)
    return read, parse, beam.Map(_make_pubsub, target=plan.outputs), write


def _read_shared_settings(config: str | None) -> dict[str, str]:
    """Read the settings for Beam's Java connector, which become part of the job.

    Raises:
      UserError: The file has a setting that the connector cannot have.
    """
    settings = read_settings(config)
    others = ", ".join(sorted(settings.keys() - _SHARED_SETTINGS))
    require(
        not others,
        f"`kafka_config` {config} has settings that Beam's Java connector does not know, or that "
        f"would store a secret in the job: {others}. Choose brokers in the workers' network that "
        "need no password, or run the stream on your own machines",
    )
    return settings


def _read_record(record: Any) -> Message:
    """Convert a row of Beam's Kafka connector to a message."""
    return Message(
        value=record.value,
        key=record.key,
        headers=tuple((each.key, each.value) for each in record.headers or ()),
        source=f"{record.topic}/{record.partition}/{record.offset}",
        partition=int(record.partition),
        offset=int(record.offset),
        # Messages of old clients have the timestamp -1, which Java refuses to write.
        milliseconds=int(record.timestamp) if record.timestamp >= 0 else None,
    )


def _make_record(answer: Answer, *, outputs: KafkaOutputs, most_bytes: int) -> Any:
    """Convert an answer to a row for Beam's Kafka connector, tagged if it is a dead letter.

    The row has the largest form of the answer that the topics accept. Dataflow would retry a larger
    message forever.
    """
    found = outputs.deliver_within(answer, fits=lambda found: _size(found) <= most_bytes)
    row = _Record(
        key=found.key,
        value=found.value,
        # Beam's Java coder cannot write a header without a value.
        headers=[_Header(name, value or b"") for name, value in found.headers],
        partition=np.int32(answer.message.partition % outputs.partitions[found.topic]),
        timestamp=answer.message.milliseconds,
    )
    is_failed = found.topic == outputs.dead_letter
    return beam.pvalue.TaggedOutput(_DEAD_LETTERS, row) if is_failed else row


def _size(found: Delivery) -> int:
    """Return the largest number of bytes that Kafka may count for a message."""
    size = _ADDED_BYTES + len(found.key or b"") + len(found.value or b"")
    return size + sum(_HEADER_BYTES + len(n.encode()) + len(v or b"") for n, v in found.headers)


def _read_pubsub(
    message: Any, timestamp: Any = beam.DoFn.TimestampParam, *, subscription: PubsubName
) -> Message:
    """Convert Beam's Pub/Sub message, with the element's timestamp if the message has none."""
    return message_of(message, subscription, milliseconds=timestamp.micros // 1000)


def _make_pubsub(answer: Answer, *, target: Outputs) -> Any:
    """Convert an answer to Beam's Pub/Sub message, tagged if it is a dead letter."""
    topic, made, _ = make_message(answer, target=target)
    message = PubsubMessage(made.data, dict(made.attributes), ordering_key=made.ordering_key)
    is_failed = topic == target.dead_letter
    return beam.pvalue.TaggedOutput(_DEAD_LETTERS, message) if is_failed else message
