"""What a job will do, how far it is, and what it did, as lines for the user."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from model.engines.batching import rows_under_way
from model.engines.translator import Work
from model.errors import counted
from pipelines.jobs.dry_run import describe_run
from pipelines.jobs.progress import PhaseTimes, Progress
from pipelines.runners.formatting import format_price, format_seconds, megabytes
from pipelines.storage.listing import list_folder
from pipelines.storage.paths import is_local
from pipelines.texts.translating import FAILED, FLAGGED, INCOMPLETE, STATUS, TOO_LONG, UNKNOWN
from pipelines.translate.job_folder import FILES_FOLDER, UNITS_FOLDER
from pipelines.translate.manifest import (
    UnitStatistics,
    all_files,
    all_rows,
    files_of_unknown_rows,
    has_failed,
    read_statistics,
    skipped_file_rows,
    skipped_rows,
)
from pipelines.translate.plan import plan_units


def describe_job(job: Any, *, steps: Sequence[str]) -> list[str]:
    """Return lines that say what a run would do; writes nothing.

    Args:
      job: The `TranslateJob`, whose module imports this one.
      steps: Names of its steps.

    Raises:
      UserError: Beam cannot take its flags.
    """
    options, found = job.request.options, job.found
    known = [file for file in found.files if file.rows is not None]
    units = sum(len(plan_units(file, unit_rows=options.unit_rows)) for file in known)
    uncounted = len(found.files) - len(known)
    more = f"; the job counts those of {counted(uncounted, 'file')}" if uncounted else ""
    size = megabytes(sum(file.size for file in found.files))
    return [
        f"input: {counted(len(found.files), 'file')}, {counted(job.rows, 'row')}{more}, {size}",
        f"columns: {', '.join(found.text_columns)}",
        f"units: {units:,} of up to {counted(options.unit_rows, 'row')}{more}",
        *describe_run(
            steps=steps,
            arguments=job.arguments,
            output=options.output,
            begun="finished units" if job.has_plan else "",
            is_finished=job.is_finished,
        ),
    ]


class ProgressWatch:
    """Finds out how far a run is.

    Reads the record of each unit once if the output folder is local. Of an object store it lists
    the records only, with one request for a thousand units, and knows no failed rows.

    Args:
      output: The output folder.
      unit_rows: Rows of each unit, by the path of its record.
      uncounted: Files whose rows the job counts.
      find_unit_rows: Returns the rows of the units of such a file, or None until they are counted.
      is_done: Whether the run takes a unit as finished: not the units that it overwrites.
      is_retry: Whether only failed rows are translated, so that all records exist from the start.
    """

    def __init__(
        self,
        *,
        output: str,
        unit_rows: Mapping[str, int],
        is_done: Callable[[UnitStatistics], bool],
        is_retry: bool = False,
        uncounted: Sequence[str] = (),
        find_unit_rows: Callable[[str], Mapping[str, int] | None] = lambda path: None,
    ) -> None:
        self._output = output
        self._unit_rows = dict(unit_rows)
        self._uncounted = list(uncounted)
        self._find_unit_rows = find_unit_rows
        self._is_done = is_done
        self._is_retry = is_retry
        self._times = PhaseTimes()
        self._failed: dict[str, int] = {}  # failed rows of finished units, by path
        self._most = 0  # rows that were done at an earlier look

    def look(self, now: float | None = None) -> Progress:
        """Look at the folder; `now` is in seconds from any start, by default `time.monotonic()`.

        Raises:
          OSError, ValueError: A file was deleted.
        """
        return self._times.add(self._find_phase(), now=time.monotonic() if now is None else now)

    def _find_phase(self) -> Progress:
        if self._is_retry:
            return Progress(phase="translating failed rows again")
        folder = f"{self._output}/{FILES_FOLDER}"
        records = set(list_folder(folder) if self._uncounted else ())
        for path in tuple(self._uncounted):
            is_there = f"{folder}/{path}.json" in records
            if is_there and (found := self._find_unit_rows(path)) is not None:
                self._unit_rows |= found
                self._uncounted.remove(path)
        rows = sum(self._unit_rows.values())
        done = sum(self._unit_rows.get(path, 0) for path in self._list_done())
        if done == rows:
            phase = "counting rows" if self._uncounted else "writing the manifest"
            return Progress(phase=phase)
        # While a unit is written, its rows are neither done nor in progress.
        self._most = min(rows, max(self._most, done + rows_under_way()))
        failed = sum(self._failed.values())
        details = (f"{failed:,} failed",) if failed else ()
        return Progress(
            phase="translating", done=self._most, total=rows, noun="rows", details=details
        )

    def _list_done(self) -> Collection[str]:
        """Return the paths of the records of finished units."""
        root = f"{self._output}/"
        paths = [path.removeprefix(root) for path in list_folder(f"{self._output}/{UNITS_FOLDER}")]
        if not is_local(self._output):
            return paths
        for path in paths:
            if path not in self._failed:
                found = read_statistics(output=self._output, path=path)
                if found is not None and self._is_done(found):
                    self._failed[path] = found.failed_rows
        return self._failed


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
    def rows_by_flag(self) -> dict[str, dict[str, int]]:
        """Rows of each of the FLAGS, by text column."""
        return dict(self.manifest["rows_by_flag"])

    @property
    def failed_rows(self) -> int:
        """Rows of which a cell failed."""
        return int(self.manifest["failed_rows"])

    @property
    def has_failed(self) -> bool:
        """Whether more rows failed or were skipped than may."""
        return has_failed(self.manifest, max_failed=self.max_failed)


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
            f"{summary.reused_units:,} of {summary.units:,} units were there from an earlier run; "
            "what follows counts all units."
        )
    lines.append(
        f"{counted(summary.rows, 'row')} of {counted(len(manifest['files']), 'file')} in "
        f"{counted(summary.units, 'unit')}"
        + (f"; {counted(skipped, 'row')} skipped" if (skipped := skipped_rows(manifest)) else "")
    )
    for column, counts in summary.rows_by_flag.items():
        if flagged := ", ".join(f"{n:,} {flag}" for flag, n in counts.items() if n):
            lines.append(f"{column}: rows by flag: {flagged}")
    for column, counts in summary.rows_by_status.items():
        statuses = ", ".join(f"{n:,} {status}" for status, n in counts.items() if n)
        lines.append(f"{column}: {statuses or 'no rows'}")
        if unknown := counts.get(UNKNOWN):
            lines.append(
                f"{column}: {counted(unknown, 'row')} without a translation, since most of the "
                "text is unknown to the model: it is in another script"
            )
        if left_out := counts.get(FLAGGED):
            lines.append(
                f"{column}: {counted(left_out, 'row')} without a translation, since it is flagged "
                "and `on_flag` is null"
            )
        if incomplete := counts.get(INCOMPLETE):
            lines.append(
                f"{column}: {counted(incomplete, 'row')} with a translation that is cut off at the "
                "length limit: see `max_decoding_length`, `max_length_ratio` and `max_extra_tokens`"
            )
        if too_long := counts.get(TOO_LONG):
            lines.append(
                f"{column}: {counted(too_long, 'row')} of more than `max_source_tokens` at once, "
                "left out or cut as `on_too_long` says"
            )
    terms = manifest["terms"]
    if terms.get("found"):
        lines.append(f"Glossary: {terms['kept']:,} of {terms['found']:,} terms kept")
    if manifest["texts"]:
        texts, distinct = manifest["texts"], manifest["distinct_texts"]
        work = Work(**{key: n for key, n in manifest["work"].items() if key != "padding"})
        if distinct > texts:
            said = "translations, since some were tried again"
        else:
            said = f"translated: {1 - distinct / texts:.1%} saved, since equal ones of a unit are "
            said += "translated once"
        lines.append(f"{counted(texts, 'sentence')}, {distinct:,} {said}")
        lines.append(
            f"{work.source_tokens:,} source tokens with {work.padding:.1%} padding, "
            f"{work.target_tokens:,} target tokens"
            + (f", {work.memory_backoffs:,} batches cut for memory" if work.memory_backoffs else "")
        )
    if not summary.already_finished:
        lines.append(
            f"Took {format_seconds(summary.seconds)} from the start of the command"
            + (f", which translated {summary.run_rows:,} rows" if summary.reused_units else "")
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
    failed, skipped = summary.failed_rows, skipped_rows(manifest)
    lost = [f"{failed:,} of {all_rows(manifest):,} rows failed"] if failed else []
    if skipped:
        lost.append(
            f"{skipped:,} were skipped"
            if failed
            else f"{skipped:,} of {all_rows(manifest):,} rows were skipped"
        )
    if unknown := files_of_unknown_rows(manifest):
        lost.append(
            f"{unknown:,} of {counted(all_files(manifest), 'file')} "
            f"{'was' if unknown == 1 else 'were'} skipped, with an unknown number of rows"
        )
    parts = [
        f"{' and '.join(lost)}, more than `max_failed={summary.max_failed:g}`; all"
        f"{' else' if skipped or unknown else ''} is written"
    ]
    if failed:
        columns = list(summary.rows_by_status)
        names = [STATUS if len(columns) == 1 else f"{column}_{STATUS}" for column in columns]
        where = " or ".join(f"{name} == {FAILED!r}" for name in names)
        parts.append(
            f"The failed rows are those with {where}, and why is in "
            f"{names[0].removesuffix('status')}error. To try them again: `retry_failed`; "
            "texts that are not UTF-8 fail again: mend them in the input, and translate that into "
            "another `output`"
        )
    if manifest["skipped_rows"]:
        parts.append("`retry_failed` translates skipped units of files that are mended")
    if skipped_file_rows(manifest) or unknown:
        parts.append("Files that were left out can be mended, and translated into another `output`")
    return ". ".join(parts)
