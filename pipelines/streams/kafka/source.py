"""A topic of Kafka as an unbounded source of Beam: read, and committed when a bundle is written.

All partitions are of one reader, as `tt` runs a stream with one worker. Offsets are committed when
the runner says that a bundle is done, so that a kill loses nothing: what was read since is read
again.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from apache_beam.coders import Coder, PickleCoder
from apache_beam.io.unbounded_source import CheckpointMark, UnboundedReader, UnboundedSource
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from model.errors import ServiceError, UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.clients import ANSWER_SECONDS
from pipelines.streams.kafka.committing import committer_of
from pipelines.streams.kafka.signs import BEAT_SECONDS
from pipelines.streams.live_run import LiveRun, find_run
from pipelines.streams.messages import BUNDLE_BYTES, Message

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

WAIT_SECONDS = 0.02  # the longest that a reader waits for messages
LOOK_SECONDS = 30.0  # between two looks at which partitions there are


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaSource(UnboundedSource):
    """The messages of a topic, from where a group has got to."""

    topic: KafkaTopic
    group: str
    config: str | None = None  # file of the user's settings, which each worker reads
    most: int = 256  # messages that are taken from the client at once
    run: str = ""  # name of the `LiveRun`
    term: int = 1  # of the run, see `Sign`
    look_seconds: float = LOOK_SECONDS
    beat_seconds: float = BEAT_SECONDS  # between two signs of life, see `Sign`

    def split(self, desired_num_splits: int, options: Any = None) -> Iterable[KafkaSource]:
        """Returns this source: one worker reads all partitions."""
        return [self]

    def create_reader(
        self, options: Any, checkpoint_mark: CheckpointMark | None
    ) -> UnboundedReader:
        """Makes a reader that goes on behind the mark, or else behind what is committed."""
        assert checkpoint_mark is None or isinstance(checkpoint_mark, KafkaMark)
        return KafkaReader(self, dict(checkpoint_mark.offsets) if checkpoint_mark else {})

    def get_checkpoint_mark_coder(self) -> Coder:
        """Returns the coder of marks."""
        return PickleCoder()


@dataclasses.dataclass(frozen=True)
class KafkaMark(CheckpointMark):
    """How far a reader has got."""

    source: KafkaSource
    offsets: tuple[tuple[int, int], ...]  # partitions, and the next offset to read of each

    def finalize_checkpoint(self) -> None:
        """Commits the offsets; all before them is written."""
        committer_of(self.source).commit(dict(self.offsets))


class KafkaReader(UnboundedReader):
    """Reads all partitions of a topic, and takes up those that are added.

    Args:
      source: What to read.
      offsets: Where to go on, by partition; the others go on behind what is committed.

    Raises:
      UserError: The brokers do not answer.
    """

    def __init__(self, source: KafkaSource, offsets: dict[int, int]) -> None:
        self._source = source
        self._live: LiveRun = find_run(source.run)
        self._committer = committer_of(source)
        self._fault: Exception | None = None
        self._current: Message | None = None
        self._time = MIN_TIMESTAMP
        self._room = BUNDLE_BYTES  # for messages until the next mark
        self._fetched: collections.deque[Any] = collections.deque()
        self._next: dict[int, int] = {}
        self._added: list[dict[int, int]] = []  # partitions that the look has found, and offsets
        self._closed = threading.Event()
        self._consumer = clients.make_consumer(
            source.topic.brokers, group=source.group, config=source.config, note=self._note_error
        )
        partitions = _list_partitions(self._consumer, source)
        found = find_positions(self._consumer, source, partitions)
        self._committer.note({p: at.offset for p, at in found.items() if at.is_committed})
        if not offsets:  # so that a new group that began at the end goes on there after a crash
            self._committer.commit({p: at.offset for p, at in found.items()})
        self._committer.start_beats()
        self._live.note_ends({p: at.end for p, at in found.items()})
        self._take({**{p: at.offset for p, at in found.items()}, **offsets})
        self._look = threading.Thread(target=self._look_for_partitions, daemon=True)
        self._look.start()

    def start(self) -> bool:
        """Reads the first message; returns whether there is one now."""
        return self.advance()

    def advance(self) -> bool:
        """Reads the next message; returns whether there is one now."""
        if fault := self._fault or self._committer.fault:
            raise fault
        if self._live.is_draining or self._room <= 0:
            return False
        while self._added:
            self._take(self._added.pop())
        if not self._fetched:
            self._fetched.extend(self._consumer.consume(self._source.most, timeout=WAIT_SECONDS))
            self._note_ends()
        while self._fetched:
            record = self._fetched.popleft()
            if (error := record.error()) is not None:
                self._note_error(error)
                if self._fault is not None:
                    raise self._fault
                continue
            self._next[record.partition()] = record.offset() + 1
            self._current = _message_of(record)
            self._room -= self._current.size
            return True
        return False

    def get_current(self) -> Message:
        """Returns the message."""
        assert self._current is not None
        return self._current

    def get_current_timestamp(self) -> Timestamp:
        """Returns the message's own time, or now where that is no time of the past."""
        assert self._current is not None
        now, found = Timestamp.now(), self._current.milliseconds
        if found is not None and 0 <= found * 1000 <= now.micros:
            now = Timestamp(micros=found * 1000)
        self._time = max(self._time, now)
        return now

    def get_watermark(self) -> Timestamp:
        """Returns the time up to which all may have been read; the last of all ends the run."""
        return MAX_TIMESTAMP if self._live.is_draining else self._time

    def get_checkpoint_mark(self) -> KafkaMark:
        """Returns how far the messages that were given have got, not those fetched ahead."""
        self._room = BUNDLE_BYTES
        return KafkaMark(self._source, tuple(sorted(self._next.items())))

    def close(self) -> None:
        """Lets go of the brokers."""
        self._closed.set()
        self._look.join()
        self._consumer.close()

    def _take(self, offsets: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        new = {partition: at for partition, at in offsets.items() if partition not in self._next}
        self._next.update(new)
        self._live.note_done(new)
        name = self._source.topic.topic
        if new:
            self._consumer.incremental_assign(
                [TopicPartition(name, p, at) for p, at in new.items()]
            )

    def _note_ends(self) -> None:
        from confluent_kafka import TopicPartition

        name, ends = self._source.topic.topic, {}
        for partition in self._next:
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

    def _look_for_partitions(self) -> None:
        while not self._closed.wait(self._source.look_seconds):
            try:
                partitions = _list_partitions(self._consumer, self._source)
                if new := [each for each in partitions if each not in self._next]:
                    found = find_positions(self._consumer, self._source, new, is_new=True)
                    self._added.append({p: at.offset for p, at in found.items()})
            except ServiceError as error:  # which may pass
                self._live.note_trouble(f"partitions cannot be listed ({error})")
            except Exception as error:  # of a thread: `advance` raises it
                self._fault = error
                return


def _list_partitions(consumer: Consumer, source: KafkaSource) -> list[int]:
    import confluent_kafka

    name = source.topic.topic
    try:
        found = consumer.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
    except confluent_kafka.KafkaException as error:
        raise clients.explain_silence(
            [error.args[0]], brokers=source.topic.brokers, config=source.config
        ) from None
    if found.error is not None:
        raise clients.explain_error(found.error, brokers=source.topic.brokers)
    return sorted(found.partitions)


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a partition is read on."""

    offset: int
    end: int  # the offset of the message that comes next
    is_committed: bool
    lost: int = 0  # messages that the brokers deleted before they were read
    sign: str = ""  # what stands beside the committed offset, see `Sign`


def find_positions(
    consumer: Consumer, source: KafkaSource, partitions: Sequence[int], *, is_new: bool = False
) -> dict[int, Position]:
    """Finds where a group has got to.

    Args:
      consumer: A consumer of the group.
      source: What is read.
      partitions: Partitions of the topic.
      is_new: Whether they were added while the run goes on: all of their messages are to be read.

    Raises:
      UserError: The brokers do not answer.
    """
    import confluent_kafka
    from confluent_kafka import TopicPartition

    brokers, name = source.topic.brokers, source.topic.topic
    at_end = not is_new and clients.starts_at_end(clients.read_settings(source.config))
    found: dict[int, Position] = {}
    try:
        committed = consumer.committed(
            [TopicPartition(name, partition) for partition in partitions], timeout=ANSWER_SECONDS
        )
        for each in committed:
            if each.error is not None:
                raise clients.explain_error(each.error, brokers=brokers)
            first, end = consumer.get_watermark_offsets(
                TopicPartition(name, each.partition), timeout=ANSWER_SECONDS
            )
            is_committed = each.offset >= 0
            begin = each.offset if is_committed else end if at_end else first
            lost = max(first - begin, 0) if is_committed else 0
            found[each.partition] = Position(
                max(begin, first), max(begin, end), is_committed, lost, each.metadata or ""
            )
    except confluent_kafka.KafkaException as error:
        raise clients.explain_silence(
            [error.args[0]], brokers=brokers, config=source.config
        ) from None
    return found


def _message_of(record: Any) -> Message:
    kind, milliseconds = record.timestamp()
    return Message(
        value=record.value(),
        key=record.key(),
        headers=tuple(record.headers() or ()),
        source=f"{record.topic()}/{record.partition()}/{record.offset()}",
        partition=record.partition(),
        milliseconds=milliseconds if kind and milliseconds >= 0 else None,
    )
