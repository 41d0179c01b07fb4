"""Runs that have lost their checkpoints: refused, or gone on with from their model."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from trainers import changed, ignore, log_of, make_trainer, two_replicas, weights_in, weights_of

from model.engines.tensorflow_engine import TensorFlowTranslator
from model.errors import UserError
from model.runs.checkpoints import Checkpoints

LONGER = changed(steps=16)


@pytest.fixture
def run(finish_run, tmp_path):
    """The folder of a run of 12 steps."""
    run = finish_run(tmp_path / "run")
    assert [line["step"] for line in log_of(run)] == [3, 6, 6, 9, 12, 12]
    return run


def remove(run, *patterns):
    for pattern in patterns:
        for path in run.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def files_of(run):
    """Returns the content of all files but the lock."""
    paths = [path for path in run.rglob("*") if path.is_file() and path.name != "train.lock"]
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}


ALL_GONE = {
    "the folder": ["checkpoints"],
    "all in the folder": ["checkpoints/*"],
    "all that the index names": ["checkpoints/*-*"],
    "all that a run goes on from": ["checkpoints/ckpt-*"],
    "all but the best": ["checkpoints/ckpt-*", "checkpoints/*.json"],
    "the indices": ["checkpoints/*.index"],
}


@pytest.mark.parametrize("patterns", ALL_GONE.values(), ids=ALL_GONE)
def test_a_run_without_its_checkpoints_is_refused(patterns, run, toy_dataset):
    remove(run, *patterns)
    before = files_of(run)
    with pytest.raises(UserError) as caught:
        make_trainer(toy_dataset, run)
    assert str(caught.value) == (
        f"a run goes on from its checkpoints, and those of {run} are gone (left are config.json, "
        "train.jsonl up to step 12, model/, best_model/): put checkpoints/ back, go on from the "
        "weights of model/ with `restart_from_model`, or train in another folder with `run`"
    )
    assert files_of(run) == before


@pytest.mark.parametrize(
    ("patterns", "left", "remedy"),
    [
        (["*model"], "config.json, train.jsonl up to step 12", ""),
        (["model", "train.jsonl"], "config.json, best_model/",
         "go on from the weights of best_model/ with `restart_from_model`, "),
        (["best_model", "train.jsonl"], "config.json, model/",
         "go on from the weights of model/ with `restart_from_model`, "),
    ],
    ids=["the log", "the best model", "the model"],
)  # fmt: skip
def test_whatever_says_that_a_run_was_saved_is_enough(patterns, left, remedy, run, toy_dataset):
    remove(run, "checkpoints", *patterns)
    before = files_of(run)
    with pytest.raises(UserError) as caught:
        make_trainer(toy_dataset, run)
    told = f"are gone (left are {left}): put checkpoints/ back, {remedy}or train in another"
    assert told in str(caught.value)
    assert files_of(run) == before


def test_checkpoints_without_their_data_are_refused(run, toy_dataset):
    remove(run, "checkpoints/*.data-*")
    before = files_of(run)
    remedy = "put them back, go on from the weights of model/ with `restart_from_model`, or"
    with pytest.raises(UserError, match=f"none of the checkpoints in .* can be read: {remedy}"):
        make_trainer(toy_dataset, run)
    assert files_of(run) == before
    assert make_trainer(toy_dataset, run, restart=True).state.step == 12


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(toy_dataset, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_trainer(toy_dataset, tmp_path / "run").train(stop)
    again = make_trainer(toy_dataset, tmp_path / "run")
    assert again.state.step == 0
    assert again.notes == [
        f"{tmp_path / 'run'} has no checkpoint, though it came to step 3 (it was stopped before "
        "its first one, or they were deleted): it begins again at step 0"
    ]


def test_with_a_part_of_the_checkpoints_a_run_goes_on_from_the_rest(run, toy_dataset):
    remove(run, "checkpoints/ckpt-12.*")
    again = make_trainer(toy_dataset, run)
    assert again.state.step == 8
    assert "ckpt-12 cannot be read, so it is left out" in again.notes[0]
    again.close()
    asked = make_trainer(toy_dataset, run, restart=True)
    assert asked.state.step == 8
    assert "`restart_from_model` is for runs that have lost them" in asked.notes[-1]


@pytest.mark.parametrize("patterns", ALL_GONE.values(), ids=ALL_GONE)
def test_a_run_goes_on_from_its_model(patterns, run, toy_dataset):
    remove(run, *patterns)
    before = files_of(run)
    trainer = make_trainer(toy_dataset, run, training=LONGER, restart=True)
    *_, note = trainer.notes  # after those of what cannot be read
    assert f"the checkpoints of {run} are gone: it goes on from the weights of model/ at" in note
    assert (trainer.state.step, trainer.state.batches) == (12, 12)
    assert trainer.state.position == (1, *trainer.state.position[1:])
    for found, expected in zip(weights_of(trainer), weights_in(run / "model"), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not any(moment.numpy().any() for moment in trainer._step.adam.first_moments)
    # It is saved at once, and nothing else has changed.
    kept = json.loads((run / "checkpoints/checkpoints.json").read_text())
    (best,) = [line["step"] for line in log_of(run) if line.get("is_best")][-1:]
    assert kept == {"last": [], "best": [f"best-{best}"], "stop": "stop-12-12"}
    after = files_of(run)
    for name, content in before.items():
        if not name.startswith(("checkpoints", "config.json")):
            assert after[name] == content, name
    trainer.close()
    # So the same command goes on from there, whether it asks for the model again or not.
    again = make_trainer(toy_dataset, run, training=LONGER)
    assert again.state == trainer.state
    again.train(ignore)
    assert again.state.step == 16
    lines = log_of(run)
    assert [line["step"] for line in lines] == [3, 6, 6, 9, 12, 12, 15, 16, 16]
    assert lines[-1]["nll"] < lines[-4]["nll"], "it has gone on to learn"


def test_its_best_model_stays_until_there_is_a_better_one(run, toy_dataset):
    remove(run, "checkpoints")
    log = log_of(run)
    for line in log:
        if line["kind"] == "validation":
            line.update(loss=0.001, is_best=line["step"] == 6)
    (run / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    before = weights_in(run / "best_model")
    trainer = make_trainer(toy_dataset, run, training=LONGER, restart=True)
    assert trainer.state.best == [(0.001, 6)]
    assert trainer.state.since_best == 1
    trainer.train(ignore)
    assert log_of(run)[-1]["is_best"] is False
    for found, expected in zip(weights_in(run / "best_model"), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    reader = tf.train.load_checkpoint(str(run / "checkpoints/best-6"))
    best = TensorFlowTranslator.load(run / "best_model").model
    for variable in best.trainable_variables:
        key = f"weights/{variable.path.replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE"
        np.testing.assert_array_equal(reader.get_tensor(key), variable.numpy())


def test_without_its_last_model_it_goes_on_from_the_best(run, toy_dataset):
    remove(run, "checkpoints", "model")
    log = log_of(run)
    for line in log:
        if line["kind"] == "validation":
            line["is_best"] = line["step"] == 6
    (run / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    forget_steps(run / "best_model")
    trainer = make_trainer(toy_dataset, run, restart=True)
    assert trainer.state.step == 6
    assert (
        "weights of best_model/ at step 6, the last that train.jsonl tells of" in trainer.notes[0]
    )
    for found, expected in zip(weights_of(trainer), weights_in(run / "best_model"), strict=True):
        np.testing.assert_array_equal(found, expected)


def forget_steps(model):
    """Leaves the architecture alone in a model's configuration, as models of before have it."""
    config = json.loads((model / "config.json").read_text())
    config.pop("about", None)
    (model / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("end", "step", "told"),
    [
        (12, 12, "where train.jsonl tells of the end of the training"),
        (8, 8,
         "which is a guess (the model does not say its own, and train.jsonl goes on from the end "
         "of a training there to step 12)"),
        (None, 12,
         "which is a guess (the model does not say its own, and train.jsonl ends there without "
         "the end of a training)"),
    ],
    ids=["finished", "finished, extended and killed", "stopped early"],
)  # fmt: skip
def test_the_step_of_a_model_that_does_not_say_it_is_the_last_end_of_a_training(
    run, toy_dataset, end, step, told
):
    forget_steps(run / "model")
    remove(run, "checkpoints")
    log = [line for line in log_of(run) if line["kind"] != "train" or line["step"] != 12]
    (last,) = [line for line in log_of(run) if line.get("seconds_left") == 0]
    assert last["step"] == 12
    lines = [*log, *([{**last, "step": end}] if end else [])]
    (run / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    trainer = make_trainer(toy_dataset, run, restart=True)
    trainer.close()
    assert trainer.state.step == step
    assert trainer.notes[-1] == (
        f"the checkpoints of {run} are gone: it goes on from the weights of model/ at step {step}, "
        f"{told}, with an optimizer that begins anew"
    )


def test_what_a_restart_refuses(run, toy_dataset, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"`restart_from_model` .* has none: leave it out"):
        make_trainer(toy_dataset, tmp_path / "new", restart=True)
    remove(run, "checkpoints")
    before = files_of(run)
    with pytest.raises(UserError, match="another run: `seed` was 1 and is now 2"):
        make_trainer(toy_dataset, run, training=changed(seed=2), restart=True)
    with pytest.raises(UserError, match=r"`steps` must be at least the 12 that .* Received: 11"):
        make_trainer(toy_dataset, run, training=changed(steps=11), restart=True)

    def fail(self, checkpoint, name):
        raise UserError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", fail)
        with pytest.raises(UserError, match="no room"):
            make_trainer(toy_dataset, run, restart=True)
    assert files_of(run) == before
    forget_steps(run / "model")
    remove(run, "train.jsonl")
    with pytest.raises(UserError, match=r"says after how many steps the model was exported"):
        make_trainer(toy_dataset, run, restart=True)
    shutil.rmtree(run / "model")
    other = tmp_path / "other"
    make_trainer(toy_dataset, other, training=changed(steps=4), d_ff=32).train(ignore)
    shutil.copytree(other / "model", run / "model")
    with pytest.raises(UserError, match=r"model is another model than config.json in"):
        make_trainer(toy_dataset, run, restart=True)


def test_two_replicas_go_on_from_a_model(run, toy_dataset):
    remove(run, "checkpoints")
    trainer = make_trainer(toy_dataset, run, two_replicas(), restart=True)
    assert trainer.state.replicas == 2
    expected = weights_in(run / "model")
    for variable, weight in zip(trainer.model.trainable_variables, expected, strict=True):
        for value in variable.value.values:
            np.testing.assert_array_equal(value.numpy(), weight)


def test_a_run_on_another_file_system_goes_on_from_its_model(toy_dataset):
    run = "ram://test-remains/run"  # TensorFlow's own file system in memory
    make_trainer(toy_dataset, run).train(ignore)
    tf.io.gfile.rmtree(f"{run}/checkpoints")
    with pytest.raises(UserError, match=r"left are config.json, train.jsonl up to step 12, model/"):
        make_trainer(toy_dataset, run)
    assert make_trainer(toy_dataset, run, restart=True).state.step == 12


def test_the_step_is_that_of_the_model_where_that_is_written_down(run, toy_dataset):
    remove(run, "checkpoints", "train.jsonl")
    trainer = make_trainer(toy_dataset, run, restart=True)
    assert trainer.state.step == 12
    assert "weights of model/ at step 12, with an optimizer that begins anew" in trainer.notes[-1]
