"""Both engines give the same translations; for CTranslate2, a model is converted once."""

from __future__ import annotations

import errno
import itertools
import logging
import math
import os
import platform
import resource
import subprocess
import sys
import threading
import time
import types
import weakref

import pytest
import tensorflow as tf
from ctranslate2 import specs
from models import random_rows, with_weight, write_model
from toy import toy_sentences

from tt.model.engines import ctranslate2_engine
from tt.model.engines.batching import MOST_PADDING
from tt.model.engines.ctranslate2_engine import CTranslate2Translator, _Found
from tt.model.engines.loading import check_engine, convert, load_translator
from tt.model.engines.machine import cores, set_threads
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import Engine, is_on_gpus
from tt.model.errors import DiskFullError, NotFiniteError, UserError
from tt.model.folders import atomic_folder
from tt.model.formats.exports import export_ctranslate2
from tt.model.formats.model_folder import model_fingerprint
from tt.model.text.vocabulary import BOS_ID, EOS_ID, load_vocabularies
from tt.model.transformer.decode import length_limits
from tt.model.transformer.search_options import Decoding

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
    found, _ = translator.translate_ids(translator.encode(texts))
    return found


def best_texts(translations):
    return [translation.text for translation in translations]


def log_probability(model, source, target):
    """Return the log-probability of target ids with EOS, among the ids that may be chosen.

    The full forward pass of our model computes the value.
    """
    output = model(tf.constant([source]), target=tf.constant([[BOS_ID, *target[:-1]]]))
    logits = model.logits(output)[0].numpy()[:, EOS_ID:14]  # 14 pieces, padded to 16
    log_probabilities = tf.nn.log_softmax(logits).numpy()
    return sum(log_probabilities[i, token - EOS_ID] for i, token in enumerate(target))


# ------------------------------------------------------------------------- equal translations


def test_both_engines_have_equal_greedy_translations(model_folder):
    ours, theirs = load(model_folder, TENSORFLOW), load(model_folder, CTRANSLATE2)
    ids = ours.encode(TEXTS)
    assert theirs.encode(TEXTS) == ids
    (expected, expected_work), (found, work) = ours.translate_ids(ids), theirs.translate_ids(ids)
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


@pytest.mark.parametrize("beam_size", [1, 3])
def test_batching_does_not_change_translations(model_folder, beam_size):
    decoding = Decoding(beam_size=beam_size, n_best=beam_size)
    translator = load(model_folder, CTRANSLATE2, decoding)
    texts = TEXTS[:60]
    together = translate(translator, texts)
    alone = [translate(translator, [text])[0] for text in texts]
    backwards = translate(translator, texts[::-1])[::-1]
    small = load(model_folder, CTRANSLATE2, Decoding(beam_size=beam_size, n_best=beam_size,
                                                     batch_tokens=40))  # fmt: skip
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
    ids = translator.encode(TEXTS[:12])
    for source, translation in zip(ids, translate(translator, TEXTS[:12]), strict=True):
        targets = [row[1:] for row in translator.encode([h.text for h in translation.hypotheses])]
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


def test_empty_input_has_no_translations(model_folder):
    assert load(model_folder, CTRANSLATE2).translate_ids([])[0] == []


# ------------------------------------------------------------------------------ length limits


@pytest.mark.parametrize("fields", [
    {}, {"max_length_ratio": 1.1}, {"max_length_ratio": 0.7, "max_extra_tokens": 3},
    {"max_decoding_length": 9}, {"max_length_ratio": 1e9}, {"max_length_ratio": 1e300},
    {"max_length_ratio": 5e6, "max_decoding_length": 2**31 - 1, "max_extra_tokens": 2**31 - 1},
])  # fmt: skip
def test_length_limits_equal_tensorflow(fields):
    decoding = Decoding(**fields)
    lengths = list(range(1, 600))
    expected = length_limits(tf.constant(lengths), decoding).numpy().tolist()
    assert [decoding.length_limit(length) for length in lengths] == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"max_extra_tokens": 2},
        {"max_length_ratio": 2.5, "max_extra_tokens": 0},
        {"max_decoding_length": 2},
        {"max_decoding_length": 1},
    ],
    ids=str,
)
def test_each_source_has_a_separate_limit(random_model, fields):
    decoding = Decoding(beam_size=1, **fields)
    ours, theirs = (
        load(random_model, TENSORFLOW, decoding),
        load(random_model, CTRANSLATE2, decoding),
    )
    rows = random_rows(ours)
    (expected, expected_work), (found, work) = ours.translate_ids(rows), theirs.translate_ids(rows)
    equal = sum(a == b for a, b in zip(best_texts(found), best_texts(expected), strict=True))
    assert equal >= 0.99 * len(rows)  # a random model has nearly equal logits: see test_exports
    assert work.target_tokens == pytest.approx(expected_work.target_tokens, rel=0.01)
    limits = [decoding.length_limit(len(row)) for row in rows]
    at_limit = 0
    for row, limit, translation in zip(rows, limits, found, strict=True):
        target = theirs.tokens.vocabularies.target.encode([translation.text])[0][1:]
        assert len(target) <= limit, row
        at_limit += len(target) == limit
    assert at_limit > 10


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("engine", [TENSORFLOW, CTRANSLATE2], ids=lambda engine: engine.name)
def test_translations_at_the_limit_are_incomplete(random_model, engine, beam_size):
    short = Decoding(beam_size=beam_size, n_best=beam_size, max_length_ratio=0, max_extra_tokens=3)
    translator = load(random_model, engine, short)
    rows = random_rows(translator, count=100)
    found, _ = translator.translate_ids(rows)
    hypotheses = [h for translation in found for h in translation.hypotheses]
    target = load_vocabularies(random_model).target
    for hypothesis in hypotheses:
        tokens = len(target.encode([hypothesis.text])[0]) - 1  # without BOS
        assert (hypothesis.is_complete, hypothesis.tokens) == (tokens < 3, tokens), hypothesis
    assert {h.is_complete for h in hypotheses} == {True, False}


def test_is_on_gpus_for_ctranslate2(random_model, monkeypatch):
    assert not is_on_gpus(load(random_model, CTRANSLATE2, GREEDY))
    made = []
    gpus = types.SimpleNamespace(
        get_cuda_device_count=lambda: 2,
        get_supported_compute_types=lambda device: {"float32"},
        Translator=lambda *_, **settings: made.append(settings),
    )
    monkeypatch.setattr(ctranslate2_engine, "ctranslate2", gpus)
    assert is_on_gpus(load(random_model, CTRANSLATE2, GREEDY))
    assert made[0]["device_index"] == [0, 1]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_sources_with_other_limits_in_a_batch_change_nothing(random_model, monkeypatch, beam_size):
    decoding = Decoding(beam_size=beam_size, n_best=beam_size, max_extra_tokens=2)
    translator = load(random_model, CTRANSLATE2, decoding)
    rows = random_rows(translator, count=100)
    alone = [translator.translate_ids([row])[0][0] for row in rows]
    searched, exceeded = [], []
    search = CTranslate2Translator._search

    def observed(self, sources, *, limit):
        searched.append((len(sources), limit))
        found = search(self, sources, limit=limit)
        exceeded.extend(
            len(row[0].tokens) > decoding.length_limit(len(source) + 2)  # BOS and EOS
            for source, row in zip(sources, found, strict=True)
        )
        return found

    monkeypatch.setattr(CTranslate2Translator, "_search", observed)
    together, _ = translator.translate_ids(rows)
    assert searched[0] == (100, 14)  # all sources at once, with the limit of the longest
    assert any(exceeded), "no search exceeded the limit of its source"
    assert (len(searched) == 1) == (beam_size == 1), "only beam searches run again"
    equal = 0
    for one, other in zip(together, alone, strict=True):
        if [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]:
            equal += 1
            assert one.score == pytest.approx(other.score, abs=1e-3)
    assert equal >= 99  # because of nearly equal logits, as above


@pytest.mark.parametrize("no_repeat", [0, 2])
def test_eos_at_the_limit_does_not_count_in_greedy_scores(random_model, monkeypatch, no_repeat):
    decoding = Decoding(
        beam_size=1, max_length_ratio=0, max_extra_tokens=3, no_repeat_ngram_size=no_repeat
    )
    translator = load(random_model, CTRANSLATE2, decoding)
    rows = random_rows(translator, count=200)
    end = CTranslate2Translator._end
    hypotheses = []

    def observed(self, sources, found, limits):
        end(self, sources, found, limits)
        rescored = self._score(sources, [row[0] for row in found])
        hypotheses.extend(zip(limits, [row[0] for row in found], rescored, strict=True))

    monkeypatch.setattr(CTranslate2Translator, "_end", observed)
    found, _ = translator.translate_ids(rows)
    assert 20 < sum(not each.hypotheses[0].is_complete for each in found) < 200
    for limit, hypothesis, log_probabilities in hypotheses:
        assert len(log_probabilities) == len(hypothesis.tokens) <= limit
        counted = log_probabilities[: limit - 1]
        assert hypothesis.score == pytest.approx(sum(counted), abs=1e-3)


@pytest.mark.parametrize("least_positions", [0, 2048])
def test_incomplete_greedy_translations_are_scored(random_model, monkeypatch, least_positions):
    monkeypatch.setattr("tt.model.engines.batching._SMALL", least_positions)
    translator = load(random_model, CTRANSLATE2, Decoding(beam_size=1, max_extra_tokens=2))
    rows = random_rows(translator, count=300)
    scored = []
    score = CTranslate2Translator._score

    def observed(self, sources, hypotheses):
        scored.extend(sources)
        return score(self, sources, hypotheses)

    monkeypatch.setattr(CTranslate2Translator, "_score", observed)
    found, _ = translator.translate_ids(rows)
    cut_off = sum(not each.hypotheses[0].is_complete for each in found)
    assert cut_off > 10
    if least_positions:  # one batch, in which most sources have a lower limit than the longest
        assert 0 < len(scored) <= cut_off
    else:
        assert not scored
    alone = [translator.translate_ids([row])[0][0] for row in rows]
    compared = 0
    for one, other in zip(found, alone, strict=True):
        if one.text == other.text:
            compared += 1
            assert one.score == pytest.approx(other.score, abs=1e-3)
    assert compared > 290


@pytest.mark.parametrize("is_on_gpus", [False, True], ids=["CPU", "GPU"])
def test_large_greedy_batches_have_one_length_on_cpus(random_model, monkeypatch, is_on_gpus):
    monkeypatch.setattr("tt.model.engines.batching._SMALL", 0)
    translator = load(random_model, CTRANSLATE2, GREEDY)
    if is_on_gpus:
        monkeypatch.setattr(translator, "_most_padding", MOST_PADDING)
    batches = []
    translate_batch = CTranslate2Translator._translate_batch

    def observed(self, rows, **settings):
        batches.append({len(row) for row in rows})
        return translate_batch(self, rows, **settings)

    monkeypatch.setattr(CTranslate2Translator, "_translate_batch", observed)
    translator.translate_ids(random_rows(translator, count=100))
    assert (max(map(len, batches)) == 1) != is_on_gpus


def test_empty_source_has_the_score_of_its_translation(random_model):
    translator = load(random_model, CTRANSLATE2, GREEDY)
    [[best]] = [each.hypotheses for each in translate(translator, [""])]
    assert (best.text, best.is_complete) == ("", True)
    source = translator.tokens.name(translator.encode([""])[0])
    [expected] = translator._score([source], [_Found([translator.tokens.end], 0.0)])
    assert best.score == pytest.approx(sum(expected), abs=1e-4)
    assert best.score < -0.1


def test_source_beyond_the_positions_is_an_input_error(model_folder):
    translator = load(model_folder, CTRANSLATE2)
    with pytest.raises(ValueError, match="a source has 2,049 ids") as caught:
        translator.translate_ids([[BOS_ID, *[5] * 2047, EOS_ID]])
    assert translator.is_input_error(caught.value)
    with pytest.raises(
        UserError, match=r"`max_decoding_length` must be at most 2,048, .*\. Received: 3,000"
    ):
        load(model_folder, CTRANSLATE2, Decoding(max_decoding_length=3000))


def test_lack_of_memory_is_not_an_input_error(model_folder):
    translator = load(model_folder, CTRANSLATE2)
    assert translator.is_input_error(ValueError())
    assert not translator.is_input_error(MemoryError())


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
            longest = max(map(len, sources)) + 2  # BOS and EOS
            check(len(sources), longest, RuntimeError("CUDA failed: out of memory"))
            return search(sources, limit=limit)

        monkeypatch.setattr(translator, "_search", fail)
    return failures


@pytest.mark.parametrize("engine", [TENSORFLOW, CTRANSLATE2], ids=lambda engine: engine.name)
def test_lack_of_memory_shrinks_batches_permanently(model_folder, monkeypatch, engine):
    translator = load(model_folder, engine)
    ids = translator.encode(TEXTS)
    expected, undisturbed = translator.translate_ids(ids)
    failures = without_memory(translator, engine, monkeypatch, fits=600)
    found, work = translator.translate_ids(ids)
    assert best_texts(found) == best_texts(expected)
    assert work.memory_backoffs == len(failures) == 2  # the budget shrinks from 2,400 to 600
    assert (work.sources, work.source_tokens) == (300, undisturbed.source_tokens)
    again, work = translator.translate_ids(ids)
    assert best_texts(again) == best_texts(expected)
    assert (work.memory_backoffs, len(failures)) == (0, 2)


@pytest.mark.parametrize("engine", [TENSORFLOW, CTRANSLATE2], ids=lambda engine: engine.name)
def test_source_beyond_the_memory_is_not_an_input_error(model_folder, monkeypatch, engine):
    translator = load(model_folder, engine)
    without_memory(translator, engine, monkeypatch, fits=7)
    with pytest.raises((tf.errors.ResourceExhaustedError, RuntimeError)) as caught:
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
found, _ = translator.translate_ids(translator.encode(sys.argv[2:]))
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


def test_threads_can_share_a_translator(model_folder):
    translator = load(model_folder, CTRANSLATE2, threads=1)
    assert weakref.ref(translator)() is translator
    results = {}

    def work(name):
        results[name] = best_texts(translate(translator))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1] == results[2] == best_texts(translate(translator))


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


def test_check_engine_finds_errors_without_weights(model_folder, tmp_path, monkeypatch):
    def refused(folder=model_folder, engine=CTRANSLATE2, most=258, **fields):
        with pytest.raises(UserError) as caught:
            check_engine(folder, decoding=Decoding(**fields), engine=engine, max_source_tokens=most)
        return str(caught.value)

    rule = "must be at most 2,048, the number of positions in CTranslate2's model"
    assert refused(max_decoding_length=4096) == f"`max_decoding_length` {rule}. Received: 4,096"
    assert refused(most=2049) == f"`max_source_tokens` {rule}. Received: 2,049"
    for engine in (TENSORFLOW, CTRANSLATE2):
        assert refused(tmp_path / "nowhere", engine).startswith("no model folder at ")
    exported = tmp_path / "exported"
    export_ctranslate2(model_folder, exported)
    assert "Set `engine=ctranslate2`" in refused(exported, TENSORFLOW)
    long = Decoding(max_decoding_length=4096)
    check_engine(model_folder, decoding=long, engine=TENSORFLOW, max_source_tokens=4096)
    for folder in (model_folder, model_folder.parent, exported):
        check_engine(folder, decoding=GREEDY, engine=CTRANSLATE2, max_source_tokens=2048)


def test_cache_that_cannot_be_written_is_an_error(model_folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written: .*\. Set XDG_CACHE_HOME to a folder"):
        load(model_folder, CTRANSLATE2)


def test_full_cache_is_an_error_with_advice(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(code):
        def failing(*_):
            raise OSError(code, os.strerror(code))

        return failing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specs.TransformerSpec, "save", fail(errno.ENOSPC))
        with pytest.raises(DiskFullError, match=r"set XDG_CACHE_HOME to a folder with free space$"):
            load(model_folder, CTRANSLATE2)
    assert list((tmp_path / "tt").iterdir()) == []
    # An error of reading the model must not be reported as an error of the output folder.
    monkeypatch.setattr("tt.model.formats.exports.load_model", fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        export_ctranslate2(model_folder, tmp_path / "exported")


def test_threads_can_write_a_shared_folder_at_once(tmp_path):
    all_write = threading.Barrier(4)

    def write(folder):
        with atomic_folder(folder, is_shared=True) as made:
            all_write.wait(timeout=60)
            (made / "file").write_text("whole")

    folder = tmp_path / "deep/made"
    threads = [threading.Thread(target=write, args=(folder,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(p.name, (p / "file").read_text()) for p in folder.parent.iterdir()] == [
        ("made", "whole")
    ]


def test_failed_shared_folder_is_deleted_with_old_leftovers(tmp_path):
    for name, hours in {"made.1.tmp": 25, ".made.2.tmp": 25, "made.3.tmp": 1}.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - hours * 3600,) * 2)

    with (
        pytest.raises(RuntimeError, match="out of luck"),
        atomic_folder(tmp_path / "made", is_shared=True),
    ):
        raise RuntimeError("out of luck")
    assert [path.name for path in tmp_path.iterdir()] == ["made.3.tmp"]


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


def test_threads_stay_if_tensorflow_has_computed(caplog):
    tf.constant(1) + 1
    before = tf.config.threading.get_intra_op_parallelism_threads()
    with caplog.at_level(logging.WARNING):
        set_threads(before + 1)
    assert "TensorFlow keeps its current threads" in caplog.text
    assert tf.config.threading.get_intra_op_parallelism_threads() == before


PAGE_FAULTS = """
import resource
from tt.model.engines.machine import keep_freed_memory
{call}
for i in range(20):
    blocks = [bytearray(16 * 2**20) for _ in range(6)]
    del blocks
    if i == 0:
        first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is configured")
def test_freed_memory_is_kept():
    def page_faults(call):
        command = [sys.executable, "-c", PAGE_FAULTS.format(call=call)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    pages = 6 * 16 * 2**20 // resource.getpagesize()
    assert page_faults("keep_freed_memory()") < pages
    assert page_faults("") > 10 * pages


def test_cores_counts_the_available_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 6}, raising=False)
    assert cores() == 3


def test_ctranslate2_runs_as_many_calls_as_the_cores_allow(model_folder, monkeypatch):
    given = {}
    package = ctranslate2_engine.ctranslate2

    class Observed:
        get_cuda_device_count = staticmethod(package.get_cuda_device_count)
        get_supported_compute_types = staticmethod(package.get_supported_compute_types)

        def Translator(self, folder, **options):  # noqa: N802
            given.update(options)
            return package.Translator(folder, **options)

    monkeypatch.setattr(ctranslate2_engine, "ctranslate2", Observed())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    for threads, expected in [(2, (2, 2)), (0, (1, 4)), (3, (1, 3)), (9, (1, 9))]:
        load(model_folder, CTRANSLATE2, threads=threads)
        assert (given["inter_threads"], given["intra_threads"]) == expected
