"""Translate the messages of a topic as a member of a consumer group.

The main thread reads, writes, commits, and takes part in the group. A second thread translates.
While it translates a batch, the main thread commits the previous batch and reads the next batch.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import math
import time
import uuid
from collections.abc import Collection

from tt.model.errors import counted, require
from tt.model.long_work import call_in_thread
from tt.model.storage.paths import normalize_path
from tt.pipelines.streams.kafka_clients import Cluster, check_installed
from tt.pipelines.streams.kafka_commits import (
    KafkaOutputs,
    KafkaWriter,
    Outgoing,
    RetryBatchError,
    RewindError,
)
from tt.pipelines.streams.kafka_reader import GroupReader
from tt.pipelines.streams.messages import Answer, Message
from tt.pipelines.streams.options import AT_LEAST_ONCE, EXACTLY_ONCE, KafkaTopic, StreamOptions
from tt.pipelines.streams.plan import BATCH_BYTES, BatchLimit, StreamPlan, StreamRun
from tt.pipelines.texts.results import TextFields

with contextlib.suppress(ImportError):  # from the extra `kafka`; see `check_installed`
    from confluent_kafka import KafkaException, TopicPartition

_IDLE_SECONDS = 0.1  # per call of the client while there is nothing to do
_BUSY_SECONDS = 0.01  # per call during a translation, to notice its end soon
_RETRY_SECONDS = 0.5  # between two attempts to write a batch
_RELEASE_SECONDS = 30.0  # time to write the last batch before other members get its partitions


@dataclasses.dataclass(eq=False)
class _Batch:
    """Messages that are translated together, then written together."""

    messages: list[Message]
    answers: concurrent.futures.Future[list[Answer]]  # a thread translates the messages
    start: float = dataclasses.field(default_factory=time.monotonic)
    outgoing: list[Outgoing] | None = None  # None until the batch is translated
    # Partitions whose messages are dropped.
    dropped: set[int] = dataclasses.field(default_factory=set)

    def drop(self, partitions: Collection[int]) -> None:
        """Drop the messages of partitions that this or another member will read again."""
        self.dropped.update(partitions)
        if self.outgoing is not None:
            self.outgoing = [
                each for each in self.outgoing if each.answer.message.partition not in self.dropped
            ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaPlan(StreamPlan):
    """A checked stream from a Kafka topic to a Kafka topic."""

    outputs: KafkaOutputs
    is_exactly_once: bool

    def run(self, run: StreamRun) -> None:
        """Join the consumer group, and translate until `run.stop` is set; see `StreamPlan`."""
        KafkaMember(self, run).run()


class KafkaMember:
    """A member of a consumer group.

    Args:
      plan: The topics and options.
      run: The translator, the metrics and the stop event.
    """

    def __init__(self, plan: KafkaPlan, run: StreamRun) -> None:
        self._plan, self._options = plan, plan.options
        self._run, self._metrics, self._stop = run, run.metrics, run.stop
        self._limit = BatchLimit(plan.options.max_batch)
        self._pending: collections.deque[Message] = collections.deque()  # for the next batch
        self._pending_bytes = 0
        self._pending_since = 0.0  # when the first of these messages arrived
        self._in_progress: _Batch | None = None  # the batch that is being translated
        self._translated: _Batch | None = None  # the batch to write
        self._reader = GroupReader(plan.options, run, finish=self._finish, drop=self._drop)
        self._writer: KafkaWriter

    def run(self) -> None:
        """Join the group, translate until `stop` is set, commit the last batch, and leave.

        Raises:
          UserError: The brokers refuse a request, or a topic was deleted.
          KeyboardInterrupt: The user wants to stop at once; the open transaction is aborted.
        """
        reader, group, instance = self._reader, self._options.group, self._options.instance_id
        # With an instance ID, a restarted process ends its predecessor's transaction at once.
        name = f"tt-{uuid.uuid4().hex}" if instance is None else f"tt-{group}-{instance}"
        try:
            self._writer = KafkaWriter(
                self._plan.outputs,
                transactional_id=name if self._plan.is_exactly_once else None,
                commit=reader.commit,
                note=reader.note_error,
            )
            try:
                reader.join()
                while not self._step():
                    reader.note_lag()
                reader.note_lag(is_due=True)
            finally:
                self._writer.close()
        except KafkaException as error:
            raise reader.cluster.explain(error.args[0]) from error
        finally:
            # When the reader leaves, it releases its partitions, and must have no batch to finish.
            self._translated = self._in_progress = None
            reader.leave()

    def _step(self) -> bool:
        """Do the work that is due, or wait a moment for work; return whether the run has ended."""
        if self._in_progress is not None and self._in_progress.answers.done():
            self._collect()
        was_busy = self._translated is not None
        waited = time.monotonic() - self._pending_since
        is_due = was_busy or self._is_full() or waited >= self._options.max_latency
        if is_due and self._in_progress is None and self._pending and not self._stop.is_set():
            self._start_batch()
        if self._translated is not None:
            self._write()
        elif self._in_progress is None:
            if self._stop.is_set():
                return True
            left = self._options.max_latency - waited if self._pending else _IDLE_SECONDS
            self._poll(min(max(left, 0.0), _IDLE_SECONDS))
        elif self._stop.is_set() or self._is_full():
            concurrent.futures.wait([self._in_progress.answers], timeout=_IDLE_SECONDS)
        else:
            self._poll(_BUSY_SECONDS)
        return False

    def _is_full(self) -> bool:
        return len(self._pending) >= self._limit.messages or self._pending_bytes >= BATCH_BYTES

    def _poll(self, seconds: float) -> None:
        """Read messages for the next batch."""
        room = self._limit.messages - len(self._pending)
        for message in self._reader.read(
            max(1, room), seconds=seconds, is_waiting=bool(self._pending)
        ):
            if not self._pending:
                self._pending_since = time.monotonic()
            self._pending.append(message)
            self._pending_bytes += message.size

    def _start_batch(self) -> None:
        messages: list[Message] = []
        size = 0
        while self._pending and len(messages) < self._limit.messages and size < BATCH_BYTES:
            message = self._pending.popleft()
            messages.append(message)
            size += message.size
        self._pending_bytes -= size
        self._pending_since = time.monotonic()
        answers = call_in_thread(lambda: self._run.answer(messages), name="translate batch")
        self._in_progress = _Batch(messages, answers)

    def _collect(self) -> None:
        """Move the translated batch to `_translated`, so that it can be written."""
        assert self._in_progress is not None
        assert self._translated is None
        batch = self._in_progress
        batch.outgoing = [Outgoing(answer) for answer in batch.answers.result()]
        batch.drop(())
        self._in_progress, self._translated = None, batch
        seconds = time.monotonic() - batch.start
        self._limit.note(messages=len(batch.messages), seconds=seconds)
        self._metrics.note_batch(len(batch.messages), seconds=seconds)
        self._metrics.note_waiting(True)

    def _write(self, seconds: float = math.inf) -> None:
        """Write and commit the translated batch, with retries for at most this many seconds."""
        end = time.monotonic() + seconds
        while not self._try_to_write() and time.monotonic() < end:
            time.sleep(_RETRY_SECONDS)

    def _try_to_write(self) -> bool:
        """Try to write and commit the translated batch; return False to retry."""
        batch = self._translated
        assert batch is not None
        assert batch.outgoing is not None
        if not batch.outgoing:
            self._end_batch()
            return True
        next_offsets = {
            each.answer.message.partition: each.answer.message.offset + 1 for each in batch.outgoing
        }
        offsets = [TopicPartition(self._reader.topic, *each) for each in next_offsets.items()]
        try:
            self._writer.write(
                batch.outgoing, offsets=offsets, find_member=self._reader.find_member
            )
        except RetryBatchError:
            self._note_aborted()
            return False
        except RewindError:
            self._note_aborted()
            self._reader.rewind()
            return True
        self._reader.committed.update(next_offsets)
        self._metrics.note_written(
            [each.status for each in batch.outgoing],
            milliseconds=[each.answer.message.milliseconds for each in batch.outgoing],
        )
        self._end_batch()
        return True

    def _end_batch(self) -> None:
        self._translated = None
        self._metrics.note_waiting(False)

    def _note_aborted(self) -> None:
        if self._plan.is_exactly_once:
            self._metrics.aborted_transactions.inc()

    def _finish(self, partitions: set[int]) -> None:
        """Finish and commit the batch in progress, if it has messages from `partitions`."""
        batch = self._in_progress
        if batch is not None and any(each.partition in partitions for each in batch.messages):
            while not batch.answers.done():
                concurrent.futures.wait([batch.answers], timeout=_IDLE_SECONDS)
            self._collect()
            self._write(seconds=_RELEASE_SECONDS)

    def _drop(self, partitions: Collection[int]) -> None:
        """Drop all uncommitted messages from `partitions`."""
        self._pending = collections.deque(m for m in self._pending if m.partition not in partitions)
        self._pending_bytes = sum(message.size for message in self._pending)
        for batch in (self._translated, self._in_progress):
            if batch is not None:
                batch.drop(partitions)
        if self._translated is not None and not self._translated.outgoing:
            self._end_batch()


def plan_topics(options: StreamOptions, *, form: TextFields) -> KafkaPlan:
    """Check the brokers and topics of a stream, without reading or writing messages.

    Args:
      options: The options of a stream from a topic to a topic.
      form: The fields that contain texts.

    Raises:
      UserError: The client is not installed, no broker answers, a topic does not exist, or the user
        lacks a right.
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
            "`dead_letter` must have the same brokers as `output`",
            str(failed),
        )
        outputs["`dead_letter`"] = failed
    reading, writing = (Cluster(each.brokers, options.kafka_config) for each in (source, target))
    partitions, here = reading.find_topics({"`input`": source})
    of_outputs, there = writing.find_topics(outputs)
    delivery, problem = options.delivery, ""
    if delivery == EXACTLY_ONCE:
        problem = "the topics are in different clusters"
        if here == there:
            problem = writing.find_missing_transactions()
        if problem:
            delivery = AT_LEAST_ONCE
    count = counted(partitions[source.topic], "partition")
    return KafkaPlan(
        options=options,
        outputs=KafkaOutputs(
            cluster=writing,
            output=target.topic,
            dead_letter=failed.topic if isinstance(failed, KafkaTopic) else None,
            partitions=of_outputs,
            most_bytes=writing.find_limit([topic.topic for topic in outputs.values()]),
            form=form,
        ),
        is_exactly_once=delivery == EXACTLY_ONCE,
        lines=(f"Reading {source} as group {options.group}: {count}, {delivery}",),
        notices=(f"messages are delivered {delivery}: {problem}",) if problem else (),
    )
