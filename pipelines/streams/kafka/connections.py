"""Consumers of this process: one for each source, whose readers take turns."""

from __future__ import annotations

import collections
import threading
import time
from typing import TYPE_CHECKING, Any

from model.errors import ServiceError, UserError
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.committing import (
    GroupReading,
    close_committer,
    committer_of,
    take_committer,
)
from pipelines.streams.kafka.positions import find_positions, list_partitions
from pipelines.streams.live_run import LiveRun, find_run
from pipelines.streams.open_once import OpenOnce

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

WAIT_SECONDS = 0.02  # the longest that a reader waits for messages
_LOOKS_TO_LEAVE = 4  # at whether there still is a reader


class Connection:
    """A consumer of a source, which is where the reader is that read last.

    It takes up partitions that are added.

    Args:
      source: What is read.

    Raises:
      UserError: The brokers do not answer.
    """

    def __init__(self, source: GroupReading) -> None:
        self._source = source
        self._live: LiveRun = find_run(source.run)
        self._committer = committer_of(source)
        self._fault: Exception | None = None
        self._doubt: UserError | None = None  # what the last look for partitions met
        self._lock = threading.Lock()  # of all below: of two attempts of a job, both may read
        self._fetched: collections.deque[Any] = collections.deque()
        self._reading: dict[int, int] = {}  # the next offset of each partition: its reader's own
        self._used = time.monotonic()
        self._added: list[dict[int, int]] = []  # partitions that the look has found, and offsets
        self._closed = threading.Event()
        self._consumer = clients.make_consumer(
            source.topic.brokers, group=source.group, config=source.config, note=self._note_error
        )
        found = find_positions(self._consumer, source, list_partitions(self._consumer, source))
        self._known = {p: at.offset for p, at in found.items()}  # where their first reader begins
        self._new = dict(self._known)  # what is not committed, and must be where reading begins
        self._committer.note({p: at.offset for p, at in found.items() if at.is_committed})
        self._live.note_ends({p: at.end for p, at in found.items()})
        self._look = threading.Thread(target=self._look_around, daemon=True)
        self._look.start()

    def begin(self, offsets: dict[int, int]) -> dict[int, int]:
        """Returns where a reader begins, by partition: behind a mark's offsets, if it has some."""
        if not offsets:  # so that a new group that began at the end goes on there after a crash
            new, self._new = self._new, {}
            self._committer.commit(new)
        self._committer.start_beats()
        with self._lock:
            self._used = time.monotonic()
            return {**self._known, **offsets}

    def read(self, positions: dict[int, int]) -> Any | None:
        """Returns the next record of a reader, or None if there is none now.

        Args:
          positions: Where the reader is: the next offset of each partition. Changed by this.

        Raises:
          UserError: Nothing more can be read, or what was read not be committed.
        """
        with self._lock:
            self._used = time.monotonic()
            if fault := self._fault or self._committer.fault:
                raise fault
            if self._live.is_draining:
                return None
            if self._reading is not positions:
                self._turn_to(positions)
            while self._added:
                self._take(self._added.pop())
            if not self._fetched:
                taken = self._consumer.consume(self._source.most, timeout=WAIT_SECONDS)
                self._fetched.extend(taken)
                self._note_ends()
            while self._fetched:
                record = self._fetched.popleft()
                if (error := record.error()) is not None:
                    self._note_error(error)
                    if self._fault is not None:
                        raise self._fault
                    continue
                positions[record.partition()] = record.offset() + 1
                return record
            return None

    def close(self) -> None:
        """Lets go of the brokers."""
        self._closed.set()
        if threading.current_thread() is not self._look:
            self._look.join()
        with self._lock:
            self._consumer.close()

    def _turn_to(self, positions: dict[int, int]) -> None:
        """Goes to where another reader is: what was fetched is its, too, if it stands there."""
        from confluent_kafka import TopicPartition

        for partition, at in self._known.items():  # added since its mark was made
            positions.setdefault(partition, at)
        before, self._reading = self._reading, positions
        self._live.note_done(
            {partition: at for partition, at in positions.items() if partition not in before}
        )
        moved = {p: at for p, at in positions.items() if before.get(p) != at}
        if not moved:
            return
        name = self._source.topic.topic
        if left := [TopicPartition(name, partition) for partition in moved if partition in before]:
            self._consumer.incremental_unassign(left)
            kept = [each for each in self._fetched if each.partition() not in moved]
            self._fetched = collections.deque(kept)
        self._consumer.incremental_assign([TopicPartition(name, p, at) for p, at in moved.items()])

    def _take(self, offsets: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        new = {partition: at for partition, at in offsets.items() if partition not in self._known}
        self._known.update(new)
        self._reading.update(new)
        self._live.note_done(new)
        name = self._source.topic.topic
        if new:
            self._consumer.incremental_assign(
                [TopicPartition(name, p, at) for p, at in new.items()]
            )

    def _note_ends(self) -> None:
        from confluent_kafka import TopicPartition

        name, ends = self._source.topic.topic, {}
        for partition in self._reading:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(name, partition), cached=True
            )
            if found is not None and found[1] >= 0:
                ends[partition] = found[1]
        self._live.note_ends(ends)

    def _note_error(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        brokers = self._source.topic.brokers
        if clients.is_passing(error):
            self._live.note_trouble(f"no answer of {brokers} ({error.name()})")
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._fault = UserError(
                f"{self._source.topic} has no messages where the group {self._source.group} goes "
                f"on ({' '.join(error.str().split())}). If they were deleted, run the same command "
                "again: it goes on with the oldest; if the topic was made anew, name a new `group`"
            )
        else:
            self._fault = clients.explain_error(error, brokers=brokers)

    def _look_around(self) -> None:
        """Looks for partitions that are added, and leaves when no reader has come for a while."""
        patience, pause = self._source.leave_seconds, self._source.look_seconds
        if patience is not None:
            pause = min(pause, patience / _LOOKS_TO_LEAVE)
        looked = time.monotonic()
        while not self._closed.wait(pause):
            now = time.monotonic()
            if patience is not None and now - self._used > patience:
                leave(self._source)
                return
            if now - looked >= self._source.look_seconds:
                looked = now
                if not self._look_for_partitions():
                    return

    def _look_for_partitions(self) -> bool:
        """Looks once; returns whether to go on looking."""
        try:
            partitions = list_partitions(self._consumer, self._source)
            self._doubt = None
            if new := [each for each in partitions if each not in self._known]:
                found = find_positions(self._consumer, self._source, new, is_new=True)
                self._added.append({p: at.offset for p, at in found.items()})
        except ServiceError as error:  # which may pass
            self._live.note_trouble(f"partitions cannot be listed ({error})")
        except UserError as error:  # a broker that has just begun may know no topic yet
            if self._doubt is not None:
                self._fault = error
                return False
            self._doubt = error
            self._live.note_trouble(f"partitions cannot be listed ({error})")
        except Exception as error:  # of a thread: `read` raises it
            self._fault = error
            return False
        return True


_connections = OpenOnce(Connection)


def connection_of(source: GroupReading) -> Connection:
    """Returns the connection of a source in this process.

    Raises:
      UserError: The brokers do not answer.
    """
    return _connections.find(source)


def leave(source: GroupReading) -> None:
    """Ends the connection of a source whose readers are of another process by now, if of any."""
    connection, committer = _connections.take(source), take_committer(source)
    # Both are taken by now: a reader that comes while they are closed, which takes a while, gets
    # others.
    if connection is not None:
        connection.close()
    if committer is not None:
        committer.leave()


def close_connection(source: GroupReading) -> None:
    """Ends the connection of a source, and the commits of its offsets.

    Raises:
      UserError: The last offsets could not be committed.
    """
    if (connection := _connections.take(source)) is not None:
        connection.close()
    close_committer(source)
