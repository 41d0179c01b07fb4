"""Run a side that `stream.py` compares with a stream, in a separate process.

    python tests/bench/stream_sides.py loop BROKER INPUT OUTPUT MODEL     # until it is stopped
    python tests/bench/stream_sides.py bare TEXT MODEL

The loop is a program that a user would write around an engine: consume, tokenize, translate,
produce, flush, commit. With `--commit auto`, the consumer commits automatically, which is Kafka's
default.

Bare has the ids of all texts in memory, sorts them by length, and cuts them into batches of the
fastest size. It leaves a translation cut off at the length limit, but a stream retries it once with
twice the limit, unless the translation repeats itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from translate import cut

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.loading import convert, load_translator
from tt.model.engines.machine import cores
from tt.model.engines.translator import Engine
from tt.model.formats.foreign import load_tokens
from tt.model.formats.model_folder import find_model_folder
from tt.model.text.vocabulary import load_vocabularies
from tt.model.transformer.search_options import Decoding

AUTO, FLUSHED = "auto", "flushed"  # when the loop commits
_SIZES = ("32 sentences", "64 sentences", "128 sentences", "1024 tokens", "2048 tokens")
_SAMPLE = 1024  # texts for the trial of batch sizes
_WAIT = 0.5  # seconds until a partial batch runs, the default of `--max-latency`


def loop_ctranslate2(model: str, decoding: Decoding, size: int) -> Callable[[list[str]], list[str]]:
    """Return a function that translates texts with only SentencePiece and CTranslate2."""
    import ctranslate2
    import sentencepiece

    folder = find_model_folder(model)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(next(folder.glob("*.spm"))))
    translator = ctranslate2.Translator(
        str(convert(model)), compute_type="float32", inter_threads=cores(), intra_threads=1
    )

    def translate(texts: list[str]) -> list[str]:
        found = translator.translate_batch(
            pieces.encode(texts, out_type=str),
            beam_size=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            max_batch_size=size,
        )
        return [str(pieces.decode(each.hypotheses[0])) for each in found]

    return translate


def loop_tensorflow(model: str, decoding: Decoding, size: int) -> Callable[[list[str]], list[str]]:
    """Return a function that translates texts with only the engine tensorflow."""
    translator: Any = load_translator(model, decoding=decoding, engine=Engine(), threads=cores())
    return lambda texts: [each.text for each in translator.translate(texts)]


def run_loop(given: argparse.Namespace) -> None:
    """Translate messages until the process is stopped."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    make = loop_ctranslate2 if given.engine == "ctranslate2" else loop_tensorflow
    translate = make(given.model, Decoding(beam_size=given.beam_size), given.size)
    brokers = {"bootstrap.servers": given.broker}
    is_auto = given.commit == AUTO
    consumer = Consumer(
        {
            **brokers, "group.id": "loop", "auto.offset.reset": "earliest",
            **({} if is_auto else {"enable.auto.commit": False}),
        }
    )  # fmt: skip
    # A group would wait until a killed member's session times out, after 45 s by default.
    consumer.assign([TopicPartition(given.input, each) for each in range(given.partitions)])
    producer = Producer({**brokers, "linger.ms": 5})
    while True:
        messages = [each for each in consumer.consume(given.most, _WAIT) if not each.error()]
        if not messages:
            continue
        found = translate([each.value().decode() for each in messages])
        for message, text in zip(messages, found, strict=True):
            producer.produce(
                given.output, text, key=message.key(), headers=message.headers(),
                partition=message.partition(), timestamp=message.timestamp()[1],
            )  # fmt: skip
        producer.flush()
        if not is_auto:
            consumer.commit(asynchronous=False)


def bare_ctranslate2(model: str, decoding: Decoding) -> Callable[[list[Any]], list[bool]]:
    """Return a function that translates batches of ids, and reports which rows are complete."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(convert(model)), compute_type="float32", inter_threads=cores(), intra_threads=1
    )
    tokens = load_tokens(convert(model), "source")

    def translate(batches: list[Any]) -> list[bool]:
        queued = []
        for batch in batches:
            limit = decoding.length_limit(max(map(len, batch))) - 1
            queued.append(
                translator.translate_batch(
                    [[tokens[i] for i in row[1:-1]] for row in batch],  # without BOS and EOS
                    beam_size=decoding.beam_size,
                    length_penalty=decoding.length_penalty,
                    max_decoding_length=limit,
                    max_input_length=0,
                    return_scores=True,
                    asynchronous=True,
                )
            )
        found = [each.result() for results in queued for each in results]
        limits = [decoding.length_limit(len(row)) for batch in batches for row in batch]
        return [
            len(each.hypotheses[0]) < limit - 1 for each, limit in zip(found, limits, strict=True)
        ]

    return translate


def bare_tensorflow(model: str, decoding: Decoding) -> Callable[[list[Any]], list[bool]]:
    """Return a function that translates batches of ids, and reports which rows are complete."""
    translator: Any = load_translator(
        model,
        decoding=dataclasses.replace(decoding, batch_tokens=10**9),
        engine=Engine(),
        threads=1,
    )
    pool = ThreadPoolExecutor(cores())

    def translate(batches: list[Any]) -> list[bool]:
        made = pool.map(translator.translate_ids, batches)
        return [each.hypotheses[0].is_complete for found, _ in made for each in found]

    return translate


def run_bare(given: argparse.Namespace) -> dict[str, Any]:
    """Translate all texts; return sentences per second and CPU milliseconds per sentence."""
    texts = Path(given.text).read_text("utf-8").split("\n")
    decoding = Decoding(beam_size=given.beam_size)
    rows = load_vocabularies(find_model_folder(given.model)).source.encode(texts)
    make = bare_ctranslate2 if given.engine == "ctranslate2" else bare_tensorflow
    translate = make(given.model, decoding)

    def measure(some: list[list[int]], size: str) -> tuple[float, float, int]:
        start, before = time.perf_counter(), time.process_time()
        batches = list(cut(some, size, beam_size=decoding.beam_size))
        cut_off = translate(batches).count(False)
        return time.perf_counter() - start, time.process_time() - before, cut_off

    sample = rows[:_SAMPLE]
    measure(sample, _SIZES[0])  # traces
    size = given.cut or min(_SIZES, key=lambda each: measure(sample, each)[0])
    seconds, cpu, cut_off = measure(rows, size)
    return {
        "rate": len(rows) / seconds,
        "cpu_msec": 1000 * cpu / len(rows),
        "size": size,
        "cut_off": cut_off,
    }


def main() -> None:
    """Run one of the two sides."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sides = parser.add_subparsers(dest="side", required=True)
    loop, bare = sides.add_parser("loop"), sides.add_parser("bare")
    loop.add_argument("broker")
    loop.add_argument("input")
    loop.add_argument("output")
    loop.add_argument("model")
    loop.add_argument("--commit", choices=(AUTO, FLUSHED), default=FLUSHED)
    loop.add_argument("--most", type=int, default=1000, help="Consume at most N messages at once.")
    loop.add_argument("--size", type=int, default=64, help="Put N sentences in a batch.")
    loop.add_argument("--partitions", type=int, default=1)
    bare.add_argument("text")
    bare.add_argument("model")
    bare.add_argument("--cut", default="", help="Use this batch size instead of the fastest.")
    for each in (loop, bare):
        each.add_argument("--engine", default="ctranslate2")
        each.add_argument("--beam-size", type=int, default=1)
    given = parser.parse_args()
    if given.side == "loop":
        run_loop(given)
    else:
        print(json.dumps(run_bare(given)))


if __name__ == "__main__":
    main()
