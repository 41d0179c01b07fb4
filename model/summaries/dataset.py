"""All of a dataset folder: sources, rejections, lengths, vocabularies, samples, batches."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.dataset.manifest import (
    HISTOGRAM_STEP,
    RATIO_STEPS,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    SplitInfo,
    ratio_of_place,
)
from model.summaries.histograms import Histogram
from model.summaries.rejected import RejectedPairs, summarize_rejected
from model.summaries.vocabularies import VocabularySummary, summarize_vocabularies
from model.text.vocabulary import VocabularyPair, load_vocabularies
from model.training.choices import configure

if TYPE_CHECKING:  # they import TensorFlow
    from model.summaries.batches import BatchSummary
    from model.summaries.pairs import PairSample

LOOKED_AT = 50_000  # pairs of the training split, for all that is not in the manifest
_TEXTS = 2_000  # validation pairs that are looked at
_HALF_STEP = 2 ** (0.5 / RATIO_STEPS)  # from the middle of a bin of ratios to its edge


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSummary:
    """A corpus, or what of it was held out."""

    name: str
    kind: str
    files: list[str]
    is_held_out: bool
    read: int  # pairs
    kept: int
    rejected: dict[str, int]  # pairs by reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """A split, all of it. Tokens count BOS and EOS, but not in the ratios."""

    name: str
    pairs: int
    shards: int
    bytes: int  # of its shards; 0 where an older `tt` did not write it down
    source_tokens: int
    target_tokens: int
    longest: int  # the most tokens on any side of any pair
    source_lengths: Histogram
    target_lengths: Histogram
    # Tokens of the sources and of the targets of the pairs that were looked at, in bins of one.
    fine_lengths: list[Histogram]
    length_ratios: Histogram | None  # target tokens for a source token, in eighths of an octave
    placeholder_pairs: list[int]  # `placeholder_pairs[k - 1]` have at least k placeholders
    padding_as_stored: float
    padding_by_length: float

    @property
    def looked_at(self) -> str:
        """Says of how many pairs the fine lengths are, as in ", the first 2,000 pairs"."""
        count = self.fine_lengths[0].total if self.fine_lengths else 0
        return f", the first {count:,} pairs" if count < self.pairs else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnknownText:
    """A part of texts that the vocabulary has no token for."""

    side: str
    text: str
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """What lies in a dataset folder."""

    folder: str
    version: str  # of the `tt` that wrote it
    fingerprint: str
    source_language: str
    target_language: str
    options: dict[str, Any]
    pairs_read: int
    pairs_kept: int
    sources: list[SourceSummary]
    rejected: list[RejectedPairs]
    splits: list[SplitSummary]
    vocabularies: list[VocabularySummary]
    unknown: list[UnknownText]  # in the first validation texts, the most frequent first
    samples: list[PairSample]
    batches: BatchSummary


def summarize_dataset(
    folder: str | Path,
    *,
    samples: int = 3,
    examples: int = 3,
    batch_tokens: int | None = None,
    pairs: int = LOOKED_AT,
) -> DatasetSummary:
    """Returns what lies in a finished dataset folder on this machine. Imports TensorFlow.

    Args:
      folder: The folder.
      samples: Sample pairs of each split.
      examples: Rejected pairs of each reason.
      batch_tokens: Size of the batches that are looked at; None is what `tt train` chooses.
      pairs: Training pairs that are looked at, for the batches and how words are split.

    Raises:
      UserError: It is no finished dataset folder, or something in it is damaged.
    """
    from model.summaries.batches import summarize_batches
    from model.summaries.pairs import sample_pairs

    path = Path(folder)
    manifest = DatasetManifest.load(path)
    vocabularies = load_vocabularies(path)
    tokens = batch_tokens or configure({}, manifest=manifest)[1].batch_tokens
    batches = summarize_batches(path, manifest, vocabularies, batch_tokens=tokens, pairs=pairs)
    unknown, lengths = _look_into_validation(path, manifest, vocabularies)
    fine = {TRAIN: [each.lengths for each in batches.coverage], VALIDATION: lengths}
    return DatasetSummary(
        folder=str(folder),
        version=manifest.version,
        fingerprint=manifest.fingerprint,
        source_language=manifest.source_language,
        target_language=manifest.target_language,
        options=manifest.options,
        pairs_read=manifest.lines_read,
        pairs_kept=manifest.pairs_kept,
        sources=summarize_sources(manifest.sources),
        rejected=summarize_rejected(path, manifest.rejected, examples=examples),
        splits=[
            _summarize_split(name, split, fine_lengths=fine.get(name, []))
            for name, split in manifest.splits.items()
        ],
        vocabularies=summarize_vocabularies(vocabularies),
        unknown=unknown,
        samples=[
            sample
            for split in manifest.splits
            for sample in sample_pairs(path, manifest, vocabularies, split=split, count=samples)
        ],
        batches=batches,
    )


def summarize_sources(sources: Sequence[dict[str, Any]]) -> list[SourceSummary]:
    """Returns the sources of a manifest; files that one name was given to are one."""
    found: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for source in sources:
        found.setdefault((source["name"], bool(source.get("is_held_out"))), []).append(source)
    return [
        SourceSummary(
            name=name,
            kind=parts[0].get("kind", ""),
            files=[str(file.get("path", "")) for part in parts for file in part.get("files", ())],
            is_held_out=is_held_out,
            read=sum(part["read"] for part in parts),
            kept=sum(part["kept"] for part in parts),
            rejected=dict(
                sum((collections.Counter(part["rejected"]) for part in parts), start=_NONE)
            ),
        )
        for (name, is_held_out), parts in found.items()
    ]


_NONE: collections.Counter[str] = collections.Counter()


def _summarize_split(name: str, split: SplitInfo, *, fine_lengths: list[Histogram]) -> SplitSummary:
    return SplitSummary(
        name=name,
        pairs=split.records,
        shards=len(split.shards),
        bytes=sum(split.shard_sizes),
        source_tokens=split.source_tokens,
        target_tokens=split.target_tokens,
        longest=split.longest,
        source_lengths=_lengths(split.source_lengths),
        target_lengths=_lengths(split.target_lengths),
        fine_lengths=fine_lengths,
        length_ratios=_ratios(split.length_ratios) if any(split.length_ratios) else None,
        placeholder_pairs=split.placeholder_pairs,
        padding_as_stored=split.padding_as_stored,
        padding_by_length=split.padding_by_length,
    )


def _lengths(counts: list[int]) -> Histogram:
    edges = [float(HISTOGRAM_STEP * place) for place in range(len(counts) + 1)]
    return Histogram(unit="tokens", edges=edges, counts=list(counts))


def _ratios(counts: list[int]) -> Histogram:
    edges = [ratio_of_place(place) / _HALF_STEP for place in range(len(counts) + 1)]
    ratios = Histogram(unit="target tokens a source token", edges=edges, counts=list(counts))
    return ratios.trimmed()


def _look_into_validation(
    folder: Path, manifest: DatasetManifest, vocabularies: VocabularyPair
) -> tuple[list[UnknownText], list[Histogram]]:
    """Returns what is unknown in validation texts, and the lengths of their two sides.

    Of training pairs the ids alone are stored.
    """
    from model.summaries.pairs import read_pairs

    found: collections.Counter[tuple[str, str]] = collections.Counter()
    lengths: list[collections.Counter[int]] = [collections.Counter(), collections.Counter()]
    for pair in itertools.islice(read_pairs(folder, manifest, VALIDATION), _TEXTS):
        for (side, vocabulary), text in zip(vars(vocabularies).items(), pair.texts, strict=True):
            if text is not None:
                found.update((side, part) for part in vocabulary.find_unknown(text))
        for counts, ids in zip(lengths, pair.ids, strict=True):
            counts[len(ids)] += 1
    unknown = [
        UnknownText(side=side, text=text, count=count)
        for (side, text), count in sorted(found.items(), key=lambda each: (-each[1], each[0]))
    ]
    return unknown, [Histogram.of_lengths(counts) for counts in lengths]
