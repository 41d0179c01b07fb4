"""Messages of Pub/Sub: what is read of them, and how they are sent."""

import datetime
import time
from types import SimpleNamespace

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PubsubMessage, ReceivedMessage

from pipelines.streams.addresses import PubsubName
from pipelines.streams.live_run import find_run, forget_run
from pipelines.streams.messages import BUNDLE_BYTES, Message
from pipelines.streams.pubsub import clients
from pipelines.streams.pubsub.leases import Leases
from pipelines.streams.pubsub.source import PubsubSource, close_leases, message_of
from pipelines.streams.pubsub.writer import MOST_BYTES, _attributes, _in_requests

NAME = PubsubName("some-project", "titles")


def test_all_of_a_message_is_read():
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


def test_attributes_of_tt_have_room_before_all_others():
    own = (("tt-source", b"s/1"), ("tt-status", b"ok"))
    assert _attributes((("a", b"1"), *own)) == {"a": "1", "tt-source": "s/1", "tt-status": "ok"}
    found = _attributes((*((f"a{n}", b"1") for n in range(100)), *own))
    assert len(found) == 100
    assert found["tt-status"] == "ok"
    assert "a97" in found
    assert "a98" not in found


def test_a_long_reason_is_cut_between_characters():
    found = _attributes((("tt-error", "ü".encode() * 600),))
    assert found["tt-error"] == "ü" * 512


def test_requests_have_room_for_their_messages():
    small, large = PubsubMessage(data=b"x"), PubsubMessage(data=b"x" * (MOST_BYTES - 1000))
    sizes = [len(part) for part in _in_requests([small] * 2500)]
    assert sizes == [1000, 1000, 500]
    assert [len(part) for part in _in_requests([small, large, large, small])] == [2, 2]
    assert list(_in_requests([])) == []


class Client:
    """Refuses what it is asked for."""

    transport = property(lambda self: self)

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = []

    def acknowledge(self, *, request, retry, timeout):
        self.asked.append(list(request["ack_ids"]))
        if self.errors and (error := self.errors.pop(0)):
            raise error

    def close(self):
        pass


@pytest.fixture
def leases(monkeypatch):
    def make(*errors):
        client = Client(*errors)
        monkeypatch.setattr(clients, "make_subscriber", lambda: client)
        made.append(Leases(NAME, deadline=600, run="test"))
        return made[-1], client

    made = []
    yield make
    forget_run("test")


def test_what_was_not_acknowledged_in_time_is_with_the_next(leases):
    leases, client = leases(exceptions.ServiceUnavailable("gone"), None)
    leases.acknowledge(["a", "b"])
    assert "gone" in find_run("test").look().trouble
    leases.acknowledge(["c"])
    assert client.asked == [["a", "b"], ["a", "b", "c"]]
    leases.close()
    assert len(client.asked) == 2


def test_leases_that_are_over_end_no_run(leases):
    """A subscription that delivers exactly once says so; the messages come again."""
    leases, client = leases(exceptions.FailedPrecondition("PERMANENT_FAILURE_INVALID_ACK_ID"))
    leases.acknowledge(["a"])
    assert leases.fault is None
    leases.close()
    assert client.asked == [["a"]]


def test_a_refusal_ends_the_run(leases):
    leases, _ = leases(exceptions.PermissionDenied("no"))
    leases.acknowledge(["a"])
    with pytest.raises(Exception, match="is not yours to use"):
        leases.close()


def test_what_an_acknowledgement_raises_is_not_left_to_beam_which_would_log_it(leases):
    leases, _ = leases(ValueError("no id"))
    leases.acknowledge(["a"])
    with pytest.raises(ValueError, match="no id"):
        leases.close()


class Subscriber(Client):
    """Has messages to pull, once."""

    def __init__(self, *texts):
        super().__init__()
        now = datetime.datetime.now(datetime.UTC)
        self.waiting = [
            ReceivedMessage(
                ack_id=str(number),
                message=PubsubMessage(data=text, message_id=str(number), publish_time=now),
            )
            for number, text in enumerate(texts)
        ]

    def pull(self, *, request, retry, timeout):
        taken, self.waiting = self.waiting, []
        return SimpleNamespace(received_messages=taken)

    def modify_ack_deadline(self, *, request, retry, timeout):
        pass


def test_a_bundle_is_bounded_by_bytes(monkeypatch):
    client = Subscriber(b"x" * BUNDLE_BYTES, b"small")
    monkeypatch.setattr(clients, "make_subscriber", lambda: client)
    source = PubsubSource(subscription=NAME, deadline=600, run="test")
    reader = source.create_reader(None, None)
    end = time.monotonic() + 10
    while not reader.advance():
        assert time.monotonic() < end
    assert not reader.advance(), "the bundle ends"
    assert reader.get_checkpoint_mark().ids == ("0",)
    assert reader.advance()
    assert reader.get_current().value == b"small"
    reader.close()
    close_leases(source)
    forget_run("test")
