"""Greedy and beam search over any step function; nothing here knows of the Transformer.

Axes: B sentences, N beams, V vocabulary, L steps. A step function predicts the next id of each
beam; what it remembers (caches) has a leading axis of B * N rows, sentence by sentence.

Scores are log-probabilities, the sum of log p of each id, EOS included. Ids that `banned` hides
are never chosen; they keep their share of the probability.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import tensorflow as tf

from model.vocabulary import BOS_ID, EOS_ID, PAD_ID

_IMPOSSIBLE = -math.inf


class StepFunction(Protocol):
    """Predicts what comes after the last id of each beam."""

    def __call__(
        self, ids: tf.Tensor, *, position: tf.Tensor, state: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Takes int32 ids [B, N], their position and the state; gives logits and the new state.

        Returns:
          float32 logits [B, N, V] with a static V, and the state, row for row of the ids.
        """


class SearchResult(NamedTuple):
    """The hypotheses of each sentence, best first.

    Attributes:
      ids: int32 [B, N, L], EOS included, PAD behind it; without BOS.
      scores: float32 [B, N], log-probabilities; -inf where there are fewer than N hypotheses.
    """

    ids: tf.Tensor
    scores: tf.Tensor


def greedy_search(
    step: StepFunction, state: list[tf.Tensor], *, limits: tf.Tensor, banned: tf.Tensor
) -> SearchResult:
    """Takes the most probable id at each step, until every sentence has ended.

    Args:
      step: Called with N = 1.
      state: What `step` remembers before the first id, B rows.
      limits: int32 [B], ids a sentence may have, EOS included; there it is made to end.
      banned: float32 [V], 0 or a very negative number.

    Returns:
      The result with N = 1.
    """
    batch, longest = tf.shape(limits)[0], tf.reduce_max(limits)

    def advance(carried: _Greedy, state: list[tf.Tensor]) -> tuple[_Greedy, list[tf.Tensor]]:
        position, ended = carried.position, carried.ended
        logits, state = step(carried.last_ids[:, None], position=position, state=state)
        logits = logits[:, 0]  # [B, V]
        ids = tf.argmax(logits + banned, -1, output_type=tf.int32)
        ids = tf.where(position + 1 >= limits, EOS_ID, ids)
        log_probability = tf.gather(logits, ids, batch_dims=1) - tf.reduce_logsumexp(logits, -1)
        ids = tf.where(ended, PAD_ID, ids)
        carried = _Greedy(
            position=position + 1,
            last_ids=ids,
            ended=ended | (ids == EOS_ID),
            scores=tf.where(ended, carried.scores, carried.scores + log_probability),
            ids=tf.tensor_scatter_nd_update(carried.ids, [[position]], ids[None]),
        )
        return carried, state

    start = _Greedy(
        position=tf.constant(0),
        last_ids=tf.fill([batch], BOS_ID),
        ended=tf.zeros([batch], tf.bool),
        scores=tf.zeros([batch]),
        ids=tf.fill([longest, batch], PAD_ID),
    )
    carried, _ = tf.while_loop(
        lambda carried, _: ~tf.reduce_all(carried.ended),
        advance,
        (start, state),
        shape_invariants=(_Greedy(*[x.shape for x in start]), _any_shapes(state)),
        parallel_iterations=1,
    )
    ids = tf.transpose(carried.ids[: carried.position])
    return SearchResult(ids[:, None], carried.scores[:, None])


class _Greedy(NamedTuple):
    """What greedy search carries from step to step."""

    position: tf.Tensor  # int32, steps done
    last_ids: tf.Tensor  # int32 [B]
    ended: tf.Tensor  # bool [B]
    scores: tf.Tensor  # float32 [B], log-probabilities
    ids: tf.Tensor  # int32 [L, B]


class _Beams(NamedTuple):
    """What beam search carries from step to step."""

    position: tf.Tensor  # int32, steps done
    alive_ids: tf.Tensor  # int32 [B, N, L], hypotheses that go on
    alive_scores: tf.Tensor  # float32 [B, N], best first
    ended_ids: tf.Tensor  # int32 [B, N, L], hypotheses with EOS, best first
    ended_scores: tf.Tensor  # float32 [B, N], log-probabilities
    ended_ranks: tf.Tensor  # float32 [B, N], the scores over the length penalty
    ended_count: tf.Tensor  # int32 [B], hypotheses that have ended, those dropped too
    done: tf.Tensor  # bool [B]


def beam_search(
    step: StepFunction,
    state: list[tf.Tensor],
    *,
    limits: tf.Tensor,
    banned: tf.Tensor,
    beam_size: int,
    length_penalty: float,
) -> SearchResult:
    """Keeps the `beam_size` most probable unfinished hypotheses at each step.

    Of all extensions of a sentence's beams the best 2N are looked at: those of the best N that
    end compete by rank, log p / ((5 + length) / 6)^alpha, for the N places of the result; the
    best N of the 2N that do not end go on. A sentence is done when N hypotheses have ended, or
    when nothing that goes on can still outrank the best of them.

    Args:
      step: Called with N = `beam_size`.
      state: What `step` remembers before the first id, B * N rows.
      limits: int32 [B], ids a sentence may have, EOS included; there every beam is made to end.
      banned: float32 [V], 0 or a very negative number.
      beam_size: N.
      length_penalty: alpha of Wu et al. 2016, equation 14; 0 ranks by log p.
    """
    batch, longest, beams = tf.shape(limits)[0], tf.reduce_max(limits), beam_size

    def rank(scores: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        return scores / ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty

    def advance(carried: _Beams, state: list[tf.Tensor]) -> tuple[_Beams, list[tf.Tensor]]:
        position, length = carried.position, carried.position + 1
        last_ids = tf.where(
            position == 0,
            BOS_ID,
            tf.gather(carried.alive_ids, tf.maximum(position - 1, 0), axis=2),
        )
        logits, state = step(last_ids, position=position, state=state)  # [B, N, V]
        scores, parents, ids = _best_extensions(logits, carried.alive_scores, banned)  # [B, 2N]
        at_limit = (length >= limits)[:, None]
        ends, end_parents = _forced_ends(logits, carried.alive_scores, count=scores.shape[1])
        scores = tf.where(at_limit, ends, scores)
        parents = tf.where(at_limit, end_parents, parents)
        ids = tf.where(at_limit, EOS_ID, ids)
        extended = tf.gather(carried.alive_ids, parents, batch_dims=1)  # [B, 2N, L]
        here = tf.range(longest) == position
        extended = tf.where(here, ids[:, :, None], extended)

        # Ends count among the best N only: otherwise one beam would end before greedy does.
        has_ended = (ids == EOS_ID) & (scores > _IMPOSSIBLE) & ~carried.done[:, None]
        has_ended &= tf.range(2 * beams) < beams
        new_ranks = tf.where(has_ended, rank(scores, length), _IMPOSSIBLE)
        ended_ranks, best = tf.math.top_k(tf.concat([carried.ended_ranks, new_ranks], 1), beams)
        ended_ids = tf.concat([carried.ended_ids, extended], 1)
        ended_scores = tf.concat([carried.ended_scores, scores], 1)
        ended_scores = tf.gather(ended_scores, best, batch_dims=1)
        ended_count = carried.ended_count + tf.math.count_nonzero(has_ended, 1, dtype=tf.int32)

        alive_scores, best_alive = tf.math.top_k(
            tf.where(ids == EOS_ID, _IMPOSSIBLE, scores), beams
        )
        parents = tf.gather(parents, best_alive, batch_dims=1)  # [B, N]
        # The rank of a hypothesis that goes on is at most that of its score now at full length.
        hopeless = rank(alive_scores[:, 0], limits) <= ended_ranks[:, 0]
        done = carried.done | at_limit[:, 0] | hopeless | (ended_count >= beams)
        carried = _Beams(
            position=length,
            alive_ids=tf.gather(extended, best_alive, batch_dims=1),
            alive_scores=tf.where(done[:, None], _IMPOSSIBLE, alive_scores),
            ended_ids=tf.gather(ended_ids, best, batch_dims=1),
            ended_scores=tf.where(ended_ranks > _IMPOSSIBLE, ended_scores, _IMPOSSIBLE),
            ended_ranks=ended_ranks,
            ended_count=ended_count,
            done=done,
        )
        rows = tf.reshape(tf.range(batch)[:, None] * beams + parents, [-1])
        return carried, [tf.gather(x, rows) for x in state]

    no_ids = tf.fill([batch, beams, longest], PAD_ID)
    no_scores = tf.fill([batch, beams], _IMPOSSIBLE)
    start = _Beams(
        position=tf.constant(0),
        alive_ids=no_ids,
        alive_scores=tf.concat([tf.zeros([batch, 1]), no_scores[:, 1:]], 1),  # one BOS, not N
        ended_ids=no_ids,
        ended_scores=no_scores,
        ended_ranks=no_scores,
        ended_count=tf.zeros([batch], tf.int32),
        done=tf.zeros([batch], tf.bool),
    )
    carried, _ = tf.while_loop(
        lambda carried, _: ~tf.reduce_all(carried.done),
        advance,
        (start, state),
        shape_invariants=(_Beams(*[x.shape for x in start]), _any_shapes(state)),
        parallel_iterations=1,
    )
    return SearchResult(carried.ended_ids[:, :, : carried.position], carried.ended_scores)


def _any_shapes(state: list[tf.Tensor]) -> list[tf.TensorShape]:
    """Lets every axis of the state grow: caches are one position longer after each step."""
    return [tf.TensorShape([None] * x.shape.rank) for x in state]


def _best_extensions(
    logits: tf.Tensor, alive_scores: tf.Tensor, banned: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the best 2N extensions of each sentence's N beams.

    Returns:
      Their scores, parents (beam numbers) and ids, [B, 2N] each, best first.
    """
    batch, beams, size = tf.shape(logits)[0], logits.shape[1], logits.shape[2]
    kept = min(2 * beams, size)
    log_total = tf.reduce_logsumexp(logits, -1, keepdims=True)  # [B, N, 1]
    values, ids = top_k(tf.reshape(logits + banned, [-1, size]), kept)  # [B * N, kept]
    values = tf.reshape(values, [batch, beams, kept])
    # Banned ids are only among the best where the vocabulary has fewer others.
    values = tf.where(values > 0.5 * _BAN, values - log_total, _IMPOSSIBLE)
    scores = tf.reshape(alive_scores[:, :, None] + values, [batch, beams * kept])
    missing = max(2 * beams - beams * kept, 0)
    scores = tf.pad(scores, [[0, 0], [0, missing]], constant_values=_IMPOSSIBLE)
    ids = tf.pad(tf.reshape(ids, [batch, beams * kept]), [[0, 0], [0, missing]])
    scores, best = tf.math.top_k(scores, 2 * beams)
    return scores, tf.minimum(best // kept, beams - 1), tf.gather(ids, best, batch_dims=1)


def _forced_ends(
    logits: tf.Tensor, alive_scores: tf.Tensor, *, count: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Ends every beam: scores and parents [B, count], the places behind the N beams empty."""
    ends = alive_scores + logits[:, :, EOS_ID] - tf.reduce_logsumexp(logits, -1)  # [B, N]
    padding = [[0, 0], [0, count - logits.shape[1]]]
    parents = tf.tile(tf.range(logits.shape[1])[None], [tf.shape(logits)[0], 1])
    return tf.pad(ends, padding, constant_values=_IMPOSSIBLE), tf.pad(parents, padding)


_BAN = -1e9


def ban(size: int, ids: list[int]) -> tf.Tensor:
    """Returns the float32 [size] vector that hides ids from the search."""
    return tf.tensor_scatter_nd_update(
        tf.zeros([size]), [[i] for i in ids], tf.fill([len(ids)], _BAN)
    )


def top_k(x: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Does what `tf.math.top_k` does on rows, faster where they are long.

    The k greatest values of a row lie in the k chunks with the greatest maxima; only those
    chunks are searched.

    Args:
      x: float32 [R, V], V static.
      k: At most V.

    Returns:
      Values and int32 indices, [R, k] each, best first.
    """
    size = x.shape[1]
    width = math.gcd(size, 128)
    if width < 16 or size // width <= k:
        values, indices = tf.math.top_k(x, k)
        return values, indices
    chunks = tf.reshape(x, [-1, size // width, width])
    _, best_chunks = tf.math.top_k(tf.reduce_max(chunks, -1), k, sorted=False)  # [R, k]
    kept = tf.gather(chunks, best_chunks, batch_dims=1)  # [R, k, width]
    values, indices = tf.math.top_k(tf.reshape(kept, [-1, k * width]), k)
    starts = tf.gather(best_chunks, indices // width, batch_dims=1) * width
    return values, starts + indices % width
