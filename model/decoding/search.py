"""Greedy and beam search over any step function; nothing here knows of the Transformer.

Axes: B sentences, N beams, V vocabulary, L steps. A step function predicts the next id of each
beam. What it remembers of hypotheses (caches) has a leading axis of B * N rows, sentence by
sentence; what it knows of sources has one of B rows. Sentences that are done are taken out of
all of them on the way, so that B falls and they cost nothing more.

Scores are log-probabilities, the sum of log p of each id, EOS included. Ids that are hidden from
the search are never chosen; they keep their share of the probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import tensorflow as tf

from model.decoding.top_k import top_k
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID

_IMPOSSIBLE = -math.inf

# The batch is made smaller when less than this share of its sentences goes on: to copy what is
# known of the rest costs a part of a step.
_KEPT_SHARE = 0.9

_LEAST_TOTAL = 1e-30  # far enough above the least of float32, 1e-38, for what is added to count

HIDDEN = -1e9  # the logit of an id that is never chosen, and what is added to one to hide it


class Prediction(NamedTuple):
    """What may come after the last id of each beam.

    Attributes:
      logits: float32 [B * N, V] with static V; about HIDDEN for ids that are never chosen.
      hidden: float32 [B * N, H], what the logits of those ids are: their share of the probability.
    """

    logits: tf.Tensor
    hidden: tf.Tensor


class StepFunction(Protocol):
    """Predicts what comes after the last id of each beam."""

    def __call__(
        self,
        ids: tf.Tensor,
        *,
        position: tf.Tensor,
        caches: list[tf.Tensor],
        sources: list[tf.Tensor],
    ) -> tuple[Prediction, list[tf.Tensor]]:
        """Takes int32 ids [B, N], their position, caches and sources.

        Returns:
          What comes next, and the caches, row for row of the ids.
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
    step: StepFunction,
    *,
    caches: list[tf.Tensor],
    sources: list[tf.Tensor],
    limits: tf.Tensor,
    no_repeat_ngram_size: int = 0,
) -> SearchResult:
    """Takes the most probable id at each step, until every sentence has ended.

    Args:
      step: Called with N = 1.
      caches: What `step` remembers before the first id, B rows.
      sources: What it knows of the sources, B rows.
      limits: int32 [B], ids a sentence may have, EOS included; there it is made to end.
      no_repeat_ngram_size: No n-gram of this size comes twice in a hypothesis; 0 lets them.

    Returns:
      The result with N = 1.
    """
    batch = tf.shape(limits)[0]

    def advance(
        position: tf.Tensor, beams: _Greedy, caches: list[tf.Tensor], sources: list[tf.Tensor]
    ) -> tuple[_Greedy, list[tf.Tensor]]:
        last_ids = _last_ids(beams.ids[:, None], beam_size=1)
        prediction, caches = step(last_ids, position=position, caches=caches, sources=sources)
        logits, hidden = prediction
        allowed = logits
        if no_repeat_ngram_size:
            allowed = _without_repeats(logits, beams.ids, size=no_repeat_ngram_size)
        ids = top_k(allowed, 1)[1][:, 0]
        log_totals = _log_totals(logits, hidden)
        ids = tf.where(position + 1 >= beams.limits, EOS_ID, ids)
        log_probability = tf.gather(logits, ids, batch_dims=1) - log_totals
        ids = tf.where(beams.done, PAD_ID, ids)
        beams = _Greedy(
            sentences=beams.sentences,
            limits=beams.limits,
            done=beams.done | (ids == EOS_ID),
            scores=tf.where(beams.done, beams.scores, beams.scores + log_probability),
            ids=tf.concat([beams.ids, ids[:, None]], 1),
        )
        return beams, caches

    start = _Greedy(
        sentences=tf.range(batch),
        limits=limits,
        done=tf.zeros([batch], tf.bool),
        scores=tf.zeros([batch]),
        ids=tf.zeros([batch, 0], tf.int32),
    )
    return _search_all(
        advance,
        start,
        hypotheses=lambda beams: SearchResult(beams.ids[:, None], beams.scores[:, None]),
        take=lambda caches, left: [tf.gather(x, left) for x in caches],
        caches=caches,
        sources=sources,
        beam_size=1,
    )


class _Greedy(NamedTuple):
    """What greedy search carries from step to step, for the sentences that are still searched."""

    sentences: tf.Tensor  # int32 [B], their numbers in the result
    limits: tf.Tensor  # int32 [B]
    done: tf.Tensor  # bool [B]
    scores: tf.Tensor  # float32 [B], log-probabilities
    ids: tf.Tensor  # int32 [B, L]


class _Beams(NamedTuple):
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

    Of all extensions of a sentence's beams the best 2N are looked at: those of the best N that
    end compete by rank, log p / ((5 + length) / 6)^alpha, for the N places of the result; the
    best N of the 2N that do not end go on. A sentence is done when N hypotheses have ended, or
    when nothing that goes on can still be among the `n_best` of them.

    Args:
      step: Called with N = 1 for the first id, then with N = `beam_size`.
      caches: What `step` remembers before the first id, B rows.
      sources: What it knows of the sources, B rows.
      limits: int32 [B], ids a sentence may have, EOS included; there every beam is made to end.
      beam_size: N.
      length_penalty: alpha of Wu et al. 2016, equation 14; 0 ranks by log p.
      n_best: How many of the N of the result are wanted.
      no_repeat_ngram_size: No n-gram of this size comes twice in a hypothesis; 0 lets them.
    """
    batch, size = tf.shape(limits)[0], beam_size

    def rank(scores: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        return scores / ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty

    def advance(
        position: tf.Tensor,
        beams: _Beams,
        caches: list[tf.Tensor],
        sources: list[tf.Tensor],
        *,
        alive: int = size,
    ) -> tuple[_Beams, list[tf.Tensor]]:
        length = position + 1
        last_ids = _last_ids(beams.alive_ids, beam_size=alive)
        rows = tf.reshape(beams.alive_rows, [-1])
        caches = [tf.gather(x, rows) for x in caches]
        prediction, caches = step(last_ids, position=position, caches=caches, sources=sources)
        logits, hidden = prediction
        allowed = logits
        if no_repeat_ngram_size:
            hypotheses = tf.reshape(beams.alive_ids, [-1, position])
            allowed = _without_repeats(logits, hypotheses, size=no_repeat_ngram_size)
        # The best N extensions, and the best N that do not end, are among the best N + 1 of each
        # beam, one of which may end: [B * alive, kept].
        values, ids = top_k(allowed, min(size + 1, logits.shape[1]))
        log_totals = _log_totals(logits, hidden)[:, None]
        # Hidden ids are only among the best where the vocabulary has fewer others.
        values = tf.where(values > 0.5 * HIDDEN, values - log_totals, _IMPOSSIBLE)
        alive_scores = tf.ensure_shape(beams.alive_scores, [None, alive])
        scores, parents, ids = _best_extensions(values, ids, alive_scores, places=2 * size)
        at_limit = (length >= beams.limits)[:, None]
        end_scores = tf.reshape(logits[:, EOS_ID, None] - log_totals, [-1, alive])
        ends, end_parents = _pad_places(alive_scores + end_scores, places=2 * size)
        scores = tf.where(at_limit, ends, scores)
        parents = tf.where(at_limit, end_parents, parents)
        ids = tf.where(at_limit, EOS_ID, ids)
        extended = tf.gather(beams.alive_ids, parents, batch_dims=1)  # [B, 2N, position]
        extended = tf.concat([extended, ids[:, :, None]], 2)

        # Ends count among the best N only: otherwise one beam would end before greedy does.
        has_ended = (ids == EOS_ID) & (scores > _IMPOSSIBLE) & ~beams.done[:, None]
        has_ended &= tf.range(2 * size) < size
        new_ranks = tf.where(has_ended, rank(scores, length), _IMPOSSIBLE)
        ended_ranks, best = tf.math.top_k(tf.concat([beams.ended_ranks, new_ranks], 1), size)
        padded = tf.pad(beams.ended_ids, [[0, 0], [0, 0], [0, 1]], constant_values=PAD_ID)
        ended_ids = tf.concat([padded, extended], 1)
        ended_scores = tf.concat([beams.ended_scores, scores], 1)
        ended_scores = tf.gather(ended_scores, best, batch_dims=1)
        ended_count = beams.ended_count + tf.math.count_nonzero(has_ended, 1, dtype=tf.int32)

        alive_scores, best_alive = tf.math.top_k(tf.where(ids == EOS_ID, _IMPOSSIBLE, scores), size)
        parents = tf.gather(parents, best_alive, batch_dims=1)  # [B, N]
        # The rank of a hypothesis that goes on is at most that of its score now at full length.
        hopeless = rank(alive_scores[:, 0], beams.limits) <= ended_ranks[:, n_best - 1]
        done = beams.done | at_limit[:, 0] | hopeless | (ended_count >= size)
        beams = _Beams(
            sentences=beams.sentences,
            limits=beams.limits,
            done=done,
            alive_ids=tf.gather(extended, best_alive, batch_dims=1),
            alive_scores=tf.where(done[:, None], _IMPOSSIBLE, alive_scores),
            alive_rows=tf.range(tf.shape(ids)[0])[:, None] * alive + parents,
            ended_ids=tf.gather(ended_ids, best, batch_dims=1),
            ended_scores=tf.where(ended_ranks > _IMPOSSIBLE, ended_scores, _IMPOSSIBLE),
            ended_ranks=ended_ranks,
            ended_count=ended_count,
        )
        return beams, caches

    no_scores = tf.fill([batch, size], _IMPOSSIBLE)
    start = _Beams(
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
    return _search_all(
        advance,
        beams,
        position=1,
        hypotheses=lambda beams: SearchResult(beams.ended_ids, beams.ended_scores),
        take=lambda caches, _: caches,  # the next step takes the `alive_rows`
        caches=caches,
        sources=sources,
        beam_size=size,
    )


_Carried = TypeVar("_Carried", _Greedy, _Beams)


def _search_all(
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

    Args:
      advance: Takes the position, what is carried, caches and sources, one step on.
      start: What is carried to the first step.
      position: Of that step.
      hypotheses: Takes the result out of what is carried.
      take: Takes the caches of the sentences that are left, whose places it gets, out of caches.
      caches: What `advance` takes first.
      sources: B rows.
      beam_size: N.
    """
    batch, longest = tf.shape(start.limits)[0], longest_limit(start.limits)
    found = SearchResult(
        ids=tf.fill([batch, beam_size, longest], PAD_ID),
        scores=tf.fill([batch, beam_size], _IMPOSSIBLE),
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
        done = tf.where(carried.done)  # [finished, 1]
        numbers = tf.gather_nd(carried.sentences, done)[:, None]
        ids, scores = hypotheses(carried)
        ids, scores = tf.gather_nd(ids, done), tf.gather_nd(scores, done)
        ids = tf.pad(ids, [[0, 0], [0, 0], [0, longest - position]], constant_values=PAD_ID)
        found = SearchResult(
            ids=tf.tensor_scatter_nd_update(found.ids, numbers, ids),
            scores=tf.tensor_scatter_nd_update(found.scores, numbers, scores),
        )
        left = tf.where(~carried.done)[:, 0]
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


def _last_ids(ids: tf.Tensor, *, beam_size: int) -> tf.Tensor:
    """Takes the last of the int32 ids [B, N, L], or BOS before the first: [B, N]."""
    last = tf.pad(ids, [[0, 0], [0, 0], [1, 0]], constant_values=BOS_ID)[:, :, -1]
    return tf.ensure_shape(last, [None, beam_size])


def _without_repeats(logits: tf.Tensor, ids: tf.Tensor, *, size: int) -> tf.Tensor:
    """Hides what would make an n-gram of `size` ids come twice.

    Args:
      logits: float32 [R, V].
      ids: int32 [R, L], the hypotheses so far.
      size: Of the n-grams.

    Returns:
      The logits, lowered by far at the ids that stand behind an earlier occurrence of the last
      `size - 1` ids.
    """
    rows, length = tf.shape(ids)[0], tf.shape(ids)[1]
    count = tf.maximum(length - size + 1, 0)  # of the n-grams so far
    last = tf.pad(ids, [[0, 0], [size, 0]])[:, length + 1 :]  # [R, size - 1]
    repeats = tf.ones([rows, count], tf.bool)
    for i in range(size - 1):
        repeats &= ids[:, i : i + count] == last[:, i : i + 1]
    followers = ids[:, size - 1 :]  # [R, count]
    places = tf.stack([tf.repeat(tf.range(rows), count), tf.reshape(followers, [-1])], 1)
    return tf.tensor_scatter_nd_add(
        logits, places, tf.where(tf.reshape(repeats, [-1]), HIDDEN, 0.0)
    )


def _log_totals(logits: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
    """Returns the logarithms of what the exponentials of all logits sum up to, float32 [R].

    The greatest logit is only looked for and subtracted where float32 needs it, which trained
    models do not: `tf.nn.log_softmax`, which always does, takes twice as long.

    Args:
      logits: float32 [R, V].
      hidden: float32 [R, H], those that `logits` does not have.
    """
    totals = tf.reduce_sum(tf.exp(logits), 1) + tf.reduce_sum(tf.exp(hidden), 1)
    return tf.cond(
        tf.reduce_all((totals > _LEAST_TOTAL) & (totals < math.inf)),
        lambda: tf.math.log(totals),
        lambda: tf.reduce_logsumexp(tf.concat([logits, hidden], 1), 1),
    )


def _best_extensions(
    values: tf.Tensor, ids: tf.Tensor, alive_scores: tf.Tensor, *, places: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the best extensions of each sentence's beams.

    Args:
      values: float32 [B * N, K], log-probabilities of the best K next ids of each beam.
      ids: int32 [B * N, K].
      alive_scores: float32 [B, N].
      places: P, how many are looked for.

    Returns:
      Their scores, parents (beam numbers) and ids, [B, P] each, best first.
    """
    beams, kept = alive_scores.shape[1], ids.shape[1]
    scores = tf.reshape(tf.reshape(alive_scores, [-1, 1]) + values, [-1, beams * kept])
    missing = [[0, 0], [0, max(places - beams * kept, 0)]]
    scores = tf.pad(scores, missing, constant_values=_IMPOSSIBLE)
    ids = tf.pad(tf.reshape(ids, [-1, beams * kept]), missing)
    scores, best = tf.math.top_k(scores, places)
    return scores, tf.minimum(best // kept, beams - 1), tf.gather(ids, best, batch_dims=1)


def _pad_places(scores: tf.Tensor, *, places: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives each of the scores [B, N] its own beam as parent, and adds places without any."""
    beams = scores.shape[1]
    padding = [[0, 0], [0, places - beams]]
    parents = tf.tile(tf.range(beams)[None], [tf.shape(scores)[0], 1])
    return tf.pad(scores, padding, constant_values=_IMPOSSIBLE), tf.pad(parents, padding)
