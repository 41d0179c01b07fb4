"""What `stream.py` measures a stream against; each is a process of its own.

    python tests/bench/stream_sides.py loop KIND BROKER INPUT OUTPUT MODEL     # until it is ended
    python tests/bench/stream_sides.py bare TEXT MODEL

The loop is what a user would write by hand around an engine: consume, tokenise, translate, produce,
flush, commit. With `--commit auto` it has the consumer commit by itself, as it does by default.

Bare has the ids of all texts in memory, sorts them by length over all, and cuts them into batches
of the size that is the fastest for it. What is cut off at the limit of length stays so; a stream
tries it once more with twice the room, unless it repeats itself.
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

# The project stands two folders up where this file is run and not imported.
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
_SAMPLE = 1024  # texts that sizes of batches are tried on
_WAIT = 0.5  # seconds that the loop waits for a batch to fill, as `--max-latency` is by default


def loop_ctranslate2(model: str, decoding: Decoding, size: int) -> Callable[[list[str]], list[str]]:
    """Returns texts to translations, by SentencePiece and CTranslate2 alone."""
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
    """Returns texts to translations, by the engine tensorflow alone."""
    translator: Any = load_translator(model, decoding=decoding, engine=Engine(), threads=cores())
    return lambda texts: [each.text for each in translator.translate(texts)]


def run_loop(given: argparse.Namespace) -> None:
    """Translates messages until the process is ended."""
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
    # A group would wait for the session of a member that was killed to end, 45 s by default.
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
    """Returns what translates batches of ids, and says of each row whether it came to its end."""
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
                    [[tokens[i] for i in row[1:-1]] for row in batch],  # it adds BOS and EOS
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
    """Returns what translates batches of ids, and says of each row whether it came to its end."""
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
    """Translates all texts; returns sentences a second, and milliseconds of CPU for each."""
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
    """Runs one of both."""
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
    loop.add_argument("--most", type=int, default=1000, help="messages consumed at once")
    loop.add_argument("--size", type=int, default=64, help="sentences of a batch")
    loop.add_argument("--partitions", type=int, default=1)
    bare.add_argument("text")
    bare.add_argument("model")
    bare.add_argument("--cut", default="", help="size of batches; by default the fastest")
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
