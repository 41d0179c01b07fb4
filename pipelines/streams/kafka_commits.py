"""Write answers to Kafka topics, and commit the offsets of their messages."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tt.model.errors import UserError
from tt.pipelines.streams.kafka_clients import Cluster, is_transient
from tt.pipelines.streams.messages import SMALLEST, Answer, Outputs

with contextlib.suppress(ImportError):  # from the extra `kafka`; see `check_installed`
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

_TIMEOUT_SECONDS = 30.0  # time until a producer that gets no answer is replaced
_CALL_SECONDS = 2.0  # per call of the client, because Python handles signals between calls


class RetryBatchError(Exception):
    """Raised if a batch was not committed. The caller must write the same answers again."""


class RewindError(Exception):
    """Raised if it is unknown whether a batch was committed. The caller must read it again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaOutputs(Outputs):
    """The topics for answers, by their names."""

    cluster: Cluster
    partitions: Mapping[str, int]  # number of partitions by topic
    most_bytes: int | None = None  # largest message that all topics allow, if it is known


@dataclasses.dataclass(slots=True, eq=False)
class Outgoing:
    """An answer on its way to a topic."""

    answer: Answer
    attempt: int = 0  # number of forms that were too large
    status: str = ""  # the status in the header of the written message
    is_written: bool = False
    error: KafkaError | None = None

    def shrink(self) -> None:
        """Choose the next smaller form.

        Raises:
          UserError: Even the smallest form is too large.
        """
        self.attempt += 1
        if self.attempt > SMALLEST:
            raise UserError(
                f"the message {self.answer.message.source} cannot be written, because the reason "
                "of its failure is larger than the topic allows. Increase max.message.bytes of "
                "the topic"
            )


class KafkaWriter:
    """Writes batches of answers, and commits the offsets of their messages.

    Args:
      outputs: The topics.
      transactional_id: Writes answers and offsets in transactions with this ID. A new writer ends
        the open transaction of an older writer with the same ID. None writes without transactions,
        and commits offsets after the answers.
      commit: Commits offsets without a transaction.
      note: Called with connection errors.
    """

    def __init__(
        self,
        outputs: KafkaOutputs,
        *,
        transactional_id: str | None,
        commit: Callable[[list[TopicPartition]], object],
        note: Callable[[KafkaError], object],
    ) -> None:
        self._outputs, self._id, self._commit, self._note = outputs, transactional_id, commit, note
        self._is_open = False  # whether a transaction is open
        self._is_careful = False  # whether to send one message at a time
        self._open()

    def write(
        self,
        batch: Sequence[Outgoing],
        *,
        offsets: list[TopicPartition],
        find_member: Callable[[], Any],
    ) -> None:
        """Write answers and commit offsets; in a transaction, readers see all answers or none.

        Args:
          batch: The answers.
          offsets: The offsets to commit.
          find_member: Returns the metadata of the member. With the metadata, the brokers refuse a
            member that has lost its partitions.

        Raises:
          RetryBatchError: The brokers did not take all answers, or not the offsets.
          RewindError: The group has removed the member, or the producer failed and was replaced.
          UserError: The brokers refuse the batch.
        """
        try:
            if self._id is not None:
                self._producer.begin_transaction()
                self._is_open = True
            self._send(batch)
            if self._id is not None:
                self._call("send_offsets_to_transaction", offsets, find_member())
                self._call("commit_transaction")
                self._is_open = False
            else:
                find_member()
                self._commit(offsets)
        except KafkaException as exception:
            error = exception.args[0]
            if not is_transient(error) and not error.fatal():
                raise self._outputs.cluster.explain(error) from None
            if self._id is None and not error.fatal() and error.retriable():
                raise RetryBatchError from None
            self._recover(error)
            raise RewindError from None
        except (RetryBatchError, RewindError):
            self._recover(None)
            raise

    def close(self) -> None:
        """Abort an open transaction. If that fails, the brokers abort it after its timeout."""
        if self._is_open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_CALL_SECONDS)

    def _open(self) -> None:
        """Create a producer, which ends any open transaction with the same ID."""
        self._producer = self._outputs.cluster.producer(
            note=self._note, most_bytes=self._outputs.most_bytes, transactional_id=self._id
        )
        self._is_open = False
        if self._id is not None:
            self._call("init_transactions", seconds=math.inf)

    def _recover(self, error: KafkaError | None) -> None:
        """Abort an open transaction, or replace a producer that failed."""
        is_usable = error is None or (not error.fatal() and error.txn_requires_abort())
        if self._is_open and is_usable:
            try:
                self._call("abort_transaction")
                self._is_open = False
            except KafkaException:
                self._open()
        elif not is_usable and (self._id is not None or (error is not None and error.fatal())):
            self._open()

    def _call(self, name: str, *arguments: Any, seconds: float = _TIMEOUT_SECONDS) -> None:
        """Call a method of the producer until it succeeds, at most for this many seconds.

        Without the limit, a producer could wait forever after a long outage, for a transaction that
        the brokers have already aborted.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                getattr(self._producer, name)(*arguments, _CALL_SECONDS)
                return
            except KafkaException as exception:
                error = exception.args[0]
                is_over = error.fatal() or error.txn_requires_abort() or time.monotonic() > end
                if is_over or not error.retriable():
                    raise

    def _send(self, batch: Sequence[Outgoing]) -> None:
        """Send answers, and wait until the brokers have accepted or refused each of them.

        Raises:
          RetryBatchError: The brokers have not accepted all answers.
          KafkaException: The transaction failed.
          UserError: No further attempt can succeed.
        """
        left = [each for each in batch if self._id is not None or not each.is_written]
        for each in left:
            each.is_written, each.error = False, None
        failure = None
        try:
            for each in left:
                self._produce(each)
                if self._is_careful and not self._flush([each]):
                    break
            else:
                self._flush(left)
        except KafkaException as exception:
            failure = exception
            self._producer.flush(_CALL_SECONDS)  # reports which message caused the error
        refused = [(each, each.error) for each in left if each.error is not None]
        if failure is not None and (failure.args[0].fatal() or not refused):
            raise failure
        if refused and all(error.code() == KafkaError._PURGE_QUEUE for _, error in refused):
            # The transaction failed, and the client dropped the messages. This call raises the
            # error that caused the failure. The next attempt sends single messages.
            try:
                self._producer.begin_transaction()
            except KafkaException as exception:
                if not is_transient(exception.args[0]):
                    raise
        for each, error in refused:
            if _is_too_large(error):
                if self._is_careful:  # otherwise the whole request may be too large
                    each.shrink()
            elif not is_transient(error) and not error.fatal():
                raise self._outputs.cluster.explain(error)
        self._is_careful = bool(refused)
        if refused:
            raise RetryBatchError

    def _flush(self, sent: Sequence[Outgoing]) -> bool:
        """Wait for the brokers; return whether they have accepted all messages."""
        while not all(each.is_written or each.error for each in sent):
            self._producer.flush(_CALL_SECONDS)
        return all(each.is_written for each in sent)

    def _produce(self, outgoing: Outgoing) -> None:
        """Pass an answer to the client, in a smaller form if it is too large."""

        def note(error: KafkaError | None, _: object) -> None:
            outgoing.error, outgoing.is_written = error, error is None

        outputs, message = self._outputs, outgoing.answer.message
        while True:
            found = outputs.deliver(outgoing.answer, attempt=outgoing.attempt)
            outgoing.status = found.status
            try:
                self._producer.produce(
                    found.topic,
                    value=found.value,
                    key=found.key,
                    headers=list(found.headers),
                    partition=message.partition % outputs.partitions[found.topic],
                    timestamp=message.milliseconds or 0,  # 0 means now
                    on_delivery=note,
                )
            except BufferError:  # the queue of the client is full
                self._producer.poll(0.1)
            except KafkaException as error:
                if not _is_too_large(error.args[0]):
                    raise
                outgoing.shrink()
            else:
                self._producer.poll(0)
                return


def _is_too_large(error: KafkaError) -> bool:
    return error.name() in ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
