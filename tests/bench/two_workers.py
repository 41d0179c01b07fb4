"""Measure how much faster `tt preprocess` is with two workers on two cores than with one on one.

    python tests/bench/two_workers.py --pairs 1000000 --rounds 3

Each round runs these cases in turn, in another order each time: SentencePiece in one process and in
two processes at the same time, and the job with one worker, two threads and two processes. The
ceiling is the gain of two programs that share nothing: twice the time of one SentencePiece divided
by the time of the slower of two. Times exclude the start, as in preprocess.py. CPU seconds show
whether two workers do more work or wait for each other. They include the start.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import statistics
import sys
import tempfile
from pathlib import Path

from folders import cache_folder
from preprocess import CASES, Bench, Case, DatasetError
from processes import CommandError, available_cores

_BARE = "bare"
_TWICE = "bare, twice"
_ONE = "one"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a case."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    times_one: float = 1.0


def bare_twice(bench: Bench, bare: Case, *, pairs: int) -> Run:
    """Run SentencePiece in two processes at the same time, each with all texts."""
    free = dataclasses.replace(bare, cores=2)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda case: bench.measure(case, pairs=pairs), [free, free]))
    return Run(
        seconds=max(each.job_seconds for each in runs),
        cpu_seconds=sum(each.cpu_seconds for each in runs),
        peak_bytes=sum(each.peak_bytes for each in runs),
    )


def measure(bench: Bench, *, pairs: int, rounds: int) -> dict[str, list[Run]]:
    """Run all cases in every round."""
    cases = {case.name: case for case in CASES}
    names = [_BARE, _TWICE, _ONE, "two-threads", "two-processes"]
    found: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds):
        runs = {}
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            if name == _TWICE:
                runs[name] = bare_twice(bench, cases[_BARE], pairs=pairs)
            else:
                run = bench.measure(cases[name], pairs=pairs)
                runs[name] = Run(run.job_seconds, run.cpu_seconds, run.peak_bytes)
            seconds = runs[name].seconds
            print(f"round {number + 1}: {name} {seconds:.1f} s", file=sys.stderr, flush=True)
        for name, each in runs.items():
            ratio = runs[_ONE].seconds / each.seconds
            if name in (_BARE, _TWICE):
                ratio = (1 + (name == _TWICE)) * runs[_BARE].seconds / each.seconds
            found[name].append(dataclasses.replace(each, times_one=ratio))
    return found


def main() -> None:
    """Measure, and print one line per case with medians over the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=cache_folder())
    options = parser.parse_args()
    if len(available_cores()) < 2:
        parser.error("the benchmark needs two cores")
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=cache) as folder:
        bench = Bench(cache=cache, scratch=Path(folder), peer_python="")
        found = measure(bench, pairs=options.pairs, rounds=options.rounds)
    for name, runs in found.items():
        ratios = [run.times_one for run in runs]
        print(
            f"{name:14s} {statistics.median(run.seconds for run in runs):7.1f} s "
            f"{statistics.median(run.cpu_seconds for run in runs):7.1f} s of CPU "
            f"{max(run.peak_bytes for run in runs) / 1e9:5.2f} GB  "
            f"{statistics.median(ratios):.2f} times one ({min(ratios):.2f}-{max(ratios):.2f})"
        )


if __name__ == "__main__":
    try:
        main()
    except (CommandError, DatasetError) as error:
        sys.exit(f"bench: error: {error}")
