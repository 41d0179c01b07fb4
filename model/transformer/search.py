"""Greedy and beam search over any step function; nothing here knows of the Transformer.

Axes: B sentences, N beams, V vocabulary, L steps so far, H hidden ids, K candidates of a beam, A
beams that go on: 1 before the first id, then N. A step function predicts the next id of each beam.
What it remembers of hypotheses (caches) has B * N rows, sentence by sentence; what it knows of
sources has B. Sentences that are done are taken out of all of them, so that B falls.

Scores are log-probabilities, the sum of log p of each id, EOS included. Ids that are hidden from
the search are never chosen; they keep their share of the probability.
"""

from __future__ import annotations

import tensorflow as tf

from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID
from tt.model.transformer.loop import (
    HIDDEN,
    IMPOSSIBLE,
    Beams,
    Greedy,
    SearchResult,
    StepFunction,
    best_extensions,
    log_normalizers,
    pad_places,
    rank,
    search_all,
    top_k,
    without_repeats,
)


def greedy_search(
    step: StepFunction,
    *,
    caches: list[tf.Tensor],
    sources: list[tf.Tensor],
    limits: tf.Tensor,
    no_repeat_ngram_size: int = 0,
) -> SearchResult:
    """Takes the most probable id at each step, until every sentence has ended; N is 1.

    Args:
      step: Called with N = 1.
      caches: What `step` remembers before the first id, B rows.
      sources: What it knows of the sources, B rows.
      limits: int32 [B], ids a sentence may have, EOS included; there it is made to end, with an
        EOS that does not count in its score.
      no_repeat_ngram_size: No n-gram of this size comes twice in a hypothesis; 0 lets them.
    """
    batch = tf.shape(limits)[0]

    def advance(
        position: tf.Tensor, beams: Greedy, caches: list[tf.Tensor], sources: list[tf.Tensor]
    ) -> tuple[Greedy, list[tf.Tensor]]:
        last_ids = _last_ids(beams.ids[:, None], beam_size=1)  # [B, 1]
        prediction, caches = step(last_ids, position=position, caches=caches, sources=sources)
        logits, hidden = prediction
        allowed = logits
        if no_repeat_ngram_size:
            allowed = without_repeats(logits, beams.ids, size=no_repeat_ngram_size)
        ids = top_k(allowed, 1)[1][:, 0]  # [B]
        log_totals = log_normalizers(logits, hidden)  # [B]
        log_probability = tf.gather(logits, ids, batch_dims=1) - log_totals  # [B]
        is_cut_off = position + 1 >= beams.limits
        log_probability = tf.where(is_cut_off, 0.0, log_probability)
        ids = tf.where(is_cut_off, EOS_ID, ids)
        ids = tf.where(beams.done, PAD_ID, ids)
        beams = Greedy(
            sentences=beams.sentences,
            limits=beams.limits,
            done=beams.done | (ids == EOS_ID),
            scores=tf.where(beams.done, beams.scores, beams.scores + log_probability),
            ids=tf.concat([beams.ids, ids[:, None]], 1),  # [B, L + 1]
        )
        return beams, caches

    start = Greedy(
        sentences=tf.range(batch),
        limits=limits,
        done=tf.zeros([batch], tf.bool),
        scores=tf.zeros([batch]),
        ids=tf.zeros([batch, 0], tf.int32),
    )
    return search_all(
        advance,
        start,
        hypotheses=lambda beams: SearchResult(beams.ids[:, None], beams.scores[:, None]),
        take=lambda caches, left: [tf.gather(x, left) for x in caches],
        caches=caches,
        sources=sources,
        beam_size=1,
    )


def beam_search(
    step: StepFunction,
    *,
    caches: list[tf.Tensor],
    sources: list[tf.Tensor],
    limits: tf.Tensor,
    beam_size: int,
    length_penalty: float,
    n_best: int = 1,
    no_repeat_ngram_size: int = 0,
) -> SearchResult:
    """Keeps the `beam_size` most probable unfinished hypotheses at each step.

    Of all extensions of a sentence's beams the best 2N are looked at: those of the best N that end
    compete by rank, log p / ((5 + length) / 6)^alpha, for the N places of the result; the best N of
    the 2N that do not end go on. A sentence is done when N hypotheses have ended, or when nothing
    that goes on can still be among the `n_best` of them.

    `step` is called with N = 1 for the first id, then with N = `beam_size`. `length_penalty` is
    alpha of Wu et al. 2016, equation 14; 0 ranks by log p. All else is as in `greedy_search`.
    """
    batch, size = tf.shape(limits)[0], beam_size

    def advance(
        position: tf.Tensor,
        beams: Beams,
        caches: list[tf.Tensor],
        sources: list[tf.Tensor],
        *,
        alive: int = size,
    ) -> tuple[Beams, list[tf.Tensor]]:
        length = position + 1
        last_ids = _last_ids(beams.alive_ids, beam_size=alive)  # [B, A]
        rows = tf.reshape(beams.alive_rows, [-1])  # [B * A]
        caches = [tf.gather(x, rows) for x in caches]
        prediction, caches = step(last_ids, position=position, caches=caches, sources=sources)
        logits, hidden = prediction
        allowed = logits
        if no_repeat_ngram_size:
            hypotheses = tf.reshape(beams.alive_ids, [-1, position])  # [B * A, L]
            allowed = without_repeats(logits, hypotheses, size=no_repeat_ngram_size)
        # The best N extensions, and the best N that do not end, are among the best N + 1 of each
        # beam, one of which may end.
        values, ids = top_k(allowed, min(size + 1, logits.shape[1]))  # [B * A, K] each
        log_totals = log_normalizers(logits, hidden)[:, None]  # [B * A, 1]
        # Hidden ids are only among the best where the vocabulary has fewer others.
        values = tf.where(values > 0.5 * HIDDEN, values - log_totals, IMPOSSIBLE)
        alive_scores = tf.ensure_shape(beams.alive_scores, [None, alive])
        # [B, 2N] each, as all that follows until the best N are taken.
        scores, parents, ids = best_extensions(values, ids, alive_scores, places=2 * size)
        at_limit = (length >= beams.limits)[:, None]  # [B, 1]
        end_scores = tf.reshape(logits[:, EOS_ID, None] - log_totals, [-1, alive])  # [B, A]
        ends, end_parents = pad_places(alive_scores + end_scores, places=2 * size)
        scores = tf.where(at_limit, ends, scores)
        parents = tf.where(at_limit, end_parents, parents)
        ids = tf.where(at_limit, EOS_ID, ids)
        extended = tf.gather(beams.alive_ids, parents, batch_dims=1)  # [B, 2N, L]
        extended = tf.concat([extended, ids[:, :, None]], 2)  # [B, 2N, L + 1]

        # Ends count among the best N only: otherwise one beam would end before greedy does.
        has_ended = (ids == EOS_ID) & (scores > IMPOSSIBLE) & ~beams.done[:, None]
        has_ended &= tf.range(2 * size) < size
        new_ranks = rank(scores, length, length_penalty=length_penalty)  # [B, 2N]
        new_ranks = tf.where(has_ended, new_ranks, IMPOSSIBLE)
        all_ranks = tf.concat([beams.ended_ranks, new_ranks], 1)  # [B, N + 2N]
        ended_ranks, best = tf.math.top_k(all_ranks, size)  # [B, N] each
        padded = tf.pad(beams.ended_ids, [[0, 0], [0, 0], [0, 1]], constant_values=PAD_ID)
        ended_ids = tf.concat([padded, extended], 1)  # [B, N + 2N, L + 1]
        ended_scores = tf.concat([beams.ended_scores, scores], 1)  # [B, N + 2N]
        ended_scores = tf.gather(ended_scores, best, batch_dims=1)  # [B, N]
        ended_count = beams.ended_count + tf.math.count_nonzero(has_ended, 1, dtype=tf.int32)

        going_on = tf.where(ids == EOS_ID, IMPOSSIBLE, scores)
        alive_scores, best_alive = tf.math.top_k(going_on, size)  # [B, N] each
        parents = tf.gather(parents, best_alive, batch_dims=1)  # [B, N]
        # The rank of a hypothesis that goes on is at most that of its score now at full length.
        hoped = rank(alive_scores[:, 0], beams.limits, length_penalty=length_penalty)  # [B]
        hopeless = hoped <= ended_ranks[:, n_best - 1]  # [B]
        done = beams.done | at_limit[:, 0] | hopeless | (ended_count >= size)  # [B]
        beams = Beams(
            sentences=beams.sentences,
            limits=beams.limits,
            done=done,
            alive_ids=tf.gather(extended, best_alive, batch_dims=1),  # [B, N, L + 1]
            alive_scores=tf.where(done[:, None], IMPOSSIBLE, alive_scores),
            alive_rows=tf.range(tf.shape(ids)[0])[:, None] * alive + parents,  # [B, N]
            ended_ids=tf.gather(ended_ids, best, batch_dims=1),  # [B, N, L + 1]
            ended_scores=tf.where(ended_ranks > IMPOSSIBLE, ended_scores, IMPOSSIBLE),
            ended_ranks=ended_ranks,
            ended_count=ended_count,
        )
        return beams, caches

    no_scores = tf.fill([batch, size], IMPOSSIBLE)
    start = Beams(
        sentences=tf.range(batch),
        limits=limits,
        done=tf.zeros([batch], tf.bool),
        alive_ids=tf.zeros([batch, 1, 0], tf.int32),
        alive_scores=tf.zeros([batch, 1]),
        alive_rows=tf.range(batch)[:, None],
        ended_ids=tf.zeros([batch, size, 0], tf.int32),
        ended_scores=no_scores,
        ended_ranks=no_scores,
        ended_count=tf.zeros([batch], tf.int32),
    )
    beams, caches = advance(tf.constant(0), start, caches, sources, alive=1)  # BOS alone
    return search_all(
        advance,
        beams,
        position=1,
        hypotheses=lambda beams: SearchResult(beams.ended_ids, beams.ended_scores),
        take=lambda caches, _: caches,  # the next step takes the `alive_rows`
        caches=caches,
        sources=sources,
        beam_size=size,
    )


def _last_ids(ids: tf.Tensor, *, beam_size: int) -> tf.Tensor:
    """Takes the last of the int32 ids [B, N, L], or BOS before the first: [B, N]."""
    last = tf.pad(ids, [[0, 0], [0, 0], [1, 0]], constant_values=BOS_ID)[:, :, -1]
    return tf.ensure_shape(last, [None, beam_size])
