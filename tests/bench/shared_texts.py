"""Count the texts that two corpora share by chance, by their number of tokens.

    .venv/bin/python tests/bench/shared_texts.py

Reads the real corpora of `../shared/data`, and looks up each English text of TED's held-out parts
in the English side of Tatoeba. A vocabulary of 8,000 counts the tokens, without BOS and EOS.
"""

from __future__ import annotations

from round_trip import load, read

from tt.pipelines.preprocess.vocabularies import distinct_lines

_RANGES = ((3, 4), (5, 5), (6, 8), (9, 10**6))  # first and last number of tokens


def main() -> None:
    """Print one line per range."""
    ted = sorted({text for split in ("dev", "test") for text in read("ted_ru_en", split, ("en",))})
    tatoeba = {
        text for split in ("train", "dev", "test") for text in read("tatoeba_de_en", split, ("en",))
    }
    sample = distinct_lines([*read("ted_ru_en", "train_not_ted", ("en",)), *sorted(tatoeba)])
    lengths = [len(ids) - 2 for ids in load(sample, rule="identity", size=8000).encode(ted)]
    for first, last in _RANGES:
        texts = [text for text, tokens in zip(ted, lengths, strict=True) if first <= tokens <= last]
        shared = sum(text in tatoeba for text in texts)
        print(
            f"{first} to {last} tokens: {shared} of {len(texts):,} are in both "
            f"({shared / len(texts):.2%})"
        )


if __name__ == "__main__":
    main()
