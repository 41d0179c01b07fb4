"""Summaries of dataset folders, compared with counts that the tests compute from the records."""

from __future__ import annotations

import collections
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from tt.model.dataset.manifest import DatasetManifest
from tt.model.errors import UserError
from tt.model.inspection.batches import lengths_in, padded_batch, padding_section, read_batches
from tt.model.inspection.dataset import dataset_sections, read_pairs, rejected_blocks
from tt.model.text.vocabulary import Vocabulary, load_vocabularies


@pytest.fixture(scope="module")
def sections(dataset):
    return {each.anchor: each for each in dataset_sections(dataset, examples=2)}


@pytest.fixture(scope="module")
def records(dataset):
    manifest = DatasetManifest.load(dataset)
    return {name: list(read_pairs(dataset, manifest, name)) for name in manifest.splits}


@pytest.fixture(scope="module")
def batches(dataset):
    """All batches of one epoch."""
    manifest = DatasetManifest.load(dataset)
    return read_batches(dataset, manifest, batch_tokens=256, pairs=10**6)


def test_length_histograms_count_all_records(sections, records, batches):
    for side, lengths in enumerate(lengths_in(batches)):
        assert sorted(lengths) == sorted(len(pair.ids[side]) for pair in records["train"])
    titles = [block.title for block in sections["lengths"].blocks]
    assert titles == [
        "Lengths of train", "Ratio of lengths, train",
        "Lengths of validation", "Ratio of lengths, validation",
    ]  # fmt: skip
    for lengths, ratios, split in zip(*(sections["lengths"].blocks[i::2] for i in (0, 1)), records,
                                      strict=True):  # fmt: skip
        for _, histogram in (*lengths.series, *ratios.series):
            assert sum(histogram.counts) == len(records[split])


def test_padding_equals_shapes_minus_tokens(records, batches):
    section = padding_section(batches, batch_tokens=256)
    real = sum(len(ids) for pair in records["train"] for ids in pair.ids)
    positions = sum(batch.source.size + batch.target.size for batch in batches)
    share = 1 - real / positions
    assert section.title == f"Padding in batches of 256 tokens: {share:.1%} overall"
    [table] = section.blocks
    for rows, source, target, count, pairs, _ in table.rows:
        assert rows * max(source, target) <= 256
        own = [b for b in batches if (*b.source.shape, b.target.shape[1]) == (rows, source, target)]
        assert (len(own), sum(len(batch.records) for batch in own)) == (count, pairs)


def test_padded_batch_shows_the_inputs_and_labels_of_the_model(batches, records, dataset):
    folded = padded_batch(batches, load_vocabularies(dataset))
    known = {tuple(map(tuple, pair.ids)) for pair in records["train"]}
    parts = collections.defaultdict(list)
    name = ""
    for line in folded.blocks[0].lines:
        name = line[:12].strip() or name
        parts[name].append(line[14:].split())
    assert folded.title.startswith(f"{len(parts['encoder'])} of the ")
    for source, given, labels in zip(
        *(parts[name] for name in ("encoder ids", "decoder ids", "labels")), strict=True
    ):
        source, given, labels = (
            [int(i) for i in ids if i != "0"] for ids in (source, given, labels)
        )
        assert (tuple(source), (given[0], *labels)) in known
        assert given[1:] == labels[: len(given) - 1]
    assert len({len(row) for row in parts["encoder"]}) == 1


def test_samples_show_records_and_their_round_trip(sections, records, dataset):
    note, *samples, _ = sections["samples"].blocks
    assert "their texts are decoded" in note.text
    assert [each.title.partition(":")[0] for each in samples] == ["train"] * 2 + ["validation"] * 2
    for sample, pair in zip(samples, [*records["train"][:2], *records["validation"][:2]],
                            strict=True):  # fmt: skip
        assert sample.title.endswith(f"record {pair.record} of {pair.shard}")
        for row, ids, stored in zip(sample.blocks[0].rows, pair.ids, pair.texts, strict=True):
            assert row[3] == " ".join(map(str, ids))
            assert stored in (None, row[1])
            assert row[4] == "exact"
    assert records["validation"][0].texts[0] is not None


def test_rejected_pairs_have_examples_for_each_reason(dataset, tmp_path):
    rows = [
        {"reason": reason, "corpus": "c", "file": "f", "line": line, "source": "a", "target": "b",
         "survivor_corpus": None, "survivor_file": None, "survivor_line": None}
        for line, reason in enumerate(["long", "long", "odd", "long"], 1)
    ]  # fmt: skip
    rows[2] |= {"source": None, "survivor_file": "g", "survivor_line": 7}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rejected-0.parquet")
    manifest = DatasetManifest.load(dataset)
    manifest.rejected.clear()
    manifest.rejected.update({"odd": 1, "long": 3})
    bars, long, odd = rejected_blocks(tmp_path, manifest, examples=2)
    assert bars.counts == [("long", 3), ("odd", 1)]
    assert (long.title, [row[0] for row in long.blocks[0].rows]) == (
        "Rejected: long, 3", ["f:1", "f:2"],
    )  # fmt: skip
    assert odd.blocks[0].rows == [["f:3", None, "b", "g:7"]]
    (tmp_path / "rejected-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"rejected-0.parquet cannot be read: .* Copy the folder"):
        rejected_blocks(tmp_path, manifest, examples=2)


def test_validation_record_that_is_not_an_example_is_reported(dataset, tmp_path):
    copy = shutil.copytree(dataset, tmp_path / "data")
    [shard] = copy.glob("validation-*.tfrecord")
    with tf.io.TFRecordWriter(str(shard)) as writer:
        writer.write(b"no example at all")
    with pytest.raises(UserError, match=r"record 0 of validation-.* is not a tf.train.Example"):
        dataset_sections(copy)


def test_unknown_characters_of_validation_texts_are_counted(dataset, records, monkeypatch):
    monkeypatch.setattr(Vocabulary, "find_unknown", lambda self, text: text[:1])
    found = {each.anchor: each for each in dataset_sections(dataset, examples=0)}
    facts = dict(found["vocabulary"].blocks[-1].rows)
    for side, name in enumerate(("source", "target")):
        first = collections.Counter(pair.texts[side][0] for pair in records["validation"])
        [(letter, count), *_] = first.most_common()
        shown = facts[f"unknown in validation texts, {name}"]
        assert shown.startswith(f"{letter!r} {count:,}")
