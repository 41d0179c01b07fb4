"""The Parquet job: the rows of Parquet files, with their translations beside them.

    input files | PlanUnits | Reshuffle | TranslateUnits | manifest

A unit of work is a run of consecutive rows of one file and becomes one output file, which is
there whole or not at all. `_tt/plan.json` is written before the first of them, so that the same
command again does only the missing units and another command is refused; `_tt/manifest.json` is
written after the last.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from model.engines.translator import TranslatorLike
from model.errors import UserError
from model.folders.lock import lock_folder
from model.transformer.config import Decoding
from pipelines.runners.runner import (
    has_direct_workers,
    local_workers,
    make_pipeline,
    run_pipeline,
    with_local_defaults,
)
from pipelines.storage.files import delete, is_local, list_files
from pipelines.texts.translating import STATUSES
from pipelines.translate.job import (
    MANIFEST_PATH,
    PLAN_PATH,
    RETRY_PATH,
    TranslateJob,
    plan_translation,
    with_folder,
)
from pipelines.translate.manifest import TranslateSummary, make_manifest
from pipelines.translate.plan import (
    COMPRESSIONS,
    JOB_FOLDER,
    LOCK_FILE,
    ON_BAD_FILE,
    InputFile,
    TranslateOptions,
    Unit,
    find_leftovers,
    plan_units,
    read_json,
    write_json,
)
from pipelines.translate.table import TableOptions
from pipelines.translate.units import UnitOptions, UnitStatistics, finish_unit

__all__ = [
    "PlanUnits",
    "TranslateJob",
    "TranslateOptions",
    "TranslateSummary",
    "TranslateUnits",
    "plan_translation",
    "run_translation",
    "translate_parquet",
]


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class PlanUnits(beam.PTransform):
    """Input files to the units of work that they are cut into.

    Attributes:
      unit_rows: The most rows of a unit.
    """

    unit_rows: int

    def __post_init__(self) -> None:
        if self.unit_rows < 1:
            raise ValueError(f"unit_rows must be at least 1. Received: {self.unit_rows}")

    def expand(self, files: beam.PCollection[InputFile]) -> beam.PCollection[Unit]:
        """Wires the transform."""
        return files | "Cut into units" >> beam.FlatMap(plan_units, unit_rows=self.unit_rows)


@dataclasses.dataclass(kw_only=True, eq=False)
class TranslateUnits(beam.PTransform):
    """Units to output files; one statistics element for each.

    A unit whose output is there already is kept. Two copies of a unit at once write the same
    file.

    Attributes:
      load_translator: Called once in each worker process; must pickle.
      options: How units are done.
    """

    load_translator: Callable[[], TranslatorLike]
    options: UnitOptions

    def __post_init__(self) -> None:
        compression, on_bad_file = self.options.compression, self.options.on_bad_file
        if compression not in COMPRESSIONS:
            raise ValueError(f"compression must be of {COMPRESSIONS}. Received: {compression}")
        if on_bad_file not in ON_BAD_FILE:
            raise ValueError(f"on_bad_file must be of {ON_BAD_FILE}. Received: {on_bad_file}")

    def expand(self, units: beam.PCollection[Unit]) -> beam.PCollection[UnitStatistics]:
        """Wires the transform."""
        return units | "Translate" >> beam.ParDo(_TranslateUnit(config=self, model=Shared()))


class _TranslateUnit(beam.DoFn):
    def __init__(self, *, config: TranslateUnits, model: Shared) -> None:
        self._load_translator = config.load_translator
        self._options = config.options
        self._model = model
        # To be looked at while a job runs; the manifest's numbers are the statistics'.
        self._cells = {status: Metrics.counter("tt", f"cells_{status}") for status in STATUSES}
        self._rows_skipped = Metrics.counter("tt", "rows_skipped")
        self._unit_msec = Metrics.distribution("tt", "unit_msec")

    def setup(self) -> None:
        self._translator: TranslatorLike = self._model.acquire(self._load_translator)

    def process(self, unit: Unit) -> Iterator[UnitStatistics]:
        start = time.monotonic()
        statistics = finish_unit(unit, options=self._options, translator=self._translator)
        if not statistics.was_reused:
            self._unit_msec.update(round(1000 * (time.monotonic() - start)))
            self._rows_skipped.inc(statistics.rows - statistics.rows_out)
            for counts in statistics.rows_by_status.values():
                for status, rows in counts.items():
                    self._cells[status].inc(rows)
        yield statistics


class _WriteManifest(beam.DoFn):
    """The job's last step; running it twice writes the same."""

    def __init__(
        self,
        *,
        plan: dict[str, Any],
        bad_rows: Mapping[str, int | None],
        output: str,
        max_failed: float,
        run_id: str,
        is_alone: bool,
    ) -> None:
        self._plan = plan
        self._bad_rows = bad_rows
        self._output = output
        self._max_failed = max_failed
        self._run_id = run_id
        self._is_alone = is_alone

    def process(self, statistics: list[UnitStatistics]) -> None:
        manifest = make_manifest(
            plan=self._plan,
            statistics=statistics,
            bad_rows=self._bad_rows,
            max_failed=self._max_failed,
        )
        files = list_files(f"{self._output}/{JOB_FOLDER}")
        leftovers = find_leftovers(
            files, run_id=self._run_id, is_alone=self._is_alone, now=time.time()
        )
        if leftovers:  # before the manifest, after which no run looks for them any more
            delete(leftovers)
        write_json(manifest, output=self._output, path=MANIFEST_PATH, run_id=self._run_id)
        retried = [file.path for file in files if file.path.endswith(f"/{RETRY_PATH}")]
        if retried:
            delete(retried)


def run_translation(
    job: TranslateJob,
    *,
    load_translator: Callable[[], TranslatorLike],
    workers: int = 1,
    start: float | None = None,
) -> TranslateSummary:
    """Does what is missing of a job.

    Args:
      job: What to do.
      load_translator: Makes the model in a worker, such as a `ModelLoader`.
      workers: Threads that work on units, unless Beam's flags say where or how it is to run.
      start: The `time.monotonic()` from which the summary counts seconds; None is now.

    Raises:
      UserError: What can only be seen while it runs: a damaged file, no room on the disk.
    """
    if start is None:
        start = time.monotonic()
    if job.is_finished:
        return _summarize(job, manifest=job.manifest, already_finished=True, start=start)
    pipeline = make_pipeline(_with_workers(job.beam_arguments, workers=workers))
    with contextlib.ExitStack() as stack:
        try:
            is_alone = is_local(job.output) and stack.enter_context(_lock(job))
            job = with_folder(job)  # another run may have worked there until just now
            if job.is_finished:
                return _summarize(job, manifest=job.manifest, already_finished=True, start=start)
            _prepare_folder(job)
        except OSError as error:
            raise UserError(
                f"the output folder {job.options.output} cannot be written: "
                f"{error.strerror or error}. Choose another with --output"
            ) from error
        run_pipeline(_build(pipeline, job, load_translator=load_translator, is_alone=is_alone))
    manifest = read_json(f"{job.output}/{MANIFEST_PATH}")
    return _summarize(job, manifest=manifest, already_finished=False, start=start)


def _lock(job: TranslateJob) -> contextlib.AbstractContextManager[bool]:
    return lock_folder(f"{job.output}/{JOB_FOLDER}", name=LOCK_FILE, remedy="choose another folder")


def _prepare_folder(job: TranslateJob) -> None:
    """Deletes what is overwritten or will be untrue, and writes the plan."""
    if job.deleted:
        delete([f"{job.output}/{path}" for path in job.deleted])
    if not job.has_plan:
        write_json(job.plan, output=job.output, path=PLAN_PATH, run_id=job.run_id)
    if MANIFEST_PATH in job.existing:
        if job.options.retry_failed and job.manifest is not None:
            write_json(job.manifest, output=job.output, path=RETRY_PATH, run_id=job.run_id)
        delete([f"{job.output}/{MANIFEST_PATH}"])


def _build(
    pipeline: beam.Pipeline,
    job: TranslateJob,
    *,
    load_translator: Callable[[], TranslatorLike],
    is_alone: bool,
) -> beam.Pipeline:
    """Puts the steps of a job into a pipeline."""
    options = job.options
    translate_units = TranslateUnits(
        load_translator=load_translator,
        options=UnitOptions(
            output=job.output,
            table=TableOptions(
                text_columns=job.found.text_columns,
                has_n_best=job.decoding.n_best > 1,
                cells=options.cells,
            ),
            compression=options.compression,
            on_bad_file=options.on_bad_file,
            run_id=job.run_id,
            plan_digest=job.plan_digest,
            retry_failed=options.retry_failed,
        ),
    )
    # The reasons of this run's bad files, which the plan of an earlier run may word otherwise.
    plan = {**job.plan, "bad_files": job.found.bad_files}
    write_manifest = _WriteManifest(
        plan=plan,
        bad_rows=job.found.bad_rows,
        output=job.output,
        max_failed=options.max_failed,
        run_id=job.run_id,
        is_alone=is_alone,
    )
    _ = (
        pipeline
        | "Input files" >> beam.Create(job.found.files)
        | "Plan units" >> PlanUnits(unit_rows=options.unit_rows)
        | "Spread units" >> beam.Reshuffle()
        | "Translate units" >> translate_units
        | "Gather statistics" >> beam.combiners.ToList()
        | "Write manifest" >> beam.ParDo(write_manifest)
    )
    return pipeline


def _with_workers(arguments: Sequence[str], *, workers: int) -> list[str]:
    """Gives a job that runs here so many threads, if no argument says how many."""
    if has_direct_workers(arguments) and local_workers(arguments) is None:
        arguments = [*arguments, f"--direct_num_workers={workers}"]
    return with_local_defaults(arguments)


def _summarize(
    job: TranslateJob, *, manifest: Any, already_finished: bool, start: float
) -> TranslateSummary:
    return TranslateSummary(
        manifest=manifest,
        output=job.options.output,
        already_finished=already_finished,
        seconds=time.monotonic() - start,
        max_failed=job.options.max_failed,
    )


def translate_parquet(
    *,
    options: TranslateOptions,
    load_translator: Callable[[], TranslatorLike],
    model_fingerprint: str,
    decoding: Decoding,
    engine: Mapping[str, Any] | None = None,
    beam_arguments: Sequence[str] = (),
) -> TranslateSummary:
    """Translates Parquet files; called again after a crash, it does what is missing.

    Every input file becomes files of the same relative path, `x/part.parquet` for example
    `x/part-00007-of-00120.parquet`, with all its rows, columns and types in order and columns
    added; see `plan_translation` and `run_translation`.
    """
    job = plan_translation(
        options=options,
        model_fingerprint=model_fingerprint,
        decoding=decoding,
        engine=engine,
        beam_arguments=beam_arguments,
    )
    return run_translation(job, load_translator=load_translator)
