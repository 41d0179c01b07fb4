"""Add human translations to a memory, export a memory, and show its contents."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.errors import BadFileError, UserError, first_line
from tt.model.inspection.blocks import Facts, Table
from tt.model.storage.files import make_folder, write_whole
from tt.model.storage.listing import exists
from tt.model.storage.paths import folder_of, normalize_path
from tt.model.storage.stores import check_buckets
from tt.model.text.languages import language_and_script
from tt.pipelines.jobs.folders import output_error
from tt.pipelines.memory.checking import check_memory
from tt.pipelines.memory.corrections import read_corrections
from tt.pipelines.memory.entries import (
    HUMAN,
    SCHEMA,
    EntryFile,
    list_entries,
    now,
    write_corrections,
)
from tt.pipelines.memory.new_corrections import NewCorrections
from tt.pipelines.memory.options import ALL, PARQUET, MemoryRequest
from tt.pipelines.memory.tmx import TmxUnit, write_tmx
from tt.pipelines.runners.formatting import megabytes

Report = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Changed:
    """The result of an action that writes translations.

    Attributes:
      written: The number of written translations.
      skipped: The number of rows or entries that cannot be written.
      conflicts: The number of other translations of the same texts, which a later row replaced.
    """

    written: int
    skipped: int
    conflicts: int = 0


def add(request: MemoryRequest) -> Changed:
    """Add the human translations in files that a memory lacks; write all of them or nothing.

    If a text has several translations, the last one wins.

    Raises:
      UserError: A file cannot be read, or the memory cannot be written.
    """
    folder = _open_folder(request)
    check_memory(request.memory)
    created = now()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            new = NewCorrections(
                Path(temporary),
                source_language=request.source_language,
                target_language=request.target_language,
                created=created,
            )
            skipped = read_corrections(request, new.keep)
            conflicts = new.compare(folder)
            batches = new.batches()
            written = _write_corrections(request, batches, folder=folder, created=created)
        except duckdb.Error as error:
            raise UserError(
                f"the translations cannot be sorted in {temporary}: {first_line(error)}. Free some "
                "space, or set TMPDIR to a folder with free space"
            ) from error
    return Changed(written, skipped, conflicts)


def _write_corrections(
    request: MemoryRequest,
    batches: Iterator[pa.RecordBatch],
    *,
    folder: str,
    created: datetime.datetime,
) -> int:
    try:
        return write_corrections(batches, folder=folder, created=created)
    except OSError as error:
        raise UserError(
            f"the memory {request.memory} cannot be written: {error.strerror or error}. Choose "
            "another folder for `memory`"
        ) from error


def export(request: MemoryRequest, report: Report) -> Changed:
    """Export a memory to a file, each translation once.

    Args:
      request: The request.
      report: Receives a line for each damaged file, which is skipped.

    Raises:
      UserError: The memory cannot be read, or the file exists or cannot be written.
    """
    folder = _open_folder(request)
    check_memory(request.memory, must_exist=True)
    output = normalize_path(str(request.output))
    check_buckets([output])
    if exists(output) and not request.overwrite:
        raise UserError(f"{request.output} already exists. Choose another file or set `overwrite`")
    batches = _distinct(folder, request, report)
    parent = folder_of(output)
    try:
        make_folder(parent)
        with write_whole(output, temporary_folder=parent) as file:
            if request.format != PARQUET:
                return Changed(*write_tmx(file, _tmx_units(batches)))
            written = 0
            with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    written += batch.num_rows
    except OSError as error:
        raise output_error(str(request.output), error) from error
    return Changed(written, 0)


def show(request: MemoryRequest, report: Report) -> list[Any]:
    """Return the blocks that describe a memory.

    Args:
      request: The request.
      report: Receives a line for each damaged file, which is skipped.

    Raises:
      UserError: The memory cannot be read.
    """
    folder = _open_folder(request)
    check_memory(request.memory, must_exist=True)
    files = list_entries(folder)
    names = ("kind", "source_language", "target_language", "context")
    counts: collections.Counter[tuple[str, ...]] = collections.Counter()
    for batch in _read(folder, report, columns=names):
        found = pa.Table.from_batches([batch]).group_by(list(names)).aggregate([([], "count_all")])
        for row in found.to_pylist():
            counts[tuple(row[name] for name in names)] += row["count_all"]
    by_kind = collections.Counter[str]()
    for (kind, *_), count in counts.items():
        by_kind[kind] += count
    facts = [
        ("memory", request.memory),
        ("files", len(files)),
        ("size", megabytes(sum(file.size for file in files.values()))),
        ("human translations", f"{by_kind[HUMAN]:,}"),
        ("translations of models", f"{sum(counts.values()) - by_kind[HUMAN]:,}"),
    ]
    rows = [
        [kind, source or None, target or None, context[:16] or None, count]
        for (kind, source, target, context), count in sorted(counts.items())
    ]
    table = Table(["kind", "source", "target", "model and options", "entries"], rows)
    return [Facts(facts), *([table] if rows else [])]


def _open_folder(request: MemoryRequest) -> str:
    check_buckets([request.memory])
    return normalize_path(request.memory).rstrip("/")


def _read(folder: str, report: Report, *, columns: Any = None) -> Iterator[pa.RecordBatch]:
    """Yield the entries of all files, and skip damaged files."""
    for file in list_entries(folder).values():
        try:
            with EntryFile(file.path) as opened:
                yield from opened.batches(columns)
        except BadFileError as error:
            report(f"tt: warning: {error}, so this file is skipped")


def _distinct(folder: str, request: MemoryRequest, report: Report) -> Iterator[pa.RecordBatch]:
    """Yield the requested entries, each key once; the newest human translation wins.

    The keys of all exported entries are kept in memory, about 100 bytes each.
    """
    newest: dict[bytes, int] = {}
    for batch in _read(folder, lambda line: None, columns=("key", "kind", "created")):
        chosen = batch.filter(pc.equal(batch["kind"], HUMAN))
        times = chosen["created"].cast(pa.int64()).to_pylist()
        for key, time in zip(chosen["key"].to_pylist(), times, strict=True):
            newest[key] = max(time, newest.get(key, time))
    seen: set[bytes] = set()
    for batch in _read(folder, report):
        keys, kinds = batch["key"].to_pylist(), batch["kind"].to_pylist()
        times = batch["created"].cast(pa.int64()).to_pylist()
        pairs = zip(
            batch["source_language"].to_pylist(), batch["target_language"].to_pylist(), strict=True
        )
        mask = []
        for key, kind, time, pair in zip(keys, kinds, times, pairs, strict=True):
            is_wanted = (
                key not in seen
                and request.kind in (ALL, kind)
                and newest.get(key, time) == time
                and _is_between(*pair, request=request)
            )
            if is_wanted:
                seen.add(key)
            mask.append(is_wanted)
        yield batch.filter(pa.array(mask, pa.bool_()))


def _is_between(source: str, target: str, *, request: MemoryRequest) -> bool:
    wanted = ((request.source_language, source), (request.target_language, target))
    return all(
        not code or language_and_script(code) == language_and_script(found)
        for code, found in wanted
    )


def _tmx_units(batches: Iterator[pa.RecordBatch]) -> Iterator[TmxUnit]:
    for batch in batches:
        for values in zip(*(batch[name].to_pylist() for name in TmxUnit._fields), strict=True):
            yield TmxUnit(*values)
