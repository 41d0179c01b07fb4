"""Training: gradients over replicas, learning, resume, and what a run folder refuses."""

from __future__ import annotations

import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_transformer import random_ids
from toy import toy_config, toy_sentences, write_dataset

from model.artifacts import MANIFEST_FILE
from model.config import Decoding, TrainingConfig
from model.dataset import Position
from model.errors import UserError
from model.training import Trainer, WarmupSchedule, make_strategy
from model.translator import Translator

FAST = TrainingConfig(
    steps=12, batch_tokens=256, peak_learning_rate=0.01, warmup_steps=20, save_every=4,
    validate_every=6, log_every=3, keep_checkpoints=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def toy_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "dataset"
    write_dataset(folder)
    return folder


def make_trainer(dataset, run, strategy=None, training=FAST, **fields):
    return Trainer(
        dataset=dataset,
        run=run,
        model_config=toy_config(**fields),
        training=training,
        strategy=strategy or make_strategy("one-device"),
    )


def two_replicas():
    # The default, collective operations, can wait for ever where two replicas share the few
    # threads of one CPU; on GPUs it is NCCL.
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    assert strategy.num_replicas_in_sync == 2
    assert len(set(strategy.extended.worker_devices)) == 2
    return strategy


def weights_of(trainer):
    return [variable.numpy() for variable in trainer.model.trainable_variables]


def test_schedule_is_equation_3():
    schedule = WarmupSchedule(512**-0.5 * 4000**-0.5, 4000)
    for step in (1, 100, 4000, 4001, 50_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert float(schedule(tf.constant(step - 1))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rows", [6, 1], ids=["uneven lengths", "a replica without rows"])
def test_two_replicas_have_the_gradients_of_one(toy_dataset, tmp_path, rows):
    lengths = [9, 2, 8, 3, 3, 7][:rows]
    source, target = random_ids(lengths, size=14), random_ids(lengths[::-1], seed=2, size=14)
    one = make_trainer(toy_dataset, tmp_path / "one").gradients(source, target)
    two = make_trainer(toy_dataset, tmp_path / "two", two_replicas()).gradients(source, target)
    assert sum(np.abs(g).sum() for g in one) > 0
    for single, double in zip(one, two, strict=True):
        scale = np.abs(single).max()
        np.testing.assert_allclose(double, single, rtol=0, atol=1e-5 * max(scale, 1e-6))


def test_gradients_are_divided_by_the_true_number_of_tokens(toy_dataset, tmp_path):
    # The mean over all tokens, not the mean of the replicas' means: replica 0 has 2 of 10.
    source = random_ids([4, 4], size=14)
    target = np.array([[2, 5, 3, 0, 0, 0, 0, 0, 0], [2, 5, 6, 7, 8, 9, 10, 11, 3]], np.int32)
    trainer = make_trainer(toy_dataset, tmp_path / "run", two_replicas())
    both = trainer.gradients(source, target)
    first, second = (
        trainer.gradients(source[:1], target[:1]),
        trainer.gradients(source[1:], target[1:]),
    )
    for together, a, b in zip(both, first, second, strict=True):
        np.testing.assert_allclose(together, (2 * a + 8 * b) / 10, atol=2e-6)


@pytest.mark.parametrize("make", [lambda: make_strategy("mirrored"), two_replicas])
def test_an_update_is_the_summed_gradient(toy_dataset, tmp_path, make):
    # Adam hides a wrong scale, so plain descent with rate 1 stands in for it.
    strategy = make()
    trainer = make_trainer(toy_dataset, tmp_path / "run", strategy)
    with strategy.scope():
        trainer.optimizer = keras.optimizers.SGD(1.0)
        trainer.optimizer.build(trainer.model.trainable_variables)
    source, target = random_ids([9, 2, 8], size=14), random_ids([3, 7, 4], seed=2, size=14)
    before, gradients = weights_of(trainer), trainer.gradients(source, target)
    trainer._train_step(source, target)
    for old, new, gradient in zip(before, weights_of(trainer), gradients, strict=True):
        np.testing.assert_allclose(new, old - gradient, atol=1e-6)


def test_two_replicas_train_like_one(toy_dataset, tmp_path):
    # Adam divides by the size of a gradient, so rounding grows with the rate: this one is the
    # usual rate of small models.
    training = TrainingConfig(**{**vars(FAST), "peak_learning_rate": 0.001})
    one = make_trainer(toy_dataset, tmp_path / "one", training=training)
    two = make_trainer(toy_dataset, tmp_path / "two", two_replicas(), training=training)
    for batch in itertools.islice(one._batches("train").epoch(Position()), 10):
        single, double = [t._train_step(batch.source, batch.target) for t in (one, two)]
        np.testing.assert_allclose(double, single, rtol=1e-5)
    for single, double in zip(weights_of(one), weights_of(two), strict=True):
        np.testing.assert_allclose(double, single, atol=1e-4)


def test_a_model_learns_and_its_export_translates(trained_toy):
    losses = [p.loss for p in trained_toy.reports if not p.validation]
    assert len(losses) == 4
    assert losses[-1] < 0.6 * losses[0]
    (validation,) = [p for p in trained_toy.reports if p.validation]
    assert validation.accuracy > 0.9
    assert all(0 <= p.padding < 0.5 and p.tokens_per_second > 0 for p in trained_toy.reports)

    pairs = toy_sentences(100, seed=9)
    translator = Translator.load(trained_toy.run, decoding=Decoding(beam_size=2))
    found = translator.translate([source for source, _ in pairs])
    right = sum(t.text == target for t, (_, target) in zip(found, pairs, strict=True))
    assert right >= 60, f"{right} of 100 sentences that it has not seen"


def test_resuming_continues_as_if_undisturbed(toy_dataset, tmp_path):
    undisturbed = make_trainer(toy_dataset, tmp_path / "whole", dropout=0.2)
    undisturbed.train(lambda _: None)
    # Stopped after a report at step 6; the last checkpoint is that of step 4.
    stopped = make_trainer(toy_dataset, tmp_path / "run", dropout=0.2)

    def stop(progress):
        if progress.step == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.train(stop)
    resumed = make_trainer(toy_dataset, tmp_path / "run", dropout=0.2)
    assert resumed.step == 4
    assert resumed.place.batch > 0
    resumed.train(lambda _: None)
    assert resumed.step == 12
    assert resumed.place == undisturbed.place
    for expected, found in zip(weights_of(undisturbed), weights_of(resumed), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_finished_run_only_exports_again(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(lambda _: None)
    again = make_trainer(toy_dataset, tmp_path / "run")
    reports = []
    (tmp_path / "run/model/config.json").unlink()
    again.train(reports.append)
    assert reports == []
    assert (tmp_path / "run/model/config.json").is_file()


def test_checkpoints_are_kept_to_a_number_and_tensorboard_is_written(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(lambda _: None)
    kept = sorted(f.name for f in (tmp_path / "run/checkpoints").glob("*.index"))
    assert kept == ["ckpt-12.index", "ckpt-8.index"]
    (events,) = (tmp_path / "run/tensorboard").glob("events.*")
    tags = {
        value.tag
        for record in tf.data.TFRecordDataset(str(events)).as_numpy_iterator()
        for value in tf.compat.v1.Event.FromString(record).summary.value
    }
    assert {"train/loss", "train/target_tokens_per_second", "validation/loss"} <= tags


def test_training_does_not_trace_again(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run")
    trainer.train(lambda _: None)
    assert trainer._train_step.experimental_get_tracing_count() == 1


def test_mirrored_without_a_gpu_is_one_cpu_replica():
    assert make_strategy("mirrored").num_replicas_in_sync == 1
    with pytest.raises(UserError, match="one-device, mirrored"):
        make_strategy("mirorred")


def test_an_unfinished_dataset_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    (tmp_path / "dataset" / MANIFEST_FILE).unlink()
    with pytest.raises(UserError, match="not a finished dataset folder"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="no dataset folder at"):
        make_trainer(tmp_path / "nowhere", tmp_path / "run")


def test_another_run_in_the_folder_is_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(lambda _: None)
    with pytest.raises(UserError, match="heads is 4 there and 2 here"):
        make_trainer(toy_dataset, tmp_path / "run", heads=2)
    more = TrainingConfig(**{**vars(FAST), "steps": 99, "log_every": 1})
    assert make_trainer(toy_dataset, tmp_path / "run", training=more).training.steps == 99
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["steps"] == 99


def test_a_folder_with_something_else_is_refused(toy_dataset, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.tex").write_text("")
    with pytest.raises(UserError, match="holds something else"):
        make_trainer(toy_dataset, tmp_path / "run")
    with pytest.raises(UserError, match="is a file"):
        make_trainer(toy_dataset, tmp_path / "run/thesis.tex")


def test_a_run_that_saved_nothing_may_change(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run")
    make_trainer(toy_dataset, tmp_path / "run", heads=2).train(lambda _: None)
    with pytest.raises(UserError, match="heads is 2 there and 4 here"):
        make_trainer(toy_dataset, tmp_path / "run")


def test_another_number_of_replicas_is_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").train(lambda _: None)
    with pytest.raises(UserError, match="replicas is 1 there and 2 here"):
        make_trainer(toy_dataset, tmp_path / "run", two_replicas())


def test_a_loss_that_is_not_finite_stops_the_run(toy_dataset, tmp_path):
    wild = TrainingConfig(**{**vars(FAST), "peak_learning_rate": 1e30, "warmup_steps": 1})
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=wild)
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at step \d+"):
        trainer.train(lambda _: None)
    assert not (tmp_path / "run/model").exists()
    assert not list((tmp_path / "run/checkpoints").glob("*.index"))


def test_any_seed_of_32_bits_trains(toy_dataset, tmp_path):
    last = TrainingConfig(**{**vars(FAST), "seed": 2**32 - 1, "steps": 2})
    make_trainer(toy_dataset, tmp_path / "run", training=last, dropout=0.5).train(lambda _: None)


def test_a_budget_below_the_longest_pair_is_refused(toy_dataset, tmp_path):
    small = TrainingConfig(**{**vars(FAST), "batch_tokens": 5})
    with pytest.raises(UserError, match=r"the longest pair of .* has 8 tokens, a batch 5"):
        make_trainer(toy_dataset, tmp_path / "run", training=small)


def test_adam_is_that_of_section_5_3(toy_dataset, tmp_path):
    optimizer = make_trainer(toy_dataset, tmp_path / "run").optimizer
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
