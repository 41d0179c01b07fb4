"""Lock the output folder of a job, and run its pipeline there."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from tt.model.storage.files import explain_deletion
from tt.model.storage.paths import is_local
from tt.pipelines.jobs.folders import lock_output
from tt.pipelines.jobs.progress import Progress, ProgressWatch
from tt.pipelines.runners import dataflow
from tt.pipelines.runners.beam_options import describe_arguments
from tt.pipelines.runners.job_file import JobFile
from tt.pipelines.runners.runner import describe_runner, make_pipeline, run_pipeline
from tt.pipelines.runners.status_line import listing_interval, repeating
from tt.pipelines.runners.wheel import with_own_wheel


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimedFolder:
    """A locked output folder, and the pipeline that will run in it.

    Attributes:
      output: The output folder.
      arguments: Beam's flags, including the flags that the runner needs.
      pipeline: The pipeline, still without steps.
      is_exclusive: Whether no other run can use the folder.
    """

    output: str
    arguments: Sequence[str]
    pipeline: beam.Pipeline
    is_exclusive: bool
    _job_file: JobFile
    _detach: bool

    def run(
        self,
        *,
        marker: str,
        report: Callable[[str], object],
        watch: ProgressWatch,
        progress: Callable[[Progress], object] | None,
    ) -> None:
        """Run the pipeline.

        Args:
          marker: A file that exists in the output folder during the run. If the file is missing
            after an error, somebody has deleted the folder.
          report: Receives lines about the runner's job.
          watch: Measures the progress.
          progress: Receives the progress at regular intervals, in another thread; None for no
            progress.

        Raises:
          UserError: The runner rejects the job, or a worker raised this error.
          KeyboardInterrupt: The user interrupted the run, and the job was canceled.
          JobHandedOver: The job was left to its runner.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(explain_deletion(self.output, marker=marker))
            if progress is not None:
                interval = listing_interval(is_local=is_local(self.output))
                stack.enter_context(repeating(watch.measure, progress, interval=interval))
            run_pipeline(self.pipeline, report, job_file=self._job_file, detach=self._detach)


@contextlib.contextmanager
def claim_folder(
    output: str, *, folder: str, arguments: Sequence[str], detach: bool
) -> Iterator[ClaimedFolder]:
    """Lock an output folder, and create a pipeline for the runner.

    Args:
      output: The output folder.
      folder: The name of the folder with the job's own files, in the output folder.
      arguments: Beam's flags.
      detach: Whether to leave the job to its runner.

    Raises:
      UserError: The runner, its bucket or the output folder cannot be used, or another run uses
        the folder.
    """
    dataflow.check_staging(arguments)
    with with_own_wheel(arguments) as flags:
        pipeline = make_pipeline(flags, detach=detach)
        with lock_output(output, folder=folder) as is_exclusive:
            job_file = JobFile(f"{output}/{folder}")
            job_file.check_no_job_runs()
            yield ClaimedFolder(
                output=output,
                arguments=flags,
                pipeline=pipeline,
                is_exclusive=is_exclusive,
                _job_file=job_file,
                _detach=detach,
            )


def run_facts(
    *, steps: Sequence[str], arguments: Sequence[str], output: str, resumed: str, is_finished: bool
) -> list[tuple[str, object]]:
    """Return the facts of a dry run: the steps, the runner, Beam's options and the output folder.

    Args:
      steps: The names of the job's steps.
      arguments: Beam's flags, including the flags that the job adds.
      output: The output folder.
      resumed: The finished parts of an earlier run, such as "3 units"; "" if there are none.
      is_finished: Whether the job is finished, so that a run does nothing.

    Raises:
      UserError: Beam's flags are invalid.
    """
    state = f", resumed after {resumed}" if resumed else ""
    return [
        ("steps", ", ".join(steps)),
        ("runner", describe_runner(arguments)),
        ("Beam options", describe_arguments(arguments)),
        ("output", f"{output}{', finished already' if is_finished else state}"),
    ]


class AddUp(beam.CombineFn):
    """Adds up the statistics of units.

    Args:
      make_totals: Returns empty totals, an object with the methods `add(statistics)` and
        `merge(totals)`.
    """

    def __init__(self, make_totals: Callable[[], Any]) -> None:
        super().__init__()
        self._make_totals = make_totals

    def create_accumulator(self) -> Any:
        """Return empty totals."""
        return self._make_totals()

    def add_input(self, totals: Any, found: Any) -> Any:
        """Add the statistics of a unit to totals."""
        totals.add(found)
        return totals

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Merge several totals."""
        merged = self._make_totals()
        for totals in accumulators:
            merged.merge(totals)
        return merged

    def extract_output(self, totals: Any) -> Any:
        """Return the totals."""
        return totals
