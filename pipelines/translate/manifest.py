"""The statistics of units, their totals in `_tt/manifest.json`, and the summary for the user.

The manifest is written last.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tt.model.engines.translator import Work
from tt.model.errors import counted
from tt.model.inspection.blocks import Facts, Table
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.runners.formatting import format_price, format_seconds
from tt.pipelines.storage.files import read_bytes
from tt.pipelines.storage.listing import exists
from tt.pipelines.texts.limits import FLAGS
from tt.pipelines.texts.translating import FAILED, STATUSES
from tt.pipelines.translate.plan import FORMAT, installed_versions

_SUMMED = (  # fields of `UnitStatistics`
    "texts", "distinct_texts", "source_characters", "terms_found", "terms_kept",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A bad file that is left out."""

    relative_path: str
    reason: str
    rows: int | None  # rows in it that would be translated; None if the file does not say


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
    """The sums of the statistics of units.

    Besides sums, it keeps the path and the bytes of each output file, and the reason of each
    skipped unit.
    """

    def __init__(self) -> None:
        self.counts: dict[str, Any] = {
            "all": {}, "files": {}, "work": dataclasses.asdict(Work()),
            "last_run": {"units": 0, "rows": 0, "source_characters": 0},
            **dict.fromkeys((*_SUMMED, "msec"), 0),
        }  # fmt: skip
        self.output_bytes: dict[str, int] = {}
        self.skipped: dict[str, dict[str, Any]] = {}  # by output path
        self.file_rows: dict[str, int] = {}
        self.bad_files: dict[str, SkippedFile] = {}  # found by the job
        self.outputs: dict[str, list[str]] = {}  # output paths by JSON of the programs' versions

    def add(self, unit: UnitStatistics | SkippedFile) -> None:
        """Add a unit, or a bad file."""
        if isinstance(unit, SkippedFile):
            self.bad_files[unit.relative_path] = unit
            return
        rows = {
            "units": 1,
            "rows": unit.rows,
            "rows_out": unit.rows_out,
            "skipped_rows": unit.rows - unit.rows_out,
            "failed_rows": unit.failed_rows,
            "rows_by_status": unit.rows_by_status,
            "rows_by_flag": unit.rows_by_flag,
        }
        last_run = {
            "units": int(not unit.was_reused),
            "rows": unit.run_rows,
            "source_characters": unit.run_characters,
        }
        found = {
            "all": rows,
            "files": {unit.relative_path: _without_zeros(rows)},  # there may be many files
            "work": dataclasses.asdict(unit.work),
            "last_run": last_run,
            "msec": round(1000 * unit.seconds),  # which has three decimals
        }
        add_counts(self.counts, found | {name: getattr(unit, name) for name in _SUMMED})
        self.file_rows[unit.relative_path] = unit.file_rows
        versions = json.dumps(unit.versions, sort_keys=True)
        self.outputs.setdefault(versions, []).append(unit.output_path)
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
        """Add the units of other totals."""
        add_counts(self.counts, other.counts)
        self.output_bytes |= other.output_bytes
        self.skipped |= other.skipped
        self.file_rows |= other.file_rows
        self.bad_files |= other.bad_files
        for versions, outputs in other.outputs.items():
            self.outputs.setdefault(versions, []).extend(outputs)


def _without_zeros(counts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_zeros(value) if isinstance(value, Mapping) else value
        for name, value in counts.items()
        if value
    }


def _complete(rows: Mapping[str, Any], *, columns: Sequence[str]) -> dict[str, Any]:
    """Return the counts of rows, with 0 for everything that no unit has counted."""
    names = ("units", "rows", "rows_out", "skipped_rows", "failed_rows")
    found: dict[str, Any] = {name: rows.get(name, 0) for name in names}
    for kind, choices in (("rows_by_status", STATUSES), ("rows_by_flag", FLAGS)):
        by_column = rows.get(kind, {})
        found[kind] = {
            column: {name: by_column.get(column, {}).get(name, 0) for name in choices}
            for column in columns
        }
    return found


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
    columns, counts = plan["options"]["text_columns"], totals.counts
    files = {}
    for name, planned in plan["input"].items():
        if name in plan["bad_files"]:  # as the job has found
            continue
        rows_in = planned["rows"]
        if rows_in is None:
            rows_in = totals.file_rows.get(name)
            if rows_in is None and plan["options"].get("limit") is not None:
                continue  # the files before have the rows
        files[name] = found = _complete(counts["files"].get(name, {}), columns=columns)
        if found["rows_out"] + found["skipped_rows"] != rows_in:
            raise RuntimeError(
                f"{name}: {rows_in} rows in, {found['rows_out']} out and "
                f"{found['skipped_rows']} skipped"
            )
    if strange := counts["files"].keys() - files.keys():
        raise RuntimeError(f"units of files that are not planned: {sorted(strange)}")
    manifest = {
        "format": FORMAT,
        "files": files,
        **_complete(counts["all"], columns=columns),
        "skipped_file_rows": sum(rows or 0 for rows in bad_rows.values()),
        "max_failed": max_failed,
        "output_bytes": dict(sorted(totals.output_bytes.items())),
        "skipped_files": [
            {"file": name, "reason": reason, "rows": bad_rows[name]}
            for name, reason in plan["bad_files"].items()
        ],
        "skipped_units": [unit for _, unit in sorted(totals.skipped.items())],
        **{name: counts[name] for name in ("texts", "distinct_texts", "source_characters")},
        "terms": {"found": counts["terms_found"], "kept": counts["terms_kept"]},
        "work": {**counts["work"], "padding": round(Work(**counts["work"]).padding, 6)},
        **{name: plan[name] for name in ("model_fingerprint", "decoding", "engine", "options")},
        "languages": plan.get("languages", {}),
        "versions": [
            {"programs": json.loads(versions), "outputs": sorted(outputs)}
            for versions, outputs in sorted(totals.outputs.items(), key=lambda each: min(each[1]))
        ],
        "unit_seconds": counts["msec"] / 1000,
        "last_run": counts["last_run"],
    }
    return {**manifest, "has_failed": Losses.of(manifest).are_more_than(max_failed)}


class Losses(NamedTuple):
    """The rows and files of a job that have no translation. Skipped files count if possible."""

    failed: int  # rows
    skipped: int  # rows of skipped units and files
    rows: int  # of all files
    unknown_files: int  # skipped files with an unknown number of rows
    files: int  # all files

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Losses:
        """Count the losses of a manifest."""
        skipped = manifest["skipped_files"]
        # With a limit, files of an unknown number of rows may come after its end.
        has_limit = manifest["options"].get("limit") is not None
        return cls(
            failed=manifest["failed_rows"],
            skipped=manifest["skipped_rows"] + manifest["skipped_file_rows"],
            rows=manifest["rows"] + manifest["skipped_file_rows"],
            unknown_files=0 if has_limit else sum(file.get("rows") is None for file in skipped),
            files=len(manifest["files"]) + len(skipped),
        )

    def are_more_than(self, share: float) -> bool:
        """Return whether a larger share of the rows, or of the files without a number, is lost."""
        return (
            self.failed + self.skipped > share * self.rows
            or self.unknown_files > share * self.files
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSummary:
    """The result of a finished job.

    Attributes:
      manifest: The content of `manifest.json`.
      already_finished: Whether an earlier run had done everything.
      seconds: Elapsed seconds, from the start of the command or of `TranslateJob.run`.
      max_failed: The share of rows that may fail or be skipped.
    """

    manifest: dict[str, Any]
    already_finished: bool
    seconds: float
    max_failed: float

    @property
    def rows(self) -> int:
        """Rows of the input: those of the output, and those skipped."""
        return int(self.manifest["rows"])

    @property
    def reused_units(self) -> int:
        """Units that were finished before this run."""
        done = 0 if self.already_finished else self.manifest["last_run"]["units"]
        return int(self.manifest["units"] - done)

    @property
    def run_rows(self) -> int:
        """Rows that this run translated."""
        return 0 if self.already_finished else int(self.manifest["last_run"]["rows"])

    @property
    def has_failed(self) -> bool:
        """Whether more rows failed or were skipped than allowed."""
        return Losses.of(self.manifest).are_more_than(self.max_failed)


def summary_blocks(summary: TranslateSummary, *, price_per_hour: float | None = None) -> list[Any]:
    """Return the blocks that say what a job did.

    Args:
      summary: Summary of the job.
      price_per_hour: Price of the machines, in any currency; None leaves prices out.
    """
    manifest, terms = summary.manifest, summary.manifest["terms"]
    work = Work(**{name: n for name, n in manifest["work"].items() if name != "padding"})
    files = counted(len(manifest["files"]), "file")
    rows = f"{summary.rows:,} of {files} in {counted(manifest['units'], 'unit')}"
    sentences = f"{manifest['texts']:,}, {manifest['distinct_texts']:,} translated"
    reused, already = summary.reused_units, summary.already_finished
    facts = [
        ("rows", rows),
        ("units of earlier runs", reused or None),
        ("rows of this run", summary.run_rows if reused and not already else None),
        ("skipped rows", Losses.of(manifest).skipped or None),
        ("sentences", sentences),
        ("glossary terms", f"{terms['kept']:,} of {terms['found']:,}" if terms["found"] else None),
        ("source tokens", f"{work.source_tokens:,}, {work.padding:.1%} padding"),
        ("target tokens", work.target_tokens),
        ("batches cut for memory", work.memory_backoffs or None),
        ("time", None if already else format_seconds(summary.seconds)),
        *(_prices(summary, price_per_hour=price_per_hour) if price_per_hour is not None else []),
    ]
    tables = [
        Table(
            ["column", kind, "rows"],
            [
                [column, name, count]
                for column, found in manifest[f"rows_by_{kind}"].items()
                for name, count in found.items()
                if count
            ],
        )
        for kind in ("status", "flag")
    ]
    skipped = [
        [each["file"], each["rows"], each["reason"]]
        for each in (*manifest["skipped_files"], *manifest["skipped_units"])
    ]
    tables.append(Table(["skipped", "rows", "reason"], skipped))
    return [Facts(facts), *(table for table in tables if table.rows)]


def _prices(summary: TranslateSummary, *, price_per_hour: float) -> list[tuple[str, object]]:
    price = price_per_hour * summary.seconds / 3600
    prices: list[tuple[str, object]] = [("price", format_price(price))]
    characters = summary.manifest["last_run"]["source_characters"]
    for unit, count in (("rows", summary.run_rows), ("source characters", characters)):
        if summary.run_rows and count:
            prices.append((f"price per million {unit}", format_price(price * 1e6 / count)))
    return prices


def describe_failure(summary: TranslateSummary) -> str:
    """Return a line: too many rows failed or were skipped, and what to do."""
    lost = Losses.of(summary.manifest)
    files = ""
    if lost.unknown_files:
        files = f", and {lost.unknown_files:,} of {lost.files:,} files, with unknown rows"
    return (
        f"of {lost.rows:,} rows {lost.failed:,} failed and {lost.skipped:,} were skipped{files}: "
        f"more than `max_failed={summary.max_failed:g}`. Every other row is written. Failed rows "
        f"have the status {FAILED!r}. Fix the input, and translate failed rows and skipped units "
        "again with `retry_failed`, or skipped files into another `output`"
    )
