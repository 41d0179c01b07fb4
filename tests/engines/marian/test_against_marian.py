"""Marian's models in our Transformer, compared with Marian; run by `make test-marian`."""

from __future__ import annotations

import marian_program as marian
import numpy as np
import pytest
from marian_models import PRE_NORM, SETTINGS, TEXTS, random_arrays, train_pieces, write_npz

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.imports.importing import ImportRequest
from tt.model.transformer.search_options import Decoding
from tt.pipelines.preprocess.ready_made import train_pairs

TIE = 1e-4
LIKE_MARIAN = {"zero_start": True, "source_bos": False, "position_scale": "tensor2tensor"}
VARIANTS = {
    "post-norm, all tied": {},
    "normalized embeddings, ReLU, nothing tied": {
        "tied-embeddings-all": False, "transformer-postprocess-emb": "nd",
        "transformer-ffn-activation": "relu", "enc-depth": 1, "dec-depth": 3,
    },
    "target and output tied, GELU": {
        "tied-embeddings-all": False, "tied-embeddings": True,
        "transformer-ffn-activation": "gelu",
    },
    "source and target tied, no bias": {
        "tied-embeddings-all": False, "tied-embeddings-src": True, "output-omit-bias": True,
    },
    "pre-norm": PRE_NORM,
}  # fmt: skip

if not marian.PYTHON.is_file():
    pytest.skip(f"{marian.PYTHON} does not exist: run `make test-marian`", allow_module_level=True)


def translator_of(folder, model, vocabulary):
    output = folder / "imported"
    ImportRequest(
        format="marian", model=str(model), output=str(output),
        source_vocabulary=str(vocabulary), overwrite=True,
    ).write()  # fmt: skip
    return TensorFlowTranslator.load(output, decoding=Decoding(beam_size=1, **marian.LONGER))


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_scores_of_random_models_equal_marians(tmp_path, fields):
    """`marian-scorer` scores whole targets in one pass, as training does."""
    vocabulary = train_pieces(tmp_path / "v.spm", TEXTS["source"] + TEXTS["target"])
    settings = {**SETTINGS, **fields}
    model = write_npz(tmp_path / "model.npz", settings, random_arrays(settings))
    translator = translator_of(tmp_path, model, vocabulary)
    source, target = (TEXTS[side][:40] for side in ("source", "target"))
    theirs = marian.score(
        source, target, folder=tmp_path, model=model, vocabularies=[vocabulary] * 2
    )
    vocabularies = translator.vocabularies
    for text, translation, expected in zip(source, target, theirs, strict=True):
        [ids], [goal] = (
            vocabularies.source.encode([text]),
            vocabularies.target.encode([translation]),
        )
        log_p = marian.log_probabilities(translator.model, ids, goal[1:])
        found = log_p[np.arange(len(goal) - 1), goal[1:]]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that translates the embedded corpus; training takes a minute or two on one core."""
    folder = tmp_path_factory.mktemp("trained")
    pairs = train_pairs()
    for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        lines = "".join(f"{text}\n" for text in texts)
        (folder / f"train.{side}").write_text(lines, "utf-8")
    model = marian.train(
        folder, source="train.source", target="train.target", updates=600, size=800
    )
    return folder, model, folder / "vocabulary.spm"


def test_greedy_translations_and_scores_equal_marians(trained):
    folder, model, vocabulary = trained
    texts = TEXTS["source"][:300]
    theirs = marian.decode(texts, folder=folder, model=model, vocabularies=[vocabulary] * 2)
    assert len({tuple(found.pieces) for found in theirs}) > 0.8 * len(set(texts))
    agreement = marian.compare_greedy(translator_of(folder, model, vocabulary), texts, theirs)
    print(agreement)
    assert agreement.identical >= 0.995 * agreement.rows
    assert all(abs(gap) < TIE for gap in agreement.gaps)
    assert agreement.worst_score < 1e-3
