"""The preprocess job: ListUnits | TrainVocabularies | EncodeUnits | MergeShards | WriteManifest.

Rows stay in Arrow tables and lists, a unit at a time; only small descriptors of units, of regions
in spill files and of shards pass between the steps. A step that runs twice writes the same files
again, and a run that is started again takes over what the last one finished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import sentencepiece
from apache_beam.io.filesystems import FileSystems

from model.artifacts import (
    MANIFEST_FILE,
    MANIFEST_FORMAT,
    TRAIN,
    VALIDATION,
    DatasetManifest,
)
from model.errors import UserError
from model.vocabulary import (
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY_FILE,
    TextNormalization,
    Vocabulary,
    vocabulary_json,
)
from pipelines import files
from pipelines.accounting import describe_manifest
from pipelines.encoding import EncodingOptions
from pipelines.merging import MergeShards, WriteManifest
from pipelines.records import SplitPlan
from pipelines.runner import make_pipeline, run_pipeline
from pipelines.sources import MAX_UNIT_PAIRS, Source
from pipelines.transforms import EncodeUnits, ListUnits, TrainVocabularies, VocabularySpec
from pipelines.units import SLICE_PAIRS

__all__ = ["PreprocessOptions", "describe_manifest", "preprocess"]

# Changes whenever the same input and options would give other bytes.
_RESULT_VERSION = 1

_WORK = "_work"
_RUN_FILE = "run.json"
_UNITS = 64  # at least, where the input is large enough: work for many workers
_PAIR_BYTES = 100  # of text, at the least
_BUCKET_BYTES = 64 << 20  # of one bucket in memory; text is an upper estimate of its records
_SHARD_BYTES = 10 << 20  # of text in a shard by default: about 50,000 pairs
_MAX_SHARDS = 256
_VALIDATION_SHARD_BYTES = 256 << 20
_VOCABULARY_TYPES = ("unigram", "bpe", "char")
_SENTENCEPIECE_RULES = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    """How a dataset is made.

    Attributes:
      output: The dataset folder.
      shards: Shards of the training split; 0 goes by size, about 50,000 pairs each.
      vocabulary_size: Pieces of each vocabulary, the 4 special ones counted; the most there may
        be for "char".
      vocabulary_type: "unigram", "bpe" or "char".
      source_vocabulary_type: Of the source alone, where vocabularies are not shared.
      target_vocabulary_type: Of the target alone.
      shared_vocabulary: One vocabulary for both sides, or one each.
      vocabulary: SentencePiece models to use instead of training: one, shared, or two.
      vocabulary_sample: The most lines a vocabulary is trained on.
      character_coverage: Share of all characters that get a piece. None: 0.9995 for a vocabulary
        of whose sample a fifth of the letters or more are Han, kana or Hangul, else 1.
      sentencepiece_normalization: The rule inside the vocabulary, after `normalization`.
      min_tokens: Pairs with fewer ids on a side, BOS and EOS not counted, are left out.
      max_tokens: Pairs with more ids on a side, BOS and EOS not counted, are left out.
      validation_fraction: Share of sources, by hash, held out where no held-out corpus is given.
      seed: Of the order of the pairs.
      normalization: What is done to texts, here and in translation.
      source_language: For the manifest.
      target_language: For the manifest.
    """

    output: str
    shards: int = 0
    vocabulary_size: int = 8000
    vocabulary_type: str = "unigram"
    source_vocabulary_type: str | None = None
    target_vocabulary_type: str | None = None
    shared_vocabulary: bool = True
    vocabulary: tuple[str, ...] = ()
    vocabulary_sample: int = 2_000_000
    character_coverage: float | None = None
    sentencepiece_normalization: str = "nmt_nfkc"
    min_tokens: int = 1
    max_tokens: int = 256
    validation_fraction: float = 0.01
    seed: int = 1
    normalization: TextNormalization = dataclasses.field(default_factory=TextNormalization)
    source_language: str = ""
    target_language: str = ""

    def __post_init__(self) -> None:
        _check(0 <= self.shards <= 99_999, "shards must be 0 to 99,999", self.shards)
        _check(self.vocabulary_size >= 8, "vocabulary size must be 8 or more", self.vocabulary_size)
        for kind in (
            self.vocabulary_type,
            self.source_vocabulary_type or self.vocabulary_type,
            self.target_vocabulary_type or self.vocabulary_type,
        ):
            _check(kind in _VOCABULARY_TYPES, "vocabulary type must be unigram, bpe or char", kind)
        if self.shared_vocabulary and not self.vocabulary:
            kinds = (
                self.source_vocabulary_type or self.vocabulary_type,
                self.target_vocabulary_type or self.vocabulary_type,
            )
            _check(kinds[0] == kinds[1], "a shared vocabulary has one type for both sides", kinds)
        _check(len(self.vocabulary) <= 2, "at most two vocabularies", self.vocabulary)
        _check(
            self.vocabulary_sample >= 1,
            "vocabulary sample must be 1 or more",
            self.vocabulary_sample,
        )
        _check(
            self.character_coverage is None or 0.9 <= self.character_coverage <= 1,
            "character coverage must be 0.9 to 1",
            self.character_coverage,
        )
        _check(
            self.sentencepiece_normalization in _SENTENCEPIECE_RULES,
            f"SentencePiece's normalization must be one of {', '.join(_SENTENCEPIECE_RULES)}",
            self.sentencepiece_normalization,
        )
        _check(self.min_tokens >= 1, "least tokens must be 1 or more", self.min_tokens)
        _check(
            self.max_tokens >= self.min_tokens,
            f"most tokens must be {self.min_tokens} or more",
            self.max_tokens,
        )
        _check(
            0 <= self.validation_fraction <= 0.5,
            "validation fraction must be 0 to 0.5",
            self.validation_fraction,
        )
        _check(-(2**63) <= self.seed < 2**63, "seed must fit 64 bits", self.seed)

    @property
    def is_shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        return len(self.vocabulary) == 1 if self.vocabulary else self.shared_vocabulary

    def resolved(self) -> dict[str, Any]:
        """Returns what the result depends on; the folder can be moved, so it is not in it."""
        values = dataclasses.asdict(self)
        del values["output"]
        values["shared_vocabulary"] = self.is_shared
        values["vocabulary"] = [
            hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in self.vocabulary
        ]
        return values


def _check(is_valid: bool, rule: str, received: object) -> None:
    if not is_valid:
        raise UserError(f"{rule}. Received: {received!r}")


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
    if not sources:
        raise UserError("no corpus given: name text files, TSV, Parquet or tfds:NAME")
    for path in options.vocabulary:
        Vocabulary(path, options.normalization)  # raises where it is not one
    pipeline = make_pipeline(_with_local_defaults(beam_arguments))
    every_source = [*sources, *validation_sources]
    fingerprint = _fingerprint(sources, validation_sources, options=options, corpus=corpus)
    work = FileSystems.join(options.output, _WORK, fingerprint[:16])
    finished = _claim_output(options.output, fingerprint=fingerprint, work=work)
    if finished:
        return finished

    plans = _plan_splits(sources, validation_sources, options=options)
    _copy_vocabularies(options, work=work)
    encoding = EncodingOptions(
        min_tokens=options.min_tokens,
        max_tokens=options.max_tokens,
        seed=options.seed,
        validation_below=0 if validation_sources else int(options.validation_fraction * 2**64),
        plans=plans,
    )
    draft = DatasetManifest(
        fingerprint=fingerprint,
        version=_version(),
        corpus=corpus,
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

    units = pipeline | "List units" >> ListUnits(
        sources=every_source,
        held_out_from=len(sources),
        max_pairs=_unit_pairs(every_source),
        work_folder=work,
    )
    vocabularies = units | "Train vocabularies" >> TrainVocabularies(
        output=options.output,
        specs=[] if _has_vocabularies(options) else _vocabulary_specs(options),
        sample_lines=options.vocabulary_sample,
        normalization=options.normalization,
        validation_below=encoding.validation_below,
        work_folder=work,
    )
    encoded = units | "Encode units" >> EncodeUnits(
        vocabulary_folder=beam.pvalue.AsSingleton(vocabularies),
        sources=every_source,
        options=encoding,
        output=options.output,
        work_folder=work,
    )
    shards = encoded.regions | "Merge shards" >> MergeShards(
        units=encoded.statistics,
        sources=every_source,
        has_held_out=bool(validation_sources),
        options=encoding,
        output=options.output,
        work_folder=work,
    )
    _ = pipeline | "Write manifest" >> WriteManifest(
        units=encoded.statistics,
        shards=shards,
        sources=every_source,
        held_out_from=len(sources),
        plans=plans,
        draft=draft,
        output=options.output,
        work_folder=work,
    )
    try:
        run_pipeline(pipeline)
    except UserError:
        _abandon(options.output)
        raise
    manifest = DatasetManifest.load(options.output)
    _delete_work(options.output)
    return manifest


def _fingerprint(
    sources: Sequence[Source],
    validation_sources: Sequence[Source],
    *,
    options: PreprocessOptions,
    corpus: str,
) -> str:
    described = {
        "sources": [source.identity() for source in sources],
        "validation": [source.identity() for source in validation_sources],
        "options": options.resolved(),
        "corpus": corpus,
        "result_version": _RESULT_VERSION,
        "manifest_format": MANIFEST_FORMAT,
        "sentencepiece": sentencepiece.__version__,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _version() -> str:
    try:
        return importlib.metadata.version("tt-translate")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed


def _claim_output(output: str, *, fingerprint: str, work: str) -> DatasetManifest | None:
    """Checks that the folder is ours to write to, and marks it; returns a finished manifest.

    Raises:
      UserError: The folder holds something else.
    """
    folder = Path(output)
    remedy = f"choose another --output, or remove {output} first"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{output} is a file, not a folder: choose another --output")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if MANIFEST_FILE in names:
        manifest = DatasetManifest.load(output)
        if manifest.fingerprint != fingerprint:
            raise UserError(
                f"{output} holds a finished dataset of {manifest.pairs_kept:,} pairs made from "
                f"other input or with other options: {remedy}"
            )
        _delete_work(output)
        return manifest
    run_file = FileSystems.join(work, _RUN_FILE)
    is_ours = FileSystems.exists(run_file) or names in ([], [_WORK])
    if any(path != Path(run_file) for path in folder.glob(f"{_WORK}/*/{_RUN_FILE}")):
        raise UserError(
            f"{output} holds an unfinished dataset made from other input or with other "
            f"options: {remedy}"
        )
    if not is_ours:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise UserError(f"{output} holds something else ({shown}): {remedy}")
    try:
        files.make_folder(work)
        files.write_text(
            run_file, json.dumps({"fingerprint": fingerprint}) + "\n", temporary_folder=work
        )
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error}") from error
    return None


def _abandon(output: str) -> None:
    """Removes what a run wrote that a user's error ended: the mended command starts anew."""
    folder = Path(output)
    _delete_work(output)
    for pattern in ("rejected-*.parquet", "*-of-*.tfrecord", VOCABULARY_FILE, "*.spm"):
        for path in folder.glob(pattern):
            path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _delete_work(output: str) -> None:
    shutil.rmtree(Path(output) / _WORK, ignore_errors=True)


def _plan_splits(
    sources: Sequence[Source],
    validation_sources: Sequence[Source],
    *,
    options: PreprocessOptions,
) -> dict[str, SplitPlan]:
    """Derives shards and buckets from the size of the input alone, so that a rerun finds them."""
    train = sum(source.text_bytes() for source in sources)
    if validation_sources:
        validation = sum(source.text_bytes() for source in validation_sources)
    else:
        validation = math.ceil(train * options.validation_fraction)
    shards = options.shards or min(max(1, math.ceil(train / _SHARD_BYTES)), _MAX_SHARDS)
    validation_shards = max(1, math.ceil(validation / _VALIDATION_SHARD_BYTES))
    return {
        TRAIN: SplitPlan(
            shards=shards, buckets_per_shard=max(1, math.ceil(train / shards / _BUCKET_BYTES))
        ),
        VALIDATION: SplitPlan(
            shards=validation_shards,
            buckets_per_shard=max(1, math.ceil(validation / validation_shards / _BUCKET_BYTES)),
        ),
    }


def _unit_pairs(sources: Sequence[Source]) -> int:
    """Returns the most pairs of a unit: fewer for a small input, so that all workers get some."""
    pairs = sum(source.text_bytes() for source in sources) // _PAIR_BYTES
    return min(MAX_UNIT_PAIRS, max(1, math.ceil(pairs / _UNITS / SLICE_PAIRS)) * SLICE_PAIRS)


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
            size=options.vocabulary_size,
            normalization_rule=options.sentencepiece_normalization,
            character_coverage=options.character_coverage,
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
            file.write(Path(given).read_bytes())


def _with_local_defaults(arguments: Sequence[str]) -> list[str]:
    """Uses all cores where no argument says where, or how, the job is to run."""
    names = {argument.partition("=")[0] for argument in arguments}
    if names & {"--runner", "--direct_num_workers", "--direct_running_mode"}:
        return list(arguments)
    # Threads are enough: SentencePiece releases the interpreter's lock.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [*arguments, f"--direct_num_workers={cores}", "--direct_running_mode=multi_threading"]
