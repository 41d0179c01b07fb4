"""Compare the pairs of two datasets whose bytes differ on purpose.

The pairs of each split are decoded from the shards, as (source, target). The rejected pairs stand
in `rejected-*.parquet`, as (source, target, reason). Both are compared as multisets: a place
is a pair, and its value the number of times that the dataset contains it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import tensorflow as tf
from compare.differences import Places, Results
from compare.running import CASE
from sentencepiece import SentencePieceProcessor

SPLITS = ("train", "validation", "test")
# Manifest keys that follow from the bytes and the tokens.
_OF_BYTES = ("fingerprint", "shards", "bytes", "digest", "tokens", "lengths", "size")


def use_pairs(results: Results, root: Path, folder: str) -> None:
    """Replace the files of a dataset by its pairs, in the results of a case."""
    for file in [file for file in results if file.startswith(f"{folder}/")]:
        places = results.pop(file)
        if file.endswith(".json"):
            results[file] = {
                place: value
                for place, value in places.items()
                if not any(word in place for word in _OF_BYTES)
            }
    results[f"{folder} (pairs)"] = count_pairs(root / CASE / folder)


def count_pairs(folder: Path) -> Places:
    """Return how often a dataset contains each kept and each rejected pair."""
    vocabularies = [
        SentencePieceProcessor(model_file=str(path if path.exists() else folder / "vocabulary.spm"))
        for path in (folder / "source.spm", folder / "target.spm")
    ]
    counts: Counter[str] = Counter()
    for split in SPLITS:
        for shard in sorted(folder.glob(f"{split}-*.tfrecord")):
            for record in read_records(shard):
                features = tf.train.Example.FromString(record).features.feature
                ids = [list(features[side].int64_list.value) for side in ("source", "target")]
                texts = [each.decode(row) for each, row in zip(vocabularies, ids, strict=True)]
                counts[f"{split}: {texts}"] += 1
    for file in sorted(folder.glob("rejected-*.parquet")):
        for row in pq.read_table(file).to_pylist():
            counts[f"{row['reason']}: {[row['source'], row['target']]}"] += 1
    return {pair: str(count) for pair, count in sorted(counts.items())}


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file: length, checksum, record, checksum."""
    with path.open("rb") as file:
        while head := file.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            yield file.read(length)
            file.read(4)
