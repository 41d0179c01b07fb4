"""The preprocess job: ListUnits | TrainVocabularies | EncodeUnits | MergeShards | write_manifest.

Rows stay in Arrow tables and lists, a unit at a time; only small descriptors of units, of regions
in spill files and of shards pass between the steps. A step that runs twice writes the same files
again, and a run that is started again takes over what the last one finished.
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
from tt.model.text.vocabulary import VOCABULARY_FILE, vocabulary_json
from tt.pipelines.jobs.progress import Progress, ProgressWatch
from tt.pipelines.jobs.running import AddUp, claim_folder, run_facts
from tt.pipelines.preprocess import encode_steps, vocabularies
from tt.pipelines.preprocess.description import plan_facts
from tt.pipelines.preprocess.manifest import Totals, write_manifest
from tt.pipelines.preprocess.merge_steps import MergeShards
from tt.pipelines.preprocess.plan import (
    PreprocessPlan,
    abandon_output,
    check_output,
    claim_output,
    find_finished,
    take_finished,
)
from tt.pipelines.preprocess.units import Unit, read_index
from tt.pipelines.preprocess.work_folder import WORK_FOLDER
from tt.pipelines.runners import dataflow, flink
from tt.pipelines.runners.beam_options import with_local_defaults
from tt.pipelines.runners.transforms import versions_here
from tt.pipelines.storage import files
from tt.pipelines.storage.listing import list_names
from tt.pipelines.storage.paths import join

STEPS = (
    "List units", "Find held-out texts", "Train vocabularies", "Encode units", "Merge shards",
    "Units as they were cut", "All statistics", "Add up", "Write manifest", "Delete work folder",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessJob:
    """A dataset that is planned and can be made."""

    plan: PreprocessPlan
    beam_arguments: Sequence[str] = ()  # Beam's own flags

    def describe(self) -> list[Any]:
        """Return the blocks of a dry run, which say what a run would do.

        Raises:
          UserError: Beam cannot take its flags, or the output folder belongs to another job.
        """
        is_finished = self.is_finished
        begun = len(self.plan.work.list_finished()["spill"])
        run = run_facts(
            steps=STEPS,
            arguments=self._arguments(),
            output=self.plan.options.output,
            begun=counted(begun, "unit") if begun else "",
            is_finished=is_finished,
        )
        return [Facts([*plan_facts(self.plan), *run])]

    @property
    def is_finished(self) -> bool:
        """Whether the folder contains this very dataset, whole, so that a run does nothing.

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
        """Make the dataset folder, or finish one that the same command has begun.

        Args:
          progress: Called now and then with how far the run is, in a thread of its own.
          report: Takes lines of the runner's job.
          detach: Whether to leave the job to its runner as soon as the runner has it.

        Raises:
          UserError: The input or the output folder does not suit, or another run uses the folder.
          KeyboardInterrupt: The user wants the end; the job is cancelled.
          JobHandedOver: The runner has the job, or wrote it to a file for another program to start.
        """
        if finished := take_finished(self.plan, report):
            return finished  # whether or not the runner is still there
        plan, output = self.plan, self.plan.options.output
        with claim_folder(
            output, folder=WORK_FOLDER, arguments=self._arguments(), detach=detach
        ) as claimed:
            has_begun = files.is_there(plan.work.run_file) or find_finished(plan) is not None
            if finished := claim_output(plan):
                return finished
            try:
                _copy_vocabularies(plan)
                _add_steps(claimed.pipeline, plan)
                claimed.run(
                    mark=plan.work.run_file.removeprefix(f"{output}/"),
                    report=report,
                    watch=DatasetWatch(plan),
                    progress=progress,
                )
            except Exception as error:
                if finished := find_finished(plan):
                    return finished  # by another run of the same command
                is_mistake = isinstance(error, UserError) and not isinstance(error, UnfinishedError)
                if is_mistake and not has_begun:
                    abandon_output(output)
                raise
            return DatasetManifest.load(output, read=files.read_bytes)

    def _arguments(self) -> list[str]:
        """Beam's own flags, with those that the job adds."""
        arguments = with_local_defaults(self.beam_arguments)
        arguments = dataflow.with_settings(arguments, job="preprocess", shares_model=False)
        return flink.with_settings(arguments, job="preprocess", shares_model=False)


def _add_steps(pipeline: beam.Pipeline, whole_plan: PreprocessPlan) -> None:
    plan = whole_plan.for_steps
    folder = join(plan.options.output, WORK_FOLDER)
    units, cut = pipeline | "List units" >> encode_steps.ListUnits(plan=plan)
    held_out = beam.pvalue.AsSingleton(
        units | "Find held-out texts" >> encode_steps.FindHeldOut(plan=plan)
    )
    # From the user, or from a run that was stopped.
    in_place = vocabularies.find_vocabularies(plan)
    if in_place is None:
        vocabularies.delete_vocabularies(plan)
    trained = units | "Train vocabularies" >> encode_steps.TrainVocabularies(
        plan=plan, in_place=in_place, held_out=held_out
    )
    digests = beam.pvalue.AsSingleton(trained)
    regions, counted_units = units | "Encode units" >> encode_steps.EncodeUnits(
        plan=plan, digests=digests, held_out=held_out
    )
    shards = regions | "Merge shards" >> MergeShards(plan=plan)
    statistics = (
        # Flink's runner takes no PCollection that is both flattened and grouped, as units are.
        # https://github.com/apache/beam/issues/34647
        cut | "Units as they were cut" >> beam.Map(lambda unit: unit),
        counted_units,
        shards,
    )
    totals = functools.partial(Totals, plan.duplicate_reason)
    version = versions_here()["tt"]  # of the program that plans
    _ = (
        statistics
        | "All statistics" >> beam.Flatten()
        | "Add up" >> beam.CombineGlobally(AddUp(totals))
        | "Write manifest" >> beam.Map(write_manifest, digests, plan=plan, version=version)
        # After the manifest: if the runner does a step again, it may need any of the files.
        | "Delete work folder" >> beam.Map(lambda _: files.delete_folder(folder))
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
    """Finds out the progress of a plan's run from the names of finished files.

    It reads only the lists of units, once each.
    """

    def __init__(self, plan: PreprocessPlan) -> None:
        super().__init__()
        self._plan = plan
        self._sources = collections.Counter(plan.groups)  # sources of each group
        self._cut: set[int] = set()  # groups with a list of units
        self._rows: dict[str, int] = {}  # rows of each unit, by the path of its spill

    def find_phase(self) -> Progress:
        """Return the progress that the files of the run show."""
        plan, work = self._plan, self._plan.work
        finished = work.list_finished()
        for group in self._sources.keys() - self._cut:
            if (path := work.index(group)) in finished["units"]:
                with contextlib.suppress(ValueError):  # truncated: its sources are cut again
                    for index, (counts, _) in enumerate(read_index(files.read_bytes(path))):
                        unit = Unit(order=group, index=index, parts=())
                        self._rows[work.spill(unit.label)] = sum(counts.values())
                    self._cut.add(group)
        if len(finished["units"]) < len(self._cut):  # the work folder is being deleted
            return Progress(phase="writing the manifest")
        cut, spills = sum(self._sources[group] for group in self._cut), finished["spill"]
        if cut < len(plan.sources):
            return Progress(phase="cutting", done=cut, total=len(plan.sources), noun="sources")
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
