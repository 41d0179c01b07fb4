"""What a plan of the preprocess job comes to, and how far its run has got.

Both only look: at the plan, and at the names of files in the folders that a run writes, so that
they work with any runner.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions

from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.text.vocabulary import SHARED_MODEL, SOURCE_MODEL, TARGET_MODEL, TextNormalization
from pipelines.pairs.filters import Filters
from pipelines.pairs.held_out import SHORT_TOKENS
from pipelines.pairs.spills import read_spill_footer
from pipelines.pairs.units import megabytes
from pipelines.preprocess.plan import PreprocessOptions, PreprocessPlan
from pipelines.runners.runner import LOCAL_RUNNER, make_pipeline, with_local_defaults
from pipelines.runners.status_line import StatusLine, format_seconds
from pipelines.storage import files

_LOCAL_INTERVAL = 1.0  # seconds
_REMOTE_INTERVAL = 15.0  # a listing there takes a second itself, and costs


# The line.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
      sources: Number of sources.
      sources_cut: Sources whose units are all known.
      chunks: Chunk files written.
      has_vocabularies: Whether all vocabularies are in place.
      units: Units of the sources that are cut.
      rows: Their rows.
      units_done: Units encoded.
      rows_done: Their rows.
      rejected: Pairs of those rows that were left out.
      rows_done_here: Rows of units encoded by this run.
      shards: Shards of all splits.
      shards_done: Shards written.
      phase_seconds: Since the phase was first seen.
    """

    sources: int
    sources_cut: int = 0
    chunks: int = 0
    has_vocabularies: bool = False
    units: int = 0
    rows: int = 0
    units_done: int = 0
    rows_done: int = 0
    rejected: int = 0
    rows_done_here: int = 0
    shards: int = 0
    shards_done: int = 0
    phase_seconds: float = 0.0

    @property
    def phase(self) -> str:
        """Which of its steps the run is at: cutting, vocabulary, encoding, merging or ending."""
        if self.sources_cut < self.sources:
            return "cutting"
        if not (self.units_done or self.has_vocabularies):
            return "vocabulary"
        if self.units_done < self.units:
            return "encoding"
        return "merging" if self.shards_done < self.shards else "ending"


def format_progress(progress: Progress) -> str:
    """Puts how far a run is into a line.

    >>> format_progress(Progress(sources=1, sources_cut=1, units=9, units_done=9, shards=16, \
shards_done=2))
    'merging: shard 3 of 16'
    """
    if progress.phase == "cutting":
        return f"cutting: source {progress.sources_cut + 1:,} of {progress.sources:,}" + (
            f", {progress.chunks:,} chunks" if progress.chunks else ""
        )
    if progress.phase == "vocabulary":
        return f"training the vocabulary: {format_seconds(progress.phase_seconds)}"
    if progress.phase == "merging":
        return f"merging: shard {progress.shards_done + 1:,} of {progress.shards:,}"
    if progress.phase == "ending":
        return "writing the manifest"
    parts = [f"reading: unit {progress.units_done + 1:,} of {progress.units:,}"]
    rate = 0.0
    if progress.rows_done_here and progress.phase_seconds > 0:
        rate = progress.rows_done_here / progress.phase_seconds
        parts.append(f"{rate:,.0f} pairs/s")
    if progress.units_done:
        parts.append(f"{progress.rows_done - progress.rejected:,} kept")
        parts.append(f"{progress.rejected:,} rejected")
    if rate:
        parts.append(f"{format_seconds((progress.rows - progress.rows_done) / rate)} left")
    return ", ".join(parts)


class ProgressWatch:
    """Finds out how far the run of a plan is; reads each small file once, and no large one."""

    def __init__(self, plan: PreprocessPlan) -> None:
        self._plan = plan
        self._unit_rows: dict[str, list[int]] = {}  # of each index of units
        self._spills: dict[str, tuple[int, int]] = {}  # rows and rejected pairs of each
        self._reused: set[str] | None = None  # spills of an earlier run
        self._has_vocabularies = False
        self._first_seen: dict[str, float] = {}  # phase to time

    def look(self, now: float) -> Progress:
        """Looks at the folders.

        Args:
          now: The time in seconds, from any start.

        Raises:
          OSError, ValueError: A file went away, or is not what its name says.
        """
        plan = self._plan
        names = list_names(plan.work_folder)
        spills = [name for name in names if name.startswith("spill-") and _is_whole(name)]
        if self._reused is None:
            self._reused = set(spills)
        for name in names:
            if name.startswith("units-") and _is_whole(name) and name not in self._unit_rows:
                self._unit_rows[name] = json.loads(files.read_bytes(self._path(name)))
        for name in spills:
            if name not in self._spills:
                statistics = read_spill_footer(self._path(name))[1]
                self._spills[name] = statistics["rows"], sum(statistics["rejected"].values())
        self._has_vocabularies = self._has_vocabularies or self._find_vocabularies()
        unit_rows = [rows for source in self._unit_rows.values() for rows in source]
        progress = Progress(
            sources=len(plan.sources),
            sources_cut=len(self._unit_rows),
            chunks=sum(name.startswith("chunk-") and _is_whole(name) for name in names),
            has_vocabularies=self._has_vocabularies,
            units=len(unit_rows),
            rows=sum(unit_rows),
            units_done=len(self._spills),
            rows_done=sum(rows for rows, _ in self._spills.values()),
            rejected=sum(rejected for _, rejected in self._spills.values()),
            rows_done_here=sum(
                rows for name, (rows, _) in self._spills.items() if name not in self._reused
            ),
            shards=sum(split.shards for split in plan.splits.values()),
            shards_done=sum(name.startswith("shard-") and _is_whole(name) for name in names),
        )
        since = self._first_seen.setdefault(progress.phase, now)
        return dataclasses.replace(progress, phase_seconds=now - since)

    def _path(self, name: str) -> str:
        path: str = FileSystems.join(self._plan.work_folder, name)
        return path

    def _find_vocabularies(self) -> bool:
        options = self._plan.options
        models = {SHARED_MODEL} if options.is_shared else {SOURCE_MODEL, TARGET_MODEL}
        return models <= set(list_names(options.output))


def list_names(folder: str) -> list[str]:
    """Returns the names of what lies in a folder; a folder that is not there has nothing in it."""
    if files.is_local(folder):
        here = Path(folder)
        return sorted(path.name for path in here.iterdir()) if here.is_dir() else []
    root = folder.rstrip("/") + "/"
    [result] = FileSystems.match([root + "*"])
    return sorted(metadata.path.removeprefix(root) for metadata in result.metadata_list)


def _is_whole(name: str) -> bool:
    return not name.endswith(".tmp")


class ProgressLine(StatusLine):
    """Shows on a terminal, in one line, how far the run inside its `with` block is."""

    def __init__(self, plan: PreprocessPlan, *, stream: TextIO) -> None:
        watch = ProgressWatch(plan)
        is_local = files.is_local(plan.work_folder)
        super().__init__(
            lambda: format_progress(watch.look(time.monotonic())),
            interval=_LOCAL_INTERVAL if is_local else _REMOTE_INTERVAL,
            stream=stream,
        )


# The plan.


def describe_plan(plan: PreprocessPlan, *, beam_arguments: Sequence[str] = ()) -> list[str]:
    """Returns the lines that say what a run would do; reads no corpus and writes nothing.

    Args:
      plan: The plan.
      beam_arguments: Beam's own flags, as the run would get them.

    Raises:
      UserError: Beam cannot take its flags.
    """
    options = plan.options
    lines = []
    for order, source in enumerate(plan.sources):
        note = " (held out)" if order >= plan.held_out_from else ""
        lines.append(f"source {order + 1}: {source.describe()}{note}")
    text_bytes = sum(source.text_bytes() for source in plan.sources)
    lines.append(
        f"input: about {megabytes(text_bytes)} of text, in units of up to {plan.unit_pairs:,} pairs"
    )
    for split, spread in plan.splits.items():
        lines.append(
            f"{split}: {spread.shards:,} shard(s) of {spread.buckets_per_shard:,} bucket(s) each"
        )
    if plan.has_held_out:
        lines.append("held out: all pairs of the held-out sources, unfiltered")
    else:
        lines.append(
            f"held out: {options.validation_fraction:.4g} of the pairs, by the hash of the source"
        )
    if options.exclude:
        lines.append(f"excluded: pairs with a text of {', '.join(options.exclude)}")
    if plan.has_held_out or options.exclude:
        lines.append(f"kept from training: {_HELD_OUT_BY[options.holds_out_by]}")
    return [
        *lines,
        f"vocabulary: {_describe_vocabulary(options)}",
        f"filters: {_describe_filters(options.filters)}",
        f"duplicates: {_DUPLICATES[options.deduplicate]}",
        f"normalisation: {_describe_fields(options.normalization)}",
        f"runner: {_describe_runner(beam_arguments)}",
        f"output: {options.output}, {_describe_output(plan)}",
    ]


_LONG = f"of more than {SHORT_TOKENS} tokens"
_HELD_OUT_BY = {
    "long-side": f"held-out pairs, and held-out or excluded texts {_LONG} on any side",
    "pair": f"held-out pairs, and excluded texts {_LONG} on any side",
    "source": f"pairs with a held-out source, and excluded texts {_LONG} on any side",
    "side": "held-out and excluded texts on any side",
}
_DUPLICATES = {
    "pair": "of equal pairs the first stays",
    "source": "of pairs with an equal source the first stays",
    "target": "of pairs with an equal target the first stays",
    "none": "all stay",
}


def _describe_vocabulary(options: PreprocessOptions) -> str:
    if options.vocabulary:
        return "given, " + " and ".join(options.vocabulary)
    kinds = [
        options.source_vocabulary_type or options.vocabulary_type,
        options.target_vocabulary_type or options.vocabulary_type,
    ]
    shared = f"{kinds[0]}, shared" if options.is_shared else f"{' and '.join(kinds)}, one a side"
    fewer = "" if options.vocabulary_size else " (or what the corpus allows)"
    details = [f"{options.wanted_pieces:,} pieces{fewer}", f"rule {options.normalization_rule}"]
    details.append(f"on up to {options.vocabulary_sample:,} lines")
    if options.character_coverage is not None:
        details.append(f"coverage {options.character_coverage:g}")
    if options.byte_fallback:
        details.append("byte fallback")
    if options.user_symbols:
        details.append(f"symbols {' '.join(options.user_symbols)}")
    return f"to be trained, {shared}, {', '.join(details)}"


def _describe_filters(filters: Filters) -> str:
    if not (filters.source_script or filters.target_script):
        filters = dataclasses.replace(filters, min_script=0)
    return _describe_fields(filters)


def _describe_fields(settings: Filters | TextNormalization) -> str:
    """Lists the fields of a dataclass that switch something on, with their values."""
    shown = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        name = field.name.replace("_", " ")
        if value is True:
            shown.append(name)
        elif value not in (None, False, 0, "", "none"):
            shown.append(f"{name} {value}")
    return ", ".join(shown) or "none"


def _describe_runner(beam_arguments: Sequence[str]) -> str:
    pipeline = make_pipeline(with_local_defaults(beam_arguments))
    name = type(pipeline.runner).__name__
    direct = pipeline.options.view_as(DirectOptions)
    if name != LOCAL_RUNNER:
        return f"{name} {' '.join(beam_arguments)}"
    return f"{name}, {direct.direct_num_workers} worker(s), {direct.direct_running_mode}"


def _describe_output(plan: PreprocessPlan) -> str:
    output = plan.options.output
    if files.is_local(output) and Path(output).is_file():
        return "which is a file: it would be refused"
    root = output.rstrip("/") + "/"
    names = [path.removeprefix(root) for path in files.list_folder(output)]
    if MANIFEST_FILE in names:
        manifest = DatasetManifest.load(output, read=files.read_bytes)
        if plan.made(manifest):
            return f"finished already, with {manifest.pairs_kept:,} pairs: it would stay as it is"
        return "which holds another finished dataset: it would be refused"
    if work := list_names(plan.work_folder):
        spills = sum(name.startswith("spill-") and _is_whole(name) for name in work)
        return f"begun already, with {spills:,} unit(s) encoded: they would be taken over"
    if names:
        return f"which holds something else ({', '.join(names[:3])}): it would be refused"
    return "which holds nothing yet"
