"""Batches as training sees them: their padding, the tokens of their texts, and their masks."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from model.dataset.batches import WINDOW, Batch, Position, TokenBatches
from model.dataset.manifest import TRAIN, DatasetManifest
from model.folders.long_work import long_work
from model.inspection.blocks import Lines, Note, Section
from model.inspection.histograms import Histogram
from model.text.normalization import WORD_BOUNDARY
from model.text.vocabulary import EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair
from model.transformer.attention import look_ahead_bias, padding_bias

_SEED = 1
_LONGEST_WORDS = 10
_LOOKED_AT = 1000  # words among which the longest are
_ROWS = 6  # of the batch that is shown
_MASKED_ROWS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaddedBatch:
    """The first rows of a batch as the model gets it."""

    rows: int  # of the whole batch
    source: list[list[int]]  # ids that the encoder reads, PAD at the end
    source_tokens: list[list[str]]
    decoder_input: list[list[int]]  # ids that the decoder reads: the target without its end
    labels: list[list[int]]  # ids that the decoder must predict: the target without BOS
    label_tokens: list[list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """How a vocabulary covers the texts of a side. Tokens do not include BOS and EOS."""

    side: str
    tokens: int
    words: int  # tokens that begin a word
    tokens_per_word: float
    tokens_used: int  # different tokens that occur
    vocabulary: int  # tokens of the vocabulary
    unknown: int  # tokens that are UNK
    longest_words: list[tuple[str, int]]  # the words of the most tokens, and how many
    lengths: Histogram  # tokens of each text, BOS and EOS included


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSummary:
    """The first batches of the training split."""

    batch_tokens: int  # the most rows times the longer side's padded length
    pairs: int  # in these batches
    padding: float  # share of the positions of both sides
    # Rows, lengths, number and padding of the batches of each shape, the shape with the most
    # positions first.
    shapes: list[dict[str, Any]]
    batch: PaddedBatch  # a narrow one
    coverage: list[Coverage]  # of source and target


def summarize_batches(
    folder: Path,
    manifest: DatasetManifest,
    vocabularies: VocabularyPair,
    *,
    batch_tokens: int,
    pairs: int,
) -> BatchSummary:
    """Summarize the first batches of an epoch, until they have so many pairs.

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
    seen: list[Batch] = []
    with long_work(
        "looking at training pairs", total=min(pairs, split.records), unit="pairs"
    ) as work:
        for batch in batches:
            seen.append(batch)
            work.add(len(batch.records))
            if work.done >= pairs:
                break
    by_shape: dict[tuple[int, int, int], list[Batch]] = collections.defaultdict(list)
    for batch in seen:
        by_shape[*batch.source.shape, batch.target.shape[1]].append(batch)
    # Batches of few rows are rarely full ones.
    narrow = min(seen, key=lambda b: (b.source.shape[1] + b.target.shape[1], -len(b.source)))
    return BatchSummary(
        batch_tokens=batch_tokens,
        pairs=sum(len(batch.records) for batch in seen),
        padding=_padding(seen),
        shapes=[
            {
                **dict(zip(("rows", "source_length", "target_length"), shape, strict=True)),
                "batches": len(found),
                "pairs": sum(len(batch.records) for batch in found),
                "padding": _padding(found),
            }
            for shape, found in sorted(by_shape.items(), key=lambda s: (-_positions(s[1]), s[0]))
        ],
        batch=_show(narrow, vocabularies),
        coverage=[
            _cover("source", vocabularies.source, [batch.source for batch in seen]),
            _cover("target", vocabularies.target, [batch.target for batch in seen]),
        ],
    )


def _positions(batches: Sequence[Batch]) -> int:
    return sum(batch.source.size + batch.target.size for batch in batches)


def _padding(batches: Sequence[Batch]) -> float:
    real = sum(np.count_nonzero(b.source) + np.count_nonzero(b.target) for b in batches)
    return float(1 - real / _positions(batches))


def _show(batch: Batch, vocabularies: VocabularyPair) -> PaddedBatch:
    # Rows of different lengths, if there are any.
    lengths = np.count_nonzero(batch.source, axis=1) + np.count_nonzero(batch.target, axis=1)
    order = np.argsort(-lengths[: len(batch.records)], kind="stable")
    rows = order[np.linspace(0, len(order) - 1, min(_ROWS, len(order))).astype(int)]
    source, target = batch.source[rows].tolist(), batch.target[rows]
    labels = target[:, 1:].tolist()
    return PaddedBatch(
        rows=len(batch.source),
        source=source,
        source_tokens=[vocabularies.source.names(row) for row in source],
        decoder_input=target[:, :-1].tolist(),
        labels=labels,
        label_tokens=[vocabularies.target.names(row) for row in labels],
    )


def _cover(side: str, vocabulary: Vocabulary, batches: Sequence[npt.NDArray[np.int32]]) -> Coverage:
    pieces = [vocabulary.piece(i) for i in range(vocabulary.piece_count)]
    begins_word = np.zeros(vocabulary.size, bool)
    begins_word[: len(pieces)] = [piece.startswith(WORD_BOUNDARY) for piece in pieces]
    masks = [(ids == UNK_ID) | (ids > EOS_ID) for ids in batches]
    flat = np.concatenate([ids[mask] for ids, mask in zip(batches, masks, strict=True)])
    sizes = np.concatenate([np.count_nonzero(mask, axis=1) for mask in masks])
    begins = begins_word[flat]
    begins[(np.cumsum(sizes) - sizes)[sizes > 0]] = True
    starts = np.flatnonzero(begins)
    word_sizes = np.diff(starts, append=len(flat))
    longest: dict[str, int] = {}
    for place in np.argsort(-word_sizes, kind="stable")[:_LOOKED_AT]:
        ids = flat[starts[place] : starts[place] + word_sizes[place]].tolist()
        word = "".join(vocabulary.names(ids)).replace(WORD_BOUNDARY, "")
        longest.setdefault(word, len(ids))
    lengths = [np.count_nonzero(ids != PAD_ID, axis=1).tolist() for ids in batches]
    return Coverage(
        side=side,
        tokens=len(flat),
        words=len(starts),
        tokens_per_word=len(flat) / max(len(starts), 1),
        tokens_used=len(np.unique(flat)),
        vocabulary=len(pieces),
        unknown=int(np.count_nonzero(flat == UNK_ID)),
        longest_words=list(itertools.islice(longest.items(), _LONGEST_WORDS)),
        lengths=Histogram.of_lengths(collections.Counter(itertools.chain(*lengths))),
    )


def masks_section(
    folder: Path, manifest: DatasetManifest, vocabularies: VocabularyPair, *, batch_tokens: int
) -> Section:
    """Return the masks of a narrow training batch as the model computes them.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    batch = summarize_batches(
        folder, manifest, vocabularies, batch_tokens=batch_tokens, pairs=WINDOW
    ).batch
    count = min(_MASKED_ROWS, len(batch.source))
    shown = np.linspace(0, len(batch.source) - 1, count).astype(int).tolist()
    padding = padding_bias(tf.constant([batch.source[row] for row in shown], tf.int32)).numpy()
    tokens = vocabularies.target.names(batch.decoder_input[0])
    look_ahead = look_ahead_bias(tf.constant(len(tokens))).numpy()[0, 0]  # [T, T]
    sources = [" ".join(batch.source_tokens[row]) for row in shown]
    return Section(
        "masks",
        f"Masks of a batch of {batch.rows:,} rows: # is visible, . is hidden",
        [
            Note(
                f"Padding mask, {count} rows: source positions that the encoder, and the decoder "
                "in cross-attention, can see"
            ),
            Lines(list(_mask_lines(padding[:, 0, 0], sources))),
            Note(
                "Look-ahead mask, the same for all rows: target positions that each position of "
                "the decoder can see; it hides padding, too, because padding is at the end"
            ),
            Lines(list(_mask_lines(look_ahead, tokens))),
        ],
    )


def _mask_lines(biases: npt.NDArray[np.float32], texts: Sequence[str]) -> Iterator[str]:
    for bias, text in zip(biases, texts, strict=True):
        yield f"  {''.join('#' if each == 0 else '.' for each in bias)}  {text}"
