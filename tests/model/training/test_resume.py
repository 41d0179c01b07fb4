"""Runs that are resumed, extended, or stored on another file system."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from memory_store import MemoryStore
from trainers import (
    changed,
    export_average,
    export_checkpoint,
    ignore,
    log_of,
    make_trainer,
    two_replicas,
    weights_in,
    weights_of,
)

from tt.model.errors import UserError
from tt.model.inspection.run import RunSummary, run_sections
from tt.model.storage import files
from tt.model.storage.listing import list_names


def stop_at(step):
    def stop(report):
        if report.step == step:
            raise KeyboardInterrupt

    return stop


def tensorboard_values(path):
    """Return the tags and steps of the values in a file of TensorBoard on an object store."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(MemoryStore.read(path))
        records = tf.data.TFRecordDataset(file.name).as_numpy_iterator()
        events = map(tf.compat.v1.Event.FromString, records)
        return {(value.tag, event.step) for event in events for value in event.summary.value}


def timeless(lines):
    timed = ("source_tokens_per_second", "target_tokens_per_second", "seconds_left", "seconds")
    return [{k: v for k, v in line.items() if k not in timed} for line in lines]


@pytest.mark.parametrize("effective", [None, 512], ids=["one batch", "two batches"])
def test_run_resumes_identically(toy_dataset, tmp_path, effective):
    # Reports fall between checkpoints, so the sums of a report must be restored, too.
    training = changed(log_every=3, effective_batch_size=effective, clip_norm=0.5)
    undisturbed = make_trainer(toy_dataset, tmp_path / "whole", training=training, dropout=0.2)
    undisturbed.train(ignore)
    stopped = make_trainer(toy_dataset, tmp_path / "run", training=training, dropout=0.2)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(stop_at(9))
    resumed = make_trainer(toy_dataset, tmp_path / "run", training=training, dropout=0.2)
    assert resumed.state.step == 8
    assert resumed.state.position.batch > 0
    assert resumed.state.meter["updates"] == 2
    resumed.train(ignore)
    assert resumed.state.step == 12
    assert resumed.state.position == undisturbed.state.position
    for expected, found in zip(weights_of(undisturbed), weights_of(resumed), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert timeless(log_of(tmp_path / "run")) == timeless(log_of(tmp_path / "whole"))


def test_validation_at_the_start_of_a_resumed_run_is_kept(toy_dataset, tmp_path):
    # No validation was due at step 8 when the run was saved. With the new options, one is due.
    first = changed(steps=10, save_every=8, validate_every=5)
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=first)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(stop_at(9))
    second = changed(steps=8, save_every=8, validate_every=4, keep_best=3)
    resumed = make_trainer(toy_dataset, tmp_path / "run", training=second)
    resumed.train(ignore)
    kept = json.loads((tmp_path / "run/checkpoints/checkpoints.json").read_text())
    assert kept["last"] == ["ckpt-8"]
    assert sorted(kept["best"]) == ["best-5", "best-8"]
    again = make_trainer(toy_dataset, tmp_path / "run", training=second)
    assert again.state.validated == 8
    reports = []
    again.train(reports.append)
    assert reports == []


def test_temporary_error_deletes_no_checkpoint(toy_dataset, finish_run, tmp_path, monkeypatch):
    finish_run(tmp_path / "run")
    before = sorted(file.name for file in (tmp_path / "run/checkpoints").iterdir())

    for error in (
        tf.errors.UnavailableError(None, None, "503"),
        tf.errors.OpError(None, None, "ckpt-12.index; Input/output error", tf.errors.UNKNOWN),
    ):

        def fail(self, path, error=error):
            raise error

        monkeypatch.setattr(tf.train.Checkpoint, "read", fail)
        with pytest.raises(UserError, match=r"checkpoint .*ckpt-12 cannot be read .*(503|Input)"):
            make_trainer(toy_dataset, tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run/checkpoints").iterdir()) == before


def test_fewer_steps_than_already_done_are_refused(toy_dataset, finish_run, tmp_path):
    finish_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"`steps` must be at least 12, .* Received: 11"):
        make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=11))
    # The refused command has changed nothing.
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["steps"] == 12


def test_run_resumes_with_another_number_of_replicas_and_a_warning(
    toy_dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr("tt.model.dataset.batches.WINDOW", 512)
    one = make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=5))
    one.train(ignore)
    before = one.state.position
    assert before.batch > 0
    two = make_trainer(toy_dataset, tmp_path / "run", two_replicas(), training=changed(steps=6))
    (note,) = two.notes
    assert "resuming with 2 replicas instead of 1" in note
    read = []
    train_on = two._train_on
    monkeypatch.setattr(two, "_train_on", lambda batch: read.append(batch) or train_on(batch))
    two.train(ignore)
    assert two.state.step == 6
    assert two.state.replicas == 2
    # No pair of the current window is read a second time. The next window is twice as large.
    [first] = read
    assert (first.start.window, first.start.record) == (before.window + 1, 512)
    assert first.following.before == first.start.before == 512
    assert two.data.batches("train").next_window(first.start).before == 512 + 2 * 512
    assert make_trainer(toy_dataset, tmp_path / "run", two_replicas()).notes == []


# Object stores


def test_run_folder_on_an_object_store(toy_dataset, finish_run, tmp_path):
    MemoryStore.clear()
    run = "mem://bucket/run"
    make_trainer(toy_dataset, run, training=changed(steps=8, average="last")).train(ignore)
    resumed = make_trainer(toy_dataset, run, training=changed(average="last"))
    assert resumed.state.step == 8
    resumed.train(ignore)
    kinds = [line["kind"] for line in log_of(run)]
    assert kinds.count("train") == 4 + 1  # one more at the end of the first part
    local = tmp_path / "model"
    local.mkdir()
    for name in list_names(f"{run}/model"):
        (local / name).write_bytes(MemoryStore.read(f"{run}/model/{name}"))
    whole = finish_run(tmp_path / "whole", training=changed(average="last"))
    for expected, found in zip(weights_in(whole), weights_in(local), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert export_average(run, tmp_path / "mean", count=2) == ["ckpt-12", "ckpt-8"]
    assert export_checkpoint(run, tmp_path / "best", "best") == "best-12"
    # Each of the two trainings uploads its own file of curves.
    curves = [path for path in MemoryStore.paths() if path.startswith(f"{run}/tensorboard/")]
    first, second = map(tensorboard_values, curves)
    for values, step in ((first, 8), (second, 12)):
        assert values >= {("train/loss", step), ("attention/sentence_0/layer_0", step)}
    assert not first & second


@pytest.mark.usefixtures("eager")
def test_stopped_run_on_an_object_store_is_shown_and_resumed(toy_dataset):
    MemoryStore.clear()
    run = "mem://bucket/run"
    stopped = make_trainer(toy_dataset, run)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(stop_at(9))
    assert RunSummary(run).saved_step == 8
    stopped._save_stop()
    summary = RunSummary(run)
    facts = dict(run_sections(summary)[0].blocks[0].rows)
    assert facts["state"] == "not finished: the same command resumes after update 9"
    assert (summary.step, summary.checkpoints[-2][:4]) == (9, "stop")
    assert make_trainer(toy_dataset, run).state.step == 9


def test_killed_upload_leaves_no_checkpoint(toy_dataset, monkeypatch):
    MemoryStore.clear()
    run = "mem://bucket/run"
    make_trainer(toy_dataset, run, training=changed(steps=4)).train(ignore)
    before = set(MemoryStore.paths())
    copy = files.copy

    def kill(source, target, **more):
        if target.endswith("ckpt-8.index"):
            raise SystemExit
        copy(source, target, **more)

    monkeypatch.setattr(files, "copy", kill)
    with pytest.raises(SystemExit):
        make_trainer(toy_dataset, run, training=changed(steps=8)).train(ignore)
    assert f"{run}/checkpoints/ckpt-8.data-00000-of-00001" in {*MemoryStore.paths()} - before
    monkeypatch.undo()
    MemoryStore.delete(f"{run}/checkpoints/checkpoints.json")  # the rest counts as complete
    resumed = make_trainer(toy_dataset, run, training=changed(steps=8))
    assert (resumed.state.step, resumed.notes) == (4, [])
