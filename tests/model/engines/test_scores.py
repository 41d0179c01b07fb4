"""Both engines give the log-probabilities of given translations, token by token."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from models import full_logits, model_texts, write_model
from toy import toy_sentences

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine, ScoredText
from tt.model.text.vocabulary import EOS_ID
from tt.model.transformer.search_options import Decoding

pytestmark = pytest.mark.usefixtures("eager")

TENSORFLOW = Engine(name="tensorflow")
CTRANSLATE2 = Engine(name="ctranslate2")
ENGINES = pytest.mark.parametrize("engine", [TENSORFLOW, CTRANSLATE2], ids=lambda each: each.name)
TEXTS = [source for source, _ in toy_sentences(24, seed=11)]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A separate cache for this module, in which each model is converted once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def model_folder(trained_toy):
    return trained_toy.run / "model"


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("random"), norm="pre")


def load(folder, engine, **decoding):
    options = Decoding(**{"beam_size": 1, **decoding})
    return load_translator(str(folder), decoding=options, engine=engine)


@functools.cache
def load_once(folder):
    return load(folder, TENSORFLOW)


def score(translator, sources, texts):
    return translator.score([*zip(translator.prepare(sources), texts, strict=True)])


def brute_force(folder, source, text, *, engine):
    """Return the log-probability of each token and of EOS, by one full pass in float64.

    The test model computes the logits, and NumPy computes the softmax. TensorFlow's softmax
    contains all ids. CTranslate2's softmax contains only the ids that the search may choose, which
    are EOS and the pieces of words; see `export_ctranslate2`.
    """
    translator = load_once(folder)
    vocabulary = translator.vocabularies.target
    [ids] = translator.vocabularies.source.encode([source])
    [target] = vocabulary.encode([text])
    logits = full_logits(translator.model, ids, target[:-1]).astype(np.float64)
    if engine is CTRANSLATE2:
        logits[:, :EOS_ID] = logits[:, vocabulary.piece_count :] = -np.inf
    peak = logits.max(1, keepdims=True)
    log_sums = np.log(np.exp(logits - peak).sum(1)) + peak[:, 0]
    assert target[-1] == EOS_ID
    return [float(logits[i, token] - log_sums[i]) for i, token in enumerate(target[1:])]


@ENGINES
def test_scores_equal_the_full_pass(model_folder, random_model, engine):
    for folder, sources in ((model_folder, TEXTS[:8]), (random_model, model_texts(8))):
        right = [" ".join(reversed(source.split())) for source in sources]
        translator = load(folder, engine)
        for texts in (right, sources, sources[::-1]):
            found = score(translator, sources, texts)
            for source, text, scored in zip(sources, texts, found, strict=True):
                expected = brute_force(folder, source, text, engine=engine)[:-1]
                assert scored.scores == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("beam_size", [1, 3])
@ENGINES
def test_sum_with_eos_is_the_score_of_the_translation(model_folder, engine, beam_size):
    translator = load(model_folder, engine, beam_size=beam_size)
    made, _ = translator.translate(translator.prepare(TEXTS))
    assert all(each.hypotheses[0].is_complete for each in made)
    found = score(translator, TEXTS, [each.text for each in made])
    for source, translation, scored in zip(TEXTS, made, found, strict=True):
        eos = brute_force(model_folder, source, translation.text, engine=engine)[-1]
        assert sum(scored.scores) + eos == pytest.approx(translation.score, abs=2e-3)
        assert len(scored.scores) + 1 == translation.hypotheses[0].tokens


@ENGINES
def test_ends_increase_up_to_the_length_of_the_text(model_folder, random_model, engine):
    for folder, texts in ((model_folder, TEXTS), (random_model, model_texts(20))):
        for text, found in zip(texts, score(load(folder, engine), texts, texts), strict=True):
            assert len(found.ends) == len(found.scores) == len(text.split())
            assert found.ends == sorted(set(found.ends))
            assert found.ends[-1] == len(text)
            assert all(value <= 0 for value in found.scores)
            assert [text[:end].count(" ") + 1 for end in found.ends] == [
                *range(1, len(text.split()) + 1)
            ]


@ENGINES
def test_batches_do_not_change_scores(model_folder, engine):
    texts = [" ".join(reversed(source.split())) for source in TEXTS]
    translator = load(model_folder, engine)
    together = score(translator, TEXTS, texts)
    alone = [score(translator, [s], [t])[0] for s, t in zip(TEXTS, texts, strict=True)]
    backwards = score(translator, TEXTS[::-1], texts[::-1])[::-1]
    small = score(load(model_folder, engine, batch_tokens=16), TEXTS, texts)
    for other in (alone, backwards, small):
        for one, same in zip(other, together, strict=True):
            assert one.ends == same.ends
            assert one.scores == pytest.approx(same.scores, abs=1e-3)


@ENGINES
def test_empty_texts_have_no_scores(model_folder, engine):
    translator = load(model_folder, engine)
    assert translator.score([]) == []
    assert score(translator, ["one"], [""]) == [ScoredText([], [])]
    assert score(translator, ["one"], [" "]) == [ScoredText([], [])]
    alone, longer, nothing = score(translator, ["one two"] * 3, ["two", "two one", ""])
    assert [len(each.scores) for each in (alone, longer, nothing)] == [1, 2, 0]
    assert alone.scores[0] == pytest.approx(longer.scores[0], abs=1e-3)
    [empty_source] = score(translator, [""], ["two"])
    assert (empty_source.ends, len(empty_source.scores)) == ([3], 1)
