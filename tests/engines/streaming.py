"""A stream with a fake model in its own process, and helpers for its messages."""

import dataclasses
import os
import resource
import signal
import time

import confluent_kafka
from commands import run_tt
from fakes import Loader, Reverser
from kafka_broker import PATIENCE

from tt.cli.signals import draining_on_signals
from tt.model.errors import UserError
from tt.pipelines.streams import kafka_clients
from tt.pipelines.streams.job import StreamRequest
from tt.pipelines.streams.kafka_commits import KafkaWriter
from tt.pipelines.streams.options import StreamOptions

PAUSE = 0.03  # seconds
WAITING = 10_000  # messages: 5 s of work for the slow model, in batches of 64


class Slow(Reverser):
    """Takes some seconds per batch."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def translate(self, inputs):
        time.sleep(self._seconds)
        return super().translate(inputs)


class Paced(Reverser):
    """Takes 5 ms per text."""

    def translate(self, inputs):
        time.sleep(0.005 * len(inputs))
        return super().translate(inputs)


class Wordy(Reverser):
    """Makes long translations of texts that begin with w."""

    def translate(self, inputs):
        long = [
            dataclasses.replace(each, encoded=each.encoded * (500 if each.text[:1] == "w" else 1))
            for each in inputs
        ]
        return super().translate(long)


LOADERS = {
    "reverser": Reverser, "slow": lambda: Slow(PAUSE), "very slow": lambda: Slow(2.0),
    "sluggish": lambda: Slow(float(os.environ["BATCH_SECONDS"])), "paced": Paced, "wordy": Wordy,
    "poisoned": lambda: Reverser(poison="!"),
}  # fmt: skip


def pause_once(seconds):
    """Pause between the write and the commit of the first batch."""
    send, paused = KafkaWriter._send, []

    def send_and_wait(self, batch):
        send(self, batch)
        if not paused:
            paused.append(True)
            time.sleep(seconds)

    KafkaWriter._send = send_and_wait


def refuse(self, *arguments):
    error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._UNSUPPORTED_FEATURE)
    raise confluent_kafka.KafkaException(error)


def run_stream(options, *, model="reverser", **environment):
    """Translate until a signal; return the metrics, and the peak memory in bytes."""
    os.environ.update(environment)
    if "PAUSE_BEFORE_COMMIT" in environment:
        pause_once(float(environment["PAUSE_BEFORE_COMMIT"]))
    if "NO_TRANSACTIONS" in environment:
        old = type("Old", (confluent_kafka.Producer,), {"init_transactions": refuse})
        kafka_clients.Producer = old
    custom = Loader(LOADERS[model], model)
    try:
        job = StreamRequest(options=StreamOptions(**options), model=custom).plan(print)
        for line in [*job.lines, *job.notices]:
            print(line, flush=True)
        with draining_on_signals(job.stop.set):
            found = job.run(lambda line: print(line, flush=True))
    except KeyboardInterrupt:  # like the command line, here and below
        os._exit(130)
    except UserError as error:
        print(f"tt: error: {error}", flush=True)
        raise SystemExit(error.exit_code) from None
    return {**found._asdict(), "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def run_tt_with(arguments, **environment):
    """Run the command line with these variables in the environment."""
    os.environ.update(environment)
    run_tt(arguments)


def end(child, number=signal.SIGTERM):
    """End a stream as a user does; return its metrics."""
    os.kill(child.pid, number)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended
    return ended.result


def stream(broker, *, partitions=1, output=None, **fields):
    """Return the options of a stream between new topics."""
    return {
        "input": broker.url(broker.make_topic(partitions=partitions)),
        "output": broker.url(output or broker.make_topic(partitions=partitions)),
        "group": "g",
        "delivery": broker.delivery,
        **fields,
    }


def topic_of(url):
    return url.rpartition("/")[2]


def text_of(number):
    """Return a text with a number of at most four digits; a longer one would be protected."""
    return f"text {number % 10_000}"


def values(count, first=0):
    return [text_of(number).encode() for number in range(first, first + count)]


def memory_of(process):
    """Return the memory of a process in bytes."""
    with open(f"/proc/{process}/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds_of(process):
    """Return the CPU time of a process in seconds."""
    with open(f"/proc/{process}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
