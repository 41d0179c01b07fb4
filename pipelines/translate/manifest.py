"""Collect the statistics of units, and turn them into `_tt/manifest.json` and a summary."""

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
from tt.model.storage.files import read_bytes
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.runners.formatting import describe_sentences, format_price, format_seconds
from tt.pipelines.texts.flags import FLAGS
from tt.pipelines.texts.results import FAILED, STATUSES
from tt.pipelines.translate.generations import generations
from tt.pipelines.translate.plan import FORMAT, installed_versions

# Fields of `UnitStatistics`.
_TEXT_COUNTS = ("texts", "distinct_texts", "remembered_texts", "source_characters")
_SUMMED = (
    *_TEXT_COUNTS, "invalid_cells", "terms_found", "terms_kept", "kept_rows", "null_keys",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A bad file that the job skips.

    Attributes:
      relative_path: The path relative to the input folder.
      reason: Why the file cannot be translated.
      rows: The number of rows that are not translated because of this; None if it is unknown.
    """

    relative_path: str
    reason: str
    rows: int | None


def _this_worker() -> dict[str, Any]:
    thread = threading.get_ident()
    return {"host": socket.gethostname(), "process": os.getpid(), "thread": thread}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitStatistics:
    """The record of a unit, which is also the content of its JSON file.

    Attributes:
      output_path: The path of the output file, relative to the output folder.
      relative_path: The relative path of the input file.
      first_row: The index of the unit's first row in the input file.
      rows: The number of rows of the unit.
      file_rows: The number of rows of the input file to translate.
      plan_digest: The digest of the plan.
      skipped: Why the unit has no output file; "" if it has one.
      output_bytes: The size of the output file, in bytes.
      output_checksum: The SHA-256 checksum of the output file.
      rows_by_status: The number of rows with each of the STATUSES, by text column.
      rows_by_flag: The number of rows with each of the FLAGS, by text column.
      rows_by_worst_status: The number of rows by the worst status of their text columns.
      rows_dropped: The number of rows that a corpus leaves out, by reason.
      failed_rows: The number of rows with at least one failed text.
      invalid_cells: The number of cells that are null in the output, because they are not UTF-8.
      texts: The number of sentences to translate, including repetitions.
      distinct_texts: The number of sentences that the model translated, each once per unit, and
        again if the first translation lost a span or a figure.
      remembered_texts: The number of distinct sentences whose translation the memory contains.
      source_characters: The number of characters in all texts.
      terms_found: The number of glossary terms in all texts.
      terms_kept: The number of these terms whose required translation is in the output.
      kept_rows: The number of rows that keep the translation of an earlier generation.
      null_keys: The number of rows whose key contains a null value.
      work: The work of the model.
      seconds: The time of the last run that worked on the unit, including reading and writing.
      run_id: The name of that run.
      run_rows: The number of rows that this run translated.
      run_characters: The number of characters in the texts that this run translated.
      worker: The host, process and thread of the worker.
      versions: The versions of the worker's programs.
      was_reused: Whether an earlier run had finished the unit; not part of the JSON file.
    """

    output_path: str
    relative_path: str
    first_row: int
    rows: int
    file_rows: int = 0
    plan_digest: str = ""
    skipped: str = ""
    output_bytes: int = 0
    output_checksum: str = ""
    rows_by_status: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    rows_by_flag: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    rows_by_worst_status: dict[str, int] = dataclasses.field(default_factory=dict)
    rows_dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    failed_rows: int = 0
    invalid_cells: int = 0
    texts: int = 0
    distinct_texts: int = 0
    remembered_texts: int = 0
    source_characters: int = 0
    terms_found: int = 0
    terms_kept: int = 0
    kept_rows: int = 0
    null_keys: int = 0
    work: Work = dataclasses.field(default_factory=Work)
    seconds: float = 0.0
    run_id: str = ""
    run_rows: int = 0
    run_characters: int = 0
    worker: dict[str, Any] = dataclasses.field(default_factory=_this_worker)
    versions: dict[str, str] = dataclasses.field(default_factory=installed_versions)
    was_reused: bool = False

    @property
    def rows_out(self) -> int:
        """The number of rows in the output file."""
        return self.rows - self.skipped_rows - sum(self.rows_dropped.values())

    @property
    def skipped_rows(self) -> int:
        """The number of rows without output because the unit was skipped."""
        return self.rows if self.skipped else 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of the unit's JSON file."""
        content = dataclasses.asdict(self)
        del content["was_reused"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> UnitStatistics:
        """Create statistics from the content of a unit's JSON file.

        Raises:
          TypeError, ValueError, KeyError: The content does not have the form of `to_json`.
        """
        return cls(**content | {"work": Work(**content["work"])})


def read_statistics(*, output: str, path: str) -> UnitStatistics | None:
    """Read the statistics of a unit; return None if the file is missing, damaged or outdated."""
    try:
        return UnitStatistics.from_json(json.loads(read_bytes(f"{output}/{path}")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


class UnitTotals:
    """The totals of the statistics of units.

    In addition to sums, the totals contain the path and the size of each output file, and the
    reason for each skipped unit.
    """

    def __init__(self) -> None:
        self.counts: dict[str, Any] = {
            "all": {}, "files": {}, "work": dataclasses.asdict(Work()),
            "last_run": {
                "units": 0, "rows": 0, "source_characters": 0, "rows_by_status": {},
                "rows_by_worst_status": {},
            },
            **dict.fromkeys((*_SUMMED, "msec"), 0),
        }  # fmt: skip
        self.output_bytes: dict[str, int] = {}
        self.skipped: dict[str, dict[str, Any]] = {}  # skipped units by output path
        self.file_rows: dict[str, int] = {}
        self.bad_files: dict[str, SkippedFile] = {}  # bad files that the job found while counting
        self.outputs: dict[str, list[str]] = {}  # output paths by the JSON of program versions

    def add(self, unit: UnitStatistics | SkippedFile) -> None:
        """Add the statistics of a unit, or a bad file."""
        if isinstance(unit, SkippedFile):
            self.bad_files[unit.relative_path] = unit
            return
        rows = {
            "units": 1,
            "rows": unit.rows,
            "rows_out": unit.rows_out,
            "skipped_unit_rows": unit.skipped_rows,
            "failed_rows": unit.failed_rows,
            "rows_dropped": unit.rows_dropped,
            "rows_by_status": unit.rows_by_status,
            "rows_by_flag": unit.rows_by_flag,
        }
        last_run = {
            "units": int(not unit.was_reused),
            "rows": unit.run_rows,
            "source_characters": unit.run_characters,
            "rows_by_status": {} if unit.was_reused else unit.rows_by_status,
            "rows_by_worst_status": {} if unit.was_reused else unit.rows_by_worst_status,
        }
        found = {
            "all": rows,
            "files": {unit.relative_path: _without_zeros(rows)},  # saves memory with many files
            "work": dataclasses.asdict(unit.work),
            "last_run": last_run,
            "msec": round(1000 * unit.seconds),  # integers give the same sum in any order
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

    def add_sentences(self, counts: Mapping[str, Any]) -> None:
        """Add the counts of sentences that a generation translated before its units."""
        add_counts(self.counts, counts)

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


def _complete(
    rows: Mapping[str, Any], *, columns: Sequence[str], is_corpus: bool = False
) -> dict[str, Any]:
    """Return the row counts, with 0 for every status and flag that no unit has counted."""
    names = ("units", "rows", "rows_out", "skipped_unit_rows", "failed_rows")
    found: dict[str, Any] = {name: rows.get(name, 0) for name in names}
    for kind, choices in (("rows_by_status", STATUSES), ("rows_by_flag", FLAGS)):
        by_column = rows.get(kind, {})
        found[kind] = {
            column: {name: by_column.get(column, {}).get(name, 0) for name in choices}
            for column in columns
        }
    if is_corpus:
        found["rows_dropped"] = dict(sorted(rows.get("rows_dropped", {}).items()))
    return found


def make_manifest(
    *,
    plan: Mapping[str, Any],
    totals: UnitTotals,
    bad_rows: Mapping[str, int | None],
    max_failed: float,
) -> dict[str, Any]:
    """Return the content of `manifest.json`.

    Args:
      plan: The content of `plan.json`.
      totals: The totals of all units.
      bad_rows: The number of rows of each skipped file, by relative path; None if it is unknown.
      max_failed: The share of rows that may fail or be skipped.

    Raises:
      RuntimeError: The rows of a file differ from the sum of its output rows, dropped rows and
        skipped rows.
    """
    columns, counts = plan["options"]["text_columns"], totals.counts
    is_corpus = "corpus" in plan["options"]
    has_key = bool(plan["options"].get("key"))
    files = {}
    for name, planned in plan["input"].items():
        if name in plan["bad_files"] and not planned.get("removed"):
            continue  # the job found the problem while counting
        rows_in = planned["rows"]
        if rows_in is None:
            rows_in = totals.file_rows.get(name)
            if rows_in is None and plan["options"].get("limit") is not None:
                continue  # earlier files have already reached the limit
        files[name] = found = _complete(
            counts["files"].get(name, {}), columns=columns, is_corpus=is_corpus
        )
        found |= {key: planned[key] for key in ("generation", "removed") if key in planned}
        dropped = sum(found.get("rows_dropped", {}).values())
        if found["rows_out"] + dropped + found["skipped_unit_rows"] != rows_in:
            raise RuntimeError(
                f"{name}: {rows_in} rows in, {found['rows_out']} out, {dropped} dropped and "
                f"{found['skipped_unit_rows']} skipped"
            )
    if strange := counts["files"].keys() - files.keys():
        raise RuntimeError(f"units of files that are not planned: {sorted(strange)}")
    manifest = {
        "format": FORMAT,
        "generations": generations(plan),
        "files": files,
        **_complete(counts["all"], columns=columns, is_corpus=is_corpus),
        "skipped_file_rows": sum(rows or 0 for rows in bad_rows.values()),
        "max_failed": max_failed,
        "output_bytes": dict(sorted(totals.output_bytes.items())),
        "skipped_files": [
            {"file": name, "reason": reason, "rows": bad_rows[name]}
            for name, reason in plan["bad_files"].items()
        ],
        "skipped_units": [unit for _, unit in sorted(totals.skipped.items())],
        **{name: counts[name] for name in (*_TEXT_COUNTS, "invalid_cells")},
        "terms": {"found": counts["terms_found"], "kept": counts["terms_kept"]},
        **({name: counts[name] for name in ("kept_rows", "null_keys")} if has_key else {}),
        "work": {**counts["work"], "padding": round(Work(**counts["work"]).padding, 6)},
        **{name: plan[name] for name in ("model_fingerprint", "decoding", "engine", "options")},
        "languages": plan.get("languages", {}),
        **({"imported_from": plan["imported_from"]} if "imported_from" in plan else {}),
        "versions": [
            {"programs": json.loads(versions), "outputs": sorted(outputs)}
            for versions, outputs in sorted(totals.outputs.items(), key=lambda each: min(each[1]))
        ],
        "unit_seconds": counts["msec"] / 1000,
        "last_run": counts["last_run"],
    }
    return {**manifest, "has_failed": Losses.of(manifest).are_more_than(max_failed)}


class Losses(NamedTuple):
    """The numbers of rows and files of a job that have no translation.

    Attributes:
      failed: The number of failed rows.
      skipped: The number of rows in skipped units, and in skipped files whose number of rows is
        known.
      rows: The number of all rows, including skipped ones.
      unknown_files: The number of skipped files whose number of rows is unknown.
      files: The number of all files.
    """

    failed: int
    skipped: int
    rows: int
    unknown_files: int
    files: int

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Losses:
        """Count the losses of a manifest."""
        skipped = manifest["skipped_files"]
        # With a limit, files with an unknown number of rows may be after the last row to translate.
        has_limit = manifest["options"].get("limit") is not None
        return cls(
            failed=manifest["failed_rows"],
            skipped=manifest["skipped_unit_rows"] + manifest["skipped_file_rows"],
            rows=manifest["rows"] + manifest["skipped_file_rows"],
            unknown_files=0 if has_limit else sum(file.get("rows") is None for file in skipped),
            files=len(manifest["files"]) + len(skipped),
        )

    def are_more_than(self, share: float) -> bool:
        """Return whether more than a share of the rows, or of the files, has no translation."""
        return (
            self.failed + self.skipped > share * self.rows
            or self.unknown_files > share * self.files
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSummary:
    """The result of a finished job.

    Attributes:
      manifest: The content of `manifest.json`.
      already_finished: Whether an earlier run had already finished the job.
      seconds: The time since the start of the command or of `TranslateJob.run`.
      max_failed: The share of rows that may fail or be skipped.
    """

    manifest: dict[str, Any]
    already_finished: bool
    seconds: float
    max_failed: float

    @property
    def rows(self) -> int:
        """The number of rows of all units, including skipped units."""
        return int(self.manifest["rows"])

    @property
    def reused_units(self) -> int:
        """The number of units that were finished before this run."""
        done = 0 if self.already_finished else self.manifest["last_run"]["units"]
        return int(self.manifest["units"] - done)

    @property
    def run_rows(self) -> int:
        """The number of rows that this run translated."""
        return 0 if self.already_finished else int(self.manifest["last_run"]["rows"])

    @property
    def has_failed(self) -> bool:
        """Whether more rows failed or were skipped than `max_failed` allows."""
        return Losses.of(self.manifest).are_more_than(self.max_failed)


def summary_blocks(summary: TranslateSummary, *, price_per_hour: float | None = None) -> list[Any]:
    """Return the blocks that show the result of a job.

    Args:
      summary: The summary of the job.
      price_per_hour: The price of the machines, in any currency; None to omit prices.
    """
    manifest, terms = summary.manifest, summary.manifest["terms"]
    work = Work(**{name: n for name, n in manifest["work"].items() if name != "padding"})
    files = counted(len(manifest["files"]), "file")
    rows = f"{summary.rows:,} of {files} in {counted(manifest['units'], 'unit')}"
    reused, already = summary.reused_units, summary.already_finished
    facts = [
        ("rows", rows),
        ("pairs", f"{manifest['rows_out']:,}" if "rows_dropped" in manifest else None),
        ("units of earlier runs", reused or None),
        ("rows of this run", summary.run_rows if reused and not already else None),
        ("rows with kept translations", manifest.get("kept_rows") or None),
        ("rows without a key", manifest.get("null_keys") or None),
        ("rows of skipped files", Losses.of(manifest).skipped or None),
        ("unreadable rows, kept in _tt/bad_rows.parquet", manifest.get("bad_rows") or None),
        ("cells that are not UTF-8, now null", manifest.get("invalid_cells") or None),
        ("sentences", describe_sentences(*(manifest[name] for name in _TEXT_COUNTS[:3]))),
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
    tables.append(Table(["dropped", "rows"], list(manifest.get("rows_dropped", {}).items())))
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
    """Return an error message for a job in which too many rows failed or were skipped."""
    lost = Losses.of(summary.manifest)
    files = ""
    if lost.unknown_files:
        files = (
            f", and {lost.unknown_files:,} of {lost.files:,} files were skipped (with an unknown "
            "number of rows)"
        )
    others = f"All other rows are translated. Failed rows have the status {FAILED!r}. "
    if "rows_dropped" in summary.manifest:  # a corpus, which has no statuses
        others = ""
    return (
        f"{lost.failed:,} of {lost.rows:,} rows failed and {lost.skipped:,} were skipped{files}, "
        f"which exceeds `max_failed={summary.max_failed:g}`. {others}Fix the input, and run the "
        "same command again; or set `retry_failed` to try the same failed rows and skipped units "
        "again"
    )
