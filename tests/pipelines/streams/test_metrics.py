"""The metrics of a stream, and the ways in which they are published."""

import json
import socket
import time
import urllib.error
import urllib.request

import pytest

from tt.model.errors import UserError
from tt.pipelines.streams import metrics
from tt.pipelines.streams.metrics import StreamMetrics


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(metrics.time, "monotonic", clock)
    monkeypatch.setattr(metrics.time, "time", clock)
    return clock


def test_messages_rate_latencies_and_lag_are_measured(clock):
    run = StreamMetrics()
    clock.now += 10
    run.note_written(["ok", "ok", "failed"], milliseconds=[109_900, None, 109_700])
    run.note_lag({0: 20, 1: 0})
    found = run.snapshot()
    assert (found.messages, found.failed) == (3, 1)
    assert found.by_status == {"failed": 1, "ok": 2}
    assert found.messages_per_second == pytest.approx(0.3)
    assert found.latency_p50_seconds == found.latency_p95_seconds == pytest.approx(0.3)
    assert found.lag == {0: 20, 1: 0}
    run.note_lag({1: 4})
    assert run.snapshot().lag == {1: 4}, "partition 0 now belongs to another member"
    assert run.registry.get_sample_value("tt_lag_messages", {"partition": "0"}) is None


def test_rate_and_latencies_cover_only_the_last_seconds(clock):
    run = StreamMetrics()
    run.note_written(["ok"], milliseconds=[91_000])
    clock.now += 3600
    idle = run.snapshot()
    assert (idle.messages_per_second, idle.latency_p50_seconds) == (0, None)
    run.note_written(["ok"] * 50, milliseconds=[int(1000 * (clock.now - 0.5))] * 50)
    found = run.snapshot()
    assert (found.messages, found.messages_per_second) == (51, 5.0)
    assert found.latency_p50_seconds == found.latency_p95_seconds == 0.5


def test_reported_trouble_ends_with_a_written_message_or_after_a_timeout(clock):
    run = StreamMetrics()
    run.note_trouble("no answer")
    assert run.snapshot().trouble == "no answer"
    assert "no answer" in metrics.describe(run.snapshot())
    clock.now += metrics.TROUBLE_SECONDS
    assert run.snapshot().trouble == ""
    run.note_trouble("no answer")
    run.note_written(["ok"])
    assert run.snapshot().trouble == ""


def test_a_member_is_healthy_while_it_is_assigned_and_commits(clock):
    run = StreamMetrics()
    assert run.health() == "not assigned"
    run.note_assigned(True)
    assert run.health() == ""
    run.note_waiting(True)
    clock.now += metrics.COMMIT_SECONDS
    run.note_waiting(True)
    assert run.health() == ""
    clock.now += 1
    assert "has waited" in run.health()
    run.note_waiting(False)
    assert run.health() == ""
    run.note_trouble("no answer")
    assert run.health() == "no answer"
    run.note_assigned(False)
    assert run.health() == "not assigned"


def some_run():
    run = StreamMetrics()
    run.note_written(["ok", "failed"], milliseconds=[99_750, 99_250])
    run.note_lag({0: 7})
    return run


def test_json_contains_all_metrics(clock):
    found = json.loads(metrics.as_json(some_run().snapshot(), now=12.5))
    assert found == {
        "time": 12.5, "messages": 2, "failed": 1, "by_status": {"failed": 1, "ok": 1},
        "messages_per_second": 2.0, "latency_p50_seconds": 0.75, "latency_p95_seconds": 0.75,
        "lag": {"0": 7}, "trouble": None,
    }  # fmt: skip


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ask(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_prometheus_metrics_and_health_are_served():
    run, port = some_run(), free_port()
    run.note_batch(3, seconds=0.2)
    run.rebalances.inc()
    run.aborted_transactions.inc(2)
    with metrics.serving(run, address="127.0.0.1", port=port):
        status, text = ask(port, "/metrics")
        assert ask(port, "/")[0] == 404
        assert ask(port, "/healthz") == (503, "not assigned\n")
        run.note_assigned(True)
        assert ask(port, "/healthz") == (200, "ok\n")
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    expected = {
        'tt_messages_total{status="failed"}': 1, 'tt_messages_total{status="ok"}': 1,
        "tt_latency_seconds_count": 2, "tt_batch_messages_sum": 3, "tt_batch_seconds_sum": 0.2,
        'tt_batch_messages_bucket{le="4.0"}': 1, 'tt_lag_messages{partition="0"}': 7,
        "tt_in_trouble": 0, "tt_rebalances_total": 1,
        "tt_aborted_transactions_total": 2,
    }  # fmt: skip
    assert {name: float(values[name]) for name in expected} == expected


def test_a_port_in_use_is_refused():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(UserError, match="`metrics_port`"),
        metrics.serving(some_run(), address="127.0.0.1", port=server.getsockname()[1]),
    ):
        pass


def test_lines_are_appended_during_a_run_and_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "FILE_SECONDS", 0.01)
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"messages": 0}\n')
    run = some_run()
    with metrics.appending(run, path=str(path), report=pytest.fail):
        while path.read_text().count("\n") < 3:
            time.sleep(0.01)
        run.note_written(["ok"])
    lines = [json.loads(line)["messages"] for line in path.read_text().splitlines()]
    assert lines[:2] == [0, 2]
    assert lines[-1] == 3


def test_an_unwritable_metrics_file_is_refused(tmp_path):
    with (
        pytest.raises(UserError, match="`metrics_file`"),
        metrics.appending(some_run(), path=str(tmp_path), report=pytest.fail),
    ):
        pass


def test_a_full_disk_is_reported_once_and_does_not_end_the_stream():
    said = []
    with metrics.appending(some_run(), path="/dev/full", report=said.append):
        time.sleep(0.05)
    assert len(said) == 1
    assert "`metrics_file`" in said[0]
