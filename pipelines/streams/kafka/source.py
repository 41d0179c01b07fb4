"""A topic of Kafka as an unbounded source of Beam: read, and committed when a bundle is written.

Offsets are committed when the runner says that a bundle is done, so that a kill loses nothing: what
was read since is read again. On this machine one source has all partitions; on other runners each
of several has a share of them, whose readers of one worker share a consumer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from apache_beam.coders import Coder, PickleCoder
from apache_beam.io.unbounded_source import CheckpointMark, UnboundedReader, UnboundedSource
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka.committing import committer_of
from pipelines.streams.kafka.connections import connection_of, leave
from pipelines.streams.kafka.signs import BEAT_SECONDS
from pipelines.streams.live_run import LiveRun, find_run
from pipelines.streams.messages import BUNDLE_BYTES, Message

LOOK_SECONDS = 30.0  # between two looks at which partitions there are


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaSource(UnboundedSource):
    """The messages of a topic, or of a share of its partitions, from where a group has got to."""

    topic: KafkaTopic
    group: str
    config: str | None = None  # file of the user's settings, which each worker reads
    most: int = 256  # messages that are taken from the client at once
    run: str = ""  # name of the `LiveRun`
    term: int = 1  # of the run, see `Sign`
    look_seconds: float = LOOK_SECONDS
    beat_seconds: float = BEAT_SECONDS  # between two signs of life, see `Sign`
    share: int = 0  # which of the shares this is
    shares: int = 1  # sources among which the partitions are divided, those added later as well
    # Seconds without a reader after which a worker lets go of the share: another may have it now.
    # By default never, as where one worker has all.
    leave_seconds: float | None = None

    def choose(self, partitions: Iterable[int]) -> list[int]:
        """Returns those partitions that are of this share.

        >>> source = KafkaSource(topic=KafkaTopic("a:1", "t"), group="g", share=1, shares=2)
        >>> source.choose(range(5))
        [1, 3]
        """
        return sorted(each for each in partitions if each % self.shares == self.share)

    def divide(self, shares: int, *, leave_seconds: float) -> list[KafkaSource]:
        """Returns a source for each of so many shares."""
        return [
            dataclasses.replace(self, share=share, shares=shares, leave_seconds=leave_seconds)
            for share in range(shares)
        ]

    def split(self, desired_num_splits: int, options: Any = None) -> Iterable[KafkaSource]:
        """Returns this source: a share has one reader."""
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
    """Reads a source, by the consumer that all its readers of this process share.

    A runner that has many bundles in hand makes a reader for each, and may come back to an old one.

    Args:
      source: What to read.
      offsets: Where to go on, by partition; the others go on behind what is committed.

    Raises:
      UserError: The brokers do not answer.
    """

    def __init__(self, source: KafkaSource, offsets: dict[int, int]) -> None:
        self._source = source
        self._live: LiveRun = find_run(source.run)
        self._current: Message | None = None
        self._time = MIN_TIMESTAMP
        self._room = BUNDLE_BYTES  # for messages until the next mark
        self._next = connection_of(source).begin(offsets)

    def start(self) -> bool:
        """Reads the first message; returns whether there is one now."""
        return self.advance()

    def advance(self) -> bool:
        """Reads the next message; returns whether there is one now."""
        if self._room <= 0:
            return False
        try:
            record = connection_of(self._source).read(self._next)
        except Exception:
            if self._source.leave_seconds is not None:  # the next attempt has a new consumer
                leave(self._source)
            raise
        if record is None:
            return False
        self._current = _message_of(record)
        self._room -= self._current.size
        return True

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
        """Does nothing: the consumer is for the next reader, too; see `close_connection`."""


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
