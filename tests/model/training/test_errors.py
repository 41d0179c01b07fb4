"""Errors that `tt train` reports before and during a training."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from toy import write_dataset
from trainers import changed, ignore, make_trainer, one_device, two_replicas

from tt.model.dataset.manifest import MANIFEST_FILE, digest_file
from tt.model.errors import UserError
from tt.model.training.options import TrainingConfig
from tt.model.training.request import TrainRequest

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def preprocessed(tmp_path_factory):
    """A dataset whose manifest has all sizes and checksums."""
    folder = tmp_path_factory.mktemp("preprocessed") / "dataset"
    manifest = write_dataset(folder, train=20, validation=5)
    for split in manifest.splits.values():
        split.shard_sizes.extend((folder / name).stat().st_size for name in split.shards)
    for name in ("vocabulary.spm", "vocabulary.json"):
        manifest.vocabulary_digests[name] = digest_file((folder / name).read_bytes())
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    return folder


def edit(name, change):
    """Return a function that changes the content of a file in a dataset."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def change_manifest(change):
    def damage(folder):
        values = json.loads((folder / MANIFEST_FILE).read_text())
        change(values)
        (folder / MANIFEST_FILE).write_text(json.dumps(values))

    return damage


TRAIN, HELD_OUT = (f"{split}-00000-of-00001.tfrecord" for split in ("train", "validation"))
UNUSABLE = {
    "unfinished": (lambda folder: (folder / MANIFEST_FILE).unlink(), "not a finished dataset fold"),
    "missing": (shutil.rmtree, "dataset is not a finished dataset folder"),
    "no split": (
        change_manifest(lambda values: values["splits"].pop("validation")),
        r"dataset.json cannot be read: KeyError\('validation'\)",
    ),
    "other sizes": (
        change_manifest(lambda values: values.update(
            source_vocabulary_size=24, target_vocabulary_size=24, vocabulary_digests={}
        )),
        r"have \(16, 16\) tokens, dataset.json says \(24, 24\)",
    ),
    "another vocabulary": (  # SentencePiece accepts the empty field
        edit("vocabulary.spm", lambda content: content + b"\x12\0"),
        "vocabulary.spm has changed since dataset.json was written",
    ),
    "a truncated shard": (
        edit(TRAIN, lambda content: content[:-3]), "train-00.* bytes, but dataset.json says"
    ),
    "a longer shard": (
        edit(HELD_OUT, lambda content: 2 * content), "validation-00.* bytes, but dataset.json says"
    ),
    "no shard": (lambda folder: (folder / HELD_OUT).unlink(), "validation-00.* is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_dataset_is_refused_before_the_training(name, preprocessed, tmp_path):
    damage, message = UNUSABLE[name]
    damage(shutil.copytree(preprocessed, tmp_path / "dataset"))
    with pytest.raises(UserError, match=message):
        make_trainer(tmp_path / "dataset", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_damaged_validation_record_is_found_before_the_training(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    edit(HELD_OUT, lambda content: content[:-6] + b"?" + content[-5:])(tmp_path / "dataset")
    with pytest.raises(UserError, match=r"validation-00.*: record 4 has a wrong checksum"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")


def test_ids_outside_the_vocabulary_stop_the_run(tmp_path, toy_dataset):
    # The records have ids of a larger vocabulary than the manifest.
    dataset = tmp_path / "dataset"
    shutil.copytree(toy_dataset, dataset)
    with tf.io.TFRecordWriter(str(dataset / "train-00000-of-00001.tfrecord")) as writer:
        feature = {
            side: tf.train.Feature(int64_list=tf.train.Int64List(value=[2, 99, 3]))
            for side in ("source", "target")
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        for _ in range(2000):
            writer.write(example.SerializeToString())
    trainer = make_trainer(dataset, tmp_path / "run")
    with pytest.raises(UserError, match=r"record 0 of .*train-00000.* is not a pair of ids"):
        trainer.train(ignore)


# The options of a run, with other values than the run has.
ACCEPTED = {
    "steps": 13, "epochs": 9, "patience": 3, "average": "last", "score_sentences": 60,
    "log_every": 1, "validate_every": 3, "score_every": 6, "save_every": 2, "keep_best": 2,
    "keep_checkpoints": 5,
}  # fmt: skip
REFUSED = {
    "batch_tokens": 300, "effective_batch_size": 600, "peak_learning_rate": 0.02,
    "warmup_steps": 5, "schedule": "constant", "label_smoothing": 0.0, "subword_dropout": 0.1,
    "augment": 0.1, "clip_norm": 1.0, "compute_type": "mixed_bfloat16", "xla": True, "seed": 2,
    "best_metric": "nll",
}  # fmt: skip


def test_only_some_options_of_a_run_may_change(toy_dataset, finish_run, tmp_path):
    run = finish_run(tmp_path / "run")
    assert {*ACCEPTED, *REFUSED} == {field.name for field in dataclasses.fields(TrainingConfig)}
    for name, value in ACCEPTED.items():
        job = TrainRequest(dataset=toy_dataset, run=run, training={name: value}).plan()
        assert getattr(job.training, name) == value
    for name, value in REFUSED.items():
        request = TrainRequest(dataset=toy_dataset, run=run, training={name: value})
        shown = "on" if value is True else value
        with pytest.raises(UserError, match=rf"`{name}` was .* and is now {shown}"):
            request.plan()


def test_folder_with_other_files_is_refused(toy_dataset, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.tex").write_text("")
    with pytest.raises(UserError, match="contains files that belong to no run"):
        make_trainer(toy_dataset, tmp_path / "run")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    with pytest.raises(UserError, match="model is not a run folder"):
        make_trainer(toy_dataset, tmp_path / "model")
    found = {path.name for name in ("run", "model") for path in (tmp_path / name).iterdir()}
    assert found == {"thesis.tex", "config.json"}
    with pytest.raises(UserError, match="is a file"):
        make_trainer(toy_dataset, tmp_path / "run/thesis.tex")


def test_only_one_process_trains_a_run(toy_dataset, tmp_path):
    first = make_trainer(toy_dataset, tmp_path / "run", training=changed(steps=2))
    held = f"another process trains in {tmp_path}/run \\(process {os.getpid()} on .*\\). Wait until"
    for _ in range(2):  # the refused process does not release the lock
        with pytest.raises(UserError, match=held):
            make_trainer(toy_dataset, tmp_path / "run")
    first.train(ignore)
    with pytest.raises(UserError, match="`heads` was 4 and is now 2"):
        make_trainer(toy_dataset, tmp_path / "run", heads=2)
    # Neither the finished trainer nor the refused one still holds the lock.
    make_trainer(toy_dataset, tmp_path / "run").train(ignore)


def test_file_system_without_locks_causes_a_warning(toy_dataset, tmp_path, monkeypatch):
    def fail(*given):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    trainer = make_trainer(toy_dataset, tmp_path / "run")
    assert trainer.notes == [
        f"{tmp_path}/run is on a file system without locks. Check that no other process "
        "trains there"
    ]


def test_options_may_change_before_the_first_checkpoint(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").close()
    make_trainer(toy_dataset, tmp_path / "run", heads=2).train(ignore)
    with pytest.raises(UserError, match="`heads` was 2 and is now 4"):
        make_trainer(toy_dataset, tmp_path / "run")


def test_loss_that_is_not_finite_stops_the_run(toy_dataset, tmp_path, monkeypatch):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(log_every=5))
    fed = []
    run_update = trainer._step.update

    def poisoned(source, target, numbers):
        fed.append(1)
        if len(fed) == 6:
            numbers = numbers._replace(tokens=np.float32(0))  # the loss is divided by zero
        return run_update(source, target, numbers)

    monkeypatch.setattr(trainer._step, "update", poisoned)
    with pytest.raises(UserError) as caught:
        trainer.train(ignore)
    message = str(caught.value)
    assert message.startswith("training stopped, because the loss is ")
    assert re.search("the gradient norm is (nan|inf) at step 6 ", message)
    assert f"last good checkpoint: {tmp_path / 'run/checkpoints/ckpt-4'}" in message
    assert not (tmp_path / "run/model").exists()
    # The next start resumes from the last good checkpoint.
    assert make_trainer(toy_dataset, tmp_path / "run").state.step == 4


def test_diverged_run_stops_without_saving(toy_dataset, tmp_path):
    wild = changed(peak_learning_rate=1e30, warmup_steps=1)
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=wild)
    with pytest.raises(UserError, match=r"at step \d+ \(last good checkpoint: none\)"):
        trainer.train(ignore)
    assert not list((tmp_path / "run").glob("checkpoints/*.index"))


def test_batch_without_memory_gives_a_one_line_error(toy_dataset, tmp_path, monkeypatch):
    trainer = make_trainer(toy_dataset, tmp_path / "run")
    update_weights, shapes = trainer._step.update, []

    def huge(source, target, numbers):
        shapes.append((*source.shape, target.shape[1]))
        if len(shapes) < 6:
            return update_weights(source, target, numbers)
        # TensorFlow raises this error. Really running out of memory might abort the process.
        message = "OOM when allocating tensor with shape[1,2,16384,16384]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(trainer._step, "update", huge)
    with pytest.raises(UserError) as caught:
        trainer.train(ignore)
    rows, source, target = shapes[5]
    assert re.fullmatch(
        rf"out of memory at step 6 of 12, in a batch of {rows} rows of {source} source and "
        rf"{target} target tokens \(OOM when allocating tensor with shape.*; last good "
        rf"checkpoint: {tmp_path}/run/checkpoints/ckpt-4\)\. In a new `run`, lower `batch_tok.*",
        str(caught.value),
    )
    assert make_trainer(toy_dataset, tmp_path / "run").state.step == 4


@pytest.mark.parametrize("make", [one_device, two_replicas], ids=["one", "two replicas"])
def test_batch_without_memory_names_a_size_that_fits(toy_dataset, tmp_path, monkeypatch, make):
    def limit(trainer):
        """Let updates fail if a replica has more than 40 tokens."""
        update_weights, replicas = trainer._step.update, trainer.workers.replicas

        def update(source, target, numbers):
            tokens.append(len(source) * max(source.shape[1], target.shape[1]) // replicas)
            if tokens[-1] > 40:
                raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating x")
            return update_weights(source, target, numbers)

        monkeypatch.setattr(trainer._step, "update", update)
        return trainer

    tokens = []
    trainer = limit(make_trainer(toy_dataset, tmp_path / "run", make()))
    with pytest.raises(UserError) as caught:
        trainer.train(ignore)
    [whole, *halves] = tokens
    assert whole > 128
    assert halves[-1] <= 40 < halves[-2]
    found = re.fullmatch(
        r"out of memory at step 1 of 12, .* In a new `run`, set `batch_tokens=(\d+)`, which fits, "
        r"and `effective_batch_size=(\d+)`, which keeps the size of updates",
        str(caught.value),
    )
    size, effective = map(int, found.groups())
    assert halves[-1] <= size < 2 * halves[-1] + 8
    assert effective == 256 * trainer.workers.replicas
    fitting = changed(batch_tokens=size, steps=2)
    limit(make_trainer(toy_dataset, tmp_path / "new", make(), training=fitting)).train(ignore)


def test_validation_without_memory_gives_a_one_line_error(toy_dataset, tmp_path, monkeypatch):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(score_every=6))

    def fail():
        message = "Graph execution error:\n\nDetected at node x\nOOM when allocating y\nHint: z"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(trainer._validator, "score", fail)
    expected = r"memory in the validation at step 6 \(OOM when allocating y; last .*`score_every=0"
    with pytest.raises(UserError, match=expected) as caught:
        trainer.train(ignore)
    assert "\n" not in str(caught.value)
    trainer.close()
    assert make_trainer(toy_dataset, tmp_path / "run").state.step == 6, "no update is lost"


def test_largest_seed_trains(toy_dataset, tmp_path):
    last = changed(seed=2**32 - 1, steps=2)
    make_trainer(toy_dataset, tmp_path / "run", training=last, dropout=0.5).train(ignore)


def test_batch_smaller_than_the_longest_pair_is_refused(toy_dataset, tmp_path):
    with pytest.raises(UserError, match=r"longest pair in .* has 8 tokens, but a batch has 5"):
        make_trainer(toy_dataset, tmp_path / "run", training=changed(batch_tokens=5))
    assert not (tmp_path / "run").exists()
