"""Validation on several devices or processes: the work is divided, and the scores are the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from models import inputs_of
from toy import write_dataset
from trainers import changed, make_trainer, two_replicas

from tt.model.formats.model_folder import load_about
from tt.model.training.run_folder import BEST_MODEL_FOLDER, MODEL_FOLDER
from tt.pipelines.texts.flags import Limits

SENTENCES = 50  # in the validation split; `small_parts` translates eight of them at a time


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """A trainer whose model has learned enough to give different translations."""
    folder = tmp_path_factory.mktemp("validation")
    write_dataset(folder / "dataset", validation=SENTENCES)
    training = changed(steps=30, validate_every=30, save_every=30, score_every=30)
    trainer = make_trainer(folder / "dataset", folder / "run", training=training)
    trainer.train(lambda report: None)
    return trainer


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("tt.model.training.validation._SENTENCES_AT_ONCE", 8)


def counted(translator):
    """Return a list that receives the number of sentences in each call of a translator."""
    calls, translate = [], translator.translate

    def count(rows):
        calls.append(len(rows))
        return translate(rows)

    translator.translate = count
    return calls


def test_each_replica_translates_a_part(trainer, tmp_path):
    (one,) = trainer._validator._translators
    calls = counted(one)
    expected = trainer._validator.score()
    assert sorted(calls) == [2, *[8] * 6]
    assert expected[1].value > 1
    two = make_trainer(
        trainer.data.folder, tmp_path / "run", two_replicas(), training=changed(steps=30)
    )
    for old, new in zip(
        trainer.model.trainable_variables, two.model.trainable_variables, strict=True
    ):
        new.assign(old.numpy())
    calls = [counted(translator) for translator in two._validator._translators]
    assert two._validator.score() == expected
    assert [sum(each) for each in calls] == [4 * 8 - 6, 3 * 8]
    for number, translator in enumerate(two._validator._translators):
        result = translator._search(np.array([[2, 5, 3]], np.int32))
        assert result.scores.backing_device.endswith(f"CPU:{number}")


def test_each_replica_searches_with_its_own_weights(trainer, tmp_path):
    # Otherwise, each step of a search on a second GPU would copy all weights from the first GPU.
    two = make_trainer(
        trainer.data.folder, tmp_path / "run", two_replicas(), training=changed(steps=30)
    )
    copies = [
        two.workers.strategy.experimental_local_results(variable.value)
        for variable in two.model.trainable_variables
    ]
    first, second = two._validator._translators
    for number, translator in enumerate((first, second)):
        captured = {id(each) for each in translator._search.get_concrete_function().captured_inputs}
        read = [[id(copy.handle) in captured for copy in pair] for pair in copies]
        assert read == [[number == 0, number == 1]] * len(copies)
    # In a training, all copies are equal. Different copies show which one a search reads.
    rows = inputs_of(first, [two._validator._pairs[0][1]])
    expected = first.translate(rows)[0]
    for pair in copies:
        pair[0].assign(tf.zeros_like(pair[0]))
    assert second.translate(rows)[0] == expected
    assert first.translate(rows)[0] != expected


def test_model_card_contains_token_score_quantiles(trainer):
    validator = trainer._validator
    sources = [source for _, source, _ in validator._pairs]
    [translator] = validator._translators
    found, _ = translator.translate(inputs_of(translator, sources))
    scores = sorted(each.score / each.hypotheses[0].tokens for each in found)
    assert len(scores) == SENTENCES
    quantiles = validator.score()[2]
    # The 1% quantile of 50 values is at 0.01 * 49 = 0.49 of the way from the least value to the
    # next one.
    least, next_to_it = scores[:2]
    assert quantiles["1%"] == pytest.approx(least + 0.49 * (next_to_it - least), abs=1e-4)
    assert quantiles["50%"] == pytest.approx((scores[24] + scores[25]) / 2, abs=1e-4)
    for folder in (MODEL_FOLDER, BEST_MODEL_FOLDER):
        about = load_about(trainer.run.inside(folder))
        assert about.token_scores == quantiles
        assert Limits.of(about).least_score is None  # 50 scores have no 0.1% quantile
