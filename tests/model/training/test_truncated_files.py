"""A run folder with an empty or truncated file can be resumed, or gives a one-line error."""

from __future__ import annotations

import os
import shutil

import pytest
from trainers import changed, ignore, make_trainer

from tt.model.errors import UserError
from tt.model.formats.weights import load_model
from tt.model.inspection.run import RunSummary
from tt.model.training.exporting import AverageRequest

# For each truncated file, the step at which a run of 12 steps resumes, or the error.
OUTCOMES = {
    "config.json": "config.json cannot be read .* Restore the file, or choose a run folder",
    "train.jsonl": 12,
    "checkpoints/checkpoints.json": "checkpoints.json is damaged .* Delete it to resume from",
    "checkpoints/ckpt-8.index": 12,
    "checkpoints/ckpt-12.index": 8,
    "checkpoints/ckpt-12.data-00000-of-00001": 8,
    "checkpoints/best-12.index": 12,
    "checkpoints/best-12.data-00000-of-00001": 12,
    "vocabulary/vocabulary.json": 12,
    "vocabulary/vocabulary.spm": 12,
    "model/config.json": 12,
    "model/model.weights.h5": 12,
    "best_model/config.json": 12,
    "best_model/model.weights.h5": 12,
}


@pytest.fixture(params=["empty", "half"])
def truncate(request):
    """Return a function that truncates a file."""

    def truncate(path):
        os.truncate(path, 0 if request.param == "empty" else path.stat().st_size // 2)

    return truncate


def error_of(action):
    """Return the text of a UserError, or None; any other exception fails the test."""
    try:
        action()
    except UserError as error:
        return str(error)
    return None


def test_cases_cover_all_files_that_resuming_reads(finish_run, tmp_path):
    run = finish_run(tmp_path / "run")
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert names >= OUTCOMES.keys()
    rest = {name for name in names - OUTCOMES.keys() if not name.startswith("tensorboard/")}
    assert {name.rpartition("/")[2] for name in rest} <= {
        "vocabulary.json", "vocabulary.spm",  # copies in the model folders
        "ckpt-8.data-00000-of-00001",
    }  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
def test_truncated_file_causes_no_traceback(name, truncate, finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    truncate(run / name)
    average = AverageRequest(run=str(run), output=str(tmp_path / "averaged"))
    found = [error_of(lambda: RunSummary(run)), error_of(average.write)]
    for error in filter(None, found):
        assert str(run) in error
        assert len(error.splitlines()) == 1
    if isinstance(OUTCOMES[name], str):
        with pytest.raises(UserError, match=OUTCOMES[name]):
            make_trainer(toy_dataset, run)
        return
    trainer = make_trainer(toy_dataset, run)
    assert trainer.state.step == OUTCOMES[name]
    trainer.train(ignore)
    load_model(run)
    average = AverageRequest(run=str(run), output=str(tmp_path / "averaged again"), count=1)
    assert error_of(average.write) is None
    assert {path.name for path in (run / "checkpoints").glob("ckpt-*")} >= {
        "ckpt-12.index", "ckpt-12.data-00000-of-00001",
    }  # fmt: skip


def test_run_resumes_without_the_checkpoint_index(finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    (run / "checkpoints/checkpoints.json").unlink()
    assert make_trainer(toy_dataset, run).state.step == 12


def test_truncated_first_checkpoint_restarts_the_run(truncate, finish_run, toy_dataset, tmp_path):
    """A checkpoint becomes valid only when the index lists it."""
    run = finish_run(tmp_path / "run", training=changed(steps=4))
    shutil.rmtree(run / "model")  # `best_model` is older than the first checkpoint
    (run / "checkpoints/checkpoints.json").unlink()
    truncate(run / "checkpoints/ckpt-4.data-00000-of-00001")
    trainer = make_trainer(toy_dataset, run)
    assert trainer.state.step == 0
    assert "ckpt-4, because it cannot be read" in trainer.notes[0]
