"""Translation of an exported model with TensorFlow."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf
from models import translated, with_weight
from toy import toy_sentences

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.errors import NotFiniteError, UserError
from tt.model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    find_model_folder,
    model_fingerprint,
)
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tt.model.transformer.decode import length_limits
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts

SENTENCES = ["one two", "three", "four five six seven eight", "nine zero one", "two two"]


@pytest.fixture(scope="module")
def model_folder(trained_toy):
    return trained_toy.run / "model"


@pytest.mark.usefixtures("eager")
def test_export_can_be_moved(model_folder, tmp_path):
    before = translated(TensorFlowTranslator.load(model_folder), SENTENCES)
    shutil.copytree(model_folder, tmp_path / "elsewhere")
    assert translated(TensorFlowTranslator.load(tmp_path / "elsewhere"), SENTENCES) == before
    assert model_fingerprint(tmp_path / "elsewhere") == model_fingerprint(model_folder)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("beam_size", [1, 3])
def test_batching_does_not_change_translations(model_folder, beam_size):
    decoding = Decoding(beam_size=beam_size)
    translator = TensorFlowTranslator.load(model_folder, decoding=decoding)
    together = translated(translator, SENTENCES)
    assert len({t.text for t in together}) > 1, "the model does not distinguish sentences"
    assert [translated(translator, [s])[0].text for s in SENTENCES] == [t.text for t in together]
    backwards = translated(translator, SENTENCES[::-1])[::-1]
    assert [t.text for t in backwards] == [t.text for t in together]
    tiny = TensorFlowTranslator.load(
        model_folder, decoding=Decoding(beam_size=beam_size, batch_tokens=8)
    )
    tiny = translated(tiny, SENTENCES)
    assert [t.text for t in tiny] == [t.text for t in together]
    np.testing.assert_allclose([t.score for t in tiny], [t.score for t in together], atol=1e-4)


def test_greedy_search_equals_decoding_the_full_prefix_in_each_step(model_folder):
    translator = TensorFlowTranslator.load(
        model_folder, decoding=Decoding(beam_size=1, max_extra_tokens=6)
    )
    model = translator.model
    for ids in (each.encoded for each in translator.prepare(SENTENCES)):
        prefix = [BOS_ID]
        while prefix[-1] != EOS_ID:
            output = model(tf.constant([ids]), target=tf.constant([prefix]))
            logits = model.logits(output)[0, -1].numpy()
            logits[[PAD_ID, UNK_ID, BOS_ID, 14, 15]] = -np.inf  # 14 pieces, padded to 16
            is_last = len(prefix) == len(ids) + 6
            prefix.append(EOS_ID if is_last else int(np.argmax(logits)))
        found = translator._search(tf.constant([ids])).ids[0, 0].numpy().tolist()
        assert found == prefix[1:]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [52, 57, 350]),  # as in the paper: the source length + 50
        ({"max_extra_tokens": 0}, [2, 7, 300]),
        ({"max_extra_tokens": 3}, [5, 10, 303]),
        ({"max_length_ratio": 1.5, "max_extra_tokens": 3}, [6, 14, 453]),
        ({"max_length_ratio": 0.25, "max_extra_tokens": 0}, [1, 2, 75]),
        ({"max_length_ratio": 0.0, "max_extra_tokens": 9}, [9, 9, 9]),
        ({"max_length_ratio": 3.0}, [56, 71, 512]),
        ({"max_length_ratio": 1e30, "max_decoding_length": 2**31 - 1}, [2**31 - 1] * 3),
        ({"max_decoding_length": 20}, [20, 20, 20]),
    ],
)
def test_length_limits(options, expected):
    # min(max_decoding_length, ceil(max_length_ratio * source) + max_extra_tokens)
    decoding = Decoding(**options)
    assert length_limits(tf.constant([2, 7, 300]), decoding).numpy().tolist() == expected
    lengths = list(range(1, 600))
    limits = length_limits(tf.constant(lengths), decoding).numpy().tolist()
    assert [decoding.length_limit(length) for length in lengths] == limits  # for CTranslate2


def test_lengths_are_of_the_normalized_text(model_folder):
    translator = TensorFlowTranslator.load(model_folder)
    inputs = translator.prepare(["", "one two", " \u2028", "\u200b\x07", "one \u200b two"])
    assert [each.length for each in inputs] == [0, 2, 0, 0, 2]
    assert inputs[1].encoded == inputs[4].encoded
    assert translator.translate([])[0] == []


@pytest.mark.usefixtures("eager")
def test_longer_texts_are_truncated(model_folder):
    translator = TensorFlowTranslator.load(model_folder)
    whole, beginning = translator.prepare(["one two three four", "one two"])
    truncated, short = translator.prepare(["one two three four", "one two"], most_tokens=4)
    assert (truncated, short) == (whole, beginning), "the length is that of the whole text"
    assert truncated.encoded == short.encoded == beginning.encoded != whole.encoded


def test_folders_without_a_valid_model_are_refused(model_folder, tmp_path):
    with pytest.raises(UserError, match=r"no model folder at .*nowhere\. Check `model`, or train"):
        TensorFlowTranslator.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="contains no exported model"):
        TensorFlowTranslator.load(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dataset.json").touch()
    with pytest.raises(UserError, match=r"data contains no exported model: .* Choose the run fold"):
        TensorFlowTranslator.load(tmp_path / "data")
    shutil.copytree(model_folder, tmp_path / "run/best_model")
    with pytest.raises(UserError, match=r"or its best_model/ during training"):
        TensorFlowTranslator.load(tmp_path / "run")
    shutil.copytree(model_folder, tmp_path / "run/model")
    assert find_model_folder(tmp_path / "run") == tmp_path / "run/model"
    (tmp_path / "run/model" / WEIGHTS_FILE).write_bytes(b"not HDF5")
    with pytest.raises(UserError, match="is damaged or belongs to another model"):
        TensorFlowTranslator.load(tmp_path / "run")
    with pytest.raises(UserError, match=r"or does not match config\.json"):
        TensorFlowTranslator.load(tmp_path / "run", is_checked=True)
    (tmp_path / "run/model" / CONFIG_FILE).write_text("{")
    with pytest.raises(UserError, match="is not the configuration of a model"):
        TensorFlowTranslator.load(tmp_path / "run")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_overflowing_weights_fail_the_job(model_folder, tmp_path, beam_size):
    folder = with_weight(model_folder, tmp_path / "model", 3e38)
    translator = TensorFlowTranslator.load(folder, decoding=Decoding(beam_size=beam_size))
    with pytest.raises(NotFiniteError, match="gives no translation a probability, because its"):
        translated(translator, SENTENCES)
    cells = [sentence.encode() for sentence in SENTENCES]
    with pytest.raises(NotFiniteError):  # because the harmless test text also fails
        translate_texts(cells, translator=translator, options=TextOptions())


@pytest.mark.usefixtures("eager")
def test_overflow_in_one_row_fails_only_that_row(model_folder, monkeypatch):
    translator = TensorFlowTranslator.load(model_folder, decoding=Decoding(beam_size=1))
    search = translator._search

    def overflow(ids):
        found = search(ids)
        is_long = tf.math.count_nonzero(ids, 1) > 5
        return found._replace(scores=tf.where(is_long[:, None], np.nan, found.scores))

    monkeypatch.setattr(translator, "_search", overflow)
    cells = [sentence.encode() for sentence in SENTENCES]
    found = translate_texts(cells, translator=translator, options=TextOptions()).translations
    assert [cell.status for cell in found] == ["ok", "ok", "failed", "ok", "ok"]
    assert found[2].error.startswith("NotFiniteError: the model gives no translation a probability")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("beam_size", "no_repeat_ngram_size"), [(1, 0), (1, 2), (4, 0), (4, 2)])
def test_float16_translates_like_float32(trained_toy, beam_size, no_repeat_ngram_size):
    decoding = Decoding(beam_size=beam_size, no_repeat_ngram_size=no_repeat_ngram_size)
    full = TensorFlowTranslator.load(trained_toy.run, decoding=decoding)
    half = TensorFlowTranslator.load(trained_toy.run, decoding=decoding, compute_type="float16")
    assert half.model.compute_dtype == "float16"
    texts = [source for source, _ in toy_sentences(60, seed=11)]  # 1 to 6 words, so much padding
    expected, found = translated(full, texts), translated(half, texts)
    assert sum(a.text == b.text for a, b in zip(expected, found, strict=True)) >= 57
    for a, b in zip(expected, found, strict=True):
        if a.text == b.text:
            assert b.score == pytest.approx(a.score, rel=0.02, abs=0.02)
    assert [a.score for a in expected] != [b.score for b in found]
