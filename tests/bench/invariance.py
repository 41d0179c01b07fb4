"""Count the sentences whose translation depends on batch mates, padding or order.

    python tests/bench/invariance.py run test.en.gz --beam-size 4

The benchmark translates every sentence singly, and then in batches of three sizes and two orders.
Matrix products of other shapes add numbers in another order, so scores differ by rounding. If the
two best hypotheses differ by less than that, their order may change. The benchmark lists such
near-ties. The exit code is 1 if a translation differs that is not a near-tie, or if a score
differs by more than 1e-4.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import Translation
from tt.model.transformer.search_options import Decoding
from tt.pipelines.reports.evaluate import read_lines

_TOLERANCE = 1e-4  # of scores
_SIZES = (512, 2048, 8192)  # padded positions per batch


def main() -> None:
    """Print the sentences that differ, and a line of counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=300)
    options = parser.parse_args()
    texts = [line for line in read_lines(options.text) if line.strip()][: options.sentences]
    decoding = Decoding(beam_size=options.beam_size, n_best=min(2, options.beam_size))
    translator = TensorFlowTranslator.load(options.model, decoding=decoding)
    ids = translator.encode(texts)
    alone = [translator.translate_ids([row])[0][0] for row in ids]
    near_ties: set[int] = set()
    wrong: set[int] = set()
    furthest = 0.0
    for size in _SIZES:
        batched = TensorFlowTranslator.load(
            options.model, decoding=dataclasses.replace(decoding, batch_tokens=size)
        )
        for order in (np.arange(len(ids)), np.random.default_rng(0).permutation(len(ids))):
            found, _ = batched.translate_ids([ids[i] for i in order])
            for i, translation in zip(order.tolist(), found, strict=True):
                if translation.text == alone[i].text:
                    furthest = max(furthest, abs(translation.score - alone[i].score))
                else:
                    (near_ties if _is_near_tie(translation, alone[i]) else wrong).add(i)
    for i in sorted(near_ties | wrong):
        print(
            f"{'wrong' if i in wrong else 'near-tie'}: {texts[i]}", *alone[i].hypotheses, sep="\n  "
        )
    print(
        f"{len(texts):,} sentences, beam size {options.beam_size}: {len(wrong)} differ, "
        f"{len(near_ties)} near-ties, scores within {furthest:.1e}"
    )
    if wrong or furthest > _TOLERANCE:
        sys.exit(1)


def _is_near_tie(one: Translation, other: Translation) -> bool:
    """Return whether the scores of two translations are equal within the tolerance."""
    return abs(one.score - other.score) <= _TOLERANCE


if __name__ == "__main__":
    main()
