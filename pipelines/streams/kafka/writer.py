"""Answers to topics of Kafka: all of a bundle are there when `flush` returns, or it raises."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from model.errors import UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.live_run import find_run
from pipelines.streams.messages import Answer, Delivery, MessageFormat, deliver
from pipelines.texts.translating import FAILED

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaTarget:
    """Where answers go."""

    output: KafkaTopic
    dead_letter: KafkaTopic | None = None  # for those that failed
    form: MessageFormat = dataclasses.field(default_factory=MessageFormat)
    config: str | None = None  # file of the user's settings, which each worker reads
    run: str = ""  # name of the `LiveRun`

    def open(self) -> KafkaWriter:
        """Makes a writer.

        Raises:
          UserError: The brokers do not answer, or a topic is not there.
        """
        return KafkaWriter(self)


class _Topic(NamedTuple):
    address: KafkaTopic
    partitions: int
    producer: Producer


class _Outlet:
    """The topics of a target with their producers, which all writers of a process share.

    A runner that has many bundles in hand has a writer for each.
    """

    def __init__(self, target: KafkaTarget) -> None:
        self.writers = 0
        self.is_broken = False  # after an error: who begins a bundle takes a new one
        self._config, self._run = target.config, target.run
        self.output = self._open("`output`", target.output)
        self.dead_letter: _Topic | None = None
        if target.dead_letter is not None:
            self.dead_letter = self._open("`dead_letter`", target.dead_letter)

    @property
    def topics(self) -> list[_Topic]:
        """The topics."""
        return [self.output, *([self.dead_letter] if self.dead_letter else [])]

    def close(self) -> None:
        """Drops what is not delivered."""
        for topic in self.topics:
            topic.producer.purge()
            topic.producer.flush(_POLL_SECONDS)

    def _open(self, name: str, topic: KafkaTopic) -> _Topic:
        found = clients.find_topics(topic.brokers, {name: topic}, config=self._config)
        live = find_run(self._run)
        producer = clients.make_producer(
            topic.brokers,
            config=self._config,
            most_bytes=found.most_bytes,
            note=lambda error: live.note_trouble(f"no answer of {topic.brokers} ({error.name()})"),
        )
        return _Topic(topic, len(found.partitions[topic.topic]), producer)


_outlets: dict[KafkaTarget, _Outlet] = {}
_lock = threading.Lock()


def _take_outlet(target: KafkaTarget) -> _Outlet:
    with _lock:
        if target not in _outlets or _outlets[target].is_broken:
            _outlets[target] = _Outlet(target)
        outlet = _outlets[target]
        outlet.writers += 1
        return outlet


def _leave_outlet(target: KafkaTarget, outlet: _Outlet) -> None:
    with _lock:
        outlet.writers -= 1
        is_last = outlet.writers == 0
        if (is_last or outlet.is_broken) and _outlets.get(target) is outlet:
            del _outlets[target]
    if is_last:
        outlet.close()


@dataclasses.dataclass(slots=True)
class _Sent:
    """An answer under way."""

    answer: Answer
    attempt: int = 0  # how many forms of it were too large
    is_alone: bool = False  # no other was sent with it
    is_delivered: bool = False  # or refused, which the error says
    error: KafkaError | None = None


class KafkaWriter:
    """Writes answers in order: those of a partition go to one partition, and so keep their order.

    Raises:
      UserError: The brokers do not answer, or a topic is not there.
    """

    def __init__(self, target: KafkaTarget) -> None:
        self._target = target
        self._live = find_run(target.run)
        self._pending: list[_Sent] = []
        self._outlet = _take_outlet(target)
        self._is_closed = False

    def write(self, answer: Answer) -> None:
        """Sends an answer on its way.

        Raises:
          UserError: The brokers do not take it.
        """
        if self._outlet.is_broken and not self._pending:
            _leave_outlet(self._target, self._outlet)
            self._outlet = _take_outlet(self._target)
        sent = _Sent(answer)
        self._pending.append(sent)
        self._send(sent)

    def flush(self) -> None:
        """Waits until the brokers have all that was sent.

        Raises:
          UserError: They did not take an answer.
        """
        self._wait()
        for sent in self._pending:
            while sent.error is not None:
                if not _is_too_large(sent.error):
                    raise self._explain(sent.error, self._place(sent)[0])
                # Brokers measure what they get together: once more, by itself, as it was.
                sent.attempt += sent.is_alone
                sent.error, sent.is_delivered, sent.is_alone = None, False, True
                self._send(sent)
                self._wait()
        done, self._pending = self._pending, []
        if not done:
            return
        now = 1000 * time.time()
        times = [sent.answer.message.milliseconds for sent in done]
        self._live.note_written(
            [FAILED if sent.attempt else sent.answer.status for sent in done],
            [None if each is None else max(now - each, 0.0) / 1000 for each in times],
        )
        self._live.note_trouble("")

    def close(self) -> None:
        """Lets go of the producers; the last one drops what is not flushed: its bundle failed."""
        if not self._is_closed:
            self._is_closed = True
            _leave_outlet(self._target, self._outlet)

    def _explain(self, error: KafkaError, topic: _Topic) -> UserError:
        self._outlet.is_broken = True
        return clients.explain_error(error, brokers=topic.address.brokers)

    def _wait(self) -> None:
        """Waits for what this writer has sent; what others have sent may be delivered as well."""
        while not all(sent.is_delivered for sent in self._pending):
            for topic in self._outlet.topics:
                topic.producer.flush(_POLL_SECONDS)

    def _place(self, sent: _Sent) -> tuple[_Topic, Delivery]:
        delivery = deliver(
            sent.answer,
            attempt=sent.attempt,
            form=self._target.form,
            has_dead_letter=self._outlet.dead_letter is not None,
        )
        if delivery is None:
            raise UserError(
                f"the message {sent.answer.message.source} cannot be written: its key and headers "
                "alone are larger than the topic takes. Raise its max.message.bytes"
            )
        topic = self._outlet.dead_letter if delivery.is_dead_letter else self._outlet.output
        assert topic is not None
        return topic, delivery

    def _send(self, sent: _Sent) -> None:
        """Hands an answer to the client, in a smaller form as long as one is too large."""
        import confluent_kafka

        def note(error: KafkaError | None, _: object) -> None:
            sent.error, sent.is_delivered = error, True

        message = sent.answer.message
        while True:
            topic, delivery = self._place(sent)
            try:
                topic.producer.produce(
                    topic.address.topic,
                    value=delivery.value,
                    key=message.key,
                    headers=list(delivery.headers),
                    partition=message.partition % topic.partitions,
                    timestamp=message.milliseconds or 0,  # 0 is now
                    on_delivery=note,
                )
            except BufferError:  # the client holds as much as it may: wait until some is gone
                topic.producer.poll(_POLL_SECONDS)
            except confluent_kafka.KafkaException as exception:
                error = exception.args[0]
                if not _is_too_large(error):
                    raise self._explain(error, topic) from None
                sent.attempt += 1
            else:
                topic.producer.poll(0)
                return


def _is_too_large(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError.MSG_SIZE_TOO_LARGE)
