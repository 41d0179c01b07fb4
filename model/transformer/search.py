"""Greedy search and beam search for any step function, without reference to the Transformer.

Axes: B unfinished sentences, N beams per sentence, A alive beams per sentence (1 before the first
id, then N), R rows of a step (B * A), V vocabulary, L ids so far, C candidates per beam.

A step function predicts the next id of each beam. Its caches, which depend on the hypotheses, have
R rows, sentence by sentence. Its sources have B rows. Finished sentences are removed from both, so
B decreases.

A score is the log-probability of a hypothesis: the sum of log p over its ids, including EOS. Hidden
ids, such as PAD, are never chosen, but keep their share of the probability.
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
    """Choose the most probable id at each step, until all sentences have ended.

    Args:
      step: The step function, called with one beam per sentence.
      caches: Caches before the first id, [B, ...] each.
      sources: Tensors that depend on the sources, [B, ...] each.
      limits: Maximum number of ids per sentence, including EOS, int32 [B]. A sentence that reaches
        its limit gets an EOS that does not count in its score.
      no_repeat_ngram_size: Size of n-grams that must not repeat in a hypothesis; 0 allows all.

    Returns:
      One hypothesis per sentence.
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
        ids = top_k(allowed, 1)[1][:, 0]  # [B, 1] -> [B]
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
    patience: float = 1.0,
    n_best: int = 1,
    no_repeat_ngram_size: int = 0,
) -> SearchResult:
    """Keep the N most probable unfinished hypotheses of each sentence at each step.

    Each step considers the best 2N extensions of a sentence's beams. If one of the best N
    extensions ends, it competes for the N places of the result. The result keeps the hypotheses
    with the highest ranks, log p / ((5 + length) / 6)^alpha. The best N extensions that do not end
    become the next beams. A sentence is finished when `patience` * N hypotheses have ended and no
    beam ranks above the best of them, or when no beam can reach the best `n_best` results anymore.

    Args:
      step: The step function, called with one beam per sentence for the first id, then with N.
      caches: Caches before the first id, [B, ...] each.
      sources: Tensors that depend on the sources, [B, ...] each.
      limits: Maximum number of ids per sentence, including EOS, int32 [B]. At the limit, all beams
        end with an EOS that counts in their scores.
      beam_size: Number of beams N.
      length_penalty: Exponent alpha of the length penalty (Wu et al. 2016, equation 14).
      patience: See `Decoding`.
      n_best: Number of results that the caller will use; a larger number makes the search longer.
      no_repeat_ngram_size: Size of n-grams that must not repeat in a hypothesis; 0 allows all.

    Returns:
      N hypotheses per sentence, best first.
    """
    batch, size = tf.shape(limits)[0], beam_size
    most_ended = round(patience * beam_size)

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
        rows = tf.reshape(beams.alive_rows, [-1])  # [R]
        caches = [tf.gather(x, rows) for x in caches]
        prediction, caches = step(last_ids, position=position, caches=caches, sources=sources)
        logits, hidden = prediction
        allowed = logits
        if no_repeat_ngram_size:
            hypotheses = tf.reshape(beams.alive_ids, [-1, position])  # [R, L]
            allowed = without_repeats(logits, hypotheses, size=no_repeat_ngram_size)
        # At most one extension of a beam ends. The best N + 1 extensions of each beam therefore
        # contain the best N of the sentence, and the best N that do not end.
        values, ids = top_k(allowed, min(size + 1, logits.shape[1]))  # [R, C] each
        log_totals = log_normalizers(logits, hidden)[:, None]  # [R, 1]
        # Hidden ids can be among the best only if the vocabulary has at most N other ids.
        values = tf.where(values > 0.5 * HIDDEN, values - log_totals, IMPOSSIBLE)
        alive_scores = tf.ensure_shape(beams.alive_scores, [None, alive])
        # [B, 2N] each
        scores, parents, ids = best_extensions(values, ids, alive_scores, places=2 * size)
        at_limit = (length >= beams.limits)[:, None]  # [B, 1]
        end_scores = tf.reshape(logits[:, EOS_ID, None] - log_totals, [-1, alive])  # [B, A]
        missing = [[0, 0], [0, 2 * size - alive]]
        ends = tf.pad(alive_scores + end_scores, missing, constant_values=IMPOSSIBLE)  # [B, 2N]
        scores = tf.where(at_limit, ends, scores)
        # At the limit, the first A extensions end the beams, and the others are impossible.
        parents = tf.where(at_limit, tf.minimum(tf.range(2 * size), alive - 1), parents)
        ids = tf.where(at_limit, EOS_ID, ids)
        extended = tf.gather(beams.alive_ids, parents, batch_dims=1)  # [B, 2N, L]
        extended = tf.concat([extended, ids[:, :, None]], 2)  # [B, 2N, L + 1]

        # Only ends among the best N count. Otherwise, a beam of size 1 would end earlier than
        # greedy search.
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

        going_on = tf.where(ids == EOS_ID, IMPOSSIBLE, scores)  # [B, 2N]
        alive_scores, best_alive = tf.math.top_k(going_on, size)  # [B, N] each
        parents = tf.gather(parents, best_alive, batch_dims=1)  # [B, N]
        # Scores only decrease, and the penalty favors length. The best rank that a beam can still
        # reach is therefore its current score, ranked at the length limit.
        hoped = rank(alive_scores[:, 0], beams.limits, length_penalty=length_penalty)  # [B]
        hopeless = hoped <= ended_ranks[:, n_best - 1]  # [B]
        now = rank(alive_scores[:, 0], length, length_penalty=length_penalty)  # [B]
        enough = (ended_count >= most_ended) & (now <= ended_ranks[:, 0])  # [B]
        done = beams.done | at_limit[:, 0] | hopeless | enough  # [B]
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
    beams, caches = advance(tf.constant(0), start, caches, sources, alive=1)  # after BOS
    return search_all(
        advance,
        beams,
        position=1,
        hypotheses=lambda beams: SearchResult(beams.ended_ids, beams.ended_scores),
        take=lambda caches, _: caches,  # `advance` gathers the `alive_rows` itself
        caches=caches,
        sources=sources,
        beam_size=size,
    )


def _last_ids(ids: tf.Tensor, *, beam_size: int) -> tf.Tensor:
    """Return the last id of each beam, or BOS before the first id.

    Args:
      ids: int32 [B, A, L].
      beam_size: Number of alive beams A.

    Returns:
      int32 [B, A].
    """
    last = tf.pad(ids, [[0, 0], [0, 0], [1, 0]], constant_values=BOS_ID)[:, :, -1]
    return tf.ensure_shape(last, [None, beam_size])


def rank(scores: tf.Tensor, length: tf.Tensor, *, length_penalty: float) -> tf.Tensor:
    """Return the ranks of hypotheses, log p / ((5 + length) / 6)^alpha.

    The formula is equation 14 of Wu et al. 2016 (GNMT).

    Args:
      scores: Log-probabilities, float32.
      length: Number of ids, including EOS, int32; broadcasts to the scores.
      length_penalty: Exponent alpha; 0 ranks by log p.
    """
    return scores / ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty
