"""Measure how much longer a job takes with tables of Delta Lake or Iceberg than with Parquet files.

    python tests/bench/lakehouse.py --rows 100000 --rounds 3

Each job plans its units, reads all rows, skips all translations, adds the columns, writes all rows,
and commits them. For comparison, other jobs translate copies of the tables' data files from a
folder into a folder. The jobs run in this process, one after the other, in another order each
round. Ratios are computed within a round, so that other work on the machine has less weight. The
exit code is 1 if the median of the ratios exceeds 1.05.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from fake_model import translate
from pyiceberg.catalog import load_catalog

_LIMIT = 1.05
_FILES = 8
_KINDS = ("delta", "iceberg")
_WORDS = 24  # per row


def rows_of(count: int, *, seed: int) -> pa.Table:
    """Return a table with a number and a text of random words."""
    chooser = random.Random(seed)
    words = ["".join(chooser.choices("abcdefghijklmnop", k=n % 9 + 2)) for n in range(5000)]
    texts = [" ".join(chooser.choices(words, k=_WORDS)) for _ in range(count)]
    return pa.table({"id": range(seed * count, (seed + 1) * count), "text": texts})


def write_inputs(folder: Path, *, rows: int) -> dict[str, str]:
    """Write a Delta table, an Iceberg table, and folders with copies of their data files.

    Returns:
      The input of each job.
    """
    catalog = load_catalog("lake")
    catalog.create_namespace("ns")
    for seed in range(_FILES):
        table = rows_of(rows // _FILES, seed=seed)
        write_deltalake(folder / "delta", table, mode="append")
        iceberg = catalog.create_table_if_not_exists("ns.iceberg", schema=table.schema)
        iceberg.append(table)
    files = {
        "delta": DeltaTable(folder / "delta").file_uris(),
        "iceberg": [task.file.file_path for task in iceberg.scan().plan_files()],
    }
    for kind, paths in files.items():
        (folder / f"files-of-{kind}").mkdir()
        for path in paths:
            shutil.copy(path, folder / f"files-of-{kind}")
    return {
        "delta": f"delta:{folder}/delta",
        "iceberg": "iceberg:lake.ns.iceberg",
        **{f"files of {kind}": str(folder / f"files-of-{kind}") for kind in files},
    }


def run_job(source: str, output: str) -> float:
    """Run a job that translates no row; return its time in seconds."""
    began = time.monotonic()
    translate(source, output, text_columns=("text",), where="id < 0")
    return time.monotonic() - began


def main() -> None:
    """Print the time of each job, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chooser = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PYICEBERG_CATALOG__LAKE__URI"] = f"sqlite:///{folder}/catalog.db"
        os.environ["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] = str(folder / "lake")
        (folder / "lake").mkdir()
        inputs = write_inputs(folder, rows=options.rows)
        ratios: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        for number in range(options.rounds + 1):  # the first round warms the caches
            seconds = {}
            for job in chooser.sample(list(inputs), len(inputs)):
                output = str(folder / "out")
                if job in _KINDS:
                    address = {"delta": f"delta:{output}", "iceberg": f"iceberg:lake.ns.n{number}"}
                    output = address[job]
                seconds[job] = run_job(inputs[job], output)
                shutil.rmtree(folder / "out", ignore_errors=True)
                shutil.rmtree(folder / f"lake/ns/n{number}", ignore_errors=True)
            line = ", ".join(f"{job} {seconds[job]:.2f} s" for job in inputs)
            print(f"round {number}: {line}", flush=True)
            if number:
                for kind in _KINDS:
                    ratios[kind].append(seconds[kind] / seconds[f"files of {kind}"])
    medians = {kind: statistics.median(ratios[kind]) for kind in _KINDS}
    for kind, median in medians.items():
        least, most = min(ratios[kind]), max(ratios[kind])
        print(f"{kind}: {median:.3f} of the time for its files ({least:.3f} to {most:.3f})")
    sys.exit(max(medians.values()) > _LIMIT)


if __name__ == "__main__":
    main()
