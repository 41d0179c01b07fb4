"""What a Parquet job did: `_tt/manifest.json`, which is written last."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.engines.translator import Work
from pipelines.flags.limits import FLAGS
from pipelines.texts.translating import STATUSES
from pipelines.translate.plan import FORMAT
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
        "has_failed": has_failed(counts, max_failed=max_failed),
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
        "terms": {
            "found": sum(unit.terms_found for unit in statistics),
            "kept": sum(unit.terms_kept for unit in statistics),
        },
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
    rows_by_flag = {column: dict.fromkeys(FLAGS, 0) for column in columns}
    rows: collections.Counter[str] = collections.Counter()
    for unit in units:
        rows["in"] += unit.rows
        rows["out"] += unit.rows_out
        rows["failed"] += unit.failed_rows
        for found, of_unit in (
            (rows_by_status, unit.rows_by_status),
            (rows_by_flag, unit.rows_by_flag),
        ):
            for column, counts in of_unit.items():
                for name, count in counts.items():
                    found[column][name] += count
    return {
        "rows": rows["in"],
        "rows_out": rows["out"],
        "skipped_rows": rows["in"] - rows["out"],
        "failed_rows": rows["failed"],
        "rows_by_status": rows_by_status,
        "rows_by_flag": rows_by_flag,
    }


def has_failed(counts: Mapping[str, Any], *, max_failed: float) -> bool:
    """Says whether a larger share of all rows failed or was skipped than may."""
    lost = counts["failed_rows"] + skipped_rows(counts)
    return bool(lost > max_failed * all_rows(counts))


def skipped_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of skipped units, and those of skipped files as far as they are known."""
    return int(counts["skipped_rows"]) + skipped_file_rows(counts)


def skipped_file_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of skipped files, as far as they are known."""
    return int(counts.get("skipped_file_rows", 0))  # not in a manifest of an older tt


def all_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of all files, including those of skipped files as far as they are known."""
    return int(counts["rows"]) + skipped_file_rows(counts)


def _units_by_versions(units: Iterable[UnitStatistics]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for unit in units:
        same = [each for each in found if each["programs"] == unit.versions]
        if not same:
            same = [{"programs": unit.versions, "outputs": []}]
            found += same
        same[0]["outputs"].append(unit.output_path)
    return found
