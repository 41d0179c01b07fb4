"""The preprocess job: ListUnits | TrainVocabularies | EncodeUnits | MergeShards | WriteManifest.

Rows stay in Arrow tables and lists, a unit at a time; only small descriptors of units, of regions
in spill files and of shards pass between the steps. A step that runs twice writes the same files
again, and a run that is started again takes over what the last one finished.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.errors import UnfinishedError, UserError
from model.text.vocabulary import (
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY_FILE,
    vocabulary_json,
)
from pipelines.corpora.encodings import find_encoding
from pipelines.corpora.opening import Source
from pipelines.pairs.encoding import EncodingOptions
from pipelines.pairs.held_out import short_tokens
from pipelines.preprocess.accounts import describe_manifest
from pipelines.preprocess.encode_steps import (
    EncodeUnits,
    FindHeldOut,
    ListUnits,
    TrainVocabularies,
    VocabularySpec,
)
from pipelines.preprocess.merge_steps import MergeShards, WriteManifest
from pipelines.preprocess.plan import (
    BEFORE,
    WORK_FOLDER,
    PreprocessOptions,
    PreprocessPlan,
    as_given,
    plan_preprocess,
)
from pipelines.runners.runner import make_pipeline, run_pipeline, with_local_defaults
from pipelines.storage import files

__all__ = [
    "PreprocessOptions",
    "PreprocessPlan",
    "describe_earlier",
    "describe_manifest",
    "find_finished",
    "plan_preprocess",
    "preprocess",
    "run_preprocess",
]

_RUN_FILE = "run.json"


def preprocess(
    *,
    sources: Sequence[Source],
    validation_sources: Sequence[Source] = (),
    options: PreprocessOptions,
    beam_arguments: Sequence[str] = (),
    corpus: str = "",
) -> DatasetManifest:
    """Makes a dataset folder, or finishes one that the same call has begun.

    Args:
      sources: The corpora.
      validation_sources: Held-out corpora, the whole of which is the validation split. Without
        any, a share of the sources is held out.
      options: How it is made.
      beam_arguments: Beam's own flags; without --runner, the job runs on this machine.
      corpus: Name of the corpus for the manifest.

    Returns:
      The manifest of the finished folder. A folder that was finished before is left as it is.

    Raises:
      UserError: The input, the options or the output folder do not suit.
    """
    plan = plan_preprocess(
        sources=sources, validation_sources=validation_sources, options=options, corpus=corpus
    )
    return run_preprocess(plan, beam_arguments=beam_arguments)


def run_preprocess(plan: PreprocessPlan, *, beam_arguments: Sequence[str] = ()) -> DatasetManifest:
    """Makes the dataset folder of a plan; see `preprocess`."""
    options, output, work = plan.options, plan.options.output, plan.work_folder
    pipeline = make_pipeline(with_local_defaults(beam_arguments))
    finished = _claim_output(plan)
    if finished:
        return finished
    _copy_vocabularies(options, work=work)
    _add_steps(pipeline, plan)
    try:
        run_pipeline(pipeline)
    except Exception as error:
        finished = find_finished(plan)
        if finished:  # by another run of the same command, which took the work folder away
            return finished
        if isinstance(error, UserError) and not isinstance(error, UnfinishedError):
            _abandon(output)
        raise
    manifest = DatasetManifest.load(output, read=files.read_bytes)
    files.delete_folder(FileSystems.join(output, WORK_FOLDER))
    return manifest


def _add_steps(pipeline: beam.Pipeline, plan: PreprocessPlan) -> None:
    """Wires the job."""
    options, output, work = plan.options, plan.options.output, plan.work_folder
    encoding = EncodingOptions(
        filters=options.filters,
        deduplicate=options.deduplicate,
        short_tokens=short_tokens(options.holds_out_by),
        seed=options.seed,
        validation_below=0 if plan.has_held_out else int(options.validation_fraction * 2**64),
        plans=plan.splits,
    )
    units = pipeline | "List units" >> ListUnits(
        sources=plan.sources,
        identities=plan.identities,
        held_out_from=plan.held_out_from,
        max_pairs=plan.unit_pairs,
        work_folder=work,
    )
    held_out = units | "Find held-out texts" >> FindHeldOut(
        by=options.holds_out_by,
        excluded=options.exclude,
        encoding=find_encoding(options.encoding),
        normalization=options.normalization,
    )
    vocabularies = units | "Train vocabularies" >> TrainVocabularies(
        output=output,
        specs=[] if _has_vocabularies(options) else _vocabulary_specs(options),
        sample_lines=options.vocabulary_sample,
        normalization=options.normalization,
        filters=options.filters,
        validation_below=encoding.validation_below,
        held_out=beam.pvalue.AsSingleton(held_out),
        short_tokens=encoding.short_tokens,
        work_folder=work,
    )
    encoded = units | "Encode units" >> EncodeUnits(
        vocabulary_folder=beam.pvalue.AsSingleton(vocabularies),
        held_out=beam.pvalue.AsSingleton(held_out),
        sources=plan.sources,
        options=encoding,
        output=output,
        work_folder=work,
    )
    shards = encoded.regions | "Merge shards" >> MergeShards(
        units=encoded.statistics,
        sources=plan.sources,
        has_held_out=plan.has_held_out,
        options=encoding,
        output=output,
        work_folder=work,
    )
    _ = pipeline | "Write manifest" >> WriteManifest(
        units=encoded.statistics,
        shards=shards,
        identities=plan.identities,
        held_out_from=plan.held_out_from,
        plans=plan.splits,
        draft=_draft_manifest(plan),
        output=output,
        work_folder=work,
    )


def _draft_manifest(plan: PreprocessPlan) -> DatasetManifest:
    options = plan.options
    return DatasetManifest(
        fingerprint=plan.fingerprint,
        version=_version(),
        corpus=plan.corpus,
        source_language=options.source_language,
        target_language=options.target_language,
        source_vocabulary_size=0,
        target_vocabulary_size=0,
        shared_vocabulary=options.is_shared,
        lines_read=0,
        pairs_kept=0,
        rejected={},
        sources=[],
        splits={},
        options=options.resolved(),
    )


def _version() -> str:
    try:
        return importlib.metadata.version("tt-translate")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed


def _claim_output(plan: PreprocessPlan) -> DatasetManifest | None:
    """Checks that the folder is ours to write to, and marks it; returns a finished manifest.

    Raises:
      UserError: The folder holds something else.
    """
    output, work = plan.options.output, plan.work_folder
    remedy = f"choose another --output, or remove {output} first"
    if files.is_local(output) and Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"{output} is a file, not a folder: choose another --output")
    root = f"{output.rstrip('/')}/"
    try:
        names = [path.removeprefix(root) for path in files.list_folder(output)]
    except BeamIOError as error:
        raise UserError(f"{output} cannot be looked into: {error}") from error
    if MANIFEST_FILE in names:
        manifest = DatasetManifest.load(output, read=files.read_bytes)
        if not plan.made(manifest):
            difference = _describe_difference(manifest.options, plan)
            raise UserError(
                f"{output} holds a finished dataset of {manifest.pairs_kept:,} pairs made "
                f"{difference}: {remedy}"
            )
        files.delete_folder(FileSystems.join(output, WORK_FOLDER))
        return manifest
    run_file = FileSystems.join(work, _RUN_FILE)
    begun = [name for name in names if fnmatch.fnmatch(name, f"{WORK_FOLDER}/*/{_RUN_FILE}")]
    if begun and root + begun[0] != run_file:
        run = json.loads(files.read_bytes(root + begun[0]))
        if run["fingerprint"] == plan.earlier_fingerprint:
            raise UserError(
                f"{output} holds an unfinished dataset that an older version of tt began, and "
                f"what this one makes has other bytes: {remedy}"
            )
        raise UserError(
            f"{output} holds an unfinished dataset made "
            f"{_describe_difference(run['options'], plan)}: {remedy}"
        )
    foreign = [name for name in names if not name.startswith(f"{WORK_FOLDER}/")]
    if foreign and not begun:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UserError(f"{output} holds something else ({shown}): {remedy}")
    try:
        files.make_folder(work)
        files.write_text(
            run_file,
            json.dumps({"fingerprint": plan.fingerprint, "options": plan.options.resolved()}),
            temporary_folder=work,
        )
    except OSError as error:
        raise UserError(
            f"{output} cannot be written: {error.strerror or error}. Choose another --output"
        ) from error
    return None


def _describe_difference(options: dict[str, Any], plan: PreprocessPlan) -> str:
    """Says in what another run differs from this one."""
    options = as_given(BEFORE | options)
    here = as_given(json.loads(json.dumps(plan.options.resolved())))  # as they are after JSON
    differing = [
        f"{name} {_shown(options.get(name))} instead of {_shown(here.get(name))}"
        for name in sorted(options.keys() | here.keys())
        if options.get(name) != here.get(name)
    ]
    if not differing:
        return "from other input (a corpus of another name, size or time of change)"
    return f"with other options ({', '.join(differing)})"


def _shown(value: Any) -> str:
    return "none" if value is None else repr(value)


def describe_earlier(manifest: DatasetManifest, plan: PreprocessPlan) -> str:
    """Says what an earlier version did otherwise where it made the dataset of a plan, or ""."""
    options = plan.options
    if manifest.fingerprint == plan.fingerprint:
        return ""
    did = []
    if (plan.has_held_out or options.exclude) and "held_out_by" not in manifest.options:
        did.append("kept held-out texts of any length from training")
    if plan.has_held_out:
        did.append("filtered validation corpora")
    rule = manifest.options.get("sentencepiece_rule", options.normalization_rule)
    if rule != options.normalization_rule:
        did.append(f"trained vocabularies by the rule {rule}")
    return ", ".join(did)


def find_finished(plan: PreprocessPlan) -> DatasetManifest | None:
    """Returns the manifest of the folder, if a run of the same plan has finished it."""
    output = plan.options.output
    if not files.exists(FileSystems.join(output, MANIFEST_FILE)):
        return None
    manifest = DatasetManifest.load(output, read=files.read_bytes)
    return manifest if plan.made(manifest) else None


def _abandon(output: str) -> None:
    """Removes what a run wrote that a user's error ended: the mended command starts anew."""
    files.delete_folder(FileSystems.join(output, WORK_FOLDER))
    root = f"{output.rstrip('/')}/"
    patterns = ("rejected-*.parquet", "*-of-*.tfrecord", VOCABULARY_FILE, "*.spm")
    names = [path.removeprefix(root) for path in files.list_folder(output)]
    ours = [
        f"{root}{name}"
        for name in names
        if "/" not in name and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    files.delete(ours)
    if files.is_local(output) and not any(Path(output).iterdir()):
        Path(output).rmdir()


def _vocabulary_specs(options: PreprocessOptions) -> list[VocabularySpec]:
    kinds = {
        SHARED_MODEL: options.source_vocabulary_type,
        SOURCE_MODEL: options.source_vocabulary_type,
        TARGET_MODEL: options.target_vocabulary_type,
    }
    names = {SHARED_MODEL: "shared", SOURCE_MODEL: "source", TARGET_MODEL: "target"}
    return [
        VocabularySpec(
            name=names[file],
            file=file,
            kind=kinds[file] or options.vocabulary_type,
            size=options.wanted_pieces,
            is_size_given=options.vocabulary_size is not None,
            normalization_rule=options.normalization_rule,
            character_coverage=options.character_coverage,
            byte_fallback=options.byte_fallback,
            user_symbols=options.user_symbols,
            keep_whitespace=not options.normalization.clean_whitespace,
        )
        for file in _model_files(options)
    ]


def _model_files(options: PreprocessOptions) -> list[str]:
    return [SHARED_MODEL] if options.is_shared else [SOURCE_MODEL, TARGET_MODEL]


def _has_vocabularies(options: PreprocessOptions) -> bool:
    """Says whether the folder has its vocabularies: given ones, or from a run cut short."""
    return all(
        FileSystems.exists(FileSystems.join(options.output, f)) for f in _model_files(options)
    )


def _copy_vocabularies(options: PreprocessOptions, *, work: str) -> None:
    text = vocabulary_json(shared=options.is_shared, normalization=options.normalization)
    files.write_text(FileSystems.join(options.output, VOCABULARY_FILE), text, temporary_folder=work)
    for given, name in zip(options.vocabulary, _model_files(options), strict=False):
        with files.write_whole(
            FileSystems.join(options.output, name), temporary_folder=work
        ) as file:
            file.write(files.read_bytes(given))
