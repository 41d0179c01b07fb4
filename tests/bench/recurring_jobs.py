"""Measure jobs with repeated sentences, with a translation memory, and on a second day.

    python tests/bench/recurring_jobs.py run train.de.gz --rows 100000

The model is a run folder or a model folder. The table has rows with real sentences: the k-th of
the shuffled distinct lines of the text has a probability proportional to 1 / k (Zipf's law with the
exponent 1). Another table has only distinct lines, to measure the speed without repetitions.

Each job is a command of its own, with greedy search in CTranslate2. Its time excludes the start-up,
which is the time of the same command once it has nothing left to do. Prints one line per job: rows,
rows per second, and the sentences that the model translated.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_TT = Path(sys.executable).with_name("tt")
_FILES = 100
_GROUP_ROWS = 65_536


def zipf_rows(texts: list[str], count: int, *, seed: int) -> list[str]:
    """Draw texts; the k-th text has a probability proportional to 1 / k."""
    weights = itertools.accumulate(1 / rank for rank in range(1, len(texts) + 1))
    return random.Random(seed).choices(texts, cum_weights=list(weights), k=count)


def write(path: Path, texts: list[str], *, first: int = 0) -> None:
    """Write a table with the columns id and text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": range(first, first + len(texts)), "text": texts})
    pq.write_table(table, path, row_group_size=_GROUP_ROWS)


class Jobs:
    """Runs jobs in a folder, and prints a line for each of them."""

    def __init__(self, folder: Path, *, model: str) -> None:
        self._folder = folder
        self._model = model

    def run(self, name: str, source: Path, output: str, *options: str) -> float:
        """Run a job, print its figures, and return its seconds without the start-up."""
        command = [
            _TT, "translate-batch", source, "--text-column", "text", "--model", self._model,
            "--engine", "ctranslate2", "--beam-size", "1", "--output", self._folder / output,
            "--max-failed", "1", *options,
        ]  # fmt: skip
        seconds = self._time(command) - self._time(command)
        path = self._folder / output / "_tt/manifest.json"
        manifest = json.loads(path.read_text())
        rows = manifest["last_run"]["rows"]
        print(
            f"{name}: {manifest['rows']:,} rows, {rows:,} in this run, {seconds:,.1f} s, "
            f"{rows / seconds:,.0f} rows/s, {manifest['distinct_texts']:,} sentences translated",
            flush=True,
        )
        return seconds

    def _time(self, command: list[object]) -> float:
        start = time.monotonic()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return time.monotonic() - start


def run_once(jobs: Jobs, folder: Path, *, texts: list[str], rows: list[str]) -> None:
    """Run the jobs of one day."""
    write(folder / "distinct.parquet", texts[: len(rows) // 20])
    write(folder / "zipf.parquet", rows)
    memory = ("--memory", str(folder / "memory"))
    jobs.run("distinct sentences", folder / "distinct.parquet", "a", "--deduplicate", "unit")
    jobs.run("no memory (empty)", folder / "distinct.parquet", "b", "--deduplicate", "unit",
             "--memory", str(folder / "empty"))  # fmt: skip
    jobs.run("per unit", folder / "zipf.parquet", "c", "--deduplicate", "unit")
    jobs.run("per job", folder / "zipf.parquet", "d", "--deduplicate", "job", *memory)
    jobs.run("full memory", folder / "zipf.parquet", "e", "--deduplicate", "unit", *memory)


def main() -> None:
    """Run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with gzip.open(options.text, "rt", encoding="utf-8") as file:
        texts = list(dict.fromkeys(line.rstrip("\n") for line in file))
    random.Random(7).shuffle(texts)
    rows = zipf_rows(texts, options.rows, seed=7)
    folder = Path(tempfile.mkdtemp())
    jobs = Jobs(folder, model=options.model)
    try:
        run_once(jobs, folder, texts=texts, rows=rows)
        for mode in ("unit", "job"):
            chosen = ("--deduplicate", mode)
            each = len(rows) // _FILES
            new = zipf_rows(texts, each, seed=8)
            for number in range(_FILES):
                some = rows[number * each : (number + 1) * each]
                write(folder / f"{mode}/{number:03d}.parquet", some, first=number * each)
            one = jobs.run("day one, files", folder / mode, f"f-{mode}", *chosen)
            write(folder / mode / "new.parquet", new, first=len(rows))
            two = jobs.run("day two, files", folder / mode, f"f-{mode}", *chosen)
            print(f"day two, files, --deduplicate {mode}: {two / one:.1%} of day one")
            write(folder / "rows.parquet", rows)
            keyed = ("--key", "id", *chosen)
            one = jobs.run("day one, rows", folder / "rows.parquet", f"g-{mode}", *keyed)
            write(folder / "rows.parquet", rows[each:] + new, first=each)
            two = jobs.run("day two, rows", folder / "rows.parquet", f"g-{mode}", *keyed)
            print(f"day two, rows, --deduplicate {mode}: {two / one:.1%} of day one")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
