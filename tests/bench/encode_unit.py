"""Measure how much the search for spans slows the encoding of a unit whose texts have none.

    python tests/bench/encode_unit.py --rounds 40

The benchmark encodes a unit of the generated corpus, which contains no placeholders, in turn with
`--protect` and without, on one core. It counts CPU seconds, so that other work on the machine has
less weight, and computes ratios within a round.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from corpus import make_corpus, make_vocabulary
from folders import cache_folder
from processes import available_cores

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> None:
    """Print the seconds of each round, and the median of the ratios."""
    from tt.model.text.vocabulary import Vocabulary, VocabularyPair
    from tt.pipelines.preprocess.corpora import SourceList
    from tt.pipelines.preprocess.encoding import encode_unit
    from tt.pipelines.preprocess.held_out import HeldOut
    from tt.pipelines.preprocess.options import PreprocessOptions
    from tt.pipelines.preprocess.request import PreprocessRequest
    from tt.pipelines.preprocess.units import Part, Unit

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1 << 14, help="Encode a unit of N pairs.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cache", type=Path, default=cache_folder())
    given = parser.parse_args()
    cache = given.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    corpus = make_corpus(given.pairs, cache=cache)
    path = make_vocabulary(cache=cache)
    os.sched_setaffinity(0, available_cores()[:1])
    with tempfile.TemporaryDirectory() as folder:
        options = PreprocessOptions(
            output=f"{folder}/dataset", vocabulary=(str(path),), source_column="source",
            target_column="target", source_language="en", target_language="de",
        )  # fmt: skip
        plan = PreprocessRequest(corpora=(str(corpus),), options=options).plan().plan
        listed = Path(plan.work.sources)
        listed.parent.mkdir(parents=True)
        text = SourceList.text(plan.sources, identities=plan.identities, groups=plan.groups)
        listed.write_text(text, "utf-8")
        vocabulary = Vocabulary(path, options.normalization)
        unit = Unit(order=0, index=0, parts=(Part(order=0, first_row=0, rows=given.pairs),))

        def seconds(*, protect: bool) -> float:
            chosen = dataclasses.replace(options, protect=protect)
            of_round = dataclasses.replace(plan.for_steps, options=chosen)
            pair = VocabularyPair(vocabulary, vocabulary)
            start = time.process_time()
            encoded = encode_unit(unit, of_round, pair, HeldOut())
            taken = time.process_time() - start
            found = sum(int(part.headers["placeholders"].sum()) for part in encoded.parts.values())
            if found:
                raise RuntimeError(f"found {found} placeholders in a corpus without spans")
            return taken

        seconds(protect=True)  # reads the file and builds the character tables
        ratios = []
        for number in range(given.rounds):
            order = (True, False) if number % 2 else (False, True)
            taken = {protect: seconds(protect=protect) for protect in order}
            ratios.append(taken[False] / taken[True])
            print(f"without {taken[False]:.3f} s, with {taken[True]:.3f} s", flush=True)
        print(f"{statistics.median(ratios):.3f} of the speed without placeholders")
        print(f"from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
