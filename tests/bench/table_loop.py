"""Read corpora and run translation jobs on request; see `tables.py`.

Each line of the input is a JSON object: {"corpus": NAME}, or {"job": INPUT, "output": FOLDER,
"options": {...}}. The answer contains the rows, the seconds, and the CPU seconds of all threads.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from fake_model import translate

from tt.pipelines.preprocess.corpora import open_corpora
from tt.pipelines.preprocess.naming import CorpusOptions
from tt.pipelines.preprocess.units import MAX_UNIT_BYTES, MAX_UNIT_PAIRS

_RANGE_BYTES = 64 << 20  # bytes of a unit of a file that is cut into ranges


def read_corpus(name: str) -> int:
    """Read a corpus as the units of a job read it; return the number of rows."""
    [source] = open_corpora([name], CorpusOptions(source_language="en", target_language="de"))
    return sum(table.num_rows for table in _read(source))


def _read(source: Any) -> Iterator[pa.Table]:
    sizes = source.sizes(max_pairs=MAX_UNIT_PAIRS, max_bytes=MAX_UNIT_BYTES)
    first_row = 0
    for rows in sizes or ():
        yield from source.read_rows(first_row=first_row, rows=rows)
        first_row += rows
    if sizes is not None:
        return
    ranges = []
    if hasattr(source, "find_ranges") and source.may_have_ranges():
        ranges = source.find_ranges(max_pairs=MAX_UNIT_PAIRS, max_bytes=_RANGE_BYTES)
    for some in ranges:
        yield from source.read_ranges(some)
    if not ranges:
        yield from source.read_all()


def run_job(source: str, output: str, options: dict[str, Any]) -> int:
    """Run a job that skips the translation of all rows; return the number of rows."""
    return translate(
        source, output, text_columns=("source",), where="length(source) < 0", **options
    )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        began, cpu_began = time.perf_counter(), _cpu_seconds()
        if "corpus" in request:
            rows = read_corpus(request["corpus"])
        else:
            rows = run_job(request["job"], request["output"], request["options"])
        seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
        print(json.dumps({"rows": rows, "seconds": seconds, "cpu": cpu_seconds}), flush=True)


if __name__ == "__main__":
    main()
