"""A training from its request: three lines to a run, and plans that write nothing."""

from __future__ import annotations

import dataclasses
import doctest
import json

import pytest
from toy import toy_config
from trainers import changed

from model.errors import UserError
from model.folders.lock import lock_folder
from model.runs.reports import Progress, Validation
from model.training import request as module
from model.training.request import TrainRequest


def test_the_example_of_the_docstring_trains(toy_dataset, shallow_presets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dataset").symlink_to(toy_dataset)
    example = doctest.DocTestFinder(recurse=False).find(TrainRequest, globs=vars(module))[0]
    for line in example.examples:
        line.options.pop(doctest.SKIP, None)  # elsewhere there is no dataset
    line.source = line.source.replace("print", "reports.append")
    reports = example.globs["reports"] = []
    assert doctest.DocTestRunner(verbose=False).run(example) == (0, len(example.examples))
    assert [type(report) for report in reports] == [Progress, Validation]
    assert (tmp_path / "run/model/config.json").is_file()
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["steps"] == 2


def test_a_plan_writes_nothing_and_says_what_it_chose(toy_dataset, tmp_path):
    job = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model={"layers": 2}, training={"steps": 10}
    ).plan()
    assert not (tmp_path / "run").exists()
    assert (job.model.layers, job.model.d_model, job.training.steps) == (2, 128, 10)
    assert "`preset=tiny` `dropout=0.25` `batch_tokens=2048`" in job.notes[0]
    assert "`steps=" not in job.notes[0]
    assert job.doubts == []
    assert job.describe()[-1].split()[0] == "all"


def test_whole_configurations_are_taken_as_they_are(toy_dataset, tmp_path):
    config = toy_config(layers=1, dropout=0.125)
    job = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model=config, training=changed(seed=3)
    ).plan()
    assert (job.model, job.training, job.notes) == (config, changed(seed=3), [])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"norm": "sandwich"}}, "`norm` must be one of post, pre. Received: sandwich"),
        ({"training": {"steps": 0}}, "`steps` must be at least 1. Received: 0"),
        ({"preset": "huge"}, "`preset` must be one of tiny, small, base, big. Received: huge"),
        ({"dataset": "nowhere"}, "no dataset folder at nowhere"),
        ({"model": toy_config(target_vocabulary_size=24, shared_vocabulary=False)}, "24"),
    ],
)
def test_a_plan_refuses_what_cannot_be_trained(fields, message, toy_dataset, tmp_path):
    request = TrainRequest(**{"dataset": toy_dataset, "run": tmp_path / "run", **fields})
    with pytest.raises(UserError, match=message):
        request.plan()


def test_what_is_not_given_is_as_the_run_was_begun(toy_dataset, tmp_path):
    begun = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model=toy_config(layers=1),
        training=changed(steps=1),
    )  # fmt: skip
    begun.plan().run(lambda report: None)
    again = TrainRequest(dataset=toy_dataset, run=tmp_path / "run", training={"steps": 2}).plan()
    assert (again.model, again.training) == (toy_config(layers=1), changed(steps=2))
    assert again.notes == []


def test_a_plan_refuses_a_folder_of_another_run_or_one_that_is_locked(toy_dataset, tmp_path):
    run = tmp_path / "run"
    request = TrainRequest(
        dataset=toy_dataset, run=run, model=toy_config(layers=1), training=changed(steps=1)
    )
    request.plan().run(lambda report: None)
    before = sorted(path for path in run.rglob("*") if path.is_file())
    with pytest.raises(UserError, match="holds another run: `layers` was 1 and is now 2"):
        TrainRequest(dataset=toy_dataset, run=run, model={"layers": 2}).plan()
    with lock_folder(run, name="train.lock", activity="trains", remedy="x"):
        with pytest.raises(UserError, match=r"another process trains in .*: wait until it has"):
            request.plan()
        workers = dataclasses.replace(request, strategy="multi-worker")
        assert workers.plan().model == request.model  # its chief holds the lock
        assert request.plan(is_to_run=False).describe() == workers.plan().describe()
        other = TrainRequest(dataset=toy_dataset, run=run, model={"layers": 2})
        with pytest.raises(UserError, match="holds another run"):
            other.plan(is_to_run=False)
    assert request.plan().model == request.model
    assert sorted(path for path in run.rglob("*") if path.is_file()) == before
