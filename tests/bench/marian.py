"""Compare the Transformer of `tt` with Marian, on a model that Marian trains on a corpus.

    .venv/bin/python tests/bench/marian.py train.en train.de test.en test.de --updates 2000

`make test-marian` installs the requirements. The benchmark prints BLEU, the number of greedy
translations with the same ids, the differences of the others, and scores. It prints the same
numbers for CTranslate2's conversion of the model file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import ctranslate2
import sacrebleu

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

import marian_program as marian  # noqa: E402

from tt.model.engines.tensorflow_engine import TensorFlowTranslator  # noqa: E402
from tt.model.imports.importing import ImportRequest  # noqa: E402
from tt.model.transformer.search_options import Decoding  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("source", "target", "test_source", "test_target"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--size", type=int, default=4000, help="Learn this many pieces.")
    parser.add_argument("--model", type=Path, help="Use this trained .npz file.")
    parser.add_argument("--vocabulary", type=Path, help="Use its SentencePiece model.")
    asked = parser.parse_args()
    texts, references = (
        path.read_text("utf-8").splitlines() for path in (asked.test_source, asked.test_target)
    )

    def bleu(found):
        return sacrebleu.corpus_bleu(found, [references]).score

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model, vocabulary = asked.model, asked.vocabulary
        if model is None:
            model = marian.train(
                folder, source=asked.source.resolve(), target=asked.target.resolve(),
                updates=asked.updates, size=asked.size,
            )  # fmt: skip
            vocabulary = folder / "vocabulary.spm"
        vocabulary, model = vocabulary.resolve(), model.resolve()
        where = {"folder": folder, "model": model, "vocabularies": [vocabulary] * 2}
        ImportRequest(
            format="marian", model=str(model), output=str(folder / "imported"),
            source_vocabulary=str(vocabulary),
        ).write()  # fmt: skip
        greedy = TensorFlowTranslator.load(
            folder / "imported",
            decoding=Decoding(beam_size=1, **marian.LONGER),
        )
        theirs = marian.decode(texts, **where)
        pieces = [found.pieces for found in theirs]
        own = texts_of(folder / "imported", texts, beam_size=1)
        print(f"greedy: BLEU {bleu(own):.2f}, Marian's", end=" ")
        print(f"{bleu(marian.text_of(pieces, vocabulary=vocabulary)):.2f}")
        print(f"  {marian.compare_greedy(greedy, texts, theirs)}", flush=True)

        own = texts_of(folder / "imported", texts, beam_size=6, length_penalty=1.0)
        found = marian.decode(texts, **where, beam_size=6, normalize=1.0)
        wide = marian.text_of([each.pieces for each in found], vocabulary=vocabulary)
        print(f"6 beams: BLEU {bleu(own):.2f}, Marian's {bleu(wide):.2f}", flush=True)

        listed = marian.write_list(vocabulary, folder / "vocabulary.yml")
        subprocess.run(
            [
                Path(sys.executable).with_name("ct2-marian-converter"),
                "--model_path", marian.with_one_nul(model, folder / "one_nul.npz"),
                "--vocab_paths", listed, listed, "--output_dir", folder / "converted",
            ],
            check=True,
        )  # fmt: skip
        translator = ctranslate2.Translator(str(folder / "converted"), intra_threads=1)
        for name, wanted in (("Marian's", pieces), ("ours", our_pieces(greedy, texts))):
            results = translator.translate_batch(
                [greedy_pieces(greedy, text) for text in texts],
                beam_size=1, min_decoding_length=0, max_batch_size=32, max_input_length=0,
            )  # fmt: skip
            same = sum(
                result.hypotheses[0] == each for result, each in zip(results, wanted, strict=True)
            )
            print(f"CTranslate2's conversion: {same} of {len(texts)} are {name}", flush=True)


def texts_of(model, texts, **search):
    """Return the translations of `tt` with nearly Marian's length limit."""
    decoding = Decoding(**search, **marian.SAME_LIMIT)
    translator = TensorFlowTranslator.load(model, decoding=decoding)
    return [each.text for each in translator.translate(texts)]


def greedy_pieces(translator, text):
    """Return the pieces of a text."""
    vocabulary = translator.vocabularies.source
    return [vocabulary.piece(i) for i in vocabulary.encode([text])[0][1:-1]]


def our_pieces(translator, texts):
    """Return the pieces of the greedy translations of `tt`."""
    vocabulary = translator.vocabularies.target
    rows = [translator.search_ids(ids) for ids in translator.encode(texts)]
    return [[vocabulary.piece(i) for i in row[:-1]] for row in rows]


if __name__ == "__main__":
    main()
