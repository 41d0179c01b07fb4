"""Summaries of dataset folders, against counts made by hand from the same records."""

from __future__ import annotations

import collections
import dataclasses
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.dataset.manifest import DatasetManifest
from model.errors import UserError
from model.inspection.dataset import dataset_sections, merge_sources, summarize_dataset
from model.inspection.histograms import Histogram
from model.inspection.pairs import read_pairs, summarize_rejected
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, load_vocabularies


@pytest.fixture(scope="module")
def summary(dataset):
    return summarize_dataset(dataset, examples=2, batch_tokens=256)


@pytest.fixture(scope="module")
def records(dataset):
    manifest = DatasetManifest.load(dataset)
    return {name: list(read_pairs(dataset, manifest, name)) for name in manifest.splits}


def test_it_is_plain_data(summary):
    kept = json.loads(json.dumps(dataclasses.asdict(summary)))["manifest"]["pairs_kept"]
    assert kept == summary.manifest.pairs_kept


def test_splits_have_the_lengths_of_their_records(summary, records):
    for name, pairs in records.items():
        for side, lengths in enumerate(summary.lengths[name]):
            counts = collections.Counter(len(pair.ids[side]) for pair in pairs)
            assert lengths.counts == [counts[n] for n in range(min(counts), max(counts) + 1)]
            assert lengths.edges == list(range(min(counts), max(counts) + 2))
    [section] = [each for each in dataset_sections(summary) if each.anchor == "lengths"]
    titles = [block.title for block in section.blocks]
    assert titles == [
        "Lengths of train", "Ratio of lengths, train",
        "Lengths of validation", "Ratio of lengths, validation",
    ]  # fmt: skip
    for block, split in zip(section.blocks[1::2], records, strict=True):
        [(_, ratios)] = block.series
        assert ratios.total == len(records[split])


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_coverage_counts_the_tokens_of_the_training_split(summary, records, dataset, side):
    vocabulary = vars(load_vocabularies(dataset))[("source", "target")[side]]
    words = collections.Counter()
    tokens = []
    for pair in records["train"]:
        ids = pair.ids[side][1:-1]
        tokens += ids
        names = vocabulary.names(ids)
        starts = [i for i, name in enumerate(names) if not i or name.startswith("▁")]
        for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
            words["".join(names[start:end]).replace("▁", "")] = end - start
    found = summary.batches.coverage[side]
    assert summary.batches.pairs == len(records["train"])
    assert found.tokens == len(tokens)
    assert found.tokens_used == len(set(tokens))
    assert found.unknown == tokens.count(UNK_ID)
    most = sorted(words.values(), reverse=True)[: len(found.longest_words)]
    assert [length for _, length in found.longest_words] == most
    assert all(words[word] == length for word, length in found.longest_words)
    assert found.tokens_per_word == pytest.approx(found.tokens / found.words)


def test_padding_is_what_is_left_of_the_shapes(summary, records):
    batches = summary.batches
    real = sum(len(ids) for pair in records["train"] for ids in pair.ids)
    positions = sum(
        shape["batches"] * shape["rows"] * (shape["source_length"] + shape["target_length"])
        for shape in batches.shapes
    )
    assert batches.padding == pytest.approx(1 - real / positions)
    assert sum(shape["pairs"] for shape in batches.shapes) == batches.pairs
    assert all(shape["rows"] * shape["source_length"] <= 256 for shape in batches.shapes)


def test_the_batch_is_what_the_model_gets(summary, records):
    batch = summary.batches.batch
    known = {tuple(map(tuple, pair.ids)) for pair in records["train"]}
    for source, given_ids, labels in zip(
        batch.source, batch.decoder_input, batch.labels, strict=True
    ):
        pair = [i for i in source if i != PAD_ID], [i for i in labels if i != PAD_ID]
        assert (tuple(pair[0]), (BOS_ID, *pair[1])) in known
        assert given_ids[0] == BOS_ID
        assert pair[1][-1] == EOS_ID
    assert len({len(row) for row in batch.source}) == 1


def test_samples_are_records_with_their_way_back(summary, records):
    assert [each.split for each in summary.samples] == ["train"] * 2 + ["validation"] * 2
    for sample in summary.samples:
        [pair] = [each for each in records[sample.split]
                  if (each.shard, each.record) == (sample.shard, sample.record)]  # fmt: skip
        for text, ids, stored in zip(
            (sample.source, sample.target), pair.ids, pair.texts, strict=True
        ):
            assert (text.ids, text.text) == (ids, stored)
            assert len(text.tokens) == len(ids)
            assert text.comes_back
    assert summary.samples[2].source.text is not None


def test_unknown_parts_are_found_in_a_text(dataset):
    vocabulary = load_vocabularies(dataset).source
    assert vocabulary.find_unknown("你好") == ["你好"]
    [word] = [vocabulary.piece(i) for i in [max(vocabulary.learnt_pieces().values())[0]]]
    assert vocabulary.find_unknown(word.replace("▁", "")) == []


def test_rejected_pairs_come_with_the_first_examples_of_each_reason(tmp_path):
    rows = [
        {"reason": reason, "corpus": "c", "file": "f", "line": line, "source": "a", "target": "b",
         "survivor_corpus": None, "survivor_file": None, "survivor_line": None}
        for line, reason in enumerate(["long", "long", "odd", "long"], 1)
    ]  # fmt: skip
    rows[2] |= {"source": None, "survivor_file": "g", "survivor_line": 7}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rejected-0.parquet")
    long, odd = summarize_rejected(tmp_path, {"odd": 1, "long": 3}, examples=2)
    assert (long.reason, long.count, [each["line"] for each in long.examples]) == (
        "long",
        3,
        [1, 2],
    )
    assert odd.examples == [rows[2]]
    (tmp_path / "rejected-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"rejected-0.parquet cannot be read: .* Copy the folder"):
        summarize_rejected(tmp_path, {"odd": 1}, examples=2)


def test_sources_of_one_name_are_one():
    part = {"name": "a", "kind": "text", "is_held_out": False, "read": 3, "kept": 2,
            "files": [{"path": "x"}], "rejected": {"long": 1}}  # fmt: skip
    other = {**part, "files": [{"path": "y"}], "rejected": {"odd": 2}}
    [source] = merge_sources([part, other])
    assert (source["read"], source["kept"], source["files"]) == (6, 4, ["x", "y"])
    assert source["rejected"] == {"long": 1, "odd": 2}


def test_a_damaged_shard_is_named(dataset, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(dataset, copy)
    shard = next(copy.glob("train-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(UserError, match="is cut off"):
        summarize_dataset(copy)


@given(st.lists(st.floats(-5, 15), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_in_the_bin_of_its_value(values, share):
    histogram = Histogram.of(values, edges=range(11), unit="")
    assert histogram.total == len(values)
    found = histogram.quantile(share)
    below = sum(count for edge, count in zip(histogram.edges[1:], histogram.counts, strict=True)
                if edge <= found)  # fmt: skip
    assert below <= share * len(values) + 1e-9
    assert histogram.trimmed().total == len(values)


def test_nothing_has_no_quantile():
    assert Histogram(unit="", edges=[0, 1], counts=[0]).quantile(0.5) is None
