"""Members of a consumer group in rare situations, with a fake instead of Kafka clients."""

import ctypes
import sys
import threading

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tt.model.errors import UserError
from tt.pipelines.streams import kafka_clients as clients
from tt.pipelines.streams.kafka_clients import Cluster
from tt.pipelines.streams.kafka_commits import KafkaOutputs
from tt.pipelines.streams.kafka_member import KafkaPlan
from tt.pipelines.streams.messages import Answer
from tt.pipelines.streams.metrics import StreamMetrics
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.streams.plan import StreamRun


class Fetched:
    """A message as the client returns it."""

    def __init__(self, partition, offset):
        self._at = partition, offset

    def error(self):
        return None

    def topic(self):
        return "in"

    def partition(self):
        return self._at[0]

    def offset(self):
        return self._at[1]

    def key(self):
        return None

    def headers(self):
        return None

    def value(self):
        return f"{self._at[0]}/{self._at[1]}".encode()

    def timestamp(self):
        return 0, -1


class Error(KafkaException):
    """An error after which the transaction must be aborted, or the producer cannot be used."""

    def __init__(self, code, *, aborts):
        super().__init__(_Code(code, aborts=aborts))


class _Code:
    def __init__(self, code, *, aborts):
        self._code, self._aborts = code, aborts

    def code(self):
        return self._code

    def name(self):
        return str(self._code)

    def fatal(self):
        return not self._aborts

    def retriable(self):
        return False

    def txn_requires_abort(self):
        return self._aborts


class Clients:
    """A fake of a consumer, a producer, and a broker with one topic.

    Attributes:
      ends: The end offset of each partition.
      steps: The results of successive calls of `consume`: lists of messages, or functions to call
        that may return messages. After them, `consume` returns the next messages of each partition.
      faults: Errors that successive calls of `send_offsets_to_transaction` raise.
    """

    def __init__(self, ends, *, steps=(), faults=()):
        self.ends, self.steps, self.faults = ends, list(steps), list(faults)
        self.positions, self.offsets = {}, {}
        self.written, self._open, self._sent = [], None, None
        self.name, self.producers = "", 0
        self.is_fenced = False

    # Methods of the consumer.

    def subscribe(self, topics, *, on_assign, on_revoke, on_lost):
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost
        self.steps.insert(0, lambda: self.assign(*self.ends))

    def unsubscribe(self):
        self.steps = [lambda: self.revoke(*self.positions)]

    def assignment(self):
        return [TopicPartition("in", each) for each in self.positions]

    def assign(self, *partitions):
        self.name = self.name or f"member-{id(self)}"
        self._call(self.on_assign, partitions)

    def _call(self, callback, partitions):
        try:
            callback(self, [TopicPartition("in", each) for each in partitions])
        except BaseException as error:  # with Python 3.11, confluent_kafka loses it
            raise AssertionError("a callback must not raise") from error

    def revoke(self, *partitions):
        self._call(self.on_revoke, partitions)
        for each in partitions:
            self.positions.pop(each, None)

    def lose(self):
        self.name = ""
        self._call(self.on_lost, list(self.positions))
        self.positions.clear()

    def incremental_assign(self, partitions):
        if self.is_fenced:
            raise KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID, fatal=True))
        for each in partitions:
            start = 0 if each.offset == OFFSET_BEGINNING else each.offset
            self.positions[each.partition] = start

    def incremental_unassign(self, partitions):
        for each in partitions:
            del self.positions[each.partition]

    def committed(self, asked, timeout):
        for each in asked:
            each.offset = self.offsets.get(each.partition, -1001)
        return asked

    def consume(self, count, timeout):
        if self.steps:
            step = self.steps.pop(0)
            return (step() or []) if callable(step) else step
        found = []
        for partition, position in self.positions.items():
            while position < self.ends[partition] and len(found) < count:
                found.append(Fetched(partition, position))
                position += 1
            self.positions[partition] = position
        return found

    def memberid(self):
        return self.name

    def consumer_group_metadata(self):
        return self.name

    def get_watermark_offsets(self, at, cached=False, timeout=None):
        return 0, self.ends[at.partition]

    def close(self):
        assert not self.positions, "librdkafka can wait forever"

    # Methods of the producer.

    def init_transactions(self, seconds):
        self.producers += 1
        self._open = None

    def begin_transaction(self):
        assert self._open is None
        self._open = []

    def produce(self, topic, *, value, on_delivery, **fields):
        self._open.append(value)
        on_delivery(None, None)

    def send_offsets_to_transaction(self, offsets, member, seconds):
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault
        assert member, "brokers do not check a member without a name"
        self._sent = {each.partition: each.offset for each in offsets}

    def commit_transaction(self, seconds):
        self.written += self._open
        self.offsets.update(self._sent)
        self._open = None

    def abort_transaction(self, seconds):
        self._open = None

    def flush(self, seconds):
        pass

    def poll(self, seconds):
        pass


def run(monkeypatch, fake, *, answer=None, max_batch=3):
    """Run a member until everything is committed; return its metrics."""
    monkeypatch.setattr(Cluster, "consumer", lambda self, group, **settings: fake)
    monkeypatch.setattr(Cluster, "producer", lambda self, **settings: fake)
    monkeypatch.setattr(clients.Cluster, "start_at_end", lambda self, consumer, topic: None)
    stop, metrics = threading.Event(), StreamMetrics()
    consume = fake.consume

    def consume_until_done(count, timeout):
        if not fake.steps and fake.offsets == fake.ends:
            stop.set()
        return consume(count, timeout)

    fake.consume = consume_until_done
    plan = KafkaPlan(
        options=StreamOptions(
            input="kafka://a:1/in", output="kafka://a:1/out", group="g", max_batch=max_batch,
            max_latency=0.001,
        ),
        outputs=KafkaOutputs(cluster=Cluster("a:1"), output="out", partitions={"out": 2}),
        is_exactly_once=True,
        lines=(),
    )  # fmt: skip

    def translate(messages):
        if answer is not None:
            answer(messages)
        return [Answer(message=each, value=each.value, status="ok") for each in messages]

    plan.run(StreamRun(answer=translate, metrics=metrics, stop=stop, report=lambda line: None))
    return metrics


def check_order(fake):
    """Check that each message was written once, in the order of its partition."""
    for partition, end in fake.ends.items():
        written = [each for each in fake.written if each.startswith(f"{partition}/".encode())]
        assert written == [f"{partition}/{offset}".encode() for offset in range(end)]


def test_everything_is_written_once_in_order_and_committed(monkeypatch):
    fake = Clients({0: 10, 1: 7})
    metrics = run(monkeypatch, fake)
    check_order(fake)
    assert metrics.snapshot().by_status == {"ok": 17}
    assert metrics.snapshot().lag == {0: 0, 1: 0}


@pytest.mark.parametrize("aborts", [True, False])
@pytest.mark.parametrize("first", range(4))
def test_a_member_resumes_at_the_committed_offsets_after_a_refused_commit(
    monkeypatch, first, aborts
):
    fault = Error(KafkaError.ILLEGAL_GENERATION, aborts=aborts)
    fake = Clients({0: 10, 1: 7}, faults=[*[None] * first, fault, None, fault])
    metrics = run(monkeypatch, fake)
    check_order(fake)
    assert metrics.registry.get_sample_value("tt_aborted_transactions_total") == 2
    assert fake.producers == (1 if aborts else 3), "a producer that failed is replaced"


def test_partitions_lost_during_a_batch_are_dropped_and_read_again(monkeypatch):
    translating, lost = threading.Event(), threading.Event()

    def answer(messages):
        translating.set()
        assert lost.wait(60)

    def lose():
        assert translating.wait(60)
        # Another member could do this while this member translates.
        fake.written += [f"0/{offset}".encode() for offset in range(4)]
        fake.offsets[0] = 4
        fake.lose()
        fake.assign(0, 1)
        lost.set()
        return [Fetched(0, 3), Fetched(0, 4)]  # fetched before the loss, returned after it

    fake = Clients({0: 6, 1: 3}, steps=[[Fetched(0, 0)], [Fetched(0, 1), Fetched(0, 2)], lose])
    run(monkeypatch, fake, answer=answer)
    check_order(fake)


def test_a_partition_is_committed_before_it_goes_to_another_member(monkeypatch):
    translating, seen = threading.Event(), []

    def answer(messages):
        translating.set()

    def give():
        assert translating.wait(60)
        fake.revoke(0)
        seen.append((list(fake.written), dict(fake.offsets)))
        fake.written.append(b"0/3")  # written by the other member
        fake.offsets[0] = fake.ends[0]
        return [Fetched(0, 3)]  # fetched before the loss, returned after it

    fetched = [Fetched(0, 1), Fetched(0, 2)]
    fake = Clients({0: 4, 1: 3}, steps=[[Fetched(0, 0)], fetched, give])
    run(monkeypatch, fake, answer=answer)
    [(written, offsets)] = seen
    assert offsets[0] == len([each for each in written if each.startswith(b"0/")]) == 3
    check_order(fake)


@pytest.mark.parametrize("moment", ["join", "lose"])
def test_an_error_in_a_callback_ends_the_member_with_a_user_error(monkeypatch, moment):
    fake = Clients({0: 4, 1: 3})
    fake.is_fenced = moment == "join"

    def fence():
        fake.is_fenced = True
        fake.lose()
        fake.assign(0, 1)

    fake.steps = [fence] if moment == "lose" else []
    with pytest.raises(UserError, match="another process with the same `instance_id`"):
        run(monkeypatch, fake)


FENCED = KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", fatal=True)


def raise_value():
    """Raise a `KafkaError` that is not an exception, as confluent_kafka does with Python 3.11."""
    restore = ctypes.PyDLL(None).PyErr_Restore
    restore.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p]
    for each in (KafkaError, FENCED):  # `PyErr_Restore` takes over the references
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    restore(KafkaError, FENCED, None)


def raise_with_cause():
    """Raise a Python exception whose cause is a `KafkaError`."""
    error = SystemError("consume returned a result with an exception set")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(FENCED))
    ctypes.pythonapi.PyException_SetCause(ctypes.py_object(error), ctypes.py_object(FENCED))
    raise error


def raise_exception():
    raise KafkaException(FENCED)


RAISE_VALUE = pytest.param(
    raise_value, marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python refuses it")
)


@pytest.mark.parametrize("step", [RAISE_VALUE, raise_with_cause, raise_exception])
def test_a_fenced_member_ends_with_a_user_error(monkeypatch, step):
    fake = Clients({0: 4, 1: 3}, steps=[list, step])
    with pytest.raises(UserError, match="another process with the same `instance_id`"):
        run(monkeypatch, fake)


def test_an_interrupt_in_a_callback_ends_the_member(monkeypatch):
    def interrupt(asked, timeout):
        raise KeyboardInterrupt

    fake = Clients({0: 4})
    fake.committed = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, fake)


def test_a_member_without_an_id_commits_nothing(monkeypatch):
    """The client forgets the member's ID before it reports that the partitions are lost."""

    def forget():
        fake.name = ""
        return [Fetched(0, 0)]

    def lose():
        assert fake.written == []
        fake.lose()
        fake.assign(0, 1)

    fake = Clients({0: 4, 1: 3}, steps=[forget, [], *[list] * 20, lose])
    run(monkeypatch, fake)
    check_order(fake)
