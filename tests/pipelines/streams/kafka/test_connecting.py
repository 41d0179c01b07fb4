"""What is said of topics before a run."""

from pipelines.streams.addresses import KafkaTopic
from pipelines.streams.kafka.connecting import _describe, _describe_loss
from pipelines.streams.kafka.positions import Position
from pipelines.streams.kafka.source import KafkaSource

SOURCE = KafkaSource(topic=KafkaTopic("a:1", "in"), group="g")


def test_what_a_run_will_read_is_said_in_a_line():
    positions = {0: Position(5, 12, True), 1: Position(0, 1, False)}
    line = "Reading kafka://a:1/in as group g: 2 partitions, 8 messages waiting"
    assert _describe(SOURCE, positions) == line


def test_what_was_deleted_before_it_was_read_is_told():
    assert _describe_loss(SOURCE, 0, Position(5, 12, True)) == ""
    told = _describe_loss(SOURCE, 3, Position(5, 12, True, lost=2))
    assert told.startswith("2 messages of partition 3 of in were deleted")
