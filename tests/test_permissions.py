"""Missing permissions to read or write are errors on one line with exit code 2."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run, write_corpus
from permissions import with_mode
from translation_jobs import TWO_WORKERS, read_all, refused, translate, write


@pytest.fixture
def folder(tmp_path, monkeypatch, trained_toy):
    """Return a folder with all inputs of the commands."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "data").symlink_to(trained_toy.dataset)
    (tmp_path / "run").symlink_to(trained_toy.run)
    pq.write_table(pa.table({"text": ["one two"]}), "in.parquet")
    (tmp_path / "closed").mkdir()
    return tmp_path


COMMANDS = {
    "preprocess": (
        "preprocess", "--source", "a.en", "--target", "a.xx", "--vocabulary-size", "24", "--output",
    ),
    "train": (
        "train", "--dataset", "data", "--preset", "tiny", "--steps", "1", "--warmup-steps", "1",
        "--run",
    ),
    "translate-batch": ("translate-batch", "in.parquet", "--output"),
    "export": ("export", "run", "--output"),
    "export-saved-model": ("export", "run", "--format", "saved-model", "--output"),
    "export-ctranslate2": ("export", "run", "--format", "ctranslate2", "--output"),
    "export-checkpoint": ("export", "run", "--checkpoint", "last", "--output"),
    "average": ("average", "--run", "run", "--output"),
    "demo": ("demo", "--folder"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "output", "mode"),
    [(command, "closed/new", 0o555) for command in COMMANDS]
    + [("preprocess", "closed", 0o555), ("translate-batch", "closed", 0o000)],
)
def test_output_without_permission_is_an_error_on_one_line(folder, capsys, command, output, mode):
    with with_mode(folder / "closed", mode):
        assert run(*COMMANDS[command], output) == 2
    error = last_error(capsys)
    assert "closed" in error or command == "demo"
    assert "permission denied" in error.lower()
    assert "Errno" not in error
    assert list((folder / "closed").iterdir()) == []


def test_a_command_that_replaces_an_empty_folder_needs_only_permissions_of_its_parent(folder):
    with with_mode(folder / "closed", 0o555):
        assert run(*COMMANDS["export"], "closed") == 0


@pytest.fixture
def ours(folder, trained_toy):
    """Return `folder` with copies of the dataset and the run, whose modes can be changed."""
    for name, source in (("data", trained_toy.dataset), ("run", trained_toy.run)):
        (folder / name).unlink()
        shutil.copytree(source, folder / name)
    return folder


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("translate",), "run/model/model.weights.h5"),
        (("translate",), "run/model/config.json"),
        (("translate",), "run/model"),
        (("translate", "--engine", "ctranslate2", "--model", "ct2"), "ct2/model.bin"),
        (("translate-batch", "in.parquet"), "in.parquet"),
        (("export", "run", "--output", "o", "--checkpoint", "last"), "run/checkpoints"),
        (("average",), "run/vocabulary/vocabulary.spm"),
        (("train", "--dataset", "data", "--run", "new"), "data/dataset.json"),
        (("train", "--dataset", "data", "--run", "new"), "data/train-00000-of-00001.tfrecord"),
        (COMMANDS["preprocess"] + ("o",), "a.en"),
        (("preprocess", "in.parquet", "--output", "o"), "in.parquet"),
        (("preprocess", "--config", "a.en"), "a.en"),
        (("evaluate", "a.en", "--reference", "a.en"), "a.en"),
    ],
)  # fmt: skip
def test_input_without_permission_is_an_error_on_one_line(
    ours, capsys, monkeypatch, arguments, path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(ours / "cache"))
    if "ct2" in arguments:
        assert run("export", "run", "--format", "ctranslate2", "--output", "ct2") == 0
        capsys.readouterr()
    with with_mode(ours / path, 0o000):
        assert run(*arguments) == 2
    error = last_error(capsys)
    assert path in error
    assert "permission denied" in error.lower()
    assert "Errno" not in error
    assert "PermissionError" not in error
    assert "damaged" not in error
    if path == "data/dataset.json":
        assert error == (
            "tt: error: no access to data/dataset.json (permission denied). Change its "
            "permissions, or choose another path"
        )


def test_folder_without_permission_in_the_output_is_an_error_on_one_line(tmp_path, capsys):
    source = write(tmp_path / "in/x/a.parquet", {"text": ["one"]})
    inside = tmp_path / "out/x"
    inside.mkdir(parents=True)
    with with_mode(inside, 0o555):
        message = refused(source.parents[1], tmp_path / "out", arguments=TWO_WORKERS)
    assert message == (
        f"no access to {inside}/a-00000-of-00001.parquet (permission denied). Change its "
        "permissions, or choose another path"
    )
    assert capsys.readouterr().err == ""
    translate(source.parents[1], tmp_path / "out", arguments=TWO_WORKERS)
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ["eno"]
