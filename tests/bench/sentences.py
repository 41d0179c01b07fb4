"""Measure how well texts are cut into sentences, with the line ends of real corpora.

    .venv/bin/python tests/bench/sentences.py
    .venv/bin/python tests/bench/sentences.py --show 20 --only news

Joins 2 to 6 consecutive lines of a corpus to a text, cuts it, and prints one row per corpus and
language: texts, line ends inside them, the share of cuts that are line ends (precision; a line of
two sentences counts as an error), and the share of line ends that are cut (recall).
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from tt.pipelines.texts.segments import split_sentences

DATA = Path(__file__).resolve().parents[2].parent / "shared/data"
CORPORA = {  # folder, split, languages
    "Multi30k": ("multi30k", "test_2016_flickr", ("en", "de", "fr")),
    "Tatoeba de": ("tatoeba_de_en", "test", ("de", "en")),
    "Tatoeba zh": ("tatoeba_zh_en", "test", ("zh", "en")),
    "TED": ("ted_ru_en", "test", ("ru", "en")),
    "news": ("news_zh_en", "test", ("zh", "en")),
    "news train": ("news_zh_en", "train", ("zh", "en")),
}
UNSPACED = ("zh", "ja", "th")


def read_lines(folder: str, split: str, language: str) -> list[str]:
    """Read one side of a corpus without empty lines."""
    data = gzip.decompress((DATA / folder / f"{split}.{language}.gz").read_bytes())
    return [line.strip() for line in data.decode().split("\n") if line.strip()]


def texts_of(lines: list[str], *, seed: int = 1) -> Iterator[list[str]]:
    """Yield runs of 2 to 6 lines."""
    generator = random.Random(seed)
    start = 0
    while len(lines) - start >= 2:
        count = generator.randint(2, 6)
        yield lines[start : start + count]
        start += count


def ends_of(parts: list[str]) -> set[int]:
    """Return the ends of parts in the joined text, without counting white space."""
    ends, length = set(), 0
    for part in parts:
        length += len("".join(part.split()))
        if not part.isspace():
            ends.add(length)
    return ends


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="Use only corpora with this name prefix.")
    parser.add_argument("--show", type=int, default=0, help="Show N texts with wrong cuts.")
    given = parser.parse_args()
    print(
        f"{'corpus':<14}{'language':>9}{'texts':>8}{'line ends':>11}{'precision':>11}{'recall':>9}"
    )
    for name, (folder, split, languages) in CORPORA.items():
        if not name.startswith(given.only):
            continue
        for language in languages:
            space = "" if language in UNSPACED else " "
            texts = list(texts_of(read_lines(folder, split, language)))
            right = cuts = ends = 0
            shown = []
            for lines in texts:
                parts = split_sentences(space.join(lines), language=language)
                there, found = ends_of(lines), ends_of(parts)
                last = {max(there)}
                right += len(there & found - last)
                cuts += len(found - last)
                ends += len(there - last)
                if there != found:
                    shown.append((lines, [part for part in parts if not part.isspace()]))
            print(
                f"{name:<14}{language:>9}{len(texts):>8,}{ends:>11,}"
                f"{right / max(cuts, 1):>11.3f}{right / ends:>9.3f}"
            )
            for lines, parts in shown[: given.show]:
                print("   lines:", " | ".join(lines))
                print("   cuts: ", " | ".join(parts))


if __name__ == "__main__":
    main()
