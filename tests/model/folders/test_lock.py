"""Locks of folders."""

import shutil

import pytest

from model.errors import UserError
from model.folders.lock import lock_folder


def lock(folder):
    return lock_folder(folder, name="lock", remedy="choose another")


def test_a_process_does_not_delete_the_lock_of_another(tmp_path):
    """A job may delete its folder, with the lock, before its process ends."""
    folder = tmp_path / "work"
    with lock(folder):
        shutil.rmtree(folder)
        second = lock(folder)
        second.__enter__()
    assert (folder / "lock").exists()
    with pytest.raises(UserError, match="another process works in"), lock(folder):
        pass
    second.__exit__(None, None, None)
    assert not (folder / "lock").exists()
