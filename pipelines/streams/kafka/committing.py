"""Offsets of a group, committed when what is before them is written, with a sign of who did it.

One `tt` alone should work for a group: two would translate everything twice. So each puts a sign
beside its offsets, and renews it. Who finds that of another that lives does not begin; of two that
began at once, the later one ends.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from model.errors import ServiceError, UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.live_run import find_run

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

BEAT_SECONDS = 5.0
_WAITED_BEATS = 2.4  # for a sign of life: one may have been just before
_LOOKS_A_BEAT = 5
_ANSWER_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Sign:
    """What a run leaves beside the offsets that it commits.

    Attributes:
      run: Its name.
      start: When it began, in milliseconds since 1970.
      host: The machine's name.
      process: The process's id there.
      beat: How often it was renewed.
    """

    run: str
    start: int
    host: str
    process: int
    beat: int = 0

    @classmethod
    def parse(cls, text: str) -> Sign | None:
        """Reads a sign; what other programs leave there is none.

        >>> Sign.parse("tt 4f 1700000000000 host 12 3")
        Sign(run='4f', start=1700000000000, host='host', process=12, beat=3)
        """
        match text.split():
            case ["tt", run, start, host, process, beat]:
                if start.isdecimal() and process.isdecimal() and beat.isdecimal():
                    return cls(run, int(start), host, int(process), int(beat))
        return None

    def __str__(self) -> str:
        return f"tt {self.run} {self.start} {self.host} {self.process} {self.beat}"

    @property
    def is_dead(self) -> bool:
        """Whether it is known to be of a process of this machine that has ended."""
        if self.host != _host():
            return False
        if self.process == os.getpid():
            return True  # in a container each first process has the same id: it was before this one
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is another user's
        return False

    def describe(self) -> str:
        """Says which run it is."""
        return f"process {self.process} of {self.host}"


def _host() -> str:
    return "".join(socket.gethostname().split()) or "-"


def check_alone(
    look: Callable[[], Mapping[int, str]],
    *,
    group: str,
    report: Callable[[str], object],
    beat_seconds: float = BEAT_SECONDS,
) -> None:
    """Checks that no other run works for a group; waits for a sign of life if one may.

    Args:
      look: Returns what stands beside the committed offsets, by partition.
      group: The group.
      report: Takes the line that says that it waits.
      beat_seconds: Seconds between two signs of life.

    Raises:
      UserError: Another run does.
    """
    before = look()
    signs = [sign for text in before.values() if (sign := Sign.parse(text)) and not sign.is_dead]
    if not signs:
        return
    last = max(signs, key=lambda sign: sign.start)
    wait = _WAITED_BEATS * beat_seconds
    report(
        f"The last tt of group {group} ({last.describe()}) did not say that it ended: waiting up "
        f"to {wait:.0f} s to see whether it works"
    )
    end = time.monotonic() + wait
    while time.monotonic() < end:
        time.sleep(beat_seconds / _LOOKS_A_BEAT)
        for partition, text in look().items():
            found = Sign.parse(text)
            if found is not None and text != before.get(partition):
                raise _explain_other(found, group=group)


def _explain_other(sign: Sign, *, group: str) -> UserError:
    return UserError(
        f"another tt works as group {group} ({sign.describe()}), and everything would be "
        "translated twice: end that one, or name another `group`"
    )


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
    def beat_seconds(self) -> float:
        """Seconds between two signs of life."""


class Committer:
    """Commits offsets of a group in this process, for all readers of a source."""

    def __init__(self, source: GroupReading) -> None:
        self._source = source
        self._live = find_run(source.run)
        self._consumer: Consumer | None = None
        self._committed: dict[int, int] = {}
        self._lock = threading.Lock()
        self._left: dict[int, int] = {}  # what the brokers did not take, in time
        now = round(1000 * time.time())
        self._sign = Sign(source.run or "-", now, _host(), os.getpid())
        self._signed: set[int] = set()  # partitions with the sign of this run
        self._ended = threading.Event()
        self._beats: threading.Thread | None = None
        self.fault: Exception | None = None  # after which no offset will be committed

    def commit(self, offsets: dict[int, int]) -> None:
        """Commits offsets that are not; where the brokers do not answer, the next call does it."""
        with self._lock:
            self._commit({key: at for key, at in offsets.items() if self._committed.get(key) != at})

    def _commit(self, new: dict[int, int], *, sign: str | None = None) -> None:
        """Commits offsets, with the sign of this run or another text beside them."""
        import confluent_kafka
        from confluent_kafka import TopicPartition

        if not new:
            return
        name = self._source.topic.topic
        text = str(self._sign) if sign is None else sign
        wanted = [TopicPartition(name, key, at, text) for key, at in new.items()]
        try:
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
                self._look_for_others()
                if self.fault is None:
                    self._sign = dataclasses.replace(self._sign, beat=self._sign.beat + 1)
                    # All of them: brokers forget what is not committed for a week.
                    self._commit({**self._committed, **self._left})

    def _look_for_others(self) -> None:
        """Ends this run where a sign of an earlier one stands in the place of its own."""
        import confluent_kafka
        from confluent_kafka import TopicPartition

        name = self._source.topic.topic
        asked = [TopicPartition(name, partition) for partition in sorted(self._signed)]
        if not asked:
            return
        try:
            found = self._open().committed(asked, timeout=_ANSWER_SECONDS)
        except confluent_kafka.KafkaException:
            return  # the commit tells of it
        for each in found:
            sign = Sign.parse(each.metadata or "")
            if sign is None or sign.run == self._sign.run:
                continue
            if (sign.start, sign.run) < (self._sign.start, self._sign.run):
                self.fault = _explain_other(sign, group=self._source.group)

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
                # Without a sign: the next run need not wait.
                self._commit(
                    {**{key: self._committed[key] for key in self._signed}, **self._left}, sign=""
                )
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
        if self.fault is not None:
            raise self.fault
        if self._left:
            raise ServiceError(
                f"the brokers at {self._source.topic.brokers} do not take the last offsets: what "
                "was written since is written once more by the next run"
            )

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


_committers: dict[GroupReading, Committer] = {}
_lock = threading.Lock()


def committer_of(source: GroupReading) -> Committer:
    """Returns what commits the offsets of a source in this process."""
    with _lock:
        if source not in _committers:
            _committers[source] = Committer(source)
        return _committers[source]


def close_committer(source: GroupReading) -> None:
    """Ends the commits of a source.

    Raises:
      UserError: The last offsets could not be committed.
    """
    with _lock:
        committer = _committers.pop(source, None)
    if committer is not None:
        committer.close()
