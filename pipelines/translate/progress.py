"""How far a Parquet job is, by the statistics that its units have left; works with any runner.

Of units under way, only those of this process's threads tell how many rows are done.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from model.engines.progress import rows_under_way
from model.engines.translator import Work
from pipelines.runners.figures import format_seconds
from pipelines.storage.listing import list_folder
from pipelines.translate.job_folder import UNITS_FOLDER
from pipelines.translate.units import UnitStatistics, read_statistics


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationProgress:
    """How far a run is.

    Attributes:
      rows: Rows of all units.
      rows_done: Rows of finished units.
      rows_done_here: Rows of units that this run finished.
      rows_under_way: Rows done in unfinished units, where this process works on them.
      failed_rows: Failed rows of finished units.
      work: What this run has translated.
      seconds: Seconds since the run began.
      is_retry: Whether only failed rows are translated again; then nothing else is known.
    """

    rows: int
    rows_done: int = 0
    rows_done_here: int = 0
    rows_under_way: int = 0
    failed_rows: int = 0
    work: Work = dataclasses.field(default_factory=Work)
    seconds: float = 0.0
    is_retry: bool = False

    def describe(self) -> str:
        """Says it in a line.

        >>> TranslationProgress(rows=100_000).describe()
        'translating: 0 of 100,000 rows'
        """
        if self.is_retry:
            return f"translating failed rows again: {format_seconds(self.seconds)}"
        done = self.rows_done + self.rows_under_way
        done_here = self.rows_done_here + self.rows_under_way
        parts = [f"translating: {done:,} of {self.rows:,} rows"]
        if self.rows_done == self.rows:
            parts = ["writing the manifest"]
        elif done_here and self.seconds > 0:
            rate = done_here / self.seconds
            parts.append(f"{rate:,.0f} rows/s")
            if self.rows_done_here:
                parts.append(f"{self.work.target_tokens / self.seconds:,.0f} target tokens/s")
                parts.append(f"{self.work.padding:.0%} padding")
            parts.append(f"{format_seconds((self.rows - done) / rate)} left")
        if self.failed_rows:
            parts.append(f"{self.failed_rows:,} failed")
        return ", ".join(parts)


class ProgressWatch:
    """Finds out how far the run of a job is; reads the statistics of each unit once.

    Args:
      output: The output folder.
      rows: Rows of all units.
      run_id: Name of the run.
      is_done: Whether the run takes a unit as finished: not those of a job that it overwrites.
      is_retry: Whether only failed rows are done, so that all units are there from the start.
    """

    def __init__(
        self,
        *,
        output: str,
        rows: int,
        run_id: str,
        is_done: Callable[[UnitStatistics], bool],
        is_retry: bool = False,
    ) -> None:
        self._start = time.monotonic()
        self._is_retry = is_retry
        self._output = output
        self._rows = rows
        self._run_id = run_id
        self._is_done = is_done
        self._found: dict[str, UnitStatistics] = {}
        self._most = 0  # rows that were done, those under way included

    def look(self) -> TranslationProgress:
        """Looks at the folder.

        Raises:
          OSError, ValueError: A file went away.
        """
        seconds = time.monotonic() - self._start
        if self._is_retry:
            return TranslationProgress(rows=self._rows, seconds=seconds, is_retry=True)
        for path in list_folder(f"{self._output}/{UNITS_FOLDER}"):
            name = path.removeprefix(f"{self._output}/")
            if name not in self._found:
                statistics = read_statistics(output=self._output, path=name)
                if statistics is not None and self._is_done(statistics):
                    self._found[name] = statistics
        done = list(self._found.values())
        here = [unit for unit in done if unit.run_id == self._run_id]
        rows_done = sum(unit.rows for unit in done)
        # While a unit is written, its rows are neither done nor under way: what was shown stays.
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
