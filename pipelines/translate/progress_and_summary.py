"""What a job will do, how far it is, and at the end what it did, in the lines that a user reads.

Progress is known by the statistics that units have left, whatever the runner. Of units under way,
only those of this process's threads tell how many rows are done.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from model.engines.progress import rows_under_way
from model.engines.translator import Work
from model.errors import counted
from model.formats.model_folder import find_model_folder, is_ctranslate2, load_config
from pipelines.remote.estimates import count_layer_weights, estimate_translation
from pipelines.runners.beam_options import describe_arguments
from pipelines.runners.formatting import format_price, format_seconds, megabytes
from pipelines.runners.runner import describe_runner
from pipelines.storage.listing import list_files, list_folder
from pipelines.storage.paths import is_local
from pipelines.texts.columns import STATUS
from pipelines.texts.model_languages import SAMPLE
from pipelines.texts.translating import FAILED, FLAGGED, INCOMPLETE, TOO_LONG, UNKNOWN
from pipelines.translate.inputs import first_texts
from pipelines.translate.job_folder import UNITS_FOLDER
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


def describe_job(
    job: Any, *, steps: Sequence[str], price_per_hour: float | None = None
) -> list[str]:
    """Returns the lines that say what a run would do; writes nothing.

    Args:
      job: The `TranslateJob`, whose module imports this one.
      steps: Names of its steps.
      price_per_hour: Price of the machines, in any currency; None leaves prices out.

    Raises:
      UserError: Beam cannot take its flags.
    """
    options, found, arguments = job.request.options, job.found, job.arguments
    counts = [len(plan_units(file, unit_rows=options.unit_rows)) for file in found.files]
    units = sum(counts)
    texts = [text for column in first_texts(found, count=SAMPLE).values() for text in column]
    mean = sum(map(len, texts)) / len(texts) if texts else 0.0
    size = megabytes(sum(file.size for file in found.files))
    lines = [
        f"input: {counted(len(found.files), 'file')}, {counted(job.rows, 'row')}, {size}",
        f"columns: {', '.join(found.text_columns)}; texts of {mean:.0f} characters, by the first "
        f"{counted(len(texts), 'text')}",
        f"units: {units:,} of up to {counted(options.unit_rows, 'row')}",
        f"steps: {', '.join(steps)}",
        f"runner: {describe_runner(arguments)}",
        f"Beam options: {describe_arguments(arguments)}",
    ]
    if job.is_finished:
        return [*lines, f"output: {options.output}, finished already: it would stay as it is"]
    begun = ", begun already: finished units would stay" if job.has_plan else ""
    estimate = estimate_translation(
        characters=mean * job.rows * len(found.text_columns),
        layer_weights=_count_weights(job.model.folder),
        beam_size=job.request.decoding.beam_size,
        files=len(found.files),
        units=units,
        divided=sum(count for count in counts if count > 1),
        is_remote=not is_local(job.output),
        has_accelerator=job.request.accelerator is not None,
    )
    lines += estimate.describe(arguments, price_per_hour=price_per_hour)
    return [*lines, f"output: {options.output}{begun}"]


def _count_weights(folder: Path | None) -> int | None:
    """Counts the weights of a model's layers; None where no configuration says what it has."""
    if folder is None or is_ctranslate2(folder):
        return None
    return count_layer_weights(vars(load_config(find_model_folder(folder))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationProgress:
    """How far a run is.

    Attributes:
      rows: Rows of all units.
      rows_done: Rows of finished units.
      rows_done_here: Rows of units that this run finished.
      rows_under_way: Rows done in unfinished units, where this process works on them.
      failed_rows: Failed rows of finished units.
      work: What this run has translated.
      seconds: Seconds since the run began.
      is_retry: Whether only failed rows are translated again; then nothing else is known.
    """

    rows: int
    rows_done: int = 0
    rows_done_here: int = 0
    rows_under_way: int = 0
    failed_rows: int = 0
    work: Work = dataclasses.field(default_factory=Work)
    seconds: float = 0.0
    is_retry: bool = False

    def describe(self) -> str:
        """Says it in a line.

        >>> TranslationProgress(rows=100_000).describe()
        'translating: 0 of 100,000 rows'
        """
        if self.is_retry:
            return f"translating failed rows again: {format_seconds(self.seconds)}"
        done = self.rows_done + self.rows_under_way
        done_here = self.rows_done_here + self.rows_under_way
        earlier = self.rows_done - self.rows_done_here
        shown = f" ({earlier:,} earlier)" if earlier else ""  # by runs before
        parts = [f"translating: {done:,} of {self.rows:,} rows{shown}"]
        if self.rows_done == self.rows:
            parts = ["writing the manifest"]
        elif done_here and self.seconds > 0:
            rate = done_here / self.seconds
            parts.append(f"{rate:,.0f} rows/s")
            if self.rows_done_here and self.work.target_tokens:
                parts.append(f"{self.work.target_tokens / self.seconds:,.0f} target tokens/s")
                parts.append(f"{self.work.padding:.0%} padding")
            parts.append(f"{format_seconds((self.rows - done) / rate)} left")
        if self.failed_rows:
            parts.append(f"{self.failed_rows:,} failed")
        return ", ".join(parts)


class ProgressWatch:
    """Finds out how far the run of a job is; reads the statistics of each unit once.

    Of an object store it only lists them, which takes a request for a thousand units and not one
    for each: their names say how many rows they have, and the times which run did them. What failed
    and the tokens are not known then.

    Args:
      output: The output folder.
      rows: Rows of all units.
      run_id: Name of the run.
      is_done: Whether the run takes a unit as finished: not those of a job that it overwrites.
      is_retry: Whether only failed rows are done, so that all units are there from the start.
      unit_rows: Rows of each unit by the path of its statistics, which is looked at for an output
        folder that is not local.
    """

    def __init__(
        self,
        *,
        output: str,
        rows: int,
        run_id: str,
        is_done: Callable[[UnitStatistics], bool],
        is_retry: bool = False,
        unit_rows: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._start = time.monotonic()
        self._began = time.time()
        self._is_retry = is_retry
        self._output = output
        self._rows = rows
        self._run_id = run_id
        self._is_done = is_done
        self._unit_rows = functools.cache(unit_rows)
        self._found: dict[str, UnitStatistics] = {}
        self._most = 0  # rows that were done, those under way included

    def look(self) -> TranslationProgress:
        """Looks at the folder.

        Raises:
          OSError, ValueError: A file went away.
        """
        seconds = time.monotonic() - self._start
        if self._is_retry:
            return TranslationProgress(rows=self._rows, seconds=seconds, is_retry=True)
        if not is_local(self._output):
            return self._look_from_afar(seconds)
        for path in list_folder(f"{self._output}/{UNITS_FOLDER}"):
            name = path.removeprefix(f"{self._output}/")
            if name not in self._found:
                statistics = read_statistics(output=self._output, path=name)
                if statistics is not None and self._is_done(statistics):
                    self._found[name] = statistics
        done = list(self._found.values())
        here = [unit for unit in done if unit.run_id == self._run_id]
        rows_done = sum(unit.rows for unit in done)
        # While a unit is written, its rows are neither done nor under way: what was shown stays.
        self._most = min(self._rows, max(self._most, rows_done + rows_under_way()))
        return TranslationProgress(
            rows=self._rows,
            rows_done=rows_done,
            rows_under_way=self._most - rows_done,
            rows_done_here=sum(unit.rows for unit in here),
            failed_rows=sum(unit.failed_rows for unit in done),
            work=sum((unit.work for unit in here), Work()),
            seconds=seconds,
        )

    def _look_from_afar(self, seconds: float) -> TranslationProgress:
        done = done_here = 0
        for file in list_files(f"{self._output}/{UNITS_FOLDER}"):
            rows = self._unit_rows().get(file.path.removeprefix(f"{self._output}/"), 0)
            done += rows
            done_here += rows if file.changed >= self._began else 0
        return TranslationProgress(
            rows=self._rows, rows_done=done, rows_done_here=done_here, seconds=seconds
        )


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
        """Rows of each of the FLAGS, by text column; none of a manifest of an older `tt`."""
        return dict(self.manifest.get("rows_by_flag", {}))

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
    terms = manifest.get("terms", {})  # not in a manifest of an older tt
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
