"""The parts of a search: scores of next ids, and the loop in a batch that shrinks.

Axes: B sentences that are still searched, F of them that are done, N beams, R rows of a step
(B * N), V vocabulary, L steps so far, H hidden ids, K candidates of a beam, P places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tensorflow as tf

from tt.model.text.vocabulary import PAD_ID

IMPOSSIBLE = -math.inf
HIDDEN = -1e9  # the logit of an id that is never chosen, and what is added to one to hide it
_LEAST_TOTAL = 1e-30  # far enough above the least of float32, 1e-38, for what is added to count
_SHORT_ROW, _LONG_ROW = 256, 4096  # values
# The batch is made smaller when less than this share of its sentences goes on: to copy what is
# known of the rest costs a part of a step.
_KEPT_SHARE = 0.9


class SearchResult(NamedTuple):
    """The hypotheses of each sentence, best first."""

    ids: tf.Tensor  # int32 [B, N, L], EOS included, PAD behind it; without BOS
    scores: tf.Tensor  # float32 [B, N], log-probabilities; -inf of hypotheses that are missing


class Greedy(NamedTuple):
    """What greedy search carries from step to step, for the sentences that are still searched."""

    sentences: tf.Tensor  # int32 [B], their numbers in the result
    limits: tf.Tensor  # int32 [B]
    done: tf.Tensor  # bool [B]
    scores: tf.Tensor  # float32 [B], log-probabilities
    ids: tf.Tensor  # int32 [B, L]


class Beams(NamedTuple):
    """What beam search carries from step to step, for the sentences that are still searched."""

    sentences: tf.Tensor  # int32 [B], their numbers in the result
    limits: tf.Tensor  # int32 [B]
    done: tf.Tensor  # bool [B]
    alive_ids: tf.Tensor  # int32 [B, N, L], hypotheses that go on
    alive_scores: tf.Tensor  # float32 [B, N], best first
    alive_rows: tf.Tensor  # int32 [B, N], what row of the caches each goes on from
    ended_ids: tf.Tensor  # int32 [B, N, L], hypotheses with EOS, best first
    ended_scores: tf.Tensor  # float32 [B, N], log-probabilities
    ended_ranks: tf.Tensor  # float32 [B, N], the scores over the length penalty
    ended_count: tf.Tensor  # int32 [B], hypotheses that have ended, those dropped too


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
    """Advances until all sentences are done, in a batch that gets smaller on the way.

    `advance` takes the position, what is carried (first `start`, at `position`), caches and sources
    (B rows) one step on. `hypotheses` takes the result out of what is carried; `take` takes, out of
    caches, those of the sentences that are left, whose places it gets. N is `beam_size`.
    """
    batch, longest = tf.shape(start.limits)[0], longest_limit(start.limits)
    found = SearchResult(
        ids=tf.fill([batch, beam_size, longest], PAD_ID),
        scores=tf.fill([batch, beam_size], IMPOSSIBLE),
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
            _any_rows(sources),
            SearchResult(found.ids.shape, found.scores.shape),
        ),
        parallel_iterations=1,
    )
    return SearchResult(found_all.ids[:, :, :end], found_all.scores)


def longest_limit(limits: tf.Tensor) -> tf.Tensor:
    """Returns the greatest of int32 limits [B], and 1 of none: a maximum of none is negative."""
    return tf.maximum(tf.reduce_max(limits), 1)


def _any_length(carried: _Carried | list[tf.Tensor]) -> _Carried | list[tf.TensorShape]:
    """Lets every axis grow and shrink: each step adds a position, and sentences are taken out."""
    shapes = [tf.TensorShape([None] * x.shape.rank) for x in carried]
    return shapes if isinstance(carried, list) else type(carried)(*shapes)


def _any_rows(sources: list[tf.Tensor]) -> list[tf.TensorShape]:
    """Let the first axis shrink, because sentences are taken out."""
    return [tf.TensorShape([None, *x.shape[1:]]) for x in sources]


def top_k(x: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Does what `tf.math.top_k` does, on float32 [R, V] with V static, faster where rows are long.

    The k greatest values of a row lie in the k chunks with the greatest maxima; only those chunks
    are searched, by smaller chunks where they are long themselves. Returns values and int32
    indices, [R, k] each, best first.
    """
    size = x.shape[1]
    # The divisor of a row's length that is nearest to a fast width.
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
    """What may come after the last id of each beam."""

    logits: tf.Tensor  # float32 [B * N, V] with static V; about HIDDEN for ids never chosen
    hidden: tf.Tensor  # float32 [B * N, H], the logits of those: their share of the probability


# Predicts what comes after the last id of each beam: takes ids, int32 [B, N], and the keywords
# `position`, `caches` and `sources`; returns the prediction, and caches row for row of the ids.
StepFunction = Callable[..., tuple[Prediction, list[tf.Tensor]]]


def rank(scores: tf.Tensor, length: tf.Tensor, *, length_penalty: float) -> tf.Tensor:
    """Returns what hypotheses are ranked by, log p / ((5 + length) / 6)^alpha.

    That is equation 14 of Wu et al. 2016 (GNMT). `scores` are log-probabilities, float32; `length`
    counts ids, int32, EOS included, and broadcasts to them; alpha 0 ranks by log p.
    """
    return scores / ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty


def without_repeats(logits: tf.Tensor, ids: tf.Tensor, *, size: int) -> tf.Tensor:
    """Hides what would make an n-gram of `size` ids come twice.

    Of `logits`, float32 [R, V], and the hypotheses so far, int32 [R, L], it returns the logits,
    lowered by far at the ids that stand behind an earlier occurrence of the last `size - 1` ids.
    """
    rows, length = tf.shape(ids)[0], tf.shape(ids)[1]
    count = tf.maximum(length - size + 1, 0)  # of the n-grams so far
    last = tf.pad(ids, [[0, 0], [size, 0]])[:, length + 1 :]  # [R, size - 1]
    repeats = tf.ones([rows, count], tf.bool)
    for i in range(size - 1):
        repeats &= ids[:, i : i + count] == last[:, i : i + 1]
    followers = ids[:, size - 1 :]  # [R, count]
    followers = tf.reshape(followers, [-1])  # [R * count]
    places = tf.stack([tf.repeat(tf.range(rows), count), followers], 1)  # [R * count, 2]
    return tf.tensor_scatter_nd_add(
        logits, places, tf.where(tf.reshape(repeats, [-1]), HIDDEN, 0.0)
    )


def log_normalizers(logits: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
    """Returns the logarithms of what the exponentials of all logits sum up to, float32 [R].

    The greatest logit is only looked for and subtracted where float32 needs it, which trained
    models do not: `tf.nn.log_softmax`, which always does, takes twice as long. `logits` are float32
    [R, V]; `hidden`, float32 [R, H], are those that they lack.
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
    """Finds the best P = `places` extensions of each sentence's beams.

    `values`, float32 [B * N, K], are log-probabilities of the best K next ids of each beam, and
    `ids`, int32 [B * N, K], those ids; `alive_scores` is float32 [B, N]. Returns their scores,
    parents (beam numbers) and ids, [B, P] each, best first.
    """
    beams, kept = alive_scores.shape[1], ids.shape[1]
    scores = tf.reshape(alive_scores, [-1, 1]) + values  # [B * N, K]
    scores = tf.reshape(scores, [-1, beams * kept])  # [B, N * K]
    missing = [[0, 0], [0, max(places - beams * kept, 0)]]
    scores = tf.pad(scores, missing, constant_values=IMPOSSIBLE)
    ids = tf.pad(tf.reshape(ids, [-1, beams * kept]), missing)  # [B, max(N * K, P)]
    scores, best = tf.math.top_k(scores, places)  # [B, P] each
    return scores, tf.minimum(best // kept, beams - 1), tf.gather(ids, best, batch_dims=1)


def pad_places(scores: tf.Tensor, *, places: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives each of the scores [B, N] its own beam as parent, and adds places without any."""
    beams = scores.shape[1]
    padding = [[0, 0], [0, places - beams]]
    parents = tf.tile(tf.range(beams)[None], [tf.shape(scores)[0], 1])  # [B, N]
    return tf.pad(scores, padding, constant_values=IMPOSSIBLE), tf.pad(parents, padding)
