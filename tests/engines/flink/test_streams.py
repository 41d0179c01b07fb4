"""Streams on Flink: the translations of a local run, whatever dies, and an end by Ctrl-C."""

from __future__ import annotations

import os
import signal
import time

import pytest
from commands import Child, run_tt
from interrupting import interrupt
from kafka_broker import PATIENCE
from toy import toy_sentences

COUNT = 6000
PARTITIONS = 4
CHECKPOINTS = "--checkpointing_interval=2000"
START_SECONDS = 300  # of a job, on a machine that does much else


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """Apache Kafka on this machine."""
    from apache_kafka import running

    yield from running(tmp_path_factory.mktemp("kafka"))


class Topics:
    """A topic of texts, its translations, and who watches them."""

    def __init__(self, kafka, toy, *, count):
        self.kafka, self.toy, self.count = kafka, toy, 0
        self.source, self.output = (kafka.make_topic(partitions=PARTITIONS) for _ in range(2))
        self.watch = kafka.watch(self.output, partitions=PARTITIONS)
        self.put(count)

    def put(self, count):
        texts = [text.encode() for text, _ in toy_sentences(self.count + count, seed=7)]
        self.kafka.put(self.source, texts[self.count :], partitions=PARTITIONS, first=self.count)
        self.count += count

    def command(self, *, output=None, group="g"):
        return (
            "translate-stream", self.kafka.url(self.source), self.kafka.url(output or self.output),
            "--group", group, "--model", str(self.toy.run), "--beam-size", "1",
            "--max-batch", "50",
        )  # fmt: skip

    def committed(self):
        return self.kafka.committed(self.source, group="g", partitions=PARTITIONS)

    def wait_for_commits(self):
        """Waits until all is committed."""
        end = time.monotonic() + PATIENCE
        while sum(self.committed()) < self.count:
            assert time.monotonic() < end, self.committed()
            time.sleep(0.5)

    def translate_here(self):
        """Translates all by a run of this machine; returns the translations by their source."""
        output = self.kafka.make_topic(partitions=PARTITIONS)
        watch = self.kafka.watch(output, partitions=PARTITIONS)
        child = Child(run_tt, [*self.command(output=output, group="here")])
        watch.wait_for_keys(self.count, process=child, seconds=START_SECONDS)
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(PATIENCE).code == 0
        return values_of(watch.messages)


def source_of(message):
    return dict(message.headers())["tt-source"].decode()


def values_of(messages):
    """Returns key, value and status by source; those that came twice must be the same."""
    found = {}
    for each in messages:
        made = (each.key(), each.value(), dict(each.headers())["tt-status"])
        assert found.setdefault(source_of(each), made) == made
    return found


def test_a_task_manager_is_lost_and_no_message(cluster, kafka, trained_toy, tmp_path):
    topics = Topics(kafka, trained_toy, count=COUNT)
    process = cluster.start(*topics.command(), more=[CHECKPOINTS], cwd=tmp_path)
    end = time.monotonic() + START_SECONDS
    while sum(max(each, 0) for each in topics.committed()) < COUNT // 6:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        topics.watch.look(0.1)
    committed = topics.committed()
    topics.put(COUNT)  # so that there is something to lose, however much a checkpoint committed
    os.kill(cluster.task_managers()[-1], signal.SIGKILL)
    cluster.add_task_manager()
    topics.watch.wait_for_keys(topics.count, seconds=START_SECONDS)
    topics.wait_for_commits()
    topics.watch.look(1)
    assert values_of(topics.watch.messages) == topics.translate_here()
    counts = topics.watch.keys()
    assert max(counts.values()) <= 2
    for each in topics.watch.messages:
        if counts[each.key()] == 1:
            continue
        # What was committed does not come again.
        _, partition, offset = source_of(each).split("/")
        assert int(offset) >= committed[int(partition)]
    doubles = counts.total() - topics.count
    print(f"1 task manager killed: 0 of {topics.count} lost, {doubles} twice")

    code, printed = cluster.run(*topics.command(), cwd=tmp_path)
    assert code == 2
    assert "tt: error: another tt works as group g (process " in printed.splitlines()[-1]
    topics.put(20)  # after a pause
    topics.watch.wait_for_keys(topics.count)
    topics.wait_for_commits()

    printed = interrupt(process, is_group=True)
    assert process.returncode == 130
    last = printed.splitlines()[-1]
    assert last.startswith("tt: interrupted, and the job tt-translate-stream-")
    assert last.endswith(" is cancelled; the same command goes on from what is finished")
    assert "Traceback" not in printed
    assert not cluster.has_running_jobs()

    before = topics.watch.look(0.5)
    topics.put(20)
    child = Child(run_tt, [*topics.command()])  # on this machine, where the job has got to
    topics.watch.wait_for_keys(topics.count, process=child, seconds=START_SECONDS)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(PATIENCE).code == 0
    assert topics.watch.look(0.5) == before + 20


def test_a_detached_stream_goes_on_until_it_is_ended_there(cluster, kafka, trained_toy, tmp_path):
    topics = Topics(kafka, trained_toy, count=20)
    code, printed = cluster.run(*topics.command(), "--detach", more=[CHECKPOINTS], cwd=tmp_path)
    assert code == 0, printed
    name = cluster.wait_for_running_job()
    assert f"tt: the job {name} on FlinkRunner (" in printed.splitlines()[-1]
    assert printed.splitlines()[-1].endswith(") goes on by itself: end it there")
    topics.watch.wait_for_keys(20, seconds=START_SECONDS)
    topics.wait_for_commits()
    [job] = [job for job in cluster.ask("jobs/overview")["jobs"] if job["name"] == name]
    cluster.cancel(job["jid"])
    assert cluster.jobs()[name] == "CANCELED"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--metrics-port", "1234"], "--metrics-port is for a stream that this machine translates"),
        (["--dead-letter", "kafka://127.0.0.1:1/x"], "no Kafka broker answers"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(cluster, kafka, trained_toy, tmp_path, more, said):
    topics = Topics(kafka, trained_toy, count=0)
    code, printed = cluster.run(*topics.command(), *more, cwd=tmp_path)
    assert code == 2
    assert said in printed.splitlines()[-1]
    assert "Traceback" not in printed
