"""Shards of records, written by TensorFlow."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID


def write_shards(folder, pairs, count):
    """Write (source, target) id lists round-robin to `count` shards."""
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


def rows(batch):
    def strip(matrix):
        real = matrix[: len(batch.records)]
        return [tuple(i for i in row if i != PAD_ID) for row in real.tolist()]

    return list(zip(strip(batch.source), strip(batch.target), strict=True))
