"""Measure the index of a translation memory: its build, its size, an update and lookups.

    .venv/bin/python tests/bench/memory_index.py                    # 10 million entries
    .venv/bin/python tests/bench/memory_index.py --entries 1000000

Writes a memory with made-up entries to a temporary folder, in files of one million entries as jobs
write them, and builds its index. Then adds 1 % new entries, and looks up 8,192 sentences of which
none, half or all are found. Prints one line per figure; a time for a lookup is the median of 9.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from tt.pipelines.memory import entries
from tt.pipelines.memory.entries import MODEL, SCHEMA, list_entries
from tt.pipelines.memory.index import MemoryIndex

PER_FILE = 1_000_000
BATCH = 8192
ROUNDS = 9


def write_file(folder: str, *, seed: int, rows: int, step: int) -> list[bytes]:
    """Write a file of entries with random keys; return each `step`-th key."""
    generator = np.random.default_rng(seed)
    keys = sorted(key.tobytes() for key in generator.integers(0, 256, (rows, 16), np.uint8))
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary(16)),
            "kind": [MODEL] * rows,
            "source": [f"Sentence number {n} of the table, with some words." for n in range(rows)],
            "target": [f"Satz Nummer {n} der Tabelle, mit ein paar Wörtern." for n in range(rows)],
            "score": generator.normal(-9, 3, rows),
            "is_complete": [True] * rows,
            "tokens": pa.array(generator.integers(4, 40, rows), pa.int32()),
            "flags": pa.array([[]] * rows, pa.list_(pa.string())),
            "others": pa.array([[]] * rows, SCHEMA.field("others").type),
            "source_language": ["en"] * rows,
            "target_language": ["de"] * rows,
            "context": ["0" * 32] * rows,
            "created": pa.array([entries.now()] * rows, SCHEMA.field("created").type),
        },
        schema=SCHEMA,
    )  # fmt: skip
    entries.write_unit(table, folder=folder, job=str(seed))
    return keys[::step]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000_000)
    count = parser.parse_args().entries
    # Another process writes the files, so that its memory does not count.
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        memory = f"{folder}/memory"
        known = []
        for first in range(0, count, PER_FILE):
            rows = min(PER_FILE, count - first)
            step = count // BATCH + 1
            known += pool.submit(write_file, memory, seed=first, rows=rows, step=step).result()
        files = list_entries(memory).values()
        print(f"memory       {sum(f.size for f in files) / 1e6:,.0f} MB in {len(files)} files")

        index = MemoryIndex(memory)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.monotonic()
        assert index.update() == []
        print(f"build        {time.monotonic() - start:.1f} s")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory peak  {peak / 1024:,.0f} MiB ({before / 1024:,.0f} MiB before the build)")
        print(f"index        {Path(index.path).stat().st_size / 1e6:,.0f} MB")
        for label in ("1 % more", "no change"):
            if label == "1 % more":
                pool.submit(write_file, memory, seed=1, rows=count // 100, step=count).result()
            start = time.monotonic()
            index.update()
            print(f"{label:12} {time.monotonic() - start:.2f} s")

        chooser = random.Random(1)
        for share in (0, 0.5, 1):
            found = round(share * BATCH)
            times = []
            for _ in range(ROUNDS):
                keys = chooser.choices(known, k=found)
                keys += [chooser.randbytes(16) for _ in range(BATCH - found)]
                chooser.shuffle(keys)
                start = time.monotonic()
                result = index.find_translations(keys)
                times.append(1000 * (time.monotonic() - start))
                assert len(result) == len(set(keys) & set(known))
            median = statistics.median(times)
            print(f"{share:4.0%} found   {median:.0f} ms ({min(times):.0f} to {max(times):.0f})")


if __name__ == "__main__":
    main()
