"""Measure how fast both jobs read and write tables, as a ratio to another version of `tt`.

    make bench-tables COMMIT=...
    python tests/bench/tables.py --before ~/.cache/tt/before/COMMIT/bin/python --pairs 20000

--before is the Python of an environment with the other version. The cases are:

- "read": one thread reads a corpus of generated pairs, as `tt preprocess` reads it.
- "job": `tt translate-batch` with a fake model. It counts and reads a quarter of the pairs, cuts
  them into units, skips all translations, and writes all rows.
- "preprocess": the whole command on a quarter of the pairs as CSV, with one worker.

Both versions run each case in turn, in another order each round. Ratios are computed within a
round, so that other work on the machine has less weight. The exit code is 1 if a case needs more
than 1/0.95 of the time of the other version, except with --no-limits.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from corpus import ROW_GROUP_PAIRS, make_corpus, make_vocabulary
from processes import CommandError, Competitor, Target, cache_folder, judge, run

_HERE = Path(__file__).resolve().parent
_VERSION = 1  # increase it if the same pairs give other files
_LEAST_PAIRS = 20_000
_WARM_UP_PAIRS = 1_000
_LIMIT = 0.95  # the smallest ratio of the speed to the other version's
_ANSWER = re.compile(r"\{.*\}")
_BROKEN_SHARE = 20  # one of so many sources has a line end in "csv, line ends in cells"
_JOBS = (("parquet", "parquet"), ("csv", "parquet"), ("jsonl", "parquet"), ("jsonl", "jsonl"),
         ("parquet", "jsonl"), ("parquet", "csv"))  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """The seconds and the CPU seconds of one run."""

    seconds: float
    cpu: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A case to measure.

    Attributes:
      name: The name in the table.
      rows: The number of rows.
      measure: Runs the case once with a version.
    """

    name: str
    rows: int
    measure: Callable[[Version], Timing]


class Version:
    """A version of `tt`.

    Args:
      name: The name in the results.
      python: The Python of its environment.
      folder: A folder for its outputs.
    """

    def __init__(self, name: str, *, python: Path, folder: Path) -> None:
        self.tt = python.with_name("tt")
        self.folder = folder / name
        self.folder.mkdir()
        command = [python, _HERE / "table_loop.py"]
        self.loop = Competitor(name, command, errors=self.folder / "stderr")

    def ask(self, rows: int, **request: Any) -> Timing:
        """Send a request to the loop, and check the number of rows.

        Raises:
          CommandError: The loop has ended, or has read another number of rows.
        """
        answer = json.loads(self.loop.ask(json.dumps(request), answer=_ANSWER)[0])
        if answer["rows"] != rows:
            raise CommandError(f"{request} has {answer['rows']:,} instead of {rows:,} rows")
        return Timing(seconds=answer["seconds"], cpu=answer["cpu"])


def read_case(name: str, corpus: str, *, rows: int) -> Case:
    """Return the case that reads a corpus."""
    return Case(
        name=f"read {name}", rows=rows, measure=lambda version: version.ask(rows, corpus=corpus)
    )


def job_case(source: Path, file_format: str, output_format: str, *, rows: int) -> Case:
    """Return the case that reads a table and writes it."""

    def measure(version: Version) -> Timing:
        with tempfile.TemporaryDirectory(dir=version.folder) as folder:
            options = {"format": output_format}
            return version.ask(rows, job=str(source), output=f"{folder}/out", options=options)

    return Case(name=f"job {file_format} to {output_format}", rows=rows, measure=measure)


def preprocess_case(corpus: Path, *, rows: int, cache: Path) -> Case:
    """Return the case of the whole command."""

    def measure(version: Version) -> Timing:
        vocabulary = make_vocabulary(cache=cache)
        with tempfile.TemporaryDirectory(dir=version.folder) as folder:
            finished = run(
                [
                    *(version.tt, "preprocess", f"{corpus}:source:target", "--vocab", vocabulary),
                    *("--source-language", "en", "--target-language", "de"),
                    *("--output", f"{folder}/dataset", "--", "--direct_num_workers=1"),
                ],
                cores=1,
                folder=Path(folder),
            )
            manifest = json.loads(Path(folder, "dataset/dataset.json").read_text("utf-8"))
        if manifest["lines_read"] != rows:
            raise CommandError(f"{corpus} has {manifest['lines_read']:,} of {rows:,} rows")
        return Timing(seconds=finished.seconds, cpu=finished.cpu_seconds)

    return Case(name="preprocess csv", rows=rows, measure=measure)


def write_inputs(pairs: int, *, cache: Path) -> Path:
    """Return a folder with the same pairs in each format; write the files if they are missing."""
    folder = cache / f"tables-v{_VERSION}-{pairs}"
    if not folder.exists():
        table = pq.read_table(make_corpus(pairs, cache=cache))
        table = table.add_column(0, "n", pa.array(range(pairs)))
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            new = Path(temporary, "new")
            new.mkdir()
            _write_formats(table, new)
            new.rename(folder)
    return folder


def _write_formats(table: pa.Table, folder: Path) -> None:
    for name, compression in (("snappy", "snappy"), ("plain", "none")):
        path = folder / f"{name}.parquet"
        pq.write_table(table, path, compression=compression, row_group_size=ROW_GROUP_PAIRS)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    for name, is_broken in (("plain", False), ("broken", True)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.column_names)
            for n, source, target in rows:
                if is_broken and n % _BROKEN_SHARE == 0:
                    source = source.replace(" ", "\n", 1)
                writer.writerow([n, source, target])
    with (
        (folder / "plain.tsv").open("w", encoding="utf-8") as tsv,
        (folder / "plain.en").open("w", encoding="utf-8") as sources,
        (folder / "plain.de").open("w", encoding="utf-8") as targets,
        (folder / "plain.jsonl").open("w", encoding="utf-8") as jsonl,
    ):
        for n, source, target in rows:
            tsv.write(f"{source}\t{target}\n")
            sources.write(f"{source}\n")
            targets.write(f"{target}\n")
            row = {"n": n, "source": source, "target": target}
            jsonl.write(f"{json.dumps(row, ensure_ascii=False)}\n")


def make_cases(pairs: int, job_pairs: int, *, cache: Path) -> Iterator[Case]:
    """Yield the cases."""
    folder, jobs = write_inputs(pairs, cache=cache), write_inputs(job_pairs, cache=cache)
    corpora = {
        "parquet, snappy": f"{folder}/snappy.parquet:source:target",
        "parquet, uncompressed": f"{folder}/plain.parquet:source:target",
        "csv": f"{folder}/plain.csv:source:target",
        "csv, line ends in cells": f"{folder}/broken.csv:source:target",
        "tsv": f"{folder}/plain.tsv:0:1",
        "text pair": f"{folder}/plain.en+{folder}/plain.de",
        "jsonl": f"{folder}/plain.jsonl:source:target",
    }
    for name, corpus in corpora.items():
        yield read_case(name, corpus, rows=pairs)
    names = {"parquet": "snappy.parquet", "csv": "plain.csv", "jsonl": "plain.jsonl"}
    for file_format, output_format in _JOBS:
        yield job_case(jobs / names[file_format], file_format, output_format, rows=job_pairs)
    yield preprocess_case(jobs / "plain.csv", rows=job_pairs, cache=cache)


def measure(
    cases: Sequence[Case], versions: Sequence[Version], *, rounds: int
) -> dict[str, list[list[Timing]]]:
    """Return the timings of each version, round by round, for each case."""
    results: dict[str, list[list[Timing]]] = {case.name: [] for case in cases}
    for number in range(rounds):
        for index, case in enumerate(cases):
            turn = (number + index) % len(versions)
            found = {
                version.loop.name: case.measure(version)
                for version in [*versions[turn:], *versions[:turn]]
            }
            results[case.name].append([found[version.loop.name] for version in versions])
            said = ", ".join(f"{name} {timing.seconds:.2f} s" for name, timing in found.items())
            print(f"round {number + 1}/{rounds}  {case.name}: {said}", file=sys.stderr, flush=True)
    return results


def print_table(cases: Sequence[Case], results: dict[str, list[list[Timing]]]) -> list[Target]:
    """Print a line per case, with medians over the rounds; return the limits."""
    print(
        f"{'case':29s} {'rows':>9s} {'rows/s before':>13s} {'now':>9s} {'ratio':>6s} "
        f"{'(range)':>11s} {'CPU':>6s}"
    )
    targets = []
    for case in cases:
        rounds = results[case.name]
        before, now = (statistics.median(each[i].seconds for each in rounds) for i in (0, 1))
        ratios = [each[0].seconds / each[1].seconds for each in rounds]
        ratio = statistics.median(ratios)
        cpu = statistics.median(each[0].cpu / each[1].cpu for each in rounds)
        print(
            f"{case.name:29s} {case.rows:9,d} {case.rows / before:13,.0f} {case.rows / now:9,.0f} "
            f"{ratio:6.2f} {f'{min(ratios):.2f}-{max(ratios):.2f}':>11s} {cpu:6.2f}"
        )
        rule = f"{case.name}, ratio of the speed to before"
        targets.append(Target(rule=rule, value=ratio, bound=_LIMIT))
    return targets


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[""], help="Run cases with these beginnings.")
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="Keep generated files in this folder."
    )
    options = parser.parse_args()
    if options.pairs < _LEAST_PAIRS:
        parser.error(f"--pairs must be {_LEAST_PAIRS:,} or more. Received: {options.pairs:,}")
    return options


def main() -> None:
    """Measure, and print a table and the targets."""
    options = _parse()
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    wanted = tuple(options.only)
    cases, warm_up = (
        [case for case in make_cases(*sizes, cache=cache) if case.name.startswith(wanted)]
        for sizes in ((options.pairs, options.pairs // 4), (_WARM_UP_PAIRS, _WARM_UP_PAIRS))
    )
    pythons = {"before": options.before.absolute(), "now": Path(sys.executable)}
    with (
        tempfile.TemporaryDirectory(prefix=".scratch-", dir=cache) as folder,
        contextlib.ExitStack() as stack,
    ):
        versions = []
        for name, python in pythons.items():
            versions.append(Version(name, python=python, folder=Path(folder)))
            stack.callback(versions[-1].loop.stop)
        measure(warm_up, versions, rounds=1)
        results = measure(cases, versions, rounds=options.rounds)
    judge(print_table(cases, results), has_limits=not options.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
