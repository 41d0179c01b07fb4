"""Atomic folders: one process at a time, and nothing left behind."""

from __future__ import annotations

import pytest

from tt.model.errors import UserError
from tt.model.folders import atomic_folder, lock_folder

OF_KILLED = "0123456789abcdef" * 2


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(output, text, **options):
    with atomic_folder(output, **options) as folder:
        (folder / "file").write_text(text)


def test_a_second_writer_is_refused_and_the_first_one_publishes(tmp_path):
    output = tmp_path / "output"
    with atomic_folder(output) as folder:
        (folder / "file").write_text("first")
        with pytest.raises(UserError, match=r"another process is writing .*/output"):
            write(output, "second")
        assert names(folder) == ["file"]
    assert (output / "file").read_text() == "first"
    write(output, "second")
    assert (output / "file").read_text() == "second"
    assert names(tmp_path) == ["output"]


def test_a_folder_that_is_not_empty_is_replaced_only_on_request(tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    write(output, "first", overwrite=False)
    with pytest.raises(UserError, match=r"output exists already, .* or `overwrite`$"):
        write(output, "second", overwrite=False)
    assert (output / "file").read_text() == "first"
    assert names(tmp_path) == ["output"]


def test_temporary_folders_of_killed_processes_are_deleted(tmp_path):
    """Those of a folder with a longer name are another process's."""
    ended = [tmp_path / f".out[1].{OF_KILLED}.{end}" for end in ("tmp", "old")]
    other = tmp_path / f".out[1].b.{OF_KILLED}.tmp"
    for folder in (*ended, other):
        folder.mkdir()
        (folder / "file").write_text("half")
    write(tmp_path / "out[1]", "whole")
    assert names(tmp_path) == [other.name, "out[1]"]


def test_the_lock_of_a_killed_process_is_no_obstacle(tmp_path):
    (tmp_path / ".output.lock").write_text("process 1 of elsewhere")
    write(tmp_path / "output", "whole")
    assert names(tmp_path) == ["output"]


def test_the_message_of_a_lock_names_the_subject(tmp_path):
    with (
        lock_folder(tmp_path, name="x.lock", remedy=""),
        pytest.raises(UserError, match=r"^another process is writing this "),
        lock_folder(tmp_path, name="x.lock", activity="is writing this", remedy="wait"),
    ):
        pass
