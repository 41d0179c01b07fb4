"""Runs that have lost their checkpoints are refused, with advice on how to train another run."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf
from trainers import ignore, log_of, make_trainer, one_device, weights_in, weights_of

from tt.model.errors import UserError
from tt.model.training.request import TrainRequest


@pytest.fixture
def run(finish_run, tmp_path):
    """The folder of a finished run with 12 steps."""
    run = finish_run(tmp_path / "run")
    assert [line["step"] for line in log_of(run)] == [3, 6, 6, 9, 12, 12]
    return run


def remove(run, *patterns):
    for pattern in patterns:
        for path in run.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def files_of(run):
    """Return the content of all files except the lock."""
    paths = [path for path in run.rglob("*") if path.is_file() and path.name != "train.lock"]
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}


def refusal(dataset, run):
    """Return the error of resuming a run, and check that no file changes."""
    before = files_of(run)
    with pytest.raises(UserError) as caught:
        make_trainer(dataset, run)
    assert files_of(run) == before
    return str(caught.value)


def remedy(run, model):
    return (
        f"Restore {run}/checkpoints, or train in another `run` from its model, with "
        f"`init_from={run}/{model}`"
    )


ALL_GONE = {
    "the folder": ["checkpoints"],
    "all in the folder": ["checkpoints/*"],
    "all in the index": ["checkpoints/*-*"],
    "all to resume from": ["checkpoints/ckpt-*"],
    "all except the best": ["checkpoints/ckpt-*", "checkpoints/*.json"],
    "all .index files": ["checkpoints/*.index"],
}


@pytest.mark.parametrize("patterns", ALL_GONE.values(), ids=ALL_GONE)
def test_run_without_checkpoints_is_refused(patterns, run, toy_dataset):
    remove(run, *patterns)
    expected = f"the checkpoints of {run} are missing. {remedy(run, 'model')}"
    assert refusal(toy_dataset, run) == expected


def test_exported_model_shows_that_checkpoints_existed(run, toy_dataset):
    remove(run, "checkpoints", "best_model", "train.jsonl")
    expected = f"the checkpoints of {run} are missing. {remedy(run, 'model')}"
    assert refusal(toy_dataset, run) == expected


def test_log_shows_that_checkpoints_existed(run, toy_dataset):
    remove(run, "checkpoints", "*model")
    assert refusal(toy_dataset, run) == (
        f"the checkpoints of {run} are missing. Restore {run}/checkpoints, or train in another "
        "`run`"
    )


@pytest.mark.parametrize(
    ("patterns", "model"),
    [
        ([], "model"),
        (["checkpoints/*.json", "model", "checkpoints/best-*"], "best_model"),
        (["checkpoints/*.json", "model", "checkpoints/ckpt-8.*"], "best_model"),
    ],
)
def test_checkpoints_without_their_data_are_refused(run, toy_dataset, patterns, model):
    remove(run, "checkpoints/*.data-*", *patterns)
    assert refusal(toy_dataset, run) == (
        f"no checkpoint in {run}/checkpoints can be read. {remedy(run, model)}"
    )


def test_option_recommended_by_the_error_trains_from_the_model(run, toy_dataset, tmp_path):
    remove(run, "checkpoints")
    name, value = refusal(toy_dataset, run).split("`")[3].split("=")
    request = TrainRequest(
        dataset=toy_dataset, run=f"{run}-2", **{name: value}, training={"steps": 1}
    )
    trainer = request.plan().start(one_device())
    for found, expected in zip(weights_of(trainer), weights_in(run / "model"), strict=True):
        np.testing.assert_array_equal(found, expected)
    trainer.close()


def test_run_killed_before_its_first_checkpoint_restarts(toy_dataset, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_trainer(toy_dataset, tmp_path / "run").train(stop)
    again = make_trainer(toy_dataset, tmp_path / "run")
    assert again.state.step == 0
    assert again.notes == [
        f"{tmp_path / 'run'} has no checkpoint, although it reached step 3. Training restarts at "
        "step 0"
    ]


def test_run_resumes_from_the_remaining_checkpoints(run, toy_dataset):
    remove(run, "checkpoints/ckpt-12.*")
    again = make_trainer(toy_dataset, run)
    assert again.state.step == 8
    assert f"ignoring checkpoint {run}/checkpoints/ckpt-12" in again.notes[0]


def test_remote_run_without_checkpoints_is_refused(toy_dataset):
    run = "ram://test-remains/run"  # a file system in TensorFlow's memory
    make_trainer(toy_dataset, run).train(ignore)
    tf.io.gfile.rmtree(f"{run}/checkpoints")
    with pytest.raises(
        UserError, match=rf"the checkpoints of {run} are missing.* `init_from={run}/model`"
    ):
        make_trainer(toy_dataset, run)
