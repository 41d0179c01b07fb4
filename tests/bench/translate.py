"""Measure `tt translate-batch` against only the decoder: same model, sentences and cores.

    python tests/bench/translate.py run train.en.gz other.en.gz
    python tests/bench/translate.py run train.en.gz --rows 20000 --engine ctranslate2 --threads 2

The model is a run folder or an exported model folder. The table has the lines of the texts in
random order, and thus of all lengths that are not split, 2% nulls, 1% empty texts, and columns of
ints, nested lists and timestamps. The job reads it, tokenizes, translates and writes all columns,
with its own batches and one model copy per core. "Bare" is `engine_alone.py` with the sentences of
the table and as many copies. It translates equal sentences every time, but the job translates them
once per unit; the numbers of target tokens show this difference.

Job and bare run alternately, each as a new process pinned to the same cores, in another order each
round. Ratios are computed within a round, so that other work on the machine has less weight. Both
times exclude the start, which loads the model and translates one sentence to trace it. For the job,
the start is the time of the same command with --limit 1 in the same round. Nothing else is
excluded.

The exit code is 1 if a limit is missed, except with --no-limits.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from processes import CommandError, Finished, Target, available_cores, judge, run

_HERE = Path(__file__).resolve().parent
_TT = Path(sys.executable).with_name("tt")
_ENGINES = ("tensorflow", "ctranslate2")
_LIMIT = 0.90  # the smallest ratio of the job's speed to bare's
_TRANSLATED = ("ok", "incomplete")  # a model may reach the length limit; bare has the same limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """One run of the job and of bare.

    Attributes:
      command_seconds: The time of the whole job.
      start_up_seconds: The time of the same command with one row.
      manifest: The job's manifest.
      bare: The output of bare.
    """

    command_seconds: float
    start_up_seconds: float
    manifest: dict[str, Any]
    bare: dict[str, Any]

    @property
    def job_seconds(self) -> float:
        """The time of the job without the start."""
        return self.command_seconds - self.start_up_seconds

    @property
    def ratio(self) -> float:
        """The ratio of the job's speed to bare's."""
        return float(self.bare["seconds"]) / self.job_seconds


class Bench:
    """A runner of the job and bare on one table.

    Args:
      options: The parsed options.
      folder: A folder for the table and all outputs.

    Raises:
      CommandError: The table cannot be made.
    """

    def __init__(self, options: argparse.Namespace, *, folder: Path) -> None:
        self._options = options
        self._folder = folder
        lowercase = ["--lowercase"] if options.lowercase else []
        self.content = self._run(
            [
                *(sys.executable, _HERE / "text_table.py", options.model, *options.texts),
                *("--output", folder, "--rows", str(options.rows), *lowercase),
            ]
        ).json()

    def bare(self, engine: str, *arguments: str) -> dict[str, Any]:
        """Run only the engine."""
        return self._run(
            [
                *(sys.executable, _HERE / "engine_alone.py", self._options.model, "sentences.txt"),
                *("--engine", engine, "--beam-size", str(self._options.beam_size)),
                *("--copies", str(self._options.threads), *arguments),
            ]
        ).json()

    def measure(self, engine: str, *, size: str, bare_first: bool) -> Round:
        """Run the job and bare once.

        Raises:
          CommandError: The job did not translate all rows, or it took no longer than its start.
        """
        bare = self.bare(engine, "--size", size) if bare_first else {}
        start_up, _ = self._translate(engine, arguments=["--limit", "1"])
        command, manifest = self._translate(engine)
        self._check(manifest)
        if command <= start_up:
            raise CommandError(
                f"the job took {command:.1f} s, but {start_up:.1f} s with one row. Increase "
                "--rows, or wait until the machine has less other work"
            )
        return Round(
            command_seconds=command, start_up_seconds=start_up, manifest=manifest,
            bare=bare or self.bare(engine, "--size", size),
        )  # fmt: skip

    def _translate(
        self, engine: str, arguments: Sequence[str] = ()
    ) -> tuple[float, dict[str, Any]]:
        """Run the job; return its seconds and its manifest."""
        with tempfile.TemporaryDirectory(dir=self._folder) as output:
            finished = self._run(
                [
                    *(_TT, "translate-batch", self._folder / "rows.parquet", "--output", output),
                    *("--text-column", "text", "--model", self._options.model),
                    *("--engine", engine, "--beam-size", str(self._options.beam_size)),
                    *arguments,
                ]
            )
            return finished.seconds, json.loads(Path(output, "_tt/manifest.json").read_text())

    def _check(self, manifest: dict[str, Any]) -> None:
        content, rows = self.content, self._options.rows
        by_status = manifest["rows_by_status"]["text"]
        found = {
            "translated": sum(by_status.get(status, 0) for status in _TRANSLATED),
            "null": by_status.get("null", 0),
            "empty": by_status.get("empty", 0),
        }
        expected = {
            "translated": rows - content["nulls"] - content["empties"],
            "null": content["nulls"],
            "empty": content["empties"],
        }
        if manifest["rows_out"] != rows or found != expected:
            raise CommandError(
                f"the job wrote {manifest['rows_out']:,} rows, {found}; "
                f"expected {rows:,} rows, {expected}"
            )

    def _run(self, command: Sequence[str | Path]) -> Finished:
        variables = {"TF_CPP_MIN_LOG_LEVEL": "3"}
        cores = self._options.threads
        return run(command, cores=cores, folder=self._folder, environment=variables)


def print_and_judge(engine: str, rounds: Sequence[Round], *, rows: int, size: str) -> Target:
    """Print medians over the rounds, and return the limit."""

    def median(value: Callable[[Round], float]) -> float:
        return statistics.median(map(value, rounds))

    last = rounds[-1]
    job, bare = (
        median(lambda each: each.job_seconds), median(lambda each: each.bare["seconds"])
    )  # fmt: skip
    ratios = [each.ratio for each in rounds]
    print(
        f"{engine}\n"
        f"  job   {job:8.1f} s without the start of "
        f"{median(lambda each: each.start_up_seconds):.1f} s: {rows / job:,.0f} rows/s; "
        f"{last.manifest['distinct_texts']:,} texts distinct within their unit, "
        f"{last.manifest['work']['target_tokens']:,} target tokens\n"
        f"  bare  {bare:8.1f} s in batches of {size}: {last.bare['sentences'] / bare:,.0f} "
        f"sentences/s; {last.bare['target_tokens']:,} target tokens\n"
        f"  ratio of job to bare in speed {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f}-{max(ratios):.2f} in {len(rounds)} round(s))",
        flush=True,
    )
    rule = f"{engine}, ratio of the job's speed to the decoder's"
    return Target(rule=rule, value=statistics.median(ratios), bound=_LIMIT)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument(
        "texts", nargs="+", metavar="text", help="Read one sentence per line (text or .gz)."
    )
    parser.add_argument("--lowercase", action="store_true", help="Convert texts to lower case.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--engine", nargs="+", choices=_ENGINES, default=list(_ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads",
        type=int,
        default=len(available_cores()),
        help="Give the job and bare this many threads and cores. Default: all.",
    )
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    options = parser.parse_args()
    if not 1 <= options.threads <= len(available_cores()):
        most = len(available_cores())
        parser.error(f"--threads must be 1 to {most}. Received: {options.threads}")
    for path in [options.model, *options.texts]:
        if not Path(path).exists():
            parser.error(f"{path} does not exist")
    options.model = str(Path(options.model).resolve())
    options.texts = [str(Path(text).resolve()) for text in options.texts]
    return options


def main() -> None:
    """Measure the engines and report whether the limits are met."""
    options = _parse()
    judged = []
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        bench = Bench(options, folder=Path(folder))
        print(
            f"{options.rows:,} rows, {bench.content}; beam {options.beam_size}, "
            f"{options.threads} core(s)",
            flush=True,
        )
        for engine in options.engine:
            rates: dict[str, float] = bench.bare(engine)["rates"]
            size = max(rates, key=rates.__getitem__)
            rounds = []
            for number in range(options.rounds):
                rounds.append(bench.measure(engine, size=size, bare_first=number % 2 == 1))
                done = f"{engine}  round {number + 1}/{options.rounds}: {rounds[-1].ratio:.2f}"
                print(done, file=sys.stderr, flush=True)
            judged.append(print_and_judge(engine, rounds, rows=options.rows, size=size))
    judge(judged, has_limits=not options.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
