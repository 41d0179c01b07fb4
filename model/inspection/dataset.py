"""Summary of a dataset folder: sources, rejected pairs, lengths, vocabularies, samples, batches."""

from __future__ import annotations

import collections
import fnmatch
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.dataset.manifest import (
    RATIO_STEPS,
    SOURCE_FEATURE,
    SOURCE_TEXT_FEATURE,
    TARGET_FEATURE,
    TARGET_TEXT_FEATURE,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    merge_sources,
    ratio_of_place,
)
from tt.model.dataset.tfrecords import read_features, read_records
from tt.model.errors import UserError
from tt.model.inspection.batches import (
    lengths_in,
    padded_batch,
    padding_section,
    read_batches,
)
from tt.model.inspection.blocks import (
    Bars,
    Facts,
    Folded,
    Histogram,
    Histograms,
    Note,
    Section,
    Table,
    Texts,
    histograms_of_lengths,
    languages_of,
    options,
    table,
)
from tt.model.inspection.model import vocabulary_section
from tt.model.storage.files import open_for_parts, read_bytes
from tt.model.storage.listing import list_names
from tt.model.text.vocabulary import Vocabulary, VocabularyPair, load_vocabularies
from tt.model.training.defaults import configure

LOOKED_AT = 50_000  # training pairs to read for facts that are not in the manifest
_TEXTS = 2_000  # validation pairs in which unknown characters are counted
_HALF_STEP = 2 ** (0.5 / RATIO_STEPS)  # factor from the edge of a bin of ratios to its middle
_UNKNOWN = 20  # number of unknown parts of texts to show
_BARS = 40  # the maximum number of bars in a histogram of lengths
_BATCH_ROWS = 8192


def dataset_sections(folder: str | Path, *, examples: int = 3) -> list[Section]:
    """Return the summary of a finished dataset folder.

    Args:
      folder: The folder, on any storage.
      examples: Number of sample pairs per split, and of rejected pairs per reason.

    Raises:
      UserError: The folder is not a finished dataset, or a part of it is damaged.
    """
    path = str(folder)
    manifest = DatasetManifest.load(path, read=read_bytes)
    vocabularies = load_vocabularies(path, read=read_bytes)
    batch_tokens = configure({}, manifest=manifest)[1].batch_tokens
    batches = read_batches(path, manifest, batch_tokens=batch_tokens, pairs=LOOKED_AT)
    lengths = {TRAIN: lengths_in(batches)}
    lengths[VALIDATION], unknown = _look_into_validation(path, manifest, vocabularies)
    for name in manifest.splits.keys() - lengths.keys():
        pairs = itertools.islice(read_pairs(path, manifest, name), _TEXTS)
        lengths[name] = [list(map(len, side)) for side in zip(*(p.ids for p in pairs), strict=True)]
    vocabulary = vocabulary_section(vocabularies)
    return [
        _overview(str(folder), manifest),
        Section("rejected", "Rejected pairs", rejected_blocks(path, manifest, examples=examples)),
        *([alignment_section(manifest)] if manifest.alignment else []),
        Section(
            "lengths",
            "Lengths",
            [each for name in manifest.splits for each in _lengths(manifest, name, lengths[name])],
        ),
        vocabulary._replace(blocks=[*vocabulary.blocks, Facts(unknown)]),
        padding_section(batches, batch_tokens=batch_tokens),
        Section(
            "samples",
            "Sample pairs",
            [
                Note("Training pairs are stored as ids, so their texts are decoded."),
                *_samples(path, manifest, vocabularies, examples=examples),
                padded_batch(batches, vocabularies),
            ],
        ),
    ]


def most_important(sections: Sequence[Section]) -> list[Section]:
    """Return the sections of a dataset that a user checks first, without folded blocks."""
    by_anchor = {each.anchor: each for each in sections}
    return [
        found._replace(blocks=[each for each in found.blocks if not isinstance(each, Folded)])
        for anchor in ("overview", "rejected", "alignment", "vocabulary", "lengths")
        if (found := by_anchor.get(anchor))
    ]


def _overview(folder: str, manifest: DatasetManifest) -> Section:
    facts = [
        ("dataset", folder),
        ("languages", languages_of(manifest)),
        ("pairs", f"{manifest.lines_read:,} read, {manifest.pairs_kept:,} kept"),
        ("made by", f"tt {manifest.version}"),
        ("fingerprint", manifest.fingerprint[:16]),
    ]
    splits = [{"name": name, **vars(split)} for name, split in manifest.splits.items()]
    blocks = [
        Facts(facts),
        table(merge_sources(manifest.sources), "name kind is_held_out read kept"),
        table(splits, "name records source_tokens target_tokens longest"),
        options("Options", manifest.options),
    ]
    return Section("overview", "Overview", blocks)


def _look_into_validation(
    folder: str | Path, manifest: DatasetManifest, vocabularies: VocabularyPair
) -> tuple[list[list[int]], list[tuple[str, str]]]:
    """Return the lengths of both sides of validation pairs, and facts about unknown characters.

    Only validation records contain texts.
    """
    unknown: dict[str, collections.Counter[str]] = {}
    lengths: list[list[int]] = [[], []]
    for pair in itertools.islice(read_pairs(folder, manifest, VALIDATION), _TEXTS):
        for (side, vocabulary), text in zip(vars(vocabularies).items(), pair.texts, strict=True):
            if text is not None:
                found = unknown.setdefault(side, collections.Counter())
                found.update(vocabulary.find_unknown(text))
        for own, ids in zip(lengths, pair.ids, strict=True):
            own.append(len(ids))
    facts = [
        (
            f"unknown in validation texts, {side}",
            ", ".join(f"{part!r} {count:,}" for part, count in found.most_common(_UNKNOWN)),
        )
        for side, found in unknown.items()
    ]
    return lengths, facts


def _lengths(
    manifest: DatasetManifest, name: str, lengths: Sequence[Sequence[int]]
) -> Iterator[Histograms]:
    split = manifest.splits[name]
    title = f"Lengths of {name}"
    if len(lengths[0]) < split.records:
        title += f", the first {len(lengths[0]):,} pairs"
    if lengths[0]:
        sides = histograms_of_lengths(lengths, bins=_BARS)
        if max(map(max, lengths)) >= sides[0].edges[-1]:
            title += f"; the last bar is {sides[0].edges[-2]:g} or more tokens"
        yield Histograms(title, list(zip(("source", "target"), sides, strict=True)))
    counts = split.length_ratios
    edges = [ratio_of_place(place) / _HALF_STEP for place in range(len(counts) + 1)]
    ratios = Histogram(unit="target tokens per source token", edges=edges, counts=counts)
    yield Histograms(f"Ratio of lengths, {name}", [("ratio", ratios.trimmed())], is_log=True)


def rejected_blocks(folder: str | Path, manifest: DatasetManifest, *, examples: int) -> list[Any]:
    """Return the numbers of rejected pairs and examples, the most frequent reason first.

    Args:
      folder: The dataset folder.
      manifest: The manifest of the dataset.
      examples: Number of examples per reason.

    Raises:
      UserError: A `rejected-*.parquet` cannot be read.
    """
    if not manifest.rejected:
        return [Note("No pair was rejected.")]
    counts = sorted(manifest.rejected.items(), key=lambda each: (-each[1], each[0]))
    found: dict[str, list[list[object]]] = {reason: [] for reason, _ in counts}
    missing = {reason: min(examples, count) for reason, count in counts}
    for row in _rejected_rows(str(folder)):
        if missing.get(row["reason"]):
            missing[row["reason"]] -= 1
            place, kept = (
                f"{row[f'{begin}file'] or row[f'{begin}corpus']}:{row[f'{begin}line']}"
                for begin in ("", "survivor_")
            )
            instead = kept if row["survivor_line"] else ""
            found[row["reason"]].append([place, row["source"], row["target"], instead])
        if not any(missing.values()):
            break
    header = ["place", "source", "target", "kept instead"]
    return [
        Bars("Rejected pairs by reason", counts, "pairs"),
        *(
            Folded(f"Rejected: {reason}, {count:,}", [Texts(header, found[reason])])
            for reason, count in counts
        ),
    ]


def alignment_section(manifest: DatasetManifest) -> Section:
    """Return the distribution of the cosines of training pairs, with examples.

    A table shows how many pairs each threshold would reject, so that users can choose one.
    """
    found = manifest.alignment
    assert found is not None
    counts, total, below = found["counts"], max(1, sum(found["counts"])), 0
    bins: list[list[object]] = []
    examples: list[list[object]] = []
    for place, count in enumerate(counts):
        below += count
        if count:
            least, most = (2 * edge / len(counts) - 1 for edge in (place, place + 1))
            bins.append([f"{least:.2f} to {most:.2f}", count, f"{below / total:.2%}"])
            examples += [[f"{each[0]:.3f}", *each[1:]] for each in found["examples"][place]]
    threshold = found["threshold"]
    limit = "no pair" if threshold is None else f"pairs with a cosine below {threshold:g}"
    return Section(
        "alignment",
        "Alignment",
        [
            Note(f"--alignment-filter {manifest.options['alignment_filter']} rejected {limit}."),
            Table(["cosine", "pairs", "pairs up to here"], bins),
            Folded("Examples", [Texts(["cosine", "source", "target"], examples)]),
        ],
    )


def _rejected_rows(folder: str) -> Iterator[dict[str, Any]]:
    for name in fnmatch.filter(list_names(folder), "rejected-*.parquet"):
        path = f"{folder}/{name}"
        try:
            with open_for_parts(path) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches(_BATCH_ROWS):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{path} cannot be read: {reason}. Copy the folder again from its source, or "
                "create the dataset again with `tt preprocess`"
            ) from error


class StoredPair(NamedTuple):
    """A record of a dataset."""

    shard: str  # file name of the shard
    record: int  # number in the shard
    ids: tuple[list[int], list[int]]  # source and target ids, with BOS and EOS
    texts: tuple[str | None, str | None]  # source and target texts, if they are stored


def read_pairs(folder: str | Path, manifest: DatasetManifest, split: str) -> Iterator[StoredPair]:
    """Yield the records of a split in their stored order.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    shards = manifest.splits[split].shards
    for example, shard, record, _ in read_records([f"{folder}/{name}" for name in shards]):
        features = read_features(example, record=record, shard=shards[shard])
        source, target = (
            list(features[name].int64_list.value) for name in (SOURCE_FEATURE, TARGET_FEATURE)
        )
        source_text, target_text = (
            text[0].decode() if (text := features[name].bytes_list.value) else None
            for name in (SOURCE_TEXT_FEATURE, TARGET_TEXT_FEATURE)
        )
        yield StoredPair(shards[shard], record, (source, target), (source_text, target_text))


def _samples(
    folder: str | Path, manifest: DatasetManifest, vocabularies: VocabularyPair, *, examples: int
) -> Iterator[Folded]:
    """Yield the first records of each split, which preprocessing has shuffled."""
    header = ["side", "text", "tokens", "ids", "round trip"]
    for split in manifest.splits:
        for pair in itertools.islice(read_pairs(folder, manifest, split), examples):
            sides = zip(vars(vocabularies).items(), pair.ids, pair.texts, strict=True)
            rows = [[side, *round_trip(own, ids, text)] for (side, own), ids, text in sides]
            title = f"{split}: record {pair.record:,} of {pair.shard}"
            yield Folded(title, [Texts(header, rows)])


def round_trip(vocabulary: Vocabulary, ids: list[int], text: str | None) -> list[str]:
    """Return a text, its tokens, its ids, and whether decoding the ids gives the same text.

    If the dataset stores only ids, the text is decoded, and encoding it must give the same ids.
    """
    [decoded] = vocabulary.decode([ids])
    is_exact = vocabulary.encode([decoded])[0] == ids if text is None else decoded == text
    return [
        decoded if text is None else text,
        " ".join(vocabulary.names(ids)),
        " ".join(map(str, ids)),
        "exact" if is_exact else f"differs: {decoded}",
    ]
