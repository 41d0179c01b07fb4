"""Atomic folders allow one writer at a time and leave no temporary files."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tt.model.errors import UserError
from tt.model.folders import atomic_folder

OF_KILLED = "0123456789abcdef" * 2


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(output, text, **options):
    with atomic_folder(output, **options) as folder:
        (folder / "file").write_text(text)


def test_second_writer_is_refused_and_first_writer_publishes(tmp_path):
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


def test_existing_folder_is_replaced_only_with_overwrite(tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    write(output, "first", overwrite=False)
    with pytest.raises(UserError, match=r"output already exists: .* or set `overwrite`$"):
        write(output, "second", overwrite=False)
    assert (output / "file").read_text() == "first"
    assert names(tmp_path) == ["output"]


def test_temporary_folders_of_killed_processes_are_deleted(tmp_path):
    """Temporary folders for an output with a longer name belong to another process."""
    ended = [tmp_path / f".out[1].{OF_KILLED}.{end}" for end in ("tmp", "old")]
    other = tmp_path / f".out[1].b.{OF_KILLED}.tmp"
    for folder in (*ended, other):
        folder.mkdir()
        (folder / "file").write_text("half")
    write(tmp_path / "out[1]", "whole")
    assert names(tmp_path) == [other.name, "out[1]"]


def test_lock_file_of_a_killed_process_is_ignored(tmp_path):
    (tmp_path / ".output.lock").write_text("process 1 on elsewhere")
    write(tmp_path / "output", "whole")
    assert names(tmp_path) == ["output"]


def test_threads_can_write_a_shared_folder_at_once(tmp_path):
    all_write = threading.Barrier(4)

    def write_with_others(_):
        with atomic_folder(tmp_path / "deep/made", is_shared=True) as made:
            all_write.wait(timeout=60)
            (made / "file").write_text("whole")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_with_others, range(4)))
    assert names(tmp_path / "deep") == ["made"]
    assert (tmp_path / "deep/made/file").read_text() == "whole"


def test_failed_shared_folder_is_deleted_with_old_leftovers(tmp_path):
    old, new, other = (f".{name}.{digit * 32}.tmp" for name, digit in ("a1", "a2", "b1"))
    for name, hours in {old: 25, new: 1, other: 25}.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - hours * 3600,) * 2)
    with (
        pytest.raises(RuntimeError, match="out of luck"),
        atomic_folder(tmp_path / "a", is_shared=True),
    ):
        raise RuntimeError("out of luck")
    assert names(tmp_path) == sorted([new, other])
