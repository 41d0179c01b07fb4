"""The transforms of the Parquet job: they only wire."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator

import apache_beam as beam
from apache_beam.metrics import Metrics

from model.engines.translator import Translator
from pipelines.inference.transforms import TranslatorDoFn
from pipelines.runners.transforms import CheckWorker
from pipelines.storage.files import delete
from pipelines.storage.listing import list_files
from pipelines.storage.paths import JOB_FOLDER
from pipelines.tables.finding import COMPRESSIONS
from pipelines.tables.forward import ForwardReader
from pipelines.translate import job_folder
from pipelines.translate.counting import count_limited, count_rows
from pipelines.translate.job_folder import SkippedFile, write_json
from pipelines.translate.manifest import UnitStatistics, UnitTotals, make_manifest
from pipelines.translate.options import ON_BAD_FILE
from pipelines.translate.plan import InputFile, TableUnit, plan_digest
from pipelines.translate.units import (
    UnitOptions,
    cut_file,
    finish_unit,
    open_run,
)


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class ReadInput(beam.PTransform):
    """The input files of a run, read from `_tt/input.jsonl`: the job does not carry them.

    With a limit their rows are counted here, file by file, until there are enough.
    """

    options: UnitOptions
    limit: int | None = None

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[InputFile]:
        """Wires the transform."""
        return (
            begin
            | "Output folder" >> beam.Create([self.options.output])
            | "Check worker" >> CheckWorker()
            | "Read" >> beam.FlatMap(_read_input, options=self.options, limit=self.limit)
        )


def _read_input(
    output: str, *, options: UnitOptions, limit: int | None
) -> Iterator[InputFile | SkippedFile]:
    files = job_folder.read_input(output, plan_digest=options.plan_digest)
    found = (file for file in files if isinstance(file, InputFile))
    yield from found if limit is None else count_limited(found, limit=limit, options=options)


@dataclasses.dataclass(kw_only=True, eq=False)
class CountRows(beam.PTransform):
    """Input files with their rows counted, and the files that are bad."""

    options: UnitOptions

    def expand(
        self, files: beam.PCollection[InputFile | SkippedFile]
    ) -> tuple[beam.PCollection[InputFile], beam.PCollection[SkippedFile]]:
        """Wires the transform."""
        counted = files | "Count" >> beam.Map(count_rows, options=self.options)
        good = counted | "Good" >> beam.Filter(lambda file: isinstance(file, InputFile))
        bad = counted | "Bad" >> beam.Filter(lambda file: isinstance(file, SkippedFile))
        return good, bad


@dataclasses.dataclass(kw_only=True, eq=False)
class PlanUnits(beam.PTransform):
    """Input files to the units of work that they are cut into, in runs that are read at once.

    Rows of files that are read from their start are put where the units find them.
    """

    unit_rows: int  # the most rows of a unit
    options: UnitOptions

    def __post_init__(self) -> None:
        if self.unit_rows < 1:
            raise ValueError(f"unit_rows must be at least 1. Received: {self.unit_rows}")

    def expand(self, files: beam.PCollection[InputFile]) -> beam.PCollection[list[TableUnit]]:
        """Wires the transform."""
        return files | "Cut into units" >> beam.FlatMap(
            cut_file, unit_rows=self.unit_rows, options=self.options
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class TranslateUnits(beam.PTransform):
    """Runs of units to output files; one statistics element for each unit.

    A unit whose output is there is kept; two copies of a unit at once write the same file.
    """

    load_translator: Callable[[], Translator]  # called once in each worker process; must pickle
    options: UnitOptions

    def __post_init__(self) -> None:
        compression, on_bad_file = self.options.compression, self.options.on_bad_file
        if compression not in COMPRESSIONS:
            raise ValueError(f"compression must be of {COMPRESSIONS}. Received: {compression}")
        if on_bad_file not in ON_BAD_FILE:
            raise ValueError(f"on_bad_file must be of {ON_BAD_FILE}. Received: {on_bad_file}")

    def expand(self, runs: beam.PCollection[list[TableUnit]]) -> beam.PCollection[UnitStatistics]:
        """Wires the transform."""
        return runs | "Translate" >> beam.ParDo(_TranslateRun(self))


class _TranslateRun(TranslatorDoFn):
    def __init__(self, config: TranslateUnits) -> None:
        super().__init__(config.load_translator)
        self._planned = config.options
        self._rows_skipped = Metrics.counter("tt", "rows_skipped")
        self._unit_msec = Metrics.distribution("tt", "unit_msec")

    def setup(self) -> None:
        """Reads the glossary, and not the model: there may be nothing that needs it."""
        self._options = self._planned.with_glossary()

    def teardown(self) -> None:
        self.__dict__.pop("_options", None)
        super().teardown()

    def process(self, run: list[TableUnit]) -> Iterator[UnitStatistics]:
        with open_run(run) as reader:
            for unit in run:
                yield self._finish(unit, reader=reader)

    def _finish(self, unit: TableUnit, *, reader: ForwardReader) -> UnitStatistics:
        start = time.monotonic()
        statistics = finish_unit(
            unit, options=self._options, load_translator=self.acquire, reader=reader
        )
        if not statistics.was_reused:
            self._unit_msec.update(round(1000 * (time.monotonic() - start)))
            self._rows_skipped.inc(statistics.rows - statistics.rows_out)
            for counts in statistics.rows_by_status.values():
                self.count_statuses(counts)
            for counts in statistics.rows_by_flag.values():
                self.count_flags(counts)
        return statistics


class AddUpUnits(beam.CombineFn):
    """Statistics of units to their totals, so that the last step does not hold those of each."""

    def create_accumulator(self) -> UnitTotals:
        """Returns the totals of no unit."""
        return UnitTotals()

    def add_input(self, totals: UnitTotals, unit: UnitStatistics | SkippedFile) -> UnitTotals:
        """Adds a unit, or a bad file."""
        if isinstance(unit, SkippedFile):
            totals.bad_files[unit.relative_path] = unit.reason
        else:
            totals.add(unit)
        return totals

    def merge_accumulators(self, accumulators: Iterable[UnitTotals]) -> UnitTotals:
        """Adds up totals."""
        totals = UnitTotals()
        for each in accumulators:
            totals.merge(each)
        return totals

    def extract_output(self, totals: UnitTotals) -> UnitTotals:
        """Returns the totals of all units."""
        return totals


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteManifest(beam.DoFn):
    """The job's last step; running it twice writes the same."""

    output: str
    max_failed: float  # the share of rows that may fail or be skipped
    run_id: str  # name of this run
    plan_digest: str  # digest of its plan
    is_alone: bool  # whether no other run can be at work in the folder

    def process(self, totals: UnitTotals) -> None:
        """Write the manifest of all units.

        Raises:
          UserError: Another run has overwritten the folder, or an output file has changed.
        """
        plan = job_folder.read_json(f"{self.output}/{job_folder.PLAN_PATH}")
        if plan_digest(plan) != self.plan_digest:
            raise job_folder.overwritten_error(self.output)
        every_file = job_folder.read_input(self.output, plan_digest=self.plan_digest)
        skipped = [file for file in every_file if isinstance(file, SkippedFile)]
        skipped += [
            SkippedFile(relative_path=name, reason=reason, rows=None)
            for name, reason in sorted(totals.bad_files.items())
        ]
        manifest = make_manifest(
            plan={**plan, "bad_files": {file.relative_path: file.reason for file in skipped}},
            totals=totals,
            bad_rows={file.relative_path: file.rows for file in skipped},
            max_failed=self.max_failed,
        )
        folder = f"{self.output}/"
        listed = list_files(self.output)
        manifest["output_bytes"] = job_folder.recorded_sizes(
            manifest["output_bytes"],
            output=self.output,
            sizes={file.path.removeprefix(folder): file.size for file in listed},
        )
        files = [file for file in listed if file.path.startswith(f"{folder}{JOB_FOLDER}/")]
        # Before the manifest, after which no run looks for them any more.
        delete(
            job_folder.find_leftovers(
                files, run_id=self.run_id, is_alone=self.is_alone, now=time.time()
            )
        )
        path = job_folder.MANIFEST_PATH
        write_json(manifest, output=self.output, path=path, run_id=self.run_id)
        # After the manifest: if the runner does a step again, it may need any of it before.
        existing = [file.path.removeprefix(folder) for file in files]
        job_folder.delete_folders_of_runs(self.output, existing=existing)
        delete([file.path for file in files if file.path.endswith(f"/{job_folder.RETRY_PATH}")])
