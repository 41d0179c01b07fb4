"""Files in a run folder that the run did not write."""

from __future__ import annotations

import shutil

import pytest
import tensorflow as tf
from trainers import changed, export_average, ignore, make_trainer

from tt.model.errors import DiskFullError, UserError
from tt.model.inspection.run import RunSummary
from tt.model.remote_files import plain_reason, storage_errors


def copy_checkpoint(run, name, copy):
    for path in (run / "checkpoints").glob(f"{name}.*"):
        shutil.copyfile(path, path.with_name(path.name.replace(name, copy)))


@pytest.mark.parametrize("has_index", [True, False])
def test_copies_of_checkpoints_are_ignored_and_kept(has_index, finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    for name, copy in (("ckpt-12", "ckpt-500-copy"), ("best-12", "best-x"), ("ckpt-8", "ckpt-8b")):
        copy_checkpoint(run, name, copy)
    if not has_index:
        (run / "checkpoints/checkpoints.json").unlink()
    copies = {path: path.read_bytes() for path in run.glob("checkpoints/*[xyb].*")}
    assert len(copies) == 6
    assert RunSummary(run).saved_step == 12
    assert export_average(str(run), tmp_path / "averaged") == ["ckpt-12", "ckpt-8"]
    trainer = make_trainer(toy_dataset, run, training=changed(steps=13))
    assert (trainer.state.step, trainer.notes) == (12, [])
    trainer.train(ignore)
    assert {path: path.read_bytes() for path in copies} == copies


def test_run_with_only_copies_of_checkpoints_is_refused(finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    copy_checkpoint(run, "ckpt-12", "ckpt-500-copy")
    for path in run.glob("checkpoints/*[0-9].*"):
        path.unlink()
    with pytest.raises(UserError, match=r"checkpoints of .* are missing.* `init_from="):
        make_trainer(toy_dataset, run)


def test_index_that_lists_a_copy_is_refused(finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    index = run / "checkpoints/checkpoints.json"
    index.write_text(index.read_text().replace("ckpt-12", "ckpt-12-copy"))
    with pytest.raises(UserError, match=r"checkpoints.json is damaged .* Delete it to resume"):
        make_trainer(toy_dataset, run)


def test_checkpoint_with_the_name_of_another_step_is_not_used(finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    for path in (run / "checkpoints").glob("ckpt-12.*"):
        path.unlink()
    copy_checkpoint(run, "ckpt-8", "ckpt-12")
    with pytest.raises(UserError, match=r"ckpt-12 cannot be read \(it is the checkpoint of step 8"):
        export_average(str(run), tmp_path / "averaged")
    trainer = make_trainer(toy_dataset, run)
    assert trainer.state.step == 8
    assert "ckpt-12, because it cannot be read: it is the checkpoint of step 8" in trainer.notes[0]
    trainer.close()


def test_full_disk_message_omits_internals():
    # This is the message of TensorFlow 2.21 when `tf.train.Checkpoint.write` fills a tmpfs.
    message = (
        "{{function_node __wrapped__SaveV2_dtypes_80_device_/job:localhost/replica:0/task:0/"
        "device:CPU:0}} run/checkpoints/ckpt-2_temp/part-00000-of-00001.data-00000-of-00001."
        "tempstate17346105985568619441; No space left on device [Op:SaveV2]"
    )
    error = tf.errors.ResourceExhaustedError(None, None, message)
    with pytest.raises(DiskFullError) as caught, storage_errors("run", what="run folder"):
        raise error
    assert str(caught.value) == (
        "the disk of run is full (No space left on device). Free some space, or choose another "
        "`output`"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(5, "Input/output error", "a"), "Input/output error"),
        (ValueError("one\ntwo"), "one"),
        (ValueError(""), "ValueError"),
        (tf.errors.DataLossError(None, None, "{{node x}}\ncut [Op:ReadV2]"), "cut"),
    ],
)
def test_plain_reason_is_one_line(error, reason):
    assert plain_reason(error) == reason
