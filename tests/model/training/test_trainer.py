"""Trainers: updates over replicas and batches, learning, reports, and averaging."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from models import translated
from toy import gradients_of, toy_sentences, write_dataset
from trainers import (
    changed,
    export_average,
    export_checkpoint,
    ignore,
    log_of,
    make_trainer,
    weights_in,
    weights_of,
)

from tt.model.dataset.batches import Position
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.errors import DiskFullError, UserError
from tt.model.text.scores import Score
from tt.model.training.options import METRICS
from tt.model.training.reports import Progress, Validation
from tt.model.training.step import UpdateScalars
from tt.model.training.trainer import _is_drawn
from tt.model.transformer.search_options import Decoding


def update(trainer, batch, number):
    """Make one update and return its result."""
    numbers = UpdateScalars(
        place=np.int32(number),
        tokens=np.float32(np.count_nonzero(batch.target[:, 1:])),
        rate=np.float32(trainer._rate(number)),
        update=np.float32(number),
        stop=np.float32(0),
    )
    return trainer._step.read(trainer._step.update(batch.source, batch.target, numbers))


# Replicas


# Accumulation


@pytest.mark.parametrize(
    ("effective", "replicas", "batches"),
    [(None, 1, 1), (100, 1, 1), (256, 1, 1), (257, 1, 2), (1000, 1, 4), (1000, 2, 2)],
)
def test_number_of_batches_per_update(effective, replicas, batches):
    assert changed(effective_batch_size=effective).batches_an_update(replicas) == batches


# bfloat16


@pytest.mark.usefixtures("eager")
def test_bfloat16_stays_close_to_float32(toy_dataset, tmp_path):
    training = changed(compute_type="mixed_bfloat16", peak_learning_rate=0.001)
    low = make_trainer(toy_dataset, tmp_path / "low", training=training)
    full = make_trainer(toy_dataset, tmp_path / "full", training=changed(peak_learning_rate=0.001))
    assert {v.dtype for v in low.model.variables} == {"float32"}
    batch = next(full.data.batches("train").epoch(Position()))
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


# A run


def test_model_learns_and_its_export_translates(trained_toy):
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
    translator = TensorFlowTranslator.load(trained_toy.run, decoding=Decoding(beam_size=2))
    found = translated(translator, [source for source, _ in pairs])
    right = sum(t.text == target for t, (_, target) in zip(found, pairs, strict=True))
    assert right >= 60, f"only {right} of 100 unseen sentences are right"


def test_validation_score_matches_the_exported_model(trained_toy):
    from sacrebleu.metrics.bleu import BLEU

    pairs = toy_sentences(50, seed=1)  # the validation split of `write_dataset`
    translator = TensorFlowTranslator.load(trained_toy.run, decoding=Decoding(beam_size=1))
    found = [t.text for t in translated(translator, [source for source, _ in pairs])]
    expected = BLEU().corpus_score(found, [[target for _, target in pairs]])
    assert trained_toy.reports[-1].bleu == pytest.approx(expected.score, abs=1e-4)


def test_references_are_the_target_texts_not_the_decoded_ids(tmp_path, monkeypatch):
    """The vocabulary has no capital letters, so decoded ids would be lower-case."""
    given = []
    for metric in ("bleu", "chrf"):
        monkeypatch.setattr(
            f"tt.model.training.validation.scores.{metric}",
            lambda hypotheses, references, **_: given.append(sorted(references)),
        )
    write_dataset(tmp_path / "dataset", train=20, shards=3, reference=str.title)
    scored = changed(score_every=6)
    trainer = make_trainer(tmp_path / "dataset", tmp_path / "run", training=scored)
    trainer._validator.score()
    trainer.close()
    assert given == [sorted(target.title() for _, target in toy_sentences(50, seed=1))] * 2


@pytest.mark.usefixtures("eager")
def test_report_covers_the_updates_since_the_last_report(toy_dataset, tmp_path):
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


def test_log_and_tensorboard_contain_all_reports(toy_dataset, tmp_path):
    reports = []
    training = changed(score_every=6)
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(reports.append)
    lines = log_of(tmp_path / "run")
    assert [line["kind"] for line in lines] == [
        "validation" if isinstance(r, Validation) else "train" for r in reports
    ]
    for line, report in zip(lines, reports, strict=True):
        values = dataclasses.asdict(report)
        seconds = line.pop("seconds")  # the log adds the training time to each report
        assert seconds > 0
        assert all(values[key] == value for key, value in line.items() if key != "kind")
    (events,) = (tmp_path / "run/tensorboard").glob("events.*")
    found = {
        (value.tag, event.step)
        for record in tf.data.TFRecordDataset(str(events)).as_numpy_iterator()
        for event in [tf.compat.v1.Event.FromString(record)]
        for value in event.summary.value
    }
    train = ("loss", "nll", "perplexity", "accuracy", "learning_rate", "gradient_norm", "padding",
             "source_tokens_per_second", "target_tokens_per_second", "seconds_left")  # fmt: skip
    assert {(f"train/{name}", step) for name in train for step in (3, 6, 9, 12)} <= found
    validation = ("loss", "nll", "perplexity", "accuracy", "bleu", "chrf")
    assert {(f"validation/{name}", step) for name in validation for step in (6, 12)} <= found
    images = {(f"attention/sentence_{i}/layer_{k}", 6) for i in range(3) for k in range(1)}
    assert images <= found


@pytest.mark.usefixtures("eager")
def test_only_the_last_and_best_checkpoints_are_kept(toy_dataset, tmp_path):
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


@pytest.mark.usefixtures("eager")
def test_run_stops_early_and_keeps_its_best_model(toy_dataset, tmp_path):
    # The learning rate is almost zero, so no validation is better than the first one.
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


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("metric", METRICS)
def test_best_validation_has_the_greatest_score_or_the_least_loss(
    toy_dataset, tmp_path, monkeypatch, metric
):
    for name, values in (("bleu", [3.0, 2.0, 1.0]), ("chrf", [10.0, 30.0, 20.0])):
        each = iter(values)
        stand_in = lambda *_, each=each, **__: Score("", next(each), "", "")  # noqa: E731
        monkeypatch.setattr(f"tt.model.text.scores.{name}", stand_in)
    is_score = metric in ("bleu", "chrf")
    training = changed(
        steps=3, warmup_steps=1, validate_every=1, score_every=int(is_score), save_every=3,
        best_metric=metric,
    )  # fmt: skip
    reports = []
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(reports.append)
    validations = [r for r in reports if isinstance(r, Validation)]
    values = [getattr(validation, metric) for validation in validations]
    better = max if is_score else min
    assert len(set(values)) == 3
    assert [v.is_best for v in validations] == [
        value == better(values[:number]) for number, value in enumerate(values, 1)
    ]
    best = validations[values.index(better(values))].step
    kept = json.loads((tmp_path / "run/checkpoints/checkpoints.json").read_text())
    assert kept["best"] == [f"best-{best}"]


def test_training_traces_each_function_once(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=4))
    trainer.train(ignore)

    def traces():
        step = trainer._step
        return [each.experimental_get_tracing_count() for each in (step._update, step._sums)]

    assert traces() == [1, 1]
    for batch in itertools.islice(trainer.data.batches("train").forever(Position(1)), 60):
        trainer._train_on(batch)
    assert traces() == [1, 1]


def test_attention_maps_are_drawn_ten_times_and_at_the_end():
    training = changed(steps=600, validate_every=6)
    drawn = [step for step in range(6, 601, 6) if _is_drawn(step, training=training)]
    assert drawn == list(range(60, 601, 60))
    training = changed(steps=600, validate_every=250)
    assert [_is_drawn(step, training=training) for step in (250, 500, 600)] == [True] * 3


# Averaging and exporting


@pytest.mark.usefixtures("eager")
def test_exported_model_can_be_the_mean_of_the_last_checkpoints(toy_dataset, tmp_path):
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
    # The averaging does not change the weights of the run itself.
    for trained, last in zip(weights_of(trainer), singles[-1], strict=True):
        np.testing.assert_array_equal(trained, last)


@pytest.mark.usefixtures("eager")
def test_exported_model_can_be_the_mean_of_the_best_validations(toy_dataset, tmp_path):
    training = changed(average="best", keep_best=2, validate_every=3)
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(ignore)
    names = export_average(str(tmp_path / "run"), tmp_path / "mean", which="best", count=2)
    assert all(name.startswith("best-") for name in names)
    for found, mean in zip(
        weights_in(tmp_path / "run"), weights_in(tmp_path / "mean"), strict=True
    ):
        np.testing.assert_array_equal(found, mean)


@pytest.mark.usefixtures("eager")
def test_model_of_a_finished_run_stays_until_a_longer_run_ends(finish_run, toy_dataset, tmp_path):
    run, longer = finish_run(tmp_path / "run"), changed(steps=20)
    weights = run / "model/model.weights.h5"
    before = weights.read_bytes()

    def stop(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_trainer(toy_dataset, run, training=longer).train(stop)
    assert weights.read_bytes() == before
    make_trainer(toy_dataset, run, training=longer).train(ignore)
    assert weights.read_bytes() != before


@pytest.mark.usefixtures("eager")
def test_average_of_checkpoints_and_its_errors(toy_dataset, tmp_path, monkeypatch):
    training = changed(keep_best=2, validate_every=3)
    run = tmp_path / "run"
    make_trainer(toy_dataset, run, training=training).train(ignore)
    assert export_average(str(run), tmp_path / "two") == ["ckpt-12", "ckpt-8"]
    best = export_average(str(run), tmp_path / "best", which="best", count=1)
    assert len(best) == 1
    assert best[0].startswith("best-")
    for a, b in zip(weights_in(tmp_path / "best"), weights_in(run / "best_model"), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(UserError, match=r"has 2 last checkpoints\. Requested: 3"):
        export_average(str(run), tmp_path / "three", count=3)
    (tmp_path / "empty").mkdir()
    assert export_average(str(run), tmp_path / "empty", count=1) == ["ckpt-12"]
    with pytest.raises(UserError, match=r"two/config.json.* cannot be written: .* is a file"):
        export_average(str(run), tmp_path / "two/config.json/below")
    with pytest.raises(UserError, match=r"config.json.* [Cc]hoose a run folder"):
        export_average(str(tmp_path / "two/config.json"), tmp_path / "none")
    with pytest.raises(UserError, match="two already exists"):
        export_average(str(run), tmp_path / "two")
    with pytest.raises(UserError, match=r"no checkpoint '7'. Choose from: ckpt-8, ckpt-12, best-"):
        export_checkpoint(str(run), tmp_path / "seven", name="7")
    with pytest.raises(UserError, match="is not a run folder"):
        export_average(str(tmp_path), tmp_path / "none")
    (run / "checkpoints/ckpt-8.index").unlink()
    with pytest.raises(UserError, match=r"ckpt-8 cannot be read"):
        export_average(str(run), tmp_path / "four")
    assert not (tmp_path / "four").exists()
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("tt.model.formats.weights.write_config", fill_the_disk)
    with pytest.raises(DiskFullError, match=r"disk of .*/five is full \(No space left on device\)"):
        export_average(str(run), tmp_path / "five", count=1)
    assert sorted(tmp_path.iterdir()) == before


def fill_the_disk(*_):
    """Fail like a full disk, in place of the function that writes the last file of a model."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
