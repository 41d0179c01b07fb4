"""Serialized records, TFRecord framing, and hashes of texts and pairs."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import parse_record, texts_of_record

from tt.model.dataset.tfrecords import ExampleWriter, framed_runs, with_texts
from tt.model.text.vocabulary import FlatIds
from tt.pipelines.preprocess.held_out import digest_each, digest_pairs, digest_texts

VOCABULARY_SIZE = 2_200_000  # Its ids take one, two, three or four bytes.
BORDERS = [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, VOCABULARY_SIZE - 1]
IDS = st.lists(st.sampled_from(BORDERS) | st.integers(0, VOCABULARY_SIZE - 1), max_size=150)


@pytest.fixture(scope="module")
def writer():
    return ExampleWriter(VOCABULARY_SIZE)


def flat(rows):
    rows = list(rows)
    ids = np.array([i for row in rows for i in row], np.int32)
    return FlatIds(ids, np.cumsum([len(row) for row in rows], dtype=np.int64))


def tensorflow_record(source_ids, target_ids, *texts):
    def feature(ids):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=ids))

    features = {"source": feature(source_ids), "target": feature(target_ids)}
    for name, text in zip(("source_text", "target_text"), texts, strict=False):
        value = tf.train.BytesList(value=[text.encode()])
        features[name] = tf.train.Feature(bytes_list=value)
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


@given(st.lists(st.tuples(IDS, IDS), max_size=5))
def test_records_match_tensorflow_and_can_be_parsed(writer, pairs):
    records = writer.serialize(
        flat(source for source, _ in pairs), flat(target for _, target in pairs)
    )
    assert records.to_pylist() == [tensorflow_record(*pair) for pair in pairs]
    assert [parse_record(record) for record in records.to_pylist()] == pairs


LONG_TEXTS = st.text(max_size=40) | st.integers(0, 20_000).map(lambda count: "ä" * count)


@given(source=IDS, target=IDS, texts=st.tuples(LONG_TEXTS, LONG_TEXTS))
def test_records_with_texts_match_tensorflow(writer, source, target, texts):
    [record] = writer.serialize(flat([source]), flat([target])).to_pylist()
    longer = with_texts(record, *texts)
    assert longer == tensorflow_record(source, target, *texts)
    assert parse_record(longer) == (source, target)
    assert (texts_of_record(record), texts_of_record(longer)) == (None, texts)
    ragged = tf.io.RaggedFeature(tf.int64)
    parsed = tf.io.parse_example([longer], {"source": ragged, "target": ragged})
    assert [parsed[side].to_list() for side in ("source", "target")] == [[source], [target]]


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_framing_matches_tensorflow(tmp_path_factory, records):
    path = str(tmp_path_factory.mktemp("framing") / "x")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    with open(path, "rb") as file:  # noqa: PTH123
        assert file.read() == b"".join(framed_runs(pa.array(records, pa.large_binary())))


def test_digest_depends_on_both_sides_and_on_the_seed():
    one, two = b"1", b"2"
    a, b = texts = digest_texts(["a", "b"])
    digests = [
        *texts,
        *digest_pairs([a, a, b], ["x", "y", "x"], salt=one),
        *digest_pairs([a], ["x"], salt=two),
        *digest_each(texts, salt=one),
        *digest_each(texts, salt=two),
    ]
    assert len(set(digests)) == len(digests) == 10
    assert digest_pairs(digest_texts(["a"]), ["x"], salt=one) == [digests[2]]
    assert digest_each(digest_texts(["b"]), salt=two) == [digests[-1]]
