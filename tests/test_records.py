"""Records, TFRecord framing, spills and the merge of a bucket."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from model.artifacts import TRAIN, VALIDATION
from pipelines.cleaning import DUPLICATE_PAIR, IN_VALIDATION
from pipelines.records import (
    HEADER,
    Batch,
    ExampleWriter,
    Place,
    SpillPart,
    SplitPlan,
    bucket_bounds,
    frame_records,
    framed_runs,
    hash_pair,
    hash_text,
    merge_bucket,
    parse_record,
    read_bucket,
    read_spill_footer,
    seed_key,
    write_spill,
)

IDS = st.lists(st.integers(0, 2**31), max_size=40)


def tensorflow_record(source_ids, target_ids):
    def feature(ids):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=ids))

    example = tf.train.Example(
        features=tf.train.Features(
            feature={"source": feature(source_ids), "target": feature(target_ids)}
        )
    )
    return example.SerializeToString(deterministic=True)


def batch(*rows):
    """Makes a batch of (key, source hash, row, record)."""
    headers = np.zeros(len(rows), HEADER)
    for i, (key, source_hash, row, record) in enumerate(rows):
        headers[i] = (key, source_hash, row, 1, 2, len(record))
    return Batch(headers, [record for *_, record in rows])


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5))
def test_record_bytes_are_those_of_tensorflow_and_parse_back(pairs):
    writer = ExampleWriter()  # used again and again: nothing of the last pair may stay
    for source_ids, target_ids in pairs:
        record = writer.serialize(source_ids, target_ids)
        assert record == tensorflow_record(source_ids, target_ids)
        assert parse_record(record) == (source_ids, target_ids)


def test_tensorflow_reads_framed_records(tmp_path):
    pairs = [([2, 5, 3], [2, 3]), ([2, 3], [2, 300, 70_000, 3])]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frame_records(ExampleWriter().serialize(*pair) for pair in pairs))
    ragged = tf.io.RaggedFeature(tf.int64)
    parsed = [
        tf.io.parse_single_example(record, {"source": ragged, "target": ragged})
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert [(p["source"].numpy().tolist(), p["target"].numpy().tolist()) for p in parsed] == pairs


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_framing_is_that_of_tensorflow(tmp_path_factory, records):
    path = str(tmp_path_factory.mktemp("framing") / "x")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    with open(path, "rb") as file:  # noqa: PTH123
        assert file.read() == b"".join(framed_runs(records))


def test_the_key_depends_on_both_sides_and_on_the_seed():
    one, two = seed_key(1), seed_key(2)
    a, b = hash_text("a"), hash_text("b")
    keys = {
        hash_pair(a, "x", key=one),
        hash_pair(a, "y", key=one),
        hash_pair(b, "x", key=one),
        hash_pair(a, "x", key=two),
    }
    assert len(keys) == 4
    assert hash_pair(hash_text("a"), "x", key=seed_key(1)) in keys


@pytest.mark.parametrize("buckets", [1, 2, 3, 16, 1000])
def test_bucket_bounds_cut_all_keys_into_equal_ranges(buckets):
    bounds = bucket_bounds(buckets).tolist()
    assert bounds == [min(k for k in (i * 2**64 // buckets, i * 2**64 // buckets + 1)
                          if k * buckets >= i * 2**64) for i in range(1, buckets)]  # fmt: skip


@settings(max_examples=30)
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), max_size=60),
    shards=st.integers(1, 4),
    buckets_per_shard=st.integers(1, 3),
)
def test_a_spill_gives_every_record_back_by_bucket(
    tmp_path_factory, keys, shards, buckets_per_shard
):
    work = str(tmp_path_factory.mktemp("spill"))
    records = [f"record {i}".encode() * (i % 3) for i in range(len(keys))]
    whole = batch(*((key, 7, row, records[row]) for row, key in enumerate(keys)))
    plan = SplitPlan(shards=shards, buckets_per_shard=buckets_per_shard)
    path = work + "/spill"
    written = write_spill(
        path,
        [SpillPart(split=TRAIN, batch=whole, plan=plan)],
        order=3,
        statistics={"rows": 5},
        temporary_folder=work,
    )
    assert read_spill_footer(path, order=3) == (written, {"rows": 5})
    found = {}
    for (split, shard), region in written:
        assert split == TRAIN
        for bucket in range(buckets_per_shard):
            part = read_bucket(region, bucket)
            for header, record in zip(part.headers, part.records, strict=True):
                place = shard * buckets_per_shard + bucket
                assert place == int(header["key"]) * plan.buckets >> 64
                found[int(header["row"])] = (int(header["key"]), record)
    assert found == {row: (key, records[row]) for row, key in enumerate(keys)}


def test_two_splits_in_one_spill(tmp_path):
    plan = SplitPlan(shards=1, buckets_per_shard=1)
    parts = [
        SpillPart(split=TRAIN, batch=batch((1, 1, 0, b"train")), plan=plan),
        SpillPart(split=VALIDATION, batch=batch((1, 1, 1, b"held")), plan=plan, is_candidate=True),
    ]
    path = str(tmp_path / "spill")
    regions = dict(write_spill(path, parts, order=0, statistics={}, temporary_folder=str(tmp_path)))
    assert read_bucket(regions[TRAIN, 0], 0).records == [b"train"]
    assert read_bucket(regions[VALIDATION, 0], 0).records == [b"held"]
    assert not regions[TRAIN, 0].is_candidate
    assert regions[VALIDATION, 0].is_candidate


def test_merge_sorts_and_keeps_the_least_place_of_equal_pairs():
    spills = [
        (1, batch((5, 0, 0, b"five"), (9, 0, 1, b"nine"))),
        (0, batch((5, 0, 8, b"five"), (7, 0, 2, b"seven"))),
        (0, batch((5, 0, 3, b"five"))),
    ]
    for order in (spills, spills[::-1]):  # whichever spill comes first
        merged = merge_bucket(order)
        assert merged.batch.records == [b"five", b"seven", b"nine"]
        assert merged.batch.headers["row"].tolist() == [3, 2, 1]
        assert merged.orders.tolist() == [0, 0, 1]
        assert merged.rejected == [
            (DUPLICATE_PAIR, Place(0, 8), Place(0, 3)),
            (DUPLICATE_PAIR, Place(1, 0), Place(0, 3)),
        ]


def test_merge_keeps_different_records_whose_keys_collide():
    merged = merge_bucket([(0, batch((5, 0, 1, b"b"), (5, 0, 0, b"a"), (5, 0, 2, b"b")))])
    assert merged.batch.records == [b"a", b"b"]
    assert merged.rejected == [(DUPLICATE_PAIR, Place(0, 2), Place(0, 1))]


def test_merge_leaves_out_sources_by_hash():
    spills = [(0, batch((1, 10, 0, b"a"), (2, 20, 1, b"b"), (3, 30, 2, b"c")))]
    assert merge_bucket(spills, moved=20).batch.records == [b"a", b"c"]
    assert merge_bucket(spills, only=20).batch.records == [b"b"]
    merged = merge_bucket(spills, removed=np.array([10, 30], np.uint64))
    assert merged.batch.records == [b"b"]
    assert merged.rejected == [
        (IN_VALIDATION, Place(0, 0), None),
        (IN_VALIDATION, Place(0, 2), None),
    ]


def test_merge_of_nothing():
    merged = merge_bucket([])
    assert merged.batch.records == []
    assert merged.rejected == []
