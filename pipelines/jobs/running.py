"""Claim the output folder of a job, and hand its pipeline to a runner."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam

from pipelines.jobs.locks import lock_output
from pipelines.jobs.progress import Progress
from pipelines.runners import dataflow
from pipelines.runners.job_file import JobFile
from pipelines.runners.runner import make_pipeline, run_pipeline
from pipelines.runners.status_line import look_seconds, repeating
from pipelines.runners.wheel import with_own_wheel
from pipelines.storage.files import explain_deletion
from pipelines.storage.paths import is_local


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
        look: Callable[[], Progress],
        progress: Callable[[Progress], object] | None,
    ) -> None:
        """Run the pipeline.

        Args:
          mark: A file of the run in the output folder, by which a deleted folder is noticed.
          report: Takes lines of the runner's job.
          look: Returns the progress.
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
                stack.enter_context(repeating(look, progress, interval=interval))
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
