"""Moving averages of the weights: saving, resuming, exporting, and averaging of checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from trainers import (
    changed,
    export_average,
    export_checkpoint,
    ignore,
    make_trainer,
    one_device,
    two_replicas,
    weights_in,
    weights_of,
)

from tt.model.errors import UserError
from tt.model.formats.weights import load_model
from tt.model.training.request import TrainRequest

EMA = changed(steps=4, validate_every=2, save_every=2, ema=0.5, keep_best=2)


def means_of(trainer):
    return [mean.numpy() for mean in trainer._step.average.means]


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make_strategy", [lambda: None, two_replicas], ids=["one", "two"])
def test_resumed_run_ends_with_the_same_averages(toy_dataset, tmp_path, make_strategy):
    whole = make_trainer(toy_dataset, tmp_path / "whole", make_strategy(), EMA)
    whole.train(ignore)
    short = changed(steps=2, validate_every=2, save_every=2, ema=0.5, keep_best=2)
    make_trainer(toy_dataset, tmp_path / "parts", make_strategy(), short).train(ignore)
    again = make_trainer(toy_dataset, tmp_path / "parts", make_strategy(), EMA)
    assert again.state.step == 2
    again.train(ignore)
    assert_equal(means_of(again), means_of(whole))
    assert_equal(weights_of(again), weights_of(whole))
    assert any((a != b).any() for a, b in zip(means_of(whole), weights_of(whole), strict=True))
    for run in ("whole", "parts"):
        assert_equal(weights_in(tmp_path / run), means_of(whole))


def test_later_exports_contain_the_averages(toy_dataset, tmp_path):
    run = tmp_path / "run"
    trainer = make_trainer(toy_dataset, run, training=EMA)
    trainer.train(ignore)
    export_checkpoint(str(run), tmp_path / "last", name="last")
    assert_equal(weights_in(tmp_path / "last"), means_of(trainer))
    export_checkpoint(str(run), tmp_path / "best", name="best")
    assert_equal(weights_in(tmp_path / "best"), weights_of(load_model(run / "best_model")))
    export_checkpoint(str(run), tmp_path / "two", name="2")
    export_average(str(run), tmp_path / "mean", which="last", count=2)
    for mean, first, last in zip(
        *(weights_in(tmp_path / name) for name in ("mean", "two", "last")), strict=True
    ):
        np.testing.assert_allclose(mean, (first.astype(np.float64) + last) / 2, atol=1e-7)


def test_average_starts_with_the_weights_of_the_initial_model(toy_dataset, finish_run, tmp_path):
    initial = finish_run(tmp_path / "initial")
    job = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", init_from=initial, training=EMA
    ).plan()
    trainer = job.start(one_device())
    assert_equal(means_of(trainer), weights_in(initial))
    trainer.close()


def test_resuming_with_a_different_decay_is_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run", training=EMA).train(ignore)
    for ema, words in ((None, "0.5 and is now not set"), (0.9, "0.5 and is now 0.9")):
        with pytest.raises(UserError, match=f"`ema` was {words}"):
            make_trainer(toy_dataset, tmp_path / "run", training=changed(ema=ema))


def test_r_drop_needs_dropout(toy_dataset, tmp_path):
    for call in ("check", "plan"):
        request = TrainRequest(
            dataset=toy_dataset, run=tmp_path / "run", model={"dropout": 0.0},
            training={"r_drop": 5.0},
        )  # fmt: skip
        with pytest.raises(UserError, match=r"`dropout` must be above 0 .* Received: 0.0"):
            getattr(request, call)()
