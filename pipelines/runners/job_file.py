"""The job of a folder, kept there, so that no second job is started while it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from model.errors import ServiceError, UserError
from pipelines.runners.foreign_errors import explain
from pipelines.runners.job_states import RunnerJob
from pipelines.runners.remote_jobs import JobHandedOver
from pipelines.storage import files, listing

if TYPE_CHECKING:
    from apache_beam.runners.runner import PipelineResult

JOB_FILE = "job.json"
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class JobFile:
    """The file that names the job which a runner was given for a folder."""

    folder: str  # that the file is in: the folder of the job's own files

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{self.folder}/{JOB_FILE}"

    def write(self, job: RunnerJob) -> None:
        """Writes the job, whole or not at all."""
        text = json.dumps(dataclasses.asdict(job), indent=2) + "\n"
        files.write_text(self.path, text, temporary_folder=self.folder)

    def read(self) -> RunnerJob | None:
        """Reads the job; None where there is no file.

        Raises:
          UserError: The file is damaged.
        """
        if not listing.exists(self.path):
            return None
        try:
            return RunnerJob(**json.loads(files.read_bytes(self.path)))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{self.path} is damaged: see that no job of it runs, delete it, and run the same "
                "command again"
            ) from error

    def delete(self) -> None:
        """Deletes the file, if it is there."""
        if listing.exists(self.path):
            files.delete([self.path])

    def check_no_job_runs(self, *, ask: Callable[[RunnerJob], bool] = RunnerJob.is_running) -> None:
        """Checks that the job of the folder has ended, if there is one.

        Raises:
          UserError: It still runs, or its runner cannot be asked.
        """
        job = self.read()
        if job is None:
            return
        try:
            is_running = ask(job)
        except Exception as error:
            explained = error if isinstance(error, UserError) else explain(error)
            reason = str(explained) if explained else " ".join(str(error).split())
            raise ServiceError(
                f"the job {job.describe()} may still write to the folder, and its runner cannot be "
                f"asked: {reason}. If it has ended, delete {self.path} and run the same command "
                "again"
            ) from error
        if is_running:
            raise UserError(
                f"the job {job.describe()} still runs for this folder: wait for its end, or cancel "
                "it there, and run the same command again"
            )


class JobNote:
    """A job, noted in its file while it may run: the `with` block is its run.

    Args:
      job: The job; None if it ends with this process, which needs no note.
      file: Where it is noted; None for nowhere.
    """

    def __init__(self, job: RunnerJob | None, *, file: JobFile | None) -> None:
        self.job = job
        self._file = file

    def __enter__(self) -> JobNote:
        self._write()  # before the runner has the job: nothing can come between
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.job is None or self._file is None or isinstance(error, JobHandedOver):
            return
        with contextlib.suppress(Exception):  # then the next run asks
            if error is None or not self.job.is_running():
                self._file.delete()

    def set_id(self, name: str | None) -> None:
        """Notes what the runner calls the job."""
        if self.job is not None and self.job.is_asked_by_id:
            self.job = dataclasses.replace(self.job, id=name)
            self._write()

    def leave(self, result: PipelineResult) -> None:
        """Leaves the job to its runner, once that has it; returns if it has ended before.

        Raises:
          JobHandedOver: The runner has it.
        """
        from apache_beam.runners.runner import PipelineState

        assert self.job is not None
        while not PipelineState.is_terminal(result.state):
            if found := self.job.find():
                self.job = found
                self._write()
                then = "the same command says later whether it is finished"
                if self._file is None:
                    then = "end it there"
                raise JobHandedOver(f"the job {self.job.describe()} goes on by itself: {then}")
            time.sleep(_POLL_SECONDS)

    def _write(self) -> None:
        if self.job is not None and self._file is not None:
            self._file.write(self.job)
