"""Training requests: the example in the docstring, and plans that write nothing."""

from __future__ import annotations

import dataclasses
import doctest
import itertools
import json
from unittest import mock

import pytest
from toy import toy_config, write_dataset
from trainers import changed, make_trainer

from tt.model.dataset.batches import Position
from tt.model.errors import UserError
from tt.model.training import request as module
from tt.model.training.defaults import EMBEDDED_CORPUS
from tt.model.training.options import TrainingConfig
from tt.model.training.reports import Progress, Validation
from tt.model.training.request import TrainRequest
from tt.model.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("eager")


def test_example_in_the_docstring_trains(toy_dataset, shallow_presets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dataset").symlink_to(toy_dataset)
    example = doctest.DocTestFinder(recurse=False).find(TrainRequest, globs=vars(module))[0]
    for line in example.examples:
        line.options.pop(doctest.SKIP, None)  # here, unlike elsewhere, a dataset exists
    line.source = line.source.replace("print", "reports.append")
    reports = example.globs["reports"] = []
    assert doctest.DocTestRunner(verbose=False).run(example) == (0, len(example.examples))
    assert [type(report) for report in reports] == [Progress, Validation]
    assert (tmp_path / "run/model/config.json").is_file()
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["steps"] == 2


def test_plan_writes_nothing_and_reports_its_choices(toy_dataset, tmp_path):
    job = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model={"layers": 2}, training={"steps": 10}
    ).plan()
    assert not (tmp_path / "run").exists()
    assert (job.model.layers, job.model.d_model, job.training.steps) == (2, 128, 10)
    assert "`preset=tiny` `dropout=0.25` `batch_tokens=2048`" in job.notes[0]
    assert "`steps=" not in job.notes[0]
    assert job.doubts == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"training": {"stepz": 5}},
            "TrainingConfig has no argument `stepz`. Did you mean `steps`?",
        ),
        ({"training": {"steps": "5"}}, "`steps` must be a whole number. Received: '5'"),
        ({"training": {"steps": True}}, "`steps` must be a whole number. Received: True"),
        ({"training": [5]}, "`training` must be TrainingConfig or Mapping. Received: [5]"),
        ({"model": {"norm": ["pre"]}}, "`norm` must be a string. Received: ['pre']"),
        ({"devices": 1}, "`devices` must be a string or a list of strings. Received: 1"),
    ],
)
def test_names_and_types_of_options_are_checked(fields, message):
    with pytest.raises(UserError) as caught:
        TrainRequest(**{"dataset": "dataset", "run": "run", **fields})
    assert str(caught.value) == message


def test_model_for_other_vocabularies_is_refused(toy_dataset, tmp_path):
    model = toy_config(target_vocabulary_size=24, shared_vocabulary=False)
    with pytest.raises(UserError, match="24"):
        TrainRequest(dataset=toy_dataset, run=tmp_path / "run", model=model).plan()


def test_resumed_run_keeps_options_that_are_not_given(toy_dataset, tmp_path):
    begun = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model=toy_config(layers=1),
        training=changed(steps=1),
    )  # fmt: skip
    begun.plan().run(lambda report: None)
    again = TrainRequest(dataset=toy_dataset, run=tmp_path / "run", training={"steps": 2}).plan()
    assert (again.model, again.training) == (toy_config(layers=1), changed(steps=2))
    assert again.notes == []


# Options that `tt` combines with options of its own choice. A preset sets the dropout, unless the
# dataset's size chooses the same preset.
PARTLY_GIVEN = {
    "preset": [None, "tiny", "student-tiny"],
    "model": [
        {}, {"encoder_layers": 1}, {"decoder_layers": 2, "d_model": 16}, {"layers": 2},
        {"encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
    ],
    "training": [
        {}, {"epochs": 2}, {"steps": 40, "validate_every": 30, "best_metric": "bleu"},
        {"score_every": 400},
    ],
}  # fmt: skip


@pytest.mark.parametrize("corpus", ["toy", EMBEDDED_CORPUS])
def test_the_same_request_resumes_its_own_run(corpus, tmp_path):
    manifest = write_dataset(tmp_path / "dataset", train=50, validation=5)
    manifest = dataclasses.replace(manifest, corpus=corpus)
    (tmp_path / "dataset/dataset.json").write_text(manifest.to_json())
    for number, values in enumerate(itertools.product(*PARTLY_GIVEN.values())):
        run, given = tmp_path / f"run{number}", dict(zip(PARTLY_GIVEN, values, strict=True))
        request = TrainRequest(dataset=tmp_path / "dataset", run=run, **given)
        first = request.plan()
        (run / "checkpoints").mkdir(parents=True)
        (run / "checkpoints/ckpt-1.index").touch()  # from now on, other options are refused
        RunFolder(run).write_config(first.run_config(replicas=1))
        again = request.plan()
        assert (again.model, again.training) == (first.model, first.training), given


def test_scores_take_a_small_part_of_the_work_of_a_run(tmp_path):
    manifest = write_dataset(tmp_path / "dataset", train=50, validation=1500)
    tokens = manifest.splits["validation"].target_tokens / 1500

    def sentences(**training):
        request = TrainRequest(
            dataset=tmp_path / "dataset", run=tmp_path / "run", training=training
        )
        job = request.plan()
        return job.training.score_sentences, job

    most = 0
    for steps in (1, 30, 100, 400, 8000):
        count, job = sentences(steps=steps)
        work = steps * job.training.batch_tokens
        scores = -(-steps // job.training.validate_every)
        assert count >= 50
        assert count == 50 or scores * count * tokens <= 0.05 * work
        assert min(count, 1500) >= most, "a longer training scores at least as many sentences"
        most = min(count, 1500)
    assert most == 1500, "a long training scores the whole split"
    assert sentences(steps=30)[0] < sentences(steps=30, effective_batch_size=8192)[0]
    assert sentences(steps=400)[0] < sentences(steps=400, score_every=200)[0]
    assert sentences(steps=30, score_sentences=700)[0] == 700
    assert sentences(steps=30, score_every=0)[0] == 2000  # unused
    # A run that resumes keeps its number, even if it becomes longer.
    count, first = sentences(steps=100, best_metric="bleu")
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/ckpt-50.index").touch()
    RunFolder(tmp_path / "run").write_config(first.run_config(replicas=1))
    assert sentences(steps=5000)[0] == count
    rule = f"`score_sentences` was {count} and is now 700"
    with pytest.raises(UserError, match=rule):
        sentences(score_sentences=700)  # the values of `best_metric` would not be comparable


@pytest.mark.parametrize("name", ["run[1]", "a %20 run?"])
def test_run_with_any_name_refuses_other_options(name, finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / name)
    finish_run(tmp_path / "run1", training=changed(steps=4))  # `run[1]` and `run?` match this name
    with pytest.raises(UserError, match="contains another run: `seed` was 1 and is now 2"):
        make_trainer(toy_dataset, run, training=changed(seed=2))
    longer = make_trainer(toy_dataset, run, training=changed(steps=13))
    assert longer.state.step == 12
    longer.close()


@pytest.mark.parametrize(
    ("replicas", "fields"),
    [(1, {}), (2, {}), (1, {"effective_batch_size": 1024}), (1, {"subword_dropout": 0.2})],
    ids=["one", "two replicas", "four batches per update", "subword dropout"],
)
def test_updates_per_epoch_are_counted(toy_dataset, tmp_path, replicas, fields):
    job = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model=toy_config(layers=1),
        training=changed(**fields),
    ).plan()  # fmt: skip
    data = dataclasses.replace(job.data, replicas=replicas)
    batches = sum(1 for _ in data.batches("train").epoch(Position()))
    assert batches > 4
    updates = batches / (4 if "effective_batch_size" in fields else 1)
    assert data.updates_an_epoch() == updates
    assert job.updates_an_epoch(replicas) == round(updates)


def test_epochs_become_steps_that_a_run_keeps(toy_dataset, tmp_path):
    options = {"batch_tokens": 1024, "score_every": 0}
    request = TrainRequest(
        dataset=toy_dataset, run=tmp_path / "run", model=toy_config(layers=1),
        training={**options, "epochs": 2},
    )  # fmt: skip
    job = request.plan()
    updates = sum(1 for _ in job.data.batches("train").epoch(Position()))
    assert (job.training.epochs, job.training.steps) == (2, 2 * updates)
    assert job.training.warmup_steps == updates // 2, "the warm-up fits the steps"
    assert job.notes[0] == f"2 epochs of {updates} updates with 1 replica: `steps={2 * updates}`"
    job.run(lambda report: None)

    def plan(**training):
        job = dataclasses.replace(request, training=training).plan()
        return job.training.epochs, job.training.steps, job.notes[:1]

    # With another number of replicas, a new run would get another number of steps.
    with mock.patch("tt.model.training.strategies.count_replicas", return_value=2):
        assert plan() == plan(epochs=2) == (2, 2 * updates, [])
    note = f"3 epochs of {updates} updates with 1 replica: `steps={3 * updates}`"
    assert plan(epochs=3) == (3, 3 * updates, [note])
    assert plan(steps=5000) == (None, 5000, [])
    whole = TrainingConfig(**options, epochs=4)
    job = dataclasses.replace(request, run=tmp_path / "new", training=whole).plan()
    assert job.training == dataclasses.replace(whole, steps=4 * updates)
    with pytest.raises(UserError, match="`epochs` and `steps` cannot be combined"):
        plan(epochs=1, steps=5)
