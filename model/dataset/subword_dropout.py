"""Subword dropout: other segmentations of the same text, in each epoch, for small corpora."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from model.text.vocabulary import PAD_ID, Vocabulary


class SubwordDropout:
    """Splits pieces at random, at `rate`, into the two that they are made of, and those likewise.

    It teaches what longer pieces consist of, as BPE-dropout does (Provilkov et al. 2020): there
    merges are left out while a text is segmented, here they are undone in one that is, which needs
    no text and takes any SentencePiece model.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float) -> None:
        self._rate = rate
        self._parts = np.zeros((vocabulary.size, 2), np.int64)
        pieces = vocabulary.learnt_pieces()
        for piece, (i, _) in pieces.items():
            self._parts[i] = _best_parts(piece, pieces)
        self._can_split = self._parts[:, 0] != PAD_ID

    def __call__(
        self, ids: np.ndarray, starts: np.ndarray, *, generator: np.random.Generator, longest: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits pieces of many texts, none to more than `longest`; returns new `ids` and `starts`.

        `ids`, int64, are those of one text after the other; `starts`, int64, where each begins, and
        the last ends. What is split depends on the generator's state alone.
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


def _best_parts(piece: str, pieces: Mapping[str, tuple[int, float]]) -> tuple[int, int]:
    """Returns the two ids whose scores add up to the most, or PAD's where no two make it up."""
    cuts = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
    found = [
        (pieces[left], pieces[right]) for left, right in cuts if {left, right} <= pieces.keys()
    ]
    if not found:
        return PAD_ID, PAD_ID
    (left, _), (right, _) = max(found, key=lambda pair: pair[0][1] + pair[1][1])
    return left, right
