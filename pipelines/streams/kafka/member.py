"""A member of a consumer group that translates the messages of its partitions.

The main thread reads, writes and commits, and takes part in the group. A second thread translates.
While it translates one batch, the main thread commits the batch before and reads the next one.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import math
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from model.errors import GoneError, UserError, counted
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.batches import BATCH_BYTES, BatchLimit
from pipelines.streams.kafka.clients import Cluster, is_gone, is_passing
from pipelines.streams.kafka.writer import KafkaWriter, Outgoing, RetryBatchError, RewindError
from pipelines.streams.messages import Answer, Message
from pipelines.streams.metrics import StreamMetrics
from pipelines.streams.plan import AnswerMessages

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    from pipelines.streams.kafka.plan import KafkaPlan

_IDLE_SECONDS = 0.1  # per call of the client while there is nothing to do
_BUSY_SECONDS = 0.01  # per call while a batch is translated, whose end must be seen soon
_RETRY_SECONDS = 0.5  # between two attempts to write a batch
_GIVE_SECONDS = 30.0  # to write a last batch before its partitions go to others
_LAG_SECONDS = 1.0  # between two looks at the lag
_ANSWER_SECONDS = 5.0  # per request for offsets


@dataclasses.dataclass(eq=False)
class _Batch:
    """Messages that are translated together, then written together."""

    messages: list[Message]
    start: float = dataclasses.field(default_factory=time.monotonic)
    answers: concurrent.futures.Future[list[Answer]] = dataclasses.field(
        default_factory=concurrent.futures.Future
    )
    outgoing: list[Outgoing] | None = None  # once it is translated
    dropped: set[int] = dataclasses.field(default_factory=set)  # partitions

    def translate(self, answer: AnswerMessages) -> None:
        """Start to translate in a thread that does not keep the process alive."""

        def run() -> None:
            try:
                self.answers.set_result(answer(self.messages))
            except BaseException as error:  # the main thread raises it
                self.answers.set_exception(error)

        threading.Thread(target=run, name="translate batch", daemon=True).start()

    def collect(self) -> None:
        """Wait for the answers.

        Raises:
          Exception: What the translation raised.
        """
        self.outgoing = [Outgoing(answer) for answer in self.answers.result()]
        self.drop(())

    def drop(self, partitions: Collection[int]) -> None:
        """Leave out the messages of partitions that will be read again, here or elsewhere."""
        self.dropped.update(partitions)
        if self.outgoing is not None:
            self.outgoing = [
                each for each in self.outgoing if each.answer.message.partition not in self.dropped
            ]


class KafkaMember:
    """One member of the group.

    Args:
      plan: The topics and options.
      answer: Translates messages.
      metrics: Counts what happens.
      stop: Set when the member is to finish its batch and leave.
      report: Takes lines for the user.
    """

    def __init__(
        self,
        plan: KafkaPlan,
        *,
        answer: AnswerMessages,
        metrics: StreamMetrics,
        stop: threading.Event,
        report: Callable[[str], object],
    ) -> None:
        self._plan, self._options = plan, plan.options
        self._answer, self._metrics, self._stop, self._report = answer, metrics, stop, report
        topic = plan.options.source
        assert isinstance(topic, KafkaTopic)
        self._cluster, self._topic = Cluster(topic.brokers, plan.options.kafka_config), topic.topic
        self._limit = BatchLimit(plan.options.max_batch)
        self._read: collections.deque[Message] = collections.deque()  # for the next batch
        self._read_bytes = 0
        self._read_since = 0.0  # when the first of them came
        self._in_progress: _Batch | None = None  # being translated
        self._translated: _Batch | None = None  # to be written
        self._committed: dict[int, int] = {}  # offsets of the partitions of this member
        self._stale: set[int] = set()  # partitions to be read again from the committed offset
        self._member = ""  # the group's name for this member since the last assignment
        self._lag_time = 0.0
        self._consumer: Consumer
        self._writer: KafkaWriter

    def run(self) -> None:
        """Join the group, translate until `stop` is set, commit the last batch and leave.

        Raises:
          UserError: The brokers refuse a request, or a topic is gone.
          KeyboardInterrupt: The user wants to stop at once; the open transaction is aborted.
        """
        from confluent_kafka import KafkaException

        group, instance = self._options.group or "", self._options.instance_id
        # With an instance ID, a restarted process ends its predecessor's transaction at once.
        name = f"tt-{uuid.uuid4().hex}" if instance is None else f"tt-{group}-{instance}"
        self._consumer = self._cluster.consumer(group, note=self._note_error, instance=instance)
        try:
            self._writer = KafkaWriter(
                self._plan.outputs,
                transactional_id=name if self._plan.is_exactly_once else None,
                commit=lambda offsets: self._consumer.commit(offsets=offsets, asynchronous=False),
                note=self._note_error,
            )
            try:
                self._cluster.start_at_end(self._consumer, self._topic)
                self._consumer.subscribe(
                    [self._topic],
                    on_assign=self._take_partitions,
                    on_revoke=self._give_partitions,
                    on_lost=self._lose_partitions,
                )
                while not self._step():
                    self._note_lag()
                self._note_lag(is_due=True)
            finally:
                self._writer.close()
        except KafkaException as error:
            raise self._cluster.explain(error.args[0]) from error
        finally:
            self._metrics.note_assigned(False)
            self._translated = self._in_progress = None  # nothing to finish when partitions go
            self._consumer.close()

    def _step(self) -> bool:
        """Do what there is to do, or wait a moment for it; return whether the run has ended."""
        if self._in_progress is not None and self._in_progress.answers.done():
            self._collect()
        was_busy = self._translated is not None
        if self._in_progress is None and self._read and not self._stop.is_set():
            waited = time.monotonic() - self._read_since
            if was_busy or self._is_full() or waited >= self._options.max_latency:
                self._start_batch()
        if self._translated is not None:
            self._write()
        elif self._in_progress is None:
            if self._stop.is_set():
                return True
            self._poll(self._wait_seconds())
        elif self._stop.is_set() or self._is_full():
            concurrent.futures.wait([self._in_progress.answers], timeout=_IDLE_SECONDS)
        else:
            self._poll(_BUSY_SECONDS)
        return False

    def _wait_seconds(self) -> float:
        if not self._read:
            return _IDLE_SECONDS
        waited = time.monotonic() - self._read_since
        return min(max(self._options.max_latency - waited, 0.0), _IDLE_SECONDS)

    def _is_full(self) -> bool:
        return len(self._read) >= self._limit.messages or self._read_bytes >= BATCH_BYTES

    def _poll(self, seconds: float) -> None:
        """Read messages, and serve the group: the callbacks of `subscribe` run in here.

        While no message waits, return with the first one: the client would wait for more. The
        client may return messages that it fetched before a callback made their partition stale.
        """
        self._seek_stale()
        room = self._limit.messages - len(self._read)
        wanted = max(1, room) if self._read else 1
        found = self._consumer.consume(wanted, timeout=seconds)
        if found and room > 1 and wanted == 1:
            found += self._consumer.consume(room - 1, timeout=0)
        for each in found:
            if (error := each.error()) is not None:
                self._handle_error(error, each)
            elif each.partition() in self._committed.keys() - self._stale:
                self._keep(_message_of(each))
        self._seek_stale()

    def _keep(self, message: Message) -> None:
        if not self._read:
            self._read_since = time.monotonic()
        self._read.append(message)
        self._read_bytes += message.size

    def _start_batch(self) -> None:
        messages: list[Message] = []
        size = 0
        while self._read and len(messages) < self._limit.messages and size < BATCH_BYTES:
            message = self._read.popleft()
            messages.append(message)
            size += message.size
        self._read_bytes -= size
        self._read_since = time.monotonic()
        self._in_progress = _Batch(messages)
        self._in_progress.translate(self._answer)

    def _collect(self) -> None:
        """Take the batch that is translated."""
        assert self._in_progress is not None
        assert self._translated is None
        batch = self._in_progress
        batch.collect()
        self._in_progress, self._translated = None, batch
        seconds = time.monotonic() - batch.start
        self._limit.note(messages=len(batch.messages), seconds=seconds)
        self._metrics.note_batch(len(batch.messages), seconds=seconds)
        self._metrics.note_waiting(True)

    def _write(self, seconds: float = math.inf) -> None:
        """Write and commit the translated batch; try again for so many seconds if it must be."""
        end = time.monotonic() + seconds
        while not self._try_to_write() and time.monotonic() < end:
            time.sleep(_RETRY_SECONDS)

    def _try_to_write(self) -> bool:
        """Write and commit the translated batch; return whether that has ended."""
        from confluent_kafka import TopicPartition

        batch = self._translated
        assert batch is not None
        assert batch.outgoing is not None
        if not batch.outgoing:
            self._end_batch()
            return True
        next_offsets = {
            each.answer.message.partition: each.answer.message.offset + 1 for each in batch.outgoing
        }
        offsets = [TopicPartition(self._topic, *each) for each in next_offsets.items()]
        try:
            self._writer.write(batch.outgoing, offsets=offsets, find_member=self._find_member)
        except RetryBatchError:
            self._note_aborted()
            return False
        except RewindError:
            self._note_aborted()
            self._drop(self._committed.keys())
            return True
        self._committed.update(next_offsets)
        self._metrics.note_written(
            [each.status for each in batch.outgoing],
            milliseconds=[each.answer.message.milliseconds for each in batch.outgoing],
        )
        self._end_batch()
        return True

    def _end_batch(self) -> None:
        self._translated = None
        self._metrics.note_waiting(False)

    def _find_member(self) -> Any:
        """Return the member's metadata for a transaction.

        The client forgets its name as soon as the group has removed it, and the brokers do not
        check the metadata of a client without a name. So the name must be the assignment's.

        Raises:
          RewindError: The group has removed this member.
        """
        before = self._consumer.memberid()
        found = self._consumer.consumer_group_metadata()
        if not before or not before == self._member == self._consumer.memberid():
            raise RewindError
        return found

    def _drop(self, partitions: Collection[int]) -> None:
        """Drop what was read of partitions and is not committed; it will be read again."""
        self._stale.update(partitions)
        self._read = collections.deque(m for m in self._read if m.partition not in partitions)
        self._read_bytes = sum(message.size for message in self._read)
        for batch in (self._translated, self._in_progress):
            if batch is not None:
                batch.drop(partitions)
        if self._translated is not None and not self._translated.outgoing:
            self._end_batch()

    def _seek_stale(self) -> None:
        """Continue at the committed offsets of stale partitions that this member has."""
        from confluent_kafka import KafkaError, KafkaException

        again, self._stale = self._stale & self._committed.keys(), set()
        left = self._find_offsets(again)
        while left:
            try:
                self._consumer.seek(left[-1])
                left.pop()
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
                time.sleep(_BUSY_SECONDS)  # the client has not begun to fetch the partition

    def _take_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Begin to read partitions that the group gives to this member."""
        self._member = consumer.memberid() or ""
        self._metrics.rebalances.inc()
        self._metrics.note_assigned(True)
        consumer.incremental_assign(self._find_offsets({each.partition for each in partitions}))

    def _give_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Finish the batch in progress, then give up partitions that the group gives to others."""
        self._metrics.rebalances.inc()
        gone = {each.partition for each in partitions}
        if self._in_progress is not None and any(
            message.partition in gone for message in self._in_progress.messages
        ):
            while not self._in_progress.answers.done():
                concurrent.futures.wait([self._in_progress.answers], timeout=_IDLE_SECONDS)
            self._collect()
            self._write(seconds=_GIVE_SECONDS)
        self._forget(gone)

    def _lose_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Drop everything of partitions that other members already have."""
        self._metrics.rebalances.inc()
        self._metrics.note_assigned(False)
        self._report(
            f"Consumer group {self._options.group} removed this process from the group, for "
            "example after a pause; it joins again"
        )
        self._member = ""
        self._forget({each.partition for each in partitions})

    def _forget(self, partitions: set[int]) -> None:
        self._drop(partitions)
        for partition in partitions:
            self._committed.pop(partition, None)

    def _find_offsets(self, partitions: Collection[int]) -> list[TopicPartition]:
        """Return where to read partitions, and remember it: the committed offset or the start."""
        from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

        asked = [TopicPartition(self._topic, each) for each in partitions]
        found: list[TopicPartition] = []
        while asked and not found:
            try:
                found = self._consumer.committed(asked, timeout=_ANSWER_SECONDS)
            except KafkaException as error:
                if not is_passing(error.args[0]):
                    raise
                self._note_error(error.args[0])
        for each in found:
            if each.error is not None:
                raise self._cluster.explain(each.error)
            self._committed[each.partition] = max(each.offset, 0)
            each.offset = each.offset if each.offset >= 0 else OFFSET_BEGINNING
        return found

    def _handle_error(self, error: KafkaError, message: Any) -> None:
        """Handle an error that the consumer returns in place of a message.

        Raises:
          UserError: The member cannot continue.
        """
        from confluent_kafka import KafkaError

        code = error.code()
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._skip_deleted(message.partition())
        elif is_gone(error):
            try:
                self._cluster.find_topics(
                    {"`input`": KafkaTopic(self._cluster.brokers, self._topic)}
                )
            except UserError as problem:
                raise GoneError(str(problem)) from None
        elif not is_passing(error):
            raise self._cluster.explain(error)
        elif code != KafkaError._MAX_POLL_EXCEEDED:  # which `_lose_partitions` reports
            self._note_error(error)

    def _skip_deleted(self, partition: int) -> None:
        """Continue with the oldest message, where the brokers have deleted older ones."""
        from confluent_kafka import TopicPartition

        at = TopicPartition(self._topic, partition)
        low, _ = self._consumer.get_watermark_offsets(at, timeout=_ANSWER_SECONDS)
        lost = low - self._committed.get(partition, low)
        if lost > 0:
            self._report(
                f"tt: warning: the brokers deleted {counted(lost, 'message')} of partition "
                f"{partition} of {self._topic} before group {self._options.group} had read "
                "them. Increase the retention time of the topic"
            )
        self._consumer.seek(TopicPartition(self._topic, partition, low))
        self._committed[partition] = max(low, self._committed.get(partition, low))

    def _note_error(self, error: KafkaError) -> None:
        self._metrics.note_trouble(f"no answer from {self._cluster.brokers} ({error.name()})")

    def _note_aborted(self) -> None:
        if self._plan.is_exactly_once:
            self._metrics.aborted_transactions.inc()

    def _note_lag(self, *, is_due: bool = False) -> None:
        from confluent_kafka import TopicPartition

        if not is_due and time.monotonic() - self._lag_time < _LAG_SECONDS:
            return
        self._lag_time = time.monotonic()
        lag = {}
        for partition, offset in self._committed.items():
            at = TopicPartition(self._topic, partition)
            _, high = self._consumer.get_watermark_offsets(at, cached=True)
            lag[partition] = max(high - offset, 0)
        self._metrics.note_lag(lag)


def _message_of(message: Any) -> Message:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, milliseconds = message.timestamp()
    partition, offset = message.partition(), message.offset()
    return Message(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        source=f"{message.topic()}/{partition}/{offset}",
        partition=partition,
        offset=offset,
        milliseconds=None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds,
    )
