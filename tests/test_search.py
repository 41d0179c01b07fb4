"""Greedy and beam search against enumeration, a drawn trellis, and NumPy's sort."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from model.search import ban, beam_search, greedy_search, top_k
from model.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID

A, B = 4, 5
SIZE = 6  # PAD, UNK, BOS, EOS, A, B
BANNED = ban(SIZE, [PAD_ID, UNK_ID, BOS_ID])


class MarkovStep:
    """A step whose logits depend on the last two ids: order matters, and so does the state."""

    def __init__(self, table):
        self.table = tf.constant(table, tf.float32)  # [before last, last, next]

    def __call__(self, ids, *, position, state):
        before = tf.reshape(state[0], tf.shape(ids))
        logits = tf.gather_nd(self.table, tf.stack([before, ids], -1))
        return tf.ensure_shape(logits, [None, ids.shape[1], SIZE]), [tf.reshape(ids, [-1])]

    def start(self, rows):
        return [tf.fill([rows], BOS_ID)]


def random_table(seed, scale=1.5):
    return np.random.default_rng(seed).normal(size=[SIZE, SIZE, SIZE]) * scale


def log_probability(table, ids):
    before, last, total = BOS_ID, BOS_ID, 0.0
    for i in ids:
        row = table[before, last]
        total += row[i] - math.log(np.exp(row).sum())
        before, last = last, i
    return total


def rank(table, ids, alpha):
    return log_probability(table, ids) / ((5 + len(ids)) / 6) ** alpha


def all_hypotheses(limit):
    for length in range(limit):
        for ids in itertools.product([A, B], repeat=length):
            yield [*ids, EOS_ID]


def strip(row):
    return [i for i in row.tolist() if i != PAD_ID]


def search(table, *, limits, beam_size, alpha):
    step = MarkovStep(table)
    result = tf.function(beam_search)(
        step, step.start(len(limits) * beam_size), limits=tf.constant(limits), banned=BANNED,
        beam_size=beam_size, length_penalty=alpha,
    )  # fmt: skip
    return result.ids.numpy(), result.scores.numpy()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_finds_what_enumeration_finds(seed, alpha):
    table = random_table(seed)
    limits = [4, 3, 4, 1]
    # 8 unfinished hypotheses of 3 ids and their ends: a beam of 16 drops nothing.
    ids, scores = search(table, limits=limits, beam_size=16, alpha=alpha)
    for sentence, limit in enumerate(limits):
        best = max(all_hypotheses(limit), key=lambda h: rank(table, h, alpha))
        assert strip(ids[sentence, 0]) == best
        assert scores[sentence, 0] == pytest.approx(log_probability(table, best), abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), beam_size=st.integers(1, 5), alpha=st.floats(0, 2))
def test_scores_are_log_probabilities_and_ranks_fall(seed, beam_size, alpha):
    table = random_table(seed)
    ids, scores = search(table, limits=[6, 2], beam_size=beam_size, alpha=alpha)
    for sentence, limit in enumerate([6, 2]):
        found = [strip(row) for row in ids[sentence]]
        kept = [(h, s) for h, s in zip(found, scores[sentence], strict=True) if s > -np.inf]
        assert kept, "each sentence has a hypothesis"
        for hypothesis, score in kept:
            assert len(hypothesis) <= limit
            assert hypothesis[-1] == EOS_ID
            assert hypothesis.count(EOS_ID) == 1
            assert score == pytest.approx(log_probability(table, hypothesis), abs=1e-4)
        assert len({tuple(h) for h, _ in kept}) == len(kept), "no hypothesis twice"
        ranks = [rank(table, h, alpha) for h, _ in kept]
        assert all(a >= b - 1e-5 for a, b in itertools.pairwise(ranks))


@pytest.mark.parametrize("seed", range(8))
def test_one_beam_is_greedy(seed):
    table = random_table(seed)
    limits = [7, 2, 5]
    ids, scores = search(table, limits=limits, beam_size=1, alpha=0.6)
    step = MarkovStep(table)
    greedy = greedy_search(step, step.start(3), limits=tf.constant(limits), banned=BANNED)
    assert [strip(r[0]) for r in greedy.ids.numpy()] == [strip(r[0]) for r in ids]
    np.testing.assert_allclose(greedy.scores.numpy(), scores, atol=1e-5)
    for row, limit in zip(greedy.ids.numpy()[:, 0], limits, strict=True):
        expected, before, last = [], BOS_ID, BOS_ID
        while not expected or expected[-1] != EOS_ID:
            choice = max([EOS_ID, A, B], key=lambda i: table[before, last, i])
            expected.append(choice if len(expected) + 1 < limit else EOS_ID)
            before, last = last, expected[-1]
        assert strip(row) == expected


def test_a_trellis_drawn_by_hand():
    # Probabilities of the next id; what greedy takes first (A) leads into a poor end.
    #
    #            .55       .4            .9 after A A
    #     BOS ------> A ------> A ------------------> EOS    .55 * .4 * .9        = .198
    #       |         |  .35
    #       |         +-------> B ---- .5 ----------> EOS    .55 * .35 * .5       = .096
    #       |         |  .25
    #       |         +-----------------------------> EOS    .55 * .25            = .1375
    #       |   .35        .95
    #       +------> B -----------------------------> EOS    .35 * .95            = .3325
    #       |   .10
    #       +---------------------------------------> EOS    .10
    p = np.full([SIZE, SIZE, SIZE], 1e-9)
    p[BOS_ID, BOS_ID, [A, B, EOS_ID]] = [0.55, 0.35, 0.10]
    p[BOS_ID, A, [A, B, EOS_ID]] = [0.40, 0.35, 0.25]
    p[BOS_ID, B, [A, B, EOS_ID]] = [0.03, 0.02, 0.95]
    p[A, A, [A, B, EOS_ID]] = [0.05, 0.05, 0.90]
    p[A, B, [A, B, EOS_ID]] = [0.25, 0.25, 0.50]
    p[B, A] = p[B, B] = p[A, A]
    table = np.log(p)
    step = MarkovStep(table)
    greedy = greedy_search(step, step.start(1), limits=tf.constant([8]), banned=BANNED)
    assert strip(greedy.ids.numpy()[0, 0]) == [A, A, EOS_ID]
    assert math.exp(greedy.scores.numpy()[0, 0]) == pytest.approx(0.198, abs=1e-4)
    ids, scores = search(table, limits=[8], beam_size=2, alpha=0.0)
    assert strip(ids[0, 0]) == [B, EOS_ID]
    assert math.exp(scores[0, 0]) == pytest.approx(0.3325, abs=1e-4)
    # A strong length penalty prefers the longer: log .198 / (8/6)^3 = -.683 against
    # log .3325 / (7/6)^3 = -.693.
    ids, _ = search(table, limits=[8], beam_size=2, alpha=3.0)
    assert strip(ids[0, 0]) == [A, A, EOS_ID]


def test_batch_mates_change_nothing():
    table = random_table(3)
    together, scores = search(table, limits=[7, 2, 5], beam_size=3, alpha=0.6)
    for i, limit in enumerate([7, 2, 5]):
        alone, score = search(table, limits=[limit], beam_size=3, alpha=0.6)
        assert [strip(r) for r in alone[0]] == [strip(r) for r in together[i]]
        np.testing.assert_allclose(score[0], scores[i], atol=1e-5)


def test_the_loop_stops_when_all_sentences_have_ended():
    table = np.zeros([SIZE, SIZE, SIZE])
    table[..., EOS_ID] = 20.0  # ends at once
    calls = []

    class Counting(MarkovStep):
        def __call__(self, ids, *, position, state):
            calls.append(int(position))
            return super().__call__(ids, position=position, state=state)

    step = Counting(table)  # eager: the step is called in Python each time
    greedy_search(step, step.start(2), limits=tf.constant([50, 60]), banned=BANNED)
    assert calls == [0]
    calls.clear()
    beam_search(
        step, step.start(6), limits=tf.constant([50, 60]), banned=BANNED, beam_size=3,
        length_penalty=0.6,
    )  # fmt: skip
    # The best of what goes on has log p of about -20; at 60 ids it would rank at -20 / 4.2,
    # far below the end found at the first step.
    assert calls == [0]


def test_banned_ids_are_never_chosen():
    table = random_table(1)
    table[..., [PAD_ID, UNK_ID, BOS_ID]] += 5.0
    ids, _ = search(table, limits=[6], beam_size=4, alpha=0.6)
    assert set(ids.ravel().tolist()) <= {PAD_ID, EOS_ID, A, B}
    assert strip(ids[0, 0])[-1] == EOS_ID


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), chunks=st.integers(1, 9), width=st.sampled_from([6, 16, 128]),
    k=st.integers(1, 8),
)  # fmt: skip
def test_top_k_by_chunks_is_numpys(seed, chunks, width, k):
    size = max(chunks * width, k)
    x = np.random.default_rng(seed).permutation(4 * size).reshape(4, size).astype(np.float32)
    values, indices = top_k(tf.constant(x), k)
    expected = np.argsort(-x, axis=1)[:, :k]
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1))
