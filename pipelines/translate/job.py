"""Translate the rows of tables in a Beam pipeline.

    Check worker | Input files | Count rows | Plan units | Translate units | Write manifest

A unit of work consists of consecutive rows of one input file. It becomes one output file, which is
either complete or absent. The job writes `_tt/plan.json` before the first unit. Therefore, a second
run of the same command translates only the missing units, and `tt` refuses a different command. The
job writes `_tt/manifest.json` after the last unit. Runners limit the size of a pipeline, so workers
read all data that grows with the input from files in `_tt/`.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import uuid
from collections.abc import Callable
from typing import Any

import apache_beam as beam

from tt.model.engines.loading import count_gpus
from tt.model.errors import UnfinishedError, checked, counted
from tt.model.imports.hub import parse_address
from tt.model.inspection.blocks import Facts
from tt.model.storage.files import delete
from tt.model.storage.paths import JOB_FOLDER, is_local, normalize_path
from tt.model.storage.stores import check_buckets
from tt.pipelines.inference.model_copies import ModelCopies, plan_copies
from tt.pipelines.inference.model_loading import FoundModel, ModelRequest, find_model
from tt.pipelines.inference.text_model import NamedGlossary
from tt.pipelines.jobs.folders import output_error
from tt.pipelines.jobs.progress import Progress
from tt.pipelines.jobs.running import claim_folder, run_facts
from tt.pipelines.memory.checking import check_memory
from tt.pipelines.memory.memory import TranslationMemory
from tt.pipelines.runners import dataflow, flink
from tt.pipelines.runners.beam_options import with_local_defaults
from tt.pipelines.runners.formatting import megabytes
from tt.pipelines.runners.workers import are_elsewhere, check_job, count_slots
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.languages import SAMPLE, describe_other_texts
from tt.pipelines.translate import inputs, job_folder
from tt.pipelines.translate import plan as plans
from tt.pipelines.translate.column_types import describe_types
from tt.pipelines.translate.counting import find_unit_rows
from tt.pipelines.translate.deduplication import (
    choose_deduplication,
    count_groups,
)
from tt.pipelines.translate.folder_state import FolderState, find_state
from tt.pipelines.translate.generations import (
    committed_digests,
    describe_changes,
    with_digests,
)
from tt.pipelines.translate.inputs import FoundInput
from tt.pipelines.translate.job_folder import write_json
from tt.pipelines.translate.lakehouse import find_places, open_output
from tt.pipelines.translate.manifest import SkippedFile, TranslateSummary
from tt.pipelines.translate.options import TranslateOptions
from tt.pipelines.translate.pairs import choose_texts
from tt.pipelines.translate.places import check_matches, check_place
from tt.pipelines.translate.plan import InputFile, planned_outputs
from tt.pipelines.translate.previous import PreviousRows
from tt.pipelines.translate.samples import first_texts
from tt.pipelines.translate.steps import add_steps
from tt.pipelines.translate.table import TableOptions
from tt.pipelines.translate.unit_records import UnitOptions, describe_newer_corrections

JOB = "translate-batch"  # the name of the job on runners
STEPS = (
    "Output folder", "Check worker", "Input files", "Spread files", "Count rows", "Good files",
    "Plan units", "Spread units", "Translate units", "Bad files", "Units and bad files",
    "Add up statistics", "Write manifest",
)  # fmt: skip


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateRequest(ModelRequest):
    """A request to translate tables.

    An input file becomes one or more output files with the same relative path: `x/part.csv` becomes
    `x/part-00007-of-00120.parquet`, for example. The output files have all rows and columns of the
    input file in their order, and additional columns. After a crash, the same request translates
    only the missing units.

    Attributes:
      options: The input, the output and other options of the job.
      copies: The number of translations that this machine computes at once; None for one per
        core, or two per GPU.
      accelerator: The GPUs of each translating worker on Dataflow, such as "nvidia-l4"; None for no
        GPU.

    >>> from tt.pipelines.translate.job import TranslateOptions, TranslateRequest
    >>> options = TranslateOptions(input=("in.parquet",), output="translated")
    >>> TranslateRequest(options=options, model="run").plan().run().rows  # doctest: +SKIP
    100
    """

    options: TranslateOptions
    copies: int | None = None
    accelerator: str | None = None

    def plan(
        self,
        report: Callable[[str], object] = lambda line: None,
        *,
        found: FoundInput | None = None,
    ) -> TranslateJob:
        """Check the model, the input and the output folder, and return the job.

        This writes nothing to the output folder.

        Args:
          report: Receives lines about slow steps, such as copying a remote model to the cache.
          found: The result of `inspect_input` if it has already been called, else None.

        Raises:
          UserError: An option, the model, the input or the output folder is invalid.
        """
        options = self.options
        plan_copies(self.copies, beam_arguments=self.beam)
        places = {"`input`": find_places(options.input), "`output`": find_places([options.output])}
        named = {"`model`": self.model, "`glossary`": options.texts.glossary}
        for name, path in {**named, "`memory`": options.memory}.items():
            if isinstance(path, str) and parse_address(path) is None:
                places[name] = [path]
        notices = check_job(self.beam, places=places)
        if remote := [path for each in places.values() for path in each if not is_local(path)]:
            report(f"Checking {', '.join(remote)}")
            check_buckets(remote)
        model = find_model(self, report=report)
        lake = open_output(options)
        output = normalize_path(options.output) if lake is None else lake.location
        check_place(options, output=output)
        check_memory(options.memory, input_paths=options.input, output=output)
        if found is None:
            found = inputs.inspect_input(options, has_n_best=self.decoding.n_best > 1, output=lake)
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
        plan |= found.facts
        check_matches(options.input, output=output, plan=plan)
        table = TableOptions.of(options, has_n_best=self.decoding.n_best > 1)
        if options.corpus is not None:
            table = dataclasses.replace(table, choice=choose_texts(found.text_columns))
        job = TranslateJob(
            request=dataclasses.replace(self, engine=model.chosen_engine),
            output=output,
            found=found,
            model=model,
            table=dataclasses.replace(
                table,
                fields=found.text_columns,
                texts=texts,
                glossary=glossary,
                limits=limits,
            ),
            requested=plan,
            plan=plan,
            run_id=uuid.uuid4().hex,
        ).with_folder()
        notices += [*found.notices, *(f"skipped: {file.reason}" for file in found.skipped)]
        notices += describe_changes(job.changes, options=options)
        # With `key` and a changed input, the job compares all rows with the memory.
        has_kept = job.has_plan or bool(job.previous_plan and not options.key)
        if has_kept and job.memory is not None:
            notices += describe_newer_corrections(
                job.memory, output=output, is_table=found.table is not None
            )
        if not job.has_plan:
            notices += describe_types(plan, saved=job.previous_plan)
        if not job.is_finished:
            is_deduplicated, reason = choose_deduplication(
                options,
                found=found,
                table=job.table,
                units=job.units_left,
                has_previous=bool(job.moved),
                beam_arguments=self.beam,
            )
            job = dataclasses.replace(job, is_deduplicated=is_deduplicated)
            notices += [reason] if reason else []
        return dataclasses.replace(job, notices=(*notices, *job.check_start()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateJob(FolderState):
    """A checked job that has not written anything yet."""

    request: TranslateRequest
    output: str  # the output folder, absolute or with its scheme
    found: FoundInput
    model: FoundModel
    table: TableOptions
    requested: dict[str, Any]  # the plan of the request alone, without earlier generations
    run_id: str
    is_deduplicated: bool = False  # whether sentences are translated before the units
    notices: tuple[str, ...] = ()  # warnings for the user, one line each

    @functools.cached_property
    def files(self) -> list[InputFile]:
        """The files whose translations the output contains, with the digests of their plans."""
        return with_digests(self.found.files, self.plan)

    @property
    def rows(self) -> int:
        """The rows of all files whose rows are known before the job counts them."""
        return sum(file.rows or 0 for file in self.found.files)

    @property
    def units_left(self) -> int:
        """The number of unfinished units whose rows are known."""
        finished = sum(path.startswith(f"{plans.UNITS_FOLDER}/") for path in self.existing)
        return len(planned_outputs(self.plan)) - finished

    @property
    def sentence_groups(self) -> int:
        """The number of groups of sentences to translate first; 0 if they are translated."""
        if not self.is_deduplicated or job_folder.sentences_path(self.plan_digest) in self.existing:
            return 0
        return count_groups(self.found.files, units=self.units_left)

    @functools.cached_property
    def plan_digest(self) -> str:
        """A digest that distinguishes units of this plan from units of other plans."""
        return plans.plan_digest(self.plan)

    @functools.cached_property
    def memory(self) -> TranslationMemory | None:
        """The translation memory of the job, or None."""
        folder = self.request.options.memory
        is_temporary = folder is None and self.is_deduplicated
        return TranslationMemory.of(
            f"{self.output}/{job_folder.MEMORY_FOLDER}" if is_temporary else folder,
            model=self.model,
            decoding=self.request.decoding,
            texts=self.table.texts,
            job=self.plan_digest,
            run_id=self.run_id,
            is_temporary=is_temporary,
        )

    @property
    def previous(self) -> PreviousRows:
        """The earlier output, whose translations a job with `key` keeps."""
        key = self.request.options.key
        return PreviousRows(
            output=self.output, key=key, table=self.table, plan_digest=self.plan_digest
        )

    @functools.cached_property
    def copies(self) -> ModelCopies:
        """The number of simultaneous translations; counting GPUs imports the engine's library."""
        request = self.request
        gpus = count_gpus(request.engine) if isinstance(request.model, str) else 0
        return plan_copies(request.copies, beam_arguments=request.beam, gpus=gpus)

    @property
    def arguments(self) -> list[str]:
        """Beam's flags, including the flags that the job adds."""
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
        """Return the blocks of a dry run, which describe the planned job.

        Raises:
          UserError: Beam's flags are invalid.
        """
        options, files = self.request.options, self.found.files
        uncounted = sum(file.rows is None for file in files)
        more = f"; the job counts the rows of {counted(uncounted, 'file')}" if uncounted else ""
        units = len([rows for rows in planned_outputs(self.plan).values() if rows is not None])
        size = megabytes(sum(file.size for file in files))
        run = run_facts(
            steps=STEPS,
            arguments=self.arguments,
            output=options.output,
            resumed="its finished units" if self.has_plan else "",
            is_finished=self.is_finished,
        )
        facts = [
            ("input", f"{counted(len(files), 'file')}, {counted(self.rows, 'row')}{more}, {size}"),
            ("columns", ", ".join(self.found.text_columns)),
            ("where", options.where),
            ("units", f"{units:,} of up to {counted(options.unit_rows, 'row')}{more}"),
        ]
        return [Facts([*facts, *run])]

    def check_start(self) -> list[str]:
        """Check the model and its engine unless the job is finished; return warnings.

        Raises:
          UserError: The engine is not installed, or does not support the model or the languages.
        """
        if self.is_finished:
            return []
        notices = job_folder.compare_versions(self.plan) if self.has_plan else []
        request, data = self.request, self.model.data
        notices += self.model.check(
            request.options.texts,
            has_source=request.options.source_language_column is None,
            has_target=request.options.target_language_column is None,
            is_here=not are_elsewhere(request.beam),
        )
        if self.model.folder is not None:
            columns = first_texts(self.found, count=SAMPLE, table=self.table)
            for name, texts in columns.items():
                warnings = describe_other_texts(texts, data=data)
                notices += [f"{name}: {line}" if len(columns) > 1 else line for line in warnings]
        return notices

    def run(
        self,
        progress: Callable[[Progress], object] | None = None,
        *,
        start: float | None = None,
        report: Callable[[str], object] = lambda line: None,
        detach: bool = False,
    ) -> TranslateSummary:
        """Translate all missing units.

        Args:
          progress: Receives the progress at regular intervals, in another thread.
          start: The `time.monotonic()` from which the summary counts seconds; None for now.
          report: Receives lines about the runner's job.
          detach: Whether to leave the job to its runner as soon as the runner has accepted it.

        Raises:
          UserError: Only a run finds the problem, such as a damaged file or a running earlier job.
          KeyboardInterrupt: The user interrupted the run, and the job was canceled.
          JobHandedOver: The job was left to its runner, or written to a file for another program.
        """
        start = time.monotonic() if start is None else start
        if self.is_finished:
            job_folder.clean_up(self.output, existing=self.existing)
            return _summarize(self, self.manifest, already_finished=True, start=start)
        with claim_folder(
            self.output, folder=JOB_FOLDER, arguments=self.arguments, detach=detach
        ) as claimed:
            try:
                job = self.with_folder()  # another run may have changed the folder until now
                if job.is_finished:
                    return _summarize(job, job.manifest, already_finished=True, start=start)
                # Files of earlier runs may be as large as the input, so delete them first.
                if job.existing and (claimed.is_exclusive or not job.has_plan):
                    job_folder.delete_temporary_folders(self.output)
                _prepare_folder(job)
            except OSError as error:
                raise output_error(self.request.options.output, error) from error
            if job.memory is not None and not are_elsewhere(claimed.arguments):
                job.memory.prepare(report)
            job._build(
                claimed.pipeline,
                is_exclusive=claimed.is_exclusive,
                slots=count_slots(claimed.arguments),
            )
            claimed.run(
                marker=job_folder.PLAN_PATH, report=report, watch=job.watch(), progress=progress
            )
        if self.memory is not None and self.memory.is_temporary:
            self.memory.delete_index()
        self.previous.delete()
        path = f"{self.output}/{job_folder.MANIFEST_PATH}"
        try:
            manifest = job_folder.read_json(path)
        except FileNotFoundError as error:
            raise UnfinishedError(
                f"the runner reports that the job has ended, but {path} does not exist. Run the "
                "same command again to resume"
            ) from error
        return _summarize(self, manifest, already_finished=False, start=start)

    def with_folder(self) -> TranslateJob:
        """Return this job with the current state of its output folder; see `find_state`."""
        state = find_state(
            self.requested,
            output=self.output,
            options=self.request.options,
            table=self.found.table,
        )
        return dataclasses.replace(self, **vars(state))

    def watch(self) -> job_folder.TranslateWatch:
        """Return the object that measures the progress of a run."""
        options = self.request.options
        planned = planned_outputs(self.plan).items()
        return job_folder.TranslateWatch(
            output=self.output,
            unit_rows={job_folder.statistics_path(path): n for path, n in planned if n is not None},
            find_unit_rows=functools.partial(
                find_unit_rows,
                output=self.output,
                plan_digests={file.relative_path: file.plan_digest for file in self.files},
                unit_rows=options.unit_rows,
            ),
            uncounted=[file.relative_path for file in self.found.files if file.rows is None],
            is_retry=options.retry_failed,
            limit=options.limit,
            groups=self.sentence_groups,
            plan_digest=self.plan_digest,
        )

    def _build(self, pipeline: beam.Pipeline, *, is_exclusive: bool, slots: int = 1) -> None:
        request, options, digest = self.request, self.request.options, self.plan_digest
        unit_options = UnitOptions(
            output=self.output,
            job=options,
            table=self.table,
            run_id=self.run_id,
            plan_digest=digest,
            memory=self.memory,
            has_others=len(self.plan["input"]) + len(self.found.skipped) > 1,
            is_deduplicated=self.is_deduplicated,
            committed=committed_digests(self.plan),
            previous=self.previous if options.key else None,
            most_at_once=plans.units_at_once(len(planned_outputs(self.plan)), slots=slots),
        )
        hints = dataflow.translating_hints(
            request.beam, model_bytes=lambda: self.model.size, accelerator=request.accelerator
        )
        load_translator = self.model.make_loader(
            threads=self.copies.threads,
            place=job_folder.model_place(self.output, plan_digest=digest),
            is_elsewhere=are_elsewhere(request.beam),
        )
        add_steps(
            pipeline,
            options=unit_options,
            load_translator=load_translator,
            hints=hints,
            is_exclusive=is_exclusive,
            output_table=self.found.table,
            sentence_groups=self.sentence_groups,
            unread_files=self.found.unread_files,
        )


def _prepare_folder(job: TranslateJob) -> None:
    """Delete the files that the job replaces, and write the plan and the list of input files."""
    run = {"output": job.output, "run_id": job.run_id}
    delete([f"{job.output}/{path}" for path in job.deleted])
    if job.previous_plan is not None:
        job_folder.keep_previous(job.moved, output=job.output, plan=job.previous_plan)
    if not job.has_plan:
        write_json(job.plan, path=job_folder.PLAN_PATH, **run)
    files: list[InputFile | SkippedFile] = [*job.files, *job.found.skipped]
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
