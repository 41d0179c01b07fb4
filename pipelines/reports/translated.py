"""A translated folder, finished or in progress."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.engines.translator import Work
from model.errors import BadFileError, UserError
from model.folders.long_work import long_work
from model.inspection.blocks import Facts, Section, options, table
from pipelines.reports.texts import ColumnLook, ColumnSummary, column_blocks
from pipelines.runners.formatting import megabytes
from pipelines.storage.listing import list_folder
from pipelines.tables.finding import PARQUET_SUFFIX
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
_SUMMED = (  # fields of `UnitStatistics`
    "rows", "failed_rows", "output_bytes", "texts", "distinct_texts", "source_characters",
    "seconds",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedSummary:
    """The content of a translated folder; of a job in progress, its finished units."""

    folder: str
    is_finished: bool
    has_failed: bool  # whether more rows failed or were skipped than the job allows
    plan: dict[str, Any]  # the content of its plan.json, without the list of the input
    files: int  # of the input
    planned_rows: int
    planned_units: int
    units: int  # finished
    totals: dict[str, Any]  # sums of `_SUMMED` over finished units
    # Files, or output files of units, that the job left out, with their rows and the reason.
    skipped: list[dict[str, Any]]
    work: Work
    # Host, process, thread, units, rows and seconds of each, the one that worked longest first.
    workers: list[dict[str, Any]]
    looked_at: int  # rows
    columns: list[ColumnSummary]


def summarize_translated(
    folder: str | Path, *, examples: int = 3, rows: int = LOOKED_AT
) -> TranslatedSummary:
    """Summarize a translated folder on this machine.

    Args:
      folder: The folder.
      examples: Texts of each status and flag, and of each kind of outlier.
      rows: The number of rows whose texts to look at, from the first on.

    Raises:
      UserError: The folder is no translated folder, or a part of it is damaged.
    """
    path = Path(folder)
    if not (path / PLAN_PATH).is_file():
        raise UserError(f"{folder} is not the output of `tt translate-batch`: name such a folder")
    plan = read_json(str(path / PLAN_PATH))
    has_manifest = (path / MANIFEST_PATH).is_file()
    manifest = find_json(str(path / MANIFEST_PATH)) if has_manifest else None
    outputs = planned_outputs(
        plan, [name.removeprefix(f"{path}/") for name in list_folder(str(path))]
    )
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

    return TranslatedSummary(
        folder=str(folder),
        is_finished=manifest is not None,
        has_failed=bool((manifest or {}).get("has_failed", False)),
        plan={name: value for name, value in plan.items() if name != "input"},
        files=len(plan["input"]),
        planned_rows=max(
            sum(file["rows"] or 0 for file in plan["input"].values()),
            sum(unit.rows for unit in units),
        ),
        planned_units=len(outputs),
        units=len(units),
        totals={field: sum(getattr(unit, field) for unit in units) for field in _SUMMED},
        skipped=_skipped(plan, units),
        work=sum((unit.work for unit in units), Work()),
        workers=_workers(units),
        looked_at=_look(path, units, looks, rows=rows),
        columns=[
            look.summarize(
                rows_by_status=_add_up(unit.rows_by_status.get(name, {}) for unit in units),
                rows_by_flag=_add_up(unit.rows_by_flag.get(name, {}) for unit in units),
            )
            for name, look in zip(names, looks, strict=True)
        ],
    )


def _look(
    folder: Path, units: Sequence[UnitStatistics], looks: Sequence[ColumnLook], *, rows: int
) -> int:
    """Show the first rows to each look, and return their number."""
    total = min(rows, sum(unit.rows_out for unit in units))
    with long_work("looking at rows", total=total, unit="rows") as work:
        for unit in units:
            first = 0
            for rows_read in _tables(folder / unit.output_path) if not unit.skipped else ():
                part = rows_read.slice(0, rows - work.done)
                for look in looks:
                    look.add(part, file=unit.output_path, first_row=first)
                first += int(part.num_rows)
                work.add(int(part.num_rows))
                if work.done >= rows:
                    return work.done
        return work.done


def _tables(path: Path) -> Iterator[pa.Table]:
    try:
        if path.name.endswith(PARQUET_SUFFIX):
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


def _skipped(plan: Mapping[str, Any], units: Sequence[UnitStatistics]) -> list[dict[str, Any]]:
    files = [(name, None, reason) for name, reason in plan["bad_files"].items()]
    own = [(unit.output_path, unit.rows, unit.skipped) for unit in units if unit.skipped]
    return [{"what": what, "rows": rows, "reason": why} for what, rows, why in [*files, *own]]


def _workers(units: Sequence[UnitStatistics]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], list[UnitStatistics]] = collections.defaultdict(list)
    for unit in units:
        found[tuple(unit.worker.items())].append(unit)
    times = [
        {
            **dict(worker),
            "units": len(own),
            "rows": sum(unit.rows for unit in own),
            "seconds": round(sum(unit.seconds for unit in own), 3),
        }
        for worker, own in found.items()
    ]
    return sorted(times, key=lambda each: -each["seconds"])


def _add_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def translated_sections(found: TranslatedSummary) -> list[Section]:
    """Return the sections of a translated folder."""
    totals, plan = found.totals, found.plan
    rows, texts, distinct = (totals[field] for field in ("rows", "texts", "distinct_texts"))
    saved = f" ({1 - distinct / texts:.1%} saved)" if texts else ""
    state = "finished" if found.is_finished else "not finished"
    rate = rows / totals["seconds"] if totals["seconds"] else None
    facts = [
        ("translated", found.folder),
        ("state", state + (", too many rows failed" if found.has_failed else "")),
        ("languages", " to ".join(plan["languages"].values())),
        ("files", found.files),
        ("rows", f"{rows:,} of {found.planned_rows:,}"),
        ("units", f"{found.units:,} of {found.planned_units:,}"),
        ("failed rows", totals["failed_rows"]),
        ("rows looked at below", found.looked_at),
        ("size", megabytes(totals["output_bytes"])),
        ("model", plan["model_fingerprint"][:16]),
    ]
    work = [
        ("sentences", f"{texts:,}, {distinct:,} translated{saved}"),
        ("padding", f"{found.work.padding:.1%}"),
        ("source tokens", found.work.source_tokens),
        ("target tokens", found.work.target_tokens),
        ("seconds of all workers", totals["seconds"]),
        ("rows per second of a worker", rate),
        ("worker hours per million rows", 1e6 / rate / 3600 if rate else None),
    ]
    engine = {f"engine {name}": value for name, value in plan["engine"].items()}
    return [
        Section(
            "overview",
            "Overview",
            [
                Facts(facts),
                *([table(found.skipped, "what rows reason")] if found.skipped else []),
                options("Options", {**plan["options"], **plan["decoding"], **engine}),
                options("Versions", plan["versions"]),
            ],
        ),
        *(
            Section(f"column-{number}", f"Column {column.name}", column_blocks(column))
            for number, column in enumerate(found.columns)
        ),
        Section(
            "work",
            "Time by worker",
            [Facts(work), table(found.workers, "host process thread units rows seconds")],
        ),
    ]
