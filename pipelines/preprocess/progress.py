"""How far a run of the preprocess job is."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable

from model.text.vocabulary import SOURCE_MODEL, TARGET_MODEL
from model.text.vocabulary_training import TrainingStage
from pipelines.pairs.spills import find_spill
from pipelines.pairs.units import read_index
from pipelines.pairs.work_folder import WorkFolder
from pipelines.preprocess.plan import PreprocessPlan
from pipelines.runners.formatting import format_seconds
from pipelines.runners.status_line import look_seconds
from pipelines.storage import files
from pipelines.storage.listing import list_names
from pipelines.storage.paths import is_local


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is."""

    sources: int
    sources_cut: int = 0  # sources whose units are all known
    chunks: int = 0  # chunk files written
    rows_sampled: int = 0  # rows that this process has read for the vocabularies' sample
    has_vocabularies: bool = False  # whether all vocabularies are in place
    training: str = ""  # file of the vocabulary that says how far its training is
    stage: TrainingStage | None = None  # how far it was
    stage_seconds: float = 0.0  # since that was first seen
    units: int = 0  # units of the sources that are cut
    rows: int = 0  # their rows
    units_done: int = 0  # units encoded
    rows_done: int = 0  # their rows
    rejected: int = 0  # pairs of those rows that were left out
    rows_done_here: int = 0  # rows of units encoded by this run
    shards: int = 0  # shards of all splits
    shards_done: int = 0  # shards written
    shards_done_here: int = 0  # of these, since the phase was first seen
    phase_seconds: float = 0.0  # since the phase was first seen

    @property
    def phase(self) -> str:
        """Which of its steps the run is at.

        It is cutting, sampling, vocabulary, encoding, merging or ending.
        """
        if self.sources_cut < self.sources:
            return "cutting"
        if not (self.units_done or self.has_vocabularies):
            return "sampling" if 0 < self.rows_sampled < self.rows else "vocabulary"
        if self.units_done < self.units:
            return "encoding"
        return "merging" if self.shards_done < self.shards else "ending"

    def describe(self) -> str:
        """Returns it in a line.

        >>> Progress(sources=1, sources_cut=1, units=9, units_done=9, shards=16, \
shards_done=2).describe()
        'merging: shard 3 of 16'
        """
        if self.phase == "cutting":
            return f"cutting: source {self.sources_cut + 1:,} of {self.sources:,}" + (
                f", {self.chunks:,} chunks" if self.chunks else ""
            )
        if self.phase == "sampling":
            parts = [f"sampling for the vocabulary: {self.rows_sampled:,} of {self.rows:,} pairs"]
            if self.phase_seconds > 0:
                rate = self.rows_sampled / self.phase_seconds
                parts.append(f"{rate:,.0f} pairs/s")
                parts.append(f"{format_seconds((self.rows - self.rows_sampled) / rate)} left")
            return ", ".join(parts)
        if self.phase == "vocabulary":
            return self._describe_training()
        if self.phase == "merging":
            parts = [f"merging: shard {self.shards_done + 1:,} of {self.shards:,}"]
            if self.shards_done_here and self.phase_seconds > 0:
                rate = self.shards_done_here / self.phase_seconds
                parts.append(f"{60 * rate:,.3g} shards a minute")
                parts.append(f"{format_seconds((self.shards - self.shards_done) / rate)} left")
            return ", ".join(parts)
        if self.phase == "ending":
            return "writing the manifest"
        parts = [f"reading: unit {self.units_done + 1:,} of {self.units:,}"]
        rate = 0.0
        if self.rows_done_here and self.phase_seconds > 0:
            rate = self.rows_done_here / self.phase_seconds
            parts.append(f"{rate:,.0f} pairs/s")
        if self.units_done:
            parts.append(f"{self.rows_done - self.rejected:,} kept")
            parts.append(f"{self.rejected:,} rejected")
        if rate:
            parts.append(f"{format_seconds((self.rows - self.rows_done) / rate)} left")
        return ", ".join(parts)

    def _describe_training(self) -> str:
        side = {SOURCE_MODEL: "source ", TARGET_MODEL: "target "}.get(self.training, "")
        parts = [f"training the {side}vocabulary: {format_seconds(self.phase_seconds)}"]
        if stage := self.stage:
            parts.append(f"{stage.rounds} of {stage.of} rounds")
            left = max(0.0, stage.seconds_left - self.stage_seconds)
            parts.append(f"{format_seconds(left)} left")
        return ", ".join(parts)


# Rows that this process has read for samples, by the work folder.
_sampled: collections.Counter[str] = collections.Counter()


def count_sampled(work_folder: str, rows: int) -> None:
    """Counts rows of which the sample for the vocabularies was taken; a retry counts them again."""
    _sampled[work_folder] += rows


def note_stages(work: WorkFolder, vocabulary: str) -> Callable[[TrainingStage], None]:
    """Returns what notes in the work folder how far the training of a vocabulary is.

    It writes as seldom as somebody looks: on an object store, each file costs requests.
    """
    interval = look_seconds(is_local=is_local(work.path))
    due = time.monotonic() + interval

    def note(stage: TrainingStage) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due = time.monotonic() + interval
        text = json.dumps(dataclasses.asdict(stage))
        # If nothing can be written here, then neither can the vocabulary, and that is told.
        with contextlib.suppress(Exception):
            work.write_text(work.training(vocabulary), text)

    return note


class ProgressWatch:
    """Finds out how far the run of a plan is; reads each small file once, and no large one."""

    def __init__(self, plan: PreprocessPlan) -> None:
        self._plan = plan
        # How many sources each index of units is of.
        self._sources = collections.Counter(plan.work.index(first) for first in plan.groups)
        self._unit_rows: dict[str, list[int]] = {}  # of each index of units
        self._spills: dict[str, tuple[int, int]] = {}  # rows and rejected pairs of each
        self._reused: set[str] | None = None  # spills of an earlier run
        self._has_vocabularies = False
        self._first_seen: dict[str, tuple[float, int]] = {}  # phase to time, and shards done then
        self._old_stages: dict[str, bytes] = {}  # how far trainings of an earlier run were
        self._stage: tuple[str, TrainingStage, float] | None = None  # of what, how far, seen when
        self._last: Progress | None = None

    def look(self, now: float) -> Progress:
        """Looks at the folders; `now` is in seconds, from any start.

        Raises:
          OSError, ValueError: A file went away, or is not what its name says.
        """
        plan = self._plan
        finished = plan.work.list_finished()
        if self._last and len(finished["units"]) < len(self._unit_rows):  # it is being deleted
            return dataclasses.replace(self._last, shards_done=self._last.shards)
        if self._reused is None:
            self._old_stages = {path: files.read_bytes(path) for path in finished["training"]}
            self._reused = set(finished["spill"])
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
        if not self._has_vocabularies:
            missing = set(plan.options.model_files) - set(list_names(plan.options.output))
            self._has_vocabularies = not missing
            self._look_at_training(missing, now, noted=finished["training"])
        unit_rows = [rows for source in self._unit_rows.values() for rows in source]
        progress = Progress(
            sources=len(plan.sources),
            sources_cut=sum(self._sources[path] for path in self._unit_rows),
            chunks=len(finished["chunk"]),
            rows_sampled=_sampled[plan.work.path],
            has_vocabularies=self._has_vocabularies,
            units=len(unit_rows),
            rows=sum(unit_rows),
            units_done=len(self._spills),
            rows_done=sum(rows for rows, _ in self._spills.values()),
            rejected=sum(rejected for _, rejected in self._spills.values()),
            rows_done_here=sum(
                rows for path, (rows, _) in self._spills.items() if path not in self._reused
            ),
            shards=sum(split.shards for split in plan.splits.values()),
            shards_done=len(finished["shard"]),
        )
        if self._stage is not None:
            training, stage, seen = self._stage
            progress = dataclasses.replace(
                progress, training=training, stage=stage, stage_seconds=now - seen
            )
        since, shards = self._first_seen.setdefault(progress.phase, (now, progress.shards_done))
        self._last = dataclasses.replace(
            progress,
            phase_seconds=now - since,
            shards_done_here=progress.shards_done - shards,
        )
        return self._last

    def _look_at_training(self, missing: set[str], now: float, *, noted: list[str]) -> None:
        """Reads how far the training of a vocabulary that is not there yet is, if it is noted."""
        for name in sorted(missing):
            path = self._plan.work.training(name)
            if path not in noted or (content := files.read_bytes(path)) == self._old_stages.get(
                path
            ):
                continue
            stage = TrainingStage.from_json(content)
            if self._stage is None or self._stage[:2] != (name, stage):
                self._stage = name, stage, now
            return
        self._stage = None
