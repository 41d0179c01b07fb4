"""Simultaneous exports and imports into one folder: only one of them writes."""

from __future__ import annotations

import pytest
from command_line import last_error, run
from foreign_models import marian
from models import write_model

from tt.model.folders import atomic_folder

COMMANDS = {
    "model": ("export", "own"),
    "saved-model": ("export", "own", "--format", "saved-model"),
    "ctranslate2": ("export", "own", "--format", "ctranslate2"),
    "import": ("import", "ctranslate2", "opus"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model of `tt` and a model of Marian."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "made", layers=1).rename(tmp_path / "own")
    marian(tmp_path / "opus")
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_refused_while_another_process_writes_its_output(folder, name, capsys):
    with atomic_folder(folder / "output") as first:
        (first / "file").write_text("first")
        assert run(*COMMANDS[name], "--output", "output") == 2
        assert f"another process is writing {folder / 'output'} (process " in last_error(capsys)
    assert [path.name for path in (folder / "output").iterdir()] == ["file"]
    assert sorted(path.name for path in folder.iterdir()) == ["made", "opus", "output", "own"]
    assert run(*COMMANDS[name], "--output", "output") == 2
    assert "output" in last_error(capsys)
    assert (folder / "output/file").read_text() == "first"
