"""Beam search in plain Python: one sentence, one hypothesis and one id at a time.

It follows only the description of `model.transformer.search`, with a table of logits that depend on
the last two ids. It sorts all extensions, and needs no bound on the number of candidates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

BOS, EOS = 2, 3


class Hypothesis(NamedTuple):
    """Ids without BOS, and their log-probability."""

    ids: tuple[int, ...]
    score: float


def log_probabilities(table, ids):
    """Return the log-probability of each id after `ids`; hidden ids keep their share."""
    before, last = (BOS, BOS, *ids)[-2:]
    row = [float(value) for value in table[before, last]]
    total = math.log(sum(math.exp(value) for value in row))
    return [value - total for value in row]


def repeats(ids, size):
    grams = [ids[i : i + size] for i in range(len(ids) - size + 1)]
    return size > 0 and len(set(grams)) < len(grams)


def plain_beam_search(
    table, *, chosen, limit, beam_size, alpha, patience=1, n_best=1, no_repeat_ngram_size=0
):
    """Return up to `beam_size` hypotheses of a sentence, best first.

    Args:
      table: Logits [id before last, last id, next id].
      chosen: Ids that may be chosen, including EOS.
      limit: Largest number of ids in a hypothesis, including EOS.
      beam_size: Number of beams.
      alpha: Exponent of the length penalty.
      patience: The search ends when this many times `beam_size` hypotheses have ended, and no beam
        ranks above the best of them.
      n_best: Number of hypotheses that must be final before the search ends.
      no_repeat_ngram_size: Size of n-grams that must not repeat; 0 allows all.
    """

    def rank(score, length):
        return score / ((5 + length) / 6) ** alpha

    alive, ended, ends = [Hypothesis((), 0.0)], [], 0
    for length in range(1, limit + 1):
        is_last = length == limit
        extensions = [
            Hypothesis((*ids, i), score + log_p)
            for ids, score in alive
            for i, log_p in enumerate(log_probabilities(table, ids))
            if (
                i == EOS
                if is_last
                else i in chosen and not repeats((*ids, i), no_repeat_ngram_size)
            )
        ]
        extensions.sort(key=lambda each: -each.score)
        new = [each for each in extensions[:beam_size] if each.ids[-1] == EOS]
        alive = [each for each in extensions if each.ids[-1] != EOS][:beam_size]
        ended += new
        ends += len(new)
        ended.sort(key=lambda each: -rank(each.score, len(each.ids)))
        del ended[beam_size:]
        if not alive:
            break
        if ends >= round(patience * beam_size):
            best = ended[0]
            if rank(alive[0].score, length) <= rank(best.score, len(best.ids)):
                break
        if len(ended) >= n_best:
            worst = ended[n_best - 1]
            if rank(alive[0].score, limit) <= rank(worst.score, len(worst.ids)):
                break
    return ended
