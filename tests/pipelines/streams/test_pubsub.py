"""Pub/Sub messages: how they are read, and how answers are sent."""

import datetime
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from apache_beam.io.gcp import pubsub as beam_pubsub
from google.pubsub_v1 import PubsubMessage

from tt.pipelines.streams.messages import Answer, Message, Outputs
from tt.pipelines.streams.metrics import StreamMetrics
from tt.pipelines.streams.options import PubsubName, StreamOptions
from tt.pipelines.streams.plan import StreamRun
from tt.pipelines.streams.pubsub import (
    MOST_BYTES,
    PubsubMember,
    PubsubPlan,
    _attributes,
    _is_accepted,
    make_message,
    message_of,
)

NAME = PubsubName("some-project", "titles")


def test_every_field_of_a_message_is_read():
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
    message = PubsubMessage(
        data=b"one", attributes={"b": "2", "a": "ü"}, message_id="7", publish_time=when,
        ordering_key="k",
    )  # fmt: skip
    assert message_of(message, NAME) == Message(
        value=b"one", key=b"k", headers=(("a", "ü".encode()), ("b", b"2")), source="titles/7",
        milliseconds=int(when.timestamp() * 1000),
    )  # fmt: skip
    assert message_of(PubsubMessage(publish_time=when), NAME).key is None


def test_attributes_of_tt_take_precedence_over_others():
    own = (("tt-source", b"s/1"), ("tt-status", b"ok"))
    assert _attributes((("a", b"1"), *own)) == {"a": "1", "tt-source": "s/1", "tt-status": "ok"}
    found = _attributes((*((f"a{n}", b"1") for n in range(100)), *own))
    assert len(found) == 100
    assert found["tt-status"] == "ok"
    assert "a97" in found
    assert "a98" not in found


def test_long_attributes_are_cut_between_characters():
    found = _attributes((("tt-error", "ü".encode() * 600),))
    assert found["tt-error"] == "ü" * 512


def test_messages_on_dataflow_may_lack_a_timestamp_and_an_id():
    message = beam_pubsub.PubsubMessage(b"one", {"a": "1"}, ordering_key="")
    found = message_of(message, NAME, milliseconds=1234)
    assert found == Message(
        value=b"one", headers=(("a", b"1"),), source="titles/", milliseconds=1234
    )


def answer_of(value=b"ok", translation=b"ko", key=None, **attributes):
    headers = tuple((name, text.encode()) for name, text in attributes.items())
    message = Message(value=value, key=key, headers=headers, source="titles/7")
    return Answer(message=message, value=translation, status="ok")


TARGET = Outputs(output=PubsubName("p", "out"), dead_letter=PubsubName("p", "dead"))


def test_answers_keep_their_key_and_attributes():
    topic, message, status = make_message(answer_of(key=b"k", a="1"), target=TARGET)
    assert (topic.name, status, message.data, message.ordering_key) == ("out", "ok", b"ko", "k")
    assert message.attributes == {"a": "1", "tt-source": "titles/7", "tt-status": "ok"}


def test_too_large_answers_become_dead_letters_that_fit():
    topic, message, status = make_message(answer_of(translation=b"x" * MOST_BYTES), target=TARGET)
    assert (topic.name, status, message.data) == ("dead", "failed", b"ok")
    large = answer_of(value=b"x" * MOST_BYTES, translation=b"x" * MOST_BYTES, key=b"k")
    topic, message, status = make_message(large, target=TARGET)
    assert (topic.name, status, message.data, message.ordering_key) == ("dead", "failed", b"", "k")
    assert message.attributes["tt-source"] == "titles/7"


def test_too_many_attributes_make_a_dead_letter():
    many = answer_of(**{f"a{number}": "1" for number in range(99)})
    topic, message, status = make_message(many, target=TARGET)
    assert (topic.name, status, len(message.attributes)) == ("dead", "failed", 100)
    assert message.attributes["tt-error"].endswith(
        "needs 101 attributes, but Pub/Sub allows only 100"
    )


def test_an_acknowledgment_after_the_end_of_a_pull_is_not_accepted():
    pulling, acknowledgment = Future(), Future()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(_is_accepted, acknowledgment, pulling)
        pulling.set_result(None)
        assert found.result() is False
    acknowledgment.set_result(None)
    assert _is_accepted(acknowledgment, pulling)
    refused = Future()
    refused.set_exception(ValueError())
    assert not _is_accepted(refused, Future())


def test_a_signal_does_not_extend_the_wait_for_messages(monkeypatch):
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:9")  # nothing connects to it
    plan = PubsubPlan(
        options=StreamOptions(
            input="pubsub://some-project/titles", output="pubsub://some-project/answers"
        ),
        source=NAME,
        outputs=TARGET,
        lines=(),
    )
    run = StreamRun(
        answer=list, metrics=StreamMetrics(), stop=threading.Event(), report=lambda line: None
    )
    member = PubsubMember(plan, run)
    signals = []

    def handle(number, frame):
        signals.append(number)
        assert len(signals) == 1, "the wait did not end"
        time.sleep(0.3)  # longer than the wait

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 30)
    try:
        assert member._take(is_busy=False) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert signals
