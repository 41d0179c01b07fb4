"""Count the held-out lines that survive encoding and decoding under each SentencePiece rule.

    .venv/bin/python tests/bench/round_trip.py

Reads the real corpora of `../shared/data`, and prints one row per corpus and rule: held-out lines,
lines that `decode(encode(line))` restores exactly, other lines with an unknown token, unknown
tokens, single characters in the vocabulary, and tokens per line.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path

import pyarrow as pa

from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import SHARED_MODEL, UNK_ID, Vocabulary
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.vocabularies import distinct_lines, train_vocabulary

DATA = Path(__file__).resolve().parents[2].parent / "shared/data"
CORPORA = {  # folder, training split, held-out split, languages
    "Multi30k": ("multi30k", "train", "test_2016_flickr", ("en", "de")),
    "Tatoeba": ("tatoeba_de_en", "train", "test", ("de", "en")),
    "Tatoeba zh": ("tatoeba_zh_en", "train", "test", ("zh", "en")),
    "TED": ("ted_ru_en", "train_not_ted", "test", ("ru", "en")),
    "news": ("news_zh_en", "train", "test", ("zh", "en")),
}
SAMPLE_LINES = 200_000
NORMALIZATION = TextNormalization()


def read(folder: str, split: str, languages: tuple[str, ...]) -> list[str]:
    """Read both sides of a corpus, normalized, without empty lines."""
    lines: list[str] = []
    for language in languages:
        data = gzip.decompress((DATA / folder / f"{split}.{language}.gz").read_bytes())
        lines += NORMALIZATION(data.decode().split("\n"))
    return [line for line in lines if line]


def load(sample: pa.Table, *, rule: str, size: int) -> Vocabulary:
    """Train a vocabulary."""
    options = PreprocessOptions(
        output="", vocabulary_size=size, sentencepiece_rule=rule, protect=False
    )
    model = train_vocabulary(sample, options, file=SHARED_MODEL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.spm"
        path.write_bytes(model)
        return Vocabulary(path, NORMALIZATION)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", nargs="+", default=["nmt_nfkc", "identity"])
    parser.add_argument("--size", type=int, default=8000)
    given = parser.parse_args()
    for name, (folder, train, held_out, languages) in CORPORA.items():
        sample = distinct_lines(read(folder, train, languages)).slice(0, SAMPLE_LINES)
        lines = read(folder, held_out, languages)
        for rule in given.rules:
            vocabulary = load(sample, rule=rule, size=given.size)
            ids = vocabulary.encode(lines)
            lost = [
                row for row, a, b in zip(ids, lines, vocabulary.decode(ids), strict=True) if a != b
            ]
            unknown = sum(row.count(UNK_ID) for row in ids)
            tokens = sum(map(len, ids)) - 2 * len(ids)
            pieces = [vocabulary.piece(i) for i in range(vocabulary.piece_count)]
            print(
                f"{name:<10}  {rule:<9}  restored {len(lines) - len(lost):,} of {len(lines):,} "
                f"({1 - len(lost) / len(lines):.2%}; {sum(UNK_ID in row for row in lost)} of the "
                f"others with unknown tokens)  unknown {unknown} of {tokens:,}  "
                f"characters {sum(len(piece) == 1 for piece in pieces):,}  "
                f"tokens per line {tokens / len(lines):.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
