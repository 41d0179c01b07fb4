"""Training batches: their padding, the lengths of their texts, and their masks."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tt.model.dataset.batches import WINDOW, Batch, Position, TokenBatches
from tt.model.dataset.manifest import TRAIN, DatasetManifest
from tt.model.inspection.blocks import Folded, Lines, Note, Section, Table
from tt.model.long_work import long_work
from tt.model.text.vocabulary import VocabularyPair
from tt.model.transformer.attention import look_ahead_bias, padding_bias

_SEED = 1
_ROWS = 6  # number of rows of a padded batch to show
_MASKED_ROWS = 4
_SHAPES = 12  # number of shapes to show, of which the first have the most positions


def read_batches(
    folder: Path, manifest: DatasetManifest, *, batch_tokens: int, pairs: int
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
        files=[folder / name for name in split.shards],
        max_tokens=batch_tokens,
        seed=_SEED,
        vocabulary_sizes=(manifest.source_vocabulary_size, manifest.target_vocabulary_size),
        records=split.records,
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


def _narrow_rows(
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
    rows, source, target = _narrow_rows(batches, _ROWS)
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


def masks_section(
    folder: Path, manifest: DatasetManifest, vocabularies: VocabularyPair, *, batch_tokens: int
) -> Section:
    """Return a section with the masks that the model computes for a narrow training batch.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    batches = read_batches(folder, manifest, batch_tokens=batch_tokens, pairs=WINDOW)
    rows, source, target = _narrow_rows(batches, _MASKED_ROWS)
    padding = padding_bias(tf.constant(source, tf.int32)).numpy()  # [B, 1, 1, S]
    tokens = vocabularies.target.names(target[0, :-1].tolist())
    look_ahead = look_ahead_bias(tf.constant(len(tokens))).numpy()[0, 0]  # [T, T]
    sources = [" ".join(vocabularies.source.names(row)) for row in source.tolist()]
    return Section(
        "masks",
        f"Masks of a batch with {rows:,} rows: # is visible, . is hidden",
        [
            Note(
                f"Padding mask, {len(source)} rows: source positions that the encoder, and the "
                "decoder in cross-attention, can see"
            ),
            Lines(list(_mask_lines(padding[:, 0, 0], sources))),
            Note(
                "Look-ahead mask, the same for all rows: target positions that each position of "
                "the decoder can see. It also hides padding, because padding is at the end"
            ),
            Lines(list(_mask_lines(look_ahead, tokens))),
        ],
    )


def _mask_lines(biases: npt.NDArray[np.float32], texts: Sequence[str]) -> Iterator[str]:
    for bias, text in zip(biases, texts, strict=True):
        yield f"  {''.join('#' if each == 0 else '.' for each in bias)}  {text}"
