"""Map a corpus to ids with Hugging Face `datasets` and `tokenizers`, with the same model.

Only `map` is timed, and its output is its Arrow cache. It encodes and adds BOS and EOS. It does not
filter, drop duplicates, shuffle or write TFRecords.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import datasets
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

_COMPARED_TEXTS = 1000


def convert(model_file: str) -> tokenizers.Tokenizer:
    """Make a tokenizer with the pieces, scores and normalization of a unigram model."""
    model = sentencepiece_model_pb2.ModelProto()
    with open(model_file, "rb") as file:  # noqa: PTH123 -- an unchanged path
        model.ParseFromString(file.read())
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    trainer = model.trainer_spec
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, trainer.unk_id))
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [
            tokenizers.normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            tokenizers.normalizers.Strip(left=True, right=True),
            tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = tokenizers.decoders.Metaspace(prepend_scheme="always")
    bos, eos = pieces[trainer.bos_id][0], pieces[trainer.eos_id][0]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{bos} $A {eos}", special_tokens=[(bos, trainer.bos_id), (eos, trainer.eos_id)]
    )
    return tokenizer


def main() -> None:
    """Print the seconds, and the share of texts whose ids equal SentencePiece's, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("vocabulary")
    parser.add_argument("--cache", required=True, help="Cache the ids in this empty folder.")
    options = parser.parse_args()
    datasets.disable_progress_bars()
    tokenizer = convert(options.vocabulary)
    pairs = datasets.Dataset.from_parquet(options.corpus, cache_dir=options.cache)

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {
            side: [encoded.ids for encoded in tokenizer.encode_batch_fast(batch[side])]
            for side in ("source", "target")
        }

    start = time.perf_counter()
    pairs.map(
        encode, batched=True, batch_size=1000, load_from_cache_file=False,
        features=datasets.Features(
            {side: datasets.Sequence(datasets.Value("int32")) for side in ("source", "target")}
        ),
    )  # fmt: skip
    seconds = time.perf_counter() - start

    processor = sentencepiece.SentencePieceProcessor(model_file=options.vocabulary)
    texts = pairs[: _COMPARED_TEXTS // 2]
    compared = texts["source"] + texts["target"]
    expected = processor.encode(compared, add_bos=True, add_eos=True)
    received = [encoded.ids for encoded in tokenizer.encode_batch_fast(compared)]
    equal = sum(a == b for a, b in zip(expected, received, strict=True))
    print(json.dumps({"seconds": seconds, "equal_ids": equal / len(compared)}))


if __name__ == "__main__":
    main()
