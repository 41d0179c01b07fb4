"""Measure `tt preprocess` against only SentencePiece and, on request, against a peer.

    make bench
    python tests/bench/preprocess.py --pairs 1000000 --rounds 3 --peer
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
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from processes import CommandError, Finished, Target, available_cores, cache_folder, judge, run

_HERE = Path(__file__).resolve().parent
_TT = Path(sys.executable).with_name("tt")

_START_UP_PAIRS = 1_000
_LEAST_PAIRS = 20_000  # with fewer, the noise of the start exceeds the job
_PEER_PAIRS = 200_000  # at most; its speed does not depend on the number
_MEMORY_FACTOR = 10
_GIGABYTE = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One case to measure.

    Attributes:
      kind: The yardstick, the product or its peer.
      cores: The number of cores that it may use.
      arguments: Beam's arguments for `tt`.
    """

    kind: Literal["bare", "tt", "peer"]
    cores: int = 1
    arguments: Sequence[str] = ()


_ONE_WORKER = ["--direct_num_workers=1"]
_TWO_WORKERS = ["--direct_num_workers=2", "--direct_running_mode"]
CASES = {
    "bare": Case(kind="bare"),
    "one": Case(kind="tt", arguments=_ONE_WORKER),
    "two-threads": Case(kind="tt", cores=2, arguments=[*_TWO_WORKERS, "multi_threading"]),
    "two-processes": Case(kind="tt", cores=2, arguments=[*_TWO_WORKERS, "multi_processing"]),
    "peer": Case(kind="peer"),
}
# A case, the case that it is compared with, and the smallest ratio of their speeds.
_LIMITS = (
    ("one", "bare", 0.60),
    ("two-threads", "one", 1.5),
    ("two-processes", "one", 1.5),
    ("one", "peer", 5.0),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of a case.

    Attributes:
      pairs: The number of pairs in its corpus.
      job_seconds: The time without the start.
      finished: The whole command.
    """

    pairs: int
    job_seconds: float
    finished: Finished

    @property
    def job_rate(self) -> float:
        """The pairs per second, without the start."""
        return self.pairs / self.job_seconds


class DatasetError(Exception):
    """The counts of a dataset are inconsistent, or it differs from a dataset that it must equal."""


class Bench:
    """A runner of cases that compares their datasets with earlier runs.

    Args:
      options: The parsed options.
      scratch: A folder for outputs.
    """

    def __init__(self, options: argparse.Namespace, *, scratch: Path) -> None:
        self._options = options
        self._scratch = scratch
        self._checksums: dict[tuple[Any, ...], dict[str, str]] = {}
        self._vocabulary = self._make_corpus(_START_UP_PAIRS)[1]

    def measure(self, case: Case, *, pairs: int) -> Measured:
        """Run a case once."""
        if case.kind == "tt":
            start_up = self.preprocess(case, pairs=_START_UP_PAIRS)
            finished = self.preprocess(case, pairs=pairs)
            # The difference covers fewer pairs, so scale it to all of them.
            scale = pairs / (pairs - _START_UP_PAIRS)
            seconds = (finished.seconds - start_up.seconds) * scale
            return Measured(pairs=pairs, job_seconds=seconds, finished=finished)
        if case.kind == "peer":
            pairs = min(pairs, _PEER_PAIRS)
        corpus, _ = self._make_corpus(pairs)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            command: list[str | Path] = [sys.executable, _HERE / "bare.py"]
            if case.kind == "peer":
                command = [sys.executable, _HERE / "peer.py", f"--cache={folder}"]
            finished = self._run(
                [*command, corpus, self._vocabulary],
                environment={
                    "HF_HUB_OFFLINE": "1", "HF_HOME": folder, "TOKENIZERS_PARALLELISM": "false"
                },
            )  # fmt: skip
        return Measured(pairs=pairs, job_seconds=finished.json()["seconds"], finished=finished)

    def preprocess(self, case: Case, *, pairs: int, arguments: Sequence[str] = ()) -> Finished:
        """Run `tt preprocess`, check the dataset and delete it."""
        corpus, _ = self._make_corpus(pairs)
        source, target = self._options.languages
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            output = Path(folder, "dataset")
            finished = self._run(
                [
                    *(_TT, "preprocess", corpus, "--vocab", self._vocabulary, "--output", output),
                    *("--source-column", "source", "--target-column", "target", *arguments),
                    *("--source-language", source, "--target-language", target),
                    *(["--", *case.arguments] if case.arguments else []),
                ],
                cores=case.cores,
            )
            checksums = check_dataset(output, pairs=pairs)
        expected = self._checksums.setdefault((pairs, *arguments), checksums)
        if checksums != expected:
            raise DatasetError(f"the shards of {pairs:,} pairs differ between runs")
        return finished

    def _make_corpus(self, pairs: int) -> list[str]:
        """Make a corpus and the vocabulary in another process, which may use much memory."""
        texts = [f"--texts={path.resolve()}" for path in self._options.texts]
        command = [sys.executable, _HERE / "corpus.py", f"--cache={self._options.cache}", *texts]
        made = self._run([*command, f"--pairs={pairs}"], cores=len(available_cores()))
        return made.output.splitlines()

    def _run(
        self,
        command: Sequence[str | Path],
        *,
        cores: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        variables = {"TMPDIR": str(self._scratch), **(environment or {})}
        return run(command, cores=cores, folder=self._scratch, environment=variables)


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
    return {
        path.name: hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.tfrecord"))
    }


Results = dict[str, list[Measured]]


def measure_speed(bench: Bench, names: Sequence[str], *, pairs: int, rounds: int) -> Results:
    """Run all cases in turn, in every round."""
    results: Results = {name: [] for name in names}
    for number in range(1, rounds + 1):
        for name, runs in results.items():
            runs.append(bench.measure(CASES[name], pairs=pairs))
            line = f"round {number}/{rounds}  {name:20s} job {runs[-1].job_seconds:7.1f} s"
            print(line, file=sys.stderr, flush=True)
    return results


def paired_ratios(results: Results, case: str, *, to: str) -> list[float]:
    """Return the ratio of the rates of two cases per round; empty if a case did not run."""
    pairs = zip(results.get(case, []), results.get(to, []), strict=False)
    return [a.job_rate / b.job_rate for a, b in pairs]


def print_table(results: Results) -> None:
    """Print one line per case, with medians over the rounds."""
    print(
        f"{'case':20s} {'pairs/s':>9s} {'of bare':>8s} {'(range)':>13s} {'CPU us/pair':>12s} "
        f"{'memory':>8s}"
    )
    for name, runs in results.items():
        ratios = paired_ratios(results, name, to="bare") or [float("nan")]
        cpu = statistics.median(run.finished.cpu_seconds / run.pairs for run in runs)
        print(
            f"{name:20s} {statistics.median(run.job_rate for run in runs):9,.0f} "
            f"{statistics.median(ratios):8.2f} {f'{min(ratios):.2f}-{max(ratios):.2f}':>13s} "
            f"{cpu * 1e6:12.1f} {max(run.finished.peak_bytes for run in runs) / 1e6:5,.0f} MB"
        )


def speed_targets(results: Results) -> list[Target]:
    """Return the targets of the cases that ran."""
    targets = [
        Target(rule=f"{case}, ratio to {to}", value=statistics.median(ratios), bound=bound)
        for case, to, bound in _LIMITS
        if (ratios := paired_ratios(results, case, to=to))
    ]
    runs = [run for name in results if CASES[name].kind == "tt" for run in results[name]]
    peak = max((run.finished.peak_bytes for run in runs), default=0)
    return [*targets, _memory_target(peak)]


def _memory_target(peak_bytes: int) -> Target:
    return Target(
        rule="most memory of tt, in GB", value=peak_bytes / _GIGABYTE, bound=1, is_upper_bound=True
    )


def measure_memory(bench: Bench, *, pairs: int) -> list[Target]:
    """Run the default job with one shard on a corpus and on a corpus of ten times its size."""
    peaks = []
    for size in (pairs, _MEMORY_FACTOR * pairs):
        finished = bench.preprocess(Case(kind="tt", cores=2), pairs=size, arguments=["--shards=1"])
        peaks.append(finished.peak_bytes)
        print(f"{size:12,d} pairs: {peaks[-1] / 1e6:,.0f} MB, {finished.seconds:.1f} s", flush=True)
    rule = f"memory for {_MEMORY_FACTOR} times the pairs, ratio to once"
    growth = Target(rule=rule, value=peaks[1] / peaks[0], bound=1.3, is_upper_bound=True)
    return [growth, _memory_target(peaks[1])]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--peer", action="store_true", help="Compare with `datasets.map`.")
    parser.add_argument(
        "--texts", nargs=2, type=Path, default=[], metavar="FILE", help="Measure a real corpus."
    )
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar="CODE")
    parser.add_argument("--memory", action="store_true", help="Measure only memory growth.")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="Keep generated files in this folder."
    )
    options = parser.parse_args()
    if options.pairs < _LEAST_PAIRS:
        parser.error(f"--pairs must be {_LEAST_PAIRS:,} or more. Received: {options.pairs:,}")
    options.cache = options.cache.resolve()
    return options


def main() -> None:
    """Measure, and print a table and the targets."""
    options = _parse()
    options.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=options.cache) as folder:
        bench = Bench(options, scratch=Path(folder))
        if options.memory:
            judge(measure_memory(bench, pairs=options.pairs), has_limits=False)
            return
        names = [
            name
            for name, case in CASES.items()
            if (not options.only or name in options.only)
            and (case.kind != "peer" or options.peer)
            and case.cores <= len(available_cores())
        ]
        results = measure_speed(bench, names, pairs=options.pairs, rounds=options.rounds)
    print_table(results)
    judge(speed_targets(results), has_limits=False)


if __name__ == "__main__":
    try:
        main()
    except (CommandError, DatasetError) as error:
        sys.exit(f"bench: error: {error}")
