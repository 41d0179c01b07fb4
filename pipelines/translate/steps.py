"""The steps of a translation job in a Beam pipeline."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from tt.model.engines.translator import Translator
from tt.pipelines.inference.transforms import ModelDoFn
from tt.pipelines.jobs.running import AddUp
from tt.pipelines.runners.transforms import Spread, check_worker, versions_here
from tt.pipelines.tables.lakehouse import OutputTable
from tt.pipelines.translate.counting import count_rows, read_files
from tt.pipelines.translate.deduplication import TranslateSentences
from tt.pipelines.translate.last_step import write_manifest
from tt.pipelines.translate.manifest import SkippedFile, UnitStatistics, UnitTotals
from tt.pipelines.translate.plan import InputFile, TableUnit
from tt.pipelines.translate.unit_records import UnitOptions
from tt.pipelines.translate.unit_rows import cut_file, open_run
from tt.pipelines.translate.units import finish_unit


def add_steps(
    pipeline: beam.Pipeline,
    *,
    options: UnitOptions,
    load_translator: Callable[[], Translator],
    hints: Mapping[str, Any],
    is_exclusive: bool,
    output_table: OutputTable | None,
    sentence_groups: int = 0,
    unread_files: Mapping[str, int],
) -> None:
    """Add the steps of a translation job to a pipeline.

    Args:
      pipeline: The pipeline.
      options: The options for translating units.
      load_translator: Returns the translator; see `ModelDoFn`.
      hints: The resource hints of workers that translate.
      is_exclusive: Whether no other run can use the output folder.
      output_table: The table to which the output files are added; None for a folder.
      sentence_groups: The number of groups of sentences to translate before the units; 0 to
        translate the sentences of each unit with the unit.
      unread_files: The number of files in input folders that are no tables, by ending.
    """
    files = (
        pipeline
        | "Output folder" >> beam.Create([options.output])
        | "Check worker" >> beam.Map(check_worker, versions=versions_here())
        | "Input files" >> beam.FlatMap(read_files, options=options)
        | "Spread files" >> Spread(key=operator.attrgetter("relative_path"))
        | "Count rows" >> beam.Map(count_rows, options=options)
    )
    runs = (
        files
        | "Good files" >> beam.Filter(lambda file: isinstance(file, InputFile))
        | "Plan units" >> beam.FlatMap(cut_file, options=options)
        | "Spread units" >> beam.Reshuffle()
    )
    side_inputs = []
    if sentence_groups:
        sentences = TranslateSentences(
            load_translator, options=options, groups=sentence_groups, hints=hints
        )
        done = runs | "Translate sentences" >> sentences
        side_inputs = [beam.pvalue.AsSingleton(done)]  # the units wait for it
    translate = beam.ParDo(_TranslateRun(load_translator, options), *side_inputs)
    units = runs | "Translate units" >> translate.with_resource_hints(**hints)
    bad_files = files | "Bad files" >> beam.Filter(lambda file: isinstance(file, SkippedFile))
    _ = (
        (units, bad_files)
        | "Units and bad files" >> beam.Flatten()
        | "Add up statistics" >> beam.CombineGlobally(AddUp(UnitTotals))
        | "Write manifest"
        >> beam.Map(
            write_manifest,
            options=options,
            is_exclusive=is_exclusive,
            table=output_table,
            unread_files=unread_files,
        )
    )


class _TranslateRun(ModelDoFn):
    """Translates a run of units, and yields the statistics of each unit.

    A finished unit is not translated again. If two workers translate the same unit at the same
    time, they write the same file.
    """

    def __init__(self, load_translator: Callable[[], Translator], options: UnitOptions) -> None:
        super().__init__(load_translator)
        self._options = options
        self._rows_unreadable = Metrics.counter("tt", "rows_unreadable")
        self._unit_msec = Metrics.distribution("tt", "unit_msec")

    def process(self, run: list[TableUnit], after: None = None) -> Iterator[UnitStatistics]:
        with open_run(run, options=self._options) as reader:
            for unit in run:
                start = time.monotonic()
                found = finish_unit(
                    unit, options=self._options, load_translator=self.acquire, reader=reader
                )
                if not found.was_reused:
                    self._count(found, seconds=time.monotonic() - start)
                yield found

    def _count(self, found: UnitStatistics, *, seconds: float) -> None:
        self._unit_msec.update(round(1000 * seconds))
        self._rows_unreadable.inc(found.skipped_rows)
        for column, statuses in found.rows_by_status.items():
            self.count_rows(statuses=statuses, flags=found.rows_by_flag[column])
