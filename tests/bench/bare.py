"""Encode both sides of a corpus on one thread with only SentencePiece, as a yardstick.

Only `encode` is timed. The texts are in lists before it starts, and the ids are discarded.
"""

from __future__ import annotations

import argparse
import json
import time

import pyarrow.parquet as pq
import sentencepiece

_SLICES = (1024, 16 * 1024)  # texts per call; the faster size is used
_TRIED_TEXTS = 32 * 1024


def encode_seconds(
    processor: sentencepiece.SentencePieceProcessor, texts: list[str], *, at_once: int
) -> float:
    """Encode `at_once` texts per call, and return the seconds that this took."""
    start = time.perf_counter()
    for i in range(0, len(texts), at_once):
        processor.encode(texts[i : i + at_once], add_bos=True, add_eos=True, num_threads=1)
    return time.perf_counter() - start


def main() -> None:
    """Print the seconds, and the number of texts per call, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("vocabulary")
    options = parser.parse_args()
    processor = sentencepiece.SentencePieceProcessor(model_file=options.vocabulary)
    table = pq.read_table(options.corpus)
    texts = table["source"].to_pylist() + table["target"].to_pylist()
    del table
    tried = texts[:_TRIED_TEXTS]
    encode_seconds(processor, tried, at_once=_SLICES[0])  # warms the caches
    trials = {size: encode_seconds(processor, tried, at_once=size) for size in _SLICES}
    at_once = min(trials, key=trials.__getitem__)
    seconds = encode_seconds(processor, texts, at_once=at_once)
    print(json.dumps({"seconds": seconds, "at_once": at_once}))


if __name__ == "__main__":
    main()
