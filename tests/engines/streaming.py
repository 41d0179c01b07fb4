"""A stream with a stand-in for the model, in a process of its own, and what goes through it."""

import dataclasses
import functools
import os
import random
import resource
import signal
import time

from commands import run_tt
from fakes import Reverser
from kafka_broker import PATIENCE

from cli.commands.translate_stream import draining_on_signals
from pipelines.inference.model_loading import CustomModel
from pipelines.streams.job import StreamRequest
from pipelines.streams.kafka import connections
from pipelines.streams.kafka.connections import close_connection
from pipelines.streams.options import StreamOptions

PAUSE = 0.03  # seconds
WAITING = 10_000  # messages: the slow model has them for 5 s, in batches of 64


class Slow(Reverser):
    """Takes its time for a batch."""

    def translate_ids(self, source_ids, **settings):
        time.sleep(PAUSE)
        return super().translate_ids(source_ids)


class VerySlow(Reverser):
    """Takes seconds for a batch."""

    def translate_ids(self, source_ids, **settings):
        time.sleep(2)
        return super().translate_ids(source_ids)


class Wordy(Reverser):
    """Makes long translations of texts that begin with a w."""

    def translate_ids(self, source_ids, **settings):
        long = [
            [*ids[:1], *ids[1:-1] * (500 if chr(ids[1]) == "w" else 1), *ids[-1:]]
            for ids in source_ids
        ]
        return super().translate_ids(long)


def load_poisoned():
    return Reverser(poison="!")


LOADERS = {
    "reverser": Reverser, "slow": Slow, "very slow": VerySlow, "wordy": Wordy,
    "poisoned": load_poisoned,
}  # fmt: skip


def run_stream(options, *, model="reverser", wait=None, look=None, **environment):
    """Translates until a signal; returns what was counted, and the most memory, in bytes."""
    os.environ.update(environment)
    if wait is not None:
        connections.WAIT_SECONDS = wait
    custom = CustomModel(load=LOADERS[model], fingerprint=model)
    job = StreamRequest(options=StreamOptions(**options), model=custom).plan(print)
    if look is not None:
        [source] = job.ends.sources
        looking = dataclasses.replace(source, look_seconds=look)
        close = functools.partial(close_connection, looking)
        job = dataclasses.replace(
            job, ends=dataclasses.replace(job.ends, sources=(looking,), close=close)
        )
    with draining_on_signals(job.drain):
        found = job.run(lambda line: print(line, flush=True))
    return {**found._asdict(), "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def run_tt_with(arguments, **environment):
    """Runs the command line."""
    os.environ.update(environment)
    run_tt(arguments)


def end(child, number=signal.SIGTERM):
    """Ends a stream as a user does; returns what it counted."""
    os.kill(child.pid, number)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended.lines
    return ended.result


def stream(broker, *, partitions=1, output=None, **fields):
    """Returns the options of a stream between new topics."""
    return {
        "input": broker.url(broker.make_topic(partitions=partitions)),
        "output": broker.url(output or broker.make_topic(partitions=partitions)),
        "group": "g",
        **fields,
    }


def topic_of(url):
    return url.rpartition("/")[2]


def text_of(number):
    """Returns a text of a number, of at most four digits: a longer one is protected as a span."""
    return f"text {number % 10_000}"


def values(count, first=0):
    return [text_of(number).encode() for number in range(first, first + count)]


def survive_kills(broker, start, *, kills, early, seed, most=64):
    """Kills a stream again and again, each `early`-th time while it starts; then has it end.

    Before each start, more messages wait than a stream can translate until it is killed, however
    fast the machine is. Asserts that none is lost, and that a kill doubles at most a bundle.

    Returns:
      Its options, what has come into its output, and the number of messages.
    """
    options = stream(broker, partitions=2, max_batch=most)
    watch = broker.watch(topic_of(options["output"]), partitions=2)
    moments = random.Random(seed)
    count = doubles = 0
    for kill in range(kills):
        before = watch.look(0.3)
        while count - len(watch.keys()) < WAITING:
            broker.put(topic_of(options["input"]), values(1000, count), partitions=2, first=count)
            count += 1000
        child = start(options, model="slow")
        if kill % early:
            watch.wait_for(before + 1, process=child)
            time.sleep(moments.uniform(0, 0.25))
        else:
            time.sleep(moments.uniform(0, 2))
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(PATIENCE).code == -signal.SIGKILL
        watch.look(0.3)
        found = watch.keys().total() - len(watch.keys())
        assert found - doubles <= most, "more than a bundle came twice"
        doubles = found
        assert len(watch.keys()) < count, "there was nothing left to lose"
    child = start(options)
    watch.wait_for_keys(count, process=child)
    end(child)
    watch.look(0.5)
    assert len(watch.keys()) == count
    doubles = watch.keys().total() - count
    assert doubles <= kills * most
    print(f"{kills} kills: 0 of {count} lost, {doubles} twice")
    return options, watch, count


def memory_of(process):
    """Returns the bytes that a process has in memory."""
    with open(f"/proc/{process}/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds_of(process):
    """Returns the seconds that a process has computed."""
    with open(f"/proc/{process}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
