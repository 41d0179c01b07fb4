"""Translate the tables that arrive in a folder: each file is a job of `translate-batch`.

Beam's own transform `Watch` is not used: on Beam's local runner it needs a process with one worker,
it starts a job that never ends, and the job forgets the files when it ends. A job per file has
units on all cores, a lock, a plan and a manifest, and it resumes after a kill.
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
from tt.pipelines.storage.object_stores import look_first
from tt.pipelines.storage.paths import JOB_FOLDER, normalize_path
from tt.pipelines.streams.metrics import Metrics, appending, serving
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.streams.plan import StoppableRun
from tt.pipelines.translate.inbox import Inbox, WatchedFile, read_records, write_record
from tt.pipelines.translate.inputs import inspect_input
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import SKIP, TranslateOptions

_NAP_SECONDS = 0.1  # between two looks at whether to stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchRequest(ModelRequest):
    """A request to translate the tables of a watched folder."""

    options: StreamOptions

    def plan(self, report: Callable[[str], object] = lambda line: None) -> WatchJob:
        """Look at the folder and the model; read no file, and write nothing.

        Raises:
          UserError: An option, the folder or the model does not fit.
        """
        options = self.options
        if find_runner_name(self.beam) != LOCAL_RUNNER.lower():
            raise UserError(
                f"a folder is watched from this machine, by {LOCAL_RUNNER}: leave out --runner, or "
                "translate its files by translate-batch"
            )
        set_file_system_options(self.beam)
        look_first([options.input, options.output])
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
            lines=(f"Watching {options.input} every {options.poll:g} s: {known} done before",),
            notices=tuple(notices),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchJob(StoppableRun):
    """A planned run; no file has been read yet."""

    request: WatchRequest
    inbox: Inbox
    output: str  # the output folder, absolute or with its scheme

    def run(self, report: Callable[[str], object] = lambda line: None) -> Metrics:
        """Translate files until `drain` is called; return the final state.

        Args:
          report: Takes a line for each file and each problem.

        Raises:
          UserError: Another run uses the output folder, or the problem concerns all files, such as
            a full disk.
          KeyboardInterrupt: The user wants to stop at once; finished units stay.
        """
        options = self.request.options
        with contextlib.ExitStack() as stack:
            address, port = options.metrics_address, options.metrics_port
            stack.enter_context(serving(self.metrics, address=address, port=port))
            stack.enter_context(appending(self.metrics, path=options.metrics_file, report=report))
            stack.enter_context(lock_output(self.output, folder=JOB_FOLDER))
            self.metrics.note_assigned(True)
            known = read_records(self.output)
            told: set[str] = set()
            report("Ready: files are translated as they come")
            while not self.stop.is_set():
                self._look_once(known, told, report)
                end = time.monotonic() + options.poll
                # Naps instead of one wait: a signal handler cannot interrupt a wait.
                while not self.stop.is_set() and time.monotonic() < end:
                    time.sleep(_NAP_SECONDS)
        return self.look()

    def _look_once(self, known: set[str], told: set[str], report: Callable[[str], object]) -> None:
        """Translate the complete files that are not `known`, and add their digests.

        `told` are the problems that were reported: each is reported once.
        """

        def note_trouble(problem: str) -> None:
            self.metrics.note_trouble(problem)
            if problem not in told:
                report(f"tt: warning: {problem}")
            told.add(problem)

        try:
            new = [file for file in self.inbox.look() if file.digest not in known]
        except UserError as error:  # the file system does not answer now
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
            except (UserError, OSError) as error:  # the next look tries the file again
                note_trouble(f"{file.name} is left for later: {error}")
            self.metrics.note_lag({0: len(new) - done})

    def _translate(self, file: WatchedFile, report: Callable[[str], object]) -> None:
        request = self._request_of(file)
        try:
            found = inspect_input(request.options, has_n_best=request.decoding.n_best > 1)
        except UserError as error:
            if isinstance(error, UnfinishedError) or not exists(file.path):
                raise  # it may pass: no record
            self._leave_out(file, str(error), report)
            return
        try:
            job = request.plan(found=found)
        except UnfinishedError:
            raise
        except UserError:  # the folder is of another version of the file, or of other options
            job = self._request_of(file, overwrite=True).plan(found=found)
        try:
            summary = job.run()
        except ColumnsError as error:  # after the first bytes, which `inspect_input` reads
            self._leave_out(file, str(error), report)
            return
        if skipped := summary.manifest["skipped_files"]:
            self._leave_out(file, skipped[0]["reason"], report)
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

    def _leave_out(self, file: WatchedFile, reason: str, report: Callable[[str], object]) -> None:
        write_record(self.output, file, reason=reason)
        self.metrics.note_left_out()
        report(f"tt: warning: {file.name} is left out: {reason}")

    def _request_of(self, file: WatchedFile, *, overwrite: bool = False) -> TranslateRequest:
        """Return the job on a file, whose translations are in a folder of the file's name."""
        request = self.request
        options = TranslateOptions(
            input=(file.path,),
            output=f"{self.output}/{file.name}",
            text_columns=request.options.fields,
            overwrite=overwrite,
            on_bad_file=SKIP,
            max_failed=1.0,  # each row says for itself; a stream does not end for it
            texts=request.options.texts,
        )
        return TranslateRequest(
            options=options,
            model=request.model,
            decoding=request.decoding,
            engine=request.engine,
            beam=request.beam,
        )
