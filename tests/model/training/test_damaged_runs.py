"""Run folders with lost, truncated, damaged or foreign files: they resume, or give one line."""

from __future__ import annotations

import json
import os
import re
import shutil

import numpy as np
import pytest
from memory_store import MemoryStore
from trainers import (
    changed,
    export_average,
    ignore,
    log_of,
    make_trainer,
    one_device,
    weights_in,
    weights_of,
)

from tt.model.errors import UserError
from tt.model.formats.weights import load_model
from tt.model.inspection.run import RunSummary, run_sections
from tt.model.training.exporting import AverageRequest, ExportRequest
from tt.model.training.request import TrainRequest

pytestmark = pytest.mark.usefixtures("eager")

LAST_INDEX = "checkpoints/ckpt-12.index"
LAST_DATA = "checkpoints/ckpt-12.data-00000-of-00001"
LIST = "checkpoints/checkpoints.json"


@pytest.fixture
def run(finish_run, tmp_path):
    """The folder of a finished run with 12 steps."""
    run = finish_run(tmp_path / "run")
    assert [line["step"] for line in log_of(run)] == [3, 6, 6, 9, 12, 12]
    return run


def edit(name, change):
    """Return a function that changes the content of a file in a run folder."""
    return lambda run: (run / name).write_bytes(change((run / name).read_bytes()))


def empty(name):
    return edit(name, lambda content: b"")


def halve(name):
    return edit(name, lambda content: content[: len(content) // 2])


def remove(*patterns):
    """Return a function that deletes files and folders of a run folder."""

    def delete(run):
        for pattern in patterns:
            for path in run.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return delete


def copy_checkpoint(name, copy):
    """Return a function that copies the files of a checkpoint to another name."""

    def make(run):
        for path in (run / "checkpoints").glob(f"{name}.*"):
            shutil.copyfile(path, path.with_name(path.name.replace(name, copy)))

    return make


def rename_last_but_one(run):
    remove("checkpoints/ckpt-12.*")(run)
    copy_checkpoint("ckpt-8", "ckpt-12")(run)


def keep_only_a_copy(run):
    copy_checkpoint("ckpt-12", "ckpt-500-copy")(run)
    remove("checkpoints/*[0-9].*")(run)


# Each damage, and the step at which the run of 12 steps resumes.
RESUMED = {
    "an empty log": (empty("train.jsonl"), 12),
    "a truncated log": (halve("train.jsonl"), 12),
    "a truncated older checkpoint": (halve("checkpoints/ckpt-8.index"), 12),
    "an empty index": (empty(LAST_INDEX), 8),
    "a truncated index": (edit(LAST_INDEX, lambda content: content[:-1]), 8),
    "an index of zeros": (edit(LAST_INDEX, lambda content: bytes(len(content))), 8),
    "an index with other bytes": (edit(LAST_INDEX, lambda content: b"\xff" * 8 + content[8:]), 8),
    "truncated data": (halve(LAST_DATA), 8),
    "data of zeros": (edit(LAST_DATA, lambda content: bytes(len(content))), 8),
    "no data": (remove(LAST_DATA), 8),
    "no last checkpoint": (remove("checkpoints/ckpt-12.*"), 8),
    "a checkpoint of another step": (rename_last_but_one, 8),
    "a truncated best checkpoint": (halve("checkpoints/best-12.data-00000-of-00001"), 12),
    "no list of checkpoints": (remove(LIST), 12),
    "an empty vocabulary": (empty("vocabulary/vocabulary.spm"), 12),
    "a truncated model": (halve("model/model.weights.h5"), 12),
    "a best model without a configuration": (remove("best_model/config.json"), 12),
}


def error_of(action):
    """Return the text of a UserError, or None; any other exception fails the test."""
    try:
        action()
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", RESUMED)
def test_damaged_run_resumes(name, run, toy_dataset, tmp_path):
    damage, step = RESUMED[name]
    damage(run)
    for look in (lambda: RunSummary(run), lambda: export_average(str(run), tmp_path / "before")):
        error = error_of(look)
        assert error is None or (str(run) in error and len(error.splitlines()) == 1)
    trainer = make_trainer(toy_dataset, run)
    assert trainer.state.step == step
    ignored = f"ignoring checkpoint {run}/checkpoints/ckpt-12, because it cannot be read: "
    assert [note.startswith(ignored) for note in trainer.notes] == [True] * (step == 8)
    trainer.train(ignore)
    load_model(run)
    assert export_average(str(run), tmp_path / "after", count=1) == ["ckpt-12"]
    assert (run / "checkpoints/best-12.index").is_file()


REMEDY = (
    "Restore {run}/checkpoints, or train in another `run` from its model, with "
    "`init_from={run}/model`"
)
LOST = f"the checkpoints of {{run}} are missing. {REMEDY}"
UNREADABLE = f"no checkpoint in {{run}}/checkpoints can be read. {REMEDY}"
REFUSED = {
    "a truncated configuration": (halve("config.json"), "{run}/config.json cannot be read"),
    "another format": (
        edit("config.json", lambda content: content.replace(b'"format": 2', b'"format": 1')),
        "has format 1, and this version of tt resumes only format",
    ),
    "a truncated list": (halve(LIST), "checkpoints.json is damaged"),
    "a list of other values": (edit(LIST, lambda _: b'{"last": 3}'), "Delete it to resume"),
    "a list with a copy": (
        edit(LIST, lambda content: content.replace(b"ckpt-12", b"ckpt-12-copy")),
        "Delete it to resume",
    ),
    "no folder": (remove("checkpoints"), LOST),
    "an empty folder": (remove("checkpoints/*"), LOST),
    "only the list": (remove("checkpoints/*-*"), LOST),
    "only the best": (remove("checkpoints/ckpt-*", LIST), LOST),
    "no index": (remove("checkpoints/*.index"), LOST),
    "only the model": (remove("checkpoints", "best_model", "train.jsonl"), LOST),
    "only the log": (remove("checkpoints", "*model"), "or train in another `run`"),
    "only a copy": (keep_only_a_copy, LOST),
    "no data": (remove("checkpoints/*.data-*"), UNREADABLE),
    "no data and no model": (
        remove("checkpoints/*.data-*", LIST, "model", "checkpoints/ckpt-8.*"),
        UNREADABLE.replace("/model", "/best_model"),
    ),
}  # fmt: skip


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


@pytest.mark.parametrize("name", REFUSED)
def test_run_that_cannot_resume_is_refused_and_does_not_change(name, run, toy_dataset):
    damage, message = REFUSED[name]
    damage(run)
    assert message.format(run=run) in refusal(toy_dataset, run)


def test_option_recommended_by_the_error_trains_from_the_model(run, toy_dataset):
    remove("checkpoints")(run)
    name, value = refusal(toy_dataset, run).split("`")[3].split("=")
    request = TrainRequest(
        dataset=toy_dataset, run=f"{run}-2", **{name: value}, training={"steps": 1}
    )
    trainer = request.plan().start(one_device())
    for found, expected in zip(weights_of(trainer), weights_in(run / "model"), strict=True):
        np.testing.assert_array_equal(found, expected)
    trainer.close()


def test_copies_of_checkpoints_are_ignored_and_kept(run, toy_dataset, tmp_path):
    for name, copy in (("ckpt-12", "ckpt-500-copy"), ("best-12", "best-x"), ("ckpt-8", "ckpt-8b")):
        copy_checkpoint(name, copy)(run)
    remove(LIST)(run)
    copies = {path: path.read_bytes() for path in run.glob("checkpoints/*[xyb].*")}
    assert len(copies) == 6
    assert RunSummary(run).saved_step == 12
    assert export_average(str(run), tmp_path / "averaged") == ["ckpt-12", "ckpt-8"]
    make_trainer(toy_dataset, run, training=changed(steps=13)).train(ignore)
    assert {path: path.read_bytes() for path in copies} == copies


def test_damaged_line_of_the_log_is_named(run, toy_dataset):
    lines = (run / "train.jsonl").read_text().splitlines(keepends=True)
    (run / "train.jsonl").write_text("".join([lines[0], "{\n", *lines[1:]]))
    with pytest.raises(UserError, match=r"line 2 of .*train.jsonl is damaged"):
        make_trainer(toy_dataset, run, training=changed(steps=13)).train(ignore)


def test_run_killed_before_its_first_checkpoint_restarts(toy_dataset, finish_run, tmp_path):
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
    again.close()
    # A checkpoint becomes valid only when the list contains it.
    killed = finish_run(tmp_path / "killed", training=changed(steps=4))
    remove("*model", "checkpoints/best-*", LIST)(killed)
    os.truncate(killed / "checkpoints/ckpt-4.data-00000-of-00001", 1000)
    again = make_trainer(toy_dataset, killed)
    assert again.state.step == 0
    assert "ckpt-4, because it cannot be read" in again.notes[0]
    again.train(ignore)
    whole = finish_run(tmp_path / "whole")
    for expected, found in zip(weights_in(whole), weights_of(again), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_remote_run_without_checkpoints_is_refused(toy_dataset):
    MemoryStore.clear()
    run = "mem://bucket/run"
    make_trainer(toy_dataset, run).train(ignore)
    for path in MemoryStore.paths():
        if path.startswith(f"{run}/checkpoints/"):
            MemoryStore.delete(path)
    with pytest.raises(UserError, match=re.escape(LOST.format(run=run))):
        make_trainer(toy_dataset, run)


# JSON files with other values

FILES = (
    "config.json", LIST, "model/config.json", "best_model/config.json",
    "vocabulary/vocabulary.json", "train.jsonl",
)  # fmt: skip
# Words and values of Python that no message for a user contains.
PYTHON = re.compile(r"Error|__|argument|NoneType|object is|attribute|<class|\{'|\['|dict\b")
FIX = re.compile(r"\. (Delete|Restore|Choose|Copy|Repeat|Make|Complete|Set)")


def damaged_values(values):
    """Return damaged variants of a JSON object, by the kind of damage."""
    others = [[1], "x", None]
    for name, value in values.items():
        yield f"no {name}", {k: v for k, v in values.items() if k != name}
        for other in others:
            if type(other) is not type(value):
                yield f"{name}={other}", {**values, name: other}
        if isinstance(value, dict):
            for inner, damaged in list(damaged_values(value))[::9]:
                yield f"{name}.{inner}", {**values, name: damaged}
    yield "another key", {**values, "another": {"key": 1}}


def damaged_texts(text):
    """Return damaged variants of a file; of a log, the second line is damaged."""
    first, rest = "", ""
    if "\n{" in text:
        first, text, rest = text.splitlines(keepends=True)[0], *text.split("\n", 2)[1:]
    values = json.loads(text)
    yield "empty", f"{first}\n{rest}" if first else ""
    yield "truncated", f"{first}{text[: len(text) // 2]}\n{rest}"
    for name, damaged in [("a list", [values]), ("a number", 5), *damaged_values(values)]:
        yield name, f"{first}{json.dumps(damaged)}\n{rest}"


@pytest.mark.parametrize("name", FILES)
def test_damaged_json_gives_one_line_with_a_fix(name, run, toy_dataset, tmp_path):
    whole = (run / name).read_bytes()
    given = {"model": str(run), "output": str(tmp_path / "export"), "overwrite": True}
    actions = {
        "show": lambda: run_sections(RunSummary(run)),
        "average": AverageRequest(
            run=str(run), output=str(tmp_path / "mean"), overwrite=True
        ).write,
        "export": ExportRequest(checkpoint="best", **given).write,
        "resume": lambda: make_trainer(toy_dataset, run).close(),
    }
    refused = set()
    for number, (damage, text) in enumerate(damaged_texts(whole.decode())):
        for action, act in actions.items():
            if action != "show" and number % 40 > 1:
                continue  # the other actions load a model, which takes longer
            (run / name).write_text(text)
            if message := error_of(act):
                refused.add(damage)
                assert len(message.splitlines()) == 1, (damage, action)
                assert str(run) in message, (damage, action, message)
                plain = message.replace(str(run), "")
                assert not PYTHON.search(plain), (damage, action, message)
                assert FIX.search(message), (damage, action, message)
            (run / name).write_bytes(whole)
    assert {"empty", "truncated", "a list", "a number"} <= refused or name.startswith("best_model")
