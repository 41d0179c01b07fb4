"""A run that is killed at any moment resumes with the same command, and ends with the same weights.

A kill leaves the files as they are. The tests therefore copy the run folder whenever the trainer
has changed it, and resume each copy.
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from trainers import BUILT_MODELS, ignore, log_of, one_device, weights_in

from tt.model.training.request import TrainRequest

# The first best weights are older than the first checkpoint. The dataset chooses the dropout, the
# warm-up and the rate. The preset has other numbers of layers.
MODEL = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 16, "heads": 2, "d_ff": 32}
TRAINING = {
    "steps": 8, "batch_tokens": 256, "save_every": 4, "validate_every": 3, "score_every": 0,
    "log_every": 1, "keep_best": 2, "average": "last",
}  # fmt: skip
# Calls of C functions in these files may change a folder.
CALLERS = ("file_io.py", "functional_saver.py", "pathlib", "os.py", "shutil.py", "tempfile.py")


def train(dataset, run):
    """Run the command in the folder; models with traced steps are reused."""
    request = TrainRequest(dataset=dataset, run=run, preset="tiny", model=MODEL, training=TRAINING)
    with (
        BUILT_MODELS.lend(),
        mock.patch("tt.model.training.trainer._build", BUILT_MODELS.build),
        mock.patch("tt.model.training.trainer._DRAWINGS", 0),  # pictures take seconds
    ):
        request.plan().start(one_device()).train(ignore)


def state_of(folder):
    """Return all paths in a folder, with the sizes and times of the files."""
    found = {}
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # another thread has renamed the file
            continue
        found[str(path.relative_to(folder))] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def killed(toy_dataset, tmp_path_factory):
    """Return the finished run, and a copy of its folder after each change, oldest first."""
    folder = tmp_path_factory.mktemp("killed")
    train(toy_dataset, folder / "traced")  # the profiler would slow down the tracing
    run, copies, last = folder / "run", [], {}

    def watch(frame, event, _):
        nonlocal last
        name = frame.f_code.co_filename
        if event != "c_call" or not (name.endswith(CALLERS) or "/model/" in name):
            return
        if (state := state_of(run)) != last:
            last = state
            copies.append(shutil.copytree(run, folder / f"copy-{len(copies)}"))

    sys.setprofile(watch)
    try:
        train(toy_dataset, run)
    finally:
        sys.setprofile(None)
    return run, copies


def results_of(run):
    """Return all results of a run except times."""
    timed = ("source_tokens_per_second", "target_tokens_per_second", "seconds_left", "seconds")
    log = [{k: v for k, v in line.items() if k not in timed} for line in log_of(run)]
    index = json.loads((run / "checkpoints/checkpoints.json").read_text())
    files = sorted(path.name for path in (run / "checkpoints").iterdir())
    return log, index, files, json.loads((run / "config.json").read_text())


@functools.cache
def weights_of_run(folder):
    return weights_in(folder)


def assert_resumes(copy, run, dataset):
    resumed = shutil.copytree(copy, Path(f"{copy}-resumed"))
    train(dataset, resumed)
    assert results_of(resumed) == results_of(run), copy
    for name in ("model", "best_model"):
        expected_weights = weights_of_run(run / name)
        for found, expected in zip(weights_in(resumed / name), expected_weights, strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=str(copy))
    shutil.rmtree(resumed)


def names_of(copy):
    """Return the names of the files of a run that decide how it resumes."""
    names = {path.relative_to(copy).as_posix() for path in copy.rglob("*")}
    return frozenset(name for name in names if not name.startswith(("tensorboard/", ".export-")))


def test_run_killed_with_any_set_of_files_resumes_identically(killed, toy_dataset):
    run, copies = killed
    chosen = {names_of(copy): copy for copy in copies}  # the last copy with these files
    assert len(copies) > 60
    best_first = [
        copy
        for names, copy in chosen.items()
        if "checkpoints/best-3.index" in names and "checkpoints/checkpoints.json" not in names
    ]
    assert best_first
    for copy in [best_first[-1], *list(chosen.values())[::12]]:
        assert_resumes(copy, run, toy_dataset)


def test_run_killed_after_any_change_of_a_file_resumes_identically(killed, toy_dataset):
    run, copies = killed
    for copy in copies:
        assert_resumes(copy, run, toy_dataset)
