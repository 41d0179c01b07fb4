"""All of a translated folder, finished or under way."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.engines.translator import Work
from model.errors import BadFileError, UserError
from model.folders.long_work import Work as LongWork
from model.folders.long_work import long_work
from pipelines.storage.parquet import SUFFIX
from pipelines.summaries.texts import ColumnLook, ColumnSummary
from pipelines.tables.reading import OpenTable
from pipelines.translate.job_folder import (
    MANIFEST_PATH,
    PLAN_PATH,
    find_json,
    read_json,
    statistics_path,
)
from pipelines.translate.manifest import UnitStatistics, read_statistics
from pipelines.translate.plan import planned_outputs

LOOKED_AT = 100_000  # rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerTime:
    """What a worker, a thread of a process, did."""

    host: str
    process: int
    thread: int
    units: int
    rows: int
    seconds: float  # reading and writing included


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skipped:
    """Rows that the job left out."""

    what: str  # a file, or the output file of a unit
    rows: int | None  # None where they are unknown
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedSummary:
    """What lies in a translated folder; of a job under way, what is finished of it."""

    folder: str
    is_finished: bool
    has_failed: bool  # whether more rows failed or were skipped than may
    languages: dict[str, str]  # of source and target, if known
    options: dict[str, Any]
    decoding: dict[str, Any]
    engine: dict[str, Any]
    versions: dict[str, str]
    model_fingerprint: str
    files: int  # of the input
    planned_rows: int
    rows: int  # of finished units
    failed_rows: int
    skipped: list[Skipped]
    units: int  # finished
    planned_units: int
    output_bytes: int
    texts: int  # sentences that had to be translated, each occurrence counted
    distinct_texts: int  # of a unit, those that the model translated
    source_characters: int
    work: Work
    padding: float  # share of the source positions of the model's batches
    seconds: float  # of all workers together
    workers: list[WorkerTime]  # that which worked longest first
    looked_at: int  # rows
    columns: list[ColumnSummary]


def summarize_translated(
    folder: str | Path, *, examples: int = 3, rows: int = LOOKED_AT
) -> TranslatedSummary:
    """Returns what lies in a translated folder on this machine.

    Args:
      folder: The folder.
      examples: Texts of each status and flag, and of each kind of outlier.
      rows: Rows whose texts are looked at, the first of all.

    Raises:
      UserError: It is no translated folder, or something in it is damaged.
    """
    path = Path(folder)
    if not (path / PLAN_PATH).is_file():
        raise UserError(f"{folder} is not the output of `tt translate-batch`: name that")
    plan = read_json(str(path / PLAN_PATH))
    has_manifest = (path / MANIFEST_PATH).is_file()
    manifest = find_json(str(path / MANIFEST_PATH)) if has_manifest else None
    outputs = planned_outputs(plan)
    units = [
        unit
        for output in outputs
        if (unit := read_statistics(output=str(path), path=statistics_path(output)))
    ]
    names = plan["options"]["text_columns"]
    looks = [
        ColumnLook(name, prefix=f"{name}_" if len(names) > 1 else "", examples=examples)
        for name in names
    ]
    there = sum(unit.rows for unit in units if not unit.skipped)
    with long_work("looking at rows", total=min(rows, there), unit="rows") as looking:
        looked_at = _look(path, units, looks, rows=rows, work=looking)
    work = sum((unit.work for unit in units), Work())
    return TranslatedSummary(
        folder=str(folder),
        is_finished=manifest is not None,
        has_failed=bool((manifest or {}).get("has_failed", False)),
        languages=dict(plan.get("languages", {})),
        options=plan["options"],
        decoding=dict(plan.get("decoding", {})),
        engine=dict(plan.get("engine", {})),
        versions=dict(plan["versions"]),
        model_fingerprint=str(plan.get("model_fingerprint", "")),
        files=len(plan["input"]),
        planned_rows=sum(file["rows"] for file in plan["input"].values()),
        rows=sum(unit.rows for unit in units),
        failed_rows=sum(unit.failed_rows for unit in units),
        skipped=_skipped(plan, units),
        units=len(units),
        planned_units=len(outputs),
        output_bytes=sum(unit.output_bytes for unit in units),
        texts=sum(unit.texts for unit in units),
        distinct_texts=sum(unit.distinct_texts for unit in units),
        source_characters=sum(unit.source_characters for unit in units),
        work=work,
        padding=work.padding,
        seconds=sum(unit.seconds for unit in units),
        workers=_workers(units),
        looked_at=looked_at,
        columns=[
            look.summarize(
                rows_by_status=_add_up(unit.rows_by_status.get(name, {}) for unit in units),
                rows_by_flag=_add_up(unit.rows_by_flag.get(name, {}) for unit in units),
            )
            for name, look in zip(names, looks, strict=True)
        ],
    )


def _look(
    folder: Path,
    units: Sequence[UnitStatistics],
    looks: Sequence[ColumnLook],
    *,
    rows: int,
    work: LongWork,
) -> int:
    """Shows rows to each look, and returns how many."""
    seen: int = 0
    for unit in units:
        if unit.skipped:
            continue
        first = 0
        for table in _tables(folder / unit.output_path):
            part = table.slice(0, rows - seen)
            for look in looks:
                look.add(part, file=unit.output_path, first_row=first)
            first += int(part.num_rows)
            seen += int(part.num_rows)
            work.add(int(part.num_rows))
            if seen >= rows:
                return seen
    return seen


def _tables(path: Path) -> Iterator[pa.Table]:
    try:
        if path.name.endswith(SUFFIX):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield pa.Table.from_batches([batch])
            return
        with OpenTable(str(path)) as opened:
            for batch in opened.batches():
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError, BadFileError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} cannot be read: {reason}. The same `tt translate-batch` makes it again"
        ) from error


def _skipped(plan: Mapping[str, Any], units: Sequence[UnitStatistics]) -> list[Skipped]:
    files = [
        Skipped(what=name, rows=None, reason=str(reason))
        for name, reason in plan["bad_files"].items()
    ]
    return files + [
        Skipped(what=unit.output_path, rows=unit.rows, reason=unit.skipped)
        for unit in units
        if unit.skipped
    ]


def _workers(units: Sequence[UnitStatistics]) -> list[WorkerTime]:
    found: dict[tuple[str, int, int], list[UnitStatistics]] = collections.defaultdict(list)
    for unit in units:
        worker = unit.worker
        key = worker.get("host", ""), worker.get("process", 0), worker.get("thread", 0)
        found[key].append(unit)
    times = [
        WorkerTime(
            host=host,
            process=process,
            thread=thread,
            units=len(own),
            rows=sum(unit.rows for unit in own),
            seconds=round(sum(unit.seconds for unit in own), 3),
        )
        for (host, process, thread), own in found.items()
    ]
    return sorted(times, key=lambda each: (-each.seconds, each.host, each.process, each.thread))


def _add_up(counts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for each in counts:
        total.update(each)
    return dict(total)
