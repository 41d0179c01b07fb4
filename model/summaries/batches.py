"""Batches as training sees them: how much of them is padding, and what their texts are made of."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.dataset.batches import Batch, TokenBatches
from model.dataset.manifest import TRAIN, DatasetManifest
from model.dataset.windows import Position
from model.folders.long_work import long_work
from model.summaries.histograms import Histogram
from model.summaries.vocabularies import token_names
from model.text.normalization import WORD_BOUNDARY
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair

_SEED = 1
_LONGEST_WORDS = 10
_ROWS = 6  # of a batch that is shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchShape:
    """The batches of one shape."""

    rows: int
    source_length: int  # positions, padding included
    target_length: int
    batches: int
    pairs: int
    padding: float  # share of the positions of both sides


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaddedBatch:
    """The first rows of a batch as the model gets it."""

    rows: int  # of the whole batch
    source: list[list[int]]  # ids that the encoder reads, PAD at the end
    source_tokens: list[list[str]]
    decoder_input: list[list[int]]  # ids that the decoder reads: the target without its end
    labels: list[list[int]]  # ids that it must predict: the target without BOS
    label_tokens: list[list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """How a vocabulary covers the texts of a side. Tokens do not count BOS and EOS."""

    side: str
    pairs: int
    tokens: int
    words: int  # tokens that begin a word
    fertility: float  # tokens a word
    characters_per_token: float
    used: int  # different tokens that occur
    vocabulary: int  # tokens that there are
    unknown: int  # tokens that are UNK
    pairs_with_unknown: int
    longest_words: list[tuple[str, int]]  # those of most tokens, and how many
    lengths: Histogram  # tokens of each text, here with BOS and EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSummary:
    """What a look at the batches of the training split found."""

    batch_tokens: int  # rows times the longer side's padded length, at the most
    pairs: int  # that were looked at
    padding: float  # share of the positions of both sides
    shapes: list[BatchShape]  # that with most positions first
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
    """Looks at the first batches of an epoch, until there are so many pairs.

    Raises:
      UserError: A shard is missing, cut off or damaged, or has no records.
    """
    sides = [
        _SideCounts("source", vocabularies.source),
        _SideCounts("target", vocabularies.target),
    ]
    shapes: dict[tuple[int, int, int], collections.Counter[str]] = {}
    narrow: Batch | None = None
    seen = 0
    batches = TokenBatches(
        files=[folder / name for name in manifest.splits[TRAIN].shards],
        max_tokens=batch_tokens,
        seed=_SEED,
        vocabulary_sizes=(manifest.source_vocabulary_size, manifest.target_vocabulary_size),
        records=manifest.splits[TRAIN].records,
    ).epoch(Position())
    total = min(pairs, manifest.splits[TRAIN].records)
    with long_work("looking at training pairs", total=total, unit="pairs") as work:
        for batch in batches:
            sources, targets = batch.source, batch.target
            counts = shapes.setdefault((*sources.shape, targets.shape[1]), collections.Counter())
            real = int(np.count_nonzero(sources) + np.count_nonzero(targets))
            counts.update(
                batches=1,
                pairs=len(batch.records),
                real=real,
                positions=sources.size + targets.size,
            )
            if narrow is None or _width(batch) < _width(narrow):
                narrow = batch
            for side, ids in zip(sides, (sources, targets), strict=True):
                side.add(ids)
            seen += len(batch.records)
            work.add(len(batch.records))
            if seen >= pairs:
                break
    assert narrow is not None, "a finished dataset has records"
    every = sum(shapes.values(), collections.Counter())
    order = sorted(shapes, key=lambda shape: (-shapes[shape]["positions"], shape))
    return BatchSummary(
        batch_tokens=batch_tokens,
        pairs=seen,
        padding=_padding(every),
        shapes=[
            BatchShape(
                rows=shape[0],
                source_length=shape[1],
                target_length=shape[2],
                batches=shapes[shape]["batches"],
                pairs=shapes[shape]["pairs"],
                padding=_padding(shapes[shape]),
            )
            for shape in order
        ],
        batch=_show(narrow, vocabularies),
        coverage=[side.summarize(seen) for side in sides],
    )


def _padding(counts: collections.Counter[str]) -> float:
    return 1 - counts["real"] / counts["positions"]


def _width(batch: Batch) -> tuple[int, int]:
    """Orders batches by what they take on a screen; those of few rows are seldom full ones."""
    return batch.source.shape[1] + batch.target.shape[1], -len(batch.source)


def _show(batch: Batch, vocabularies: VocabularyPair) -> PaddedBatch:
    # Rows of different lengths, where there are some.
    lengths = np.count_nonzero(batch.source, axis=1) + np.count_nonzero(batch.target, axis=1)
    order = np.argsort(-lengths[: len(batch.records)], kind="stable")
    rows = order[np.linspace(0, len(order) - 1, min(_ROWS, len(order))).astype(int)]
    source, target = batch.source[rows].tolist(), batch.target[rows]
    labels = target[:, 1:].tolist()
    return PaddedBatch(
        rows=len(batch.source),
        source=source,
        source_tokens=[token_names(vocabularies.source, row) for row in source],
        decoder_input=target[:, :-1].tolist(),
        labels=labels,
        label_tokens=[token_names(vocabularies.target, row) for row in labels],
    )


class _SideCounts:
    """What the ids of a side add up to."""

    def __init__(self, name: str, vocabulary: Vocabulary) -> None:
        self._name, self._vocabulary = name, vocabulary
        pieces = [vocabulary.piece(i) for i in range(vocabulary.piece_count)]
        self._pieces = pieces
        filling = [""] * (vocabulary.size - len(pieces))
        self._begins = np.array([p.startswith(WORD_BOUNDARY) for p in [*pieces, *filling]])
        self._characters = np.array(
            [len(p.replace(WORD_BOUNDARY, "")) for p in [*pieces, *filling]], np.int64
        )
        self._characters[UNK_ID] = 1  # of how many it is, nothing tells
        self._counts = np.zeros(vocabulary.size, np.int64)
        self._words = self._pairs_with_unknown = 0
        self._longest: dict[str, int] = {}
        self._lengths: collections.Counter[int] = collections.Counter()

    def add(self, ids: npt.NDArray[np.int32]) -> None:
        """Takes the rows of a batch, int32 [B, T]."""
        self._lengths.update(np.count_nonzero(ids != PAD_ID, axis=1).tolist())
        is_token = (ids != PAD_ID) & (ids != BOS_ID) & (ids != EOS_ID)
        flat = ids[is_token]
        if not flat.size:
            return
        self._counts += np.bincount(flat, minlength=len(self._counts))
        self._pairs_with_unknown += int(np.count_nonzero((ids == UNK_ID).any(axis=1)))
        lengths = np.count_nonzero(is_token, axis=1)
        begins = self._begins[flat]
        begins[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        starts = np.flatnonzero(begins)
        self._words += len(starts)
        self._find_longest(flat, starts, np.diff(starts, append=len(flat)))

    def _find_longest(
        self,
        flat: npt.NDArray[np.int32],
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> None:
        least = min(self._longest.values()) if len(self._longest) >= _LONGEST_WORDS else 1
        for place in np.argsort(-lengths, kind="stable")[: 2 * _LONGEST_WORDS]:
            length = int(lengths[place])
            if length <= least:
                break
            ids = flat[starts[place] : starts[place] + length].tolist()
            word = "".join(token_names(self._vocabulary, ids)).replace(WORD_BOUNDARY, "")
            self._longest[word] = length
        best = sorted(self._longest.items(), key=lambda each: (-each[1], each[0]))
        self._longest = dict(best[:_LONGEST_WORDS])

    def summarize(self, pairs: int) -> Coverage:
        tokens = int(self._counts.sum())
        characters = int((self._counts * self._characters).sum())
        return Coverage(
            side=self._name,
            pairs=pairs,
            tokens=tokens,
            words=self._words,
            fertility=tokens / max(self._words, 1),
            characters_per_token=characters / max(tokens, 1),
            used=int(np.count_nonzero(self._counts)),
            vocabulary=len(self._pieces),
            unknown=int(self._counts[UNK_ID]),
            pairs_with_unknown=self._pairs_with_unknown,
            longest_words=list(self._longest.items()),
            lengths=Histogram.of_lengths(self._lengths),
        )
