"""How far a Parquet job is, by the statistics that its units have left; works with any runner.

Of units that threads of this process work on, it is known how many rows are done.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TextIO

from model.engines.translator import Work
from model.engines.under_way import rows_under_way
from pipelines.runners.status_line import StatusLine, format_seconds
from pipelines.storage.files import is_local, list_folder
from pipelines.translate.plan import UNITS_FOLDER
from pipelines.translate.units import UnitStatistics, read_statistics

_LOCAL_INTERVAL = 1.0  # seconds
_REMOTE_INTERVAL = 15.0  # a listing there takes a second itself, and costs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationProgress:
    """How far a run is.

    Attributes:
      rows: Of all units.
      rows_done: Of finished units.
      rows_done_here: Of those that this run finished.
      rows_under_way: Done in units that are not finished, where this process works on them.
      failed_rows: Of finished units.
      work: Of this run.
      seconds: Since the run began.
    """

    rows: int
    rows_done: int = 0
    rows_done_here: int = 0
    rows_under_way: int = 0
    failed_rows: int = 0
    work: Work = dataclasses.field(default_factory=Work)
    seconds: float = 0.0


def format_progress(progress: TranslationProgress) -> str:
    """Puts how far a run is into a line.

    >>> format_progress(TranslationProgress(rows=100_000))
    'translating: 0 of 100,000 rows'
    """
    done = progress.rows_done + progress.rows_under_way
    done_here = progress.rows_done_here + progress.rows_under_way
    parts = [f"translating: {done:,} of {progress.rows:,} rows"]
    if progress.rows_done == progress.rows:
        parts = ["writing the manifest"]
    elif done_here and progress.seconds > 0:
        rate = done_here / progress.seconds
        parts.append(f"{rate:,.0f} rows/s")
        if progress.rows_done_here:
            parts.append(f"{progress.work.target_tokens / progress.seconds:,.0f} target tokens/s")
            parts.append(f"{progress.work.padding:.0%} padding")
        parts.append(f"{format_seconds((progress.rows - done) / rate)} left")
    if progress.failed_rows:
        parts.append(f"{progress.failed_rows:,} failed")
    return ", ".join(parts)


class ProgressWatch:
    """Finds out how far the run of a job is; reads the statistics of each unit once.

    Args:
      output: The output folder.
      rows: Of all units.
      run_id: Of the run.
      is_done: Whether the run takes a unit as finished: not those of a job that it overwrites.
    """

    def __init__(
        self, *, output: str, rows: int, run_id: str, is_done: Callable[[UnitStatistics], bool]
    ) -> None:
        self._output = output
        self._rows = rows
        self._run_id = run_id
        self._is_done = is_done
        self._found: dict[str, UnitStatistics] = {}
        self._most = 0  # rows that were done, those under way included

    def look(self, *, seconds: float) -> TranslationProgress:
        """Looks at the folder.

        Args:
          seconds: Since the run began.

        Raises:
          OSError, ValueError: A file went away.
        """
        for path in list_folder(f"{self._output}/{UNITS_FOLDER}"):
            name = path.removeprefix(f"{self._output}/")
            if name not in self._found:
                statistics = read_statistics(output=self._output, path=name)
                if statistics is not None and self._is_done(statistics):
                    self._found[name] = statistics
        done = list(self._found.values())
        here = [unit for unit in done if unit.run_id == self._run_id]
        rows_done = sum(unit.rows for unit in done)
        # Rows of a unit that is being written are neither: what was shown stays.
        self._most = min(self._rows, max(self._most, rows_done + rows_under_way()))
        return TranslationProgress(
            rows=self._rows,
            rows_done=rows_done,
            rows_under_way=self._most - rows_done,
            rows_done_here=sum(unit.rows for unit in here),
            failed_rows=sum(unit.failed_rows for unit in done),
            work=sum((unit.work for unit in here), Work()),
            seconds=seconds,
        )


class ProgressLine(StatusLine):
    """Shows on a terminal, in one line, how far the run inside its `with` block is.

    Args:
      output: The output folder.
      rows: Of all units.
      run_id: Of the run.
      is_done: Whether the run takes a unit as finished.
      is_retry: Whether only failed rows are done, so that all units are there from the start.
      stream: Where it is shown.
    """

    def __init__(
        self,
        *,
        output: str,
        rows: int,
        run_id: str,
        is_done: Callable[[UnitStatistics], bool],
        is_retry: bool,
        stream: TextIO,
    ) -> None:
        watch = ProgressWatch(output=output, rows=rows, run_id=run_id, is_done=is_done)
        start = time.monotonic()

        def look() -> str:
            seconds = time.monotonic() - start
            if is_retry:
                return f"translating failed rows again: {format_seconds(seconds)}"
            return format_progress(watch.look(seconds=seconds))

        interval = _LOCAL_INTERVAL if is_local(output) else _REMOTE_INTERVAL
        super().__init__(look, interval=interval, stream=stream)
