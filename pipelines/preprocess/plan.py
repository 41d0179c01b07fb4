"""The plan of a dataset, and the check whether a run of the plan can use the dataset folder.

The plan depends only on the options and on the names and sizes of the input.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import json
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
    TEST,
    WEIGHT,
    DatasetManifest,
    digest_file,
)
from tt.model.errors import BadFileError, UserError, require
from tt.model.folders import is_free
from tt.model.storage import files, listing, paths
from tt.model.storage.stores import StorageOptions
from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import digest_patterns
from tt.model.text.vocabulary import VOCABULARY_FILE, Vocabulary
from tt.pipelines.jobs.folders import JobRecord, check_claim, output_error
from tt.pipelines.preprocess.corpora import SourceList
from tt.pipelines.preprocess.held_out import short_tokens
from tt.pipelines.preprocess.options import PreprocessOptions, as_given
from tt.pipelines.preprocess.rejected import PARQUET_END
from tt.pipelines.preprocess.sizes import group_sources, plan_sizes
from tt.pipelines.preprocess.sources import Source
from tt.pipelines.preprocess.spills import SplitPlan
from tt.pipelines.preprocess.work_folder import (
    OWN_FILES,
    RUN_FILE,
    WORK_FOLDER,
    WorkFolder,
    ends_with,
)

# Increase this number with each change after which the same input gives other bytes.
_RESULT_VERSION = 7
# Increase this number with each change of the format of files in the work folder.
_WORK_VERSION = 4
# Keys that the manifest adds to each source.
_RESULT_KEYS = ("read", "kept", "rejected", "languages", "mixed_languages", "decoded", "shifted")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetPlan:
    """The part of a plan that the steps receive. It omits the sources, which may be 100,000."""

    held_out_from: int  # position of the first held-out source
    source_count: int  # number of all sources, the held-out sources last
    options: PreprocessOptions  # options of the dataset
    # The options for the manifest, with the identities of files when the run was planned.
    resolved: dict[str, Any]
    corpus: str  # name of the corpus for the manifest
    fingerprint: str  # hex digest of everything that the result depends on
    unit_pairs: int  # most pairs per unit
    # The share of the pairs in which placeholders also replace tokens that both sides share.
    placeholder_share: float
    splits: dict[str, SplitPlan]  # shards and buckets of each split
    # The number of files in the folders of corpora that are not read, by ending.
    unread_files: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The addresses of object stores, which workers get with the plan.
    storage: StorageOptions = dataclasses.field(
        default_factory=StorageOptions.of_this_process, compare=False, repr=False
    )

    @property
    def has_held_out(self) -> bool:
        """Whether some corpora are held out; they form the validation split."""
        return self.held_out_from < self.source_count

    @property
    def short_tokens(self) -> int:
        """The largest number of tokens of a side that is not held out on its own."""
        return short_tokens(self.options.holds_out_by)

    @property
    def validation_below(self) -> int:
        """The hash limit: pairs whose source hash is below it are in the validation split."""
        return 0 if self.has_held_out else int(self.options.validation_fraction * 2**64)

    @property
    def test_below(self) -> int:
        """The hash limit: pairs below it are in the test split, unless they are in validation."""
        fraction = self.options.test_fraction
        return self.validation_below + int(fraction * 2**64) if fraction else 0

    @property
    def duplicate_reason(self) -> str:
        """The reason code of duplicates."""
        return f"duplicate_{self.options.deduplicate}"

    @property
    def work(self) -> WorkFolder:
        """The work folder with the temporary files of the run."""
        name = f"{self.fingerprint[:16]}-{_WORK_VERSION}"
        return WorkFolder(paths.join(self.options.output, WORK_FOLDER, name))

    @property
    def source_list(self) -> SourceList:
        """The sources, listed in a file of the work folder."""
        return SourceList(self.work.sources)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessPlan(DatasetPlan):
    """The plan of a dataset, made before any corpus is read."""

    sources: Sequence[Source]  # all sources, the held-out sources last
    identities: Sequence[dict[str, Any]]  # current identities of the sources, for the manifest
    groups: Sequence[int]  # per source, the position of the first source in its group
    notices: Sequence[str] = ()  # warnings for the user, one line each

    @property
    def record(self) -> JobRecord:
        """The job, for comparison with the job of the dataset folder."""
        sources = (
            {**identity, HELD_OUT: order >= self.held_out_from}
            for order, identity in enumerate(self.identities)
        )
        return _record(self.fingerprint, self.resolved, sources)

    @property
    def for_steps(self) -> DatasetPlan:
        """The part of the plan that the steps receive."""
        names = [field.name for field in dataclasses.fields(DatasetPlan)]
        return DatasetPlan(**{name: getattr(self, name) for name in names})


def plan_preprocess(
    *,
    sources: Sequence[Source],
    validation_sources: Sequence[Source] = (),
    weights: Mapping[str, float] | None = None,
    options: PreprocessOptions,
    corpus: str = "",
    unread_files: Mapping[str, int] | None = None,
) -> PreprocessPlan:
    """Plan a dataset from the names and sizes of its input.

    Args:
      sources: The sources to train on.
      validation_sources: The held-out sources.
      weights: The shares of sources to keep, by name; None keeps all pairs.
      options: The options of the dataset.
      corpus: The name of the corpus for the manifest.
      unread_files: The number of files in the folders of corpora that are not read, by ending.

    Raises:
      UserError: The input or the options are unsuitable.
    """
    if not sources:
        raise UserError("no corpus given. Choose text files, tables or tfds:NAME")
    for path in options.vocabulary:
        paths.check_searchable(path)
        vocabulary = Vocabulary(path, options.normalization, read=files.read_bytes)
        _check_normalization(path, options.normalization)
        if options.protection.is_on and not vocabulary.has_placeholders:
            for name in ("protect_regex", "placeholder_share"):
                require(
                    not getattr(options, name),
                    f"`{name}` needs tokens for placeholders, and {path} has none. "
                    f"Remove `vocabulary` to train a vocabulary, or remove `{name}`",
                )
            options = dataclasses.replace(options, protect=False, placeholder_share=None)
    for path in options.exclude:
        if not listing.exists(path):
            raise UserError(f"the file {path} of `exclude` does not exist. Check the path")
    every_source = [*sources, *validation_sources]
    identities = [source.identity() for source in every_source]
    _add_weights(identities[: len(sources)], weights or {})
    text_bytes = [source.text_bytes() for source in every_source]
    resolved = options.resolved()
    return PreprocessPlan(
        sources=every_source,
        identities=identities,
        groups=group_sources(text_bytes, held_out_from=len(sources)),
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
        unread_files=unread_files or {},
        **plan_sizes(
            sum(text_bytes[: len(sources)]), sum(text_bytes[len(sources) :]), options=options
        ),
    )


def _check_normalization(vocabulary: str, chosen: TextNormalization) -> None:
    """Raise an error if a vocabulary belongs to texts with another normalization."""
    folder = paths.folder_of(vocabulary)
    description = paths.join(folder, VOCABULARY_FILE)
    if not folder or not listing.exists(description):
        return
    found = json.loads(files.read_bytes(description)).get("normalization")
    if found != chosen.as_json():
        raise UserError(
            f"{vocabulary} needs the normalization {found} (see {description}). Received: "
            f"{chosen.as_json()}. Change `unicode_form`, `clean_whitespace` or `lowercase`"
        )


def _add_weights(identities: Sequence[dict[str, Any]], weights: Mapping[str, float]) -> None:
    """Add the weights of sources to their identities, from which the steps read them."""
    names = list(dict.fromkeys(identity["name"] for identity in identities))
    for name, weight in weights.items():
        if name not in names:
            raise UserError(
                f"`weights` has {name}, but the training corpora are {', '.join(names)}. Check "
                f"the name, or name a corpus, as in {name}=web.tsv"
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
        "pyarrow": pa.__version__,  # Filters use its regular expressions.
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
    }
    if has_spans:
        described["spans"] = digest_patterns()
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


# The dataset folder.


def check_output(
    plan: PreprocessPlan, report: Callable[[str], object] = lambda line: None
) -> DatasetManifest | None:
    """Check that a plan can use the dataset folder; return the manifest if it is finished.

    A dataset of this plan with a missing or damaged file counts as unfinished, and a run makes it
    again.

    Args:
      plan: The plan.
      report: Called with a line for each missing or damaged file.

    Raises:
      UserError: The folder belongs to another job, or contains other files.
    """
    output = plan.options.output
    if paths.is_local(output) and Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"{output} is a file, not a folder. Choose another `output`")
    sizes = _list_sizes(output)
    manifest = _read_manifest(output)
    check_claim(
        output,
        saved=_record(manifest.fingerprint, manifest.options, manifest.sources)
        if manifest
        else _find_begun(plan, sizes),
        requested=plan.record,
        foreign=[name for name in sizes if not OWN_FILES.fullmatch(name)],
        remedy=f"remove {output}",
    )
    damaged = _find_damage(output, manifest, sizes) if manifest else []
    for path in damaged:
        report(f"{path} is missing or damaged: tt makes the dataset again")
    return None if damaged else manifest


def claim_output(plan: PreprocessPlan) -> DatasetManifest | None:
    """Check the folder like `check_output`, and claim it; return the manifest if it is finished.

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
    """Return the record of a job; the files of a corpus count as one input."""
    inputs: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        identity = {name: value for name, value in source.items() if name not in _RESULT_KEYS}
        inputs.setdefault(source["name"], []).append(identity)
    return JobRecord(fingerprint=fingerprint, options=as_given(options), inputs=inputs)


def _find_begun(plan: PreprocessPlan, names: Iterable[str]) -> JobRecord | None:
    """Return the job of an unfinished dataset folder; None if no run has claimed the folder.

    The run file does not contain the inputs of another job. The result has the inputs of the plan
    instead, so that only the options are compared.
    """
    begun = fnmatch.filter(names, f"{WORK_FOLDER}/*/{RUN_FILE}")
    if not begun:
        return None
    path = paths.join(plan.options.output, begun[0])
    if path == plan.work.run_file:  # even if the file is truncated
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
    """Read the manifest of a folder; return None if the file is missing or damaged."""
    if not listing.exists(paths.join(output, MANIFEST_FILE)):
        return None
    try:
        return DatasetManifest.load(output, read=files.read_bytes)
    except BadFileError:
        return None


def take_finished(
    plan: PreprocessPlan, report: Callable[[str], object] = lambda line: None
) -> DatasetManifest | None:
    """Check the folder like `check_output`; if it is finished, delete its work folder.

    Raises:
      UserError: The folder belongs to another job, or contains other files.
    """
    finished = check_output(plan, report)
    if finished:
        files.delete_folder(plan.options.output, WORK_FOLDER, own=OWN_FILES)
    return finished


def _list_sizes(output: str) -> dict[str, int]:
    """Return the sizes in bytes of the files in a folder, by their paths in the folder."""
    root = f"{output.rstrip('/')}/"
    return {file.path.removeprefix(root): file.size for file in listing.list_files(output)}


def _find_damage(output: str, manifest: DatasetManifest, sizes: Mapping[str, int]) -> list[str]:
    """Return the missing and damaged files of a dataset.

    A damaged shard has another size, and a damaged vocabulary another digest.
    """
    damaged = [
        name
        for split in manifest.splits.values()
        for name, size in zip(split.shards, split.shard_sizes, strict=True)
        if sizes.get(name) != size
    ]
    tables = [name for split in manifest.splits.values() for name in split.tables]
    damaged += [name for name in tables if not ends_with(paths.join(output, name), PARQUET_END)]
    for name, digest in manifest.vocabulary_digests.items():
        path = paths.join(output, name)
        if name not in sizes or digest_file(files.read_bytes(path)) != digest:
            damaged.append(name)
    return [paths.join(output, name) for name in damaged]


def _delete_manifest(plan: PreprocessPlan) -> None:
    """Delete the manifest of a damaged dataset, so that a run makes the dataset again.

    The run keeps the undamaged vocabularies, because models may have been trained with them.
    """
    path = paths.join(plan.options.output, MANIFEST_FILE)
    if manifest := find_finished(plan):
        for name in plan.options.model_files:
            if digest := manifest.vocabulary_digests.get(name):
                plan.work.write_text(plan.work.digest(name), digest)
    if listing.exists(path):
        files.delete([path])


def abandon_output(output: str) -> None:
    """Delete the files of a run that a user's mistake ended, so that another plan can begin."""
    files.delete_folder(output, WORK_FOLDER, own=OWN_FILES)
    own = ("rejected-*.parquet", "*-of-*.tfrecord", f"{TEST}-*.parquet", VOCABULARY_FILE, "*.spm")
    names = [name for name in _list_sizes(output) if "/" not in name]
    files.delete([paths.join(output, name) for each in own for name in fnmatch.filter(names, each)])
    if paths.is_local(output) and is_free(Path(output)):
        Path(output).rmdir()
