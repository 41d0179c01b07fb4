"""Locks of folders, while other processes check whether a folder is locked."""

from __future__ import annotations

import fcntl
import shutil

import pytest

from tt.model import folders
from tt.model.errors import UserError
from tt.model.folders import is_locked, lock_folder

NAMED = {"name": "lock", "remedy": "choose another"}


class Clock:
    """Replaces the module `time`: `sleep` returns at once and calls a function."""

    def __init__(self, on_pause):
        self.now, self.on_pause = 0.0, on_pause

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.on_pause()


def test_folder_is_locked_after_is_locked_releases_it(tmp_path, monkeypatch):
    reader = (tmp_path / "lock").open("w")
    fcntl.flock(reader, fcntl.LOCK_SH)
    clock = Clock(on_pause=reader.close)
    monkeypatch.setattr(folders, "time", clock)
    with lock_folder(tmp_path, name="lock", remedy="") as can_lock:
        assert can_lock
        assert 0 < clock.now < 1
        assert is_locked(tmp_path, name="lock")
    assert not (tmp_path / "lock").exists()
    assert not is_locked(tmp_path, name="lock")


def test_locking_a_locked_folder_fails_after_one_second(tmp_path, monkeypatch):
    with lock_folder(tmp_path, name="lock", remedy=""):
        clock = Clock(on_pause=lambda: None)
        monkeypatch.setattr(folders, "time", clock)
        with (
            pytest.raises(UserError, match=r"another process trains in .* \(process \d+ on .*Wait"),
            lock_folder(tmp_path, name="lock", activity="trains in run", remedy="stop it"),
        ):
            pass
        assert clock.now == pytest.approx(1, abs=0.02)


def test_process_keeps_the_lock_file_of_another_process(tmp_path):
    """A job may delete its folder with the lock file before its process ends."""
    folder = tmp_path / "work"
    with lock_folder(folder, **NAMED):
        shutil.rmtree(folder)
        second = lock_folder(folder, **NAMED)
        second.__enter__()
    assert (folder / "lock").exists()
    with pytest.raises(UserError, match="another process works in"), lock_folder(folder, **NAMED):
        pass
    second.__exit__(None, None, None)
    assert not (folder / "lock").exists()
