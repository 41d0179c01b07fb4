"""A topic as a source of Beam, with a stand-in for the client, which can say anything."""

import contextlib
import dataclasses
import time

import pytest
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from model.errors import ServiceError, UserError
from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.connections import close_connection
from pipelines.streams.kafka.source import KafkaMark, KafkaSource
from pipelines.streams.live_run import find_run, forget_run
from pipelines.streams.messages import BUNDLE_BYTES

TOPIC = KafkaTopic("a:1", "t")


class Record:
    """A message as the client gives it."""

    def __init__(self, partition, offset, *, error=None, time=(1, 1_700_000_000_000)):
        self._at, self._error, self._time = (partition, offset), error, time

    def topic(self):
        return "t"

    def partition(self):
        return self._at[0]

    def offset(self):
        return self._at[1]

    def error(self):
        return self._error

    def key(self):
        return None

    def value(self):
        return b"text"

    def headers(self):
        return None

    def timestamp(self):
        return self._time


class Topics:
    """A topic, and the list of topics that it is in."""

    def __init__(self, partitions):
        self.error = None
        self.partitions = dict.fromkeys(range(partitions))
        self.topics = {"t": self}


class Consumer:
    """What the tests see of a client, and what they make it say."""

    def __init__(self):
        self.partitions = 1
        self.committed_offsets = {}
        self.first = {}
        self.records = []
        self.assigned = {}
        self.waited = []
        self.commits = []
        self.commit_error = None
        self.is_closed = False

    def list_topics(self, name, timeout):
        return Topics(self.partitions)

    def committed(self, partitions, timeout):
        return [
            TopicPartition("t", each.partition, self.committed_offsets.get(each.partition, -1001))
            for each in partitions
        ]

    def get_watermark_offsets(self, partition, timeout=None, cached=False):
        return self.first.get(partition.partition, 0), 100

    def incremental_assign(self, partitions):
        self.assigned.update({each.partition: each.offset for each in partitions})

    def incremental_unassign(self, partitions):
        for each in partitions:
            del self.assigned[each.partition]

    def consume(self, count, timeout):
        self.waited.append(timeout)
        taken, self.records = self.records[:count], self.records[count:]
        return taken

    def commit(self, offsets, asynchronous):
        assert not asynchronous
        if self.commit_error is not None:
            raise KafkaException(self.commit_error)
        self.commits.append({each.partition: each.offset for each in offsets})

    def close(self):
        self.is_closed = True


@pytest.fixture
def client(monkeypatch):
    client = Consumer()
    monkeypatch.setattr(clients, "make_consumer", lambda *_, **__: client)
    return client


@pytest.fixture
def source():
    source = KafkaSource(topic=TOPIC, group="g", run="test", look_seconds=0.01)
    yield source
    with contextlib.suppress(UserError):
        close_connection(source)
    forget_run("test")


def read(reader):
    found = []
    while reader.advance():
        found.append(reader.get_current().source)
    return found


def test_a_reader_begins_behind_what_is_committed_or_with_the_oldest(client, source):
    client.partitions, client.committed_offsets, client.first = 3, {0: 7, 1: 2}, {1: 5, 2: 3}
    source.create_reader(None, None).start()
    assert client.assigned == {0: 7, 1: 5, 2: 3}  # of partition 1 the oldest is left
    close_connection(source)
    assert client.is_closed


def test_a_mark_wins_over_what_is_committed(client, source):
    client.partitions, client.committed_offsets = 2, {0: 7, 1: 7}
    source.create_reader(None, KafkaMark(source, ((0, 20),))).start()
    assert client.assigned == {0: 20, 1: 7}


def test_a_new_group_begins_at_the_end_where_the_user_wants_it(client, source, tmp_path):
    config = tmp_path / "config"
    config.write_text("auto.offset.reset=latest")
    source = dataclasses.replace(source, config=str(config))
    source.create_reader(None, None).start()
    assert client.assigned == {0: 100}
    assert client.commits == [{0: 100}]  # else what comes before the first commit could be lost
    close_connection(source)


def test_a_mark_is_behind_what_was_given_not_what_was_fetched(client, source):
    client.records = [Record(0, 4), Record(0, 5), Record(0, 6)]
    reader = source.create_reader(None, None)
    assert reader.start()
    assert reader.advance()
    assert reader.get_checkpoint_mark().offsets == ((0, 6),)
    reader.close()


def test_no_wait_is_longer_than_20_ms(client, source):
    reader = source.create_reader(None, None)
    for _ in range(3):
        assert not reader.advance()
    assert client.waited
    assert max(client.waited) <= 0.02
    reader.close()


def test_offsets_are_committed_once(client, source):
    client.committed_offsets = {0: 3}
    reader = source.create_reader(None, None)
    for offset in (3, 5, 5):
        KafkaMark(source, ((0, offset),)).finalize_checkpoint()
    assert client.commits == [{0: 5}]
    assert find_run("test").look().lag == {0: 95}
    reader.close()


def test_a_commit_that_fails_for_a_while_is_made_with_the_next_or_at_the_end(client, source):
    client.commit_error = KafkaError(KafkaError._TRANSPORT)
    KafkaMark(source, ((0, 5),)).finalize_checkpoint()
    assert "not committed" in find_run("test").look().trouble
    with pytest.raises(ServiceError, match="written once more by the next run"):
        close_connection(source)
    KafkaMark(source, ((0, 5),)).finalize_checkpoint()
    client.commit_error = None
    close_connection(source)
    assert client.commits == [{0: 5}]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.ILLEGAL_GENERATION, "another program reads as a member of the group g"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "the group of `group`"),
    ],
)
def test_a_commit_that_cannot_be_made_ends_the_run(client, source, code, said):
    reader = source.create_reader(None, None)
    client.commit_error = KafkaError(code)
    KafkaMark(source, ((0, 5),)).finalize_checkpoint()
    with pytest.raises(UserError, match=said):
        reader.advance()
    reader.close()


def test_a_partition_that_is_added_is_read_from_its_beginning(client, source):
    reader = source.create_reader(None, None)
    client.partitions = 2
    end = time.monotonic() + 10
    while 1 not in client.assigned and time.monotonic() < end:
        reader.advance()
        time.sleep(0.01)
    assert client.assigned == {0: 0, 1: 0}
    client.records = [Record(1, 0), Record(0, 0)]
    assert read(reader) == ["t/1/0", "t/0/0"]
    assert reader.get_checkpoint_mark().offsets == ((0, 1), (1, 1))
    reader.close()


def test_a_drain_gives_no_more_and_ends_the_source(client, source):
    client.records = [Record(0, 0), Record(0, 1)]
    reader = source.create_reader(None, None)
    assert reader.advance()
    find_run("test").is_draining = True
    assert not reader.advance()
    assert reader.get_watermark() == MAX_TIMESTAMP
    assert reader.get_checkpoint_mark().offsets == ((0, 1),)
    reader.close()


def test_brokers_that_are_gone_are_told_and_waited_for(client, source):
    client.records = [Record(0, 0, error=KafkaError(KafkaError._TRANSPORT)), Record(0, 0)]
    reader = source.create_reader(None, None)
    assert read(reader) == ["t/0/0"]
    assert "no answer of a:1" in find_run("test").look().trouble
    reader.close()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError._AUTO_OFFSET_RESET, "has no messages where the group g goes on"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "work with a topic"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "is gone"),
    ],
)
def test_an_error_that_stays_ends_the_run_and_passes_over_nothing(client, source, code, said):
    client.records = [Record(0, 0), Record(0, 1, error=KafkaError(code)), Record(0, 2)]
    reader = source.create_reader(None, None)
    assert reader.advance()
    with pytest.raises(UserError, match=said):
        reader.advance()
    assert reader.get_checkpoint_mark().offsets == ((0, 1),)
    reader.close()


# Runners with workers of their own make a reader for each bundle, and may go back to an old one.


@pytest.fixture
def share(source):
    [share] = source.divide(1, leave_seconds=60)
    yield share
    close_connection(share)


def test_shares_have_each_partition_once(source):
    shares = source.divide(3, leave_seconds=60)
    assert [each.choose(range(8)) for each in shares] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert source.choose(range(8)) == list(range(8))


def test_a_share_reads_its_partitions_alone(client, source):
    client.partitions = 5
    share = source.divide(2, leave_seconds=60)[1]
    share.create_reader(None, None).start()
    assert client.assigned == {1: 0, 3: 0}
    close_connection(share)


def test_the_next_reader_goes_on_with_what_was_fetched(client, share):
    client.records = [Record(0, 4), Record(0, 5)]
    first = share.create_reader(None, None)
    assert first.start()
    client.assigned.clear()
    second = share.create_reader(None, first.get_checkpoint_mark())
    assert read(second) == ["t/0/5"]
    assert client.assigned == {}
    first.close()
    assert not client.is_closed


def test_a_reader_that_is_behind_goes_back_and_drops_what_was_fetched(client, share):
    client.partitions = 2
    client.records = [Record(0, 4), Record(0, 5), Record(1, 7), Record(0, 6)]
    first = share.create_reader(None, None)
    assert first.start()
    mark = first.get_checkpoint_mark()
    assert mark.offsets == ((0, 5), (1, 0))
    assert read(first) == ["t/0/5", "t/1/7", "t/0/6"]
    client.records = [Record(0, 7)]
    assert first.advance()
    client.assigned.clear()
    client.assigned.update({0: -1, 1: -1})
    again = share.create_reader(None, mark)
    client.records = [Record(0, 5)]
    assert read(again) == ["t/0/5"]
    assert client.assigned == {0: 5, 1: 0}
    # The first reader, kept by its bundle, goes on where it was itself.
    client.records = [Record(0, 8)]
    assert read(first) == ["t/0/8"]
    assert client.assigned == {0: 8, 1: 8}
    assert first.get_checkpoint_mark().offsets == ((0, 9), (1, 8))


def test_no_commit_goes_back(client, share):
    reader = share.create_reader(None, None)
    for offset in (8, 5, 9, 2):
        KafkaMark(share, ((0, offset),)).finalize_checkpoint()
    assert client.commits == [{0: 0}, {0: 8}, {0: 9}]
    reader.close()


def test_a_share_without_a_reader_is_left_and_can_be_taken_up_again(client, source):
    [share] = source.divide(1, leave_seconds=0.2)
    reader = share.create_reader(None, None)
    reader.start()
    commits = list(client.commits)
    end = time.monotonic() + 10
    while not client.is_closed and time.monotonic() < end:
        time.sleep(0.01)
    assert client.is_closed
    assert client.commits == commits  # what is committed, and its sign, are another's by now
    client.records = [Record(0, 0)]
    assert read(reader) == ["t/0/0"]
    close_connection(share)


@pytest.mark.parametrize("when", [(0, -1), (1, -5), (1, 2**62)])
def test_a_message_without_a_time_of_the_past_has_that_of_now(client, source, when):
    client.records = [Record(0, 0, time=when)]
    reader = source.create_reader(None, None)
    assert reader.advance()
    assert abs(reader.get_current_timestamp().micros - Timestamp.now().micros) < 60e6
    assert reader.get_watermark() <= Timestamp.now()
    reader.close()


def test_a_bundle_is_bounded_by_bytes(client, source):
    big, small = Record(0, 0), Record(0, 1)
    big.value = lambda: b"x" * BUNDLE_BYTES
    client.records = [big, small]
    reader = source.create_reader(None, None)
    assert reader.advance()
    assert not reader.advance(), "the bundle ends"
    assert reader.get_checkpoint_mark().offsets == ((0, 1),)
    assert read(reader) == ["t/0/1"]
    reader.close()


def read_for_seconds(reader):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        reader.advance()
        time.sleep(0.01)


def wait_for_fault(reader, error, match):
    with pytest.raises(error, match=match):
        read_for_seconds(reader)
    reader.close()


def test_what_the_look_for_partitions_does_not_overcome_ends_the_run(client, source, monkeypatch):
    reader = source.create_reader(None, None)
    topics = Topics(1)
    topics.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(client, "list_topics", lambda name, timeout: topics)
    wait_for_fault(reader, UserError, "work with a topic")


def test_a_topic_that_a_broker_does_not_know_once_is_asked_for_again(client, source, monkeypatch):
    reader = source.create_reader(None, None)
    answers = [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)]

    def list_topics(name, timeout):
        topics = Topics(2)
        topics.error = answers.pop() if answers else None
        return topics

    monkeypatch.setattr(client, "list_topics", list_topics)
    end = time.monotonic() + 10
    while 1 not in client.assigned:
        assert time.monotonic() < end
        reader.advance()
    assert not answers
    reader.close()


def test_a_bug_in_the_look_for_partitions_is_not_silent(client, source, monkeypatch):
    reader = source.create_reader(None, None)
    monkeypatch.setattr(client, "list_topics", lambda name, timeout: None)
    wait_for_fault(reader, AttributeError, "topics")


def test_brokers_that_list_no_partitions_now_are_asked_again(client, source, monkeypatch):
    reader = source.create_reader(None, None)

    def fail(name, timeout):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(client, "list_topics", fail)
    end = time.monotonic() + 10
    while not find_run("test").look().trouble:
        assert time.monotonic() < end
        reader.advance()
    assert "partitions cannot be listed" in find_run("test").look().trouble
    client.partitions = 2
    monkeypatch.undo()
    monkeypatch.setattr(clients, "make_consumer", lambda *_, **__: client)
    while 1 not in client.assigned:
        assert time.monotonic() < end
        reader.advance()
    reader.close()


def test_what_a_commit_raises_is_not_left_to_beam_which_would_log_it(client, source, monkeypatch):
    reader = source.create_reader(None, None)

    def fail(offsets, asynchronous):
        raise ValueError("no offset")

    monkeypatch.setattr(client, "commit", fail)
    KafkaMark(source, ((0, 5),)).finalize_checkpoint()
    with pytest.raises(ValueError, match="no offset"):
        reader.advance()
    reader.close()
    with pytest.raises(ValueError, match="no offset"):
        close_connection(source)
