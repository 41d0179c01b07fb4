"""Change encoded texts at random in training: split their pieces, and augment them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tt.model.text.augmentation import augment
from tt.model.text.vocabulary import PAD_ID, Vocabulary


class Side(NamedTuple):
    """The sources or the targets of many pairs: row i is `ids[starts[i]:starts[i + 1]]`."""

    ids: np.ndarray
    starts: np.ndarray


class SubwordDropout:
    """Splits random pieces into the two pieces that they consist of, recursively.

    The model learns from the splits how longer pieces are composed, as with BPE-dropout (Provilkov
    et al. 2020). BPE-dropout omits merges while it segments a text. This class undoes merges in
    encoded texts, which needs no text and works with any SentencePiece model.

    Args:
      vocabulary: The vocabulary of the ids.
      rate: Probability that a piece is split.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float) -> None:
        self._rate = rate
        self._parts = np.zeros((vocabulary.size, 2), np.int64)
        pieces = vocabulary.learned_pieces()
        for piece, (i, _) in pieces.items():
            self._parts[i] = _best_parts(piece, pieces)
        self._can_split = self._parts[:, 0] != PAD_ID

    def __call__(
        self, ids: np.ndarray, starts: np.ndarray, *, generator: np.random.Generator, longest: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Split random pieces of many texts.

        Args:
          ids: The ids of all texts, one text after the other, int64.
          starts: The index of the first id of each text, and the end of the last text, int64.
          generator: Source of the random numbers. Only its state decides which pieces are split.
          longest: The maximum number of ids of a text after the splits.

        Returns:
          The new `ids` and `starts`.
        """
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        is_new = np.ones(len(ids), np.bool_)
        while True:
            is_split = self._can_split[ids] & is_new
            is_split &= generator.random(len(ids), np.float32) < self._rate
            lengths = np.bincount(rows, minlength=len(starts) - 1)
            wanted = np.bincount(rows[is_split], minlength=len(starts) - 1)
            is_split &= (lengths + wanted <= longest)[rows]
            if not is_split.any():
                return ids, np.concatenate([[0], np.cumsum(lengths)])
            counts = 1 + is_split
            first = (np.cumsum(counts) - counts)[is_split]
            parts = self._parts[ids[is_split]]
            ids, rows, is_new = (np.repeat(x, counts) for x in (ids, rows, is_split))
            ids[first], ids[first + 1] = parts.T


class Augmentation:
    """Changes random texts as careless writers do; see `augment`.

    Args:
      vocabulary: The vocabulary of the ids.
      share: Probability that a text is changed.
    """

    def __init__(self, vocabulary: Vocabulary, share: float) -> None:
        self._vocabulary, self._share = vocabulary, share
        self._learned = {i for i, _ in vocabulary.learned_pieces().values()}

    def _fixed(self, ids: list[int]) -> list[int]:
        """Return the ids of a text that no change may affect."""
        return [i for i in ids if i not in self._learned]

    def __call__(self, side: Side, *, generator: np.random.Generator, longest: int) -> Side:
        """Change random texts.

        A text stays as it is if it would become longer than `longest` ids, or if its placeholders,
        user symbols or unknown tokens would change.

        Args:
          side: The ids of all texts.
          generator: Source of the random numbers. Only its state decides how the texts change.
          longest: The maximum number of ids of a changed text.
        """
        rows = len(side.starts) - 1
        chosen = np.flatnonzero(generator.random(rows) < self._share).tolist()
        texts = np.split(side.ids, side.starts[1:-1])
        old = [texts[row].tolist() for row in chosen]
        keeps_case = not self._vocabulary.normalization.lowercase
        new = self._vocabulary.encode(
            [
                augment(text, generator=generator, keeps_case=keeps_case)
                for text in self._vocabulary.decode(old)
            ]
        )
        for row, before, after in zip(chosen, old, new, strict=True):
            if len(after) <= longest and self._fixed(after) == self._fixed(before):
                texts[row] = np.array(after, side.ids.dtype)
        lengths = np.fromiter(map(len, texts), np.int64, rows)
        return Side(np.concatenate(texts), np.concatenate([[0], np.cumsum(lengths)]))


def _best_parts(piece: str, pieces: Mapping[str, tuple[int, float]]) -> tuple[int, int]:
    """Return the two ids that make up a piece and have the highest sum of scores.

    If no two pieces make it up, both ids are PAD.
    """
    cuts = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
    found = [
        (pieces[left], pieces[right]) for left, right in cuts if {left, right} <= pieces.keys()
    ]
    if not found:
        return PAD_ID, PAD_ID
    (left, _), (right, _) = max(found, key=lambda pair: pair[0][1] + pair[1][1])
    return left, right
