"""The yardstick: SentencePiece alone encodes both sides of a corpus, on one thread.

Only `encode` is timed. The texts lie in lists beforehand, and the ids are thrown away.
"""

from __future__ import annotations

import argparse
import json
import time

import pyarrow.parquet as pq
import sentencepiece

_SLICES = (1024, 16 * 1024)  # texts a call; the faster is used
_TRIED_TEXTS = 32 * 1024


def encode_seconds(
    processor: sentencepiece.SentencePieceProcessor, texts: list[str], *, at_once: int
) -> float:
    """Encodes texts, so many a call, and returns how long that took."""
    start = time.perf_counter()
    for i in range(0, len(texts), at_once):
        processor.encode(texts[i : i + at_once], add_bos=True, add_eos=True, num_threads=1)
    return time.perf_counter() - start


def main() -> None:
    """Prints the seconds, and the texts a call, as JSON."""
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
