"""Repeating a translation job on a growing folder, with kills and errors."""

from __future__ import annotations

import collections
import functools
import gzip
import itertools
import json
import os
import random
import signal
import socket
import threading
import time
import urllib.request

import obstore
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from commands import Child
from fakes import Reverser, fail_at
from memory_store import MemoryStore
from translation_jobs import outputs, read_all, request, translate, write

from tt.cli.signals import draining_on_signals
from tt.model.errors import UserError
from tt.pipelines.streams.metrics import StreamMetrics
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import WatchOptions
from tt.pipelines.translate.watching import Watch

PATIENCE = 120.0


class Slow(Reverser):
    """Takes a fifth of a second per batch."""

    def translate(self, inputs):
        time.sleep(0.2)
        return super().translate(inputs)


def failing():
    fail_at.add("fails")  # in the child
    return Reverser()


def watch(source, output, *, load=Reverser, metrics=(), **options):
    """Watch until a signal arrives; return the final metrics."""
    job = request(source, output, load=load, unit_rows=20, text_columns=("text",), **options)
    found = Watch(request=job, options=WatchOptions(watch="0.2s", **dict(metrics)))
    found.check(print)
    with draining_on_signals(found.stop.set):
        return found.run(lambda line: print(line, flush=True))._asdict()


@pytest.fixture
def start(tmp_path):
    (tmp_path / "in").mkdir()
    children = []

    def start(load=Reverser, **options):
        paths = str(tmp_path / "in"), str(tmp_path / "out")
        child = Child(functools.partial(watch, load=load, **options), *paths)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill_group()


def put(tmp_path, name, texts):
    """Move a complete file into the watched folder."""
    write(tmp_path / "new", {"id": list(range(len(texts))), "text": texts})
    (tmp_path / "new").rename(tmp_path / "in" / name)


def wait_until(is_reached, child):
    """Wait until a condition is true; fail if the child ends first."""
    end = time.monotonic() + PATIENCE
    while not is_reached():
        assert child.is_alive(), child.wait().lines
        assert time.monotonic() < end
        time.sleep(0.02)


def is_translated(tmp_path, rows):
    def check():
        path = tmp_path / "out/_tt/manifest.json"
        try:
            return json.loads(path.read_text())["rows"] == rows
        except (FileNotFoundError, ValueError):
            return False

    return check


def end(child):
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended.lines
    return ended


def test_files_are_translated_as_they_arrive(tmp_path, start):
    child = start()
    put(tmp_path, "a.parquet", ["one", "two"])
    wait_until(is_translated(tmp_path, 2), child)
    put(tmp_path, "b.parquet", ["three"])
    wait_until(is_translated(tmp_path, 3), child)
    ended = end(child)
    assert (ended.result["messages"], ended.result["failed"]) == (3, 0)
    assert "2 rows translated, 2 in total" in ended.lines
    assert "1 rows translated, 3 in total" in ended.lines
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ["eno", "owt", "eerht"]


def test_a_file_that_is_still_being_written_is_left_alone(tmp_path, start):
    child = start()
    path = tmp_path / "in/a.csv"
    with path.open("w") as file:
        file.write("text\n")
        for n in range(10):
            file.write(f"row {n}\n")
            file.flush()
            time.sleep(0.15)
            assert not (tmp_path / "out").exists()
    wait_until(is_translated(tmp_path, 10), child)
    end(child)


def test_a_file_that_keeps_growing_does_not_delay_other_files(tmp_path, start):
    (tmp_path / "in/b.csv").write_text("text\none\n")
    with (tmp_path / "in/log.csv").open("w") as file:
        file.write("text\n")
        child = start()

        def check():
            file.write("another row\n")
            file.flush()
            return is_translated(tmp_path, 1)()

        wait_until(check, child)
    end(child)


def test_failed_rows_are_reported(tmp_path, start):
    child = start(load=failing, max_failed=0.0)
    put(tmp_path, "a.parquet", ["one", "fails"])
    wait_until(is_translated(tmp_path, 2), child)
    assert any("exceeds" in line for line in end(child).lines)


def test_a_watch_refuses_options_that_it_would_repeat(tmp_path):
    for option in ("overwrite", "retry_failed"):
        job = request(tmp_path / "in", tmp_path / "out", **{option: True})
        with pytest.raises(UserError, match=f"`watch` would repeat `{option}` at each check"):
            Watch(request=job, options=WatchOptions(watch="1s"))


def test_a_problem_is_reported_once_and_tried_again(tmp_path, start):
    child = start()
    (tmp_path / "in/a.parquet").write_text("not Parquet")
    time.sleep(1)
    put(tmp_path, "b.parquet", ["one"])
    time.sleep(1)
    put(tmp_path, "a.parquet", ["two"])
    wait_until(is_translated(tmp_path, 2), child)
    ended = end(child)
    found = [line for line in ended.lines if "a.parquet" in line]
    assert found[0].endswith("tt tries again at the next check of the input")
    assert len(set(found)) == len(found)


def test_kills_lose_no_rows(tmp_path, start):
    for number in range(12):
        put(tmp_path, f"{number:02}.parquet", [f"text {number} {n}" for n in range(50)])
    moments = random.Random(11)
    for _ in range(4):
        child = start(load=Slow)
        time.sleep(moments.uniform(0.5, 3))
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(PATIENCE).code == -signal.SIGKILL
    child = start()
    wait_until(is_translated(tmp_path, 600), child)
    end(child)
    translate(tmp_path / "in", tmp_path / "fresh", unit_rows=20, text_columns=("text",))
    assert read_all(tmp_path / "out") == read_all(tmp_path / "fresh")


def test_the_metrics_of_a_watch(tmp_path, start):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = start(metrics=(("metrics_port", port), ("metrics_file", str(tmp_path / "m.jsonl"))))
    put(tmp_path, "a.parquet", ["one", "two"])
    wait_until(is_translated(tmp_path, 2), child)

    def is_counted():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            return b'tt_messages_total{status="ok"} 2.0' in page.read()

    wait_until(is_counted, child)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as page:
        assert page.read() == b"ok\n"
    end(child)
    last = json.loads((tmp_path / "m.jsonl").read_text().splitlines()[-1])
    assert last["by_status"] == {"ok": 2}


class Steps(StreamMetrics):
    """Takes a step after each check of the input, and stops the watch after the last step."""

    def __init__(self, steps):
        super().__init__()
        self.stop, self._steps = threading.Event(), iter(steps)

    def note_trouble(self, trouble):
        super().note_trouble(trouble)
        step = next(self._steps, self.stop.set)
        step()


def nothing():
    """Change nothing before the next check."""


def watch_steps(source, output, *steps, **options):
    """Watch a folder in this process; return the lines and the final metrics."""
    options = {"text_columns": ("text",), **options}
    metrics, lines = Steps(steps), []
    job = request(source, output, **options)
    found = Watch(
        request=job, options=WatchOptions(watch="0.01s"), metrics=metrics, stop=metrics.stop
    )
    return lines, found.run(lines.append)


def test_a_file_is_gone_if_two_listings_lack_it(tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    put_a, put_b = (
        functools.partial(write, source / f"{name}.parquet", {"text": [name]}) for name in "ab"
    )
    put_a()
    path = put_b()
    seen = []

    def look():
        seen.append(outputs(output))

    def put_back():
        look()
        (tmp_path / "b").rename(path)

    lines, _ = watch_steps(
        source, output, nothing, look, lambda: path.rename(tmp_path / "b"), put_back, nothing,
        look, path.unlink, look, look, look, removed="delete",
    )  # fmt: skip
    both = ["a-00000-of-00001.parquet", "b-00000-of-00001.parquet"]
    assert seen == [both, both, both, both, both[:1], both[:1]]
    assert [line for line in lines if "translated," in line] == [
        "2 rows translated, 2 in total", "0 rows translated, 1 in total"
    ]  # fmt: skip


def test_a_check_without_changes_only_lists_the_input(tmp_path, monkeypatch):
    MemoryStore.clear()
    for name in "ab":
        write(tmp_path / name, {"text": [name]})
        MemoryStore.put(f"mem://in/{name}.parquet", (tmp_path / name).read_bytes())
    calls = collections.Counter()

    def count(owner, name):
        function = getattr(owner, name)

        def counting(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    for name in ("list", "list_with_delimiter", "head", "get", "get_range", "put"):
        count(obstore, name)
    count(TranslateRequest, "plan")
    seen = []
    steps = [nothing, nothing, *4 * [lambda: seen.append(calls.copy())]]
    watch_steps("mem://in", tmp_path / "out", *steps)
    assert seen[-1]["plan"] == 1
    each = [now - before for before, now in itertools.pairwise(seen)]
    assert each == [{"list": 2}] * 3, "whether it is a folder, and its files"


@pytest.mark.parametrize("suffix", ["parquet", "csv.gz"])
def test_a_skipped_file_does_not_stop_a_watch(suffix, tmp_path):
    """A damaged CSV file of this size is found while the job counts its rows."""
    source = tmp_path / "in"
    path = source / f"b.{suffix}"
    pad = [random.Random(row).randbytes(1000).hex() for row in range(600)]
    table = pa.table({"text": ["b"] * 600, "pad": pad})

    def put():
        if suffix == "csv.gz":
            with gzip.open(path, "wb") as file:
                pacsv.write_csv(table, file)
        else:
            write(path, table)

    write(source / "a.parquet", {"text": ["a"]})
    put()
    os.truncate(path, path.stat().st_size - 9)
    lines, _ = watch_steps(
        source, tmp_path / "out", nothing, put, nothing,
        lambda: write(source / "c.parquet", {"text": ["c"]}), nothing, nothing, path.unlink,
        nothing, nothing, on_bad_file="skip",
    )  # fmt: skip
    assert [line for line in lines if "translated," in line and not line.startswith("0 ")] == [
        "1 rows translated, 1 in total", "600 rows translated, 601 in total",
        "1 rows translated, 602 in total",
    ]  # fmt: skip
    assert not [line for line in lines if "tries again" in line]


def test_wrong_options_of_a_watch_are_refused():
    for duration in ("30", "s", "0s", "-1s", "1d", ""):
        with pytest.raises(UserError, match="`watch` must be a number of seconds, minutes or"):
            WatchOptions(watch=duration)
    with pytest.raises(UserError, match="`metrics_port` and `metrics_file` need `watch`"):
        WatchOptions(metrics_port=1000)
    assert [WatchOptions(watch=text).seconds for text in ("30s", "1.5m", "2h")] == [30, 90, 7200]
