"""Translate texts with only an engine, as a yardstick for `tt` and for the other engine.

    python tests/bench/engine_alone.py run texts.txt --engine ctranslate2 --compute-type int8

The program has the ids or pieces of all texts in memory, sorts them by length over all texts, and
cuts them into batches. TensorFlow has one Python thread per copy of the model, and the threads take
the batches in turn (`TensorFlowTranslator.translate`). CTranslate2 has the batches in one queue
(`translate_batch` with inter_threads). Each batch has the length limit of a job of `tt`, so that no
sentence runs longer than in the job. The clock starts after the model is loaded and has translated
one sentence. The program prints JSON: without --size, the texts per second of each batch size for a
sample; otherwise the seconds for all texts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.translator import ENGINES
from tt.model.transformer.search_options import Decoding

# Batch sizes to try: padded source ids over all beams, or sentences.
_TOKENS = ("1024 tokens", "2048 tokens", "4096 tokens", "8192 tokens", "16384 tokens")
_SIZES = {
    "tensorflow": _TOKENS,
    "ctranslate2": (*_TOKENS[:4], *(f"{size} sentences" for size in (32, 64, 128, 256, 512))),
}
_SAMPLE = 4096  # texts for the trials
_TIMED = 2  # trials per size
_UNLIMITED = 10**9


def cut(rows: Sequence[Any], size: str, *, beam_size: int) -> Iterator[list[Any]]:
    """Yield batches of similar length, the longest first.

    >>> list(cut([[1], [2, 2], [3]], "2 tokens", beam_size=1))
    [[[2, 2]], [[1], [3]]]
    """
    count, unit = size.split()
    ordered = sorted(rows, key=len, reverse=True)
    first = 0
    while first < len(ordered):
        longest = beam_size * len(ordered[first])
        taken = int(count) if unit == "sentences" else max(1, int(count) // longest)
        yield ordered[first : first + taken]
        first += taken


def tensorflow_engine(
    given: argparse.Namespace, decoding: Decoding
) -> Callable[[list[list[Any]]], int]:
    """Return a function that translates batches of ids, and returns the number of target ids."""
    from tt.model.engines.machine import keep_freed_memory, set_threads
    from tt.model.engines.tensorflow_engine import TensorFlowTranslator
    from tt.model.engines.translator import Input

    keep_freed_memory()
    set_threads(given.threads)
    translator = TensorFlowTranslator.load(
        given.model, compute_type=given.compute_type,
        decoding=dataclasses.replace(decoding, batch_tokens=_UNLIMITED),
    )  # fmt: skip
    pool = ThreadPoolExecutor(given.copies)

    def translate(batches: list[list[Any]]) -> int:
        inputs = ([Input("", len(row) - 2, encoded=row) for row in batch] for batch in batches)
        return sum(work.target_tokens for _, work in pool.map(translator.translate, inputs))

    return translate


def ctranslate2_engine(
    given: argparse.Namespace, decoding: Decoding
) -> Callable[[list[list[Any]]], int]:
    """Return a function that translates batches of pieces, and returns the number of target ids."""
    import ctranslate2

    from tt.model.engines.loading import convert

    translator = ctranslate2.Translator(
        str(convert(given.model)), compute_type=given.compute_type,
        inter_threads=given.copies, intra_threads=given.threads,
    )  # fmt: skip

    def translate(batches: list[list[Any]]) -> int:
        queued = [
            translator.translate_batch(
                batch,
                beam_size=decoding.beam_size,
                length_penalty=decoding.length_penalty,
                # The limit of the longest row, with BOS and EOS. The last id is EOS.
                max_decoding_length=decoding.length_limit(len(batch[0]) + 2) - 1,
                max_input_length=0,
                return_scores=True,
                asynchronous=True,
            )
            for batch in batches
        ]
        found = [waiting.result() for results in queued for waiting in results]
        return sum(len(result.hypotheses[0]) + 1 for result in found)

    return translate


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Translate the texts; without a size, find the rate of each size."""
    from tt.model.engines.loading import convert
    from tt.model.formats.foreign import load_tokens
    from tt.model.formats.model_folder import find_model_folder
    from tt.model.text.vocabulary import is_empty, load_vocabularies

    decoding = Decoding(beam_size=given.beam_size)
    if given.length_penalty is not None:
        decoding = dataclasses.replace(decoding, length_penalty=given.length_penalty)
    texts = Path(given.texts).read_bytes().decode().removesuffix("\n").split("\n")
    rows: list[Any] = load_vocabularies(find_model_folder(given.model)).source.encode(texts)
    rows = [row for row in rows if not is_empty(row)]
    make = tensorflow_engine
    if given.engine == "ctranslate2":
        make = ctranslate2_engine
        tokens = load_tokens(convert(given.model), "source")
        rows = [[tokens[i] for i in row[1:-1]] for row in rows]  # CTranslate2 adds BOS and EOS
    translate = make(given, decoding)
    translate([rows[:1]])  # traces, which is part of the start

    def seconds(some: list[Any], size: str) -> tuple[float, int]:
        batches = list(cut(some, size, beam_size=given.beam_size))
        start = time.perf_counter()
        target_tokens = translate(batches)
        return time.perf_counter() - start, target_tokens

    if not given.size:
        sample = sorted(rows, key=len)[:: -(-len(rows) // _SAMPLE)]  # all lengths
        fastest = {
            size: min(seconds(sample, size)[0] for _ in range(_TIMED))
            for size in _SIZES[given.engine]
        }
        return {"rates": {size: len(sample) / fastest[size] for size in fastest}}
    took, target_tokens = seconds(rows, given.size)
    return {
        "seconds": took, "rate": len(rows) / took, "sentences": len(rows),
        "target_tokens": target_tokens,
    }  # fmt: skip


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("texts", help="Read one sentence per line.")
    parser.add_argument("--engine", choices=ENGINES, default="tensorflow")
    parser.add_argument("--compute-type", default="float32")
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--length-penalty", type=float, help="Use this one, not the model's.")
    parser.add_argument("--copies", type=int, default=1, help="Translate N batches at a time.")
    parser.add_argument("--threads", type=int, default=1, help="Use N threads per batch.")
    parser.add_argument("--size", default="", help="Cut batches of this size: '2048 tokens'.")
    given = parser.parse_args()
    # `tt` sets the same value. TensorFlow reads it on import.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = str(int(given.compute_type != "float32"))
    print(json.dumps(measure(given)))


if __name__ == "__main__":
    main()
