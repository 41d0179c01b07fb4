"""What units of a job did, and all of them: `_tt/manifest.json`, which is written last."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import os
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.engines.translator import Work
from pipelines.storage.files import read_bytes
from pipelines.storage.listing import exists
from pipelines.texts.limits import FLAGS
from pipelines.texts.translating import STATUSES
from pipelines.translate.plan import FORMAT, installed_versions


def _this_worker() -> dict[str, Any]:
    thread = threading.get_ident()
    return {"host": socket.gethostname(), "process": os.getpid(), "thread": thread}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """What the manifest and the progress line need of a unit; also the content of its JSON."""

    output_path: str  # the output file, relative to the output folder
    relative_path: str  # the input file's
    first_row: int  # index in the input file
    rows: int  # rows of the unit
    file_rows: int = 0  # rows of the input file that are translated
    plan_digest: str = ""  # digest of the plan under which it was done
    skipped: str = ""  # why there is no output file; "" where there is one
    output_bytes: int = 0  # size of the output file
    output_checksum: str = ""  # checksum of its footer if it is Parquet, else of all
    # Rows of each of the STATUSES, by text column.
    rows_by_status: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    # Rows of each of the FLAGS, by text column.
    rows_by_flag: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    failed_rows: int = 0  # rows of which a cell failed
    texts: int = 0  # texts that had to be translated, each occurrence counted
    distinct_texts: int = 0  # texts that the model translated
    source_characters: int = 0  # characters of all texts
    terms_found: int = 0  # terms of the glossary in all texts
    terms_kept: int = 0  # those of them whose translation stands in the text's
    work: Work = dataclasses.field(default_factory=Work)  # work of the model
    seconds: float = 0.0  # seconds that the last run worked on it, reading and writing included
    run_id: str = ""  # name of that run
    run_rows: int = 0  # rows that it translated
    run_characters: int = 0  # their characters
    # Worker that did it: its host, process and thread.
    worker: dict[str, Any] = dataclasses.field(default_factory=_this_worker)
    # Versions of its programs.
    versions: dict[str, str] = dataclasses.field(default_factory=installed_versions)
    was_reused: bool = False  # whether an earlier run had done it

    @property
    def rows_out(self) -> int:
        """Rows of the output file."""
        return 0 if self.skipped else self.rows

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file."""
        content = dataclasses.asdict(self)
        del content["was_reused"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> UnitStatistics:
        """Makes statistics of the content of their file.

        Raises:
          TypeError, ValueError, KeyError: It is not what `to_json` returns.
        """
        return cls(**content | {"work": Work(**content["work"])})


def read_statistics(*, output: str, path: str) -> UnitStatistics | None:
    """Reads the statistics of a unit; None if missing or of another version of `tt`."""
    if not exists(f"{output}/{path}"):
        return None
    content = read_bytes(f"{output}/{path}")
    try:
        return UnitStatistics.from_json(json.loads(content))
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


class UnitTotals:
    """What a manifest holds of units, added up.

    It holds, of each unit, the path and the bytes of its output file, which the manifest lists; of
    each file the counts that are not 0; of a unit that is skipped why. All else are sums.
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()  # of all units
        self.work: collections.Counter[str] = collections.Counter()
        self.rows_by_file: dict[str, collections.Counter[_RowKey]] = {}
        self.file_rows: dict[str, int] = {}
        self.bad_files: dict[str, str] = {}  # files that the job found bad, and why
        self.output_bytes: dict[str, int] = {}
        self.skipped: dict[str, dict[str, Any]] = {}  # by output path
        self.programs: dict[str, tuple[dict[str, str], list[str]]] = {}  # and their outputs

    @classmethod
    def of(cls, units: Iterable[UnitStatistics]) -> UnitTotals:
        """Adds up units."""
        totals = cls()
        for unit in units:
            totals.add(unit)
        return totals

    def add(self, unit: UnitStatistics) -> None:
        """Adds a unit."""
        self.counts.update(
            units=1,
            texts=unit.texts,
            distinct_texts=unit.distinct_texts,
            source_characters=unit.source_characters,
            terms_found=unit.terms_found,
            terms_kept=unit.terms_kept,
            msec=round(1000 * unit.seconds),  # which has three decimals
            run_units=int(not unit.was_reused),
            run_rows=unit.run_rows,
            run_characters=unit.run_characters,
        )
        self.work.update(dataclasses.asdict(unit.work))
        self.file_rows[unit.relative_path] = unit.file_rows
        rows = self.rows_by_file.setdefault(unit.relative_path, collections.Counter())
        rows.update(_count_rows(unit))
        outputs = self.programs.setdefault(_key_of(unit.versions), (unit.versions, []))[1]
        outputs.append(unit.output_path)
        if not unit.skipped:
            self.output_bytes[unit.output_path] = unit.output_bytes
            return
        self.skipped[unit.output_path] = {
            "file": unit.relative_path,
            "first_row": unit.first_row,
            "rows": unit.rows,
            "output": unit.output_path,
            "reason": unit.skipped,
        }

    def merge(self, other: UnitTotals) -> None:
        """Adds the units that another has added up."""
        self.counts.update(other.counts)
        self.work.update(other.work)
        for name, rows in other.rows_by_file.items():
            self.rows_by_file.setdefault(name, collections.Counter()).update(rows)
        self.file_rows.update(other.file_rows)
        self.bad_files.update(other.bad_files)
        self.output_bytes.update(other.output_bytes)
        self.skipped.update(other.skipped)
        for key, (programs, outputs) in other.programs.items():
            self.programs.setdefault(key, (programs, []))[1].extend(outputs)

    def units_by_versions(self) -> list[dict[str, Any]]:
        """Returns the outputs of each set of programs, in order."""
        found = [
            {"programs": programs, "outputs": sorted(outputs)}
            for programs, outputs in self.programs.values()
        ]
        return sorted(found, key=lambda each: each["outputs"][0])


# What is counted, and for statuses and flags the column and the status or flag.
_RowKey = tuple[str, str, str]


@functools.cache
def _row_key(kind: str, column: str = "", name: str = "") -> _RowKey:
    """Returns one tuple for all files."""
    return kind, column, name


def _key_of(versions: Mapping[str, str]) -> str:
    return json.dumps(versions, sort_keys=True)


def _count_rows(unit: UnitStatistics) -> dict[_RowKey, int]:
    counts = {
        _row_key("units"): 1,
        _row_key("in"): unit.rows,
        _row_key("out"): unit.rows_out,
        _row_key("failed"): unit.failed_rows,
    }
    for kind, by_column in (("status", unit.rows_by_status), ("flag", unit.rows_by_flag)):
        for column, found in by_column.items():
            counts |= {_row_key(kind, column, name): n for name, n in found.items() if n}
    return counts


def _describe_rows(rows: Mapping[_RowKey, int], *, columns: Sequence[str]) -> dict[str, Any]:
    def count(kind: str, column: str = "", name: str = "") -> int:
        return rows.get(_row_key(kind, column, name), 0)

    return {
        "rows": count("in"),
        "rows_out": count("out"),
        "skipped_rows": count("in") - count("out"),
        "failed_rows": count("failed"),
        "rows_by_status": {
            column: {status: count("status", column, status) for status in STATUSES}
            for column in columns
        },
        "rows_by_flag": {
            column: {flag: count("flag", column, flag) for flag in FLAGS} for column in columns
        },
    }


def make_manifest(
    *,
    plan: Mapping[str, Any],
    totals: UnitTotals,
    bad_rows: Mapping[str, int | None],
    max_failed: float,
) -> dict[str, Any]:
    """Returns the content of `manifest.json`.

    Args:
      plan: The content of `plan.json`.
      totals: Statistics of all units.
      bad_rows: Rows of the files that are skipped, by relative path; None where they are unknown.
      max_failed: The share of rows that may fail or be skipped.

    Raises:
      RuntimeError: A file has other rows out than in, those that were skipped counted.
    """
    columns = plan["options"]["text_columns"]
    files = {}
    every_row: collections.Counter[_RowKey] = collections.Counter()
    for name, planned in plan["input"].items():
        if name in plan["bad_files"]:  # as the job has found
            continue
        rows_in = planned["rows"]
        if rows_in is None:
            rows_in = totals.file_rows.get(name)
            if rows_in is None and plan["options"].get("limit") is not None:
                continue  # the files before have the rows
        rows = totals.rows_by_file.get(name, collections.Counter())
        every_row.update(rows)
        found = _describe_rows(rows, columns=columns)
        if found["rows_out"] + found["skipped_rows"] != rows_in:
            raise RuntimeError(
                f"{name}: {rows_in} rows in, {found['rows_out']} out and "
                f"{found['skipped_rows']} skipped"
            )
        files[name] = {"units": rows[_row_key("units")], **found}
    if strange := totals.rows_by_file.keys() - files.keys():
        raise RuntimeError(f"units of files that are not planned: {sorted(strange)}")
    row_counts = {
        **_describe_rows(every_row, columns=columns),
        "skipped_file_rows": sum(rows or 0 for rows in bad_rows.values()),
    }
    counts, work = totals.counts, Work(**totals.work)
    manifest = {
        "format": FORMAT,
        "files": files,
        **row_counts,
        "max_failed": max_failed,
        "has_failed": False,  # until all is known
        "units": counts["units"],
        "output_bytes": dict(sorted(totals.output_bytes.items())),
        "skipped_files": [
            {"file": name, "reason": reason, "rows": bad_rows[name]}
            for name, reason in plan["bad_files"].items()
        ],
        "skipped_units": [unit for _, unit in sorted(totals.skipped.items())],
        "texts": counts["texts"],
        "distinct_texts": counts["distinct_texts"],
        "source_characters": counts["source_characters"],
        "terms": {"found": counts["terms_found"], "kept": counts["terms_kept"]},
        "work": {**dataclasses.asdict(work), "padding": round(work.padding, 6)},
        "model_fingerprint": plan["model_fingerprint"],
        "decoding": plan["decoding"],
        "engine": plan["engine"],
        "languages": plan.get("languages", {}),
        "options": plan["options"],
        "versions": totals.units_by_versions(),
        "unit_seconds": counts["msec"] / 1000,
        "last_run": {
            "units": counts["run_units"],
            "rows": counts["run_rows"],
            "source_characters": counts["run_characters"],
        },
    }
    return {**manifest, "has_failed": has_failed(manifest, max_failed=max_failed)}


def has_failed(manifest: Mapping[str, Any], *, max_failed: float) -> bool:
    """Says whether a larger share of all rows failed or was skipped than may.

    Files that do not say how many rows they hold count by their share of the files.
    """
    lost = manifest["failed_rows"] + skipped_rows(manifest)
    return bool(
        lost > max_failed * all_rows(manifest)
        or files_of_unknown_rows(manifest) > max_failed * all_files(manifest)
    )


def files_of_unknown_rows(manifest: Mapping[str, Any]) -> int:
    """Counts the skipped files that do not say how many rows they hold; with a limit, none.

    A limit may have been reached before them.
    """
    if manifest["options"].get("limit") is not None:
        return 0
    return sum(file.get("rows") is None for file in manifest["skipped_files"])


def all_files(manifest: Mapping[str, Any]) -> int:
    """Returns the number of input files, skipped ones included."""
    return len(manifest["files"]) + len(manifest["skipped_files"])


def skipped_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of skipped units, and those of skipped files as far as they are known."""
    return int(counts["skipped_rows"]) + skipped_file_rows(counts)


def skipped_file_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of skipped files, as far as they are known."""
    return int(counts["skipped_file_rows"])


def all_rows(counts: Mapping[str, Any]) -> int:
    """Returns the rows of all files, including those of skipped files as far as they are known."""
    return int(counts["rows"]) + skipped_file_rows(counts)
