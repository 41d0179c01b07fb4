"""Spill files and the merge of a bucket."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.model.dataset.manifest import TRAIN
from tt.model.storage import files
from tt.pipelines.preprocess import spills
from tt.pipelines.preprocess.spills import (
    HEADER,
    Batch,
    SplitPlan,
    find_spill,
    merge_bucket,
    read_buckets,
    without_copies,
    write_spill,
)
from tt.pipelines.preprocess.work_folder import WorkFolder


def batch(*rows):
    """Return a batch of (group, source hash, row, record); the sort key equals the group."""
    return of_source(0, *rows)


def of_source(order, *rows):
    """Return a batch like `batch`, from the source at a position."""
    headers = np.zeros(len(rows), HEADER)
    for i, (group, source_hash, row, record) in enumerate(rows):
        headers[i] = (group, 0, group, source_hash, row, order, 1, 2, 0, False, len(record))
    return Batch(headers, pa.array([record for *_, record in rows], pa.large_binary()))


def texts(found):
    """Return the records of a batch."""
    return found.records.to_pylist()


def pairs(headers):
    return list(zip(headers["order"].tolist(), headers["row"].tolist(), strict=True))


@settings(max_examples=30)
@given(
    groups=st.lists(st.integers(0, 2**64 - 1), max_size=60),
    shards=st.integers(1, 4),
    buckets_per_shard=st.integers(1, 3),
    most_bytes=st.sampled_from([0, 300, 1 << 20]),
)
def test_records_of_a_spill_are_read_back_by_bucket(
    tmp_path_factory, groups, shards, buckets_per_shard, most_bytes
):
    work = str(tmp_path_factory.mktemp("spill"))
    records = [f"record {i}".encode() * (i % 3) for i in range(len(groups))]
    whole = batch(*((group, 7, row, records[row]) for row, group in enumerate(groups)))
    plan = SplitPlan(shards=shards, buckets_per_shard=buckets_per_shard)
    path = work + "/spill"
    written = write_spill(
        path,
        {TRAIN: whole},
        plans={TRAIN: plan},
        order=3,
        index=4,
        statistics={"rows": 5},
        vocabulary={"a.spm": "7f"},
        work=WorkFolder(work),
    )
    assert find_spill(path) == (written, {"rows": 5}, {"a.spm": "7f"})
    found = {}
    for (split, shard), region in written:
        assert (split, region.order, region.index) == (TRAIN, 3, 4)
        for bucket, found_there in enumerate(
            read_buckets([region], buckets=buckets_per_shard, most_bytes=most_bytes)
        ):
            part = found_there[0] if found_there else batch()
            assert part.headers["row"].tolist() == sorted(part.headers["row"])
            for header, record in zip(part.headers, part.records.to_pylist(), strict=True):
                place = shard * buckets_per_shard + bucket
                assert place == int(header["group_high"]) * plan.buckets >> 64
                found[int(header["row"])] = (int(header["group_high"]), record)
    assert found == {row: (group, records[row]) for row, group in enumerate(groups)}


def spill(tmp_path, index, groups, *, buckets):
    """Write a spill of 50-byte records for one shard, and return its region."""
    plan = SplitPlan(shards=1, buckets_per_shard=buckets)
    whole = batch(*((group, 7, row, b"x" * 50) for row, group in enumerate(groups)))
    work, path = WorkFolder(str(tmp_path)), str(tmp_path / f"spill-{index}")
    [[_, region]] = write_spill(
        path, {TRAIN: whole}, plans={TRAIN: plan}, order=0, index=index, statistics={},
        vocabulary={}, work=work,
    )  # fmt: skip
    return region


def test_spill_of_another_size_counts_as_missing(tmp_path):
    path = Path(spill(tmp_path, 0, range(3), buckets=2).path)
    assert find_spill(str(path))
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert find_spill(str(path)) is None
        path.write_bytes(content[-size:] if size else b"")  # The end has a complete footer.
        assert find_spill(str(path)) is None
    path.unlink()
    assert find_spill(str(path)) is None


@pytest.mark.parametrize(("most_bytes", "reads"), [(1 << 20, 1), (2500, 4), (0, 8)])
def test_neighboring_buckets_are_read_together_within_the_memory_limit(
    tmp_path, monkeypatch, most_bytes, reads
):
    """Each of five spills has eight buckets of two records, and a record takes 107 bytes."""
    asked = []

    def read_range(path, begin, end):
        asked.append((path, end - begin))
        return Path(path).read_bytes()[begin:end]

    monkeypatch.setattr(files, "read_range", read_range)
    groups = [bucket * 2**61 + i for bucket in range(8) for i in range(2)]
    regions = [spill(tmp_path, index, groups, buckets=8) for index in range(5)]
    found = list(read_buckets(regions, buckets=8, most_bytes=most_bytes))
    assert [len(batches) for batches in found] == [5] * 8
    assert len(asked) == 5 * reads
    wanted = sum(region.bounds[-1] - region.bounds[0] for region in regions)
    assert sum(size for _, size in asked) == wanted == 5 * 16 * (HEADER.itemsize + 50)
    records = [merge_bucket(batches, deduplicate=False).batch.records for batches in found]
    assert [len(bucket) for bucket in records] == [10] * 8


def test_footer_that_is_longer_than_the_first_read(tmp_path, monkeypatch):
    region = spill(tmp_path, 0, range(9), buckets=3)
    monkeypatch.setattr(spills, "_TAIL_BYTES", 20)
    assert find_spill(region.path) == ([((TRAIN, 0), region)], {}, {})


def test_sort_key_may_differ_from_the_group():
    spilled = batch((1, 0, 0, b"a"), (2, 0, 1, b"b"), (2, 0, 2, b"c"), (3, 0, 3, b"d"))
    spilled.headers["key"] = [8, 6, 1, 7]
    merged = merge_bucket([spilled])
    assert texts(merged.batch) == [b"b", b"d", b"a"]
    assert pairs(merged.duplicates) == [(0, 2)]


def test_records_with_half_of_a_digest_in_common_are_not_duplicates():
    spilled = batch(*((5, 0, row, record) for row, record in enumerate([b"a", b"b", b"a", b"b"])))
    spilled.headers["group_low"] = [1, 2, 1, 2]
    merged = merge_bucket([spilled])
    assert texts(merged.batch) == [b"a", b"b"]
    assert pairs(merged.duplicates) == [(0, 2), (0, 3)]
    assert pairs(merged.survivors) == [(0, 0), (0, 1)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30), st.integers(1, 4))
def test_merge_matches_a_dictionary(groups, spill_rows):
    """Units have `spill_rows` rows each, and drop the bytes of duplicates inside the unit."""
    kept, dropped = {}, []
    for row, group in enumerate(groups):
        if group in kept:
            dropped.append((row, kept[group]))
        else:
            kept[group] = row
    spills = []
    for begin in range(0, len(groups), spill_rows):
        rows = range(begin, min(begin + spill_rows, len(groups)))
        part = batch(*((groups[r][0], 0, r, str(groups[r]).encode()) for r in rows))
        part.headers["group_low"] = [groups[r][1] for r in rows]
        spills.append(without_copies(part))
    merged = merge_bucket(spills)
    assert sorted(texts(merged.batch)) == sorted(str(group).encode() for group in kept)
    assert sorted(merged.batch.headers["row"].tolist()) == sorted(kept.values())
    found = zip(merged.duplicates["row"].tolist(), merged.survivors["row"].tolist(), strict=True)
    assert list(found) == dropped
