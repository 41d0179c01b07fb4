"""The compiled training step: exchanges between replicas, placement of results, and stops."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from graphs import nodes_of
from tensorflow.python.framework.kernels import get_registered_kernels_for_op
from toy import gradients_of
from trainers import (
    changed,
    ignore,
    log_of,
    make_trainer,
    one_device,
    two_replicas,
    weights_in,
    weights_of,
)

from tt.model.dataset.batches import Position
from tt.model.training.step import UpdateScalars
from tt.model.training.stops import Terminated
from tt.model.training.strategies import make_strategy

TWO_BATCHES = changed(effective_batch_size=1024, clip_norm=0.5)  # per update, on two replicas


def numbers_of(batch, update=1):
    """Return the scalars of an update with one batch."""
    return UpdateScalars(
        place=np.int32(update),
        tokens=np.float32(np.count_nonzero(batch.target[:, 1:])),
        rate=np.float32(0.001),
        update=np.float32(update),
        stop=np.float32(0),
    )


def first_batch(trainer):
    return next(trainer.data.batches("train").epoch(Position()))


def operations(function, kind):
    return sum(node.op == kind for node in nodes_of(function.get_concrete_function()))


def test_labels_are_found_on_the_host(toy_dataset, tmp_path):
    # TensorFlow has a kernel for int32 that runs on the host for every device. In bool, the host
    # would wait for the GPU, which alone knows the number of labels.
    trainer = make_trainer(toy_dataset, tmp_path / "run")
    nodes = nodes_of(trainer._step._update.get_concrete_function())
    types = [node.attr["T"].type for node in nodes if node.op == "Where"]
    assert types == [tf.int32.as_datatype_enum]
    kernels = get_registered_kernels_for_op("Where").kernel
    (kernel,) = [each for each in kernels if each.device_type == "DEFAULT"]
    assert set(kernel.host_memory_arg) == {"input", "index"}
    assert kernel.constraint[0].allowed_values.list.type == types


def place(tensor):
    return tensor.backing_device.split("device:")[-1]


def test_results_stay_on_their_devices(toy_dataset, tmp_path):
    # The first replica is not on CPU:0, the default device, so a misplaced result is noticed.
    strategy = make_strategy("mirrored", devices=["cpu:1", "cpu:0"])
    trainer = make_trainer(toy_dataset, tmp_path / "run", strategy, training=TWO_BATCHES)
    batch = first_batch(trainer)
    accumulated = trainer._step.accumulate(batch.source, batch.target, numbers_of(batch))
    assert [place(part) for part in accumulated] == ["CPU:1", "CPU:0"]
    (updated,) = trainer._step.update(batch.source, batch.target, numbers_of(batch))
    assert place(updated) == "CPU:1"
    # Each replica counts its own rows, and the sum covers the whole batch.
    tokens = np.count_nonzero(batch.target[:, 1:])
    assert all(0 < part.numpy()[3] < tokens for part in accumulated)
    assert trainer._step.read(accumulated).sums.tokens == tokens
    assert trainer._step.read((updated,)).sums.tokens == tokens


def test_gradients_are_exchanged_once_per_update(toy_dataset, tmp_path):
    # GPUs use collective operations. This test only traces them, because on the few threads of a
    # CPU, replicas could wait for each other forever.
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    trainer = make_trainer(toy_dataset, tmp_path / "run", strategy, training=TWO_BATCHES)
    assert operations(trainer._step._update, "CollectiveReduceV2") == 2  # one per replica
    assert operations(trainer._step._accumulate, "CollectiveReduceV2") == 0


def test_batches_with_many_logits_have_the_same_gradients(toy_dataset, tmp_path, monkeypatch):
    trainer = make_trainer(toy_dataset, tmp_path / "run", two_replicas())
    batch = first_batch(trainer)
    expected = gradients_of(trainer)(batch.source, batch.target)
    monkeypatch.setattr("tt.model.training.step.MOST_LOGITS", 256 * 16 - 1)
    monkeypatch.setattr("tt.model.training.loss._SLICE_LOGITS", 20 * 16)
    large = make_trainer(toy_dataset, tmp_path / "large", two_replicas())
    found = gradients_of(large)(batch.source, batch.target)
    for gradient, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)
    sums = [each._step.sums(batch.source, batch.target) for each in (large, trainer)]
    np.testing.assert_allclose(*sums, rtol=1e-5)
    assert operations(large._step._sums, "While") + operations(
        large._step._sums, "StatelessWhile"
    ), "the loss is computed in slices"


@pytest.mark.parametrize("make", [one_device, two_replicas], ids=["one", "two replicas"])
def test_layers_that_xla_compiles_have_the_same_gradients(toy_dataset, tmp_path, make):
    plain = make_trainer(toy_dataset, tmp_path / "plain", make())
    compiled = make_trainer(toy_dataset, tmp_path / "xla", make(), training=changed(xla=True))
    batch = first_batch(plain)
    found, expected = (
        gradients_of(trainer)(batch.source, batch.target) for trainer in (compiled, plain)
    )
    for gradient, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-5)
    replicas = plain.workers.replicas
    programs = [
        [
            node.name
            for node in nodes_of(trainer._step._sums.get_concrete_function())
            if node.attr["_XlaMustCompile"].b
        ]
        for trainer in (plain, compiled)
    ]
    assert not programs[0]
    assert len(programs[1]) >= replicas


def test_run_with_xla_resumes_with_the_same_weights(toy_dataset, tmp_path):
    training = changed(xla=True, steps=4, save_every=2, validate_every=4)
    for run, steps in (("whole", [4]), ("parts", [2, 4])):
        for last in steps:
            fields = dataclasses.replace(training, steps=last)
            trainer = make_trainer(toy_dataset, tmp_path / run, training=fields, dropout=0.2)
            trainer.train(ignore)
    whole, parts = (weights_in(tmp_path / run) for run in ("whole", "parts"))
    for found, expected in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(found, expected)


def stop_in(trainer, call):
    """Request a stop during a call of `accumulate`; the first call has number 1."""
    accumulate, calls = trainer._step.accumulate, itertools.count(1)

    def accumulate_and_stop(*given):
        if next(calls) == call:
            trainer.stop.make()
        return accumulate(*given)

    trainer._step.accumulate = accumulate_and_stop


def timeless(lines):
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


@pytest.mark.parametrize("make", [lambda: None, two_replicas], ids=["one", "two replicas"])
def test_interrupted_update_is_repeated_after_resuming(toy_dataset, tmp_path, make):
    batches = 3  # per update
    replicas = 2 if make() else 1
    training = changed(
        effective_batch_size=256 * replicas * batches, clip_norm=0.5, steps=4, validate_every=4
    )
    options = {"training": training, "dropout": 0.2}
    whole = make_trainer(toy_dataset, tmp_path / "whole", make(), **options)
    whole.train(ignore)
    stopped = make_trainer(toy_dataset, tmp_path / "run", make(), **options)
    stop_in(stopped, call=4)  # the second batch of the second update
    with pytest.raises(Terminated):
        stopped.train(ignore)
    kept = json.loads((tmp_path / "run/checkpoints/checkpoints.json").read_text())
    assert kept["stop"] == f"stop-{batches}-0"
    resumed = make_trainer(toy_dataset, tmp_path / "run", make(), **options)
    assert (resumed.state.step, resumed.state.batches) == (1, batches)
    assert resumed.state.pending_batches == 0
    assert resumed.notes == []
    resumed.train(ignore)
    for expected, found in zip(weights_of(whole), weights_of(resumed), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert timeless(log_of(tmp_path / "run")) == timeless(log_of(tmp_path / "whole"))


def test_stopped_run_resumes_with_another_number_of_replicas(toy_dataset, tmp_path):
    training = changed(effective_batch_size=1024, steps=3, validate_every=3)
    stopped = make_trainer(toy_dataset, tmp_path / "run", two_replicas(), training=training)
    stop_in(stopped, call=2)
    with pytest.raises(Terminated):
        stopped.train(ignore)
    one = make_trainer(toy_dataset, tmp_path / "run", training=training)
    assert ["resuming with 1 replica instead of 2." in note for note in one.notes] == [True]
    assert (one.state.step, one.state.pending_batches) == (1, 0)
    one.train(ignore)
    assert one.state.step == 3


def test_several_workers_on_gpus_wait_for_results_every_ten_batches(
    toy_dataset, tmp_path, monkeypatch
):
    training = changed(steps=30, validate_every=30, save_every=30, log_every=30)
    whole = make_trainer(toy_dataset, tmp_path / "whole", training=training)
    whole.train(ignore)

    def start():
        trainer = make_trainer(toy_dataset, tmp_path / "run", training=training)
        trainer.workers.are_several = True  # the other workers never request a stop
        trainer._batches_per_look = 10
        return trainer

    trainer = start()
    update, read, looks = trainer._step.update, trainer._step.read, []

    def stop_at_three(*given):
        if trainer.state.step == 2:
            trainer.stop.make()
        return update(*given)

    def note(result):
        looks.append(trainer.state.step)
        return read(result)

    monkeypatch.setattr(trainer._step, "update", stop_at_three)
    monkeypatch.setattr(trainer._step, "read", note)
    with pytest.raises(Terminated):
        trainer.train(ignore)
    assert trainer.state.step == 10, "the third update reports the request, and the tenth is read"
    assert set(looks) == {10}
    resumed = make_trainer(toy_dataset, tmp_path / "run", training=training)
    resumed.train(ignore)
    for found, expected in zip(weights_of(resumed), weights_of(whole), strict=True):
        np.testing.assert_array_equal(found, expected)
