"""The compiled step: what replicas exchange, where results wait, and what a stop leaves."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from toy import gradients_of
from trainers import changed, ignore, log_of, make_trainer, two_replicas, weights_of

from model.dataset.windows import Position
from model.errors import UserError
from model.training.stops import Terminated
from model.updates import loss_scaling, step
from model.updates.step import UpdateScalars
from model.updates.strategies import make_strategy

TWO_BATCHES = changed(effective_batch_size=1024, clip_norm=0.5)  # of two replicas


def numbers_of(batch, update=1):
    """Returns what the step needs to know of an update of one batch."""
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
    """Returns how many operations of a kind a compiled function has, those inside of it too."""
    graph = function.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return sum(node.op == kind for node in nodes)


def place(tensor):
    return tensor.backing_device.split("device:")[-1]


def test_results_wait_where_they_were_made(toy_dataset, tmp_path):
    # The first replica is not on the device that everything falls back to.
    strategy = make_strategy("mirrored", devices=["cpu:1", "cpu:0"])
    trainer = make_trainer(toy_dataset, tmp_path / "run", strategy, training=TWO_BATCHES)
    batch = first_batch(trainer)
    accumulated = trainer._step.accumulate(batch.source, batch.target, numbers_of(batch))
    assert [place(part) for part in accumulated] == ["CPU:1", "CPU:0"]
    (updated,) = trainer._step.update(batch.source, batch.target, numbers_of(batch))
    assert place(updated) == "CPU:1"
    # Their own rows each: together they are those of the whole batch.
    tokens = np.count_nonzero(batch.target[:, 1:])
    assert all(0 < part.numpy()[3] < tokens for part in accumulated)
    assert trainer._step.read(accumulated).sums.tokens == tokens
    assert trainer._step.read((updated,)).sums.tokens == tokens


# With the pack of 32 MiB that is the default all gradients of a toy travel together; its largest
# matrix has 24 KiB.
@pytest.mark.parametrize(("size", "packs"), [(32 * 2**20, 1), (24 * 2**10, None)])
def test_gradients_are_exchanged_once_an_update(toy_dataset, tmp_path, monkeypatch, size, packs):
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=size)
    monkeypatch.setattr(step, "_EXCHANGE", options)
    # Collective operations as GPUs have them; they are only traced, for on the few threads of a
    # CPU replicas can wait for each other for ever.
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    trainer = make_trainer(toy_dataset, tmp_path / "run", strategy, training=TWO_BATCHES)
    found = operations(trainer._step._update, "CollectiveReduceV2")
    values = len(trainer.model.trainable_variables) + 1
    assert found == 2 * packs if packs else 2 * 1 < found < 2 * values
    assert operations(trainer._step._accumulate, "CollectiveReduceV2") == 0


def test_the_size_of_a_pack_is_the_default():
    assert step._EXCHANGE.bytes_per_pack == 32 * 2**20


def test_replicas_accumulate_apart(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", two_replicas(), training=TWO_BATCHES)
    batch = first_batch(trainer)
    trainer._step.accumulate(batch.source, batch.target, numbers_of(batch))
    one = make_trainer(toy_dataset, tmp_path / "one", training=TWO_BATCHES)
    one._step.accumulate(batch.source, batch.target, numbers_of(batch))
    for total, expected in zip(
        trainer._step.accumulator.sums, one._step.accumulator.sums, strict=True
    ):
        first, second = (value.numpy() for value in total.values)
        assert (first != second).any()
        atol = 1e-5 * np.abs(expected.numpy()).max()
        np.testing.assert_allclose(first + second, expected.numpy(), rtol=0, atol=atol)


def stop_in(trainer, call):
    """Tells a trainer to stop while it accumulates for a time of that number, the first being 1."""
    accumulate, calls = trainer._step.accumulate, itertools.count(1)

    def accumulate_and_stop(*given):
        if next(calls) == call:
            trainer.stop.make()
        return accumulate(*given)

    trainer._step.accumulate = accumulate_and_stop


def timeless(lines):
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


@pytest.mark.parametrize("make", [lambda: None, two_replicas], ids=["one", "two replicas"])
def test_an_update_that_a_stop_interrupts_is_made_again(toy_dataset, tmp_path, make):
    batches = 3  # an update
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


def test_another_number_of_replicas_goes_on_from_a_stop(toy_dataset, tmp_path):
    training = changed(effective_batch_size=1024, steps=3, validate_every=3)
    stopped = make_trainer(toy_dataset, tmp_path / "run", two_replicas(), training=training)
    stop_in(stopped, call=2)
    with pytest.raises(Terminated):
        stopped.train(ignore)
    one = make_trainer(toy_dataset, tmp_path / "run", training=training)
    assert ["resuming with 1 replica what 2 trained" in note for note in one.notes] == [True]
    assert (one.state.step, one.state.pending_batches) == (1, 0)
    one.train(ignore)
    assert one.state.step == 3


# float16

HALF = changed(compute_type="mixed_float16", peak_learning_rate=0.001)


def train(trainer, batch, *, updates, first=1):
    """Updates by one batch again and again; returns the results."""
    found = []
    for number in range(first, first + updates):
        result = trainer._step.update(batch.source, batch.target, numbers_of(batch, number))
        found.append(trainer._step.read(result))
    return found


def moments_of(trainer):
    adam = trainer._step.adam
    return [moment.numpy() for moment in (*adam.first_moments, *adam.second_moments)]


def test_float16_follows_float32(toy_dataset, tmp_path):
    full = make_trainer(toy_dataset, tmp_path / "full", training=changed(peak_learning_rate=0.001))
    half = make_trainer(toy_dataset, tmp_path / "half", training=HALF)
    assert {variable.dtype for variable in half.model.variables} == {"float32"}
    batch = first_batch(full)
    assert half.model(batch.source, target=batch.target).dtype == tf.float16
    expected, found = train(full, batch, updates=4), train(half, batch, updates=4)
    for a, b in zip(expected, found, strict=True):
        assert b.sums.loss == pytest.approx(a.sums.loss, rel=2e-3)
        assert b.sums.loss != a.sums.loss
        assert b.gradient_norm == pytest.approx(a.gradient_norm, rel=0.01)
        assert (b.skipped, b.sums.tokens) == (0, a.sums.tokens)
    assert half._step.loss_scale.good_updates.numpy() == 4


@pytest.mark.parametrize("factor", [2.0**-6, 1.0, 2.0**10])
def test_the_gradients_do_not_depend_on_the_factor(toy_dataset, tmp_path, factor):
    full = make_trainer(toy_dataset, tmp_path / "full")
    half = make_trainer(toy_dataset, tmp_path / "half", training=HALF)
    half._step.loss_scale.scale.assign(factor)
    batch = first_batch(full)
    for expected, found in zip(
        gradients_of(full)(batch.source, batch.target),
        gradients_of(half)(batch.source, batch.target),
        strict=True,
    ):
        assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


@pytest.mark.parametrize("make", [lambda: None, two_replicas], ids=["one", "two replicas"])
@pytest.mark.parametrize("effective", [None, 1024])
def test_an_overflow_leaves_the_update_out_and_halves_the_factor(
    toy_dataset, tmp_path, make, effective
):
    training = dataclasses.replace(HALF, effective_batch_size=effective)
    trainer = make_trainer(toy_dataset, tmp_path / "run", make(), training=training)
    untouched = make_trainer(toy_dataset, tmp_path / "other", make(), training=training)
    batch, scale = first_batch(trainer), trainer._step.loss_scale
    weights, moments = weights_of(trainer), moments_of(trainer)
    scale.scale.assign(loss_scaling.MOST)
    scale.good_updates.assign(7.0)
    if effective:  # what overflowed before the update counts as well
        trainer._step.accumulate(batch.source, batch.target, numbers_of(batch))
        scale.scale.assign(2.0**11)
    (result,) = train(trainer, batch, updates=1)
    assert (result.skipped, result.gradient_norm) == (1, 0)
    assert math.isfinite(result.sums.loss)
    expected = loss_scaling.MOST / 2 if not effective else 2.0**10
    assert (scale.scale.numpy(), scale.good_updates.numpy()) == (expected, 0)
    assert scale.skipped.numpy() == 1
    for before, after in zip([*weights, *moments], [*weights_of(trainer), *moments_of(trainer)],
                             strict=True):  # fmt: skip
        np.testing.assert_array_equal(after, before)
    # The next update is Adam's first, whatever its number is.
    scale.scale.assign(loss_scaling.START)
    (again,) = train(trainer, batch, updates=1, first=2)
    (first,) = train(untouched, batch, updates=1)
    assert (again.skipped, again.gradient_norm) == (0, first.gradient_norm)
    for expected, found in zip(weights_of(untouched), weights_of(trainer), strict=True):
        np.testing.assert_array_equal(found, expected)
    if make():
        for variable in trainer.model.trainable_variables:
            first, second = (value.numpy() for value in variable.value.values)
            np.testing.assert_array_equal(first, second)


def test_the_factor_doubles_after_many_updates(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=HALF)
    batch, scale = first_batch(trainer), trainer._step.loss_scale
    scale.good_updates.assign(loss_scaling.GROWTH_INTERVAL - 2)
    train(trainer, batch, updates=1)
    assert scale.scale.numpy() == loss_scaling.START
    train(trainer, batch, updates=1, first=2)
    assert (scale.scale.numpy(), scale.good_updates.numpy()) == (2 * loss_scaling.START, 0)
    scale.scale.assign(loss_scaling.MOST)
    scale.good_updates.assign(loss_scaling.GROWTH_INTERVAL - 1)
    scale.adapt(tf.constant(True))
    assert scale.scale.numpy() == loss_scaling.MOST


def test_what_no_factor_helps_against_is_an_error(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=HALF)
    update = trainer._step.update

    def without_tokens(source, target, numbers):
        return update(source, target, numbers._replace(tokens=np.float32(0)))

    trainer._step.update = without_tokens
    trainer._step.loss_scale.scale.assign(4 * loss_scaling.LEAST)
    with pytest.raises(UserError, match=r"gradient's norm (inf|nan) at step 3 of 12"):
        trainer.train(ignore)
    assert trainer._step.loss_scale.skipped.numpy() == 2
    assert trainer.state.meter.skipped == 2


def test_a_float16_run_resumes_as_if_undisturbed(toy_dataset, tmp_path, monkeypatch):
    # The factor changes all the time: it overflows after each third update.
    monkeypatch.setattr(loss_scaling, "GROWTH_INTERVAL", 3)
    monkeypatch.setattr(loss_scaling, "START", 2.0**13)
    training = dataclasses.replace(HALF, clip_norm=0.5)
    whole = make_trainer(toy_dataset, tmp_path / "whole", training=training, dropout=0.2)
    whole.train(ignore)
    assert 0 < whole._step.loss_scale.skipped.numpy() < 12
    stopped = make_trainer(toy_dataset, tmp_path / "run", training=training, dropout=0.2)

    def stop(report):
        if report.step == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.train(stop)
    resumed = make_trainer(toy_dataset, tmp_path / "run", training=training, dropout=0.2)
    assert resumed.state.step == 8
    resumed.train(ignore)
    assert timeless(log_of(tmp_path / "run")) == timeless(log_of(tmp_path / "whole"))
    skipped = [line.get("skipped_updates", 0) for line in log_of(tmp_path / "whole")]
    assert sum(skipped) == whole._step.loss_scale.skipped.numpy()
    for expected, found in zip(weights_of(whole), weights_of(resumed), strict=True):
        np.testing.assert_array_equal(found, expected)
    for name in ("scale", "good_updates", "skipped"):
        found, expected = (getattr(t._step.loss_scale, name).numpy() for t in (resumed, whole))
        assert found == expected, name


# XLA


@pytest.mark.parametrize(
    ("make", "compute_type", "updates"),
    [
        (lambda: None, "float32", 2),
        (two_replicas, "float32", 1),
        (lambda: None, "mixed_bfloat16", 1),
    ],
    ids=["one", "two replicas", "bfloat16"],
)
def test_what_xla_compiles_trains_alike(toy_dataset, tmp_path, make, compute_type, updates):
    training = changed(
        peak_learning_rate=0.001,
        effective_batch_size=1024 if make() else 512,  # two batches
        clip_norm=0.5,
        compute_type=compute_type,
    )
    options = {"dropout": 0.2, "attention_dropout": 0.1}
    plain = make_trainer(toy_dataset, tmp_path / "plain", make(), training=training, **options)
    jit = make_trainer(
        toy_dataset, tmp_path / "jit", make(), training=changed(**vars(training) | {"jit": True}),
        **options,
    )  # fmt: skip
    start = weights_of(plain)
    precision = 1e-5 if compute_type == "float32" else 5e-3
    first, *others = itertools.islice(plain.data.batches("train").epoch(Position()), 3)
    for batch in [first, others[0], others[1], others[0]][: 2 * updates]:  # XLA compiles 3 shapes
        for trainer in (plain, jit):
            trainer._train_on(batch)
        a, b = (t._step.read(t._unread[-1].result) for t in (plain, jit))
        np.testing.assert_allclose(b.sums, a.sums, rtol=precision)
        assert b.gradient_norm == pytest.approx(a.gradient_norm, rel=20 * precision)
    assert plain.state.step == jit.state.step == updates
    before, expected, found = (
        np.concatenate([weight.ravel() for weight in weights])
        for weights in (start, weights_of(plain), weights_of(jit))
    )
    # Adam makes steps of one size out of gradients that are next to nothing: a few go astray.
    moved = np.linalg.norm(expected - before)
    assert moved > 1e-3
    assert np.linalg.norm(found - expected) < (0.01 if compute_type == "float32" else 0.2) * moved
    assert operations(jit._step._update, "Where") == 0
    assert operations(plain._step._update, "Where") == (2 if make() else 1)


def test_xla_may_be_switched_on_when_a_run_goes_on(toy_dataset, tmp_path):
    run = tmp_path / "run"
    make_trainer(toy_dataset, run, training=changed(steps=1, validate_every=1)).train(ignore)
    config = json.loads((run / "config.json").read_text())
    assert config["training"].pop("jit") is False
    (run / "config.json").write_text(json.dumps(config))  # as it was written before
    resumed = make_trainer(toy_dataset, run, training=changed(steps=2, jit=True, validate_every=2))
    assert resumed.state.step == 1
    resumed.train(ignore)
    assert resumed.state.step == 2
