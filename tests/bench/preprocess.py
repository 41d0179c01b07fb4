"""Measure `tt preprocess` against only SentencePiece and, on request, against a peer.

    make bench
    python tests/bench/preprocess.py --pairs 1000000 --rounds 3 --peer --json results.json
    python tests/bench/preprocess.py --pairs 1000000 --memory
    python tests/bench/preprocess.py --pairs 29000 --texts train.en.gz train.de.gz --only bare one

In each round, all cases run in turn. Each case is a new process on its own number of cores. Ratios
are computed within a round, so that other work on the machine has less weight. "Job" is the time
without the start, which is the time of the same command for 1,000 pairs. With --texts, the cases
run on the first pairs of a real corpus, with both languages and a vocabulary of 8,000 tokens.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from folders import cache_folder
from processes import CommandError, Finished, available_cores, run

_HERE = Path(__file__).resolve().parent
_TT = Path(sys.executable).with_name("tt")

_START_UP_PAIRS = 1_000
_LEAST_PAIRS = 20_000  # with fewer, the noise of the start exceeds the job
_PEER_PAIRS = 200_000  # at most; its speed does not depend on the number
_MEMORY_FACTOR = 10
_GIGABYTE = 10**9

# Turn off the newer filters. Normalization, lengths and duplicates stay.
_FILTERS_OFF: dict[str, list[str]] = {
    "--keep-identical": [],
    "--keep-mojibake": [],
    "--min-letters": ["0"],
    "--max-length-ratio": ["0"],
    "--source-script": ["none"],
    "--target-script": ["none"],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One case to measure.

    Attributes:
      name: The name for --only and in the results.
      kind: The yardstick, the product or its peer.
      cores: The number of cores that it may use.
      has_all_filters: Whether `tt` uses its default filters or only the oldest filters.
      arguments: Beam's arguments for `tt`, or the peer's arguments.
      environment: Variables to set.
    """

    name: str
    kind: Literal["bare", "tt", "peer"]
    cores: int
    has_all_filters: bool = True
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


_BARE = Case(name="bare", kind="bare", cores=1)
_LEAST = Case(
    name="one-least-filters",
    kind="tt",
    cores=1,
    has_all_filters=False,
    arguments=["--direct_num_workers=1"],
)
_ONE = Case(name="one", kind="tt", cores=1, arguments=["--direct_num_workers=1"])
_THREADS = Case(
    name="two-threads",
    kind="tt",
    cores=2,
    arguments=["--direct_num_workers=2", "--direct_running_mode=multi_threading"],
)
_PROCESSES = Case(
    name="two-processes",
    kind="tt",
    cores=2,
    arguments=["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
)
_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}
_PEER_ONE = Case(name="peer-one", kind="peer", cores=1, environment=_ONE_THREAD)
_PEER_THREADS = Case(
    name="peer-two-threads",
    kind="peer",
    cores=2,
    environment={"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "2"},
)
_PEER_PROCESSES = Case(
    name="peer-two-processes",
    kind="peer",
    cores=2,
    arguments=["--processes", "2"],
    environment=_ONE_THREAD,
)
CASES = [_BARE, _LEAST, _ONE, _THREADS, _PROCESSES, _PEER_ONE, _PEER_THREADS, _PEER_PROCESSES]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of a case.

    Attributes:
      pairs: The number of pairs in its corpus.
      seconds: The time of the whole command.
      job_seconds: The time without the start.
      cpu_seconds: The CPU time of the whole command, on all cores.
      peak_bytes: The peak memory of all its processes.
      details: Other numbers that the case reports.
    """

    pairs: int
    seconds: float
    job_seconds: float
    cpu_seconds: float
    peak_bytes: int
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def job_rate(self) -> float:
        """The pairs per second, without the start."""
        return self.pairs / self.job_seconds


class DatasetError(Exception):
    """The counts of a dataset are inconsistent, or it differs from a dataset that it must equal."""


class Bench:
    """A runner of cases that compares their datasets with those of earlier runs."""

    def __init__(
        self,
        *,
        cache: Path,
        scratch: Path,
        peer_python: str,
        texts: Sequence[Path] = (),
        languages: Sequence[str] = ("en", "de"),
    ) -> None:
        self._cache = cache
        self._scratch = scratch
        self._peer_python = peer_python
        self._texts = [f"--texts={path.resolve()}" for path in texts]
        self._languages = languages
        self._checksums: dict[tuple[Any, ...], dict[str, str]] = {}
        *_, self._vocabulary = self._make_corpus(_START_UP_PAIRS)
        known = set(re.findall(r"--[a-z-]+", self._run([_TT, "preprocess", "--help-all"]).output))
        if missing := _FILTERS_OFF.keys() - known:
            raise CommandError(f"tt preprocess does not have {', '.join(sorted(missing))}")

    def measure(self, case: Case, *, pairs: int) -> Measured:
        """Run a case once."""
        if case.kind == "bare":
            corpus, _ = self._make_corpus(pairs)
            finished = self._run(
                [sys.executable, _HERE / "bare.py", corpus, self._vocabulary], cores=case.cores
            )
            return _measured(finished, pairs=pairs, **finished.json())
        if case.kind == "peer":
            return self._measure_peer(case, pairs=min(pairs, _PEER_PAIRS))
        start_up = self.preprocess(case, pairs=_START_UP_PAIRS)
        finished = self.preprocess(case, pairs=pairs)
        # The difference covers fewer pairs, so scale it to all of them.
        seconds = (finished.seconds - start_up.seconds) * pairs / (pairs - _START_UP_PAIRS)
        return _measured(finished, pairs=pairs, seconds=seconds, start_up=start_up.seconds)

    def _measure_peer(self, case: Case, *, pairs: int) -> Measured:
        corpus, _ = self._make_corpus(pairs)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            finished = run(
                [
                    self._peer_python,
                    _HERE / "peer.py",
                    corpus,
                    self._vocabulary,
                    f"--cache={folder}",
                    *case.arguments,
                ],
                cores=case.cores,
                folder=self._scratch,
                environment={
                    "HF_HUB_OFFLINE": "1",
                    "HF_HOME": folder,
                    "TMPDIR": folder,
                    **case.environment,
                },
            )
        return _measured(finished, pairs=pairs, **finished.json())

    def preprocess(self, case: Case, *, pairs: int, arguments: Sequence[str] = ()) -> Finished:
        """Run `tt preprocess`, check the dataset and delete it."""
        corpus, _ = self._make_corpus(pairs)
        off = [word for option, values in _FILTERS_OFF.items() for word in (option, *values)]
        source, target = self._languages
        both = ["--source-language", source, "--target-language", target]
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            finished = run(
                [
                    *(_TT, "preprocess", corpus),
                    *("--source-column", "source", "--target-column", "target"),
                    *("--vocab", self._vocabulary, "--output", "dataset", *arguments),
                    *(both if case.has_all_filters else off),
                    *(["--", *case.arguments] if case.arguments else []),
                ],
                cores=case.cores,
                folder=Path(folder),
                environment={"TMPDIR": folder},
            )
            checksums = check_dataset(Path(folder, "dataset"), pairs=pairs)
        expected = self._checksums.setdefault((pairs, case.has_all_filters, *arguments), checksums)
        if checksums != expected:
            raise DatasetError(f"{case.name}: the shards of {pairs:,} pairs differ between runs")
        return finished

    def _make_corpus(self, pairs: int) -> tuple[str, str]:
        """Make a corpus and the vocabulary in another process, which may use much memory."""
        made = self._run(
            [
                sys.executable,
                _HERE / "corpus.py",
                f"--pairs={pairs}",
                f"--cache={self._cache}",
                *self._texts,
            ],
            cores=len(available_cores()),
        )
        corpus, vocabulary = made.output.splitlines()
        return corpus, vocabulary

    def _run(self, command: Sequence[str | Path], *, cores: int = 1) -> Finished:
        return run(
            command, cores=cores, folder=self._scratch, environment={"TMPDIR": str(self._scratch)}
        )


def _measured(finished: Finished, *, pairs: int, seconds: float, **details: Any) -> Measured:
    return Measured(
        pairs=pairs,
        seconds=finished.seconds,
        job_seconds=seconds,
        cpu_seconds=finished.cpu_seconds,
        peak_bytes=finished.peak_bytes,
        details=details,
    )


def check_dataset(folder: Path, *, pairs: int) -> dict[str, str]:
    """Check that the dataset accounts for every pair, and return the MD5 of each shard.

    Raises:
      DatasetError: The counts in the manifest are inconsistent.
    """
    manifest = json.loads((folder / "dataset.json").read_text("utf-8"))
    rejected = sum(manifest["rejected"].values())
    read, kept = manifest["lines_read"], manifest["pairs_kept"]
    if not read == pairs == kept + rejected:
        raise DatasetError(f"{pairs:,} pairs: {read:,} read, {kept:,} kept, {rejected:,} rejected")
    checksums = {}
    for path in sorted(folder.glob("*.tfrecord")):
        with path.open("rb") as file:
            checksums[path.name] = hashlib.file_digest(file, "md5").hexdigest()
    return checksums


# Output


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A target for a measured number.

    Attributes:
      rule: A description of the target.
      value: The measured value.
      bound: The smallest or largest accepted value.
      is_upper_bound: Whether `bound` is the largest accepted value.
    """

    rule: str
    value: float
    bound: float
    is_upper_bound: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the value reaches the target."""
        return self.value <= self.bound if self.is_upper_bound else self.value >= self.bound

    def line(self) -> str:
        """Return a line that describes the target and the value."""
        sign = "<=" if self.is_upper_bound else ">="
        verdict = "met" if self.is_met else "NOT met"
        return f"{verdict:7s}  {self.rule}: {self.value:.2f} (target {sign} {self.bound:.2f})"


def judge(targets: list[Target], *, has_limits: bool) -> None:
    """Print the targets; exit with code 1 if there are limits and one is missed."""
    print(*(target.line() for target in targets), sep="\n")
    if has_limits and not all(target.is_met for target in targets):
        sys.exit(1)


Results = dict[str, list[Measured]]


def paired_ratios(results: Results, case: str, *, to: str) -> list[float]:
    """Return the ratio of the rates of two cases per round; empty if a case did not run."""
    pairs = zip(results.get(case, []), results.get(to, []), strict=False)
    return [a.job_rate / b.job_rate for a, b in pairs]


def print_table(results: Results) -> None:
    """Print one line per case, with medians over the rounds."""
    print(
        f"{'case':20s} {'pairs/s':>9s} {'job only':>9s} {'of bare':>8s} {'(range)':>13s} "
        f"{'CPU us/pair':>12s} {'memory':>8s}"
    )
    for name, runs in results.items():
        ratios = paired_ratios(results, name, to=_BARE.name)
        share = f"{statistics.median(ratios):8.2f}" if ratios else f"{'-':>8s}"
        extremes = f"{min(ratios):.2f}-{max(ratios):.2f}" if ratios else "-"
        print(
            f"{name:20s} {statistics.median(run.pairs / run.seconds for run in runs):9,.0f} "
            f"{statistics.median(run.job_rate for run in runs):9,.0f} {share} {extremes:>13s} "
            f"{statistics.median(run.cpu_seconds / run.pairs for run in runs) * 1e6:12.1f} "
            f"{max(run.peak_bytes for run in runs) / 1e6:5,.0f} MB"
        )


def speed_targets(results: Results) -> list[Target]:
    """Return the targets of the cases that ran."""
    wanted = [
        ("one core, least filters, ratio to bare", _LEAST, _BARE, 0.70),
        ("one core, default filters, ratio to bare", _ONE, _BARE, 0.60),
        ("two workers (threads), times one", _THREADS, _ONE, 1.5),
        ("two workers (processes), times one", _PROCESSES, _ONE, 1.5),
        ("one core, times the peer", _ONE, _PEER_ONE, 5.0),
        ("two workers (threads), times the peer with two threads", _THREADS, _PEER_THREADS, 5.0),
        (
            "two workers (threads), times the peer with two processes",
            _THREADS,
            _PEER_PROCESSES,
            5.0,
        ),
    ]
    targets = [
        Target(rule=rule, value=statistics.median(ratios), bound=bound)
        for rule, case, to, bound in wanted
        if (ratios := paired_ratios(results, case.name, to=to.name))
    ]
    peaks = [r.peak_bytes for c in CASES if c.kind == "tt" for r in results.get(c.name, [])]
    if peaks:
        targets.append(_memory_target(max(peaks)))
    return targets


def _memory_target(peak_bytes: int) -> Target:
    return Target(
        rule="most memory of tt, in GB", value=peak_bytes / _GIGABYTE, bound=1, is_upper_bound=True
    )


def measure_speed(bench: Bench, cases: Sequence[Case], *, pairs: int, rounds: int) -> Results:
    """Run all cases in turn, in every round."""
    results: Results = {case.name: [] for case in cases}
    for number in range(1, rounds + 1):
        for case in cases:
            measured = bench.measure(case, pairs=pairs)
            results[case.name].append(measured)
            said = ", ".join(f"{key} {value:,.6g}" for key, value in measured.details.items())
            _progress(
                f"round {number}/{rounds}  {case.name:20s} {measured.seconds:7.1f} s, "
                f"job {measured.job_seconds:7.1f} s" + (f" ({said})" if said else "")
            )
    return results


def measure_memory(bench: Bench, *, pairs: int) -> tuple[dict[int, Finished], list[Target]]:
    """Run the default job with one shard on a corpus and on a corpus of ten times its size."""
    case = Case(name="memory", kind="tt", cores=2)
    runs = {}
    for size in (pairs, _MEMORY_FACTOR * pairs):
        runs[size] = bench.preprocess(case, pairs=size, arguments=["--shards=1"])
        _progress(f"{size:,} pairs: {runs[size].seconds:.1f} s")
    small, large = (finished.peak_bytes for finished in runs.values())
    growth = Target(
        rule=f"memory for {_MEMORY_FACTOR} times the pairs, ratio to once",
        value=large / small,
        bound=1.3,
        is_upper_bound=True,
    )
    return runs, [growth, _memory_target(large)]


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--peer",
        nargs="?",
        const=sys.executable,
        metavar="PYTHON",
        help="Compare with `datasets` and `tokenizers` of this interpreter or of PYTHON.",
    )
    parser.add_argument(
        "--texts", nargs=2, type=Path, default=[], metavar="FILE", help="Measure a real corpus."
    )
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar="CODE")
    parser.add_argument("--memory", action="store_true", help="Measure only memory growth.")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="Keep generated files in this folder."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the results to FILE, too.")
    options = parser.parse_args()
    if options.pairs < _LEAST_PAIRS:
        parser.error(f"--pairs must be {_LEAST_PAIRS:,} or more. Received: {options.pairs:,}")
    if options.rounds < 1:
        parser.error(f"--rounds must be 1 or more. Received: {options.rounds}")
    return options


def _has_peer(python: str | None, *, scratch: Path) -> bool:
    if python is None:
        return False
    try:
        run([python, "-c", "import datasets, tokenizers"], cores=1, folder=scratch)
    except (CommandError, OSError):
        _progress("Skipping the peer: `datasets` or `tokenizers` is not installed.")
        return False
    return True


def _machine() -> dict[str, Any]:
    names = ("tt-translate", "apache-beam", "sentencepiece", "pyarrow", "numpy")
    processor = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "processor": processor,
        "cores": len(available_cores()),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in names},
        "load_average": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def main() -> None:
    """Measure, and print a table and the targets."""
    options = _parse()
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"machine": _machine(), "pairs": options.pairs}
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=cache) as folder:
        bench = Bench(
            cache=cache,
            scratch=Path(folder),
            peer_python=options.peer or "",
            texts=options.texts,
            languages=options.languages,
        )
        if options.memory:
            runs, targets = measure_memory(bench, pairs=options.pairs)
            for size, finished in runs.items():
                print(f"{size:12,d} pairs: {finished.peak_bytes / 1e6:,.0f} MB")
            report["peak_bytes"] = {size: finished.peak_bytes for size, finished in runs.items()}
        else:
            has_peer = _has_peer(options.peer, scratch=Path(folder))
            cases = [
                case
                for case in CASES
                if (not options.only or case.name in options.only)
                and (case.kind != "peer" or has_peer)
                and case.cores <= len(available_cores())
            ]
            results = measure_speed(bench, cases, pairs=options.pairs, rounds=options.rounds)
            print_table(results)
            if has_peer:
                print(
                    f"The peer encodes {min(options.pairs, _PEER_PAIRS):,} pairs. It does not "
                    "filter, drop duplicates, shuffle or write TFRecords."
                )
            targets = speed_targets(results)
            report["rounds"] = options.rounds
            report["cases"] = {
                name: [dataclasses.asdict(measured) for measured in runs]
                for name, runs in results.items()
            }
    print(*(target.line() for target in targets), sep="\n")
    report["targets"] = [{**dataclasses.asdict(t), "is_met": t.is_met} for t in targets]
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except (CommandError, DatasetError) as error:
        sys.exit(f"bench: error: {error}")
