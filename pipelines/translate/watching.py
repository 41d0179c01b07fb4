"""Translate the tables that arrive in a watched folder, with a job per file.

Beam's transform `Watch` is not suitable. On Beam's local runner, it works only with one process and
one worker, its job never ends, and an interrupted job forgets which files it has finished. A job
per file uses all cores, has a lock, a plan and a manifest, and can be resumed after a kill.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable

from tt.model.errors import ColumnsError, DiskFullError, UnfinishedError, UserError, counted
from tt.pipelines.inference.model_loading import ModelRequest, choose_engine, find_model
from tt.pipelines.jobs.folders import lock_output
from tt.pipelines.runners.beam_options import (
    LOCAL_RUNNER,
    find_runner_name,
    set_file_system_options,
)
from tt.pipelines.storage.listing import exists
from tt.pipelines.storage.object_stores import check_buckets
from tt.pipelines.storage.paths import JOB_FOLDER, normalize_path
from tt.pipelines.streams.metrics import Metrics, appending, serving
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.streams.plan import StoppableRun
from tt.pipelines.translate.inbox import Inbox, WatchedFile, read_records, write_record
from tt.pipelines.translate.inputs import inspect_input
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import SKIP, TranslateOptions

_STOP_CHECK_SECONDS = 0.1  # the time between two checks whether to stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchRequest(ModelRequest):
    """A request to translate the tables of a watched folder."""

    options: StreamOptions

    def plan(self, report: Callable[[str], object] = lambda line: None) -> WatchJob:
        """Check the folder and the model, and return the job; read no input file, write nothing.

        Raises:
          UserError: An option, the folder or the model is invalid.
        """
        options = self.options
        if find_runner_name(self.beam) != LOCAL_RUNNER.lower():
            raise UserError(
                f"a watched folder needs {LOCAL_RUNNER} on this machine. Remove --runner, or "
                "translate the files with `tt translate-batch`"
            )
        set_file_system_options(self.beam)
        check_buckets([options.input, options.output])
        inbox = Inbox(options.input, output=options.output)
        model = find_model(self.model, engine=self.engine, report=report)
        notices = model.check(
            name=self.model, decoding=self.decoding, engine=self.engine, texts=options.texts
        )
        output = normalize_path(options.output).rstrip("/")
        known = counted(len(read_records(output)), "file")
        return WatchJob(
            request=dataclasses.replace(self, engine=choose_engine(model.folder, self.engine)),
            inbox=inbox,
            output=output,
            model=model,
            lines=(f"Watching {options.input} every {options.poll:g} s: {known} already finished",),
            notices=tuple(notices),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchJob(StoppableRun):
    """A checked job that has not read any input file yet."""

    request: WatchRequest
    inbox: Inbox
    output: str  # the output folder, absolute or with its scheme

    def run(self, report: Callable[[str], object] = lambda line: None) -> Metrics:
        """Translate files until `stop` is set; return the final state.

        Args:
          report: Receives a line for each file and each problem.

        Raises:
          UserError: Another run uses the output folder, or a problem such as a full disk affects
            all files.
          KeyboardInterrupt: The user interrupted the run; finished units remain.
        """
        options = self.request.options
        with contextlib.ExitStack() as stack:
            address, port = options.metrics_address, options.metrics_port
            stack.enter_context(serving(self.metrics, address=address, port=port))
            stack.enter_context(appending(self.metrics, path=options.metrics_file, report=report))
            stack.enter_context(lock_output(self.output, folder=JOB_FOLDER))
            self.metrics.note_assigned(True)
            known = read_records(self.output)
            reported: set[str] = set()
            report("Ready: tt translates files as they arrive")
            while not self.stop.is_set():
                self._translate_new(known, reported, report)
                end = time.monotonic() + options.poll
                # Sleep in short steps, because a signal handler cannot interrupt one long wait.
                while not self.stop.is_set() and time.monotonic() < end:
                    time.sleep(_STOP_CHECK_SECONDS)
        return self.metrics.snapshot()

    def _translate_new(
        self, known: set[str], reported: set[str], report: Callable[[str], object]
    ) -> None:
        """Translate the complete files that are not known yet.

        Args:
          known: The digests of finished files, to which this adds.
          reported: The problems that have been reported, to which this adds.
          report: Receives a line for each file and each new problem.
        """

        def note_trouble(problem: str) -> None:
            self.metrics.note_trouble(problem)
            if problem not in reported:
                report(f"tt: warning: {problem}")
            reported.add(problem)

        try:
            new = [file for file in self.inbox.find_complete() if file.digest not in known]
        except UserError as error:  # the file system does not answer
            note_trouble(str(error))
            return
        self.metrics.note_lag({0: len(new)})
        for done, file in enumerate(new, 1):
            if self.stop.is_set():
                return
            try:
                self._translate(file, report)
                known.add(file.digest)
            except DiskFullError:
                raise
            except (UserError, OSError) as error:
                note_trouble(f"{file.name} will be tried again: {error}")
            self.metrics.note_lag({0: len(new) - done})

    def _translate(self, file: WatchedFile, report: Callable[[str], object]) -> None:
        request = self._request_of(file)
        try:
            found = inspect_input(request.options, has_n_best=request.decoding.n_best > 1)
        except UserError as error:
            if isinstance(error, UnfinishedError) or not exists(file.path):
                raise  # the problem may be temporary, so write no record
            self._skip(file, str(error), report)
            return
        try:
            job = request.plan(found=found)
        except UnfinishedError:
            raise
        except UserError:  # the folder belongs to another version of the file or other options
            job = self._request_of(file, overwrite=True).plan(found=found)
        try:
            summary = job.run()
        except ColumnsError as error:  # `inspect_input` checks only the head of the file
            self._skip(file, str(error), report)
            return
        if skipped := summary.manifest["skipped_files"]:
            self._skip(file, skipped[0]["reason"], report)
            return
        write_record(self.output, file, rows=summary.rows)
        self.metrics.note_written(
            (
                status
                for rows in summary.manifest["rows_by_status"].values()
                for status in collections.Counter(rows).elements()
            ),
            milliseconds=[int(1000 * file.changed)],
        )
        report(f"{file.name}: {summary.rows:,} rows translated")

    def _skip(self, file: WatchedFile, reason: str, report: Callable[[str], object]) -> None:
        write_record(self.output, file, reason=reason)
        self.metrics.note_left_out()
        report(f"tt: warning: {file.name} is skipped: {reason}")

    def _request_of(self, file: WatchedFile, *, overwrite: bool = False) -> TranslateRequest:
        """Return the request for one file; the name of its output folder is the file's name."""
        watched = self.request.options
        options = TranslateOptions(
            input=(file.path,),
            output=f"{self.output}/{file.name}",
            text_columns=watched.fields,
            overwrite=overwrite,
            on_bad_file=SKIP,
            max_failed=1.0,  # failed rows have a status, and must not stop the watching
            texts=watched.texts,
        )
        return TranslateRequest(**{**vars(self.request), "options": options})
