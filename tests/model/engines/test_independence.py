"""The other inputs of a call never change a translation: calls are shuffled, split and padded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import model_texts, write_model

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts

pytestmark = pytest.mark.usefixtures("eager")

OPTIONS = TextOptions(texts="plain", split="long", capitals="keep")
TEXTS = [*model_texts(12), "👍 vocabulary1", "", "привет"]
BUDGETS = (None, 60)


@pytest.fixture(scope="module", params=["tensorflow", "ctranslate2"])
def engine(request):
    return Engine(name=request.param)


@pytest.fixture(scope="module", params=[1, 3])
def translators(request, engine, tmp_path_factory):
    """Translators that differ only in the sizes of their batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        folder = write_model(tmp_path_factory.mktemp("model"), norm="pre")
        beam = {"beam_size": request.param, "n_best": request.param}
        limits = {"max_length_ratio": 0.5, "max_extra_tokens": 2}  # short, but of several lengths
        yield [
            load_translator(
                str(folder),
                decoding=Decoding(batch_tokens=tokens, **beam, **limits),
                engine=engine,
            )
            for tokens in BUDGETS
        ]


def translate(translator, texts):
    return translate_texts(texts, translator=translator, options=OPTIONS).translations


@pytest.fixture(scope="module")
def alone(translators):
    """Each text in a call of its own."""
    return [translate(translators[0], [text])[0] for text in TEXTS]


@settings(max_examples=8)
@given(data=st.data())
def test_translations_do_not_depend_on_the_other_inputs(translators, alone, data):
    translator = translators[data.draw(st.integers(0, len(BUDGETS) - 1))]
    order = data.draw(st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=16))
    cut = data.draw(st.integers(0, len(order)))
    calls = [[TEXTS[i] for i in part] for part in (order[:cut], order[cut:])]
    found = [each for call in calls for each in translate(translator, call)]
    for i, each in zip(order, found, strict=True):
        expected = alone[i]
        assert (each.translation, each.status) == (expected.translation, expected.status)
        assert [h.text for h in each.n_best] == [h.text for h in expected.n_best]
        assert [h.is_complete for h in each.n_best] == [h.is_complete for h in expected.n_best]
        assert [h.score for h in each.n_best] == pytest.approx(
            [h.score for h in expected.n_best], abs=1e-4
        )


def test_the_texts_have_several_statuses_and_translations(alone):
    assert {each.status for each in alone} >= {"incomplete", "empty", "unknown"}
    assert len({each.translation for each in alone}) > 8, "the model does not distinguish texts"
