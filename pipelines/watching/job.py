"""The loop over a watched folder: look, translate what is whole and new, wait."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from model.engines.translator import Engine
from model.errors import DiskFullError, UnfinishedError, UserError, counted
from model.folders.lock import lock_folder
from pipelines.inference.model_loading import FoundModel
from pipelines.storage.listing import exists
from pipelines.storage.paths import is_local
from pipelines.streams.metrics import Metrics, StreamMetrics, appending, serving
from pipelines.streams.options import StreamOptions
from pipelines.translate.inputs import inspect_input
from pipelines.translate.job import TranslateRequest
from pipelines.watching.inbox import Inbox, WatchedFile
from pipelines.watching.records import FOLDER, Records

_LOCK = "watch.lock"
_NAP_SECONDS = 0.1  # between two looks at whether the end is wanted


class RequestOf(Protocol):
    """Makes the request of a file."""

    def __call__(self, file: WatchedFile, *, overwrite: bool = False) -> TranslateRequest:
        """Returns it; `overwrite` where a file is replaced that was translated before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchJob:
    """What a run will do; no file has been read yet."""

    options: StreamOptions
    inbox: Inbox
    records: Records
    request: RequestOf
    model: FoundModel
    engine: Engine  # what computes
    notices: tuple[str, ...] = ()  # lines that warn the user
    metrics: StreamMetrics = dataclasses.field(default_factory=StreamMetrics)
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    def describe(self) -> list[str]:
        """Returns the lines that say what the run will do."""
        known = counted(len(self.records.read()), "file")
        return [f"Watching {self.options.input} every {self.options.poll:g} s: {known} done before"]

    def look(self) -> Metrics:
        """Returns what is known of the run now; may be called from any thread."""
        return self.metrics.look()

    def drain(self) -> None:
        """Asks the run to end when the file in hand is translated; of any thread."""
        self.stop.set()

    def run(self, report: Callable[[str], object] = lambda line: None) -> Metrics:
        """Translates files until `drain` is called; returns what was done.

        Args:
          report: Takes a line for each file, and of what goes wrong.

        Raises:
          UserError: Another run watches into the same folder, or what no file is to blame for: a
            full disk, a model that is gone.
          KeyboardInterrupt: The user wants the end at once; finished units stay.
        """
        options = self.options
        with contextlib.ExitStack() as stack:
            address, port = options.metrics_address, options.metrics_port
            stack.enter_context(serving(self.metrics, address=address, port=port))
            stack.enter_context(appending(self.metrics, path=options.metrics_file, report=report))
            if is_local(self.records.output):
                folder = f"{self.records.output}/{FOLDER}"
                lock = lock_folder(folder, name=_LOCK, remedy="choose another output")
                try:
                    stack.enter_context(lock)
                except OSError as error:
                    raise UserError(
                        f"the output folder {options.output} cannot be written: "
                        f"{error.strerror or error}. Choose another `output`"
                    ) from error
            self.metrics.note_assigned(True)
            known = self.records.read()
            told: set[tuple[str, str]] = set()
            report("Ready: files are translated as they come")
            while not self.stop.is_set():
                self._look_once(known, told, report)
                end = time.monotonic() + options.poll
                # Naps instead of one wait: a signal handler cannot interrupt a wait.
                while not self.stop.is_set() and time.monotonic() < end:
                    time.sleep(_NAP_SECONDS)
        return self.look()

    def _look_once(
        self, known: set[str], told: set[tuple[str, str]], report: Callable[[str], object]
    ) -> None:
        """Translates the files that are whole and not known, and makes them known.

        `told` are digests and errors that were reported, so that each is told once.
        """
        try:
            whole, _ = self.inbox.look()
        except UserError as error:  # a file system that does not answer now
            self.metrics.note_trouble(str(error))
            if ("", str(error)) not in told:
                report(f"tt: warning: {error}")
            told.add(("", str(error)))
            return
        new = [file for file in whole if file.digest not in known]
        self.metrics.note_lag({0: len(new)})
        for done, file in enumerate(new):
            if self.stop.is_set():
                return
            self.metrics.note_lag({0: len(new) - done})
            try:
                self._translate(file, report)
            except DiskFullError:
                raise
            except UserError as error:  # it may pass: the next look tries the file again
                self.metrics.note_trouble(f"{file.name}: {error}")
                if (file.digest, str(error)) not in told:
                    report(f"tt: warning: {file.name} is left for later: {error}")
                told.add((file.digest, str(error)))
                continue
            known.add(file.digest)
        self.metrics.note_lag({0: 0})

    def _translate(self, file: WatchedFile, report: Callable[[str], object]) -> None:
        request = self.request(file)
        try:
            found = inspect_input(request.options, has_n_best=request.decoding.n_best > 1)
        except UnfinishedError:  # rights, disk, services: they may pass
            raise
        except UserError as error:
            if not exists(file.path):
                raise  # no record of what is gone
            self.records.write(file, reason=str(error))
            self.metrics.note_left_out()
            report(f"tt: warning: {file.name} is left out: {error}")
            return
        try:
            job = request.plan(found=found)
        except UnfinishedError:
            raise
        except UserError:  # of another version of the file, or of other options
            job = self.request(file, overwrite=True).plan(found=found)
        summary = job.run()
        self.records.write(file, rows=summary.rows)
        self.metrics.note_written(
            _statuses(summary.rows_by_status), milliseconds=[int(1000 * file.changed)]
        )
        report(f"{file.name}: {summary.rows:,} rows translated")


def _statuses(by_column: dict[str, dict[str, int]]) -> Any:
    """Yields the status of each text."""
    total: collections.Counter[str] = collections.Counter()
    for statuses in by_column.values():
        total.update(statuses)
    return total.elements()
