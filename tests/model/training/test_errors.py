"""Errors that `tt train` reports before and during a training."""

from __future__ import annotations

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
from trainers import changed, ignore, make_trainer

from tt.model.dataset.manifest import MANIFEST_FILE, digest_file
from tt.model.errors import UserError
from tt.model.training.options import describe_difference
from tt.model.training.run_folder import RunFolder


def config_of(fingerprint, *, folder=None):
    """Return a run's configuration; without `folder`, in the form of an older version."""
    config = {
        "model": {"layers": 1} | VOCABULARY,
        "training": {"seed": 1},
        "dataset": fingerprint,
        "replicas": 1,
    }
    if folder is None:
        return config
    return config | {"dataset_source": {"folder": folder, "pairs": 12, "corpora": ["a.tsv"]}}


OURS = {"folder": "/d/other"}
VOCABULARY = {
    "source_vocabulary_size": 16, "target_vocabulary_size": 16, "shared_vocabulary": True,
}  # fmt: skip


@pytest.mark.parametrize("found", [{"folder": "gs://d/one"}, {}, OURS])
def test_error_about_another_dataset_shows_its_folder(tmp_path, toy_dataset, found):
    run = RunFolder(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/ckpt-1.index").touch()
    run.write_config(config_of("0a1b", **found))
    with pytest.raises(UserError) as caught:
        run.claim(config_of("2c3d", **OURS), vocabulary_folder=toy_dataset)
    run.release()
    assert str(caught.value) == (
        f"{tmp_path} contains another run: `dataset` was {found.get('folder')} (fingerprint 0a1b) "
        "and is now /d/other (fingerprint 2c3d). Set the same options to resume that run, or "
        "choose another `run`"
    )


def test_difference_starts_with_the_dataset_and_omits_derived_options():
    sizes = {"source_vocabulary_size": 8000, "target_vocabulary_size": 8000}
    saved = config_of("0a1b", folder="/d/one")
    saved["model"] |= sizes
    asked = config_of("2c3d", **OURS) | {"training": {"seed": 2}}
    asked["model"] |= dict.fromkeys(sizes, 4264)
    assert describe_difference(saved, asked) == (
        "`dataset` was /d/one (fingerprint 0a1b) and is now /d/other (fingerprint 2c3d); `seed` "
        "was 1 and is now 2"
    )
    same = {**asked, "dataset": "0a1b"}
    assert "`source_vocabulary_size` was 8000 and is now 4264" in describe_difference(saved, same)


@pytest.mark.parametrize("found", [{}, {"folder": "/before/it/was/moved"}])
def test_moved_dataset_is_accepted(tmp_path, toy_dataset, found):
    run = RunFolder(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/ckpt-1.index").touch()
    run.write_config(config_of("0a1b", **found))
    assert run.claim(config_of("0a1b", **OURS), vocabulary_folder=toy_dataset) == []
    run.release()


def test_unfinished_dataset_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    (tmp_path / "dataset" / MANIFEST_FILE).unlink()
    with pytest.raises(UserError, match="not a finished dataset folder"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="nowhere is not a finished dataset folder"):
        make_trainer(tmp_path / "nowhere", tmp_path / "run")


def test_vocabulary_of_another_size_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    manifest = tmp_path / "dataset" / MANIFEST_FILE
    manifest.write_text(manifest.read_text().replace('_size": 16', '_size": 24'))
    with pytest.raises(UserError, match=r"have \(16, 16\) tokens, dataset.json says \(24, 24\)"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_dataset_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "dataset").write_text("")
    with pytest.raises(UserError, match=r"dataset is not a finished dataset folder"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")


def test_manifest_without_a_split_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    manifest = tmp_path / "dataset" / MANIFEST_FILE
    values = json.loads(manifest.read_text())
    del values["splits"]["validation"]
    manifest.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"dataset.json cannot be read: KeyError\('validation'\)"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")


def preprocessed(folder):
    """Write a dataset folder whose manifest has all sizes and checksums."""
    manifest = write_dataset(folder, train=20, validation=5)
    for split in manifest.splits.values():
        split.shard_sizes.extend((folder / name).stat().st_size for name in split.shards)
    for name in ("vocabulary.spm", "vocabulary.json"):
        manifest.vocabulary_digests[name] = digest_file((folder / name).read_bytes())
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    return folder


def test_changed_vocabulary_of_the_same_size_is_refused(tmp_path):
    dataset = preprocessed(tmp_path / "dataset")
    make_trainer(dataset, tmp_path / "run").close()
    with (dataset / "vocabulary.spm").open("ab") as file:
        file.write(b"\x12\x00")  # an empty field, which SentencePiece accepts
    with pytest.raises(UserError, match=r"vocabulary.spm has changed since dataset.json was writ"):
        make_trainer(dataset, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("split", ["train", "validation"])
def test_incomplete_shard_is_found_before_training(tmp_path, split):
    dataset = preprocessed(tmp_path / "dataset")
    shard = dataset / f"{split}-00000-of-00001.tfrecord"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-3])
    bytes_found = rf"has {len(whole) - 3:,} bytes, but dataset.json says {len(whole):,}\."
    with pytest.raises(UserError, match=rf"{split}-00.* {bytes_found}"):
        make_trainer(dataset, tmp_path / "run")
    shard.write_bytes(whole + whole)
    with pytest.raises(
        UserError, match=rf"{split}-00.* bytes, but dataset.json says {len(whole):,}\."
    ):
        make_trainer(dataset, tmp_path / "run")
    shard.unlink()
    with pytest.raises(UserError, match=rf"{split}-00.* is missing"):
        make_trainer(dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_damaged_validation_split_is_found_before_training(tmp_path):
    write_dataset(tmp_path / "dataset", train=20, validation=5)
    shard = tmp_path / "dataset/validation-00000-of-00001.tfrecord"
    content = bytearray(shard.read_bytes())
    content[-6] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UserError, match=r"validation-00.*: record 4 has a wrong checksum"):
        make_trainer(tmp_path / "dataset", tmp_path / "run")


def test_counts_beyond_int32_are_refused():
    for name in ("steps", "warmup_steps", "batch_tokens", "effective_batch_size", "patience"):
        with pytest.raises(UserError, match=f"`{name}` must be at most 2,147,483,647"):
            changed(**{name: 2**40})


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


def test_folder_of_another_run_is_refused(toy_dataset, finish_run, tmp_path):
    finish_run(tmp_path / "run")
    with pytest.raises(UserError, match="`heads` was 4 and is now 2"):
        make_trainer(toy_dataset, tmp_path / "run", heads=2)
    with pytest.raises(UserError, match=r"`clip_norm` was not set and is now 1\.0"):
        make_trainer(toy_dataset, tmp_path / "run", training=changed(clip_norm=1.0))
    more = changed(steps=99, log_every=1, patience=3, keep_best=2)
    assert make_trainer(toy_dataset, tmp_path / "run", training=more).training.steps == 99
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["steps"] == 99


def test_run_of_another_format_is_refused(toy_dataset, tmp_path):
    make_trainer(toy_dataset, tmp_path / "run").close()
    config = tmp_path / "run/config.json"
    config.write_text(config.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(UserError, match="has format 1, and this version of tt resumes only form"):
        make_trainer(toy_dataset, tmp_path / "run")


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
    rows, source, target = shapes[-1]
    assert re.fullmatch(
        rf"out of memory at step 6 of 12, in a batch of {rows} rows of {source} source and "
        rf"{target} target tokens \(OOM when allocating tensor with shape.*; last good "
        rf"checkpoint: {tmp_path}/run/checkpoints/ckpt-4\)\. In a new `run`, lower `batch_tok.*",
        str(caught.value),
    )
    assert make_trainer(toy_dataset, tmp_path / "run").state.step == 4


def test_model_without_memory_gives_a_one_line_error(toy_dataset, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        message = "{{function_node x}} OOM when allocating tensor with shape[9] [Op:Random]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr("tt.model.training.trainer.Transformer", fail)
    expected = (
        r"^out of memory while creating the model \(OOM when .* shape\[9\]; last good.*: none\)\. "
    )
    with pytest.raises(UserError, match=expected):
        make_trainer(toy_dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


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
