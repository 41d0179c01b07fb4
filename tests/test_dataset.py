"""Records to batches: nothing lost, like lengths together, resumable anywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from model import dataset
from model.dataset import Position, TokenBatches
from model.errors import UserError
from model.vocabulary import BOS_ID, EOS_ID, PAD_ID


def write_shards(folder, pairs, count):
    """Writes (source, target) id lists round robin into `count` shards."""
    files = [folder / f"train-{i}.tfrecord" for i in range(count)]
    for i, file in enumerate(files):
        with tf.io.TFRecordWriter(str(file)) as writer:
            for source, target in pairs[i::count]:
                feature = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
                    for name, ids in (("source", source), ("target", target))
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return files


def make_pairs(count, seed=0):
    generator = np.random.default_rng(seed)

    def ids():
        inner = generator.integers(4, 1000, generator.integers(1, 30)).tolist()
        return [BOS_ID, *inner, EOS_ID]

    return [(ids(), ids()) for _ in range(count)]


@pytest.fixture
def pairs():
    return make_pairs(300)


@pytest.fixture
def batches(tmp_path, pairs, monkeypatch):
    monkeypatch.setattr(dataset, "WINDOW", 64)
    return TokenBatches(files=write_shards(tmp_path, pairs, 3), max_tokens=200, seed=5)


def rows(batch):
    def strip(matrix):
        return [tuple(i for i in row if i != PAD_ID) for row in matrix.tolist()]

    return list(zip(strip(batch.source), strip(batch.target), strict=True))


def as_set(pairs):
    return sorted((tuple(s), tuple(t)) for s, t in pairs)


def test_an_epoch_has_every_pair_once(batches, pairs):
    for epoch in (0, 1):
        found = [row for batch in batches.epoch(Position(epoch)) for row in rows(batch)]
        assert sorted(found) == as_set(pairs)


def test_batches_keep_to_the_budget_and_waste_little(batches):
    padded = real = 0
    for batch in batches.epoch(Position()):
        assert batch.source.dtype == batch.target.dtype == np.int32
        assert len(batch.source) * max(batch.source.shape[1], batch.target.shape[1]) <= 200
        assert (batch.source[:, -1] != PAD_ID).any(), "no column of padding alone"
        assert (batch.target[:, -1] != PAD_ID).any()
        longer = np.maximum((batch.source != PAD_ID).sum(1), (batch.target != PAD_ID).sum(1))
        padded += longer.max() * len(longer)
        real += longer.sum()
    # Unsorted batches of these uniform lengths would waste nearly half.
    assert 1 - real / padded < 0.15


def test_the_budget_is_that_of_a_replica(batches):
    shared = TokenBatches(files=batches.files, max_tokens=200, seed=5, replicas=3)
    for batch in shared.epoch(Position()):
        longest = max(batch.source.shape[1], batch.target.shape[1])
        assert -(-len(batch.source) // 3) * longest <= 200
    assert len(list(shared.epoch(Position()))) < len(list(batches.epoch(Position())))


def test_order_is_a_function_of_seed_and_epoch(batches):
    def order(batches, epoch):
        return [rows(batch) for batch in batches.epoch(Position(epoch))]

    assert order(batches, 0) == order(batches, 0)
    assert order(batches, 0) != order(batches, 1)
    other = TokenBatches(files=batches.files, max_tokens=200, seed=6)
    assert order(batches, 0) != order(other, 0)


def test_resuming_at_any_batch_repeats_the_rest(batches):
    whole = list(itertools.islice(batches.forever(Position()), 120))
    assert whole[-1].following.epoch >= 1, "the run crosses an epoch"
    for stop in range(0, 110, 7):
        resumed = batches.forever(whole[stop].following)
        for expected, found in zip(whole[stop + 1 : stop + 9], resumed, strict=False):
            np.testing.assert_array_equal(expected.source, found.source)
            np.testing.assert_array_equal(expected.target, found.target)
            assert expected.following == found.following


def test_a_pair_longer_than_the_budget(tmp_path, pairs):
    batches = TokenBatches(files=write_shards(tmp_path, pairs, 1), max_tokens=20, seed=1)
    with pytest.raises(UserError, match=r"a pair of 3\d tokens does not fit into a batch of 20"):
        next(batches.epoch(Position()))


def test_a_shard_cut_off_is_named(tmp_path, pairs):
    files = write_shards(tmp_path, pairs, 1)
    files[0].write_bytes(files[0].read_bytes()[:-5])
    batches = TokenBatches(files=files, max_tokens=200, seed=1)
    with pytest.raises(UserError, match="damaged or missing"):
        list(batches.epoch(Position()))


def test_no_records(tmp_path):
    batches = TokenBatches(files=write_shards(tmp_path, [], 1), max_tokens=200, seed=1)
    with pytest.raises(UserError, match="no records"):
        next(batches.forever(Position()))
