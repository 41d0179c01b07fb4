"""Translations from the memory equal a fresh run's, with both engines."""

from __future__ import annotations

import itertools

import pytest
from models import model_texts, write_model

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.text.spans import Protection
from tt.model.transformer.search_options import Decoding
from tt.pipelines.memory.keys import model_context
from tt.pipelines.memory.memory import TranslationMemory
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("random"))


@pytest.mark.parametrize(
    ("engine", "search"),
    [("tensorflow", {"beam_size": 1}), ("ctranslate2", {"beam_size": 3, "n_best": 2})],
)
def test_memory_gives_the_same_translations_as_the_model(tmp_path, model, engine, search):
    decoding = Decoding(max_extra_tokens=3, **search)
    engine = Engine(name=engine)
    translator = load_translator(str(model), decoding=decoding, engine=engine, threads=1)
    texts = model_texts(40)
    pairs = [f"{one}. {other}." for one, other in itertools.pairwise(texts)]
    cells = [text.encode() for text in [*texts, *pairs, "", "12345", "жжж"]]

    def translate(cells, *, run_id, memory_folder=tmp_path / "memory"):
        memory = TranslationMemory(
            folder=str(memory_folder),
            context=model_context(fingerprint="f", engine=engine.as_json(), decoding=decoding),
            source_language="en",
            target_language="de",
            job="job",
            run_id=run_id,
        )
        found = translate_texts(
            cells,
            translator=translator,
            # The vocabulary contains words with digits, but no digits.
            options=TextOptions(protection=Protection(protect=False)),
            limits=Limits(target_script="Latin"),
            memory=memory,
        )
        memory.store(found.learned)
        return found

    fresh = translate(cells, run_id="0", memory_folder=tmp_path / "other")
    assert {"ok", "incomplete"} <= {each.status for each in fresh.translations}
    assert any(each.flags for each in fresh.translations)

    half = translate(cells[::2], run_id="1")
    assert 0 < half.distinct_texts < fresh.distinct_texts
    rest = translate(cells, run_id="2")
    assert rest.distinct_texts == fresh.distinct_texts - half.distinct_texts
    again = translate(cells, run_id="3")
    assert again.distinct_texts == again.work.sources == 0
    assert again.translations == rest.translations

    def without_scores(result):
        return [(each.translation, each.status, each.flags) for each in result.translations]

    # Scores may differ in the last bit, because they depend on the other texts of a batch.
    assert without_scores(again) == without_scores(fresh)
    assert translate(cells, run_id="4", memory_folder=tmp_path / "other").translations == (
        fresh.translations
    )
