"""Export a model to CTranslate2 and count the greedy translations that are identical in both.

    .venv/bin/python tests/bench/compare_ctranslate2.py MODEL TEXT

MODEL is a run folder or an exported model folder. TEXT has one sentence per line. Both engines
compute in float32 on the CPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import tempfile
from pathlib import Path

import ctranslate2

# The project folder is not on the path if this file is run and not imported.
if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.formats.exports import export_ctranslate2
from tt.model.formats.foreign import load_tokens
from tt.model.text.vocabulary import is_empty
from tt.model.transformer.search_options import Decoding

_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Difference:
    """A sentence that the engines translate differently."""

    source: str
    ours: str
    ctranslate2: str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of a comparison, without the empty sentences.

    Attributes:
      sentences: The number of sentences.
      distinct: The number of different translations of `tt`. A model that gives every source the
        same translation proves nothing.
      differences: The sentences that the engines translate differently.
    """

    sentences: int
    distinct: int
    differences: list[Difference]

    @property
    def identical(self) -> int:
        """The number of sentences with the same translation."""
        return self.sentences - len(self.differences)


def compare(model: Path, exported: Path, texts: list[str]) -> Comparison:
    """Translate texts greedily with both engines.

    Args:
      model: A run folder or model folder.
      exported: The output folder of `export_ctranslate2` for this model.
      texts: Sentences of the source language.
    """
    decoding = Decoding(beam_size=1)
    translator = TensorFlowTranslator.load(model, decoding=decoding)
    rows = translator.encode(texts)
    kept = [i for i, row in enumerate(rows) if not is_empty(row)]
    ids = [rows[i] for i in kept]
    ours, _ = translator.translate_ids(ids)
    theirs = translator.vocabularies.target.decode(
        translate_ids(exported, ids, extra_tokens=decoding.max_extra_tokens)
    )
    return Comparison(
        len(kept),
        len({translation.text for translation in ours}),
        [
            Difference(texts[i], mine.text, other)
            for i, mine, other in zip(kept, ours, theirs, strict=True)
            if mine.text != other
        ],
    )


def translate_ids(
    exported: Path, rows: list[list[int]], *, extra_tokens: int, **options: object
) -> list[list[int]]:
    """Translate ids with CTranslate2 under the length limits of `TensorFlowTranslator`.

    Args:
      exported: The output folder of `export_ctranslate2`.
      rows: The ids of each source, including BOS and EOS.
      extra_tokens: `Decoding.max_extra_tokens`.
      options: Options of `ctranslate2.Translator.translate_batch`. The default is greedy search.

    Returns:
      The ids of each translation, without EOS.
    """
    source, target = (load_tokens(exported, side) for side in ("source", "target"))
    target_ids = {token: i for i, token in enumerate(target)}
    translator = ctranslate2.Translator(str(exported), compute_type="float32", intra_threads=1)
    translations: list[list[int]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    # CTranslate2 has one limit per call, but `tt` has one per sentence.
    for length, group in itertools.groupby(order, key=lambda i: len(rows[i])):
        members = list(group)
        found = translator.translate_batch(
            [[source[j] for j in rows[i][1:-1]] for i in members],  # CTranslate2 adds BOS and EOS
            max_batch_size=64,
            min_decoding_length=0,
            # In `tt`, the last id within the limit is the EOS that it forces.
            max_decoding_length=length + extra_tokens - 1,
            **{"beam_size": 1, "length_penalty": 0, **options},
        )
        for i, result in zip(members, found, strict=True):
            translations[i] = [target_ids[token] for token in result.hypotheses[0]]
    return translations


def main() -> None:
    """Print the number of identical translations, and some translations that differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    options = parser.parse_args()
    texts = options.text.read_text("utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "ctranslate2"
        export_ctranslate2(options.model, exported)
        found = compare(options.model, exported, texts)
    for difference in found.differences[:_SHOWN]:
        print(f"source       {difference.source}")
        print(f"tt           {difference.ours}")
        print(f"CTranslate2  {difference.ctranslate2}")
    share = found.identical / max(1, found.sentences)
    print(
        f"{found.identical:,} of {found.sentences:,} identical ({share:.2%}), "
        f"{found.distinct:,} distinct translations"
    )


if __name__ == "__main__":
    main()
