"""Reports of a run: their numbers are compared with NumPy, and logs are continued."""

from __future__ import annotations

import json
import math
import platform
import time

import numpy as np
import pytest
from numpy_transformer import PAD, NumpyTransformer
from toy import toy_config
from trainers import changed, ignore, log_of, make_trainer, whole_log_of

from tt.model.dataset.batches import Position

SMOOTHING = 0.3


def weights_by_path(model):
    return {variable.path: variable.numpy() for variable in model.trainable_variables}


def expected_means(weights, batches):
    """Return the loss and nll per target token, computed by their definitions in float64."""
    numpy_model = NumpyTransformer(toy_config(layers=1), weights)
    losses, nlls = [], []
    for batch in batches:
        for source, target in zip(batch.source, batch.target, strict=True):
            if not target.any():
                continue  # the row contains only padding
            ids = target[target != PAD]
            logits, _ = numpy_model.one_sentence(source[source != PAD], ids[:-1])
            logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            likelihoods = logs[np.arange(len(ids) - 1), ids[1:]]
            nlls.extend(-likelihoods)
            losses.extend(-((1 - SMOOTHING) * likelihoods + SMOOTHING * logs.mean(-1)))
    return np.mean(losses), np.mean(nlls)


@pytest.fixture(scope="module")
def smoothed(toy_dataset, tmp_path_factory):
    """A run with label smoothing: its folder, its trainer, and the initial weights."""
    run = tmp_path_factory.mktemp("smoothed") / "run"
    training = changed(
        steps=6, label_smoothing=SMOOTHING, log_every=1, validate_every=6, best_metric="nll"
    )
    trainer = make_trainer(toy_dataset, run, training=training)
    before = weights_by_path(trainer.model)
    trainer.train(ignore)
    return run, trainer, before


def test_reported_loss_nll_and_perplexity_match_numpy(smoothed):
    run, trainer, before = smoothed
    first, *_, validation = log_of(run)
    assert (first["step"], validation["kind"]) == (1, "validation")
    batch = next(trainer.data.batches("train").epoch(Position()))
    weights_then = {
        "train": (first, before, [batch]),
        "validation": (
            validation,
            weights_by_path(trainer.model),
            list(trainer.data.batches("validation").epoch(Position())),
        ),
    }
    for line, weights, batches in weights_then.values():
        loss, nll = expected_means(weights, batches)
        assert abs(loss - nll) > 0.01
        assert line["loss"] == pytest.approx(loss, rel=1e-4)
        assert line["nll"] == pytest.approx(nll, rel=1e-4)
        assert line["perplexity"] == math.exp(line["nll"])


def test_best_validation_can_be_chosen_by_nll(smoothed):
    run, trainer, _ = smoothed
    validation = log_of(run)[-1]
    assert validation["is_best"] is True
    assert trainer.state.best == [(validation["nll"], 6)]


def test_log_records_each_command_and_continues_its_seconds(toy_dataset, tmp_path):
    run, shorter = tmp_path / "run", changed(steps=8)
    before = time.time()
    make_trainer(toy_dataset, run, training=shorter).train(ignore, command="tt train --steps 8")
    first, *reports = whole_log_of(run)
    assert (first["kind"], first["step"], first["command"]) == ("start", 0, "tt train --steps 8")
    assert before <= first["time"] <= time.time()
    assert first["versions"]["python"] == platform.python_version()
    assert first["versions"].keys() > {"tt-translate", "tensorflow", "keras", "sentencepiece"}
    machine = first["machine"]
    assert (machine["devices"], machine["replicas"], machine["workers"]) == (["CPU:0"], 1, 1)
    assert machine["cores"] >= 1
    assert 0 <= first["seconds"] <= reports[0]["seconds"] < reports[-1]["seconds"]
    # A killed process leaves lines of unsaved updates, and an incomplete last line.
    killed = {"kind": "train", "step": 11, "seconds": 5000.0}
    with (run / "train.jsonl").open("a") as file:
        file.write(json.dumps(killed) + '\n{"kind": "tr')
    start = time.monotonic()
    make_trainer(toy_dataset, run).train(ignore)
    took = time.monotonic() - start
    _, *kept = whole_log_of(run)
    assert kept[: len(reports)] == reports
    second, *added = kept[len(reports) :]
    assert (second["kind"], second["step"], second["command"]) == ("start", 8, "")
    assert reports[-1]["seconds"] <= second["seconds"] <= added[0]["seconds"]
    assert added[-1]["seconds"] <= reports[-1]["seconds"] + took
    make_trainer(toy_dataset, run).train(ignore, command="tt train")
    assert whole_log_of(run)[1:] == kept, "a finished run writes no line"
