"""Read the files of a case as places with values, without everything that differs in each run.

A table (Parquet, and each Delta table) has places for its columns, types, metadata and cells. Other
places are the lines of a text, the keys of a JSON object, and the digest of any other file.

Times, durations, speeds, process IDs and the path of the case differ in each run, so they are
replaced or left out. `SKIPPED` lists the files that are not compared.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from compare.differences import LINE, Results
from compare.running import CASE
from deltalake import DeltaTable

SKIPPED = re.compile(
    r"(^|/)(_tt/(?!manifest\.json)"  # the state of a job, except for its result
    r"|checkpoints/|tensorboard/"  # TensorFlow's formats; `train.jsonl` has the same values
    r"|train\.lock$"
    r"|lake/.*/metadata/"  # Iceberg's files with random names
    r"|entries/"  # entries of a memory, in the order of their times; `tt memory export` reads them
    r"|[^/]*\.(metrics|db|sqlite)$)"
)
_FACTS = "time of all workers|rows per second of a worker|worker hours per million rows"
_SKIPPED_KEYS = re.compile(
    rf"(^|[._])({_FACTS}|output_bytes|seconds|time|created|changed|modified|mtime|started|began"
    r"|versions|machine|host|pid|worker|workers|per_second|speed|run_id)($|[.\[_])"
)
_SKIPPED_COLUMNS = {"host", "process", "thread", "seconds"}  # of the table of workers
_UNITS = r"(ms|s|min|h|d)\b"
_DURATION = rf"\d+(\.\d+)? {_UNITS}( \d+ {_UNITS})*"
_VARIABLE = [
    (re.compile(r"[\d,.]+( \+ [\d,.]+)?( [\w+]+){1,4}/s(?!\w)"), "SPEED"),
    (re.compile(r"\b((left|time) +)(\d+:)?\d+:\d\d"), r"\1DURATION"),
    (re.compile(rf"^({_FACTS}|price[\w ]*?)  +\S+$"), r"\1 N"),
    (re.compile(r"^\S+ +\d+ +\d{9,}( +\d+ +\d+) +[\d.]+$"), r"WORKER\1"),
    (re.compile(r"took \d+% of the time"), "took N% of the time"),
    (re.compile(rf"(?<![\w.]){_DURATION}"), "DURATION"),
    (re.compile(r"\b(process|PID) \d+"), r"\1 N"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
]
_SPEED = re.compile("Target tokens/s")  # the name of a column and of a chart
_PASSING = re.compile(  # messages of libraries, with -v, and the progress of long work
    r"(apache_beam|absl|tensorflow)[\w.]*: |[a-z][\w ]*: [\d,]+ of [\d,]+ "
    r"|[a-z].*(: (\d+:)?\d+:\d\d|, [\d:]+ left|since the start)$"
)
_DECOMPRESS = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".zst": lambda data: _zstd(data)}
_TEXTS = {
    ".code", ".csv", ".err", ".html", ".jsonl", ".md", ".out", ".tmx", ".tsv", ".txt", ".yaml",
}  # fmt: skip


def read_results(root: Path, ran_in: Path | None = None) -> Results:
    """Return the places of all files that a case left in `root/case`.

    Args:
      root: The folder of the case.
      ran_in: The folder in which the case ran, if it was moved.
    """
    folder = root / CASE
    ran_in = ran_in or root
    results: Results = {}
    tables = [log.parent for log in folder.rglob("_delta_log")]
    for table in tables:
        rows = DeltaTable(table).to_pyarrow_table()
        results[f"{table.relative_to(folder)} (Delta)"] = dict(_table_places(_sorted(rows)))
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        is_data = any(table in path.parents for table in tables)
        if path.is_file() and not SKIPPED.search(name) and (not is_data or "_tt/" in name):
            results[without_variables(name, ran_in)] = dict(read_places(path, ran_in))
    return results


def read_places(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the places of a file with their values."""
    data = path.read_bytes()
    stem, suffix = path.name, path.suffix
    if suffix in _DECOMPRESS:
        data = _DECOMPRESS[suffix](data)
        stem, suffix = path.stem, Path(path.stem).suffix
    if suffix == ".parquet":
        file = pq.ParquetFile(pa.BufferReader(data))
        yield from _table_places(file.read())
    elif suffix in (".arrow", ".feather", ".ipc"):
        yield from _table_places(feather.read_table(pa.BufferReader(data)))
    elif suffix == ".json":
        yield from flatten(json.loads(data), root)
    elif stem == "train.jsonl":
        for number, line in enumerate(data.splitlines(), 1):
            for place, value in flatten(json.loads(line), root):
                yield f"record {number}: {place}", value
    elif suffix == ".out" and data.startswith(b"{\n"):
        yield from flatten(json.loads(data), root)
    elif suffix in _TEXTS:
        lines = data.decode("utf-8", "backslashreplace").split("\n")
        lines = [line for line in lines if suffix != ".err" or not _PASSING.match(line)]
        for number, line in enumerate(_without_speeds(lines), 1):
            yield f"{LINE}{number}", without_variables(line, root)
    else:
        yield "bytes", f"{len(data)} with the digest {hashlib.sha256(data).hexdigest()[:16]}"


def flatten(value: Any, root: Path, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the places and values of a JSON value, without times, versions and sizes of files."""
    if _SKIPPED_KEYS.search(place):
        return
    if isinstance(value, dict) and value:
        if _SPEED.match(str(value.get("chart"))):
            return
        if isinstance(value.get("header"), list):
            is_kept = [name not in _SKIPPED_COLUMNS for name in value["header"]]
            rows = [list(itertools.compress(row, is_kept)) for row in value["rows"]]
            value = value | {"rows": rows}
        for key, each in value.items():
            inner = without_variables(str(key), root)
            yield from flatten(each, root, f"{place}.{inner}" if place else inner)
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from flatten(each, root, f"{place}[{number}]")
    else:
        yield place, without_variables(json.dumps(value, ensure_ascii=False), root)


def _without_speeds(lines: list[str]) -> Iterator[str]:
    """Blank the column of speeds in the table of a run, up to the first line that is shorter."""
    start = end = 0
    for line in lines:
        if found := _SPEED.search(line):
            start, end = found.span()
        elif len(line) < end:
            start = end = 0
        yield line[:start] + line[end:]


def without_variables(text: str, root: Path) -> str:
    """Replace times, speeds and paths, which differ in each run.

    >>> without_variables("took 2 min 3 s at 1,204 rows/s in /r/case/out", Path("/r"))
    'took DURATION at SPEED in ROOT/case/out'
    """
    text = text.replace(str(root), "ROOT")
    for pattern, replacement in _VARIABLE:
        text = pattern.sub(replacement, text)
    return text


def _table_places(table: pa.Table) -> Iterator[tuple[str, str]]:
    yield "columns", ", ".join(table.column_names)
    yield "rows", str(table.num_rows)
    for field in table.schema:
        yield f"type of {field.name}", f"{field.type}{'' if field.nullable else ' not null'}"
    for key, value in sorted((table.schema.metadata or {}).items()):
        yield f"metadata {key.decode()}", value.decode("utf-8", "backslashreplace")
    for name, column in zip(table.column_names, table.columns, strict=True):
        for number, value in enumerate(column.to_pylist(), 1):
            yield f"row {number}, {name}", repr(value)


def _sorted(table: pa.Table) -> pa.Table:
    """Sort the rows by their values, because a Delta table has no order."""
    order = sorted(range(table.num_rows), key=lambda i: repr(table.slice(i, 1).to_pylist()))
    return table.take(order)


def _zstd(data: bytes) -> bytes:
    return pa.input_stream(pa.BufferReader(data), compression="zstd").read()
