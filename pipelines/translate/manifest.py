"""What a Parquet job did: `_tt/manifest.json`, which is written last, and what the user reads."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.engines.translator import Work
from model.errors import counted
from pipelines.runners.figures import format_price, format_seconds
from pipelines.texts.translating import FAILED, SPLIT, STATUSES, UNKNOWN
from pipelines.translate.plan import FORMAT
from pipelines.translate.table import STATUS
from pipelines.translate.units import UnitStatistics


def make_manifest(
    *,
    plan: Mapping[str, Any],
    statistics: Sequence[UnitStatistics],
    bad_rows: Mapping[str, int | None],
    max_failed: float,
) -> dict[str, Any]:
    """Returns the content of `manifest.json`.

    Args:
      plan: The content of `plan.json`.
      statistics: Statistics of each unit.
      bad_rows: Rows of the files that are skipped, by relative path; None where they are unknown.
      max_failed: The share of rows that may fail or be skipped.

    Raises:
      RuntimeError: A file has other rows out than in, those that were skipped counted.
    """
    statistics = sorted(statistics, key=lambda unit: unit.output_path)
    columns = plan["options"]["text_columns"]
    units_by_file: dict[str, list[UnitStatistics]] = {name: [] for name in plan["input"]}
    for unit in statistics:
        units_by_file[unit.relative_path].append(unit)
    files = {
        name: {"units": len(units), **_count_rows(units, columns=columns)}
        for name, units in units_by_file.items()
    }
    for name, planned in plan["input"].items():
        rows_out, skipped_rows = files[name]["rows_out"], files[name]["skipped_rows"]
        if rows_out + skipped_rows != planned["rows"]:
            raise RuntimeError(
                f"{name}: {planned['rows']} rows in, {rows_out} out and {skipped_rows} skipped"
            )
    counts = {
        **_count_rows(statistics, columns=columns),
        "skipped_file_rows": sum(rows or 0 for rows in bad_rows.values()),
    }
    work = sum((unit.work for unit in statistics), Work())
    return {
        "format": FORMAT,
        "files": files,
        **counts,
        "max_failed": max_failed,
        "has_failed": _has_failed(counts, max_failed=max_failed),
        "units": len(statistics),
        "output_bytes": {
            unit.output_path: unit.output_bytes for unit in statistics if not unit.skipped
        },
        "skipped_files": [
            {"file": name, "reason": reason, "rows": bad_rows[name]}
            for name, reason in plan["bad_files"].items()
        ],
        "skipped_units": [
            {
                "file": unit.relative_path,
                "first_row": unit.first_row,
                "rows": unit.rows,
                "output": unit.output_path,
                "reason": unit.skipped,
            }
            for unit in statistics
            if unit.skipped
        ],
        "texts": sum(unit.texts for unit in statistics),
        "distinct_texts": sum(unit.distinct_texts for unit in statistics),
        "source_characters": sum(unit.source_characters for unit in statistics),
        "work": {**dataclasses.asdict(work), "padding": round(work.padding, 6)},
        "model_fingerprint": plan["model_fingerprint"],
        "decoding": plan["decoding"],
        "engine": plan["engine"],
        "languages": plan.get("languages", {}),
        "options": plan["options"],
        "versions": _units_by_versions(statistics),
        "unit_seconds": round(sum(unit.seconds for unit in statistics), 3),
        "last_run": {
            "units": sum(not unit.was_reused for unit in statistics),
            "rows": sum(unit.run_rows for unit in statistics),
            "source_characters": sum(unit.run_characters for unit in statistics),
        },
    }


def _count_rows(units: Iterable[UnitStatistics], *, columns: Sequence[str]) -> dict[str, Any]:
    rows_by_status = {column: dict.fromkeys(STATUSES, 0) for column in columns}
    rows: collections.Counter[str] = collections.Counter()
    for unit in units:
        rows["in"] += unit.rows
        rows["out"] += unit.rows_out
        rows["failed"] += unit.failed_rows
        for column, counts in unit.rows_by_status.items():
            for status, count in counts.items():
                rows_by_status[column][status] += count
    return {
        "rows": rows["in"],
        "rows_out": rows["out"],
        "skipped_rows": rows["in"] - rows["out"],
        "failed_rows": rows["failed"],
        "rows_by_status": rows_by_status,
    }


def _has_failed(counts: Mapping[str, Any], *, max_failed: float) -> bool:
    lost = counts["failed_rows"] + _skipped_rows(counts)
    return bool(lost > max_failed * _all_rows(counts))


def _skipped_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of skipped units, and those of skipped files as far as they are known."""
    return int(counts["skipped_rows"]) + _skipped_file_rows(counts)


def _skipped_file_rows(counts: Mapping[str, Any]) -> int:
    return int(counts.get("skipped_file_rows", 0))  # not in a manifest of an older tt


def _all_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of all files, including those of skipped files as far as they are known."""
    return int(counts["rows"]) + _skipped_file_rows(counts)


def _units_by_versions(units: Iterable[UnitStatistics]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for unit in units:
        same = [each for each in found if each["programs"] == unit.versions]
        if not same:
            same = [{"programs": unit.versions, "outputs": []}]
            found += same
        same[0]["outputs"].append(unit.output_path)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSummary:
    """What a finished job did.

    Attributes:
      manifest: The content of `manifest.json`.
      output: The folder, as given.
      already_finished: Whether an earlier run had done everything.
      seconds: Elapsed seconds, from the start of the command or of `TranslateJob.run`.
      max_failed: The share of rows that may fail or be skipped.
    """

    manifest: dict[str, Any]
    output: str
    already_finished: bool
    seconds: float
    max_failed: float

    @property
    def rows(self) -> int:
        """Rows in: those out, and those skipped."""
        return int(self.manifest["rows"])

    @property
    def units(self) -> int:
        """Units, which are output files but for those skipped."""
        return int(self.manifest["units"])

    @property
    def reused_units(self) -> int:
        """Units that were finished before this run."""
        return self.units - (0 if self.already_finished else self.manifest["last_run"]["units"])

    @property
    def run_rows(self) -> int:
        """Rows that this run translated."""
        return 0 if self.already_finished else int(self.manifest["last_run"]["rows"])

    @property
    def rows_by_status(self) -> dict[str, dict[str, int]]:
        """Rows of each of the STATUSES, by text column."""
        return dict(self.manifest["rows_by_status"])

    @property
    def failed_rows(self) -> int:
        """Rows of which a cell failed."""
        return int(self.manifest["failed_rows"])

    @property
    def has_failed(self) -> bool:
        """Whether more rows failed or were skipped than may."""
        return _has_failed(self.manifest, max_failed=self.max_failed)


def describe_summary(
    summary: TranslateSummary, *, price_per_hour: float | None = None
) -> list[str]:
    """Returns the lines that say what a job did.

    Args:
      summary: Summary of the job.
      price_per_hour: Price of the machines, in any currency; None leaves prices out.
    """
    manifest = summary.manifest
    lines = []
    if summary.already_finished:
        lines.append("Finished already; nothing to do.")
    elif summary.reused_units:
        lines.append(
            f"{summary.reused_units:,} of {summary.units:,} units were there from an earlier run."
        )
    lines.append(
        f"{counted(summary.rows, 'row')} of {counted(len(manifest['files']), 'file')} in "
        f"{counted(summary.units, 'unit')}"
        + (f"; {counted(skipped, 'row')} skipped" if (skipped := _skipped_rows(manifest)) else "")
    )
    for column, counts in summary.rows_by_status.items():
        statuses = ", ".join(f"{n:,} {status}" for status, n in counts.items() if n)
        lines.append(f"{column}: {statuses or 'no rows'}")
        if unknown := counts.get(UNKNOWN):
            lines.append(
                f"{column}: {unknown:,} rows have no translation, since most of each is "
                "unknown to the model: they are in another script or of signs alone"
            )
    if manifest["texts"]:
        texts, distinct = manifest["texts"], manifest["distinct_texts"]
        work = Work(**{key: n for key, n in manifest["work"].items() if key != "padding"})
        has_split = any(counts[SPLIT] for counts in summary.rows_by_status.values())
        lines.append(
            f"{texts:,} texts{' and pieces of split ones' if has_split else ''}, {distinct:,} "
            f"translated: {1 - distinct / texts:.1%} saved, since equal ones of a unit are "
            "translated once"
        )
        lines.append(
            f"{work.source_tokens:,} source tokens with {work.padding:.1%} padding, "
            f"{work.target_tokens:,} target tokens"
            + (f", {work.memory_backoffs:,} batches cut for memory" if work.memory_backoffs else "")
        )
    if not summary.already_finished:
        lines.append(
            f"Took {format_seconds(summary.seconds)} from the start of the command"
            + (f", for {summary.run_rows:,} of the rows" if summary.reused_units else "")
        )
    if price_per_hour is not None:
        lines.append(_describe_price(summary, price_per_hour=price_per_hour))
    for file in manifest["skipped_files"]:
        rows = file.get("rows")
        shown = "a file of an unknown number of" if rows is None else f"{rows:,}"
        lines.append(f"Skipped {shown} rows: {file['reason']}")
    for unit in manifest["skipped_units"]:
        lines.append(f"Skipped {unit['rows']:,} rows: {unit['reason']}")
    return lines


def _describe_price(summary: TranslateSummary, *, price_per_hour: float) -> str:
    if not summary.run_rows:
        return "Price of this run: it translated nothing, so that no row has a price"
    price = price_per_hour * summary.seconds / 3600
    text = f"Price of this run: {format_price(price)}"
    text += f", {format_price(price * 1e6 / summary.run_rows)} per million rows"
    if characters := summary.manifest["last_run"]["source_characters"]:
        text += f", {format_price(price * 1e6 / characters)} per million source characters"
    return text


def describe_failure(summary: TranslateSummary) -> str:
    """Returns a line: too many rows failed or were skipped, which ones, and what to do."""
    manifest = summary.manifest
    failed, skipped = summary.failed_rows, _skipped_rows(manifest)
    lost = [f"{failed:,} of {_all_rows(manifest):,} rows failed"] if failed else []
    if skipped:
        lost.append(
            f"{skipped:,} were skipped"
            if failed
            else f"{skipped:,} of {_all_rows(manifest):,} rows were skipped"
        )
    parts = [
        f"{' and '.join(lost)}, more than `max_failed={summary.max_failed:g}`; all"
        f"{' else' if skipped else ''} is written"
    ]
    if failed:
        columns = list(summary.rows_by_status)
        names = [STATUS if len(columns) == 1 else f"{column}_{STATUS}" for column in columns]
        where = " or ".join(f"{name} == {FAILED!r}" for name in names)
        parts.append(
            f"{'Those that failed' if skipped else 'They'} are those with {where}, and why is in "
            f"{names[0].removesuffix('status')}error. To try them again: `retry_failed`; "
            "texts that are not UTF-8 fail again, unless they are mended in the input"
        )
    if manifest["skipped_rows"]:
        parts.append("`retry_failed` translates skipped units of files that are mended")
    if _skipped_file_rows(manifest):
        parts.append("Files that were left out can be mended, and translated into another `output`")
    return ". ".join(parts)
