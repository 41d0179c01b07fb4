"""What is counted while a stream runs, and how it is told."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest

from model.errors import UserError
from pipelines.streams import live_run, metrics
from pipelines.streams.live_run import LiveRun, find_run, forget_run


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(live_run.time, "monotonic", clock)
    return clock


def test_a_signal_finds_a_run_while_its_thread_does():
    def meet_a_signal():
        with live_run._lock:  # as `find_run` has it while the handler drains a run
            find_run("met").is_draining = True

    thread = threading.Thread(target=meet_a_signal, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert find_run("met").is_draining
    forget_run("met")


def test_messages_rate_latencies_and_lag_are_counted(clock):
    run = LiveRun()
    clock.now += 10
    run.note_written(["ok", "ok", "failed"], [0.1, None, 0.3])
    run.note_ends({0: 30, 1: 5})
    run.note_done({0: 10})
    run.note_done({1: 9})
    found = run.look()
    assert (found.messages, found.failed) == (3, 1)
    assert found.by_status == {"failed": 1, "ok": 2}
    assert found.rate == pytest.approx(0.3)
    assert (found.p50, found.p95) == (0.3, 0.3)
    assert found.lag == {0: 20, 1: 0}


def test_an_idle_hour_then_a_burst_shows_the_burst_alone(clock):
    run = LiveRun()
    run.note_written(["ok"], [9.0])
    clock.now += 3600
    assert (run.look().rate, run.look().p50) == (0, None)
    run.note_written(["ok"] * 50, [0.5] * 50)
    found = run.look()
    assert (found.messages, found.rate, found.p50, found.p95) == (51, 5.0, 0.5, 0.5)


def test_trouble_is_shown_until_it_is_over_or_not_told_again(clock):
    run = LiveRun()
    run.note_trouble("no answer")
    assert run.look().trouble == "no answer"
    assert "no answer" in metrics.describe(run.look())
    clock.now += live_run.TROUBLE_SECONDS
    assert run.look().trouble == ""
    run.note_trouble("no answer")
    run.note_trouble("")
    assert run.look().trouble == ""


def test_memory_does_not_grow_with_messages(clock):
    run = LiveRun()
    for _ in range(3):
        run.note_written(["ok"] * 50_000, [0.1] * 50_000)
        clock.now += 1
    assert len(run._latencies) == live_run._MOST_LATENCIES
    clock.now += 60
    run.look()
    assert not run._latencies
    assert not run._written


def test_many_partitions_are_summed_up():
    run = LiveRun()
    run.note_ends(dict.fromkeys(range(9), 100))
    run.note_done({4: 100})
    assert "lag 800, of partition 0 100" in metrics.describe(run.look())


def test_a_run_is_found_by_its_name_until_it_is_forgotten():
    run = find_run("a")
    assert find_run("a") is run
    forget_run("a")
    assert find_run("a") is not run
    forget_run("a")


def some_run():
    run = LiveRun()
    run.note_written(["ok", "failed"], [0.25, 0.75])
    run.note_ends({0: 7})
    run.note_left_out()
    return run


def test_json_says_the_same(clock):
    found = json.loads(metrics.as_json(some_run().look(), now=12.5))
    assert found == {
        "time": 12.5, "messages": 2, "failed": 1, "by_status": {"failed": 1, "ok": 1},
        "messages_per_second": 2.0, "latency_p50_seconds": 0.75, "latency_p95_seconds": 0.75,
        "lag": {"0": 7}, "files_left_out": 1, "trouble": None,
    }  # fmt: skip


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_prometheus_finds_the_same(clock):
    port = free_port()
    with metrics.serving(some_run().look, port=port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/")
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values == {
        'tt_messages_total{status="failed"}': "1", 'tt_messages_total{status="ok"}': "1",
        "tt_messages_per_second": "2", 'tt_latency_seconds{quantile="0.5"}': "0.75",
        'tt_latency_seconds{quantile="0.95"}': "0.75", 'tt_lag_messages{partition="0"}': "7",
        "tt_files_left_out_total": "1", "tt_in_trouble": "0",
    }  # fmt: skip
    names = {name.partition("{")[0] for name in values}
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == names
    assert {line.split()[2] for line in lines if line.startswith("# HELP")} == names


def test_a_port_of_another_program_is_refused():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(UserError, match="`metrics_port`"),
        metrics.serving(some_run().look, port=server.getsockname()[1]),
    ):
        pass


def test_lines_are_appended_while_it_runs_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "FILE_SECONDS", 0.01)
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"messages": 0}\n')
    run = some_run()
    with metrics.appending(run.look, path=str(path), report=pytest.fail):
        while path.read_text().count("\n") < 3:
            time.sleep(0.01)
        run.note_written(["ok"], [0.1])
    lines = [json.loads(line)["messages"] for line in path.read_text().splitlines()]
    assert lines[:2] == [0, 2]
    assert lines[-1] == 3


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    look = some_run().look
    with (
        pytest.raises(UserError, match="`metrics_file`"),
        metrics.appending(look, path=str(tmp_path), report=pytest.fail),
    ):
        pass


def test_a_full_disk_is_told_once_and_does_not_end_the_stream():
    said = []
    with metrics.appending(some_run().look, path="/dev/full", report=said.append):
        time.sleep(0.05)
    assert len(said) == 1
    assert "`metrics_file`" in said[0]
