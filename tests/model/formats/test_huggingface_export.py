"""Exports in the layout of Hugging Face give the same translations when they are imported again.

`tests/engines/huggingface` loads such exports with Transformers.
"""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from models import write_model

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.imports.fetching import fetch_model
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.exporting import ExportRequest
from tt.model.transformer.search_options import Decoding

pytestmark = pytest.mark.usefixtures("eager")

GREEDY = Decoding(beam_size=1, max_extra_tokens=9)
VARIANTS = {
    "shared, tied": {},
    "separate, untied": {"shared_vocabulary": False, "tie_embeddings": False},
    "with biases and another activation": {
        "projection_bias": True, "output_bias": True, "activation": "swish",
    },
    "with a zero start, without BOS": {"zero_start": True, "source_bos": False},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def texts_of(model):
    """Return texts of random words from the vocabulary of a model."""
    chance = random.Random(5)
    words = sorted(load_vocabularies(model).source.learned_pieces())
    return [" ".join(w.strip("▁") for w in chance.choices(words, k=6)) for _ in range(40)]


def translate(folder, engine, texts):
    translator = load_translator(str(folder), decoding=GREEDY, engine=Engine(name=engine))
    found, _ = translator.translate(translator.prepare(texts))
    return [each.hypotheses[0] for each in found]


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_the_export_gives_the_same_translations(tmp_path, fields):
    model = write_model(tmp_path / "own", norm="post", **fields)
    output = tmp_path / "exported"
    ExportRequest(model=str(model), output=str(output), format="huggingface").write()
    texts = texts_of(model)
    ours = translate(model, "tensorflow", texts)
    theirs = translate(fetch_model(output, report=lambda line: None), "ctranslate2", texts)
    assert [each.text for each in theirs] == [each.text for each in ours]
    # Both exports spread the probability of ids that are never chosen over the other ids.
    scores = [each.score for each in translate(model, "ctranslate2", texts)]
    np.testing.assert_allclose([each.score for each in theirs], scores, atol=1e-3)
    assert len({round(each.score, 3) for each in ours}) > 20


def test_the_files_name_the_special_tokens(tmp_path):
    model = write_model(tmp_path / "own", norm="post")
    output = tmp_path / "exported"
    ExportRequest(model=str(model), output=str(output), format="huggingface").write()
    config = json.loads((output / "config.json").read_text())
    names = sorted(
        json.loads((output / "vocab.json").read_text()).items(), key=lambda each: each[1]
    )
    assert names[config["decoder_start_token_id"]][0] == ">>bos<<"
    assert len(names) == config["vocab_size"]
    assert [0] in config["bad_words_ids"]
    assert [config["eos_token_id"]] not in config["bad_words_ids"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"norm": "pre"}, "`norm=pre`"),
        ({"norm": "post", "position_base": 5000.0}, "another base than 10,000"),
    ],
)
def test_architectures_that_transformers_lacks_are_refused(tmp_path, fields, problem):
    model = write_model(tmp_path / "own", **fields)
    output = tmp_path / "exported"
    with pytest.raises(UserError, match=problem):
        ExportRequest(model=str(model), output=str(output), format="huggingface").write()
    assert not output.exists()
