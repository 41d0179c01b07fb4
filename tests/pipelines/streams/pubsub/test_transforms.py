"""Messages as Beam's own reader of Pub/Sub gives them and its writer takes them."""

import datetime

import apache_beam as beam
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.testing.util import assert_that, equal_to

from pipelines.streams.addresses import PubsubName
from pipelines.streams.messages import Answer
from pipelines.streams.pubsub import transforms
from pipelines.streams.pubsub.source import message_of
from pipelines.streams.pubsub.writer import PubsubTarget

NAME = PubsubName("some-project", "titles")
OUTPUT, DEAD = PubsubName("some-project", "output"), PubsubName("some-project", "dead")
WHEN = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def as_written(message):
    """Returns a message as Beam sends it, which checks it."""
    made = PubsubMessage._from_proto_str(message._to_proto_str(for_publish=True))
    return made.data, made.attributes, made.ordering_key


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_each_answer_goes_to_its_topic_as_pubsub_takes_it(monkeypatch, has_dead_letter):
    written = {}
    monkeypatch.setattr(transforms, "_write", lambda topic: _Note(written, topic))
    read = PubsubMessage(b"one", {"a": "1"}, "7", WHEN, "k")
    # As a worker gets it.
    message = message_of(PubsubMessage._from_proto_str(read._to_proto_str()), NAME)
    answers = [
        Answer(message=message, value=b"eins", status="ok"),
        Answer(message=message, value=b"", status="failed", error="why"),
    ]
    target = PubsubTarget(output=OUTPUT, dead_letter=DEAD if has_dead_letter else None)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(answers) | transforms.WriteTopics(target=target)
        attributes = {"a": "1", "tt-source": "titles/7"}
        good = (b"eins", {**attributes, "tt-status": "ok"}, "k")
        bad = (
            b"one" if has_dead_letter else b"",
            {**attributes, "tt-status": "failed", "tt-error": "why"},
            "k",
        )
        expected = {OUTPUT: [good], DEAD: [bad]} if has_dead_letter else {OUTPUT: [good, bad]}
        assert written.keys() == expected.keys()
        for topic, messages in expected.items():
            assert_that(written[topic], equal_to(messages), label=topic.name)


class _Note(beam.PTransform):
    """In place of Beam's writer."""

    def __init__(self, written, topic):
        super().__init__()
        self._written, self._topic = written, topic

    def expand(self, messages):
        self._written[self._topic] = messages | beam.Map(as_written)
        return self._written[self._topic]
