"""Training batches: their padding, and the lengths of their texts."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tt.model.dataset.batches import Batch, Position, TokenBatches
from tt.model.dataset.manifest import TRAIN, DatasetManifest
from tt.model.inspection.blocks import Folded, Lines, Section, Table
from tt.model.long_work import long_work
from tt.model.text.vocabulary import VocabularyPair

_SEED = 1
_ROWS = 6  # number of rows of a padded batch to show
_SHAPES = 12  # number of shapes to show, of which the first have the most positions


def read_batches(
    folder: str | Path, manifest: DatasetManifest, *, batch_tokens: int, pairs: int
) -> list[Batch]:
    """Return the first batches of an epoch.

    Args:
      folder: The dataset folder.
      manifest: The manifest of the dataset.
      batch_tokens: The token budget of a batch.
      pairs: The minimum number of pairs in the batches, if the dataset has as many.

    Raises:
      UserError: A shard is missing, truncated or damaged, or has no records.
    """
    split = manifest.splits[TRAIN]
    batches = TokenBatches(
        files=[f"{folder}/{name}" for name in split.shards],
        max_tokens=batch_tokens,
        seed=_SEED,
        vocabulary_sizes=(manifest.source_vocabulary_size, manifest.target_vocabulary_size),
        records=split.records,
        computes=False,
    ).epoch(Position())
    found: list[Batch] = []
    total = min(pairs, split.records)
    with long_work("reading training pairs", total=total, unit="pairs") as work:
        for batch in batches:
            found.append(batch)
            work.add(len(batch.records))
            if work.done >= pairs:
                break
    return found


def padding_section(batches: Sequence[Batch], *, batch_tokens: int) -> Section:
    """Return a section with the padding of all batches, and of the batches of each shape."""
    by_shape: dict[tuple[int, int, int], list[Batch]] = collections.defaultdict(list)
    for batch in batches:
        by_shape[*batch.source.shape, batch.target.shape[1]].append(batch)
    rows = [
        [*shape, len(own), sum(len(batch.records) for batch in own), f"{_padding(own):.1%}"]
        for shape, own in sorted(by_shape.items(), key=lambda each: -_positions(each[1]))
    ]
    header = ["rows", "source length", "target length", "batches", "pairs", "padding"]
    title = f"Padding in batches of {batch_tokens:,} tokens: {_padding(batches):.1%} overall"
    return Section("padding", title, [Table(header, rows[:_SHAPES])])


def _positions(batches: Sequence[Batch]) -> int:
    return sum(batch.source.size + batch.target.size for batch in batches)


def _padding(batches: Sequence[Batch]) -> float:
    real = sum(np.count_nonzero(b.source) + np.count_nonzero(b.target) for b in batches)
    return float(1 - real / _positions(batches))


def lengths_in(batches: Sequence[Batch]) -> list[list[int]]:
    """Return the lengths of sources and of targets in tokens, including BOS and EOS."""
    sides: list[list[int]] = [[], []]
    for batch in batches:
        for side, ids in zip(sides, (batch.source, batch.target), strict=True):
            side += np.count_nonzero(ids[: len(batch.records)], axis=1).tolist()
    return sides


def narrow_rows(
    batches: Sequence[Batch], count: int
) -> tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the number of rows in a narrow batch, and some of its rows, the longest first."""
    # Among equally narrow batches, the one with the most rows is usually full.
    batch = min(batches, key=lambda b: (b.source.shape[1] + b.target.shape[1], -len(b.source)))
    lengths = np.count_nonzero(batch.source, axis=1) + np.count_nonzero(batch.target, axis=1)
    order = np.argsort(-lengths[: len(batch.records)], kind="stable")
    rows = order[np.linspace(0, len(order) - 1, min(count, len(order))).astype(int)]
    return len(batch.source), batch.source[rows], batch.target[rows]


def padded_batch(batches: Sequence[Batch], vocabularies: VocabularyPair) -> Folded:
    """Return some rows of a narrow batch, as the model receives them."""
    rows, source, target = narrow_rows(batches, _ROWS)
    labels = target[:, 1:]
    parts: dict[str, Sequence[Sequence[object]]] = {
        "encoder": list(map(vocabularies.source.names, source.tolist())),
        "encoder ids": source.tolist(),
        "decoder ids": target[:, :-1].tolist(),
        "labels": labels.tolist(),
        "label tokens": list(map(vocabularies.target.names, labels.tolist())),
    }
    lines = [
        f"{'' if number else name:<12}  {' '.join(map(str, row))}"
        for name, part in parts.items()
        for number, row in enumerate(part)
    ]
    return Folded(f"{len(source)} of the {rows} rows of a padded batch", [Lines(lines)])
