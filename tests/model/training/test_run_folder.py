"""Errors of run folders that cannot be read; `test_resume.py` trains in a remote run folder."""

from __future__ import annotations

import pytest
import tensorflow as tf
from toy import toy_config

from tt.model.errors import UserError
from tt.model.training.run_folder import RunFolder

RUN = "ram://test-run-folder/run"


@pytest.mark.parametrize(
    ("name", "path", "look"),
    [
        ("exists", RUN, RunFolder.check_place),
        ("isdir", RUN, RunFolder.check_place),
        ("listdir", RUN, RunFolder.check_place),
        ("exists", f"{RUN}/config.json", lambda run: run.resumed_config(dataset="")),
        ("listdir", f"{RUN}/checkpoints", lambda run: run.check({"model": {"heads": 2}})),
    ],
)
def test_unreadable_remote_folder_gives_a_one_line_error(monkeypatch, name, path, look):
    run = RunFolder(RUN)
    tf.io.gfile.makedirs(RUN)
    if path.endswith("checkpoints"):
        tf.io.gfile.makedirs(path)
        model = toy_config().to_json()
        run.write_config({"model": model, "training": {}, "dataset": "toy", "replicas": 1})
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
        f"the run folder {RUN} cannot be read (no such host). Check the path, the network and "
        "your permissions, or choose another `run`"
    )
