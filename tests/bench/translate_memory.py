"""Measure how the memory of `tt translate-batch` grows with the number of rows.

    python tests/bench/translate_memory.py --rows 1000000 --factor 10

The model is a fake with one step, so that only the job is measured: reading, cutting into units,
Beam, writing. Half of the rows are in one row group of one file, and half are in many files. There
are several columns, and two of them are translated. The exit code is 1 if ten times the rows need
more than 1.2 times the memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from processes import CommandError, run

_FILE_ROWS = 5_000
_BATCH_ROWS = 50_000
_BOUND = 1.2
_CORES = 2
_MEGABYTE = 10**6


def write_input(folder: Path, rows: int) -> None:
    """Write half of the rows as one row group of one file, and half as many files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(first: int, count: int) -> pa.Table:
        numbers = range(first, first + count)
        return pa.table(
            {
                "id": pa.array(numbers, pa.int64()),
                "text": [f"sentence {i} of a corpus that has {rows} of them" for i in numbers],
                "title": [f"title {i % 1000}" for i in numbers],
                "body": [f"{i:08d}" * 25 for i in numbers],
                "tags": [[i % 7, i % 11] for i in numbers],
            }
        )

    folder.mkdir()
    half = rows // 2
    pq.write_table(table(0, half), folder / "large.parquet", row_group_size=half)
    for first in range(half, rows, _FILE_ROWS):
        name = f"part={first // _BATCH_ROWS}/{first:09d}.parquet"
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(table(first, min(_FILE_ROWS, rows - first)), folder / name)


def measure(folder: Path, rows: int) -> int:
    """Translate this many rows; return the peak memory of the process tree in bytes."""
    source, output = folder / f"in{rows}", folder / f"out{rows}"
    script = Path(__file__).resolve()
    root = {"PYTHONPATH": str(script.parents[2])}
    command = [sys.executable, script]
    run([*command, "--write", source, "--rows", str(rows)], cores=_CORES, folder=folder)
    finished = run(
        [*command, "--translate", source, "--output", output],
        cores=_CORES,
        folder=folder,
        environment=root,
    )
    if int(finished.output) != rows:
        raise CommandError(f"{rows} rows in, {finished.output.strip()} out")
    print(
        f"{rows:>12,} rows: {finished.peak_bytes / _MEGABYTE:,.0f} MB, {finished.seconds:,.0f} s",
        flush=True,
    )
    return finished.peak_bytes


def main() -> int:
    """Measure, or run one of the steps in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--factor", type=int, default=10)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--translate", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_input(given.write, given.rows)
        return 0
    if given.translate:
        from fake_model import translate

        columns = ("text", "title")
        print(translate(given.translate, given.output, workers=_CORES, text_columns=columns))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        small = measure(Path(folder), given.rows // given.factor)
        large = measure(Path(folder), given.rows)
    ratio = large / small
    print(f"{given.factor} times the rows: {ratio:.2f} times the memory (at most {_BOUND})")
    return int(ratio > _BOUND)


if __name__ == "__main__":
    sys.exit(main())
