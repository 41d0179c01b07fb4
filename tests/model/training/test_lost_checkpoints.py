"""Runs that have lost their checkpoints are refused, with the command that starts another run."""

from __future__ import annotations

import shlex
import shutil

import numpy as np
import pytest
import tensorflow as tf
from trainers import ignore, log_of, make_trainer, one_device, weights_in, weights_of

from model.errors import UserError
from model.training.request import TrainRequest


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


def refusal(dataset, run):
    """Returns the error of a trainer of a run, and checks that it writes nothing."""
    before = files_of(run)
    with pytest.raises(UserError) as caught:
        make_trainer(dataset, run)
    assert files_of(run) == before
    return str(caught.value)


def remedy(dataset, run, model):
    return (
        f"Restore {run}/checkpoints, or start another run from its model with `tt train --dataset "
        f"{dataset} --run {run}-2 --init-from {run}/{model}`"
    )


ALL_GONE = {
    "the folder": ["checkpoints"],
    "all in the folder": ["checkpoints/*"],
    "all that the index names": ["checkpoints/*-*"],
    "all that a run goes on from": ["checkpoints/ckpt-*"],
    "all but the best": ["checkpoints/ckpt-*", "checkpoints/*.json"],
    "the indices": ["checkpoints/*.index"],
}


@pytest.mark.parametrize("patterns", ALL_GONE.values(), ids=ALL_GONE)
def test_run_without_checkpoints_is_refused(patterns, run, toy_dataset):
    remove(run, *patterns)
    assert refusal(toy_dataset, run) == (
        f"the checkpoints of {run} are gone although train.jsonl reaches step 12. "
        f"{remedy(toy_dataset, run, 'model')}"
    )


@pytest.mark.parametrize(
    ("patterns", "model"),
    [(["model", "train.jsonl"], "best_model"), (["best_model", "train.jsonl"], "model")],
    ids=["best model", "last model"],
)
def test_exported_model_shows_that_checkpoints_existed(patterns, model, run, toy_dataset):
    remove(run, "checkpoints", *patterns)
    assert refusal(toy_dataset, run) == (
        f"the checkpoints of {run} are gone. {remedy(toy_dataset, run, model)}"
    )


def test_log_shows_that_checkpoints_existed(run, toy_dataset):
    remove(run, "checkpoints", "*model")
    assert refusal(toy_dataset, run) == (
        f"the checkpoints of {run} are gone although train.jsonl reaches step 12. Restore "
        f"{run}/checkpoints, or train in another folder with `run`"
    )


def test_checkpoints_without_their_data_are_refused(run, toy_dataset):
    remove(run, "checkpoints/*.data-*")
    assert refusal(toy_dataset, run) == (
        f"none of the checkpoints in {run}/checkpoints can be read. "
        f"{remedy(toy_dataset, run, 'model')}"
    )


def test_recommended_command_trains_from_the_model(run, toy_dataset, tmp_path):
    remove(run, "checkpoints")
    command = refusal(toy_dataset, run).split("`")[1]
    program, verb, *flags = shlex.split(command)
    assert (program, verb) == ("tt", "train")
    named = dict(zip(flags[::2], flags[1::2], strict=True))
    assert named.keys() == {"--dataset", "--run", "--init-from"}
    fields = {name.removeprefix("--").replace("-", "_"): value for name, value in named.items()}
    trainer = TrainRequest(**fields, training={"steps": 1}).plan().start(one_device())
    for found, expected in zip(weights_of(trainer), weights_in(run / "model"), strict=True):
        np.testing.assert_array_equal(found, expected)
    trainer.close()


def test_run_that_was_killed_before_its_first_checkpoint_restarts(toy_dataset, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_trainer(toy_dataset, tmp_path / "run").train(stop)
    again = make_trainer(toy_dataset, tmp_path / "run")
    assert again.state.step == 0
    assert again.notes == [
        f"{tmp_path / 'run'} has no checkpoint although train.jsonl reaches step 3: training "
        "restarts at step 0"
    ]


def test_run_resumes_from_the_checkpoints_that_are_left(run, toy_dataset):
    remove(run, "checkpoints/ckpt-12.*")
    again = make_trainer(toy_dataset, run)
    assert again.state.step == 8
    assert "ckpt-12 cannot be read, so it is left out" in again.notes[0]


def test_remote_run_without_checkpoints_is_refused(toy_dataset):
    run = "ram://test-remains/run"  # TensorFlow's own file system in memory
    make_trainer(toy_dataset, run).train(ignore)
    tf.io.gfile.rmtree(f"{run}/checkpoints")
    with pytest.raises(UserError, match=rf"the checkpoints of {run} are gone .* --init-from {run}"):
        make_trainer(toy_dataset, run)
