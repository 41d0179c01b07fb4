"""Summaries of runs and models, and of what train.jsonl tells."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from model.errors import UserError
from model.inspection.model import summarize_model
from model.inspection.run import rate_points, read_log, summarize_run
from model.training.options import TrainingConfig


def write_log(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_run_is_summed_up(trained_toy):
    run = summarize_run(trained_toy.run)
    json.dumps(dataclasses.asdict(run))
    assert run.is_finished
    assert run.log.step == run.training["steps"] == max(run.schedule)
    [loss] = [each for each in run.log.curves if (each.kind, each.name) == ("train", "loss")]
    assert loss.steps[-1] == run.training["steps"]
    assert run.parameters == sum(run.parts.values())
    assert {model["name"] for model in run.models} == {"model", "best_model"}
    assert run.last_checkpoints


def test_the_model_of_a_run_is_summed_up(trained_toy):
    model = summarize_model(trained_toy.run)
    json.dumps(dataclasses.asdict(model))
    assert (model.format, model.folder) == ("model", str(trained_toy.run / "model"))
    assert model.parameters == summarize_run(trained_toy.run).parameters
    assert model.files["model.weights.h5"] > 4 * model.parameters


def test_a_run_whose_config_is_damaged_is_refused(trained_toy, tmp_path):
    shutil.copytree(trained_toy.run, tmp_path / "run")
    (tmp_path / "run/config.json").write_text("{")
    with pytest.raises(UserError, match=r"config.json cannot be read"):
        summarize_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"no run at .*nowhere"):
        summarize_run(tmp_path / "nowhere")


def test_curves_have_the_seconds_of_training_without_pauses(tmp_path):
    log = tmp_path / "train.jsonl"
    write_log(
        log,
        {"kind": "start", "step": 0, "time": 100.0, "seconds": 0.5, "command": "tt train",
         "versions": {"a": "1"}, "machine": {"cores": 2}},
        {"kind": "train", "step": 5, "steps": 20, "loss": 2.0, "seconds": 10.0},
        {"kind": "start", "step": 5, "time": 900.0, "seconds": 10.5, "machine": {}},
        {"kind": "train", "step": 10, "steps": 20, "loss": 1.0, "seconds": 25.0},
        {"kind": "validation", "step": 10, "loss": 1.5, "seconds": 30.0, "is_best": True,
         "samples": [{"source": "a", "reference": "b", "translation": "c"}]},
    )  # fmt: skip
    log.open("a").write('{"kind": "tr')  # being written
    found = read_log(log)
    train, validation = found.curves
    assert (train.steps, train.values, train.seconds) == ([5, 10], [2.0, 1.0], [10.0, 25.0])
    assert validation.seconds == [30.0]
    assert (found.step, found.seconds) == (10, 30.0)
    assert [(start["step"], start["time"], start["machine"]) for start in found.starts] == [
        (0, 100.0, {"cores": 2}),
        (5, 900.0, {}),
    ]
    assert found.samples == [{"source": "a", "reference": "b", "translations": {10: "c"}}]


def test_a_missing_log_is_empty(tmp_path):
    found = read_log(tmp_path / "missing")
    assert (found.curves, found.starts, found.step, found.seconds) == ([], [], 0, None)


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "a").write_text('{"kind": "train", "step": 1}\n{}\n')
    with pytest.raises(UserError, match=r"line 2 of .*a is damaged"):
        read_log(tmp_path / "a")


def test_the_schedule_has_its_peak():
    training = TrainingConfig(steps=1000, warmup_steps=77, peak_learning_rate=0.5)
    points = rate_points(training, width=8, points=10)
    assert points[77] == 0.5 == max(points.values())
    assert points[1] == pytest.approx(0.5 / 77)
    assert points[1000] == pytest.approx(0.5 * (77 / 1000) ** 0.5)
    assert len(points) <= 13
