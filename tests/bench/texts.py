"""Measure how long splitting, planning and flagging take per one-sentence row, without a model.

    .venv/bin/python tests/bench/texts.py
    .venv/bin/python tests/bench/texts.py --code ../before        # also for another checkout

Reads the real corpora of `../shared/data`. A fake model knows the ids of each source and returns
its reference as the translation, so that only `translate_texts` takes time. Prints user time per
row for 8,192 rows, the minimum of seven runs, in processes that take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

CORPORA = {  # folder, source and target language, script of the target
    "Multi30k en > de": ("multi30k", "en", "de", "Latin"),
    "Tatoeba de > en": ("tatoeba_de_en", "de", "en", "Latin"),
    "Tatoeba zh > en": ("tatoeba_zh_en", "zh", "en", "Latin"),
    "news en > zh": ("news_zh_en", "en", "zh", "Han"),
}
ROWS = 8192
ROUNDS, RUNS = 3, 7
PROJECT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Print one line per corpus and checkout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", help="Measure this checkout, too.")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        for name in CORPORA:
            print(f"{name}\t{measure(name)}")
        return
    found: dict[tuple[str, str], float] = {}
    for code in [str(PROJECT), *([given.code] if given.code else [])] * ROUNDS:
        command = [sys.executable, __file__, "--once"]
        environment = {**os.environ, "PYTHONPATH": code}
        output = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        for line in output.splitlines():
            name, microseconds = line.split("\t")
            found[name, code] = min(found.get((name, code), 1e9), float(microseconds))
    for (name, code), microseconds in sorted(found.items()):
        print(f"{name:<18} {microseconds:6.1f} us per row  {code}")


def measure(name: str) -> float:
    """Return the microseconds of user time per row."""
    from real_corpora import read_pairs

    from tt.model.engines.translator import Hypothesis, Translation, Work
    from tt.model.transformer.search_options import Decoding
    from tt.pipelines.texts.limits import Limits
    from tt.pipelines.texts.options import TextOptions
    from tt.pipelines.texts.translating import translate_texts

    folder, source, target, script = CORPORA[name]
    pairs = read_pairs(folder, "train", (source, target))[:ROWS]
    sides = list(zip(*pairs, strict=True))

    class Known:
        """A fake translator that returns the reference of each source."""

        decoding = Decoding(beam_size=1)

        def __init__(self) -> None:
            self.ids = {text: ids_of(text) for text in sides[0]}
            self.translations = {
                tuple(self.ids[one]): Translation(
                    (Hypothesis(other, -0.5 * len(ids_of(other)), True, len(ids_of(other))),)
                )
                for one, other in zip(*sides, strict=True)
            }

        def encode(self, texts: list[str]) -> list[list[int]]:
            return [self.ids.get(text) or ids_of(text) for text in texts]

        def translate_ids(self, rows: list[list[int]], **_: Any) -> Any:
            other = next(iter(self.translations.values()))
            return [self.translations.get(tuple(row), other) for row in rows], Work()

        def is_input_error(self, error: Exception) -> bool:
            return False

    limits = Limits(target_script=script, shortest=0.2, usual=1.0, longest=5.0, least_score=-3.0)
    options = TextOptions(source_language=source, placeholders=8)
    cells, translator = [text.encode() for text in sides[0]], Known()
    took = []
    for _ in range(RUNS):
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        translate_texts(cells, translator=translator, options=options, limits=limits)
        took.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - start)
    return 1e6 * min(took) / len(cells)


def ids_of(text: str) -> list[int]:
    """Make one id per four letters."""
    return [
        2,
        *(4 + zlib.crc32(text[i : i + 4].encode()) % 9000 for i in range(0, len(text), 4)),
        3,
    ]


if __name__ == "__main__":
    main()
