"""A run folder that cannot be looked up; `test_resume.py` has one in the memory of TensorFlow."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tt.model.errors import UserError
from tt.model.training.run_folder import RunFolder

RUN = "ram://test-run-folder/run"


@pytest.mark.parametrize(
    ("name", "path", "look"),
    [
        ("exists", RUN, RunFolder.check_place),
        ("isdir", RUN, RunFolder.check_place),
        ("exists", f"{RUN}/config.json", RunFolder.check_place),
        ("listdir", RUN, RunFolder.check_place),
        ("exists", f"{RUN}/config.json", lambda run: run.begun(dataset="")),
        ("glob", f"{RUN}/checkpoints/*.index", lambda run: run.begun(dataset="")),
        ("exists", f"{RUN}/config.json", lambda run: run.check({})),
        ("glob", f"{RUN}/checkpoints/*.index", lambda run: run.check({"model": {"heads": 2}})),
    ],
)
def test_what_cannot_be_looked_up_is_told_in_a_line(monkeypatch, name, path, look):
    run = RunFolder(RUN)
    tf.io.gfile.makedirs(RUN)
    if name == "glob":
        run.write_config({"model": {}, "training": {}})
    elif tf.io.gfile.exists(f"{RUN}/config.json"):
        tf.io.gfile.remove(f"{RUN}/config.json")
    real = getattr(tf.io.gfile, name)

    def fail(found):
        if found == path:
            raise tf.errors.UnavailableError(None, None, "no such host\n\t when reading it")
        return real(found)

    monkeypatch.setattr(tf.io.gfile, name, fail)
    with pytest.raises(UserError) as caught:
        look(run)
    assert str(caught.value) == (
        f"the run folder {RUN} cannot be read (no such host): check the path, the network "
        "and your rights there, or name another one with `run`"
    )


def test_a_local_folder_has_no_bucket(monkeypatch, tmp_path):
    def fail(path):
        raise tf.errors.PermissionDeniedError(None, None, f"{path}; Permission denied")

    monkeypatch.setattr(tf.io.gfile, "exists", fail)
    with pytest.raises(
        UserError, match=r"denied\): check the path, the network and your rights there, or"
    ):
        RunFolder(tmp_path / "run").check_place()
