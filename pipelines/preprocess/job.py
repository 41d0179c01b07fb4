"""The preprocess job: ListUnits | TrainVocabularies | EncodeUnits | MergeShards | WriteManifest.

Rows stay in Arrow tables and lists, a unit at a time; only small descriptors of units, of regions
in spill files and of shards pass between the steps. A step that runs twice writes the same files
again, and a run that is started again takes over what the last one finished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import uuid
from collections.abc import Callable, Sequence

import apache_beam as beam

from model.dataset.manifest import DatasetManifest
from model.errors import UnfinishedError, UserError
from model.text.vocabulary import VOCABULARY_FILE, vocabulary_json
from pipelines.jobs.progress import Progress
from pipelines.jobs.running import claim_folder
from pipelines.preprocess.description import describe_plan
from pipelines.preprocess.encode_steps import (
    EncodeUnits,
    FindHeldOut,
    ListUnits,
    TrainVocabularies,
)
from pipelines.preprocess.manifest import WriteManifest
from pipelines.preprocess.merge_steps import MergeShards
from pipelines.preprocess.output_folder import (
    abandon_output,
    check_output,
    claim_output,
    find_damage,
    find_finished,
    is_last_run,
    take_finished,
)
from pipelines.preprocess.plan import PreprocessPlan
from pipelines.preprocess.progress import ProgressWatch
from pipelines.preprocess.vocabularies import (
    delete_vocabularies,
    find_vocabularies,
    write_vocabulary,
)
from pipelines.preprocess.work_folder import WORK_FOLDER
from pipelines.runners import dataflow, flink
from pipelines.runners.beam_options import with_local_defaults
from pipelines.storage import files
from pipelines.storage.paths import join

STEPS = (
    "List units", "Find held-out texts", "Train vocabularies", "Encode units", "Merge shards",
    "Write manifest",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessJob:
    """A dataset that is planned and can be made."""

    plan: PreprocessPlan
    beam_arguments: Sequence[str] = ()  # Beam's own flags

    def describe(self) -> list[str]:
        """Return lines that say what a run would do.

        Raises:
          UserError: Beam cannot take its flags, or the output folder holds something else.
        """
        self.check_output()
        return describe_plan(
            self.plan, arguments=self._arguments(), steps=STEPS, is_finished=self.is_finished
        )

    def check_output(self) -> None:
        """Checks that the output folder is free for the dataset, or holds it or a part of it.

        Raises:
          UserError: The folder holds something else.
        """
        check_output(self.plan)

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds this very dataset, whole, so that a run does nothing."""
        return find_finished(self.plan) is not None and not find_damage(self.plan)

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
        if finished := take_finished(self.plan):
            return finished  # whether or not the runner is still there
        for path in find_damage(self.plan):
            report(f"{path} is missing or damaged: the dataset is made again")
        plan, output = self.plan, self.plan.options.output
        with claim_folder(
            output, folder=WORK_FOLDER, arguments=self._arguments(), detach=detach
        ) as claimed:
            has_begun = files.is_there(plan.work.run_file) or find_finished(plan) is not None
            run_id = uuid.uuid4().hex
            if finished := claim_output(plan, run_id=run_id):
                return finished
            try:
                _copy_vocabularies(plan)
                _add_steps(claimed.pipeline, plan)
                watch = ProgressWatch(plan)
                claimed.run(
                    mark=plan.work.run_file.removeprefix(f"{output}/"),
                    report=report,
                    look=lambda: watch.look(time.monotonic()),
                    progress=progress,
                )
            except Exception as error:
                if finished := find_finished(plan):
                    return finished  # by another run of the same command
                is_mistake = isinstance(error, UserError) and not isinstance(error, UnfinishedError)
                # Otherwise the folder has work of an earlier run, or of one that joined this one.
                if is_mistake and not has_begun and is_last_run(plan, run_id=run_id):
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
    units, cut = pipeline | "List units" >> ListUnits(plan=plan)
    held_out = beam.pvalue.AsSingleton(units | "Find held-out texts" >> FindHeldOut(plan=plan))
    in_place = find_vocabularies(plan)  # from the user, or from a run that was stopped
    if in_place is None:
        delete_vocabularies(plan)
    vocabularies = units | "Train vocabularies" >> TrainVocabularies(
        plan=plan, in_place=in_place, held_out=held_out
    )
    digests = beam.pvalue.AsSingleton(vocabularies)
    regions, statistics = units | "Encode units" >> EncodeUnits(
        plan=plan, digests=digests, held_out=held_out
    )
    shards = regions | "Merge shards" >> MergeShards(plan=plan)
    _ = pipeline | "Write manifest" >> WriteManifest(
        plan=plan, digests=digests, cut=cut, units=statistics, shards=shards
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
        write_vocabulary(plan, name, content)
