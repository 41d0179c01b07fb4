"""Read the partitions that a consumer group assigns to this process."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tt.model.errors import GoneError, UserError, counted
from tt.pipelines.streams.kafka_clients import Cluster, is_gone, is_transient
from tt.pipelines.streams.kafka_commits import RewindError
from tt.pipelines.streams.messages import Message
from tt.pipelines.streams.options import KafkaTopic, StreamOptions
from tt.pipelines.streams.plan import StreamRun

with contextlib.suppress(ImportError):  # from the extra `kafka`; see `check_installed`
    from confluent_kafka import (
        OFFSET_BEGINNING,
        TIMESTAMP_NOT_AVAILABLE,
        Consumer,
        KafkaError,
        KafkaException,
        TopicPartition,
    )

_ANSWER_SECONDS = 5.0  # time limit of a request for offsets
_LAG_SECONDS = 1.0  # between two measurements of the lag
_LEAVE_SECONDS = 10.0  # time limit to give up all partitions
_LEAVE_PAUSE = 0.1  # seconds per wait for messages and callbacks while the partitions are given up


class GroupReader:
    """Reads messages as a member of a consumer group, and tracks their offsets.

    Args:
      options: The options of the stream.
      run: The metrics, and the function that prints lines for the user.
      finish: Commits the last batch of partitions before they go to another member.
      drop: Drops the uncommitted messages of partitions that this or another member will read
        again.

    Attributes:
      committed: The committed offset of each partition of this member.
    """

    def __init__(
        self,
        options: StreamOptions,
        run: StreamRun,
        *,
        finish: Callable[[set[int]], object],
        drop: Callable[[Collection[int]], object],
    ) -> None:
        topic = options.source
        assert isinstance(topic, KafkaTopic)
        self.topic, self._group = topic.topic, options.group or ""
        self.cluster = Cluster(topic.brokers, options.kafka_config)
        self.committed: dict[int, int] = {}
        self._metrics, self._report = run.metrics, run.report
        self._finish, self._drop = finish, drop
        self._stale: set[int] = set()  # partitions to read again from the committed offset
        self._member = ""  # the member ID since the last assignment
        self._lag_time = 0.0
        self._error: BaseException | None = None  # the error of a callback
        self._consumer: Consumer = self.cluster.consumer(
            self._group, note=self.note_error, instance=options.instance_id
        )

    def join(self) -> None:
        """Join the consumer group.

        Raises:
          KafkaException: The brokers do not answer.
        """
        self.cluster.start_at_end(self._consumer, self.topic)
        self._consumer.subscribe(
            [self.topic],
            on_assign=self._keep_error(self._take_partitions),
            on_revoke=self._keep_error(self._release_partitions),
            on_lost=self._keep_error(self._lose_partitions),
        )

    def leave(self) -> None:
        """Leave the consumer group.

        `close` can wait forever for a callback of a rebalance that is in progress
        (https://github.com/confluentinc/librdkafka/issues/4884). Therefore, this method first gives
        up the partitions and serves the callbacks.
        """
        self._metrics.note_assigned(False)
        self._error = None  # already raised
        end = time.monotonic() + _LEAVE_SECONDS
        try:
            with contextlib.suppress(KafkaException, UserError):  # the run has ended
                self._consumer.unsubscribe()
                while time.monotonic() < end:
                    unread = self._consume(100, seconds=_LEAVE_PAUSE)
                    if not unread and not self._consumer.assignment():
                        break
        finally:
            self._consumer.close()

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Commit offsets outside of a transaction."""
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def read(self, count: int, *, seconds: float, is_waiting: bool) -> list[Message]:
        """Read messages; the callbacks of the consumer group run during this call.

        The result omits messages that the client fetched before their partition became stale.

        Args:
          count: Largest number of messages to return.
          seconds: Longest time to wait.
          is_waiting: Whether a message already waits for its batch to fill up. If not, return as
            soon as the first messages arrive, because the client would otherwise wait for all of
            them.

        Raises:
          UserError: The member cannot continue.
        """
        self._read_stale()
        found = self._consume(count if is_waiting else 1, seconds=seconds)
        if found and not is_waiting and count > 1:
            found += self._consume(count - 1, seconds=0)
        messages = []
        for each in found:
            if (error := each.error()) is not None:
                self._handle_error(error, each)
            elif each.partition() in self.committed.keys() - self._stale:
                messages.append(_message_of(each))
        self._read_stale()
        return messages

    def rewind(self) -> None:
        """Read all partitions again from their committed offsets."""
        self._make_stale(self.committed.keys())

    def find_member(self) -> Any:
        """Return the member's metadata for a transaction.

        When the group removes a member, the client forgets the member's ID, and the brokers do not
        check metadata without an ID. Therefore the ID must still equal the ID of the assignment.

        Raises:
          RewindError: The group has removed this member.
        """
        before = self._consumer.memberid()
        found = self._consumer.consumer_group_metadata()
        if not before or not before == self._member == self._consumer.memberid():
            raise RewindError
        return found

    def note_error(self, error: KafkaError) -> None:
        """Record a problem from which the client recovers by itself."""
        self._metrics.note_trouble(f"no answer from {self.cluster.brokers} ({error.name()})")

    def note_lag(self, *, is_due: bool = False) -> None:
        """Record the lag, at most once per second unless `is_due` is set."""
        if not is_due and time.monotonic() - self._lag_time < _LAG_SECONDS:
            return
        self._lag_time = time.monotonic()
        lag = {}
        for partition, offset in self.committed.items():
            at = TopicPartition(self.topic, partition)
            _, high = self._consumer.get_watermark_offsets(at, cached=True)
            lag[partition] = max(high - offset, 0)
        self._metrics.note_lag(lag)

    def _keep_error(self, callback: Callable[[Consumer, Any], object]) -> Callable[..., None]:
        """Return a callback that stores its error, so that `_consume` can raise the error.

        With Python 3.11, confluent_kafka raises only the value of an exception in a callback.
        """

        def call(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
            try:
                callback(consumer, partitions)
            except BaseException as error:  # including an interrupt
                self._error = self._error or error

        return call

    def _consume(self, count: int, *, seconds: float) -> list[Any]:
        """Return messages and errors from the client, or raise the error of a callback.

        With Python 3.11, confluent_kafka can raise a fatal error as a `KafkaError`, which is not an
        exception, or as an exception whose cause is a `KafkaError`.

        Raises:
          KafkaException: The consumer cannot continue.
          UserError: The consumer cannot continue, and the client raised no `KafkaException`.
        """
        try:
            return list(self._consumer.consume(count, timeout=seconds))
        except:  # noqa: E722 -- only a bare clause catches a `KafkaError`
            raised: Any = sys.exc_info()[1]
        finally:
            if self._error is not None:
                raise self._error
        for each in (raised, getattr(raised, "__cause__", None)):
            if isinstance(each, KafkaError):
                raise self.cluster.explain(each)
        raise raised

    def _make_stale(self, partitions: Collection[int]) -> None:
        self._stale.update(partitions)
        self._drop(partitions)

    def _read_stale(self) -> None:
        """Continue to read stale partitions of this member at their committed offsets."""
        again, self._stale = self._stale & self.committed.keys(), set()
        self._start_at(self._find_offsets(again))

    def _start_at(self, positions: list[TopicPartition]) -> None:
        """Read partitions of this member from other positions.

        The client can only seek in partitions that it fetches. After an error, it fetches none.
        """
        if positions:
            self._consumer.incremental_unassign(positions)
            self._consumer.incremental_assign(positions)

    def _take_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Start to read partitions that the group assigned to this member."""
        self._member = consumer.memberid() or ""
        self._metrics.rebalances.inc()
        self._metrics.note_assigned(True)
        # A static member that rejoins can get partitions that the client still has, and the client
        # does not accept these twice.
        new = {each.partition for each in partitions} - self.committed.keys()
        consumer.incremental_assign(self._find_offsets(new) if new else [])

    def _release_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Finish the last batch of partitions that other members get, then forget them."""
        self._metrics.rebalances.inc()
        gone = {each.partition for each in partitions}
        self._finish(gone)
        self._forget(gone)

    def _lose_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Forget partitions that other members already have."""
        self._metrics.rebalances.inc()
        self._metrics.note_assigned(False)
        self._report(
            f"Consumer group {self._group} removed this process, for example after a pause. The "
            "process joins the group again"
        )
        self._member = ""
        self._forget({each.partition for each in partitions})

    def _forget(self, partitions: set[int]) -> None:
        self._make_stale(partitions)
        for partition in partitions:
            self.committed.pop(partition, None)

    def _find_offsets(self, partitions: Collection[int]) -> list[TopicPartition]:
        """Return and store the positions of partitions: the committed offsets, or the starts."""
        asked = [TopicPartition(self.topic, each) for each in partitions]
        found: list[TopicPartition] = []
        while asked and not found:
            try:
                found = self._consumer.committed(asked, timeout=_ANSWER_SECONDS)
            except KafkaException as error:
                if not is_transient(error.args[0]):
                    raise
                self.note_error(error.args[0])
        for each in found:
            if each.error is not None:
                raise self.cluster.explain(each.error)
            self.committed[each.partition] = max(each.offset, 0)
            each.offset = each.offset if each.offset >= 0 else OFFSET_BEGINNING
        return found

    def _handle_error(self, error: KafkaError, message: Any) -> None:
        """Handle an error that the consumer returned in place of a message.

        Raises:
          UserError: The member cannot continue.
        """
        code = error.code()
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._skip_deleted(message.partition())
        elif is_gone(error):
            try:
                self.cluster.find_topics({"`input`": KafkaTopic(self.cluster.brokers, self.topic)})
            except UserError as problem:
                raise GoneError(str(problem)) from None
        elif not is_transient(error):
            raise self.cluster.explain(error)
        elif code != KafkaError._MAX_POLL_EXCEEDED:  # `_lose_partitions` reports it
            self.note_error(error)

    def _skip_deleted(self, partition: int) -> None:
        """Continue with the oldest remaining message after the brokers deleted older ones."""
        at = TopicPartition(self.topic, partition)
        low, _ = self._consumer.get_watermark_offsets(at, timeout=_ANSWER_SECONDS)
        lost = low - self.committed.get(partition, low)
        if lost > 0:
            self._report(
                f"tt: warning: the brokers deleted {counted(lost, 'message')} of partition "
                f"{partition} of {self.topic} before group {self._group} read "
                "them. Increase the retention time of the topic"
            )
        self._start_at([TopicPartition(self.topic, partition, low)])
        self.committed[partition] = max(low, self.committed.get(partition, low))


def _message_of(message: Any) -> Message:
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
