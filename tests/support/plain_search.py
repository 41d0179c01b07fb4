"""Beam search in plain Python: one sentence, one hypothesis and one id at a time.

Written from the words of `model.search.beam_search` alone, over a table of logits that depend on
the last two ids. It sorts all extensions there are, and need not know how few of them will do.
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
    """Returns the log-probability of each id after `ids`; hidden ids keep their share."""
    before, last = (BOS, BOS, *ids)[-2:]
    row = [float(value) for value in table[before, last]]
    total = math.log(sum(math.exp(value) for value in row))
    return [value - total for value in row]


def repeats(ids, size):
    grams = [ids[i : i + size] for i in range(len(ids) - size + 1)]
    return size > 0 and len(set(grams)) < len(grams)


def plain_beam_search(table, *, chosen, limit, beam_size, alpha, n_best=1, no_repeat_ngram_size=0):
    """Returns up to `beam_size` hypotheses of one sentence, best first.

    Args:
      table: Logits [before last, last, next].
      chosen: Ids that may be chosen, EOS among them.
      limit: Ids that a hypothesis may have, EOS included.
      beam_size: N.
      alpha: Of the length penalty.
      n_best: How many hypotheses must be certain before the search ends.
      no_repeat_ngram_size: 0 lets n-grams repeat.
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
        if ends >= beam_size or not alive:
            break
        if len(ended) >= n_best:
            worst = ended[n_best - 1]
            if rank(alive[0].score, limit) <= rank(worst.score, len(worst.ids)):
                break
    return ended
