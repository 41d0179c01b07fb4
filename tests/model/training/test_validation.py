"""Validation on several devices or processes: the work is divided, and the scores are the same."""

from __future__ import annotations

import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from toy import write_dataset
from trainers import changed, make_trainer, two_replicas

from tt.model.formats.model_folder import load_about
from tt.model.training.run_folder import BEST_MODEL_FOLDER, MODEL_FOLDER
from tt.model.training.stops import StopRequest
from tt.model.training.strategies import Workers, make_strategy
from tt.model.training.validation import Validator
from tt.pipelines.texts.limits import Limits

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
    calls, translate = [], translator.translate_ids

    def translate_ids(rows):
        calls.append(len(rows))
        return translate(rows)

    translator.translate_ids = translate_ids
    return calls


def make_validator(trainer, *, workers=None, stop=None):
    return Validator(
        trainer.model, step=None, data=trainer.data,
        workers=workers or trainer.workers, stop=stop or StopRequest(),
    )  # fmt: skip


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


def test_model_card_contains_token_score_quantiles(trainer):
    validator = trainer._validator
    sources = [source for _, source, _ in validator._pairs]
    found, _ = validator._translators[0].translate_ids(sources)
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


class OneOfWorkers:
    """A stand-in for a worker process, whose `sum` adds the values of all workers."""

    devices = (None,)

    def __init__(self, number, count, shared):
        self.number, self.count = number, count
        self._values, self._barrier = shared

    def sum(self, values):
        self._values.append(values.astype(np.float32))
        self._barrier.wait(60)
        total = np.sum(self._values, axis=0, dtype=np.float32)
        if self._barrier.wait(60) == 0:
            self._values.clear()
        self._barrier.wait(60)
        return total


def make_workers(count):
    shared = [], threading.Barrier(count)
    return [OneOfWorkers(number, count, shared) for number in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_each_worker_translates_a_part_and_gets_the_same_scores(trainer, count):
    expected = make_validator(trainer).score()
    stops = [0] * count

    def score(workers):
        def check(asked):
            assert asked is workers
            stops[workers.number] += 1

        stop = types.SimpleNamespace(check=check)
        validator = make_validator(trainer, workers=workers, stop=stop)
        calls = counted(validator._translators[0])
        return validator.score(), sum(calls)

    with ThreadPoolExecutor(count) as threads:
        found = list(threads.map(score, make_workers(count)))
    assert [scores for scores, _ in found] == [expected] * count
    # There are seven parts, and the last part has two sentences.
    assert [sentences for _, sentences in found] == {2: [26, 24], 3: [18, 16, 16]}[count]
    assert stops == [-(-7 // count) + 1] * count  # all workers check equally often


def test_workers_exchange_unicode_texts(trainer):
    texts = ["Ein Hund läuft.", "", "犬が走る。", "👍", "a", ""]

    def gather(workers):
        own = [text if i % 2 == workers.number else "" for i, text in enumerate(texts)]
        return make_validator(trainer, workers=workers)._gather(own)

    def gather_nothing(workers):
        return make_validator(trainer, workers=workers)._gather(["", ""])

    workers = make_workers(2)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(gather, workers)) == [texts, texts]
        assert list(threads.map(gather_nothing, workers)) == [["", ""]] * 2


def test_single_process_is_the_only_worker():
    for name in ("one-device", "mirrored"):
        workers = Workers(make_strategy(name))
        assert (workers.number, workers.count, workers.is_chief) == (0, 1, True)
    assert Workers(make_strategy("one-device")).devices == [None]
    devices = Workers(two_replicas()).devices
    assert [device.split("device:")[1] for device in devices] == ["CPU:0", "CPU:1"]
