"""The search loop, which shrinks the batch, and the functions that score next ids.

Axes: B sentences in the batch, F sentences that have just finished, N beams per sentence, R rows of
a step (B * N), V vocabulary, L ids so far, I hidden ids, C candidates per beam, P places for
extensions per sentence.

Hidden ids, such as PAD, are never chosen, but keep their share of the probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tensorflow as tf

from tt.model.text.vocabulary import PAD_ID

IMPOSSIBLE = -math.inf
HIDDEN = -1e9  # is added to the logit of an id to hide it
_LEAST_TOTAL = 1e-30  # far above float32's smallest number, 1e-38, so that sums keep their digits
_SHORT_ROW, _LONG_ROW = 256, 4096  # values per row
# Shrink the batch when less than this share of its sentences is unfinished. Shrinking copies the
# caches of the other sentences, which takes a part of the time of a step.
_KEPT_SHARE = 0.9


class SearchResult(NamedTuple):
    """The hypotheses of each sentence, best first."""

    ids: tf.Tensor  # int32 [B, N, L], without BOS, with EOS, then PAD
    scores: tf.Tensor  # float32 [B, N], log-probabilities; -inf for missing hypotheses


class Greedy(NamedTuple):
    """The state of greedy search between two steps, for the unfinished sentences."""

    sentences: tf.Tensor  # int32 [B], index of each sentence in the result
    limits: tf.Tensor  # int32 [B], maximum number of ids, including EOS
    done: tf.Tensor  # bool [B], whether the sentence is finished
    scores: tf.Tensor  # float32 [B], log-probabilities
    ids: tf.Tensor  # int32 [B, L], ids so far, without BOS


class Beams(NamedTuple):
    """The state of beam search between two steps, for the unfinished sentences."""

    sentences: tf.Tensor  # int32 [B], index of each sentence in the result
    limits: tf.Tensor  # int32 [B], maximum number of ids, including EOS
    done: tf.Tensor  # bool [B], whether the sentence is finished
    alive_ids: tf.Tensor  # int32 [B, N, L], hypotheses without EOS, best first
    alive_scores: tf.Tensor  # float32 [B, N], their log-probabilities
    alive_rows: tf.Tensor  # int32 [B, N], row of each one's parent in the caches
    ended_ids: tf.Tensor  # int32 [B, N, L], hypotheses with EOS, best first
    ended_scores: tf.Tensor  # float32 [B, N], their log-probabilities
    ended_ranks: tf.Tensor  # float32 [B, N], their scores divided by the length penalty
    ended_count: tf.Tensor  # int32 [B], number of ended hypotheses, including dropped ones


_Carried = TypeVar("_Carried", Greedy, Beams)


def search_all(
    advance: Callable[
        [tf.Tensor, _Carried, list[tf.Tensor], list[tf.Tensor]], tuple[_Carried, list[tf.Tensor]]
    ],
    start: _Carried,
    *,
    position: int = 0,
    hypotheses: Callable[[_Carried], SearchResult],
    take: Callable[[list[tf.Tensor], tf.Tensor], list[tf.Tensor]],
    caches: list[tf.Tensor],
    sources: list[tf.Tensor],
    beam_size: int,
) -> SearchResult:
    """Search until all sentences are finished, and remove finished sentences from the batch.

    Args:
      advance: Makes one step: takes position, state, caches and sources, and returns the new state
        and caches.
      start: State before the first step.
      position: Position of the first step.
      hypotheses: Returns the hypotheses of a state.
      take: Returns the caches of the sentences at the given indices, int64 [B - F].
      caches: Tensors that depend on the hypotheses, as `advance` expects them.
      sources: Tensors that depend on the source, [B, ...] each.
      beam_size: Number of beams N.

    Returns:
      The hypotheses of all sentences, in the order of `start`.
    """
    batch, longest = tf.shape(start.limits)[0], longest_limit(start.limits)
    found = SearchResult(
        ids=tf.fill([batch, beam_size, longest], PAD_ID),  # [B, N, longest]
        scores=tf.fill([batch, beam_size], IMPOSSIBLE),  # [B, N]
    )

    def search_while_most_go_on(
        position: tf.Tensor,
        carried: _Carried,
        caches: list[tf.Tensor],
        sources: list[tf.Tensor],
        found: SearchResult,
    ) -> tuple[tf.Tensor, _Carried, list[tf.Tensor], list[tf.Tensor], SearchResult]:
        least = tf.cast(tf.shape(carried.done)[0], tf.float32) * _KEPT_SHARE

        def most_go_on(_: tf.Tensor, carried: _Carried, __: list[tf.Tensor]) -> tf.Tensor:
            return tf.math.count_nonzero(~carried.done, dtype=tf.float32) > least

        def go_on(
            position: tf.Tensor, carried: _Carried, caches: list[tf.Tensor]
        ) -> tuple[tf.Tensor, _Carried, list[tf.Tensor]]:
            carried, caches = advance(position, carried, caches, sources)
            return position + 1, carried, caches

        position, carried, caches = tf.while_loop(
            most_go_on,
            go_on,
            (position, carried, caches),
            shape_invariants=(position.shape, _any_length(carried), _any_length(caches)),
            parallel_iterations=1,
        )
        done = tf.where(carried.done)  # [F, 1]
        numbers = tf.gather_nd(carried.sentences, done)[:, None]  # [F, 1]
        ids, scores = hypotheses(carried)
        ids, scores = tf.gather_nd(ids, done), tf.gather_nd(scores, done)  # [F, N, L], [F, N]
        ids = tf.pad(ids, [[0, 0], [0, 0], [0, longest - position]], constant_values=PAD_ID)
        found = SearchResult(
            ids=tf.tensor_scatter_nd_update(found.ids, numbers, ids),
            scores=tf.tensor_scatter_nd_update(found.scores, numbers, scores),
        )
        left = tf.where(~carried.done)[:, 0]  # [B - F]
        return (
            position,
            type(carried)(*[tf.gather(x, left) for x in carried]),
            take(caches, left),
            [tf.gather(x, left) for x in sources],
            found,
        )

    start_position = tf.constant(position)
    end, _, _, _, found_all = tf.while_loop(
        lambda position, carried, *_: tf.size(carried.done) > 0,
        search_while_most_go_on,
        (start_position, start, caches, sources, found),
        shape_invariants=(
            start_position.shape,
            _any_length(start),
            _any_length(caches),
            [tf.TensorShape([None]).concatenate(x.shape[1:]) for x in sources],
            SearchResult(found.ids.shape, found.scores.shape),
        ),
        parallel_iterations=1,
    )
    return SearchResult(found_all.ids[:, :, :end], found_all.scores)


def longest_limit(limits: tf.Tensor) -> tf.Tensor:
    """Return the greatest limit, given int32 [B]; 1 if the batch is empty."""
    return tf.maximum(tf.reduce_max(limits), 1)


def _any_length(carried: _Carried | list[tf.Tensor]) -> _Carried | list[tf.TensorShape]:
    """Return shapes in which all axes can change: steps add ids, and sentences are removed."""
    shapes = [tf.TensorShape([None] * x.shape.rank) for x in carried]
    return shapes if isinstance(carried, list) else type(carried)(*shapes)


def top_k(x: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the k greatest values of each row, like `tf.math.top_k`, but faster for long rows.

    The function splits each row into chunks. The k greatest values of a row are in the k chunks
    with the greatest maxima, so the function searches only these chunks, and splits them again if
    they are still long.

    Args:
      x: Float32 [R, V], with a static V.
      k: Number of values.

    Returns:
      The values and their int32 indices, [R, k] each, best first.
    """
    size = x.shape[1]
    # Chunks have equal widths, so use the divisor of V that is closest to a fast width.
    fast = 128 if size > _LONG_ROW else 32
    width = min((i for i in range(1, size + 1) if size % i == 0), key=lambda i: abs(i - fast))
    if size <= _SHORT_ROW or size // width <= k:
        values, indices = tf.math.top_k(x, k)
        return values, indices
    chunks = tf.reshape(x, [-1, size // width, width])  # [R, chunks, width]
    _, best_chunks = tf.math.top_k(tf.reduce_max(chunks, -1), k, sorted=False)  # [R, k]
    kept = tf.gather(chunks, best_chunks, batch_dims=1)  # [R, k, width]
    values, indices = top_k(tf.reshape(kept, [-1, k * width]), k)  # [R, k] each
    starts = tf.gather(best_chunks, indices // width, batch_dims=1) * width
    return values, starts + indices % width


class Prediction(NamedTuple):
    """The logits of the next id of each beam."""

    logits: tf.Tensor  # float32 [R, V] with static V; about HIDDEN for hidden ids
    hidden: tf.Tensor  # float32 [R, I], the real logits of the hidden ids


# Predicts the next id of each beam. A step function takes the last ids, int32 [B, N], and the
# keywords `position`, `caches` and `sources`. It returns the prediction, and the caches with the
# new position, whose rows are in the order of the ids.
StepFunction = Callable[..., tuple[Prediction, list[tf.Tensor]]]


def without_repeats(logits: tf.Tensor, ids: tf.Tensor, *, size: int) -> tf.Tensor:
    """Hide each next id that would repeat an n-gram of the hypothesis.

    Args:
      logits: Float32 [R, V].
      ids: Hypotheses so far, int32 [R, L].
      size: Length n of the n-grams.

    Returns:
      The logits, with HIDDEN added at these ids, float32 [R, V].
    """
    rows, length = tf.shape(ids)[0], tf.shape(ids)[1]
    count = tf.maximum(length - size + 1, 0)  # number of n-grams so far
    last = tf.pad(ids, [[0, 0], [size, 0]])[:, length + 1 :]  # [R, size - 1]
    repeats = tf.ones([rows, count], tf.bool)  # [R, count]
    for i in range(size - 1):
        repeats &= ids[:, i : i + count] == last[:, i : i + 1]
    followers = ids[:, size - 1 :]  # [R, count]
    followers = tf.reshape(followers, [-1])  # [R * count]
    places = tf.stack([tf.repeat(tf.range(rows), count), followers], 1)  # [R * count, 2]
    return tf.tensor_scatter_nd_add(
        logits, places, tf.where(tf.reshape(repeats, [-1]), HIDDEN, 0.0)
    )


def log_normalizers(logits: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
    """Return the log of the sum of exp(logit) over all ids: the normalizers of a log-softmax.

    The function subtracts the greatest logit only if the sum leaves the range of float32, which
    does not happen with trained models. `tf.nn.log_softmax` always subtracts the greatest logit,
    and takes twice as long.

    Args:
      logits: Logits, float32 [R, V]; the logits of hidden ids are about HIDDEN and add nothing.
      hidden: Real logits of the hidden ids, float32 [R, I].

    Returns:
      The normalizers, float32 [R].
    """
    totals = tf.reduce_sum(tf.exp(logits), 1) + tf.reduce_sum(tf.exp(hidden), 1)  # [R]
    return tf.cond(
        tf.reduce_all((totals > _LEAST_TOTAL) & (totals < math.inf)),
        lambda: tf.math.log(totals),
        lambda: tf.reduce_logsumexp(tf.concat([logits, hidden], 1), 1),
    )


def best_extensions(
    values: tf.Tensor, ids: tf.Tensor, alive_scores: tf.Tensor, *, places: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the best extensions of each sentence's beams.

    Args:
      values: Log-probabilities of the best C next ids of each beam, float32 [R, C].
      ids: These ids, int32 [R, C].
      alive_scores: Log-probabilities of the beams, float32 [B, N].
      places: Number of extensions P.

    Returns:
      Scores, parents (indices of their beams) and ids of the extensions, [B, P] each, best first.
    """
    beams, kept = alive_scores.shape[1], ids.shape[1]
    scores = tf.reshape(alive_scores, [-1, 1]) + values  # [R, C]
    scores = tf.reshape(scores, [-1, beams * kept])  # [B, N * C]
    missing = [[0, 0], [0, max(places - beams * kept, 0)]]
    scores = tf.pad(scores, missing, constant_values=IMPOSSIBLE)  # [B, max(N * C, P)]
    ids = tf.pad(tf.reshape(ids, [-1, beams * kept]), missing)  # [B, max(N * C, P)]
    scores, best = tf.math.top_k(scores, places)  # [B, P] each
    return scores, tf.minimum(best // kept, beams - 1), tf.gather(ids, best, batch_dims=1)
