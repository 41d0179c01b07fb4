"""Measure how long it takes to read a table before its translation, by format.

    python tests/bench/table_formats.py
    python tests/bench/table_formats.py --rows 10000000 --formats csv

Each file has the same rows: a number, a title of 4 words and a body of 20, some with commas,
quotation marks and line breaks. A separate process examines the file, which every command does, and
then cuts it into units, which a command with unfinished units does. Nothing is translated.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMATS = ("parquet", "csv", "csv.gz", "csv.zst", "tsv", "jsonl", "jsonl.gz", "jsonl.zst", "arrow")
NAMES = ("id", "title", "body")
UNIT_ROWS = 8192
MEGABYTE = 10**6


def rows_of(count: int) -> Iterator[tuple[int, str, str]]:
    """Yield the same rows each time."""
    chooser = random.Random(1)
    words = [
        "".join(chooser.choices("abcdefghijklmnopqrstuvwxyz", k=n % 9 + 2)) for n in range(5000)
    ]
    signs = [" ", " ", " ", " ", " ", ", ", ' "', "\n"]
    for number in range(count):
        title = " ".join(chooser.choices(words, k=4))
        body = "".join(f"{word}{sign}" for word, sign in zip(
            chooser.choices(words, k=20), chooser.choices(signs, k=20), strict=True))  # fmt: skip
        yield number, title, body


def write(path: Path, count: int) -> None:
    """Write a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = path.name.partition(".")[2]
    if kind in ("parquet", "arrow"):
        table = pa.table([list(column) for column in zip(*rows_of(count), strict=True)], NAMES)
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=UNIT_ROWS)
        return
    compression = {"gz": "gzip", "zst": "zstd"}.get(kind.rpartition(".")[2])
    with pa.output_stream(str(path), compression=compression) as file:
        text = _Lines(file)
        if kind.startswith("jsonl"):
            for row in rows_of(count):
                text.write(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n")
        elif kind == "tsv":
            text.write("\t".join(NAMES) + "\n")
            for number, title, body in rows_of(count):
                line = body.replace("\n", " ")
                text.write(f"{number}\t{title}\t{line}\n")
        else:
            writer = csv.writer(text)
            writer.writerow(NAMES)
            writer.writerows(rows_of(count))


class _Lines:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(line.encode())


def measure(path: Path, output: Path) -> dict[str, float]:
    """Examine a file and cut it into units."""
    from tt.pipelines.storage.paths import file_systems
    from tt.pipelines.tables.file_formats import has_random_access
    from tt.pipelines.tables.reading import scan_file
    from tt.pipelines.translate.options import TranslateOptions
    from tt.pipelines.translate.plan import InputFile
    from tt.pipelines.translate.table import TableOptions
    from tt.pipelines.translate.unit_records import UnitOptions
    from tt.pipelines.translate.unit_rows import cut_file

    file_systems()  # imports Beam
    start = time.process_time()
    found = scan_file(str(path))
    assert not isinstance(found, Exception), found
    looked = time.process_time()
    file = InputFile(
        path=str(path), relative_path=path.name, size=found.size, rows=found.rows,
        footer_checksum=found.checksum,
        schema=None if has_random_access(str(path)) else found.schema,
    )  # fmt: skip
    options = UnitOptions(
        output=str(output), table=TableOptions(fields=("body",)), run_id="1", plan_digest="",
        job=TranslateOptions(input=("in",), output=str(output), unit_rows=UNIT_ROWS),
    )  # fmt: skip
    units = cut_file(file, options=options)
    cut = time.process_time()
    rows_bytes = sum(each.stat().st_size for each in output.rglob("*.arrow"))
    return {
        "rows": found.rows, "units": sum(map(len, units)), "megabytes": found.size / MEGABYTE,
        "look_seconds": looked - start, "cut_seconds": cut - looked,
        "rows_megabytes": rows_bytes / MEGABYTE, "memory_megabytes": _peak(),
    }  # fmt: skip


def _peak() -> float:
    """Return the peak memory of this process. `resource` would include the peak of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="*", default=FORMATS)
    parser.add_argument("--measure", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    print("| Format | MB | examined, CPU s | cut, CPU s | stored units, MB | peak memory, MB |")
    print("|---|---|---|---|---|---|")
    for kind in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"table.{kind}"
            write(path, options.rows)
            command = [sys.executable, __file__, "--measure", str(path), f"{folder}/out"]
            ended = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(ended.stdout)
        assert found["rows"] == options.rows
        print(
            f"| {kind} | {found['megabytes']:,.0f} | {found['look_seconds']:.2f} | "
            f"{found['cut_seconds']:.2f} | {found['rows_megabytes']:,.0f} | "
            f"{found['memory_megabytes']:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
