"""What is said of topics before a run, and how a source is left."""

from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka import committing, connections
from pipelines.streams.kafka.connecting import _describe, _describe_loss
from pipelines.streams.kafka.positions import Position
from pipelines.streams.kafka.source import KafkaSource
from pipelines.streams.open_once import OpenOnce

SOURCE = KafkaSource(topic=KafkaTopic("a:1", "in"), group="g")


def test_what_a_run_will_read_is_said_in_a_line():
    positions = {0: Position(5, 12, True), 1: Position(0, 1, False)}
    line = "Reading kafka://a:1/in as group g: 2 partitions, 8 messages waiting"
    assert _describe(SOURCE, positions) == line


def test_what_was_deleted_before_it_was_read_is_told():
    assert _describe_loss(SOURCE, 0, Position(5, 12, True)) == ""
    told = _describe_loss(SOURCE, 3, Position(5, 12, True, lost=2))
    assert told.startswith("2 messages of partition 3 of in were deleted")


def test_a_reader_that_comes_while_a_source_is_left_gets_another_committer(monkeypatch):
    came = []

    class Committer:
        is_left = False

        def leave(self):
            self.is_left = True

    class Connection:
        def __init__(self, source):
            self.committer = committing.committer_of(source)

        def close(self):
            if not came:
                came.append(connections.connection_of(SOURCE))

    monkeypatch.setattr(committing, "_committers", OpenOnce(lambda source: Committer()))
    monkeypatch.setattr(connections, "_connections", OpenOnce(Connection))
    left = connections.connection_of(SOURCE)
    connections.leave(SOURCE)
    assert left.committer.is_left
    assert not came[0].committer.is_left
    assert connections.connection_of(SOURCE) is came[0]
