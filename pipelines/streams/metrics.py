"""What is known of a run, told: a line, a line of JSON, and the text that Prometheus reads."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from model.errors import UserError, counted
from pipelines.runners.status_line import repeating
from pipelines.streams.live_run import Metrics

LOOPBACK = "127.0.0.1"
FILE_SECONDS = 10.0
_MOST_PARTITIONS = 4  # that the line shows one by one


def describe(metrics: Metrics) -> str:
    """Says it in a line.

    >>> describe(Metrics(1200, 3, {}, 56.71, 0.21, 0.4512, {0: 0, 1: 12}, ""))
    '1,200 messages, 56.7/s, latency 0.21 s (95 %: 0.45 s), lag 0:0 1:12, 3 failed'
    """
    parts = [f"{metrics.messages:,} message{'' if metrics.messages == 1 else 's'}"]
    parts.append(f"{metrics.rate:,.1f}/s")
    if metrics.p50 is not None:
        parts.append(f"latency {metrics.p50:.2f} s (95 %: {metrics.p95:.2f} s)")
    if 0 < len(metrics.lag) <= _MOST_PARTITIONS:
        parts.append("lag " + " ".join(f"{key}:{lag:,}" for key, lag in metrics.lag.items()))
    elif metrics.lag:
        worst = max(metrics.lag, key=lambda partition: metrics.lag[partition])
        total = sum(metrics.lag.values())
        parts.append(f"lag {total:,}, of partition {worst} {metrics.lag[worst]:,}")
    parts.append(f"{metrics.failed:,} failed")
    if metrics.left_out:
        parts.append(f"{counted(metrics.left_out, 'file')} left out")
    if metrics.trouble:
        parts.append(metrics.trouble)
    return ", ".join(parts)


def describe_end(metrics: Metrics, *, what: str) -> str:
    """Says what a run that has ended has written.

    >>> describe_end(Metrics(2, 0, {}, 0, None, None, {}, "", left_out=1), what="text")
    'Ended: 2 texts written, 0 of them failed; 1 file left out'
    """
    said = f"Ended: {counted(metrics.messages, what)} written, {metrics.failed:,} of them failed"
    return said + (f"; {counted(metrics.left_out, 'file')} left out" if metrics.left_out else "")


def as_json(metrics: Metrics, *, now: float) -> str:
    """Returns it as a line of JSON.

    Args:
      metrics: What is known.
      now: Seconds since 1970.
    """
    content = {
        "time": round(now, 3),
        "messages": metrics.messages,
        "failed": metrics.failed,
        "by_status": metrics.by_status,
        "messages_per_second": round(metrics.rate, 3),
        "latency_p50_seconds": metrics.p50,
        "latency_p95_seconds": metrics.p95,
        "lag": metrics.lag,
        "files_left_out": metrics.left_out,
        "trouble": metrics.trouble or None,
    }
    return json.dumps(content)


def as_prometheus(metrics: Metrics) -> str:
    """Returns it as text of Prometheus.

    https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    lines = ["# HELP tt_messages_total Messages written, by status."]
    lines.append("# TYPE tt_messages_total counter")
    for status, count in metrics.by_status.items():
        lines.append(f'tt_messages_total{{status="{status}"}} {count}')
    lines.append("# HELP tt_messages_per_second Messages written a second, of the last 10 seconds.")
    lines += ["# TYPE tt_messages_per_second gauge", f"tt_messages_per_second {metrics.rate:.6g}"]
    lines.append("# HELP tt_latency_seconds From a message's own time until it was written.")
    lines.append("# TYPE tt_latency_seconds gauge")
    for share, value in (("0.5", metrics.p50), ("0.95", metrics.p95)):
        if value is not None:
            lines.append(f'tt_latency_seconds{{quantile="{share}"}} {value:.6g}')
    lines.append("# HELP tt_lag_messages Messages of the input that are not committed.")
    lines.append("# TYPE tt_lag_messages gauge")
    for partition, lag in metrics.lag.items():
        lines.append(f'tt_lag_messages{{partition="{partition}"}} {lag}')
    lines.append("# HELP tt_files_left_out_total Files of a watched folder that cannot be read.")
    lines.append("# TYPE tt_files_left_out_total counter")
    lines.append(f"tt_files_left_out_total {metrics.left_out}")
    lines.append("# HELP tt_in_trouble Whether something keeps the stream from its work.")
    lines += ["# TYPE tt_in_trouble gauge", f"tt_in_trouble {int(bool(metrics.trouble))}"]
    return "".join(f"{line}\n" for line in lines)


@contextlib.contextmanager
def serving(look: Callable[[], Metrics], *, port: int | None) -> Iterator[None]:
    """Answers to Prometheus at http://127.0.0.1:PORT/metrics while the block runs.

    Args:
      look: Returns what is known now.
      port: The port; None serves nothing.

    Raises:
      UserError: The port is another program's.
    """
    if port is None:
        yield
        return

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            content = as_prometheus(look()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Keeps requests off the user's screen."""

    try:
        server = http.server.ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise UserError(
            f"`metrics_port` {port} cannot be used: {error.strerror or error}. Choose another"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def appending(
    look: Callable[[], Metrics], *, path: str | None, report: Callable[[str], object]
) -> Iterator[None]:
    """Appends a line of JSON to a file every `FILE_SECONDS` while the block runs, and at its end.

    Args:
      look: Returns what is known now.
      path: The file; None writes nothing.
      report: Takes a line if it cannot be written any more: the stream goes on.

    Raises:
      UserError: It cannot be written.
    """
    if path is None:
        yield
        return
    try:
        file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise UserError(
            f"`metrics_file` {path} cannot be written: {error.strerror or error}. Choose another"
        ) from error
    lock = threading.Lock()
    errors: list[OSError] = []

    def write(metrics: Metrics) -> None:
        with lock:
            if errors:
                return
            try:
                file.write(f"{as_json(metrics, now=time.time())}\n")
                file.flush()
            except OSError as error:
                errors.append(error)
                report(f"`metrics_file` {path} gets no more lines: {error.strerror or error}")

    try:
        with repeating(look, write, interval=FILE_SECONDS):
            yield
    finally:
        write(look())
        with contextlib.suppress(OSError):  # which was told
            file.close()
