"""How far a run of the preprocess job is, from the files that it has written."""

from __future__ import annotations

import collections
import contextlib

from pipelines.jobs.progress import PhaseTimes, Progress
from pipelines.preprocess.plan import PreprocessPlan
from pipelines.preprocess.spills import find_spill
from pipelines.preprocess.units import read_index
from pipelines.storage import files
from pipelines.storage.listing import list_names


class ProgressWatch:
    """Finds out how far the run of a plan is; reads each small file once, and no large one."""

    def __init__(self, plan: PreprocessPlan) -> None:
        self._plan = plan
        # Number of sources that each index of units covers.
        self._sources = collections.Counter(plan.work.index(first) for first in plan.groups)
        self._unit_rows: dict[str, list[int]] = {}  # by the path of the index
        self._spills: dict[str, tuple[int, int]] = {}  # rows and rejected pairs by path
        self._times = PhaseTimes()

    def look(self, now: float) -> Progress:
        """Look at the folders; `now` is in seconds from any start.

        Raises:
          OSError, ValueError: A file was deleted, or does not contain what its name says.
        """
        finished = self._plan.work.list_finished()
        for path in finished["units"]:
            if path not in self._unit_rows:
                with contextlib.suppress(ValueError):  # truncated: its sources are cut again
                    units = read_index(files.read_bytes(path))
                    self._unit_rows[path] = [sum(rows.values()) for rows, _ in units]
        for path in finished["spill"]:
            if path not in self._spills and (spill := find_spill(path)):
                statistics = spill.statistics
                self._spills[path] = (
                    sum(rows for _, rows in statistics["rows"]),
                    sum(count for _, _, count in statistics["rejected"]),
                )
        is_being_deleted = len(finished["units"]) < len(self._unit_rows)
        shards = None if is_being_deleted else len(finished["shard"])
        return self._times.add(self._find_phase(shards), now=now)

    def _find_phase(self, shards_done: int | None) -> Progress:
        """Return the progress; `shards_done` is None if the work folder is being deleted."""
        plan = self._plan
        shards = sum(split.shards for split in plan.splits.values())
        if shards_done is None:
            return Progress(phase="writing the manifest")
        cut = sum(self._sources[path] for path in self._unit_rows)
        if cut < len(plan.sources):
            return Progress(phase="cutting", done=cut, total=len(plan.sources), noun="sources")
        if not self._spills and not self._has_vocabularies():
            return Progress(phase="training the vocabulary")
        rows = sum(sum(units) for units in self._unit_rows.values())
        done = sum(rows for rows, _ in self._spills.values())
        if len(self._spills) < sum(map(len, self._unit_rows.values())):
            rejected = f"{sum(rejected for _, rejected in self._spills.values()):,} rejected"
            return Progress(
                phase="encoding", done=done, total=rows, noun="pairs", details=(rejected,)
            )
        if shards_done < shards:
            return Progress(phase="merging", done=shards_done, total=shards, noun="shards")
        return Progress(phase="writing the manifest")

    def _has_vocabularies(self) -> bool:
        return set(self._plan.options.model_files) <= set(list_names(self._plan.options.output))
