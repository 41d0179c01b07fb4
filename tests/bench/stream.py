"""Measure `tt translate-stream` against the bare decoder and against a loop written by hand.

    make bench-stream MODEL=run TEXT=train.en.gz
    python tests/bench/stream.py run train.en.gz --quick                # one round, rates only

Apache Kafka runs on the same cores as the other processes. Each run has its own topics.

**Saturation**: all messages wait in a topic of two partitions. The rate is measured between the
arrival of the first fifth of the translations and the arrival of 95% of them, so that the start
does not count. The stream is compared with three sides: with bare, the decoder with all texts in
memory (`engine_alone.py`); with the loop (`stream_loop.py`), which has the same model, engine,
threads and batch size; and with the stream at least once. The sides alternate, in another order
each round. Ratios are computed within a round.

**Members**: one member runs on one core, and then two members on one core each.

**Latency**: messages arrive evenly, at shares of the rate at saturation. The latency is the time
between the producer's timestamp and the arrival of the translation at a consumer of committed
messages. "Broker" is the same time for a consumer of the input.

The exit code is 1 if a limit is missed, except with --no-limits.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from processes import CommandError, Target, available_cores, judge, run

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(_HERE.parents[1]), str(_HERE.parent / "engines"), str(_HERE.parent / "support"),
]  # fmt: skip

from apache_kafka import INSTALLED, ApacheKafka  # noqa: E402
from confluent_kafka import Producer  # noqa: E402
from kafka_broker import Broker, Watch  # noqa: E402

_TT = Path(sys.executable).with_name("tt")
_PARTITIONS = 2
_GROUPS = {"stream": "tt", "at-least-once": "tt", "loop": "loop"}
_FIRST, _LAST = 0.20, 0.95  # the rate is measured between these shares of the messages
_LOOK_SECONDS = 0.05
_LEAST_LATENCIES = 20
_PATIENCE = 300.0  # seconds until a run has failed
_SHARES = (0.1, 0.5, 0.9)  # of the rate at saturation
_SKIPPED_SECONDS = 2.0  # at each start, because latencies of the previous load remain
_QUIET_SECONDS = 1.5  # silence that ends a run
_SEED = 21
_SIDES = ("bare", "stream", "at-least-once", "loop")
_BARE_LIMIT, _LOOP_LIMIT = 0.85, 0.90  # the smallest ratios of the stream's rate to theirs
_MEMBERS_LIMIT = 1.7  # the smallest ratio of two members to one
_P50_LIMIT, _P99_LIMIT = 0.3, 0.8  # seconds at half of the rate at saturation, with CTranslate2


class Bench:
    """A runner of streams, loops and bare on the same texts.

    Args:
      given: The options.
      broker: A running broker.
      folder: A folder for files.
    """

    def __init__(self, given: argparse.Namespace, broker: Broker, folder: Path) -> None:
        self.given, self._broker, self._folder = given, broker, folder
        self._texts = read_texts(given)
        self._file = folder / "texts.txt"
        self._file.write_text("\n".join(self._texts), "utf-8")
        self._sizes: dict[str, str] = {}  # the best batch size of bare, by engine

    def bare(self, engine: str) -> float:
        """Translate the texts with only the decoder; return its rate."""

        def alone(*arguments: str) -> dict[str, Any]:
            command = [
                *(sys.executable, _HERE / "engine_alone.py", self.given.model, self._file),
                *("--engine", engine, "--beam-size", str(self.given.beam_size)),
                *("--copies", str(len(available_cores())), *arguments),
            ]
            variables = {"TF_CPP_MIN_LOG_LEVEL": "3"}
            cores = len(available_cores())
            return run(command, cores=cores, folder=self._folder, environment=variables).json()

        if engine not in self._sizes:
            rates = alone()["rates"]
            self._sizes[engine] = max(rates, key=rates.__getitem__)
        return float(alone("--size", self._sizes[engine])["rate"])

    def saturate(self, side: str, engine: str) -> float:
        """Translate all texts with a stream or a loop; return the steady rate."""
        source, target = self._make_topics()
        self._put(source)
        count = len(self._texts)
        with self._watching(target) as watch, self._running(side, engine, source, target) as it:
            first = _wait(watch, int(_FIRST * count), it)
            last = _wait(watch, int(_LAST * count), it)
        return (last[1] - first[1]) / (last[0] - first[0])

    def share(self, engine: str, members: int) -> float:
        """Translate all texts with members on one core each; return their steady rate."""
        source, target = self._make_topics()
        warm, count = _PARTITIONS * 100, len(self._texts)
        with self._watching(target) as watch, contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(self._running("stream", engine, source, target, cores=[core]))
                for core in available_cores()[:members]
            ]
            self._broker.wait_for_members(_GROUPS["stream"], members, seconds=_PATIENCE)
            self._put(source, warm)
            _wait(watch, warm, started[-1])
            self._put(source)
            first = _wait(watch, warm + int(_FIRST * count), started[-1])
            last = _wait(watch, warm + int(_LAST * count), started[-1])
        return (last[1] - first[1]) / (last[0] - first[0])

    def latencies(self, engine: str | None, rates: Sequence[float]) -> list[dict[str, float]]:
        """Return latency quantiles at each load, of the broker if no engine is given."""
        source, target = self._make_topics()
        if engine is None:
            with self._watching(source) as watch:
                return [self._load(source, watch, rate) for rate in rates]
        with self._watching(target) as watch, self._running("stream", engine, source, target) as it:
            self._put(source, 50)
            _wait(watch, 50, it)
            return [self._load(source, watch, rate) for rate in rates]

    @contextlib.contextmanager
    def _watching(self, topic: str) -> Iterator[Watch]:
        watch = self._broker.watch(topic, partitions=_PARTITIONS)
        try:
            yield watch
        finally:
            watch.close()

    def _make_topics(self) -> tuple[str, str]:
        source, target = (self._broker.make_topic(partitions=_PARTITIONS) for _ in range(2))
        return source, target

    def _put(self, topic: str, count: int | None = None) -> None:
        texts = [text.encode() for text in self._texts[:count]]
        self._broker.put(topic, texts, partitions=_PARTITIONS)

    @contextlib.contextmanager
    def _running(
        self, side: str, engine: str, source: str, target: str, *, cores: Sequence[int] = ()
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a side during the block, on some cores; then stop it by its id."""
        given = self.given
        search = ["--engine", engine, "--beam-size", str(given.beam_size)]
        most = str(given.max_batch)
        size = self._sizes.get(engine, "64 sentences").split()
        if side != "loop":
            delivery = "exactly-once" if side == "stream" else side
            command = [
                *(_TT, "translate-stream", self._broker.url(source), self._broker.url(target)),
                *("--group", _GROUPS[side], "--model", given.model, "--max-batch", most, *search),
                *("--delivery", delivery),
            ]
        else:
            command = [
                *(sys.executable, _HERE / "stream_loop.py", self._broker.address, source, target),
                *(given.model, "--most", most, *search),
                *("--size", size[0] if size[1] == "sentences" else "64"),
                *("--partitions", str(_PARTITIONS)),
            ]
        if cores:
            command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
            try:
                yield process
            except CommandError as error:
                errors.seek(0)
                raise CommandError(f"{error}\n{errors.read().decode()[-2000:]}") from None
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    try:
                        process.wait(30)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()

    def _load(self, source: str, watch: Watch, rate: float) -> dict[str, float]:
        """Send messages evenly; return the quantiles of their latencies."""
        seconds = self.given.load_seconds + _SKIPPED_SECONDS
        begin = time.time()
        sender = threading.Thread(target=self._send, args=(source, rate, seconds))
        sender.start()
        found, seen, count = [], begin, watch.look()
        while sender.is_alive() or time.time() - seen < _QUIET_SECONDS:
            if watch.look(0.005) > count:
                seen = time.time()
                sent = [each.timestamp()[1] / 1000 for each in watch.messages[count:]]
                found += [seen - each for each in sent if each > begin + _SKIPPED_SECONDS]
                count += len(sent)
        sender.join()
        if len(found) < _LEAST_LATENCIES:
            raise CommandError(f"{len(found)} latencies are too few. Increase --load-seconds")
        points = statistics.quantiles(found, n=100)
        return {"rate": rate, "messages": len(found)} | {
            f"p{each}": round(points[each - 1], 4) for each in (50, 95, 99)
        }

    def _send(self, topic: str, rate: float, seconds: float) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address, "linger.ms": 0})
        begin, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begin) < seconds:
            while sent < passed * rate:
                text = self._texts[sent % len(self._texts)].encode()
                producer.produce(topic, text, partition=sent % _PARTITIONS)
                sent += 1
            producer.poll(0)
            time.sleep(max(0.0005, sent / rate - (time.monotonic() - begin)))
        producer.flush(30)


def read_texts(given: argparse.Namespace) -> list[str]:
    """Return the texts of the messages, shuffled.

    Raises:
      CommandError: There are too few texts.
    """
    lines: list[str] = []
    for name in given.texts:
        content = Path(name).read_bytes()
        text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
        lines += [line.strip() for line in text.split("\n") if line.strip()]
    lines = list(dict.fromkeys(line.lower() if given.lowercase else line for line in lines))
    random.Random(_SEED).shuffle(lines)
    if len(lines) < given.messages:
        raise CommandError(
            f"the texts have {len(lines):,} different lines. Add texts, or reduce --messages"
        )
    return lines[: given.messages]


def _wait(watch: Watch, count: int, process: subprocess.Popen[bytes]) -> tuple[float, int]:
    """Wait until `count` messages have arrived; return the time and the number of messages."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if (found := watch.look(_LOOK_SECONDS)) >= count:
            return time.monotonic(), found
    raise CommandError(f"{watch.look():,} of {count:,} translations arrived from: {process.args}")


def measure_rates(bench: Bench, engine: str) -> dict[str, list[float]]:
    """Run all sides in turn; print the rates, and return them by side."""
    rates: dict[str, list[float]] = {side: [] for side in _SIDES}
    for number in range(bench.given.rounds):
        for side in _SIDES if number % 2 == 0 else [_SIDES[0], *_SIDES[:0:-1]]:
            rate = bench.bare(engine) if side == "bare" else bench.saturate(side, engine)
            rates[side].append(rate)
        said = ", ".join(f"{side} {found[-1]:,.0f}/s" for side, found in rates.items())
        print(f"{engine}  round {number + 1}/{bench.given.rounds}: {said}", file=sys.stderr)
    for side, found in rates.items():
        ratios = [ours / its for ours, its in zip(rates["stream"], found, strict=True)]
        print(
            f"{engine:12s} {side:13s} {statistics.median(found):7,.0f} messages/s, ratio of the "
            f"stream {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        )
    return rates


def print_latencies(name: str, found: Sequence[dict[str, float]]) -> None:
    """Print one line per load."""
    for each in found:
        points = ", ".join(
            f"{point} {1000 * each[point]:,.0f} ms" for point in ("p50", "p95", "p99")
        )
        print(f"{name:12s} at {each['rate']:7,.1f} messages/s: {points}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument(
        "texts", nargs="+", metavar="text", help="Read one message per line (text or .gz)."
    )
    parser.add_argument("--lowercase", action="store_true", help="Convert texts to lower case.")
    parser.add_argument("--engine", nargs="+", default=["tensorflow", "ctranslate2"])
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=1000, help="Limit messages per batch.")
    parser.add_argument("--load-seconds", type=float, default=8.0, help="Send each load this long.")
    parser.add_argument("--quick", action="store_true", help="Measure only rates, in one round.")
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    given = parser.parse_args()
    for path in [given.model, *given.texts]:
        if not Path(path).exists():
            parser.error(f"{path} does not exist")
    given.model = str(Path(given.model).resolve())
    given.texts = [str(Path(text).resolve()) for text in given.texts]
    if given.quick:
        given.rounds = 1
    return given


def measure(bench: Bench) -> list[Target]:
    """Run all measurements and print them; return the targets."""
    given = bench.given
    targets = []
    for engine in given.engine:
        rates = measure_rates(bench, engine)
        for side, bound in (("bare", _BARE_LIMIT), ("loop", _LOOP_LIMIT)):
            ratios = [a / b for a, b in zip(rates["stream"], rates[side], strict=True)]
            rule = f"{engine}, ratio of the stream's rate to {side}"
            targets.append(Target(rule=rule, value=statistics.median(ratios), bound=bound))
        if given.quick:
            continue
        ratios = [bench.share(engine, 2) / bench.share(engine, 1) for _ in range(given.rounds)]
        rule = f"{engine}, ratio of two members' rate to one member's"
        targets.append(Target(rule=rule, value=statistics.median(ratios), bound=_MEMBERS_LIMIT))
        loads = [share * statistics.median(rates["stream"]) for share in _SHARES]
        latencies = bench.latencies(engine, loads)
        print_latencies(engine, latencies)
        print_latencies("broker", bench.latencies(None, loads))
        if engine == "ctranslate2":
            half = latencies[_SHARES.index(0.5)]
            for point, limit in (("p50", _P50_LIMIT), ("p99", _P99_LIMIT)):
                rule = f"{engine}, {point} at half the rate, in seconds"
                targets.append(
                    Target(rule=rule, value=half[point], bound=limit, is_upper_bound=True)
                )
    return targets


def main() -> None:
    """Measure, print and judge."""
    given = _parse()
    if not INSTALLED.exists():
        raise CommandError(f"{INSTALLED} does not exist. Run `make kafka` first")
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        broker = ApacheKafka(Path(folder) / "kafka")
        try:
            targets = measure(Bench(given, broker, Path(folder)))
        finally:
            broker.stop()
    judge(targets, has_limits=not given.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
