"""Repeat a translation job on an input that grows, until a signal arrives.

Each check of the input starts an ordinary run of the job, which translates only new files or rows.
Therefore, the next run resumes a run that was killed, like any other run of `tt translate-batch`.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from tt.model.errors import DiskFullError, require
from tt.model.storage.listing import exists
from tt.pipelines.inference.model_loading import find_model
from tt.pipelines.runners.failures import explain, find_user_error
from tt.pipelines.streams.metrics import Metrics, StreamMetrics, describe, publishing
from tt.pipelines.tables.finding import FoundFile, with_identity
from tt.pipelines.tables.lakehouse import TableFile
from tt.pipelines.translate.inputs import inspect_input
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.job_folder import PLAN_PATH, find_json
from tt.pipelines.translate.lakehouse import find_input, open_output
from tt.pipelines.translate.manifest import TranslateSummary, describe_failure
from tt.pipelines.translate.options import WatchOptions

_STOP_CHECK_SECONDS = 0.1  # the time between two checks whether to stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """Runs a request again and again.

    Attributes:
      request: The request.
      options: The interval, and where to publish the metrics.
      metrics: Counts the translated rows, and stores the current problem.
      stop: Set when the watch must end after the run in progress.
    """

    request: TranslateRequest
    options: WatchOptions
    metrics: StreamMetrics = dataclasses.field(default_factory=StreamMetrics)
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for name in ("overwrite", "retry_failed"):
            require(
                not getattr(self.request.options, name),
                f"`watch` would repeat `{name}` at each check of the input. Run the command once "
                f"with `{name}` and without `watch`",
            )

    def check(self, report: Callable[[str], object]) -> None:
        """Check that the model and its engine can be used; the input may still be missing.

        Raises:
          UserError: The model is missing, or its engine does not support it.
        """
        find_model(self.request, report=report)

    def describe(self) -> str:
        """Return the status line."""
        return describe(self.metrics.snapshot(), what="row")

    def run(self, report: Callable[[str], object]) -> Metrics:
        """Translate new files and rows until `stop` is set; return the final metrics.

        A problem of one run, such as a damaged file, does not end the watch. It is reported once,
        and the next check of the input tries again.

        Args:
          report: Prints a line for each run and for each new problem.

        Raises:
          UserError: The port or the file of the metrics cannot be used.
          DiskFullError: The disk is full.
          KeyboardInterrupt: The user interrupted the run in progress.
        """
        options, problem = self.options, ""
        with publishing(self.metrics, options, report=report):
            self.metrics.note_assigned(True)
            before: dict[str, FoundFile] = {}
            finished: dict[str, FoundFile] | None = None  # the files of the last finished run
            while not self.stop.is_set():
                try:
                    unread: list[str] = []
                    now = self._list(unread)
                    every = before | now
                    unsure = {path for path in every if before.get(path) != now.get(path)}
                    ready = [file for path, file in now.items() if path not in unsure]
                    before, found = now, ""
                    names = {every[path].relative_path for path in unsure}
                    # Without a file that it has translated, a run would take it for removed.
                    if ready and now != finished and not (names and names & self._find_planned()):
                        self._run_once(ready, report, unread=unread)
                        finished = None if unsure else now
                except Exception as error:
                    known = find_user_error(error) or explain(error)
                    if known is None or isinstance(known, DiskFullError):
                        raise
                    found = str(known)
                    if found != problem:
                        report(
                            f"tt: warning: {found}. tt tries again at the next check of the input"
                        )
                problem = found
                self.metrics.note_trouble(found)
                self._wait()
        return self.metrics.snapshot()

    def _list(self, unread: list[str]) -> dict[str, FoundFile]:
        """Return the files of the input by path, with their sizes and times of change.

        Args:
          unread: Receives the other files in the input folders.

        Raises:
          UserError: The file system does not answer, or there is no file yet.
        """
        files = find_input(
            self.request.options.input,
            options=self.request.options.read,
            warn=lambda line: None,
            unread=unread,
        )
        # The data files of a table never change, so their times are not needed.
        return {f.path: f if isinstance(f, TableFile) else with_identity(f) for f in files}

    def _find_planned(self) -> set[str]:
        """Return the relative paths of the files that the output's plan takes for existing."""
        options = self.request.options
        table = open_output(options)
        output = options.output if table is None else table.location
        path = f"{output}/{PLAN_PATH}"
        saved = find_json(path) if exists(path) else None
        files = saved["input"] if saved else {}
        return {name for name, file in files.items() if not file.get("removed")}

    def _run_once(
        self, ready: list[FoundFile], report: Callable[[str], object], *, unread: list[str]
    ) -> None:
        request = self.request
        has_n_best = request.decoding.n_best > 1
        found = inspect_input(
            request.options,
            has_n_best=has_n_best,
            output=open_output(request.options),
            listed=ready,
            unread=unread,
        )
        job = request.plan(found=found)
        if job.is_finished:
            return
        for line in job.notices:
            report(f"tt: warning: {line}")
        summary = job.run()
        self._count(summary)
        report(f"{summary.run_rows:,} rows translated, {summary.rows:,} in total")
        if summary.has_failed:
            report(f"tt: warning: {describe_failure(summary)}")

    def _count(self, summary: TranslateSummary) -> None:
        """Add the rows of the units that a run wrote to the metrics."""
        self.metrics.note_written(summary.manifest["last_run"]["rows_by_worst_status"])

    def _wait(self) -> None:
        end = time.monotonic() + (self.options.seconds or 0)
        # Sleep in short steps, because a signal handler cannot interrupt one long wait.
        while not self.stop.is_set() and time.monotonic() < end:
            time.sleep(_STOP_CHECK_SECONDS)
