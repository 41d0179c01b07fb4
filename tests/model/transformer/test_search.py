"""Greedy search and beam search are compared with enumeration, a trellis and plain Python."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_search import plain_beam_search

from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tt.model.transformer.loop import HIDDEN, Prediction, top_k
from tt.model.transformer.search import beam_search, greedy_search

A, B = 4, 5
SIZE = 6  # PAD, UNK, BOS, EOS, A, B


class MarkovStep:
    """A step whose logits depend on the last two ids, so that wrong caches change the result."""

    def __init__(self, table):
        self.table = tf.constant(table, tf.float32)  # [second last id, last id, next id]

    def __call__(self, ids, *, position, caches, sources):
        before = tf.reshape(caches[0], tf.shape(ids))
        logits = tf.gather_nd(self.table, tf.stack([before, ids], -1))
        size = logits.shape[-1]
        logits = tf.reshape(logits, [-1, size])
        hides = np.full([size], HIDDEN, np.float32)
        hides[EOS_ID:] = 0
        prediction = Prediction(logits=logits + hides, hidden=logits[..., :EOS_ID])
        return prediction, [tf.reshape(ids, [-1])]

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


def search(table, *, limits, beam_size, alpha, **options):
    step = MarkovStep(table)
    result = beam_search(  # runs eagerly, because tracing takes longer than a few steps
        step, caches=step.start(len(limits)), sources=[], limits=tf.constant(limits),
        beam_size=beam_size, length_penalty=alpha, **options,
    )  # fmt: skip
    return result.ids.numpy(), result.scores.numpy()


def greedy(table, *, limits, **options):
    step = MarkovStep(table)
    result = greedy_search(
        step, caches=step.start(len(limits)), sources=[], limits=tf.constant(limits),
        **options,
    )  # fmt: skip
    return result.ids.numpy()[:, 0], result.scores.numpy()[:, 0]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(6))
def test_wide_beam_finds_the_best_of_all_hypotheses(seed, alpha):
    table = random_table(seed)
    limits = [4, 3, 4, 1]
    # A beam of 16 drops nothing: there are 8 unfinished hypotheses with 3 ids, and their ends.
    ids, scores = search(table, limits=limits, beam_size=16, alpha=alpha)
    for sentence, limit in enumerate(limits):
        best = max(all_hypotheses(limit), key=lambda h: rank(table, h, alpha))
        assert strip(ids[sentence, 0]) == best
        assert scores[sentence, 0] == pytest.approx(log_probability(table, best), abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), beam_size=st.integers(1, 5), alpha=st.floats(0, 2))
def test_scores_are_log_probabilities_and_ranks_decrease(seed, beam_size, alpha):
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
        assert len({tuple(h) for h, _ in kept}) == len(kept), "all hypotheses differ"
        ranks = [rank(table, h, alpha) for h, _ in kept]
        assert all(a >= b - 1e-5 for a, b in itertools.pairwise(ranks))


@pytest.mark.parametrize("seed", range(8))
def test_one_beam_equals_greedy_search(seed):
    table = random_table(seed)
    limits = [7, 2, 5]
    ids, scores = search(table, limits=limits, beam_size=1, alpha=0.6)
    greedy_ids, greedy_scores = greedy(table, limits=limits)
    assert [strip(row) for row in greedy_ids] == [strip(r[0]) for r in ids]
    for row, limit, score, one_beam in zip(
        greedy_ids, limits, greedy_scores, scores[:, 0], strict=True
    ):
        expected, before, last = [], BOS_ID, BOS_ID
        while not expected or expected[-1] != EOS_ID:
            choice = max([EOS_ID, A, B], key=lambda i: table[before, last, i])
            expected.append(choice if len(expected) + 1 < limit else EOS_ID)
            before, last = last, expected[-1]
        assert strip(row) == expected
        assert one_beam == pytest.approx(log_probability(table, expected), abs=1e-5)
        counted = expected[: limit - 1]  # a forced EOS does not count
        assert score == pytest.approx(log_probability(table, counted), abs=1e-5)


def test_search_matches_a_trellis_computed_by_hand():
    # Probabilities of the next id. Greedy search chooses A first, which leads to a less probable
    # end than B.
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
    greedy_ids, greedy_scores = greedy(table, limits=[8])
    assert strip(greedy_ids[0]) == [A, A, EOS_ID]
    assert math.exp(greedy_scores[0]) == pytest.approx(0.198, abs=1e-4)
    ids, scores = search(table, limits=[8], beam_size=2, alpha=0.0)
    assert strip(ids[0, 0]) == [B, EOS_ID]
    assert math.exp(scores[0, 0]) == pytest.approx(0.3325, abs=1e-4)
    # A strong length penalty prefers the longer hypothesis: log .198 / (8/6)^3 = -.683 is greater
    # than log .3325 / (7/6)^3 = -.693.
    ids, _ = search(table, limits=[8], beam_size=2, alpha=3.0)
    assert strip(ids[0, 0]) == [A, A, EOS_ID]


def test_result_does_not_depend_on_the_batch():
    table = random_table(3)
    together, scores = search(table, limits=[7, 2, 5], beam_size=3, alpha=0.6)
    for i, limit in enumerate([7, 2, 5]):
        alone, score = search(table, limits=[limit], beam_size=3, alpha=0.6)
        assert [strip(r) for r in alone[0]] == [strip(r) for r in together[i]]
        np.testing.assert_allclose(score[0], scores[i], atol=1e-5)


def test_search_stops_when_all_sentences_have_ended():
    table = np.zeros([SIZE, SIZE, SIZE])
    table[..., EOS_ID] = 20.0  # ends after the first step
    calls = []

    class Counting(MarkovStep):
        def __call__(self, ids, *, position, **memory):
            calls.append(int(position))
            return super().__call__(ids, position=position, **memory)

    step = Counting(table)  # runs eagerly, so each step calls Python
    greedy_search(step, caches=step.start(2), sources=[], limits=tf.constant([50, 60]))
    assert calls == [0]
    calls.clear()
    beam_search(
        step, caches=step.start(2), sources=[], limits=tf.constant([50, 60]),
        beam_size=3, length_penalty=0.6,
    )  # fmt: skip
    # The best unfinished hypothesis has a log p of about -20. With 60 ids, its rank would be
    # -20 / 4.2, far below the rank of the hypothesis that ended in the first step.
    assert calls == [0]


def test_finished_sentences_are_removed_from_the_batch():
    # Each sentence repeats A until its own limit, so the batch shrinks step by step.
    table = np.zeros([SIZE, SIZE, SIZE])
    table[..., A], table[..., B] = 20.0, 10.0
    rows, beams = [], []

    class Counting(MarkovStep):
        def __call__(self, ids, *, position, caches, sources):
            rows.append(len(ids))
            beams.append(ids.shape[1])
            assert sources[0].shape[0] == len(ids), "sources are removed with their sentences"
            assert set(sources[0].numpy().tolist()) <= set(limits)
            return super().__call__(ids, position=position, caches=caches, sources=sources)

    limits = [3, 9, 1, 9, 2, 5, 1, 1]
    step = Counting(table)
    found = greedy_search(
        step, caches=step.start(8), sources=[tf.constant(limits)], limits=tf.constant(limits),
    )  # fmt: skip
    assert [len(strip(row[0])) for row in found.ids.numpy()] == limits
    assert rows == [8, 5, 4, 3, 3, 2, 2, 2, 2]
    rows.clear()
    beams.clear()
    found = beam_search(
        step, caches=step.start(8), sources=[tf.constant(limits)], limits=tf.constant(limits),
        beam_size=2, length_penalty=0.0,
    )  # fmt: skip
    assert rows == [8, 5, 4, 3, 3, 2, 2, 2, 2]
    assert beams == [1, 2, 2, 2, 2, 2, 2, 2, 2], "the first step computes only one beam"


@pytest.mark.parametrize("seed", range(4))
def test_wide_beam_finds_the_n_best_hypotheses(seed):
    table = random_table(seed, scale=0.7)
    ids, scores = search(table, limits=[4, 3], beam_size=16, alpha=0.6, n_best=6)
    for sentence, limit in enumerate([4, 3]):
        best = sorted(all_hypotheses(limit), key=lambda h: rank(table, h, 0.6), reverse=True)[:6]
        assert [strip(row) for row in ids[sentence, :6]] == best
        expected = [log_probability(table, h) for h in best]
        np.testing.assert_allclose(scores[sentence, :6], expected, atol=1e-4)


@pytest.mark.parametrize("trial", range(100))
def test_beam_search_matches_plain_python(trial):
    generator = np.random.default_rng(trial)
    size = int(generator.integers(6, 11))
    # With a low scale, all hypotheses are almost equally probable. With a high scale, most
    # hypotheses share their ids.
    table = generator.normal(size=[size] * 3) * generator.choice([0.5, 1.5, 3.0])
    table[..., EOS_ID] += generator.choice([0.0, 1.5])
    beam_size = int(generator.integers(1, 6))
    options = {
        "beam_size": beam_size,
        "alpha": float(generator.choice([0.0, 0.6, 1.0, 3.0])),
        "patience": float(generator.choice([1, 1, 1.5, 2, 4])),
        "n_best": int(generator.integers(1, beam_size + 1)),
        "no_repeat_ngram_size": int(generator.choice([0, 0, 0, 1, 2, 3])),
    }
    limits = [9, int(generator.integers(1, 9))]
    ids, scores = search(table, limits=limits, **options)
    for sentence, limit in enumerate(limits):
        expected = plain_beam_search(table, chosen=range(EOS_ID, size), limit=limit, **options)
        found = [row for row, score in zip(ids[sentence], scores[sentence], strict=True)
                 if score > -math.inf]  # fmt: skip
        assert [tuple(strip(row)) for row in found] == [each.ids for each in expected]
        wanted = [each.score for each in expected]
        np.testing.assert_allclose(scores[sentence, : len(found)], wanted, atol=1e-4)


def has_repeats(ids, size):
    grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return len(set(grams)) < len(grams)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_ngram_repeats(seed, size):
    table = random_table(seed)
    table[..., EOS_ID] -= 3.0  # makes hypotheses long
    limit = 5
    ids, scores = search(
        table, limits=[limit, 2], beam_size=32, alpha=0.6, no_repeat_ngram_size=size
    )
    allowed = [h for h in all_hypotheses(limit) if not has_repeats(h, size)]
    assert len(allowed) < len(list(all_hypotheses(limit)))
    best = max(allowed, key=lambda h: rank(table, h, 0.6))
    assert strip(ids[0, 0]) == best
    assert scores[0, 0] == pytest.approx(log_probability(table, best), abs=1e-4)
    (row, _), _ = greedy(table, limits=[12, 2], no_repeat_ngram_size=size)
    expected, before, last = [], BOS_ID, BOS_ID
    while not expected or expected[-1] != EOS_ID:
        choices = [i for i in (EOS_ID, A, B) if not has_repeats([*expected, i], size)]
        choice = max(choices, key=lambda i: table[before, last, i])
        expected.append(choice if len(expected) + 1 < 12 else EOS_ID)
        before, last = last, expected[-1]
    assert strip(row) == expected


@pytest.mark.parametrize("shift", [-200.0, 200.0])
def test_logits_whose_exponentials_exceed_float32(shift):
    table = random_table(seed=5)
    for beam_size in (1, 3):
        want, far = (
            search(logits, limits=[6, 3], beam_size=beam_size, alpha=0.6)
            for logits in (table, table + shift)
        )
        np.testing.assert_array_equal(far[0], want[0])
        np.testing.assert_allclose(far[1], want[1], atol=1e-3)


def test_hidden_ids_are_never_chosen():
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
def test_top_k_by_chunks_matches_numpy(seed, chunks, width, k):
    size = max(chunks * width, k)
    x = np.random.default_rng(seed).permutation(4 * size).reshape(4, size).astype(np.float32)
    values, indices = top_k(tf.constant(x), k)
    expected = np.argsort(-x, axis=1)[:, :k]
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1))
