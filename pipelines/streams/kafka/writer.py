"""Write answers to Kafka topics, and commit the offsets of their messages.

`TransactionalWriter` writes answers and offsets in one transaction. `PlainWriter` writes the
answers first and commits the offsets afterwards.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from model.errors import GoneError, UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.messages import SMALLEST, Answer, Delivery, MessageFormat, deliver
from pipelines.texts.translating import FAILED

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer, TopicPartition

CALL_SECONDS = 2.0  # per call of the client, so that a second signal is seen in between


class RetryBatchError(Exception):
    """The batch is not complete. Try to write the same answers again."""


class RewindError(Exception):
    """The batch may be committed or not. Read again from the committed offsets."""


@dataclasses.dataclass(frozen=True)
class Output:
    """A topic to write."""

    topic: KafkaTopic
    partitions: int
    most_bytes: int | None = None  # of its largest message, if it is known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """The topics for answers."""

    output: Output
    dead_letter: Output | None = None  # for failed messages
    form: MessageFormat = dataclasses.field(default_factory=MessageFormat)
    config: str | None = None  # file of the user's settings


@dataclasses.dataclass(slots=True, eq=False)
class Outgoing:
    """An answer on its way to a topic."""

    answer: Answer
    attempt: int = 0  # forms that were too large
    is_alone: bool = False  # was refused together with others; is sent by itself now
    is_written: bool = False
    error: KafkaError | None = None

    @property
    def status(self) -> str:
        """The status that the written message has."""
        return FAILED if self.attempt else self.answer.status


class _Producers:
    """The producers of a writer, one for each cluster, and the messages they have in progress."""

    def __init__(
        self, outputs: Outputs, *, note: Callable[[str], object], name: str | None
    ) -> None:
        self._outputs, self._note, self._name = outputs, note, name
        self._producers: dict[str, Producer] = {}
        self.open()

    def open(self) -> None:
        """Make the producers, or replace those that failed."""
        for output in filter(None, (self._outputs.output, self._outputs.dead_letter)):
            brokers = output.topic.brokers
            self._producers[brokers] = clients.make_producer(
                brokers,
                config=self._outputs.config,
                note=functools.partial(self._note_error, brokers),
                most_bytes=output.most_bytes,
                transactional_id=self._name,
            )

    def _note_error(self, brokers: str, error: KafkaError) -> None:
        self._note(f"no answer from {brokers} ({error.name()})")

    @property
    def single(self) -> Producer:
        """The one producer of a transactional writer."""
        return self._producers[self._outputs.output.topic.brokers]

    def send(self, batch: Sequence[Outgoing]) -> None:
        """Send answers and wait until the brokers have taken or refused each of them.

        Raises:
          KafkaException: The client does not take a message now.
        """
        together = [each for each in batch if not each.is_alone]
        for each in together:
            self._produce(each)
        self._flush(together)
        for each in batch:
            if each.is_alone:
                self._produce(each)
                self._flush([each])

    def _flush(self, sent: Sequence[Outgoing]) -> None:
        while not all(each.is_written or each.error for each in sent):
            for producer in self._producers.values():
                producer.flush(CALL_SECONDS)

    def _produce(self, outgoing: Outgoing) -> None:
        """Hand an answer to the client, in a smaller form if it is too large."""
        import confluent_kafka

        def note(error: KafkaError | None, _: object) -> None:
            outgoing.error, outgoing.is_written = error, error is None

        outgoing.error, outgoing.is_written = None, False
        message = outgoing.answer.message
        while True:
            output, delivery = self._place(outgoing)
            producer = self._producers[output.topic.brokers]
            try:
                producer.produce(
                    output.topic.topic,
                    value=delivery.value,
                    key=delivery.key,
                    headers=list(delivery.headers),
                    partition=message.partition % output.partitions,
                    timestamp=message.milliseconds or 0,  # 0 means now
                    on_delivery=note,
                )
            except BufferError:  # the queue of the client is full
                producer.poll(0.1)
            except confluent_kafka.KafkaException as error:
                if not _is_too_large(error.args[0]):
                    raise
                shrink(outgoing)
            else:
                producer.poll(0)
                return

    def _place(self, outgoing: Outgoing) -> tuple[Output, Delivery]:
        outputs = self._outputs
        delivery = deliver(
            outgoing.answer,
            attempt=outgoing.attempt,
            form=outputs.form,
            has_dead_letter=outputs.dead_letter is not None,
        )
        output = outputs.dead_letter if delivery.is_dead_letter else outputs.output
        assert output is not None
        return output, delivery


class TransactionalWriter:
    """Writes a batch and its offsets in one transaction.

    Args:
      outputs: The topics.
      name: Transactional ID: a restarted process with the same ID ends the transaction of its
        predecessor. None takes a random one.
      note: Takes problems of connections.
    """

    def __init__(
        self, outputs: Outputs, *, name: str | None, note: Callable[[str], object]
    ) -> None:
        self._brokers = outputs.output.topic.brokers
        self._producers = _Producers(outputs, note=note, name=name or f"tt-{uuid.uuid4().hex}")
        self._is_open = False  # whether a transaction is
        self._call("init_transactions")

    def write(
        self,
        batch: Sequence[Outgoing],
        *,
        offsets: list[TopicPartition],
        find_member: Callable[[], Any],
    ) -> None:
        """Write answers and commit offsets; readers of committed messages see all or nothing.

        Args:
          batch: The answers.
          offsets: The offsets to commit.
          find_member: Returns the member's metadata, by which the brokers refuse a member that has
            lost its partitions.

        Raises:
          RetryBatchError: The brokers did not take all answers; the transaction was aborted.
          RewindError: The group has removed the member, or the producer failed and was replaced.
          UserError: The brokers refuse the batch.
        """
        import confluent_kafka

        try:
            self._producers.single.begin_transaction()
            self._is_open = True
            self._send(batch)
            self._call("send_offsets_to_transaction", offsets, find_member())
            self._call("commit_transaction")
            self._is_open = False
        except confluent_kafka.KafkaException as exception:
            error: KafkaError = exception.args[0]
            if _is_denied(error):
                raise clients.explain_error(error, brokers=self._brokers) from None
            if not error.fatal() and error.txn_requires_abort():
                self.abort()
            else:
                self._replace()
            raise RewindError from None
        except (RetryBatchError, RewindError):
            self.abort()
            raise

    def _send(self, batch: Sequence[Outgoing]) -> None:
        """Send answers.

        Raises:
          RetryBatchError: The brokers have not taken all of them.
          UserError: No attempt can succeed.
        """
        import confluent_kafka

        try:
            self._producers.send(batch)
        except confluent_kafka.KafkaException as exception:
            error: KafkaError = exception.args[0]
            self._producers.single.flush(CALL_SECONDS)  # tells which message caused it
            is_known = error.txn_requires_abort() or any(each.error for each in batch)
            if error.fatal() or not is_known:
                raise
        refused = [each for each in batch if not each.is_written]
        for each in refused:
            if each.error is not None:
                _handle_error(each, each.error, brokers=self._brokers)
        if refused:
            raise RetryBatchError

    def abort(self) -> None:
        """Abort the transaction, if there is one.

        Raises:
          RewindError: The producer has failed, and a new one has replaced it.
        """
        import confluent_kafka

        if not self._is_open:
            return
        try:
            self._call("abort_transaction")
            self._is_open = False
        except confluent_kafka.KafkaException:
            self._replace()
            raise RewindError from None

    def close(self) -> None:
        """Abort the transaction, if there is one, in a few seconds or not at all.

        The brokers abort it after `TRANSACTION_MSEC` if they cannot be reached now.
        """
        import confluent_kafka

        if self._is_open:
            try:
                self._producers.single.abort_transaction(CALL_SECONDS)
            except confluent_kafka.KafkaException:
                return

    def _replace(self) -> None:
        """Replace a producer that failed; the new one ends the old one's transaction."""
        self._is_open = False
        self._producers.open()
        self._call("init_transactions")

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a method of the producer again for as long as the brokers may still answer."""
        import confluent_kafka

        while True:
            try:
                getattr(self._producers.single, name)(*arguments, CALL_SECONDS)
                return
            except confluent_kafka.KafkaException as exception:
                error: KafkaError = exception.args[0]
                if not error.retriable() or error.fatal() or error.txn_requires_abort():
                    raise


class PlainWriter:
    """Writes a batch, and commits its offsets when the brokers have it.

    Args:
      outputs: The topics.
      commit: Commits offsets in the member's group.
      note: Takes problems of connections.
    """

    def __init__(
        self,
        outputs: Outputs,
        *,
        commit: Callable[[list[TopicPartition]], object],
        note: Callable[[str], object],
    ) -> None:
        self._brokers = outputs.output.topic.brokers
        self._producers = _Producers(outputs, note=note, name=None)
        self._commit = commit

    def write(
        self,
        batch: Sequence[Outgoing],
        *,
        offsets: list[TopicPartition],
        find_member: Callable[[], Any],
    ) -> None:
        """Write answers, then commit offsets. For the arguments see `TransactionalWriter.write`.

        Raises:
          RetryBatchError: A part was not written, or the offsets are not committed.
          RewindError: The group has removed the member.
          UserError: The brokers refuse the batch.
        """
        import confluent_kafka

        left = [each for each in batch if not each.is_written]
        try:
            self._producers.send(left)
        except confluent_kafka.KafkaException as exception:
            if not exception.args[0].fatal():
                raise clients.explain_error(exception.args[0], brokers=self._brokers) from None
            self._producers.open()
        refused = [each for each in left if not each.is_written]
        for each in refused:
            if each.error is not None:
                _handle_error(each, each.error, brokers=self._brokers)
        if refused:
            raise RetryBatchError
        find_member()
        try:
            self._commit(offsets)
        except confluent_kafka.KafkaException as exception:
            error: KafkaError = exception.args[0]
            if _is_denied(error):
                raise clients.explain_error(error, brokers=self._brokers) from None
            if clients.is_passing(error):
                raise RetryBatchError from None
            raise RewindError from None

    def close(self) -> None:
        """Do nothing: what is not written will be read again."""


Writer = TransactionalWriter | PlainWriter


def shrink(outgoing: Outgoing) -> None:
    """Choose the next smaller form of an answer.

    Raises:
      UserError: There is none.
    """
    outgoing.attempt += 1
    if outgoing.attempt > SMALLEST:
        raise UserError(
            f"the message {outgoing.answer.message.source} cannot be written: its reason alone is "
            "larger than the topic allows. Raise max.message.bytes of the topic"
        )


def _handle_error(outgoing: Outgoing, error: KafkaError, *, brokers: str) -> None:
    """Prepare an answer that the brokers refused for the next attempt.

    Raises:
      UserError: No attempt can succeed.
    """
    from confluent_kafka import KafkaError

    outgoing.error = None
    if _is_too_large(error):
        if outgoing.is_alone:
            shrink(outgoing)
        outgoing.is_alone = True  # the brokers measure all messages of a request together
    elif error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    ):  # fmt: skip
        raise GoneError(str(clients.explain_error(error, brokers=brokers)))
    elif _is_denied(error):
        raise clients.explain_error(error, brokers=brokers)


def _is_too_large(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE))


def _is_denied(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    )  # fmt: skip
