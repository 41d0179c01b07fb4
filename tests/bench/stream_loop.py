"""Translate a Kafka topic with the loop that a user would write around an engine.

    python tests/bench/stream_loop.py BROKER INPUT OUTPUT MODEL     # until it is stopped

Consume, tokenize, translate, produce, flush, commit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
from confluent_kafka import Consumer, Producer, TopicPartition

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.loading import convert, load_translator
from tt.model.engines.machine import cores
from tt.model.engines.translator import Engine
from tt.model.formats.model_folder import find_model_folder
from tt.model.transformer.search_options import Decoding

_WAIT = 0.5  # seconds until a partial batch runs, the default of `--max-latency`


def make_ctranslate2(model: str, decoding: Decoding, size: int) -> Callable[[list[str]], list[str]]:
    """Return a function that translates texts with only SentencePiece and CTranslate2."""
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


def make_tensorflow(model: str, decoding: Decoding, size: int) -> Callable[[list[str]], list[str]]:
    """Return a function that translates texts with only the engine tensorflow."""
    translator: Any = load_translator(model, decoding=decoding, engine=Engine(), threads=cores())
    return lambda texts: [each.text for each in translator.translate(translator.prepare(texts))[0]]


def main() -> None:
    """Translate messages until the process is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("broker", "input", "output", "model"):
        parser.add_argument(name)
    parser.add_argument("--most", type=int, default=1000, help="Consume N messages at once.")
    parser.add_argument("--size", type=int, default=64, help="Put N sentences in a batch.")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--engine", default="ctranslate2")
    parser.add_argument("--beam-size", type=int, default=1)
    given = parser.parse_args()
    make = make_ctranslate2 if given.engine == "ctranslate2" else make_tensorflow
    translate = make(given.model, Decoding(beam_size=given.beam_size), given.size)
    brokers = {"bootstrap.servers": given.broker}
    consumer = Consumer(
        brokers | {"group.id": "loop", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
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
        consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
