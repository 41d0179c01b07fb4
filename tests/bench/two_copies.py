"""Measure how much faster two translations on two cores are than one on one core.

    python tests/bench/two_copies.py run test.en.gz train.en.gz --rows 16000 --beam-size 1 4
    python tests/bench/two_copies.py run train.en.gz --share

The job `tt translate-batch` runs alternately with one copy on one core, with two threads of a
process that share the model, and with two processes with one model each, in another order each
round. Ratios are computed within a round, so that other work on the machine has less weight. Times
exclude the start, which is the time of the same command with --limit 1 in the same round. Memory is
the peak of all processes together. CPU seconds show whether two copies do more work or wait for
each other.

With --share, no wall-clock time is measured. One thread translates, and the benchmark counts the
CPU time of Python's thread, which may hold the interpreter's lock, and of TensorFlow's threads,
which never hold it. By Amdahl's law, the share of Python's thread limits the gain of threads.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from processes import CommandError, Finished, available_cores, run
from translate import write_table

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

_TT = Path(sys.executable).with_name("tt")
_UNITS = 16  # in the table, so that both copies have equally many
_BEAM = ("--", "--direct_num_workers=2", "--direct_running_mode=multi_processing")


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to run the job."""

    name: str
    cores: int
    arguments: Sequence[str]


CASES = (
    Case("one", 1, ("--model-copies", "1")),
    Case("two threads", 2, ("--model-copies", "2")),
    Case("two processes", 2, _BEAM),
)


def translate(
    case: Case, table: Path, *, options: argparse.Namespace, beam_size: int
) -> tuple[Finished, Finished]:
    """Run the job once with one row and once with all rows.

    Raises:
      CommandError: The job fails.
    """

    def call(*limit: str) -> Finished:
        with tempfile.TemporaryDirectory(dir=table.parent) as output:
            return run(
                [
                    *(_TT, "translate-batch", table, "--output", output, "--text-column", "text"),
                    *("--model", options.model, "--beam-size", str(beam_size)),
                    *("--unit-rows", str(-(-options.rows // _UNITS)), *limit, *case.arguments),
                ],
                cores=case.cores,
                folder=table.parent,
                environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
            )

    return call("--limit", "1"), call()


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a case, without the start except in its memory."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    times_one: float = 1.0


def measure(table: Path, *, options: argparse.Namespace, beam_size: int) -> None:
    """Print each round, and the medians."""
    found: dict[str, list[Run]] = {case.name: [] for case in CASES}
    for number in range(options.rounds):
        runs = {}
        shift = number % len(CASES)
        for case in CASES[shift:] + CASES[:shift]:
            start_up, whole = translate(case, table, options=options, beam_size=beam_size)
            runs[case.name] = Run(
                seconds=whole.seconds - start_up.seconds,
                cpu_seconds=whole.cpu_seconds - start_up.cpu_seconds,
                peak_bytes=whole.peak_bytes,
            )
        for name, each in runs.items():
            ratio = runs["one"].seconds / each.seconds
            found[name].append(dataclasses.replace(each, times_one=ratio))
            print(f"round {number + 1}: {name} {each.seconds:.1f} s", file=sys.stderr, flush=True)
    print(f"beam {beam_size}, {options.rows:,} rows")
    for name, rounds in found.items():
        ratios = [each.times_one for each in rounds]
        print(
            f"  {name:13s} {statistics.median(each.seconds for each in rounds):7.1f} s "
            f"{statistics.median(each.cpu_seconds for each in rounds):7.1f} s of CPU "
            f"{max(each.peak_bytes for each in rounds) / 2**30:5.2f} GB  "
            f"{statistics.median(ratios):.2f} times one ({min(ratios):.2f}-{max(ratios):.2f})"
        )


def count_share(*, model: str, texts: Sequence[str], rows: int, beam_size: int) -> dict[str, float]:
    """Count the CPU seconds of one translating thread, and of all threads of the process."""
    from tt.model.engines.loading import load_translator
    from tt.model.engines.translator import Engine
    from tt.model.transformer.search_options import Decoding
    from tt.pipelines.reports.evaluate import read_lines
    from tt.pipelines.texts.options import TextOptions
    from tt.pipelines.texts.translating import translate_texts

    decoding = Decoding(beam_size=beam_size)
    translator = load_translator(model, decoding=decoding, engine=Engine(), threads=1)
    cells: list[bytes | None] = [line.encode() for text in texts for line in read_lines(text)]

    def call(some: list[bytes | None]) -> None:
        translate_texts(some, translator=translator, options=TextOptions())

    call(cells[:8])  # traces
    thread, process = time.thread_time(), time.process_time()
    for first in range(0, rows, 1000):
        call(cells[first : min(first + 1000, rows)])
    python, all_threads = time.thread_time() - thread, time.process_time() - process
    share = python / all_threads
    return {
        "python_seconds": python,
        "process_seconds": all_threads,
        "python_share": share,
        "most_of_two_threads": 2 / (1 + share),
    }


def main() -> None:
    """Measure or count for each beam size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument(
        "texts", nargs="+", metavar="text", help="Read one sentence per line (text or .gz)."
    )
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam-size", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--share", action="store_true", help="Measure the CPU share of Python.")
    options = parser.parse_args()
    options.model = str(Path(options.model).resolve())
    options.texts = [str(Path(text).resolve()) for text in options.texts]
    if options.share:
        for beam_size in options.beam_size:
            share = count_share(
                model=options.model, texts=options.texts, rows=options.rows, beam_size=beam_size
            )
            print(json.dumps({"beam_size": beam_size, **share}))
        return
    if len(available_cores()) < 2:
        parser.error("the benchmark needs two cores")
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        table = Path(folder, "rows.parquet")
        write_table(
            table, model=options.model, texts=options.texts, rows=options.rows, is_lowercase=False
        )
        for beam_size in options.beam_size:
            measure(table, options=options, beam_size=beam_size)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
