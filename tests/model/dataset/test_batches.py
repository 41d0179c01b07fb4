"""Batches contain every record once, group similar lengths, and can resume at any position."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from shards import make_pairs, rows, write_shards

from tt.model.dataset import batches as dataset_batches
from tt.model.dataset import tfrecords
from tt.model.dataset.batches import Position, TokenBatches, read_target_texts, rounded_length
from tt.model.errors import UserError
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID


@pytest.fixture
def pairs():
    return make_pairs(300)


@pytest.fixture
def small_windows(monkeypatch):
    """Set the window size to 64 records, independent of the batch size."""
    monkeypatch.setattr(dataset_batches, "WINDOW", 64)
    monkeypatch.setattr(dataset_batches, "RECORDS_PER_TOKEN", 0)


@pytest.fixture
def batches(tmp_path, pairs, small_windows):
    return TokenBatches(files=write_shards(tmp_path, pairs, 3), max_tokens=200, seed=5)


def as_set(pairs):
    return sorted((tuple(s), tuple(t)) for s, t in pairs)


def test_epoch_contains_every_pair_once(batches, pairs):
    for epoch in (0, 1):
        found = [row for batch in batches.epoch(Position(epoch)) for row in rows(batch)]
        assert sorted(found) == as_set(pairs)


def test_batches_respect_the_budget_with_little_padding(batches):
    padded = real = 0
    for batch in batches.epoch(Position()):
        assert batch.source.dtype == batch.target.dtype == np.int32
        assert len(batch.source) * max(batch.source.shape[1], batch.target.shape[1]) <= 200
        longest = [(ids != PAD_ID).sum(1).max() for ids in (batch.source, batch.target)]
        assert [ids.shape[1] for ids in (batch.source, batch.target)] == [
            rounded_length(int(length)) for length in longest
        ]
        longer = np.maximum((batch.source != PAD_ID).sum(1), (batch.target != PAD_ID).sum(1))
        padded += longer.max() * len(longer)
        real += longer.sum()
    # Unsorted batches of these uniform lengths would waste nearly half.
    assert 1 - real / padded < 0.15


def test_batches_have_few_different_shapes(batches):
    def shapes(epoch):
        return [(b.source.shape, b.target.shape) for b in batches.epoch(Position(epoch))]

    full = {
        max(s[1], t[1]): s[0]
        for s, t in shapes(0)
        if s[0] * max(s[1], t[1]) > 200 - max(s[1], t[1])
    }
    for source, target in [shape for epoch in range(3) for shape in shapes(epoch)]:
        assert source[0] == target[0]
        longest = max(source[1], target[1])
        # The batch is full, or it is the rest of a window, with its rows rounded up.
        rows = 200 // longest
        assert source[0] == rows or source[0] == rounded_length(source[0])
        assert full.get(longest, rows) == rows


def test_padding_rows_have_no_record(batches):
    seen = 0
    for batch in batches.epoch(Position()):
        assert not batch.source[len(batch.records) :].any()
        assert not batch.target[len(batch.records) :].any()
        assert (batch.source[: len(batch.records), 0] == BOS_ID).all()
        seen += len(batch.source) - len(batch.records)
    assert seen > 0, "no window ends with a batch that is not full"


def test_batch_lists_its_records(batches, pairs):
    # `write_shards` distributes the pairs to the shards in turn.
    for batch in batches.epoch(Position()):
        for (shard, record), row in zip(batch.records, rows(batch), strict=False):
            number = int(shard.removesuffix(".tfrecord").rsplit("-", 1)[1])
            source, target = pairs[record * 3 + number]
            assert row == (tuple(source), tuple(target))


def test_budget_is_per_replica(batches):
    shared = TokenBatches(files=batches.files, max_tokens=200, seed=5, replicas=3)
    for batch in shared.epoch(Position()):
        longest = max(batch.source.shape[1], batch.target.shape[1])
        assert len(batch.source) > 0
        assert -(-len(batch.source) // 3) * longest <= 200
    assert len(list(shared.epoch(Position()))) < len(list(batches.epoch(Position())))


def test_order_depends_only_on_seed_and_epoch(batches):
    def order(batches, epoch):
        return [rows(batch) for batch in batches.epoch(Position(epoch))]

    assert order(batches, 0) == order(batches, 0)
    assert order(batches, 0) != order(batches, 1)
    other = TokenBatches(files=batches.files, max_tokens=200, seed=6)
    assert order(batches, 0) != order(other, 0)


# The following tests check properties of the order of batches, not a specific order.


def longest(batch):
    return max(len(ids) for pair in rows(batch) for ids in pair)


def windows_of(batches, epoch):
    """Return the batches of each window of an epoch, in the order of training."""
    found = list(batches.epoch(Position(epoch)))
    return [list(group) for _, group in itertools.groupby(found, key=lambda b: b.start.window)]


def ranks(window):
    """Return the rank by length of each batch in a window, in the order of training."""
    lengths = [longest(batch) for batch in window]
    return tuple(np.argsort(np.argsort(lengths, kind="stable")).tolist())


def same_window_thrice(folder):
    """Return batches with three windows per epoch, one per shard, which have the same lengths."""
    generator = np.random.default_rng(2)
    lengths = generator.integers(1, 30, 64)

    def window():
        return [([BOS_ID, *generator.integers(4, 1000, n).tolist(), EOS_ID],) * 2 for n in lengths]

    thrice = [window() for _ in range(3)]
    dealt = [pair for pairs in zip(*thrice, strict=True) for pair in pairs]
    return TokenBatches(files=write_shards(folder, dealt, 3), max_tokens=100, seed=5)


@pytest.mark.usefixtures("small_windows")
def test_each_window_and_epoch_has_a_different_order(tmp_path):
    batches = same_window_thrice(tmp_path)
    orders = [ranks(window) for epoch in range(3) for window in windows_of(batches, epoch)]
    other = dataclasses.replace(batches, seed=6)
    orders += [ranks(window) for window in windows_of(other, 0)]
    assert len(orders) == 12
    assert min(map(len, orders)) > 8
    assert len(set(orders)) == 12


@pytest.mark.usefixtures("small_windows")
def test_each_window_and_epoch_groups_pairs_of_equal_length_differently(tmp_path):
    # All pairs have the same length, and both windows have the same ids in the same order.
    same = [([BOS_ID, i // 2, EOS_ID],) * 2 for i in range(8, 136)]
    batches = TokenBatches(files=write_shards(tmp_path, same, 2), max_tokens=40, seed=1)
    found = [
        {frozenset(ids for (_, ids, _), _ in rows(batch)) for batch in window}
        for epoch in range(3)
        for window in windows_of(batches, epoch)
    ]
    assert [len(groups) for groups in found] == [7] * 6
    for one, other in itertools.combinations(found, 2):
        assert not one & other


def shards_read(batches, epoch):
    """Return the shards in the order in which an epoch reads them, one per window."""
    found = [{shard for b in w for shard, _ in b.records} for w in windows_of(batches, epoch)]
    assert all(len(shards) == 1 for shards in found)
    return [shard for (shard,) in found]


@pytest.mark.usefixtures("small_windows")
def test_each_epoch_reads_the_shards_in_a_different_order(tmp_path):
    files = write_shards(tmp_path, make_pairs(8 * 64), 8)
    batches = TokenBatches(files=files, max_tokens=200, seed=5)
    in_order = [str(file) for file in files]
    orders = [shards_read(batches, epoch) for epoch in range(4)]
    for order in orders:
        assert order != in_order
        assert sorted(order) == in_order
    assert len(set(map(tuple, orders))) == 4
    other = TokenBatches(files=files, max_tokens=200, seed=6)
    assert shards_read(other, 0) != orders[0]
    plain = TokenBatches(files=files, max_tokens=200, seed=5, shuffle=False)
    assert shards_read(plain, 0) == shards_read(plain, 1) == in_order


def test_without_shuffling_batches_are_sorted_by_length(batches):
    still = TokenBatches(files=batches.files, max_tokens=200, seed=5, shuffle=False)
    for window in windows_of(still, 0):
        lengths = [longest(batch) for batch in window]
        assert lengths == sorted(lengths, reverse=True)
    assert [b.records for b in still.epoch(Position(0))] == [
        b.records for b in still.epoch(Position(1))
    ]


def test_resuming_at_any_batch_yields_the_same_remaining_batches(batches):
    whole = list(itertools.islice(batches.forever(Position()), 120))
    assert whole[-1].following.epoch >= 1, "the batches end before the second epoch"
    for stop in range(0, 110, 7):
        resumed = batches.forever(whole[stop].following)
        for expected, found in zip(whole[stop + 1 : stop + 9], resumed, strict=False):
            np.testing.assert_array_equal(expected.source, found.source)
            np.testing.assert_array_equal(expected.target, found.target)
            assert expected.following == found.following


def test_resuming_reads_only_the_current_and_next_window(batches, monkeypatch):
    whole = list(itertools.islice(batches.forever(Position()), 120))
    read = []
    read_record = tfrecords._read_record
    monkeypatch.setattr(
        tfrecords, "_read_record", lambda *a, **k: read.append(1) or read_record(*a, **k)
    )
    for batch in whole[::7]:
        read.clear()
        next(iter(batches.epoch(batch.following)), None)
        assert len(read) <= 2 * 64, "more than the current and the next window were read"


def test_next_window_returns_the_start_of_the_next_window(batches):
    firsts = [b.start for b in batches.epoch(Position()) if b.start.batch == 0]
    for window, following in itertools.pairwise(firsts):
        assert batches.next_window(window._replace(batch=3)) == following
    end = batches.next_window(firsts[-1])
    assert list(batches.epoch(end)) == []
    assert batches.next_window(end) == end


def padding(batches):
    """Return the share of padding in the positions of both sides."""
    ids = np.concatenate([side.ravel() for b in batches for side in (b.source, b.target)])
    return (ids == PAD_ID).mean()


@pytest.mark.parametrize(
    ("max_tokens", "replicas"), [(6000, 1), (750, 8)], ids=["large batches", "many replicas"]
)
def test_large_batches_have_large_windows(tmp_path, monkeypatch, max_tokens, replicas):
    # A batch has at least 187 rows, so a window of 64 records would not fill a batch.
    monkeypatch.setattr(dataset_batches, "WINDOW", 64)
    lengths = np.random.default_rng(1).integers(1, 30, 9000)
    alike = [([BOS_ID, *[5] * length, EOS_ID],) * 2 for length in lengths]
    batches = TokenBatches(
        files=write_shards(tmp_path, alike, 2), max_tokens=max_tokens, replicas=replicas, seed=1
    )
    found = list(batches.epoch(Position()))
    assert sum(len(batch.records) for batch in found) == 9000
    assert padding(found) < 0.1


def test_pair_longer_than_the_budget_is_an_error(tmp_path, pairs):
    batches = TokenBatches(files=write_shards(tmp_path, pairs, 1), max_tokens=20, seed=1)
    message = r"a pair of 3\d tokens \(record \d+ of .*train-0.tfrecord\) does not fit .* of 20"
    with pytest.raises(UserError, match=message):
        next(batches.epoch(Position()))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-5], "record 99 is truncated"),
        (lambda data: data[:-1], "record 99 is truncated"),
        (lambda data: data + b"\x05\x00", "record 100 is truncated"),
        (lambda data: data[:20] + b"\xff" + data[21:], "record 0 has a wrong checksum"),
        (lambda data: b"\xff" + data[1:], "record 0 has a wrong checksum of its size"),
    ],
    ids=["no checksum", "no last byte", "half a header", "changed record", "changed size"],
)
def test_damaged_shard_is_reported_with_the_record(tmp_path, pairs, damage, message):
    files = write_shards(tmp_path, pairs, 3)
    files[1].write_bytes(damage(files[1].read_bytes()))
    batches = TokenBatches(files=files, max_tokens=200, seed=1)
    with pytest.raises(UserError, match=rf"train-1.tfrecord is damaged: {message}"):
        list(batches.epoch(Position()))


@pytest.mark.usefixtures("small_windows")
def test_shard_truncated_between_records_is_an_error(tmp_path, pairs):
    files = write_shards(tmp_path, pairs, 3)
    batches = TokenBatches(files=files, max_tokens=200, seed=1, records=300)
    whole = list(batches.epoch(Position()))
    assert sum(len(batch.records) for batch in whole) == 300
    size = sum(
        16 + len(r) for r in tf.data.TFRecordDataset(str(files[1])).take(20).as_numpy_iterator()
    )
    data = files[1].read_bytes()
    for cut, count in ((size, 220), (0, 200)):
        files[1].write_bytes(data[:cut])
        for start in (Position(), whole[len(whole) // 4].following):
            rule = rf"train-\* must contain 300 records .*, but 3 shards contain {count}: "
            with pytest.raises(UserError, match=rule):
                list(batches.epoch(start))


def test_missing_shard_is_reported(tmp_path, pairs):
    files = write_shards(tmp_path, pairs, 3)
    files[2].unlink()
    batches = TokenBatches(files=files, max_tokens=200, seed=1)
    with pytest.raises(UserError, match=r"train-2.tfrecord cannot be read: No such file"):
        list(batches.epoch(Position()))


@pytest.mark.parametrize("strange", [([2, 1000, 3], [2, 3]), ([2, 5, 3], [2, -4, 3]), ([], [2, 3])])
def test_record_with_invalid_ids_is_reported(tmp_path, pairs, strange):
    files = write_shards(tmp_path, [*pairs[:7], strange, *pairs[7:]], 1)
    batches = TokenBatches(files=files, max_tokens=200, seed=1, vocabulary_sizes=(1000, 1000))
    with pytest.raises(UserError, match=r"record 7 of .*train-0.tfrecord is not a pair of ids"):
        list(batches.epoch(Position()))


def test_record_without_target_text_is_reported(tmp_path):
    files = write_shards(tmp_path, make_pairs(3), 1)
    assert read_target_texts(files, []) == {}
    with pytest.raises(UserError, match=r"record 2 of .* has no target_text. Create the dataset"):
        read_target_texts(files, [(str(files[0]), 2)])


def test_dataset_without_records_is_an_error(tmp_path):
    batches = TokenBatches(files=write_shards(tmp_path, [], 1), max_tokens=200, seed=1)
    with pytest.raises(UserError, match="no records"):
        next(batches.forever(Position()))
