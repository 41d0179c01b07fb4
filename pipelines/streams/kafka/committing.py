"""Offsets of a group, committed when what is before them is written, with a sign of who did it.

Whoever commits looks first whether another run has taken over, or was first: then it ends, and
leaves the other's offsets as they are.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from model.errors import ServiceError, UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.signs import (
    Sign,
    explain_other,
    explain_successor,
    forget_living,
)
from pipelines.streams.live_run import find_run
from pipelines.streams.open_once import OpenOnce

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

_ANSWER_SECONDS = 5.0


class GroupReading(Protocol):
    """A topic that a group reads: what `KafkaSource` is."""

    @property
    def topic(self) -> KafkaTopic:
        """The topic."""

    @property
    def group(self) -> str:
        """The group."""

    @property
    def config(self) -> str | None:
        """The file of the user's settings."""

    @property
    def run(self) -> str:
        """The name of the `LiveRun`."""

    @property
    def term(self) -> int:
        """The term of the run, see `Sign`."""

    @property
    def most(self) -> int:
        """Messages that are taken from the client at once."""

    @property
    def look_seconds(self) -> float:
        """Seconds between two looks at which partitions there are."""

    @property
    def beat_seconds(self) -> float:
        """Seconds between two signs of life."""

    @property
    def leave_seconds(self) -> float | None:
        """Seconds without a reader after which a process lets go of it; None is never."""

    def choose(self, partitions: Iterable[int]) -> list[int]:
        """Returns those partitions that are read."""


class Committer:
    """Commits offsets of a group in this process, for all readers of a source.

    No commit goes back: bundles may be said to be done in any order, and by several processes of a
    run, of which one takes over from another.
    """

    def __init__(self, source: GroupReading) -> None:
        self._source = source
        self._live = find_run(source.run)
        self._consumer: Consumer | None = None
        self._committed: dict[int, int] = {}
        self._lock = threading.Lock()
        self._left: dict[int, int] = {}  # what the brokers did not take, in time
        self._sign = Sign.of_this_process(source.run, term=source.term)
        self._signed: set[int] = set()  # partitions with the sign of this run
        self._ended = threading.Event()
        self._beats: threading.Thread | None = None
        self.fault: Exception | None = None  # after which no offset will be committed

    def commit(self, offsets: dict[int, int]) -> None:
        """Commits offsets that are not; where the brokers do not answer, the next call does it.

        What it raises would only be logged by Beam, and is `fault`: the reader raises it.
        """
        with self._lock:
            try:
                self._commit(self._ahead(offsets))
            except Exception as error:
                self.fault = error

    def _ahead(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Returns the offsets, and those left, that are behind none that is committed."""
        furthest = dict(self._left)
        for partition, at in offsets.items():
            furthest[partition] = max(at, furthest.get(partition, at))
        return {key: at for key, at in furthest.items() if at > self._committed.get(key, -1)}

    def _commit(self, new: dict[int, int]) -> None:
        """Commits offsets, with the sign of this run beside them, unless another run has them."""
        import confluent_kafka
        from confluent_kafka import TopicPartition

        if not new:
            return
        name = self._source.topic.topic
        try:
            self._look_for_others({*new, *self._signed})
            if self.fault is not None:
                return
            new = {key: max(at, self._committed.get(key, at)) for key, at in new.items()}
            wanted = [TopicPartition(name, key, at, str(self._sign)) for key, at in new.items()]
            done = self._open().commit(offsets=wanted, asynchronous=False) or []
            error = next((each.error for each in done if each.error), None)
        except confluent_kafka.KafkaException as exception:
            error = exception.args[0]
        if error is None:
            self._committed.update(new)
            self._signed.update(new)
            self._left = {}
            self._live.note_done(new)
        elif clients.is_passing(error):
            self._left = {key: at for key, at in new.items() if self._committed.get(key) != at}
            self._live.note_trouble(f"offsets are not committed ({error.name()})")
        else:
            self.fault = self._explain(error)

    def _open(self) -> Consumer:
        if self._consumer is None:
            source = self._source
            self._consumer = clients.make_consumer(
                source.topic.brokers, group=source.group, config=source.config,
                note=lambda error: None,
            )  # fmt: skip
        return self._consumer

    def start_beats(self) -> None:
        """Begins to renew the sign of this run, and to look for those of others."""
        with self._lock:
            if self._beats is None:
                self._beats = threading.Thread(target=self._beat, name="beats", daemon=True)
                self._beats.start()

    def _beat(self) -> None:
        try:
            self._beat_on()
        except Exception as error:  # of a thread: the reader raises it
            self.fault = error

    def _beat_on(self) -> None:
        while not self._ended.wait(self._source.beat_seconds):
            with self._lock:
                if self.fault is not None or self._ended.is_set():
                    return
                self._sign = dataclasses.replace(self._sign, beat=self._sign.beat + 1)
                # All of them: brokers forget what is not committed for a week.
                self._commit({**self._committed, **self._ahead({})})

    def _look_for_others(self, partitions: Iterable[int]) -> None:
        """Ends this run where the sign of one stands that took over, or was first.

        Raises:
          KafkaException: The brokers do not say.
        """
        from confluent_kafka import TopicPartition

        name = self._source.topic.topic
        asked = [TopicPartition(name, partition) for partition in sorted(partitions)]
        for each in self._open().committed(asked, timeout=_ANSWER_SECONDS):
            sign = Sign.parse(each.metadata or "")
            if sign is None:
                continue
            if sign.run == self._sign.run:  # maybe of another process of it, which has gone on
                furthest = max(each.offset, self._committed.get(each.partition, each.offset))
                self._committed[each.partition] = furthest
                continue
            if not sign.outranks(self._sign):
                continue
            explain = explain_successor if sign.term > self._sign.term else explain_other
            self.fault = explain(sign, group=self._source.group)

    def note(self, offsets: dict[int, int]) -> None:
        """Takes note of what was committed before."""
        with self._lock:
            self._committed.update(offsets)

    def close(self) -> None:
        """Commits what the brokers did not take before, and lets go of them.

        Raises:
          UserError: They do not take it.
        """
        self._ended.set()
        if self._beats is not None:
            self._beats.join()
        with self._lock:
            if self.fault is None:
                self._sign = dataclasses.replace(self._sign, is_ended=True)  # none need wait
                signed = {key: self._committed[key] for key in self._signed}
                self._commit({**signed, **self._ahead({})})
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
        forget_living(self._source.run)
        if self.fault is not None:
            raise self.fault
        if self._left:
            raise ServiceError(
                f"the brokers at {self._source.topic.brokers} do not take the last offsets: what "
                "was written since is written once more by the next run"
            )

    def leave(self) -> None:
        """Lets go of the brokers, and leaves what is committed as it is."""
        self._ended.set()
        if self._beats is not None:
            self._beats.join()
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _explain(self, error: KafkaError) -> UserError:
        from confluent_kafka import KafkaError

        members = (
            KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.REBALANCE_IN_PROGRESS, KafkaError.FENCED_INSTANCE_ID,
        )  # fmt: skip
        if error.code() in members:
            return UserError(
                f"another program reads as a member of the group {self._source.group}, so that its "
                "offsets cannot be committed here: name another `group`, or end that program"
            )
        return clients.explain_error(error, brokers=self._source.topic.brokers)


_committers = OpenOnce(Committer)


def committer_of(source: GroupReading) -> Committer:
    """Returns what commits the offsets of a source in this process."""
    return _committers.find(source)


def take_committer(source: GroupReading) -> Committer | None:
    """Returns what commits the offsets of a source, if anything does: the next one is another."""
    return _committers.take(source)


def close_committer(source: GroupReading) -> None:
    """Ends the commits of a source.

    Raises:
      UserError: The last offsets could not be committed.
    """
    if (committer := _committers.take(source)) is not None:
        committer.close()
