"""Claim the output folder of a job, and run its pipeline there."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from tt.pipelines.jobs.folders import lock_output
from tt.pipelines.jobs.progress import Progress, ProgressWatch
from tt.pipelines.runners import dataflow
from tt.pipelines.runners.beam_options import describe_arguments
from tt.pipelines.runners.job_file import JobFile
from tt.pipelines.runners.runner import describe_runner, make_pipeline, run_pipeline
from tt.pipelines.runners.status_line import look_seconds, repeating
from tt.pipelines.runners.wheel import with_own_wheel
from tt.pipelines.storage.files import explain_deletion
from tt.pipelines.storage.paths import is_local


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimedFolder:
    """The output folder of a run that no other run on this machine can use.

    Attributes:
      output: The output folder.
      arguments: Beam's own flags, with those that the runner needs.
      pipeline: The pipeline, without steps.
      is_alone: Whether no other run can work in the folder.
    """

    output: str
    arguments: Sequence[str]
    pipeline: beam.Pipeline
    is_alone: bool
    _job_file: JobFile
    _detach: bool

    def run(
        self,
        *,
        mark: str,
        report: Callable[[str], object],
        watch: ProgressWatch,
        progress: Callable[[Progress], object] | None,
    ) -> None:
        """Run the pipeline.

        Args:
          mark: A file of the run in the output folder, by which a deleted folder is noticed.
          report: Takes lines of the runner's job.
          watch: Finds out the progress.
          progress: Takes the progress from time to time, in a thread.

        Raises:
          UserError: The runner does not take the job, or a worker raised the error.
          KeyboardInterrupt: The user wants to stop; the job is cancelled.
          JobHandedOver: The runner has the job.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(explain_deletion(self.output, mark=mark))
            if progress is not None:
                interval = look_seconds(is_local=is_local(self.output))
                stack.enter_context(repeating(watch.look, progress, interval=interval))
            run_pipeline(self.pipeline, report, job_file=self._job_file, detach=self._detach)


@contextlib.contextmanager
def claim_folder(
    output: str, *, folder: str, arguments: Sequence[str], detach: bool
) -> Iterator[ClaimedFolder]:
    """Keep other runs out of an output folder, and make a pipeline for the runner.

    Args:
      output: The output folder.
      folder: The folder of the job's own files, in the output folder.
      arguments: Beam's own flags.
      detach: Whether to leave the job to its runner.

    Raises:
      UserError: The runner, its bucket or the output folder cannot be used, or another run uses
        the folder.
    """
    dataflow.check_staging(arguments)
    with with_own_wheel(arguments) as flags:
        pipeline = make_pipeline(flags, detach=detach)
        with lock_output(output, folder=folder) as is_alone:
            job_file = JobFile(f"{output}/{folder}")
            job_file.check_no_job_runs()
            yield ClaimedFolder(
                output=output,
                arguments=flags,
                pipeline=pipeline,
                is_alone=is_alone,
                _job_file=job_file,
                _detach=detach,
            )


def run_facts(
    *, steps: Sequence[str], arguments: Sequence[str], output: str, begun: str, is_finished: bool
) -> list[tuple[str, object]]:
    """Return facts for a dry run: the steps, the runner, Beam's options and the output folder.

    Args:
      steps: Names of the job's steps.
      arguments: Beam's own flags, with those that the job adds.
      output: The output folder.
      begun: The finished parts of an earlier run, such as "3 units"; "" if there are none.
      is_finished: Whether the folder is finished, so that a run does nothing.

    Raises:
      UserError: Beam cannot take its flags.
    """
    state = f", resumed after {begun}" if begun else ""
    return [
        ("steps", ", ".join(steps)),
        ("runner", describe_runner(arguments)),
        ("Beam options", describe_arguments(arguments)),
        ("output", f"{output}{', finished already' if is_finished else state}"),
    ]


class AddUp(beam.CombineFn):
    """Adds up statistics of units in totals, whose type has `add(statistics)` and `merge(totals)`.

    Args:
      make_totals: Returns the totals of nothing.
    """

    def __init__(self, make_totals: Callable[[], Any]) -> None:
        super().__init__()
        self._make_totals = make_totals

    def create_accumulator(self) -> Any:
        """Return the totals of nothing."""
        return self._make_totals()

    def add_input(self, totals: Any, found: Any) -> Any:
        """Add the statistics of a unit."""
        totals.add(found)
        return totals

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Add up totals."""
        merged = self._make_totals()
        for totals in accumulators:
            merged.merge(totals)
        return merged

    def extract_output(self, totals: Any) -> Any:
        """Return the totals."""
        return totals
