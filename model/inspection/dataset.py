"""A dataset folder: sources, rejected pairs, lengths, vocabularies, samples, batches."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model.dataset.manifest import (
    RATIO_STEPS,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    ratio_of_place,
)
from model.inspection.batches import BatchSummary, PaddedBatch, summarize_batches
from model.inspection.blocks import (
    Bars,
    Facts,
    Folded,
    Histograms,
    Lines,
    Note,
    Section,
    Texts,
    languages_of,
    options,
    table,
)
from model.inspection.histograms import Histogram, with_same_bins
from model.inspection.pairs import (
    PairSample,
    RejectedPairs,
    TextSample,
    read_pairs,
    sample_pairs,
    summarize_rejected,
)
from model.inspection.vocabularies import (
    VocabularySummary,
    summarize_vocabularies,
    vocabulary_sections,
)
from model.text.vocabulary import VocabularyPair, load_vocabularies
from model.training.choices import configure

LOOKED_AT = 50_000  # training pairs for everything that is not in the manifest
_TEXTS = 2_000  # validation pairs in which unknown characters are counted
_HALF_STEP = 2 ** (0.5 / RATIO_STEPS)  # from the middle of a bin of ratios to its edge
_UNKNOWN = 20  # parts of texts
_SHAPES = 12  # of batches, those of most positions
_BARS = 40  # the most bars of a histogram of lengths


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """The content of a dataset folder."""

    folder: str
    manifest: DatasetManifest
    sources: list[dict[str, Any]]  # as in the manifest, but files with the same name are one
    rejected: list[RejectedPairs]
    # Tokens of the sources and of the targets of the pairs looked at, BOS and EOS included, by
    # split, in bins of one token.
    lengths: dict[str, list[Histogram]]
    vocabularies: list[VocabularySummary]
    # Parts of validation texts without a token, by side, the most frequent first.
    unknown: dict[str, dict[str, int]]
    samples: list[PairSample]
    batches: BatchSummary


def summarize_dataset(
    folder: str | Path,
    *,
    examples: int = 3,
    batch_tokens: int | None = None,
    pairs: int = LOOKED_AT,
) -> DatasetSummary:
    """Summarize a finished dataset folder on this machine.

    Args:
      folder: The folder.
      examples: Sample pairs of each split, and rejected pairs of each reason.
      batch_tokens: Size of the batches; None is the size that `tt train` chooses.
      pairs: Training pairs to look at, for the batches and for the tokens of words.

    Raises:
      UserError: The folder is no finished dataset, or a part of it is damaged.
    """
    path = Path(folder)
    manifest = DatasetManifest.load(path)
    vocabularies = load_vocabularies(path)
    tokens = batch_tokens or configure({}, manifest=manifest)[1].batch_tokens
    batches = summarize_batches(path, manifest, vocabularies, batch_tokens=tokens, pairs=pairs)
    unknown, lengths = _look_into_validation(path, manifest, vocabularies)
    return DatasetSummary(
        folder=str(folder),
        manifest=manifest,
        sources=merge_sources(manifest.sources),
        rejected=summarize_rejected(path, manifest.rejected, examples=examples),
        lengths={TRAIN: [each.lengths for each in batches.coverage], VALIDATION: lengths},
        vocabularies=summarize_vocabularies(vocabularies),
        unknown=unknown,
        samples=[
            sample
            for split in manifest.splits
            for sample in sample_pairs(path, manifest, vocabularies, split=split, count=examples)
        ],
        batches=batches,
    )


def merge_sources(sources: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of a manifest; files with the same name are one source."""
    found: dict[tuple[str, bool], list[dict[str, Any]]] = collections.defaultdict(list)
    for source in sources:
        found[source["name"], source["is_held_out"]].append(source)
    return [
        {
            "name": name,
            "kind": parts[0]["kind"],
            "files": [str(file.get("path", "")) for part in parts for file in part["files"]],
            "is_held_out": is_held_out,
            "read": sum(part["read"] for part in parts),
            "kept": sum(part["kept"] for part in parts),
            "rejected": dict(sum((collections.Counter(p["rejected"]) for p in parts), _NONE)),
        }
        for (name, is_held_out), parts in found.items()
    ]


_NONE: collections.Counter[str] = collections.Counter()


def _look_into_validation(
    folder: Path, manifest: DatasetManifest, vocabularies: VocabularyPair
) -> tuple[dict[str, dict[str, int]], list[Histogram]]:
    """Return the unknown parts of validation texts, and the lengths of their two sides.

    Training pairs have no texts, only ids.
    """
    unknown: dict[str, collections.Counter[str]] = {}
    lengths: list[collections.Counter[int]] = [collections.Counter(), collections.Counter()]
    for pair in itertools.islice(read_pairs(folder, manifest, VALIDATION), _TEXTS):
        for (side, vocabulary), text in zip(vars(vocabularies).items(), pair.texts, strict=True):
            if text is not None:
                found = unknown.setdefault(side, collections.Counter())
                found.update(vocabulary.find_unknown(text))
        for counts, ids in zip(lengths, pair.ids, strict=True):
            counts[len(ids)] += 1
    by_frequency = {side: dict(counts.most_common()) for side, counts in unknown.items()}
    return by_frequency, [Histogram.of_lengths(counts) for counts in lengths]


def dataset_sections(found: DatasetSummary) -> list[Section]:
    """Return the sections of a dataset."""
    manifest, batches = found.manifest, found.batches
    splits = [{"name": name, **vars(split)} for name, split in manifest.splits.items()]
    facts = [
        ("dataset", found.folder),
        ("languages", languages_of(manifest)),
        ("pairs", f"{manifest.lines_read:,} read, {manifest.pairs_kept:,} kept"),
        ("made by", f"tt {manifest.version}"),
        ("fingerprint", manifest.fingerprint[:16]),
    ]
    overview = [
        Facts(facts),
        table(found.sources, "name kind is_held_out read kept"),
        table(splits, "name records source_tokens target_tokens longest"),
        options("Options", manifest.options),
    ]
    shapes = table(
        batches.shapes[:_SHAPES], "rows source_length target_length batches pairs padding"
    )
    padding = f"Padding in batches of {batches.batch_tokens:,} tokens: {batches.padding:.1%} in all"
    lengths = [each for split in manifest.splits for each in _lengths(found, split)]
    return [
        Section("overview", "Overview", overview),
        Section("rejected", "Rejected pairs", _rejected(found)),
        Section("lengths", "Lengths", lengths),
        *vocabulary_sections(found.vocabularies),
        Section("words", f"Words of {batches.pairs:,} training pairs", _words(found)),
        Section("padding", padding, [shapes]),
        Section("samples", "Sample pairs", _samples(found)),
    ]


def _rejected(found: DatasetSummary) -> list[Any]:
    if not found.rejected:
        return [Note("No pair was rejected.")]
    counts = [(each.reason, each.count) for each in found.rejected]
    blocks: list[Any] = [Bars("Rejected pairs by reason", counts, "pairs")]
    for each in found.rejected:
        rows = []
        for pair in each.examples:
            kept = f"{pair['survivor_file'] or pair['survivor_corpus']}:{pair['survivor_line']}"
            rows.append(
                [
                    f"{pair['file'] or pair['corpus']}:{pair['line']}",
                    pair["source"],
                    pair["target"],
                    kept if pair["survivor_line"] else "",
                ]
            )
        texts = Texts(["place", "source", "target", "kept instead"], rows)
        blocks.append(Folded(f"Rejected: {each.reason}, {each.count:,}", [texts]))
    return blocks


def _lengths(found: DatasetSummary, name: str) -> list[Histograms]:
    split, lengths = found.manifest.splits[name], found.lengths[name]
    title = f"Lengths of {name}"
    if lengths[0].total < split.records:
        title += f", the first {lengths[0].total:,} pairs"
    sides = with_same_bins(lengths, bins=_BARS)
    if max(side.edges[-1] for side in lengths) > sides[0].edges[-1]:
        title += f"; the last bar is {sides[0].edges[-2]:g} tokens and more"
    counts = split.length_ratios
    edges = [ratio_of_place(place) / _HALF_STEP for place in range(len(counts) + 1)]
    ratios = Histogram(unit="target tokens per source token", edges=edges, counts=counts)
    return [
        Histograms(title, list(zip(("source", "target"), sides, strict=True))),
        Histograms(f"Ratio of lengths, {name}", [("ratio", ratios.trimmed())], is_log=True),
    ]


def _words(found: DatasetSummary) -> list[Any]:
    coverage = table(
        map(vars, found.batches.coverage),
        "side words tokens_per_word tokens_used vocabulary unknown",
    )
    longest = [
        (
            f"words of most tokens, {each.side}",
            ", ".join(f"{word} {length}" for word, length in each.longest_words),
        )
        for each in found.batches.coverage
    ]
    unknown = [
        (
            f"unknown in validation texts, {side}",
            ", ".join(f"{part!r} {count:,}" for part, count in [*parts.items()][:_UNKNOWN]),
        )
        for side, parts in found.unknown.items()
    ]
    return [coverage, Facts([*longest, *unknown])]


def _samples(found: DatasetSummary) -> list[Any]:
    blocks: list[Any] = [Note("Training pairs are stored as ids: their texts are decoded.")]
    for each in found.samples:
        rows = [
            [side, sample.decoded if sample.text is None else sample.text, *_as_stored(sample)]
            for side, sample in (("source", each.source), ("target", each.target))
        ]
        texts = Texts(["side", "text", "tokens", "ids", "round trip"], rows)
        blocks.append(Folded(f"{each.split}: record {each.record:,} of {each.shard}", [texts]))
    batch = found.batches.batch
    title = f"{len(batch.source)} of the {batch.rows} rows of a padded batch"
    return [*blocks, Folded(title, [Lines(_batch_lines(batch))])]


def _as_stored(sample: TextSample) -> list[str]:
    back = "comes back" if sample.comes_back else f"comes back as: {sample.decoded}"
    return [" ".join(sample.tokens), " ".join(map(str, sample.ids)), back]


def _batch_lines(batch: PaddedBatch) -> list[str]:
    parts: dict[str, Sequence[Sequence[object]]] = {
        "encoder": batch.source_tokens, "encoder ids": batch.source,
        "decoder ids": batch.decoder_input, "labels": batch.labels,
        "label tokens": batch.label_tokens,
    }  # fmt: skip
    return [
        f"{'' if number else name:<12}  {' '.join(map(str, row))}"
        for name, rows in parts.items()
        for number, row in enumerate(rows)
    ]
