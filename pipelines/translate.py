"""The Parquet job: the rows of Parquet files, with their translations beside them.

    input files | PlanUnits | Reshuffle | TranslateUnits | manifest

A unit of work is a run of consecutive rows of one file and becomes one output file, which is
there whole or not at all. `_tt/plan.json` is written before the first of them, so that the same
command again does only the missing units and another command is refused; `_tt/manifest.json` is
written after the last.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from model.errors import UserError
from model.translation import TranslatorLike
from pipelines import parquet
from pipelines.cells import STATUSES, CellOptions, translate_cells
from pipelines.files import delete, list_folder, make_folder, open_binary, write_whole
from pipelines.model_loading import ModelLoader
from pipelines.runner import make_pipeline, run_pipeline
from pipelines.translation_plan import (
    COMPRESSIONS,
    JOB_FOLDER,
    MANIFEST_FILE,
    PLAN_FILE,
    SCORE,
    STATUS,
    TEMPORARY_SUFFIX,
    TRANSLATION,
    InputFile,
    TranslateOptions,
    Unit,
    UnitStatistics,
    check_place,
    check_plan,
    inspect_input,
    make_manifest,
    make_plan,
    plan_units,
    read_json,
    write_json,
)

__all__ = [
    "ModelLoader",
    "PlanUnits",
    "TranslateOptions",
    "TranslateSummary",
    "TranslateUnits",
    "translate_parquet",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSummary:
    """What a finished job did.

    Attributes:
      files: Input files.
      rows: Rows in, which are also the rows out.
      units: Output files.
      rows_by_status: Rows of each of the STATUSES.
      output: The folder, as given.
      already_finished: Whether an earlier run had done everything.
      reused_units: Output files that were there before this run.
    """

    files: int
    rows: int
    units: int
    rows_by_status: dict[str, int]
    output: str
    already_finished: bool
    reused_units: int


def translate_table(
    table: pa.Table, *, text_column: str, translator: TranslatorLike, max_source_tokens: int
) -> pa.Table:
    """Returns the table with `translation`, `translation_score` and `translation_status` added."""
    cells = parquet.cell_bytes(table.column(text_column))
    found = translate_cells(
        cells, translator=translator, options=CellOptions(max_source_tokens=max_source_tokens)
    )
    added = found.cells
    return (
        table.append_column(TRANSLATION, pa.array([c.translation for c in added], pa.string()))
        .append_column(SCORE, pa.array([c.score for c in added], pa.float32()))
        .append_column(STATUS, pa.array([c.status for c in added], pa.string()))
    )


def count_statuses(statuses: pa.ChunkedArray) -> dict[str, int]:
    """Counts the rows of each status, those with none included."""
    counts = collections.Counter(statuses.to_pylist())
    return {status: counts[status] for status in STATUSES}


def finished_statuses(*, path: str, rows: int) -> dict[str, int] | None:
    """Counts the statuses of a finished output; None if it is not whole, so that it is redone."""
    try:
        with open_binary(path) as handle:
            statuses = pq.ParquetFile(handle).read(columns=[STATUS]).column(STATUS)
    except (OSError, KeyError, pa.ArrowException):
        return None
    counts = count_statuses(statuses)
    return counts if sum(counts.values()) == len(statuses) == rows else None


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class PlanUnits(beam.PTransform):
    """Input files to the units of work that they are cut into.

    Attributes:
      unit_rows: The most rows of a unit.
      finished_outputs: The output paths that were there when the run began.
    """

    unit_rows: int
    finished_outputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.unit_rows < 1:
            raise ValueError(f"unit_rows must be at least 1. Received: {self.unit_rows}")

    def expand(self, files: beam.PCollection[InputFile]) -> beam.PCollection[Unit]:
        """Wires the transform."""
        plan = _PlanUnits(unit_rows=self.unit_rows, finished_outputs=self.finished_outputs)
        return files | "Cut into units" >> beam.ParDo(plan)


class _PlanUnits(beam.DoFn):
    def __init__(self, *, unit_rows: int, finished_outputs: frozenset[str]) -> None:
        self._unit_rows = unit_rows
        self._finished_outputs = finished_outputs

    def process(self, file: InputFile) -> Iterator[Unit]:
        for unit in plan_units(file, unit_rows=self._unit_rows):
            was_finished = unit.output_path in self._finished_outputs
            yield dataclasses.replace(unit, was_finished=was_finished)


@dataclasses.dataclass(kw_only=True, eq=False)
class TranslateUnits(beam.PTransform):
    """Units to output files; one statistics element for each.

    A unit whose output is there already is kept. Two copies of a unit at once write the same
    file.

    Attributes:
      load_translator: Called once in each worker process; must pickle.
      output: The output folder.
      text_column: The column to translate.
      max_source_tokens: The most ids of a text, BOS and EOS counted.
      compression: Of the output files.
    """

    load_translator: Callable[[], TranslatorLike]
    output: str
    text_column: str
    max_source_tokens: int
    compression: str

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression must be of {COMPRESSIONS}. Received: {self.compression}")

    def expand(self, units: beam.PCollection[Unit]) -> beam.PCollection[UnitStatistics]:
        """Wires the transform."""
        return units | "Translate" >> beam.ParDo(_TranslateUnit(config=self, model=Shared()))


class _TranslateUnit(beam.DoFn):
    def __init__(self, *, config: TranslateUnits, model: Shared) -> None:
        self._load_translator = config.load_translator
        self._output = config.output
        self._text_column = config.text_column
        self._max_source_tokens = config.max_source_tokens
        self._compression = config.compression
        self._model = model
        self._rows = {status: Metrics.counter("tt", f"rows_{status}") for status in STATUSES}
        self._translate_msec = Metrics.distribution("tt", "translate_msec")

    def setup(self) -> None:
        self._translator: TranslatorLike = self._model.acquire(self._load_translator)

    def process(self, unit: Unit) -> Iterator[UnitStatistics]:
        path = f"{self._output}/{unit.output_path}"
        counts = finished_statuses(path=path, rows=unit.rows) if FileSystems.exists(path) else None
        was_reused = unit.was_finished and counts is not None
        if counts is None:
            counts = self._write_unit(unit, path=path)
            for status, rows in counts.items():
                self._rows[status].inc(rows)
        yield UnitStatistics(
            relative_path=unit.relative_path, rows_by_status=counts, was_reused=was_reused
        )

    def _write_unit(self, unit: Unit, *, path: str) -> dict[str, int]:
        table = parquet.read_rows(path=unit.path, first_row=unit.first_row, rows=unit.rows)
        start = time.monotonic()
        table = translate_table(
            table,
            text_column=self._text_column,
            translator=self._translator,
            max_source_tokens=self._max_source_tokens,
        )
        self._translate_msec.update(round(1000 * (time.monotonic() - start)))
        counts = count_statuses(table.column(STATUS))
        if not unit.rows == table.num_rows == sum(counts.values()):
            raise RuntimeError(f"{path} would have {counts} rows of the unit's {unit.rows}")
        make_folder(path.rpartition("/")[0])
        with write_whole(path, temporary_folder=f"{self._output}/{JOB_FOLDER}") as handle:
            pq.write_table(table, handle, compression=self._compression)
        return counts


class _WriteManifest(beam.DoFn):
    """The job's last step; running it twice writes the same."""

    def __init__(self, *, plan: dict[str, Any], output: str) -> None:
        self._plan = plan
        self._output = output

    def process(self, statistics: list[UnitStatistics]) -> None:
        manifest = make_manifest(plan=self._plan, statistics=statistics)
        write_json(manifest, output=self._output, name=MANIFEST_FILE)
        # What a killed run left; nothing that is still wanted, since all units are finished.
        leftovers = [
            path
            for path in list_folder(f"{self._output}/{JOB_FOLDER}")
            if path.endswith(TEMPORARY_SUFFIX)
        ]
        if leftovers:
            delete(leftovers)


def translate_parquet(
    *,
    options: TranslateOptions,
    load_translator: Callable[[], TranslatorLike],
    model_fingerprint: str,
    decoding: Mapping[str, Any],
    beam_arguments: Sequence[str] = (),
) -> TranslateSummary:
    """Translates Parquet files; called again after a crash, it does what is missing.

    Every input file becomes files of the same relative path, `x/part.parquet` for example
    `x/part-00007-of-00120.parquet`, with all its rows, columns and types in order and three
    columns added: `translation`, `translation_score` (the log-probability) and
    `translation_status` (one of STATUSES).

    Args:
      options: What to translate, and where to.
      load_translator: Makes the model in a worker, such as a `ModelLoader`.
      model_fingerprint: Of the exported model; outputs of another one are not continued.
      decoding: The decoding options, which are part of the plan.
      beam_arguments: Beam's own flags.

    Raises:
      UserError: The input or the output folder does not fit. Nothing has been written then.
    """
    pipeline = make_pipeline(beam_arguments)  # first: it gives the file systems their options
    output = parquet.normalize_path(options.output)
    check_place(options, output=output)
    files, text_column = inspect_input(options)
    plan = make_plan(
        files=files,
        options=options,
        text_column=text_column,
        model_fingerprint=model_fingerprint,
        decoding=decoding,
    )
    existing = [path.removeprefix(f"{output}/") for path in list_folder(output)]
    if not check_plan(plan, output=output, existing=existing):
        try:
            write_json(plan, output=output, name=PLAN_FILE)
        except OSError as error:
            raise UserError(f"cannot write into {options.output}: {error}") from error
    planned = {
        unit.output_path for file in files for unit in plan_units(file, unit_rows=options.unit_rows)
    }
    finished = planned.intersection(existing)
    manifest_path = f"{output}/{JOB_FOLDER}/{MANIFEST_FILE}"
    if f"{JOB_FOLDER}/{MANIFEST_FILE}" in existing:
        if finished == planned:
            manifest = read_json(manifest_path)
            return _summary(manifest, options=options, already_finished=True)
        delete([manifest_path])  # outputs are missing: it is no longer true

    translate_units = TranslateUnits(
        load_translator=load_translator,
        output=output,
        text_column=text_column,
        max_source_tokens=options.max_source_tokens,
        compression=options.compression,
    )
    plan_transform = PlanUnits(unit_rows=options.unit_rows, finished_outputs=frozenset(finished))
    _ = (
        pipeline
        | "Input files" >> beam.Create(files)
        | "Plan units" >> plan_transform
        | "Spread units" >> beam.Reshuffle()
        | "Translate units" >> translate_units
        | "Gather statistics" >> beam.combiners.ToList()
        | "Write manifest" >> beam.ParDo(_WriteManifest(plan=plan, output=output))
    )
    run_pipeline(pipeline)
    return _summary(read_json(manifest_path), options=options, already_finished=False)


def _summary(
    manifest: dict[str, Any], *, options: TranslateOptions, already_finished: bool
) -> TranslateSummary:
    return TranslateSummary(
        files=len(manifest["files"]),
        rows=manifest["rows"],
        units=manifest["units"],
        rows_by_status=manifest["rows_by_status"],
        output=options.output,
        already_finished=already_finished,
        reused_units=manifest["units"] if already_finished else manifest["reused_units"],
    )
