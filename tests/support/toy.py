"""A toy language pair that a small model learns in seconds: number words, reversed.

The tests of training, translation and the command line share it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import sentencepiece
import tensorflow as tf

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest, SplitInfo, shard_name
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import (
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY_FILE,
    load_vocabularies,
    vocabulary_json,
)
from tt.model.transformer.config import TransformerConfig

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@dataclasses.dataclass(frozen=True)
class TrainedToy:
    """The results of the fixture `trained_toy`."""

    dataset: Path
    run: Path
    reports: list


def toy_sentences(count, seed):
    """Return `count` pairs: 1 to 6 words, and the same words in reversed order."""
    generator = np.random.default_rng(seed)
    sources = [
        " ".join(DIGITS[i] for i in generator.integers(0, 10, generator.integers(1, 7)))
        for _ in range(count)
    ]
    return [(source, " ".join(reversed(source.split()))) for source in sources]


def write_vocabulary(folder, words=DIGITS):
    """Train a shared vocabulary of ten whole words in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words)] * 10),
        model_prefix=str(folder / "toy"), model_type="word", vocab_size=14,
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    (folder / "toy.model").rename(folder / SHARED_MODEL)
    (folder / "toy.vocab").unlink()
    (folder / VOCABULARY_FILE).write_text(
        vocabulary_json(shared=True, normalization=TextNormalization())
    )
    return load_vocabularies(folder)


def write_spelled_vocabularies(folder):
    """Train a vocabulary for each side in the folder; its tokens are parts of words."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in ((SOURCE_MODEL, 40), (TARGET_MODEL, 32)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([" ".join(DIGITS)] * 10),
            model_prefix=str(folder / "toy"), model_type="bpe", vocab_size=size,
            pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
        )  # fmt: skip
        (folder / "toy.model").rename(folder / name)
    (folder / "toy.vocab").unlink()
    (folder / VOCABULARY_FILE).write_text(
        vocabulary_json(shared=False, normalization=TextNormalization())
    )
    return load_vocabularies(folder)


def write_dataset(
    folder, *, train=2000, validation=50, fingerprint="toy", shards=1, write=write_vocabulary,
    reference=str,
):  # fmt: skip
    """Write a finished dataset folder without Beam, with `shards` shards per split.

    `reference` converts the encoded validation targets to their texts.
    """
    vocabularies = write(folder)
    splits = {}
    for seed, (split, count) in enumerate({"train": train, "validation": validation}.items()):
        sources, targets = zip(*toy_sentences(count, seed), strict=True) if count else ([], [])
        ids = [vocabularies.source.encode(list(sources)), vocabularies.target.encode(list(targets))]
        names = [shard_name(split, i, shards) for i in range(shards)]
        for i, name in enumerate(names):
            with tf.io.TFRecordWriter(str(folder / name)) as writer:
                pairs = list(zip(*ids, sources, targets, strict=True))
                for source, target, *texts in pairs[i::shards]:
                    feature = {
                        "source": tf.train.Feature(int64_list=tf.train.Int64List(value=source)),
                        "target": tf.train.Feature(int64_list=tf.train.Int64List(value=target)),
                    }
                    if split == "validation":
                        texts = [texts[0], reference(texts[1])]
                        for side, text in zip(("source_text", "target_text"), texts, strict=True):
                            value = tf.train.BytesList(value=[text.encode()])
                            feature[side] = tf.train.Feature(bytes_list=value)
                    example = tf.train.Example(features=tf.train.Features(feature=feature))
                    writer.write(example.SerializeToString())
        splits[split] = SplitInfo(
            shards=names, records=count, longest=max(map(len, ids[0] + ids[1]), default=0),
            source_tokens=sum(map(len, ids[0])), target_tokens=sum(map(len, ids[1])),
            source_lengths=[count], target_lengths=[count],
        )  # fmt: skip
    manifest = DatasetManifest(
        fingerprint=fingerprint, version="0", corpus="toy", source_language="", target_language="",
        source_vocabulary_size=vocabularies.source.size,
        target_vocabulary_size=vocabularies.target.size,
        shared_vocabulary=vocabularies.is_shared,
        lines_read=train + validation, pairs_kept=train + validation,
        rejected={}, sources=[], splits=splits, options={},
    )  # fmt: skip
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    return manifest


def texts_of_record(record):
    """Return the source and target texts of a serialized tf.train.Example, or None for no texts."""
    feature = tf.train.Example.FromString(record).features.feature
    names = ("source_text", "target_text")
    if not any(name in feature for name in names):
        return None
    values = [feature[name].bytes_list.value for name in names]
    return tuple(text.decode() for [text] in values)


def parse_record(record):
    """Return the source and target ids of a serialized tf.train.Example."""
    feature = tf.train.Example.FromString(record).features.feature
    return tuple(list(feature[side].int64_list.value) for side in ("source", "target"))


def gradients_of(trainer):
    """Return a function that computes the gradients of a global batch, without dropout.

    The function takes source and target ids, int32 [B, S] and [B, T], for all replicas together. It
    returns the gradients of the mean loss per token, which are the same on all replicas.
    """
    strategy = trainer.workers.strategy

    def on_replica(source, target):
        tokens = tf.cast(tf.math.count_nonzero(target[:, 1:]), tf.float32)
        own, _ = trainer._step._own_gradients(source, target, tokens=tokens, seed=None)
        return trainer._step._sum_over_replicas(own)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def on_batch(source, target):
        plain = tf.autograph.experimental.do_not_convert(on_replica)
        per_replica = strategy.run(plain, args=(source, target))
        return [strategy.experimental_local_results(value)[0] for value in per_replica]

    return lambda *batch: [gradient.numpy() for gradient in on_batch(*batch)]


def toy_config(**fields):
    """Return the configuration of a model for the toy vocabulary of 16 ids."""
    config = TransformerConfig(
        source_vocabulary_size=16, target_vocabulary_size=16, shared_vocabulary=True,
        layers=2, d_model=32, heads=4, d_ff=64, dropout=0.0,
    )  # fmt: skip
    return dataclasses.replace(config, **fields)
