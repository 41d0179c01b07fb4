"""Summaries of runs and models, with curves from train.jsonl."""

from __future__ import annotations

import copy
import json

from tt.model.inspection.blocks import as_json
from tt.model.inspection.model import model_sections
from tt.model.inspection.run import RunSummary, curve_sections, read_log, run_sections


def write_log(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def with_changes(run, **values):
    """Return a copy of a summary with other values."""
    changed = copy.copy(run)
    vars(changed).update(values)
    return changed


def test_run_summary(trained_toy):
    run = RunSummary(trained_toy.run)
    assert run.is_finished
    assert run.step == run.training["steps"]
    assert run.points("train", "loss")[-1]["step"] == run.step
    assert {model["name"] for model in run.models} == {"model", "best_model"}
    assert run.checkpoints
    sections = {each.anchor: each for each in run_sections(run)}
    json.dumps(as_json(list(sections.values())))
    [parameters] = sections["parameters"].blocks
    *parts, (_, total) = parameters.rows
    assert total == sum(count for _, count in parts)


def test_model_summary_of_a_run(trained_toy):
    sections = {each.anchor: each for each in model_sections(trained_toy.run)}
    overview = as_json(sections["overview"])["blocks"]
    assert overview[0]["values"]["format"] == "model"
    assert overview[0]["values"]["model"] == str(trained_toy.run / "model")
    [files] = [each for each in overview if each.get("title") == "Files"]
    sizes = dict(files["blocks"][0]["rows"])
    assert sizes["model.weights.h5"] > 4 * sections["parameters"].blocks[0].rows[-1][1]


def test_curves_over_minutes_exclude_pauses(trained_toy, tmp_path):
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
    log.open("a").write('{"kind": "tr')  # the last line is being written
    run = with_changes(RunSummary(trained_toy.run), log=read_log(log))
    [section] = curve_sections([run], over="minutes")
    train, validation = section.blocks[0].lines
    assert (train.name, train.x, train.y) == ("train", [10 / 60, 25 / 60], [2.0, 1.0])
    assert (validation.name, validation.x, validation.y) == ("validation", [0.5], [1.5])
    assert [(start["step"], start["machine"]) for start in run.starts] == [
        (0, {"cores": 2}),
        (5, {}),
    ]
    assert run.samples() == {("a", "b"): {10: "c"}}
