"""The loop of a search, in a batch that shrinks as sentences are done.

Axes: B sentences that are still searched, F of them that are done, N beams, L steps so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tensorflow as tf

from model.text.vocabulary import PAD_ID
from model.transformer.scoring import IMPOSSIBLE

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
    """Lets the first axis shrink: sentences are taken out."""
    return [tf.TensorShape([None, *x.shape[1:]]) for x in sources]
