"""The plan of a dataset, and whether a run of it can use the dataset folder.

The plan follows from the options and the sizes of the input.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import sentencepiece

from tt.model.dataset.manifest import (
    HELD_OUT,
    MANIFEST_FILE,
    MANIFEST_FORMAT,
    TRAIN,
    VALIDATION,
    WEIGHT,
    DatasetManifest,
    digest_file,
)
from tt.model.errors import BadFileError, UserError, require
from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import digest_patterns
from tt.model.text.vocabulary import VOCABULARY_FILE, Vocabulary
from tt.pipelines.jobs.folders import JobRecord, check_claim, output_error
from tt.pipelines.preprocess.corpora import SourceList
from tt.pipelines.preprocess.held_out import short_tokens
from tt.pipelines.preprocess.options import PreprocessOptions, as_given
from tt.pipelines.preprocess.sources import SLICE_PAIRS, Source
from tt.pipelines.preprocess.spills import SplitPlan
from tt.pipelines.preprocess.units import MAX_UNIT_BYTES, MAX_UNIT_PAIRS
from tt.pipelines.preprocess.work_folder import RUN_FILE, WORK_FOLDER, WorkFolder
from tt.pipelines.storage import files, listing, paths

# Changes whenever the same input and options would give other bytes.
_RESULT_VERSION = 4
# Changes whenever what a run keeps in its work folder means something else.
_WORK_VERSION = 4
_UNITS = 64  # at least, where the input is large enough: work for many workers
_MOST_UNITS = 1000  # about, as long as units of such a size fit into memory
_MAX_UNIT_PAIRS_OF_HUGE = 1024 * 1024
_PAIR_BYTES = 100  # of text, at the least
_LEAST_GROUP_BYTES = SLICE_PAIRS * _PAIR_BYTES  # about the smallest unit
_BUCKET_BYTES = 64 << 20  # of one bucket in memory; text is an upper estimate of its records
_RECORD_SHARE = 0.7  # bytes of records for a byte of text, about
_MAX_SHARDS = 1024
_VALIDATION_SHARD_BYTES = 256 << 20
_RESULTS = ("read", "kept", "rejected", "languages")  # what a manifest adds to a corpus


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetPlan:
    """What the steps of a job must know, and nothing of single files: there may be 100,000."""

    held_out_from: int  # index of the first held-out corpus
    source_count: int  # of all corpora, the held-out ones last
    options: PreprocessOptions  # options of the dataset
    # Options as the manifest has them, with the identities that files had when the run was planned.
    resolved: dict[str, Any]
    corpus: str  # name of the corpus for the manifest
    fingerprint: str  # hex digest of all that the result depends on
    unit_pairs: int  # the most pairs of a unit of work
    splits: dict[str, SplitPlan]  # shards and buckets of each split

    @property
    def has_held_out(self) -> bool:
        """Whether some corpora are held out, and are the validation split."""
        return self.held_out_from < self.source_count

    @property
    def short_tokens(self) -> int:
        """The most tokens of a side that is too short to be held out by itself."""
        return short_tokens(self.options.holds_out_by)

    @property
    def validation_below(self) -> int:
        """The hash below which the source of a pair puts the pair into validation."""
        return 0 if self.has_held_out else int(self.options.validation_fraction * 2**64)

    @property
    def duplicate_reason(self) -> str:
        """The reason why duplicates are rejected."""
        return f"duplicate_{self.options.deduplicate}"

    @property
    def work(self) -> WorkFolder:
        """Where the run keeps what the finished folder has no need of."""
        name = f"{self.fingerprint[:16]}-{_WORK_VERSION}"
        return WorkFolder(paths.join(self.options.output, WORK_FOLDER, name))

    @property
    def source_list(self) -> SourceList:
        """The sources, as the work folder lists them."""
        return SourceList(self.work.sources)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessPlan(DatasetPlan):
    """The decisions that are made before anything is read."""

    sources: Sequence[Source]  # all corpora, the held-out ones last
    identities: Sequence[dict[str, Any]]  # identities of the sources now, for the manifest
    groups: Sequence[int]  # of each source, the first one of those that it shares units with
    notices: Sequence[str] = ()  # warnings for the user, a line each

    @property
    def record(self) -> JobRecord:
        """The job, to compare with the job of the dataset folder."""
        sources = (
            {**identity, HELD_OUT: order >= self.held_out_from}
            for order, identity in enumerate(self.identities)
        )
        return _record(self.fingerprint, self.resolved, sources)

    @property
    def for_steps(self) -> DatasetPlan:
        """The part that the steps get."""
        names = [field.name for field in dataclasses.fields(DatasetPlan)]
        return DatasetPlan(**{name: getattr(self, name) for name in names})


def plan_preprocess(
    *,
    sources: Sequence[Source],
    validation_sources: Sequence[Source] = (),
    weights: Mapping[str, float] | None = None,
    options: PreprocessOptions,
    corpus: str = "",
) -> PreprocessPlan:
    """Decides how a dataset is made, from the names and sizes of its input.

    `weights` are the shares of sources that are kept, by name; None keeps all.

    Raises:
      UserError: The input or the options do not suit.
    """
    if not sources:
        raise UserError("no corpus given: name text files, TSV, JSONL, Parquet or tfds:NAME")
    for path in options.vocabulary:
        paths.check_is_open(path)
        vocabulary = Vocabulary(path, options.normalization, read=files.read_bytes)
        _check_normalization(path, options.normalization)
        if options.protection.is_on and not vocabulary.has_placeholders:
            require(
                not options.protect_regex,
                f"`protect_regex` needs tokens for placeholders, and {path} has none: train a "
                "vocabulary without `vocabulary`, or leave `protect_regex` out",
            )
            options = dataclasses.replace(options, protect=False)
    for path in options.exclude:
        if not listing.exists(path):
            raise UserError(f"no file of texts to exclude at {path}: check the path")
    every_source = [*sources, *validation_sources]
    identities = [source.identity() for source in every_source]
    _add_weights(identities[: len(sources)], weights or {})
    paths.check_no_glob(options.output)
    text_bytes = [source.text_bytes() for source in every_source]
    unit_pairs = _unit_pairs(sum(text_bytes))
    groups = _group_sources(text_bytes, held_out_from=len(sources))
    resolved = options.resolved()
    return PreprocessPlan(
        sources=every_source,
        identities=identities,
        groups=groups,
        held_out_from=len(sources),
        source_count=len(every_source),
        options=options,
        resolved=resolved,
        corpus=corpus,
        fingerprint=_fingerprint(
            identities,
            held_out_from=len(sources),
            resolved=resolved,
            corpus=corpus,
            has_spans=options.protection.is_on,
        ),
        unit_pairs=unit_pairs,
        splits=_plan_splits(
            sum(text_bytes[: len(sources)]), sum(text_bytes[len(sources) :]), options=options
        ),
    )


def _check_normalization(vocabulary: str, chosen: TextNormalization) -> None:
    """Raises if a given vocabulary was made for texts with another normalisation."""
    folder = paths.folder_of(vocabulary)
    beside = paths.join(folder, VOCABULARY_FILE)
    if not folder or not listing.exists(beside):
        return
    found = json.loads(files.read_bytes(beside)).get("normalization")
    if found != chosen.as_json():
        raise UserError(
            f"{vocabulary} was made for texts normalised by {found} ({beside} says so), not by "
            f"{chosen.as_json()}: see `unicode_form`, `clean_whitespace` and `lowercase`"
        )


def _add_weights(identities: Sequence[dict[str, Any]], weights: Mapping[str, float]) -> None:
    """Puts the weights of sources down in their identities, where the steps find them."""
    names = list(dict.fromkeys(identity["name"] for identity in identities))
    for name, weight in weights.items():
        if name not in names:
            raise UserError(
                f"`weights` name {name}, and there is no such corpus to train on: choose one of "
                f"{', '.join(names)}, or name a corpus as in {name}=web.tsv"
            )
        for identity in identities:
            if identity["name"] == name and weight < 1:
                identity[WEIGHT] = weight


def _fingerprint(
    identities: Sequence[dict[str, Any]],
    *,
    held_out_from: int,
    resolved: Mapping[str, Any],
    corpus: str,
    has_spans: bool,
) -> str:
    described = {
        "sources": identities,
        "held_out_from": held_out_from,
        "options": resolved,
        "corpus": corpus,
        "result_version": _RESULT_VERSION,
        "manifest_format": MANIFEST_FORMAT,
        "pyarrow": pa.__version__,  # its regular expressions decide filters
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
    }
    if has_spans:
        described["spans"] = digest_patterns()
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _unit_pairs(text_bytes: int) -> int:
    """Returns the most pairs of a unit, by the input's size.

    A small input has small units, so that all workers get some; a huge one has large units, as
    each shard is put together with a request a unit.
    """
    pairs = text_bytes // _PAIR_BYTES
    most = min(max(MAX_UNIT_PAIRS, math.ceil(pairs / _MOST_UNITS)), _MAX_UNIT_PAIRS_OF_HUGE)
    return min(most, max(1, math.ceil(pairs / _UNITS / SLICE_PAIRS)) * SLICE_PAIRS)


def _group_sources(text_bytes: Sequence[int], *, held_out_from: int) -> list[int]:
    """Returns of each source the first one of its group: of so many, small ones share units.

    Neighbours make a group, and no held-out source is in one with others.
    """
    if len(text_bytes) <= _MOST_UNITS:
        return list(range(len(text_bytes)))
    limit = min(max(sum(text_bytes) // _MOST_UNITS, _LEAST_GROUP_BYTES), MAX_UNIT_BYTES)
    groups: list[int] = []
    first = size = 0
    for order, own in enumerate(text_bytes):
        if order == held_out_from or size + own > limit:
            first, size = order, 0
        size += own
        groups.append(first)
    return groups


def _plan_splits(train: int, held_out: int, *, options: PreprocessOptions) -> dict[str, SplitPlan]:
    """Derives shards and buckets from bytes of text alone, so that a rerun finds them."""
    validation = held_out or math.ceil(train * options.validation_fraction)
    by_size = math.ceil(train * _RECORD_SHARE / (options.shard_megabytes * 2**20))
    shards = options.shards or min(max(1, by_size), _MAX_SHARDS)
    validation_shards = max(1, math.ceil(validation / _VALIDATION_SHARD_BYTES))

    def spread(text_bytes: int, shards: int) -> SplitPlan:
        buckets = max(1, math.ceil(text_bytes / shards / _BUCKET_BYTES))
        return SplitPlan(shards=shards, buckets_per_shard=buckets)

    return {TRAIN: spread(train, shards), VALIDATION: spread(validation, validation_shards)}


# The dataset folder.


def check_output(
    plan: PreprocessPlan, report: Callable[[str], object] = lambda line: None
) -> DatasetManifest | None:
    """Check that the dataset folder is free for a plan; return the manifest of a finished dataset.

    A dataset of this plan with a missing or damaged file is not finished: a run makes it again.

    Args:
      plan: The plan.
      report: Takes a line for each missing or damaged file.

    Raises:
      UserError: The folder belongs to another job, or contains other files.
    """
    output = plan.options.output
    if paths.is_local(output) and Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"{output} is a file, not a folder: choose another `output`")
    sizes = _list_sizes(output)
    manifest = _read_manifest(output)
    check_claim(
        output,
        saved=_record(manifest.fingerprint, manifest.options, manifest.sources)
        if manifest
        else _find_begun(plan, sizes),
        asked=plan.record,
        foreign=[name for name in sizes if not name.startswith(f"{WORK_FOLDER}/")],
        remedy=f"remove {output}",
    )
    damaged = _find_damage(output, manifest, sizes) if manifest else []
    for path in damaged:
        report(f"{path} is missing or damaged: the dataset is made again")
    return None if damaged else manifest


def claim_output(plan: PreprocessPlan) -> DatasetManifest | None:
    """Check the folder like `check_output`, and mark it; return a finished manifest.

    Raises:
      UserError: The folder belongs to another job, contains other files, or cannot be written.
    """
    output, work = plan.options.output, plan.work
    if finished := take_finished(plan):
        return finished
    try:
        files.make_folder(work.path)
        text = SourceList.text(plan.sources, identities=plan.identities, groups=plan.groups)
        work.write_text(work.sources, text)
        run = {"fingerprint": plan.fingerprint, "options": plan.resolved}
        work.write_text(work.run_file, json.dumps(run))
        _delete_manifest(plan)
    except OSError as error:
        raise output_error(output, error) from error
    return None


def _record(
    fingerprint: str, options: dict[str, Any], sources: Iterable[Mapping[str, Any]]
) -> JobRecord:
    """Return the job of these corpora; files with the same name are one input."""
    inputs: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        identity = {name: value for name, value in source.items() if name not in _RESULTS}
        inputs.setdefault(source["name"], []).append(identity)
    return JobRecord(fingerprint=fingerprint, options=as_given(options), inputs=inputs)


def _find_begun(plan: PreprocessPlan, names: Iterable[str]) -> JobRecord | None:
    """Return the job of an unfinished dataset folder; None if no run has claimed the folder.

    The inputs of another job count as those of the plan: only its options are compared.
    """
    begun = fnmatch.filter(names, f"{WORK_FOLDER}/*/{RUN_FILE}")
    if not begun:
        return None
    path = paths.join(plan.options.output, begun[0])
    if path == plan.work.run_file:  # whether or not the file is whole
        return plan.record
    try:
        run = json.loads(files.read_bytes(path))
    except ValueError:  # truncated
        run = {}
    return dataclasses.replace(
        plan.record,
        fingerprint=run.get("fingerprint", ""),
        options=as_given(run.get("options", plan.resolved)),
    )


def find_finished(plan: DatasetPlan) -> DatasetManifest | None:
    """Return the manifest of the folder if a run of the same plan has written it."""
    manifest = _read_manifest(plan.options.output)
    return manifest if manifest and manifest.fingerprint == plan.fingerprint else None


def _read_manifest(output: str) -> DatasetManifest | None:
    """Read the manifest of a folder; None if the file is missing or damaged."""
    if not listing.exists(paths.join(output, MANIFEST_FILE)):
        return None
    try:
        return DatasetManifest.load(output, read=files.read_bytes)
    except BadFileError:
        return None


def take_finished(
    plan: PreprocessPlan, report: Callable[[str], object] = lambda line: None
) -> DatasetManifest | None:
    """Return what `check_output` does, and delete what a finished run left in the work folder.

    Raises:
      UserError: The folder belongs to another job, or contains other files.
    """
    finished = check_output(plan, report)
    if finished:
        files.delete_folder(paths.join(plan.options.output, WORK_FOLDER))
    return finished


def _list_sizes(output: str) -> dict[str, int]:
    """Return the bytes of each file of a folder, by its path in the folder."""
    root = f"{output.rstrip('/')}/"
    return {file.path.removeprefix(root): file.size for file in listing.list_files(output)}


def _find_damage(output: str, manifest: DatasetManifest, sizes: Mapping[str, int]) -> list[str]:
    """Return the missing and damaged files of a dataset.

    Shards are compared by their size, and vocabularies by their digest.
    """
    damaged = [
        name
        for split in manifest.splits.values()
        for name, size in zip(split.shards, split.shard_sizes, strict=True)
        if sizes.get(name) != size
    ]
    for name, digest in manifest.vocabulary_digests.items():
        path = paths.join(output, name)
        if name not in sizes or digest_file(files.read_bytes(path)) != digest:
            damaged.append(name)
    return [paths.join(output, name) for name in damaged]


def _delete_manifest(plan: PreprocessPlan) -> None:
    """Delete the manifest of a damaged dataset, which is made again.

    The run keeps the vocabularies that are whole: models may have been trained with them.
    """
    path = paths.join(plan.options.output, MANIFEST_FILE)
    if manifest := find_finished(plan):
        for name in plan.options.model_files:
            if digest := manifest.vocabulary_digests.get(name):
                plan.work.write_text(plan.work.digest(name), digest)
    if files.is_there(path):
        files.delete([path])


def abandon_output(output: str) -> None:
    """Delete what a run wrote until a user's mistake ended it, so that another plan can begin."""
    files.delete_folder(paths.join(output, WORK_FOLDER))
    patterns = ("rejected-*.parquet", "*-of-*.tfrecord", VOCABULARY_FILE, "*.spm")
    names = [name for name in _list_sizes(output) if "/" not in name]
    files.delete(
        [paths.join(output, name) for each in patterns for name in fnmatch.filter(names, each)]
    )
    if paths.is_local(output) and not any(Path(output).iterdir()):
        Path(output).rmdir()
