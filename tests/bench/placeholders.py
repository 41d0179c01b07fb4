"""Measure how well a model of the embedded corpus places placeholders.

    .venv/bin/python tests/bench/placeholders.py demo/run

Translates 500 new sentences whose spans are replaced with placeholders, as in a dataset. Their
(subject, verb, object) triples do not occur in the training data. Prints how many translations
contain each placeholder of their source once and no other, how many equal the reference, and BLEU,
for all sentences and by the number of placeholders.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.text.scores import bleu
from tt.model.text.spans import Protection
from tt.model.transformer.search_options import Decoding
from tt.pipelines.preprocess.placeholders import replace_shared_spans

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from english_spanish.corpus import span_pairs


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("--sentences", type=int, default=500)
    given = parser.parse_args()
    pairs = [
        replace_shared_spans(pair.source, pair.target, protection=Protection())
        for pair in span_pairs(count=given.sentences, seed=11, held_out=True)
    ]
    translator = load_translator(given.model, decoding=Decoding(), engine=Engine())
    found, _ = translator.translate_ids(translator.encode([pair.source for pair in pairs]))
    texts = [translation.hypotheses[0].text for translation in found]
    print(f"{'placeholders':<14}{'sentences':>10}{'each once':>11}{'equal':>8}{'BLEU':>7}")
    for least, most in ((1, 8), (1, 1), (2, 2), (3, 3), (4, 8)):
        rows = [i for i, pair in enumerate(pairs) if least <= pair.placeholders <= most]
        once = sum(
            sorted(re.findall("⟦.⟧", texts[i])) == sorted(re.findall("⟦.⟧", pairs[i].source))
            for i in rows
        )
        equal = sum(texts[i] == pairs[i].target for i in rows)
        score = bleu([texts[i] for i in rows], [pairs[i].target for i in rows]).value
        name = f"{least} or more" if most > least else str(least)
        print(
            f"{name:<14}{len(rows):>10}{once / len(rows):>11.1%}{equal / len(rows):>8.1%}"
            f"{score:>7.1f}"
        )


if __name__ == "__main__":
    main()
