"""The job on tables: the rows of files, with their translations beside them.

    ReadInput | Spread | PlanUnits | Reshuffle | TranslateUnits | WriteManifest

A unit of work is a run of consecutive rows of one file. It becomes one output file, which is there
whole or not at all. `_tt/plan.json` is written before the first of them, so that the same command
again does only the missing units and another command is refused; `_tt/manifest.json` is written
after the last. What grows with the input is in files of `_tt/`, where workers read it, and not in
the pipeline that a runner is sent.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from tt.model.engines.machine import count_gpus
from tt.model.engines.translator import Translator
from tt.model.errors import UserError, counted
from tt.model.inspection.blocks import Facts
from tt.pipelines.inference.model_loading import (
    FoundModel,
    ModelRequest,
    choose_engine,
    find_model,
)
from tt.pipelines.inference.models_for_workers import ModelCopies, make_loader, plan_copies
from tt.pipelines.inference.text_model import NamedGlossary
from tt.pipelines.inference.transforms import TranslatorDoFn
from tt.pipelines.jobs.folders import output_error
from tt.pipelines.jobs.progress import Progress
from tt.pipelines.jobs.running import AddUp, claim_folder, run_facts
from tt.pipelines.runners import dataflow, flink
from tt.pipelines.runners.beam_options import set_file_system_options, with_local_defaults
from tt.pipelines.runners.formatting import megabytes
from tt.pipelines.runners.transforms import Spread, check_worker, versions_here
from tt.pipelines.runners.workers import are_elsewhere, check_job, count_slots
from tt.pipelines.storage.files import delete
from tt.pipelines.storage.listing import list_files
from tt.pipelines.storage.object_stores import look_first
from tt.pipelines.storage.paths import JOB_FOLDER, is_local, normalize_path
from tt.pipelines.texts.languages import SAMPLE, describe_other_texts
from tt.pipelines.texts.limits import Limits
from tt.pipelines.translate import inputs, job_folder
from tt.pipelines.translate import plan as plans
from tt.pipelines.translate.counting import count_rows, find_unit_rows, read_files
from tt.pipelines.translate.inputs import FoundInput
from tt.pipelines.translate.job_folder import write_json
from tt.pipelines.translate.manifest import (
    SkippedFile,
    TranslateSummary,
    UnitStatistics,
    UnitTotals,
)
from tt.pipelines.translate.options import TranslateOptions
from tt.pipelines.translate.plan import InputFile, TableUnit, planned_outputs
from tt.pipelines.translate.table import TableOptions
from tt.pipelines.translate.units import UnitOptions, cut_file, finish_unit, open_run

JOB = "translate-batch"  # the job's name where other jobs run as well
STEPS = (
    "Output folder", "Check worker", "Input files", "Spread files", "Count rows", "Good files",
    "Plan units", "Spread units", "Translate units", "Bad files", "Units and bad files",
    "Add up statistics", "Write manifest",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateRequest(ModelRequest):
    """A translation of tables that is asked for.

    Every input file becomes files of the same relative path, `x/part.csv` for example
    `x/part-00007-of-00120.parquet`, with all its rows, columns and types in order and columns
    added. After a crash the same request does what is missing.

    >>> from tt.pipelines.translate.job import TranslateOptions, TranslateRequest
    >>> options = TranslateOptions(input=("in.parquet",), output="translated")
    >>> TranslateRequest(options=options, model="run").plan().run().rows  # doctest: +SKIP
    100
    """

    options: TranslateOptions  # what to translate, and where to
    # Translations that this machine computes at once. By default one a core, or one a GPU.
    copies: int | None = None
    accelerator: str | None = None  # GPUs of each worker of Dataflow that translates, "nvidia-l4"

    def plan(
        self,
        report: Callable[[str], object] = lambda line: None,
        *,
        found: FoundInput | None = None,
    ) -> TranslateJob:
        """Looks at the model, the input and the output folder; writes nothing there.

        Args:
          report: Takes lines of what takes long: copying a model of another machine to the cache.
          found: What `inspect_input` has found, where that was asked before.

        Raises:
          UserError: An option, the model, the input or the output folder does not fit.
        """
        options = self.options
        plan_copies(self.copies, beam_arguments=self.beam)
        places = {"`input`": options.input, "`output`": [options.output]}
        for what, path in (("`model`", self.model), ("`glossary`", options.texts.glossary)):
            if isinstance(path, str):
                places[what] = [path]
        notices = check_job(self.beam, places=places)
        set_file_system_options(self.beam)
        if remote := [path for each in places.values() for path in each if not is_local(path)]:
            report(f"Looking at {', '.join(remote)}")
            look_first(remote)
        model = find_model(self.model, engine=self.engine, report=report)
        output = normalize_path(options.output)
        inputs.check_place(options, output=output)
        if found is None:
            found = inputs.inspect_input(options, has_n_best=self.decoding.n_best > 1)
        engine = choose_engine(model.folder, self.engine)
        texts = options.texts.for_model(model.data)
        glossary = NamedGlossary.of(texts.glossary)
        limits = Limits.of(options.texts.name_languages(model.about))
        plan = plans.make_plan(
            files=found.files,
            bad_files={file.relative_path: file.reason for file in found.skipped},
            options=dataclasses.replace(options, texts=texts, text_columns=found.text_columns),
            model=model,
            decoding=self.decoding,
            limits=limits,
            glossary=glossary,
        )
        inputs.check_matches(options.input, output=output, plan=plan)
        job = TranslateJob(
            request=dataclasses.replace(self, engine=engine),
            output=output,
            found=found,
            model=model,
            table=TableOptions(
                fields=found.text_columns,
                has_n_best=self.decoding.n_best > 1,
                texts=texts,
                glossary=glossary,
                limits=limits,
                language_column=options.target_language_column,
            ),
            plan=plan,
            run_id=uuid.uuid4().hex,
        ).with_folder()
        notices += [*found.notices, *(f"skipped: {file.reason}" for file in found.skipped)]
        return dataclasses.replace(job, notices=(*notices, *job.check_start()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateJob:
    """What a run will do; nothing has been written yet."""

    request: TranslateRequest
    output: str  # the output folder, absolute or with its scheme
    found: FoundInput
    model: FoundModel
    table: TableOptions
    plan: dict[str, Any]  # the content of `plan.json`
    run_id: str
    has_plan: bool = False  # whether the folder holds the plan already
    existing: frozenset[str] = frozenset()  # files of the folder that are to stay, relative to it
    deleted: tuple[str, ...] = ()  # files of the folder that are deleted first, in this order
    manifest: dict[str, Any] | None = None  # the manifest of a finished folder, else None
    notices: tuple[str, ...] = ()  # lines that warn the user

    @property
    def rows(self) -> int:
        """Rows of all units, as far as they are known before the job counts them."""
        return sum(file.rows or 0 for file in self.found.files)

    @functools.cached_property
    def plan_digest(self) -> str:
        """Tells units of this plan from those of any other."""
        return plans.plan_digest(self.plan)

    @functools.cached_property
    def copies(self) -> ModelCopies:
        """How many translations run at once; imports TensorFlow, which knows the GPUs."""
        request = self.request
        has_tensorflow = isinstance(request.model, str) and request.engine.name == "tensorflow"
        gpus = count_gpus() if has_tensorflow else 0
        return plan_copies(request.copies, beam_arguments=request.beam, gpus=gpus)

    @property
    def arguments(self) -> list[str]:
        """Beam's own flags, with those that the job adds."""
        gpus = self.request.accelerator
        arguments = with_local_defaults(self.request.beam, workers=self.copies.copies or 1)
        arguments = dataflow.with_settings(arguments, job=JOB, shares_model=True, accelerator=gpus)
        return flink.with_settings(arguments, job=JOB, shares_model=True)

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to do."""
        if self.manifest is None:
            return False
        has_bad_units = bool(self.manifest["failed_rows"] or self.manifest["skipped_units"])
        return not (self.request.options.retry_failed and has_bad_units)

    def describe(self) -> list[Any]:
        """Return the blocks of a dry run, which say what a run would do.

        Raises:
          UserError: Beam cannot take its flags.
        """
        options, files = self.request.options, self.found.files
        uncounted = sum(file.rows is None for file in files)
        more = f"; the job counts those of {counted(uncounted, 'file')}" if uncounted else ""
        units = len(plans.planned_rows(self.plan))
        size = megabytes(sum(file.size for file in files))
        run = run_facts(
            steps=STEPS,
            arguments=self.arguments,
            output=options.output,
            begun="its finished units" if self.has_plan else "",
            is_finished=self.is_finished,
        )
        facts = [
            ("input", f"{counted(len(files), 'file')}, {counted(self.rows, 'row')}{more}, {size}"),
            ("columns", ", ".join(self.found.text_columns)),
            ("units", f"{units:,} of up to {counted(options.unit_rows, 'row')}{more}"),
        ]
        return [Facts([*facts, *run])]

    def check_start(self) -> list[str]:
        """Checks what matters only if there is something to do; returns warnings.

        Raises:
          UserError: The engine is not installed, or the model is not for it or the languages.
        """
        if self.is_finished:
            return []
        notices = job_folder.compare_versions(self.plan) if self.has_plan else []
        request, data = self.request, self.model.data
        notices += self.model.check(
            name=request.model,
            decoding=request.decoding,
            engine=request.engine,
            texts=request.options.texts,
            has_target=request.options.target_language_column is None,
            is_here=not are_elsewhere(request.beam),
        )
        if self.model.folder is not None:
            columns = inputs.first_texts(self.found, count=SAMPLE)
            for name, texts in columns.items():
                said = describe_other_texts(texts, data=data)
                notices += [f"{name}: {line}" if len(columns) > 1 else line for line in said]
        return notices

    def run(
        self,
        progress: Callable[[Progress], object] | None = None,
        *,
        start: float | None = None,
        report: Callable[[str], object] = lambda line: None,
        detach: bool = False,
    ) -> TranslateSummary:
        """Does what is missing.

        Args:
          progress: Called in a thread now and then.
          start: The `time.monotonic()` from which the summary counts seconds; None is now.
          report: Takes lines of the runner's job.
          detach: Whether to leave the job to its runner as soon as that has it.

        Raises:
          UserError: What a run alone sees: a damaged file, a full disk, an earlier job under way.
          KeyboardInterrupt: The user wants the end; the job is cancelled.
          JobHandedOver: The runner has the job, or wrote it down for another program to start.
        """
        start = time.monotonic() if start is None else start
        if self.is_finished:
            job_folder.clean_up(self.output, existing=self.existing)
            return _summarize(self, self.manifest, already_finished=True, start=start)
        with claim_folder(
            self.output, folder=JOB_FOLDER, arguments=self.arguments, detach=detach
        ) as claimed:
            try:
                job = self.with_folder()  # another run may have worked there until just now
                if job.is_finished:
                    return _summarize(job, job.manifest, already_finished=True, start=start)
                # They may be as large as the input.
                if job.existing and (claimed.is_alone or not job.has_plan):
                    job_folder.delete_folders_of_runs(self.output)
                _prepare_folder(job)
            except OSError as error:
                raise output_error(self.request.options.output, error) from error
            job._build(
                claimed.pipeline,
                is_alone=claimed.is_alone,
                slots=count_slots(claimed.arguments),
            )
            claimed.run(
                mark=job_folder.PLAN_PATH, report=report, watch=job.watch(), progress=progress
            )
        manifest = job_folder.read_json(f"{self.output}/{job_folder.MANIFEST_PATH}")
        return _summarize(self, manifest, already_finished=False, start=start)

    def with_folder(self) -> TranslateJob:
        """Returns this job with what its output folder holds now.

        Raises:
          UserError: The folder holds another job or something else, or nothing to retry.
        """
        options, output = self.request.options, self.output
        sizes = {file.path.removeprefix(f"{output}/"): file.size for file in list_files(output)}
        existing, deleted = set(sizes), list[str]()
        if options.overwrite:
            deleted = job_folder.find_overwritten(self.plan, output=output, existing=existing)
            existing -= set(deleted)
        standing = job_folder.check_plan(self.plan, output=output, existing=existing)
        manifest = None  # without a plan nothing tells whose manifest it is
        if standing:
            manifest = job_folder.find_manifest(
                output=output, sizes={path: sizes[path] for path in existing}
            )
        if options.retry_failed and manifest is None and job_folder.RETRY_PATH not in existing:
            raise UserError(
                f"{options.output} is not finished, so there is nothing to retry yet: run the "
                "same command without `retry_failed` first"
            )
        return dataclasses.replace(
            self,
            plan=standing or {**self.plan, "versions": plans.installed_versions()},
            has_plan=bool(standing),
            existing=frozenset(existing),
            deleted=tuple(deleted),
            manifest=manifest,
        )

    def watch(self) -> job_folder.TranslateWatch:
        """Return what finds out the progress of a run."""
        options = self.request.options
        place = {"output": self.output, "plan_digest": self.plan_digest}
        planned = plans.planned_rows(self.plan).items()
        return job_folder.TranslateWatch(
            output=self.output,
            unit_rows={job_folder.statistics_path(path): count for path, count in planned},
            find_unit_rows=functools.partial(find_unit_rows, unit_rows=options.unit_rows, **place),
            uncounted=[file.relative_path for file in self.found.files if file.rows is None],
            is_retry=options.retry_failed,
            limit=options.limit,
        )

    def _build(self, pipeline: beam.Pipeline, *, is_alone: bool, slots: int = 1) -> None:
        request, options, digest = self.request, self.request.options, self.plan_digest
        unit_options = UnitOptions(
            output=self.output,
            asked=options,
            table=self.table,
            run_id=self.run_id,
            plan_digest=digest,
            has_others=len(self.plan["input"]) + len(self.found.skipped) > 1,
            most_at_once=plans.units_at_once(len(planned_outputs(self.plan)), slots=slots),
        )
        hints = dataflow.translating_hints(
            request.beam, model_bytes=lambda: self.model.size, accelerator=request.accelerator
        )
        load_translator = make_loader(
            request.model,
            found=self.model,
            decoding=request.decoding,
            engine=request.engine,
            threads=self.copies.threads,
            place=job_folder.model_place(self.output, plan_digest=digest),
            beam_arguments=request.beam,
        )
        files = (
            pipeline
            | "Output folder" >> beam.Create([self.output])
            | "Check worker" >> beam.Map(check_worker, versions=versions_here())
            | "Input files" >> beam.FlatMap(read_files, options=unit_options)
            | "Spread files" >> Spread(key=operator.attrgetter("relative_path"))
            | "Count rows" >> beam.Map(count_rows, options=unit_options)
        )
        translate = beam.ParDo(_TranslateRun(load_translator, unit_options))
        units = (
            files
            | "Good files" >> beam.Filter(lambda file: isinstance(file, InputFile))
            | "Plan units" >> beam.FlatMap(cut_file, options=unit_options)
            | "Spread units" >> beam.Reshuffle()
            | "Translate units" >> translate.with_resource_hints(**hints)
        )
        bad_files = files | "Bad files" >> beam.Filter(lambda file: isinstance(file, SkippedFile))
        _ = (
            (units, bad_files)
            | "Units and bad files" >> beam.Flatten()
            | "Add up statistics" >> beam.CombineGlobally(AddUp(UnitTotals))
            | "Write manifest"
            >> beam.Map(
                job_folder.write_manifest,
                output=self.output,
                max_failed=options.max_failed,
                run_id=self.run_id,
                digest=digest,
                is_alone=is_alone,
            )
        )


def _prepare_folder(job: TranslateJob) -> None:
    """Delete what is overwritten or will be untrue, and write the plan."""
    run = {"output": job.output, "run_id": job.run_id}
    delete([f"{job.output}/{path}" for path in job.deleted])
    if not job.has_plan:
        write_json(job.plan, path=job_folder.PLAN_PATH, **run)
    files: list[InputFile | SkippedFile] = [*job.found.files, *job.found.skipped]
    job_folder.write_input(files, plan_digest=job.plan_digest, **run)
    if job_folder.MANIFEST_PATH in job.existing:
        if job.request.options.retry_failed and job.manifest is not None:
            write_json(job.manifest, path=job_folder.RETRY_PATH, **run)
        delete([f"{job.output}/{job_folder.MANIFEST_PATH}"])


def _summarize(
    job: TranslateJob, manifest: Any, *, already_finished: bool, start: float
) -> TranslateSummary:
    return TranslateSummary(
        manifest=manifest,
        already_finished=already_finished,
        seconds=time.monotonic() - start,
        max_failed=job.request.options.max_failed,
    )


class _TranslateRun(TranslatorDoFn):
    """Does the units of a run; yields the statistics of each.

    Keeps a finished unit; two copies of a unit at once write the same file.
    """

    def __init__(self, load_translator: Callable[[], Translator], options: UnitOptions) -> None:
        super().__init__(load_translator)
        self._options = options
        self._rows_skipped = Metrics.counter("tt", "rows_skipped")
        self._unit_msec = Metrics.distribution("tt", "unit_msec")

    def setup(self) -> None:
        """Leave the model to the first unit that needs it."""

    def process(self, run: list[TableUnit]) -> Iterator[UnitStatistics]:
        with open_run(run) as reader:
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
        self._rows_skipped.inc(found.rows - found.rows_out)
        for column, statuses in found.rows_by_status.items():
            self.count_rows(statuses=statuses, flags=found.rows_by_flag[column])
