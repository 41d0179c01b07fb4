"""The preprocess job, which wires, runs and watches the steps from corpora to a dataset.

The rows stay in Arrow tables and lists, one unit at a time. Only small descriptors of units, spill
regions and shards pass between the steps. A step that runs twice writes the same files again, and a
restarted run reuses the finished files of the previous run.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam

from tt.model.dataset.manifest import DatasetManifest
from tt.model.errors import UnfinishedError, UserError, counted
from tt.model.inspection.blocks import Facts
from tt.model.storage import files, listing
from tt.model.storage.listing import list_names
from tt.model.storage.paths import join
from tt.model.text.vocabulary import VOCABULARY_FILE, vocabulary_json
from tt.pipelines.jobs.progress import Progress, ProgressWatch
from tt.pipelines.jobs.running import AddUp, claim_folder, run_facts
from tt.pipelines.preprocess import encode_steps, vocabularies
from tt.pipelines.preprocess.description import plan_facts
from tt.pipelines.preprocess.first_rows import check_first_rows
from tt.pipelines.preprocess.manifest import Totals, write_manifest
from tt.pipelines.preprocess.merge_steps import MergeShards
from tt.pipelines.preprocess.pipes import read_pipes
from tt.pipelines.preprocess.plan import (
    DatasetPlan,
    PreprocessPlan,
    abandon_output,
    check_output,
    claim_output,
    find_finished,
    take_finished,
)
from tt.pipelines.preprocess.units import Unit, read_index
from tt.pipelines.preprocess.work_folder import OWN_FILES, WORK_FOLDER
from tt.pipelines.runners import dataflow, flink
from tt.pipelines.runners.beam_options import with_local_defaults
from tt.pipelines.runners.transforms import versions_here

STEPS = (
    "List units", "Find held-out texts", "Compare sides", "Train vocabularies", "Encode units",
    "Merge shards", "Units as they were cut", "All statistics", "Add up", "Write manifest",
    "Delete work folder",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessJob:
    """A planned dataset that `run` makes."""

    plan: PreprocessPlan
    beam_arguments: Sequence[str] = ()  # Beam's own options

    def describe(self) -> list[Any]:
        """Return the blocks that a dry run prints.

        Raises:
          UserError: Beam rejects its options, the output folder belongs to another job, or the
            sides of a corpus are swapped or shifted.
        """
        is_finished = self.is_finished
        if not is_finished:
            self._check_corpora()
        finished = len(self.plan.work.list_finished()["spill"])
        run = run_facts(
            steps=STEPS,
            arguments=self._arguments(),
            output=self.plan.options.output,
            resumed=counted(finished, "unit") if finished else "",
            is_finished=is_finished,
        )
        return [Facts([*plan_facts(self.plan), *run])]

    @property
    def is_finished(self) -> bool:
        """Whether the folder contains this dataset, complete, so that a run has nothing to do.

        Raises:
          UserError: The output folder belongs to another job, or contains other files.
        """
        return check_output(self.plan) is not None

    def run(
        self,
        progress: Callable[[Progress], object] | None = None,
        *,
        report: Callable[[str], object] = lambda line: None,
        detach: bool = False,
    ) -> DatasetManifest:
        """Make the dataset folder, or finish a folder that the same command has begun.

        Args:
          progress: Called from another thread with the current progress, at intervals.
          report: Called with each status line about the runner's job.
          detach: Whether to return as soon as the runner has accepted the job.

        Raises:
          UserError: The input or the output folder is unsuitable, or another run uses the folder.
          KeyboardInterrupt: The user interrupted the run; the job is canceled.
          JobHandedOver: The runner has the job, or wrote it to a file for another program to start.
        """
        if finished := take_finished(self.plan, report):
            return finished  # even if the runner no longer exists
        self._check_corpora()
        plan, output = self.plan, self.plan.options.output
        with claim_folder(
            output, folder=WORK_FOLDER, arguments=self._arguments(), detach=detach
        ) as claimed:
            has_begun = listing.exists(plan.work.run_file) or find_finished(plan) is not None
            if finished := claim_output(plan):
                return finished
            try:
                plan = read_pipes(plan, report)
                _copy_vocabularies(plan)
                _add_steps(claimed.pipeline, plan)
                claimed.run(
                    marker=plan.work.run_file.removeprefix(f"{output}/"),
                    report=report,
                    watch=DatasetWatch(plan),
                    progress=progress,
                )
            except Exception as error:
                if finished := find_finished(plan):
                    return finished  # Another run of the same command has finished it.
                is_mistake = isinstance(error, UserError) and not isinstance(error, UnfinishedError)
                if is_mistake and not has_begun:
                    abandon_output(output)
                raise
            return DatasetManifest.load(output, read=files.read_bytes)

    def _check_corpora(self) -> None:
        """Check the first rows of the corpora, unless an earlier run has already done so."""
        if not listing.exists(self.plan.work.run_file):
            check_first_rows(self.plan.sources, self.plan.options)

    def _arguments(self) -> list[str]:
        """Return Beam's own options, including the options that the job adds."""
        arguments = with_local_defaults(self.beam_arguments)
        arguments = dataflow.with_settings(arguments, job="preprocess", shares_model=False)
        return flink.with_settings(arguments, job="preprocess", shares_model=False)


def _add_steps(pipeline: beam.Pipeline, whole_plan: PreprocessPlan) -> None:
    plan = whole_plan.for_steps
    units, cut = pipeline | "List units" >> encode_steps.ListUnits(plan=plan)
    held_out = beam.pvalue.AsSingleton(
        units | "Find held-out texts" >> encode_steps.FindHeldOut(plan=plan)
    )
    alignment = beam.pvalue.AsSingleton(
        units | "Compare sides" >> encode_steps.CompareSides(plan=plan)
    )
    # These vocabularies are copies of the user's, or a stopped run trained them.
    existing = vocabularies.find_vocabularies(plan)
    if existing is None:
        vocabularies.delete_vocabularies(plan)
    trained = units | "Train vocabularies" >> encode_steps.TrainVocabularies(
        plan=plan, existing=existing, held_out=held_out, alignment=alignment
    )
    digests = beam.pvalue.AsSingleton(trained)
    regions, counted_units = units | "Encode units" >> encode_steps.EncodeUnits(
        plan=plan, digests=digests, held_out=held_out, alignment=alignment
    )
    shards = regions | "Merge shards" >> MergeShards(plan=plan)
    statistics = (
        # Flink's runner rejects a PCollection that is both flattened and grouped, as `units` would
        # be without this step.
        # https://github.com/apache/beam/issues/34647
        cut | "Units as they were cut" >> beam.Map(lambda unit: unit),
        counted_units,
        shards,
    )
    totals = functools.partial(Totals, plan.duplicate_reason)
    version = versions_here()["tt"]  # of the planning process, not of a worker
    _ = (
        statistics
        | "All statistics" >> beam.Flatten()
        | "Add up" >> beam.CombineGlobally(AddUp(totals))
        | "Write manifest"
        >> beam.Map(write_manifest, digests, alignment, plan=plan, version=version)
        # This step is last, because a runner that repeats a step may need files of the folder.
        | "Delete work folder" >> beam.Map(_delete_work_folder, plan)
    )


def _copy_vocabularies(plan: PreprocessPlan) -> None:
    options = plan.options
    text = vocabulary_json(shared=options.is_shared, normalization=options.normalization)
    plan.work.write_text(join(options.output, VOCABULARY_FILE), text)
    for given, digest, name in zip(
        options.vocabulary, plan.resolved["vocabulary"], options.model_files, strict=False
    ):
        content = files.read_bytes(given)
        if hashlib.sha256(content).hexdigest() != digest:
            raise UserError(
                f"{given} has changed since the job was planned. Run the same command again"
            )
        vocabularies.write_vocabulary(plan, name, content)


class DatasetWatch(ProgressWatch):
    """Derives the progress of a run from the names of its finished files.

    It reads only the lists of units, each once.
    """

    def __init__(self, plan: PreprocessPlan) -> None:
        super().__init__()
        self._plan = plan
        self._sources = collections.Counter(plan.groups)  # number of sources per group
        self._cut: set[int] = set()  # groups whose list of units exists
        self._rows: dict[str, int] = {}  # number of rows per unit, by the path of its spill
        self._training = 0  # number of units that are not held out
        self._chunks = 0  # number of units with a chunk file

    def find_phase(self) -> Progress:
        """Return the progress, from the files of the run."""
        plan, work = self._plan, self._plan.work
        finished = work.list_finished()
        for group in self._sources.keys() - self._cut:
            if (path := work.index(group)) in finished["units"]:
                with contextlib.suppress(ValueError):  # A truncated list is written again.
                    for index, (counts, has_chunk) in enumerate(read_index(files.read_bytes(path))):
                        unit = Unit(order=group, index=index, parts=())
                        self._rows[work.spill(unit.label)] = sum(counts.values())
                        self._training += group < plan.held_out_from
                        self._chunks += has_chunk
                    self._cut.add(group)
        if len(finished["units"]) < len(self._cut):  # The last step deletes the work folder.
            return Progress(phase="writing the manifest")
        cut, spills = sum(self._sources[group] for group in self._cut), finished["spill"]
        if cut < len(plan.sources):
            return Progress(phase="cutting", done=cut, total=len(plan.sources), noun="sources")
        if (chunks := len(finished["chunk"])) < self._chunks:
            return Progress(phase="cutting", done=chunks, total=self._chunks, noun="units")
        compared = len(finished["judged"])
        if plan.options.alignment_filter is not None and not spills and compared < self._training:
            return Progress(phase="comparing", done=compared, total=self._training, noun="units")
        names = {*list_names(plan.options.output)}
        if not spills and not names.issuperset(plan.options.model_files):
            return Progress(phase="training the vocabulary")
        if len(spills) < len(self._rows):
            done, rows = sum(self._rows.get(path, 0) for path in spills), sum(self._rows.values())
            return Progress(phase="encoding", done=done, total=rows, noun="pairs")
        merged, shards = len(finished["shard"]), sum(s.shards for s in plan.splits.values())
        if merged < shards:
            return Progress(phase="merging", done=merged, total=shards, noun="shards")
        return Progress(phase="writing the manifest")


def _delete_work_folder(_: object, plan: DatasetPlan) -> None:
    files.delete_folder(plan.options.output, WORK_FOLDER, own=OWN_FILES)
