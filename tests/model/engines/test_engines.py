"""Both engines give the same translations; for CTranslate2, a model is converted once."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
import tensorflow as tf
from models import full_logits, inputs_of, random_rows, with_weight, write_model
from toy import toy_sentences

from tt.model.engines.loading import convert, load_translator
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import Engine
from tt.model.errors import NotFiniteError, UserError
from tt.model.formats.exports import export_ctranslate2
from tt.model.formats.model_folder import model_fingerprint
from tt.model.text.vocabulary import BOS_ID, EOS_ID, load_vocabularies
from tt.model.transformer.search_options import Decoding

pytestmark = pytest.mark.usefixtures("eager")

TENSORFLOW = Engine(name="tensorflow")
CTRANSLATE2 = Engine(name="ctranslate2")
INT8 = Engine(name="ctranslate2", compute_type="int8")
GREEDY = Decoding(beam_size=1)
TEXTS = [source for source, _ in toy_sentences(300, seed=5)]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A separate cache for this module, in which the toy model is converted once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "tt"


@pytest.fixture(scope="module")
def model_folder(trained_toy):
    return trained_toy.run / "model"


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    """A model with different translations for different sources, some of which reach the limit."""
    return write_model(tmp_path_factory.mktemp("random"), norm="pre")


def load(folder, engine, decoding=GREEDY, **options):
    return load_translator(str(folder), decoding=decoding, engine=engine, **options)


def translate(translator, texts=TEXTS):
    found, _ = translator.translate(translator.prepare(texts))
    return found


def best_texts(translations):
    return [translation.text for translation in translations]


def log_probability(model, source, target, *, pieces=14):
    """Return the log-probability of target ids with EOS, among the ids that may be chosen.

    The full forward pass of our model computes the value.
    """
    logits = full_logits(model, source, [BOS_ID, *target[:-1]])
    logits = logits[:, EOS_ID:pieces]  # without padding of the table
    log_probabilities = tf.nn.log_softmax(logits).numpy()
    return sum(log_probabilities[i, token - EOS_ID] for i, token in enumerate(target))


# ------------------------------------------------------------------------- equal translations


def test_both_engines_have_equal_greedy_translations(model_folder):
    ours, theirs = load(model_folder, TENSORFLOW), load(model_folder, CTRANSLATE2)
    inputs = ours.prepare(TEXTS)
    assert theirs.prepare(TEXTS) == inputs
    expected, expected_work = ours.translate(inputs)
    found, work = theirs.translate(theirs.prepare(TEXTS))
    assert len(set(best_texts(expected))) > 150, "the model does not distinguish sentences"
    assert best_texts(found) == best_texts(expected)
    assert work == expected_work


def test_both_engines_have_nearly_equal_beam_translations(model_folder):
    decoding = Decoding(beam_size=4, length_penalty=0.6)
    expected, found = (
        best_texts(translate(load(model_folder, engine, decoding)))
        for engine in (TENSORFLOW, CTRANSLATE2)
    )
    # The engines stop at different times; see `tt.model.engines.ctranslate2_engine`.
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= 0.98 * len(TEXTS)


def test_int8_translations_are_similar(model_folder):
    expected = best_texts(translate(load(model_folder, CTRANSLATE2)))
    found = best_texts(translate(load(model_folder, INT8)))
    words = [(a.split(), b.split()) for a, b in zip(found, expected, strict=True)]
    equal = sum(sum(x == y for x, y in zip(a, b, strict=False)) for a, b in words)
    # A model of width 32 loses more than real models: 91% of the words are equal at their position.
    assert equal >= 0.8 * sum(max(len(a), len(b)) for a, b in words)


@pytest.mark.parametrize(("beam_size", "more"), [(1, 50), (3, 50), (1, 2), (3, 2)])
def test_batching_does_not_change_translations(model_folder, beam_size, more):
    """With two extra tokens, each source of a batch has its own limit."""
    fields = {"beam_size": beam_size, "n_best": beam_size, "max_extra_tokens": more}
    translator = load(model_folder, CTRANSLATE2, Decoding(**fields))
    assert translator.translate([])[0] == []
    texts = TEXTS[:60]
    together = translate(translator, texts)
    alone = [translate(translator, [text])[0] for text in texts]
    backwards = translate(translator, texts[::-1])[::-1]
    small = load(model_folder, CTRANSLATE2, Decoding(**fields, batch_tokens=40))
    for other in (alone, backwards, translate(small, texts)):
        assert best_texts(other) == best_texts(together)
        for one, same in zip(other, together, strict=True):
            assert [h.text for h in one.hypotheses] == [h.text for h in same.hypotheses]
            assert [h.score for h in one.hypotheses] == pytest.approx(
                [h.score for h in same.hypotheses], abs=1e-4
            )


@pytest.mark.parametrize("no_repeat_ngram_size", [0, 2])
def test_scores_are_log_probabilities_and_rank_the_hypotheses(model_folder, no_repeat_ngram_size):
    decoding = Decoding(
        beam_size=4, n_best=4, length_penalty=1.3, no_repeat_ngram_size=no_repeat_ngram_size
    )
    translator = load(model_folder, CTRANSLATE2, decoding)
    model = TensorFlowTranslator.load(model_folder).model
    vocabulary = load_vocabularies(model_folder).source
    ids = vocabulary.encode(TEXTS[:12])
    for source, translation in zip(ids, translate(translator, TEXTS[:12]), strict=True):
        targets = [row[1:] for row in vocabulary.encode([h.text for h in translation.hypotheses])]
        assert len(targets) > 1
        expected = [log_probability(model, source, target) for target in targets]
        assert [h.score for h in translation.hypotheses] == pytest.approx(expected, abs=2e-3)
        ranks = [
            score / ((5 + len(target)) / 6) ** 1.3
            for score, target in zip(expected, targets, strict=True)
        ]
        assert ranks == sorted(ranks, reverse=True)
        for target in targets if no_repeat_ngram_size else ():
            pairs = list(itertools.pairwise(target))
            assert len(pairs) == len(set(pairs))


# ------------------------------------------------------------------------------ length limits


@pytest.mark.parametrize("no_repeat", [0, 2])
def test_greedy_scores_do_not_count_the_eos_at_the_limit(random_model, no_repeat):
    decoding = Decoding(
        beam_size=1, max_length_ratio=0, max_extra_tokens=3, no_repeat_ngram_size=no_repeat
    )
    translator = load(random_model, CTRANSLATE2, decoding)
    model = TensorFlowTranslator.load(random_model).model
    target = load_vocabularies(random_model).target
    rows = random_rows(translator, count=100)
    found, _ = translator.translate(inputs_of(translator, rows))
    best = [each.hypotheses[0] for each in found]
    assert 20 < sum(not each.is_complete for each in best) < 100
    for row, hypothesis in zip(rows, best, strict=True):
        _, *ids = target.encode([hypothesis.text])[0]
        counted = ids if hypothesis.is_complete else ids[:-1]
        expected = log_probability(model, row, counted, pieces=target.piece_count)
        assert hypothesis.score == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("engine", "beam_size"), [(TENSORFLOW, 1), (CTRANSLATE2, 1), (TENSORFLOW, 3), (CTRANSLATE2, 3)]
)
def test_translations_at_the_limit_are_incomplete(random_model, engine, beam_size):
    short = Decoding(beam_size=beam_size, n_best=beam_size, max_length_ratio=0, max_extra_tokens=3)
    translator = load(random_model, engine, short)
    rows = random_rows(translator, count=100)
    found, _ = translator.translate(inputs_of(translator, rows))
    hypotheses = [h for translation in found for h in translation.hypotheses]
    target = load_vocabularies(random_model).target
    for hypothesis in hypotheses:
        tokens = len(target.encode([hypothesis.text])[0]) - 1  # without BOS
        assert (hypothesis.is_complete, hypothesis.tokens) == (tokens < 3, tokens), hypothesis
    assert {h.is_complete for h in hypotheses} == {True, False}


def test_source_beyond_the_positions_is_an_input_error(model_folder):
    translator = load(model_folder, CTRANSLATE2)
    with pytest.raises(ValueError, match="a source has 2,049 ids") as caught:
        translator.translate(inputs_of(translator, [[BOS_ID, *[5] * 2047, EOS_ID]]))
    assert translator.is_input_error(caught.value)
    assert not translator.is_input_error(MemoryError())
    with pytest.raises(
        UserError, match=r"`max_decoding_length` must be at most 2,048, .*\. Received: 3,000"
    ):
        load(model_folder, CTRANSLATE2, Decoding(max_decoding_length=3000))


# ------------------------------------------------------------------------------------- memory


def without_memory(translator, engine, monkeypatch, *, fits):
    """Make batches with more than `fits` padded positions fail; return the list of failures."""
    failures = []

    def check(rows, longest, error):
        if rows * longest > fits:
            failures.append((rows, longest))
            raise error

    if engine == TENSORFLOW:
        search = translator._search
        error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

        def fail(source):
            check(*source.shape, error)
            return search(source)

        monkeypatch.setattr(translator, "_search", fail)
    else:
        search = translator._search

        def fail(sources, *, limit):
            longest = max(map(len, sources))
            check(len(sources), longest, RuntimeError("CUDA failed: out of memory"))
            return search(sources, limit=limit)

        monkeypatch.setattr(translator, "_search", fail)
    return failures


@pytest.mark.parametrize("engine", [TENSORFLOW, CTRANSLATE2], ids=lambda engine: engine.name)
def test_lack_of_memory_shrinks_batches_permanently(model_folder, monkeypatch, engine):
    translator = load(model_folder, engine)
    inputs = translator.prepare(TEXTS)
    expected, undisturbed = translator.translate(inputs)
    failures = without_memory(translator, engine, monkeypatch, fits=600)
    found, work = translator.translate(inputs)
    assert best_texts(found) == best_texts(expected)
    assert work.memory_backoffs == len(failures) == 2  # the budget shrinks from 2,400 to 600
    assert (work.sources, work.source_tokens) == (300, undisturbed.source_tokens)
    again, work = translator.translate(inputs)
    assert best_texts(again) == best_texts(expected)
    assert (work.memory_backoffs, len(failures)) == (0, 2)
    without_memory(translator, engine, monkeypatch, fits=7)  # less than the longest source
    with pytest.raises(UserError, match="out of memory for a single source of") as caught:
        translate(translator)
    assert not translator.is_input_error(caught.value)


# ------------------------------------------------------------------- converting and loading

WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = sys.modules["keras"] = None  # importing it is an error
from tt.model.transformer.search_options import Decoding
from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
translator = load_translator(
    sys.argv[1], decoding=Decoding(beam_size=1), engine=Engine(name="ctranslate2"), threads=1
)
found, _ = translator.translate(translator.prepare(sys.argv[2:]))
print([translation.text for translation in found])
"""


def test_converted_model_needs_no_tensorflow(model_folder, cache):
    run = model_folder.parent
    expected = best_texts(translate(load(run, CTRANSLATE2), TEXTS[:3]))
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, run, *TEXTS[:3]],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.strip() == repr(expected)
    converted = [path.name for path in cache.iterdir()]
    assert f"{model_fingerprint(model_folder)}-ctranslate2-2" in converted
    assert not [name for name in converted if name.endswith(".tmp")]


def test_weights_that_are_not_finite_are_an_error(model_folder, tmp_path):
    folder = with_weight(model_folder, tmp_path / "model", math.nan, name="outer/kernel")
    for beam_size in (1, 3):
        translator = load(folder, CTRANSLATE2, Decoding(beam_size=beam_size))
        with pytest.raises(NotFiniteError, match="gives no translation a probability") as caught:
            translate(translator)
        assert translator.is_input_error(caught.value), "callers must try a harmless text"


def test_export_is_not_converted(model_folder, tmp_path, monkeypatch):
    export_ctranslate2(model_folder, tmp_path / "exported")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert convert(tmp_path / "exported") == tmp_path / "exported"
    found = translate(load(tmp_path / "exported", CTRANSLATE2))
    assert best_texts(found) == best_texts(translate(load(model_folder, TENSORFLOW)))
    assert not (tmp_path / "cache").exists()
    before = model_fingerprint(tmp_path / "exported")
    with pytest.raises(UserError, match=r"is a CTranslate2 model, which can only translate"):
        load(tmp_path / "exported", TENSORFLOW)
    (tmp_path / "exported/about.json").unlink()
    with (tmp_path / "exported/model.bin").open("ab") as file:
        file.write(b"x")
    assert model_fingerprint(tmp_path / "exported") != before


def test_loading_errors_are_one_line(model_folder, tmp_path):
    with pytest.raises(UserError, match="no model folder at"):
        load(tmp_path / "nowhere", CTRANSLATE2)
    export_ctranslate2(model_folder, tmp_path / "exported")
    (tmp_path / "exported/about.json").unlink()  # its digests would detect the damage first
    (tmp_path / "exported/model.bin").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"^CTranslate2 cannot load .*/exported as float32 \(.+$"):
        load(tmp_path / "exported", CTRANSLATE2)
    (tmp_path / "exported/shared_vocabulary.json").unlink()
    with pytest.raises(UserError, match=r"has no (source|target)_vocabulary.json"):
        load(tmp_path / "exported", CTRANSLATE2)


def test_cache_that_cannot_be_written_is_an_error(model_folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written: .*\. Set XDG_CACHE_HOME to a folder"):
        load(model_folder, CTRANSLATE2)


# ------------------------------------------------------------------------------------ threads

SET_THREADS = """
import sys
from tt.model.engines.machine import calls_at_once, set_threads
set_threads(3)
import tensorflow as tf
tf.constant(1) + 1
assert tf.config.threading.get_intra_op_parallelism_threads() == 3
assert tf.config.threading.get_inter_op_parallelism_threads() == calls_at_once(3)
"""


def test_threads_are_set_before_tensorflow_computes():
    subprocess.run([sys.executable, "-c", SET_THREADS], check=True, capture_output=True)
