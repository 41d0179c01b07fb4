"""The attention for a sentence: its weights, its tokens and its translation."""

from __future__ import annotations

import numpy as np
import pytest
from models import model_texts, translated, write_model

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.errors import UserError
from tt.model.transformer.attention_figures import AXES
from tt.model.transformer.search_options import Decoding
from tt.pipelines.reports.report import sentence_attention


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"))
    return TensorFlowTranslator.load(folder, decoding=Decoding(beam_size=2))


def test_attention_is_for_the_models_own_translation(translator):
    [text] = model_texts(1)
    found = sentence_attention(translator, text)
    assert found.is_own
    assert found.target == translated(translator, [text])[0].text
    for kind in AXES:
        each = found.maps[kind]
        layers, heads, *shape = each.weights.shape
        assert (layers, heads, *shape) == (2, 4, len(each.rows), len(each.columns))
        np.testing.assert_allclose(each.weights.sum(-1), 1, atol=1e-5)
    cross, decoder = found.maps["cross"], found.maps["decoder"]
    assert cross.columns[0] == "<bos>"
    assert cross.columns[-1] == "<eos>"
    assert decoder.rows[:-1] == decoder.columns[1:]
    # No token attends to later tokens.
    assert not np.triu(decoder.weights[0, 0], 1).any()


def test_a_reference_replaces_the_translation(translator):
    source, target = model_texts(2)
    found = sentence_attention(translator, source, reference=target)
    assert (found.target, found.is_own) == (target, False)
    words = [label.lstrip("_") for label in found.maps["cross"].rows[:-1]]
    assert words == target.split()


@pytest.mark.parametrize(
    ("sentence", "reference", "message"),
    [(" ", None, "`sentence` is empty"), ("vocabulary1", "", "`reference` is empty"),
     ("vocabulary1 " * 300, None, "at most 256 tokens. Received: 302")],
)  # fmt: skip
def test_empty_and_too_long_texts_are_refused(translator, sentence, reference, message):
    with pytest.raises(UserError, match=message):
        sentence_attention(translator, sentence, reference=reference)
