"""Training: updates over replicas and batches, learning, resume, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import itertools
import json
import math
import os
import re
import resource
import shutil
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_transformer import random_ids
from toy import gradients_of, parse_record, toy_config, toy_sentences, write_dataset

from model.artifacts import MANIFEST_FILE
from model.averaging import export_average, export_checkpoint
from model.config import Decoding, TrainingConfig
from model.dataset import Position
from model.errors import DiskFullError, UserError
from model.optimizer import Adam, Schedule
from model.reporting import Progress, Validation
from model.run_folder import RunFolder, read_text
from model.step import Numbers
from model.stopping import Terminated
from model.strategies import make_strategy
from model.training import Trainer
from model.translator import Translator

FAST = TrainingConfig(
    steps=12, batch_tokens=256, peak_learning_rate=0.01, warmup_steps=20, save_every=4,
    validate_every=6, score_every=0, log_every=3, keep_checkpoints=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def toy_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "dataset"
    write_dataset(folder)
    return folder


def make_trainer(dataset, run, strategy=None, training=FAST, **fields):
    # One layer: tracing takes most of the time of these tests.
    return Trainer(
        dataset=dataset,
        run=run,
        model_config=toy_config(**{"layers": 1, **fields}),
        training=training,
        strategy=strategy or make_strategy("one-device"),
    )


def two_replicas():
    strategy = make_strategy("mirrored", devices=["cpu:0", "cpu:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy


def changed(**fields):
    return dataclasses.replace(FAST, **fields)


def weights_of(trainer):
    return [variable.numpy() for variable in trainer.model.trainable_variables]


def update(trainer, batch, number):
    """Makes one update and returns its result."""
    numbers = Numbers(
        place=np.int32(number),
        tokens=np.float32(np.count_nonzero(batch.target[:, 1:])),
        rate=np.float32(trainer._schedule.rate(number)),
        update=np.float32(number),
        stop=np.float32(0),
    )
    return trainer._step.read(trainer._step.update(batch.source, batch.target, numbers))


def log_of(run):
    return [json.loads(line) for line in read_text(f"{run}/train.jsonl").splitlines()]


def ignore(report):
    """Takes a report and does nothing with it."""


# The schedule and the optimizer


def test_schedule_is_equation_3():
    schedule = Schedule(512**-0.5 * 4000**-0.5, 4000)
    for step in (1, 100, 4000, 4001, 50_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert schedule.rate(step) == pytest.approx(expected, rel=1e-12)


def test_a_constant_schedule_stays_after_the_warmup():
    schedule = Schedule(0.5, 10, "constant")
    assert [schedule.rate(step) for step in (1, 5, 10, 11, 1000)] == [0.05, 0.25, 0.5, 0.5, 0.5]


def test_adam_is_that_of_section_5_3():
    # Algorithm 1 of Kingma and Ba in float64, its epsilon where TensorFlow and Keras put it too.
    generator = np.random.default_rng(0)
    start, steps = generator.normal(size=[3, 4]), generator.normal(size=[6, 3, 4])
    variable = tf.Variable(start, dtype=tf.float32)
    keras_variable = keras.Variable(start, dtype="float32")
    adam = Adam([variable])
    theirs = keras.optimizers.Adam(0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    expected, first, second = start.copy(), np.zeros([3, 4]), np.zeros([3, 4])
    for t, gradient in enumerate(steps, 1):
        given = [tf.constant(gradient, tf.float32)]
        adam.apply(given, rate=tf.constant(0.01), update=tf.constant(float(t)))
        theirs.apply(given, [keras_variable])
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient**2
        rate = 0.01 * math.sqrt(1 - 0.98**t) / (1 - 0.9**t)
        expected -= rate * first / (np.sqrt(second) + 1e-9)
    np.testing.assert_allclose(variable.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(variable.numpy(), keras_variable.numpy(), atol=1e-5)


# Replicas


@pytest.mark.parametrize("rows", [6, 1], ids=["uneven lengths", "a replica without rows"])
def test_two_replicas_have_the_gradients_of_one(toy_dataset, tmp_path, rows):
    lengths = [9, 2, 8, 3, 3, 7][:rows]
    source, target = random_ids(lengths, size=14), random_ids(lengths[::-1], seed=2, size=14)
    one = gradients_of(make_trainer(toy_dataset, tmp_path / "one"))(source, target)
    two = gradients_of(make_trainer(toy_dataset, tmp_path / "two", two_replicas()))(source, target)
    assert sum(np.abs(g).sum() for g in one) > 0
    for single, double in zip(one, two, strict=True):
        scale = np.abs(single).max()
        np.testing.assert_allclose(double, single, rtol=0, atol=1e-5 * max(scale, 1e-6))


def test_gradients_are_divided_by_the_true_number_of_tokens(toy_dataset, tmp_path):
    # The mean over all tokens, not the mean of the replicas' means: replica 0 has 2 of 10.
    source = random_ids([4, 4], size=14)
    target = np.array([[2, 5, 3, 0, 0, 0, 0, 0, 0], [2, 5, 6, 7, 8, 9, 10, 11, 3]], np.int32)
    trainer = make_trainer(toy_dataset, tmp_path / "run", two_replicas())
    gradients = gradients_of(trainer)
    both = gradients(source, target)
    first, second = gradients(source[:1], target[:1]), gradients(source[1:], target[1:])
    for together, a, b in zip(both, first, second, strict=True):
        np.testing.assert_allclose(together, (2 * a + 8 * b) / 10, atol=2e-6)


def test_two_replicas_train_like_one(toy_dataset, tmp_path):
    # Adam divides by the size of a gradient, so rounding grows with the rate: this one is the
    # usual rate of small models.
    training = changed(peak_learning_rate=0.001)
    one = make_trainer(toy_dataset, tmp_path / "one", training=training)
    two = make_trainer(toy_dataset, tmp_path / "two", two_replicas(), training=training)
    start = weights_of(one)
    batches = itertools.islice(one._batches("train").epoch(Position()), 10)
    for number, batch in enumerate(batches, 1):
        single, double = update(one, batch, number), update(two, batch, number)
        np.testing.assert_allclose(double.sums, single.sums, rtol=1e-5)
        assert double.gradient_norm == pytest.approx(single.gradient_norm, rel=1e-4)
    assert max(np.abs(a - b).max() for a, b in zip(weights_of(one), start, strict=True)) > 1e-3
    for single, double in zip(weights_of(one), weights_of(two), strict=True):
        np.testing.assert_allclose(double, single, atol=1e-4)
    for variable in two.model.trainable_variables:
        first, second = (value.numpy() for value in variable.value.values)
        np.testing.assert_array_equal(first, second)


@pytest.fixture
def plain_descent(monkeypatch):
    """Adam hides a wrong scale, so plain descent with rate 1 stands in for it."""

    def descend(self, gradients, *, rate, update):
        for variable, gradient in zip(self._variables, gradients, strict=True):
            tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=gradient)

    monkeypatch.setattr(Adam, "apply", descend)


@pytest.mark.usefixtures("plain_descent")
@pytest.mark.parametrize("clip_norm", [None, 0.125, 1000.0])
@pytest.mark.parametrize("make", [lambda: make_strategy("mirrored"), two_replicas])
def test_an_update_uses_the_summed_and_clipped_gradient(toy_dataset, tmp_path, make, clip_norm):
    training = changed(clip_norm=clip_norm)
    trainer = make_trainer(toy_dataset, tmp_path / "run", make(), training=training)
    batch = next(trainer._batches("train").epoch(Position()))
    before, expected = weights_of(trainer), gradients_of(trainer)(batch.source, batch.target)
    result = update(trainer, batch, 1)
    norm = math.sqrt(sum((gradient.astype(float) ** 2).sum() for gradient in expected))
    assert norm > 0.125
    assert result.gradient_norm == pytest.approx(norm, rel=1e-4)
    factor = min(1, (clip_norm or norm) / norm)
    for old, new, gradient in zip(before, weights_of(trainer), expected, strict=True):
        np.testing.assert_allclose(new, old - factor * gradient, atol=1e-6)


def test_every_record_is_trained_on_once_an_epoch(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", two_replicas())
    batches = list(trainer._batches("train").epoch(Position()))
    records = [record for batch in batches for record in batch.records]
    assert len(records) == len(set(records)) == 2000
    ids = tf.data.TFRecordDataset(str(toy_dataset / "train-00000-of-00001.tfrecord"))
    expected = sum(len(parse_record(r)[1]) - 1 for r in ids.as_numpy_iterator())
    # What the replicas count, each on its own rows.
    assert sum(trainer._step.sums(b.source, b.target).tokens for b in batches) == expected


# Accumulation


def test_accumulated_batches_update_like_one_batch(toy_dataset, tmp_path):
    both = make_trainer(toy_dataset, tmp_path / "both")
    parts = make_trainer(
        toy_dataset, tmp_path / "parts", training=changed(effective_batch_size=512)
    )
    first, second = itertools.islice(both._batches("train").epoch(Position()), 2)
    width = (
        max(first.source.shape[1], second.source.shape[1]),
        max(first.target.shape[1], second.target.shape[1]),
    )

    def joined(side, width):
        parts = [getattr(batch, side) for batch in (first, second)]
        return np.concatenate([np.pad(p, [(0, 0), (0, width - p.shape[1])]) for p in parts])

    whole = dataclasses.replace(
        first, source=joined("source", width[0]), target=joined("target", width[1])
    )
    before = weights_of(parts)
    expected = update(both, whole, 1)
    assert parts._train_on(first) is False
    for old, new in zip(before, weights_of(parts), strict=True):
        np.testing.assert_array_equal(new, old)
    assert parts._train_on(second) is True
    results = [parts._step.read(unread.result) for unread in parts._unread]
    assert results[1].gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
    np.testing.assert_allclose(np.add(results[0].sums, results[1].sums), expected.sums, rtol=1e-5)
    for single, double in zip(weights_of(both), weights_of(parts), strict=True):
        np.testing.assert_allclose(double, single, atol=1e-5)
    # Nothing is left over for the next update.
    assert all(not total.numpy().any() for total in parts._step.accumulator.sums)
    assert parts.state.pending_tokens == 0


@pytest.mark.parametrize(
    ("effective", "replicas", "batches"),
    [(None, 1, 1), (100, 1, 1), (256, 1, 1), (257, 1, 2), (1000, 1, 4), (1000, 2, 2)],
)
def test_batches_an_update(toy_dataset, tmp_path, effective, replicas, batches):
    strategy = two_replicas() if replicas == 2 else None
    training = changed(effective_batch_size=effective)
    trainer = make_trainer(toy_dataset, tmp_path / "run", strategy, training=training)
    found = next(i for i, b in enumerate(trainer._batches("train").epoch(Position()), 1)
                 if trainer._train_on(b))  # fmt: skip
    assert found == batches


# bfloat16


def test_bfloat16_follows_float32(toy_dataset, tmp_path):
    training = changed(compute_type="mixed_bfloat16", peak_learning_rate=0.001)
    low = make_trainer(toy_dataset, tmp_path / "low", training=training)
    full = make_trainer(toy_dataset, tmp_path / "full", training=changed(peak_learning_rate=0.001))
    assert {v.dtype for v in low.model.variables} == {"float32"}
    batch = next(full._batches("train").epoch(Position()))
    output = low.model(batch.source, target=batch.target)
    assert output.dtype == tf.bfloat16
    assert full.model(batch.source, target=batch.target).dtype == tf.float32
    for number in range(1, 4):
        a, b = update(full, batch, number), update(low, batch, number)
        assert b.sums.loss == pytest.approx(a.sums.loss, rel=0.01)
        assert b.sums.loss != a.sums.loss
    for single, half in zip(
        gradients_of(full)(batch.source, batch.target),
        gradients_of(low)(batch.source, batch.target),
        strict=True,
    ):
        difference = np.linalg.norm(half - single) / np.linalg.norm(single)
        assert difference < 0.05


def test_a_bfloat16_run_learns_and_exports(toy_dataset, tmp_path):
    training = changed(compute_type="mixed_bfloat16", steps=40, log_every=10, score_every=6)
    reports = []
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(reports.append)
    losses = [r.loss for r in reports if isinstance(r, Progress)]
    assert losses[-1] < 0.8 * losses[0]
    assert len(Translator.load(tmp_path / "run").translate(["one two"])) == 1


# A run


def test_a_model_learns_and_its_export_translates(trained_toy):
    losses = [p.loss for p in trained_toy.reports if isinstance(p, Progress)]
    assert len(losses) == 4
    assert losses[-1] < 0.6 * losses[0]
    (validation,) = [p for p in trained_toy.reports if isinstance(p, Validation)]
    assert validation.accuracy > 0.9
    assert validation.bleu > 80
    assert validation.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
    for progress in trained_toy.reports[:4]:
        assert 0 <= progress.padding < 0.5
        assert progress.target_tokens_per_second > 0
        assert progress.gradient_norm > 0

    pairs = toy_sentences(100, seed=9)
    translator = Translator.load(trained_toy.run, decoding=Decoding(beam_size=2))
    found = translator.translate([source for source, _ in pairs])
    right = sum(t.text == target for t, (_, target) in zip(found, pairs, strict=True))
    assert right >= 60, f"{right} of 100 sentences that it has not seen"


def test_the_score_is_that_of_the_exported_model(trained_toy):
    from sacrebleu.metrics.bleu import BLEU

    pairs = toy_sentences(50, seed=1)  # the validation split of `write_dataset`
    translator = Translator.load(trained_toy.run, decoding=Decoding(beam_size=1))
    found = [t.text for t in translator.translate([source for source, _ in pairs])]
    expected = BLEU().corpus_score(found, [[target for _, target in pairs]])
    assert trained_toy.reports[-1].bleu == pytest.approx(expected.score, abs=1e-4)


def test_a_report_is_over_the_updates_since_the_last(toy_dataset, tmp_path):
    reports, single = [], []
    make_trainer(toy_dataset, tmp_path / "three").train(reports.append)
    by_one = changed(log_every=1)
    make_trainer(toy_dataset, tmp_path / "one", training=by_one).train(single.append)
    threes = [r for r in reports if isinstance(r, Progress)]
    ones = [r for r in single if isinstance(r, Progress)]
    assert [r.step for r in threes] == [3, 6, 9, 12]
    assert [r.step for r in ones] == list(range(1, 13))
    for i, report in enumerate(threes):
        part = ones[3 * i : 3 * i + 3]
        assert report.learning_rate == part[-1].learning_rate
        assert report.gradient_norm == pytest.approx(np.mean([r.gradient_norm for r in part]))
        assert min(r.loss for r in part) < report.loss < max(r.loss for r in part)


def test_the_log_and_tensorboard_hold_what_is_reported(toy_dataset, tmp_path):
    reports = []
    training = changed(score_every=6)
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(reports.append)
    lines = log_of(tmp_path / "run")
    assert [line["kind"] for line in lines] == [
        "validation" if isinstance(r, Validation) else "train" for r in reports
    ]
    for line, report in zip(lines, reports, strict=True):
        values = dataclasses.asdict(report)
        assert all(values[key] == value for key, value in line.items() if key != "kind")
    (events,) = (tmp_path / "run/tensorboard").glob("events.*")
    found = {
        (value.tag, event.step)
        for record in tf.data.TFRecordDataset(str(events)).as_numpy_iterator()
        for event in [tf.compat.v1.Event.FromString(record)]
        for value in event.summary.value
    }
    train = ("loss", "perplexity", "accuracy", "learning_rate", "gradient_norm", "padding",
             "source_tokens_per_second", "target_tokens_per_second", "seconds_left")  # fmt: skip
    assert {(f"train/{name}", step) for name in train for step in (3, 6, 9, 12)} <= found
    validation = ("loss", "perplexity", "accuracy", "bleu", "chrf")
    assert {(f"validation/{name}", step) for name in validation for step in (6, 12)} <= found
    images = {(f"attention/sentence_{i}/layer_{k}", 6) for i in range(3) for k in range(1)}
    assert images <= found


def test_checkpoints_are_kept_to_a_number(toy_dataset, tmp_path):
    training = changed(keep_best=2, validate_every=3)
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(ignore)
    folder = tmp_path / "run/checkpoints"
    kept = json.loads((folder / "checkpoints.json").read_text())
    assert kept["last"] == ["ckpt-8", "ckpt-12"]
    losses = {
        line["step"]: line["loss"] for line in log_of(tmp_path / "run") if line["kind"] != "train"
    }
    best = sorted(losses, key=losses.get)[:2]
    assert kept["best"] == [f"best-{step}" for step in best]
    named = {*kept["last"], *kept["best"]}
    assert {f.name.split(".")[0] for f in folder.iterdir()} == {*named, "checkpoints"}
    assert (tmp_path / "run/best_model/config.json").is_file()


def test_a_run_stops_early_and_keeps_its_best(toy_dataset, tmp_path):
    # With a rate of nearly nothing, no validation is better than the first by more than chance.
    training = changed(
        steps=60, validate_every=2, save_every=20, patience=3, best_metric="bleu", score_every=2,
        peak_learning_rate=1e-12,
    )  # fmt: skip
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=training)
    reports = []
    trainer.train(reports.append)
    assert trainer.state.step == 8
    assert [r.is_best for r in reports if isinstance(r, Validation)] == [True, False, False, False]
    assert (tmp_path / "run/model/config.json").is_file()
    again = make_trainer(toy_dataset, tmp_path / "run", training=training)
    again.train(ignore)
    assert again.state.step == 8
    more = dataclasses.replace(training, patience=4)
    longer = make_trainer(toy_dataset, tmp_path / "run", training=more)
    longer.train(ignore)
    assert longer.state.step == 10


def test_training_does_not_trace_again(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=4))
    trainer.train(ignore)
    first = trainer.traces
    assert first == 2  # the update and the validation
    for batch in itertools.islice(trainer._batches("train").forever(Position(1)), 60):
        trainer._train_on(batch)
    assert trainer.traces == first


# Averaging and exporting


def test_the_exported_model_can_be_the_mean_of_the_last(toy_dataset, tmp_path):
    training = changed(average="last", keep_checkpoints=3)
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=training)
    trainer.train(ignore)
    singles = []
    for step in (4, 8, 12):
        name = export_checkpoint(str(tmp_path / "run"), tmp_path / str(step), name=str(step))
        assert name == f"ckpt-{step}"
        singles.append(weights_in(tmp_path / str(step)))
    for mean, *parts in zip(weights_in(tmp_path / "run"), *singles, strict=True):
        np.testing.assert_allclose(mean, np.mean(parts, axis=0), atol=1e-7)
    # The run itself goes on from where it was.
    for trained, last in zip(weights_of(trainer), singles[-1], strict=True):
        np.testing.assert_array_equal(trained, last)


def test_averages_of_a_run(toy_dataset, tmp_path, monkeypatch):
    training = changed(keep_best=2, validate_every=3)
    run = tmp_path / "run"
    make_trainer(toy_dataset, run, training=training).train(ignore)
    assert export_average(str(run), tmp_path / "two") == ["ckpt-12", "ckpt-8"]
    best = export_average(str(run), tmp_path / "best", which="best", count=1)
    assert len(best) == 1
    assert best[0].startswith("best-")
    for a, b in zip(weights_in(tmp_path / "best"), weights_in(run / "best_model"), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(UserError, match=r"has 2 of the last checkpoints. Received: 3"):
        export_average(str(run), tmp_path / "three", count=3)
    with pytest.raises(UserError, match="two is there already"):
        export_average(str(run), tmp_path / "two")
    with pytest.raises(UserError, match=r"no checkpoint '7': there are ckpt-8, ckpt-12, best-"):
        export_checkpoint(str(run), tmp_path / "seven", name="7")
    with pytest.raises(UserError, match="no run at"):
        export_average(str(tmp_path), tmp_path / "none")
    (run / "checkpoints/ckpt-8.index").unlink()
    with pytest.raises(UserError, match=r"ckpt-8 cannot be read"):
        export_average(str(run), tmp_path / "four")
    assert not (tmp_path / "four").exists()
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("model.averaging.export_model", fill_the_disk)
    with pytest.raises(DiskFullError, match=r"disk of .*/five is full \(No space left on device\)"):
        export_average(str(run), tmp_path / "five", count=1)
    assert sorted(tmp_path.iterdir()) == before


def fill_the_disk(model, folder, **options):
    """Stands in for exporting a model, and fails when a part of it is written."""
    folder.with_name(f".{folder.name}.tmp").mkdir()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def weights_in(folder):
    return [v.numpy() for v in Translator.load(folder).model.trainable_variables]


# Resuming


def stop_at(step):
    def stop(report):
        if report.step == step:
            raise KeyboardInterrupt

    return stop


def timeless(lines):
    timed = ("source_tokens_per_second", "target_tokens_per_second", "seconds_left")
    return [{k: v for k, v in line.items() if k not in timed} for line in lines]


@pytest.mark.parametrize("effective", [None, 512], ids=["a batch an update", "two batches"])
def test_resuming_continues_as_if_undisturbed(toy_dataset, tmp_path, effective):
    # Reports fall between checkpoints, so what a report adds up must be resumed too.
    training = changed(log_every=3, effective_batch_size=effective, clip_norm=0.5)
    undisturbed = make_trainer(toy_dataset, tmp_path / "whole", training=training, dropout=0.2)
    undisturbed.train(ignore)
    stopped = make_trainer(toy_dataset, tmp_path / "run", training=training, dropout=0.2)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(stop_at(9))
    resumed = make_trainer(toy_dataset, tmp_path / "run", training=training, dropout=0.2)
    assert resumed.state.step == 8
    assert resumed.state.position.batch > 0
    assert resumed.state.meter.updates == 2
    resumed.train(ignore)
    assert resumed.state.step == 12
    assert resumed.state.position == undisturbed.state.position
    for expected, found in zip(weights_of(undisturbed), weights_of(resumed), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert timeless(log_of(tmp_path / "run")) == timeless(log_of(tmp_path / "whole"))


def test_a_finished_run_only_exports_again(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)
    again = make_trainer(toy_dataset, tmp_path / "run")
    reports = []
    (tmp_path / "run/model/config.json").unlink()
    again.train(reports.append)
    assert reports == []
    assert (tmp_path / "run/model/config.json").is_file()


def test_a_longer_run_goes_on(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=8)).train(ignore)
    longer = make_trainer(toy_dataset, tmp_path / "run")
    assert longer.state.step == 8
    longer.train(ignore)
    whole = make_trainer(toy_dataset, tmp_path / "whole")
    whole.train(ignore)
    for expected, found in zip(weights_of(whole), weights_of(longer), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_validation_that_comes_due_on_resuming_is_kept(toy_dataset, tmp_path):
    # No validation was due at step 8, where the run was saved; now one is.
    first = changed(steps=10, save_every=8, validate_every=5)
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=first)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(stop_at(9))
    second = changed(steps=8, save_every=8, validate_every=4, keep_best=3)
    resumed = make_trainer(toy_dataset, tmp_path / "run", training=second)
    resumed.train(ignore)
    kept = json.loads((tmp_path / "run/checkpoints/checkpoints.json").read_text())
    assert kept["last"] == ["ckpt-8"]
    assert sorted(kept["best"]) == ["best-5", "best-8"]
    again = make_trainer(toy_dataset, tmp_path / "run", training=second)
    assert again.state.validated == 8
    reports = []
    again.train(reports.append)
    assert reports == []


def test_an_error_of_the_moment_deletes_no_checkpoint(toy_dataset, tmp_path, monkeypatch):
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)
    before = sorted(file.name for file in (tmp_path / "run/checkpoints").iterdir())

    def fail(self, path):
        raise tf.errors.UnavailableError(None, None, "503")

    monkeypatch.setattr(tf.train.Checkpoint, "read", fail)
    with pytest.raises(UserError, match=r"checkpoint .*ckpt-12 cannot be read: 503"):
        make_trainer(toy_dataset, tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run/checkpoints").iterdir()) == before


def test_a_lost_index_of_checkpoints_is_made_again(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)
    folder = tmp_path / "run/checkpoints"
    (folder / "checkpoints.json").unlink()
    (folder / "notes.txt").write_text("mine")
    again = make_trainer(toy_dataset, tmp_path / "run")
    assert again.state.step == 12
    assert again._checkpoints.kept.last == ["ckpt-8", "ckpt-12"]
    assert (folder / "notes.txt").read_text() == "mine"
    again.close()
    (folder / "checkpoints.json").write_text('{"last": 3}')
    with pytest.raises(UserError, match=r"checkpoints.json cannot be read .* delete it, and all"):
        make_trainer(toy_dataset, tmp_path / "run")


def test_fewer_steps_than_are_done_are_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)
    with pytest.raises(UserError, match=r"has done 12 steps already. Received: --steps 11"):
        make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=11))


def test_a_damaged_log_is_named_by_its_line(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=8)).train(ignore)
    log = tmp_path / "run/train.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], "{\n", *lines[1:]]))
    with pytest.raises(UserError, match=r"line 2 of .*train.jsonl is damaged"):
        make_trainer(toy_dataset, tmp_path / "run").train(ignore)


def test_another_number_of_replicas_goes_on_with_a_warning(toy_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("model.dataset.WINDOW", 512)
    one = make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=5))
    one.train(ignore)
    before = one.state.position
    assert before.batch > 0
    two = make_trainer(toy_dataset, tmp_path / "run", two_replicas(), training=changed(steps=6))
    (note,) = two.notes
    assert "resuming with 2 replica(s) what 1 trained" in note
    read = []
    train_on = two._train_on
    monkeypatch.setattr(two, "_train_on", lambda batch: read.append(batch) or train_on(batch))
    two.train(ignore)
    assert two.state.step == 6
    assert two.state.replicas == 2
    # No pair of the window that was begun is read a second time; the next one is twice as large.
    [first] = read
    assert (first.start.window, first.start.record) == (before.window + 1, 512)
    assert first.following.before == first.start.before == 512
    assert two._batches("train").next_window(first.start).before == 512 + 2 * 512
    assert make_trainer(toy_dataset, tmp_path / "run", two_replicas()).notes == []


# What is refused


def test_an_unfinished_dataset_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    (tmp_path / "dataset" / MANIFEST_FILE).unlink()
    with pytest.raises(UserError, match="not a finished dataset folder"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="no dataset folder at"):
        make_trainer(tmp_path / "nowhere", tmp_path / "run")


def test_another_vocabulary_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    manifest = tmp_path / "dataset" / MANIFEST_FILE
    manifest.write_text(manifest.read_text().replace('_size": 16', '_size": 24'))
    with pytest.raises(UserError, match=r"source vocabulary in .* has 16 ids, dataset.json 24"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ids_of_another_vocabulary_stop_the_run(tmp_path, toy_dataset):
    # The records of a larger vocabulary under the manifest of a smaller one.
    dataset = tmp_path / "dataset"
    shutil.copytree(toy_dataset, dataset)
    with tf.io.TFRecordWriter(str(dataset / "train-00000-of-00001.tfrecord")) as writer:
        feature = {
            side: tf.train.Feature(int64_list=tf.train.Int64List(value=[2, 99, 3]))
            for side in ("source", "target")
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        for _ in range(2000):
            writer.write(example.SerializeToString())
    trainer = make_trainer(dataset, tmp_path / "run")
    with pytest.raises(UserError, match=r"record 0 of .*train-00000.* has the source id 99"):
        trainer.train(ignore)


def test_another_run_in_the_folder_is_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)
    with pytest.raises(UserError, match="heads is 4 there and 2 here"):
        make_trainer(toy_dataset, tmp_path / "run", heads=2)
    with pytest.raises(UserError, match=r"clip_norm is None there and 1\.0 here"):
        make_trainer(toy_dataset, tmp_path / "run", training=changed(clip_norm=1.0))
    more = changed(steps=99, log_every=1, patience=3, keep_best=2)
    assert make_trainer(toy_dataset, tmp_path / "run", training=more).training.steps == 99
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["steps"] == 99


def test_a_run_of_another_format_is_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").close()
    config = tmp_path / "run/config.json"
    config.write_text(config.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(UserError, match="has format 1, this tt goes on with 2"):
        make_trainer(toy_dataset, tmp_path / "run")


def test_a_folder_with_something_else_is_refused(toy_dataset, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.tex").write_text("")
    with pytest.raises(UserError, match="holds something else"):
        make_trainer(toy_dataset, tmp_path / "run")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    with pytest.raises(UserError, match="model is no run folder"):
        make_trainer(toy_dataset, tmp_path / "model")
    found = {path.name for name in ("run", "model") for path in (tmp_path / name).iterdir()}
    assert found == {"thesis.tex", "config.json"}
    with pytest.raises(UserError, match="is a file"):
        make_trainer(toy_dataset, tmp_path / "run/thesis.tex")


def test_a_run_is_trained_by_one_at_a_time(toy_dataset, tmp_path):
    first = make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=2))
    held = f"another process trains in {tmp_path}/run \\(process {os.getpid()} of .*\\): wait until"
    for _ in range(2):  # being refused changes nothing
        with pytest.raises(UserError, match=held):
            make_trainer(toy_dataset, tmp_path / "run")
    first.train(ignore)
    with pytest.raises(UserError, match="heads is 4 there and 2 here"):
        make_trainer(toy_dataset, tmp_path / "run", heads=2)
    # Neither the one that has ended nor the one that was refused holds it any more.
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)


def test_a_file_system_without_locks_is_warned_of(toy_dataset, tmp_path, monkeypatch):
    def fail(*given):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    trainer = make_trainer(toy_dataset, tmp_path / "run")
    assert trainer.notes == [
        f"{tmp_path}/run is on a file system without locks: let no other process train there"
    ]


def test_a_run_that_saved_nothing_may_change(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").close()
    make_trainer(toy_dataset, tmp_path / "run", heads=2).train(ignore)
    with pytest.raises(UserError, match="heads is 2 there and 4 here"):
        make_trainer(toy_dataset, tmp_path / "run")


def test_a_loss_that_is_not_finite_names_its_records(toy_dataset, tmp_path, monkeypatch):
    # From the sixth update on, one row of a batch is poison.
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(log_every=5))
    fed = []
    run_update = trainer._step.update

    def poisoned(source, target, numbers):
        fed.append(1)
        if len(fed) == 6:
            numbers = numbers._replace(tokens=np.float32(0))  # a loss over no tokens
        return run_update(source, target, numbers)

    monkeypatch.setattr(trainer._step, "update", poisoned)
    expected = next(itertools.islice(trainer._batches("train").epoch(Position()), 5, None))
    with pytest.raises(UserError) as caught:
        trainer.train(ignore)
    message = str(caught.value)
    assert "at step 6 of 12" in message
    assert "gradient's norm nan" in message or "gradient's norm inf" in message
    assert f"last good checkpoint: {tmp_path / 'run/checkpoints/ckpt-4'}" in message
    shard, record = expected.records[0]
    assert f"records {shard.rsplit('/', 1)[1]}:{record}" in message
    details = json.loads((tmp_path / "run/not_finite.json").read_text())
    assert details["step"] == 6
    assert [tuple(pair) for pair in details["records"]] == expected.records
    assert not (tmp_path / "run/model").exists()
    # The last good checkpoint is what the next start goes on from.
    assert make_trainer(toy_dataset, tmp_path / "run").state.step == 4


def test_all_records_of_an_accumulated_update_are_named(toy_dataset, tmp_path, monkeypatch):
    # Six batches an update, whose results are read two at a time; stopped after the second one.
    monkeypatch.setattr("model.training._MOST_UNREAD", 2)
    training = changed(effective_batch_size=6 * 256)
    stopped = make_trainer(toy_dataset, tmp_path / "run", training=training)
    update_weights = stopped._step.update

    def update_and_stop(*given):
        stopped._told_to_stop.set()
        return update_weights(*given)

    monkeypatch.setattr(stopped._step, "update", update_and_stop)
    with pytest.raises(Terminated):
        stopped.train(ignore)
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=training)
    accumulate, calls = trainer._step.accumulate, itertools.count(1)

    def accumulate_and_stop(*given):
        if next(calls) == 2:
            trainer._told_to_stop.set()
        return accumulate(*given)

    monkeypatch.setattr(trainer._step, "accumulate", accumulate_and_stop)
    with pytest.raises(Terminated):
        trainer.train(ignore)
    assert (trainer.state.step, trainer.state.pending_batches) == (1, 2)

    resumed = make_trainer(toy_dataset, tmp_path / "run", training=training)
    update_weights = resumed._step.update

    def poisoned(source, target, numbers):
        return update_weights(source, target, numbers._replace(tokens=np.float32(0)))

    monkeypatch.setattr(resumed._step, "update", poisoned)
    batches = itertools.islice(resumed._batches("train").epoch(Position()), 6, 12)
    expected = [record for batch in batches for record in batch.records]
    with pytest.raises(UserError, match=r"read 6 batch\(es\), from number 6 of") as caught:
        resumed.train(ignore)
    assert "at step 2 of 12" in str(caught.value)
    assert f"last good checkpoint: {tmp_path / 'run/checkpoints/stop-8-0'})" in str(caught.value)
    details = json.loads((tmp_path / "run/not_finite.json").read_text())
    assert [tuple(pair) for pair in details["records"]] == expected


def test_a_rate_that_is_too_high_stops_before_anything_is_saved(toy_dataset, tmp_path):
    wild = changed(peak_learning_rate=1e30, warmup_steps=1)
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=wild)
    with pytest.raises(UserError, match=r"at step \d+ of 12, .*last good checkpoint: none"):
        trainer.train(ignore)
    assert not list((tmp_path / "run").glob("checkpoints/*.index"))


@contextlib.contextmanager
def little_memory(size):
    """Lets this process have so many bytes more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory so")
def test_a_batch_without_memory_is_one_clear_error(toy_dataset, tmp_path, monkeypatch):
    trainer = make_trainer(toy_dataset, tmp_path / "run")
    update_weights, shapes = trainer._step.update, []

    def huge(source, target, numbers):
        shapes.append((*source.shape, target.shape[1]))
        if len(shapes) < 6:
            return update_weights(source, target, numbers)
        ids = np.full([64, 4096], 5, np.int32)  # their attention takes 17 GB
        with little_memory(2**30):
            return update_weights(ids, ids, numbers)

    monkeypatch.setattr(trainer._step, "update", huge)
    with pytest.raises(UserError) as caught:
        trainer.train(ignore)
    rows, source, target = shapes[-1]
    assert re.fullmatch(
        rf"out of memory at step 6 of 12, in a batch of {rows} rows of {source} source and "
        rf"{target} target ids, for 1 replica\(s\) \(OOM when allocating tensor with shape.*; last "
        rf"good checkpoint: {tmp_path}/run/checkpoints/ckpt-4\): lower --batch-tokens \(received: "
        r"256\) in a new --run, with --effective-batch-size 256 if updates are to stay as large",
        str(caught.value),
    )
    assert make_trainer(toy_dataset, tmp_path / "run").state.step == 4


def test_a_validation_without_memory_is_one_clear_error(toy_dataset, tmp_path, monkeypatch):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(score_every=6))

    def fail():
        message = "Graph execution error:\n\nDetected at node x\nOOM when allocating y\nHint: z"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(trainer._validator, "score", fail)
    expected = r"memory in the validation at step 6 \(OOM when allocating y; last .*--score-every 0"
    with pytest.raises(UserError, match=expected) as caught:
        trainer.train(ignore)
    assert "\n" not in str(caught.value)


def test_any_seed_of_32_bits_trains(toy_dataset, tmp_path):
    last = changed(seed=2**32 - 1, steps=2)
    make_trainer(toy_dataset, tmp_path / "run", training=last, dropout=0.5).train(ignore)


def test_a_budget_below_the_longest_pair_is_refused(toy_dataset, tmp_path):
    with pytest.raises(UserError, match=r"the longest pair of .* has 8 tokens, a batch 5"):
        make_trainer(toy_dataset, tmp_path / "run", training=changed(batch_tokens=5))
    assert not (tmp_path / "run").exists()


# Other file systems


def test_a_run_folder_on_another_file_system(toy_dataset, tmp_path):
    # TensorFlow's own file system in memory stands in for gs://.
    run = "ram://test-training/run"
    make_trainer(toy_dataset, run, training=changed(steps=8, average="last")).train(ignore)
    resumed = make_trainer(toy_dataset, run, training=changed(average="last"))
    assert resumed.state.step == 8
    resumed.train(ignore)
    folder = RunFolder(run)
    kinds = [line["kind"] for line in log_of(run)]
    assert kinds.count("train") == 4 + 1  # a report at the end of the first run, too
    local = tmp_path / "model"
    local.mkdir()
    for name in tf.io.gfile.listdir(folder.inside("model")):
        tf.io.gfile.copy(folder.inside("model", name), str(local / name))
    whole = make_trainer(toy_dataset, tmp_path / "whole", training=changed(average="last"))
    whole.train(ignore)
    for expected, found in zip(weights_in(tmp_path / "whole"), weights_in(local), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert export_average(run, tmp_path / "mean", count=2) == ["ckpt-12", "ckpt-8"]
