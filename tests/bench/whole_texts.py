"""Compare the translation of whole texts with that of their single sentences.

    .venv/bin/python tests/bench/whole_texts.py demo/run
    .venv/bin/python tests/bench/whole_texts.py run test.en test.de --source-language en

Joins 2 to 6 consecutive lines of a test set to a text. Without files, the lines are held-out
sentences of the embedded corpus. Prints BLEU of the texts with their sentences translated singly
and joined (the upper bound), with `--split sentences`, and with `--split long`. The last two rows
also show the ratio to the first row, and the texts by status. The model must translate the
language pair of the test set.
"""

from __future__ import annotations

import collections
import random

from given_test_set import model_parser, read_test_set

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.text.scores import bleu
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts


def join_runs(lines: list[str], *, seed: int = 1) -> list[str]:
    """Join runs of 2 to 6 lines with a space; both sides of a test set get the same runs."""
    generator = random.Random(seed)
    texts, start = [], 0
    while len(lines) - start >= 2:
        count = generator.randint(2, 6)
        texts.append(" ".join(lines[start : start + count]))
        start += count
    return texts


def main() -> None:
    """Print the rows."""
    parser = model_parser(__doc__.splitlines()[0])
    given = parser.parse_args()
    sources, references = read_test_set(given.files)
    decoding = Decoding(beam_size=given.beam_size)
    translator = load_translator(given.model, decoding=decoding, engine=Engine())

    def translate(texts: list[str], split: str) -> tuple[list[str], dict[str, int]]:
        options = TextOptions(source_language=given.source_language, split=split)
        found = translate_texts(
            [text.encode() for text in texts], translator=translator, options=options
        ).translations
        statuses = collections.Counter(each.status for each in found)
        return [each.translation or "" for each in found], dict(statuses)

    texts, expected = join_runs(sources), join_runs(references)
    alone, _ = translate(sources, "never")
    best = bleu(join_runs(alone), expected).value
    print(f"{len(texts):,} texts of {len(sources):,} sentences")
    print(f"{'single sentences, joined':<26}{best:6.2f}")
    for split in ("sentences", "long"):
        found, statuses = translate(texts, split)
        score = bleu(found, expected).value
        print(f"{f'--split {split}':<26}{score:6.2f}{score / best:8.3f}  {statuses}")


if __name__ == "__main__":
    main()
