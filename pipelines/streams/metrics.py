"""Metrics of a stream, for Prometheus, the status line and the metrics file."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    make_wsgi_app,
    start_wsgi_server,
)

from tt.model.errors import UserError, counted
from tt.pipelines.runners.status_line import repeating
from tt.pipelines.streams.options import MetricsOptions
from tt.pipelines.texts.results import FAILED

FILE_SECONDS = 10.0  # between two lines of the metrics file
RATE_SECONDS = 10.0  # the window of the rate and the latencies in the status line
TROUBLE_SECONDS = 15.0  # time until a problem counts as over; clients report it every 10 s
COMMIT_SECONDS = 300.0  # a member is unhealthy if a batch waits longer than this for its commit
_BATCH_SIZES = (1, 4, 16, 64, 256, 1024, 4096)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics(NamedTuple):
    """The state of a stream at one moment; the metrics file has the same names."""

    messages: int  # written messages
    failed: int  # written messages without a translation
    by_status: Mapping[str, int]
    messages_per_second: float  # in the last RATE_SECONDS
    # Median from the timestamp of a message until it was written.
    latency_p50_seconds: float | None
    latency_p95_seconds: float | None
    lag: Mapping[int, int]  # uncommitted messages by partition
    trouble: str  # the problem that currently stops the stream, or ""


class StreamMetrics:
    """Counts the work of a stream; all methods are thread-safe.

    Attributes:
      registry: The same counts for Prometheus.
      rebalances: Changes to the assigned partitions.
      aborted_transactions: Transactions that were aborted.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = functools.partial(Counter, registry=self.registry)
        gauge = functools.partial(Gauge, registry=self.registry)
        seconds = functools.partial(Histogram, registry=self.registry, buckets=_SECONDS)
        self._written = counter("tt_messages", "Messages written.", ["status"])
        self._batch_messages = Histogram(
            "tt_batch_messages", "Messages per batch.", registry=self.registry, buckets=_BATCH_SIZES
        )
        self._batch_seconds = seconds("tt_batch_seconds", "Seconds to translate a batch.")
        self._latency = seconds(
            "tt_latency_seconds", "Seconds from the timestamp of a message until it was written."
        )
        self._lag = gauge("tt_lag_messages", "Uncommitted messages.", ["partition"])
        self.rebalances = counter("tt_rebalances", "Changes to the assigned partitions.")
        self.aborted_transactions = counter("tt_aborted_transactions", "Aborted transactions.")
        in_trouble = gauge("tt_in_trouble", "1 while a problem stops the stream.")
        in_trouble.set_function(lambda: bool(self.snapshot().trouble))
        self._lock = threading.RLock()
        self._by_status: collections.Counter[str] = collections.Counter()
        self._recent: collections.deque[tuple[float, int, list[float]]] = collections.deque()
        self._lag_of: dict[int, int] = {}
        self._trouble, self._troubled = "", 0.0
        self._is_assigned = False
        self._waiting_since: float | None = None  # when a batch began to wait for its commit
        self._start = time.monotonic()

    def note_written(
        self,
        statuses: Iterable[str] | Mapping[str, int],
        *,
        milliseconds: Iterable[int | None] = (),
    ) -> None:
        """Count written messages, and clear the current problem.

        Args:
          statuses: The status of each message, or the number of messages by status.
          milliseconds: The timestamp of each message in milliseconds since 1970, or None.
        """
        now, wall = time.monotonic(), time.time()
        counts = +collections.Counter(statuses)  # without zeros
        latencies = [max(wall - each / 1000, 0.0) for each in milliseconds if each is not None]
        for status, count in counts.items():
            self._written.labels(status).inc(count)
        for latency in latencies:
            self._latency.observe(latency)
        with self._lock:
            self._by_status += counts
            self._recent.append((now, counts.total(), latencies))
            self._trouble = ""
            self._forget(now)

    def note_batch(self, messages: int, *, seconds: float) -> None:
        """Count a translated batch."""
        self._batch_messages.observe(messages)
        self._batch_seconds.observe(seconds)

    def note_lag(self, lag: Mapping[int, int]) -> None:
        """Replace the numbers of uncommitted messages by partition."""
        with self._lock:
            for gone in self._lag_of.keys() - lag.keys():
                self._lag.remove(gone)
            for partition, count in lag.items():
                self._lag.labels(partition).set(count)
            self._lag_of = dict(sorted(lag.items()))

    def note_trouble(self, trouble: str) -> None:
        """Record the problem that stops the stream, or "" when it is over."""
        with self._lock:
            self._trouble, self._troubled = trouble, time.monotonic()

    def note_assigned(self, is_assigned: bool) -> None:
        """Record whether the broker has assigned a part of the input to this process."""
        with self._lock:
            self._is_assigned = is_assigned

    def note_waiting(self, is_waiting: bool) -> None:
        """Record whether a batch waits for its commit."""
        with self._lock:
            if not is_waiting:
                self._waiting_since = None
            elif self._waiting_since is None:
                self._waiting_since = time.monotonic()

    def health(self) -> str:
        """Return the problem of this member, or "" if it is assigned and commits its batches."""
        with self._lock:
            trouble = self.snapshot().trouble
            since = self._waiting_since
            if not self._is_assigned:
                return "not assigned"
            if since is not None and time.monotonic() - since > COMMIT_SECONDS:
                return f"a batch has waited {COMMIT_SECONDS:g} s for its commit"
            return trouble

    def snapshot(self) -> Metrics:
        """Return the current metrics."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            latencies = sorted(each for _, _, latencies in self._recent for each in latencies)
            seconds = min(RATE_SECONDS, max(now - self._start, 1.0))
            return Metrics(
                messages=self._by_status.total(),
                failed=self._by_status[FAILED],
                by_status=dict(sorted(self._by_status.items())),
                messages_per_second=sum(count for _, count, _ in self._recent) / seconds,
                latency_p50_seconds=_quantile(latencies, 0.5),
                latency_p95_seconds=_quantile(latencies, 0.95),
                lag=self._lag_of,
                trouble=self._trouble if now - self._troubled < TROUBLE_SECONDS else "",
            )

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - RATE_SECONDS:
            self._recent.popleft()


def _quantile(values: list[float], share: float) -> float | None:
    """Return the quantile of sorted values.

    >>> _quantile([1.0, 2.0, 3.0], 0.5), _quantile([], 0.5)
    (2.0, None)
    """
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def describe(metrics: Metrics, *, what: str = "message") -> str:
    """Format metrics as the status line.

    >>> describe(Metrics(1200, 3, {}, 56.71, 0.21, 0.4512, {0: 0, 1: 12}, ""))
    '1,200 messages, 56.7/s, latency 0.21 s (95 %: 0.45 s), lag 12, 3 failed'
    """
    parts = [counted(metrics.messages, what), f"{metrics.messages_per_second:,.1f}/s"]
    median, high = metrics.latency_p50_seconds, metrics.latency_p95_seconds
    if median is not None:
        parts.append(f"latency {median:.2f} s (95 %: {high:.2f} s)")
    if metrics.lag:
        parts.append(f"lag {sum(metrics.lag.values()):,}")
    parts.append(f"{metrics.failed:,} failed")
    if metrics.trouble:
        parts.append(metrics.trouble)
    return ", ".join(parts)


def describe_end(metrics: Metrics, *, what: str = "message") -> str:
    """Format metrics as the last line of a run.

    >>> describe_end(Metrics(2, 0, {}, 0, None, None, {}, ""), what="row")
    'Ended: 2 rows written, 0 of them failed'
    """
    return f"Ended: {counted(metrics.messages, what)} written, {metrics.failed:,} of them failed"


def as_json(metrics: Metrics, *, now: float) -> str:
    """Return the metrics as a JSON line; `now` is in seconds since 1970."""
    rate, trouble = round(metrics.messages_per_second, 3), metrics.trouble or None
    content = metrics._replace(messages_per_second=rate)._asdict() | {"trouble": trouble}
    return json.dumps({"time": round(now, 3), **content})


@contextlib.contextmanager
def serving(metrics: StreamMetrics, *, address: str, port: int | None) -> Iterator[None]:
    """Serve /metrics for Prometheus and /healthz while the block runs.

    /healthz answers 200 while the member is assigned and commits its batches, and 503 otherwise.

    Args:
      metrics: The metrics of the stream.
      address: The address to listen on.
      port: The port, or None to serve nothing.

    Raises:
      UserError: The address or the port cannot be used.
    """
    if port is None:
        yield
        return
    prometheus = make_wsgi_app(metrics.registry)

    def serve(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if request["PATH_INFO"] == "/metrics":
            found: Iterable[bytes] = prometheus(request, start)
            return found
        status, text = "404 Not Found", "this server has only /metrics and /healthz"
        if request["PATH_INFO"] == "/healthz":
            problem = metrics.health()
            status, text = ("503 Service Unavailable", problem) if problem else ("200 OK", "ok")
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    try:
        server, thread = start_wsgi_server(port, address, metrics.registry)
    except OSError as error:
        raise UserError(
            f"`metrics_port` {port} at {address} cannot be used: {error.strerror or error}. "
            "Choose another port or `metrics_address`"
        ) from error
    server.set_app(serve)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def appending(
    metrics: StreamMetrics, *, path: str | None, report: Callable[[str], object]
) -> Iterator[None]:
    """Append a JSON line to a file every `FILE_SECONDS` while the block runs, and at its end.

    Args:
      metrics: The metrics of the stream.
      path: The file, or None to write nothing.
      report: Prints a line if the file can no longer be written; the stream continues.

    Raises:
      UserError: The file cannot be opened.
    """
    if path is None:
        yield
        return
    try:
        file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise UserError(
            f"`metrics_file` {path} cannot be written: {error.strerror or error}. "
            "Choose another file"
        ) from error

    def write(found: Metrics) -> None:
        if file.closed:
            return
        try:
            file.write(f"{as_json(found, now=time.time())}\n")
            file.flush()
        except OSError as error:
            report(
                f"`metrics_file` {path} can no longer be written: {error.strerror or error}. "
                "The stream continues without it"
            )
            with contextlib.suppress(OSError):
                file.close()

    try:
        with repeating(metrics.snapshot, write, interval=FILE_SECONDS):
            yield
    finally:
        write(metrics.snapshot())
        file.close()


@contextlib.contextmanager
def publishing(
    metrics: StreamMetrics, options: MetricsOptions, *, report: Callable[[str], object]
) -> Iterator[None]:
    """Publish metrics while the block runs; see `serving` and `appending`.

    Raises:
      UserError: The address, the port or the file cannot be used.
    """
    with (
        serving(metrics, address=options.metrics_address, port=options.metrics_port),
        appending(metrics, path=options.metrics_file, report=report),
    ):
        yield
