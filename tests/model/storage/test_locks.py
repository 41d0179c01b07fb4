"""Only one process at a time holds the lock of a folder on an object store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from memory_store import MemoryStore

from tt.model.errors import UnfinishedError, UserError
from tt.model.storage import locks
from tt.model.storage.locks import lock_object

PATH = "mem://bucket/out/_tt/lock"


@pytest.fixture(autouse=True)
def empty_store():
    MemoryStore.clear()
    yield
    MemoryStore.clear()


def lock():
    return lock_object(PATH, folder="mem://bucket/out", remedy="choose another `output`")


def leave(**changes):
    """Write the lock of a process that was killed."""
    MemoryStore.put(PATH, json.dumps({**locks._this_process(), **changes}).encode())


def test_the_lock_exists_only_inside_the_block():
    for _ in range(2):
        with lock() as is_exclusive:
            assert is_exclusive
            assert MemoryStore.paths() == [PATH]
        assert not MemoryStore.paths()
    with pytest.raises(KeyError), lock():
        raise KeyError
    assert not MemoryStore.paths()


def test_of_many_processes_that_start_together_exactly_one_gets_the_lock():
    start, end = threading.Barrier(8), threading.Barrier(8)

    def try_lock(_):
        start.wait(60)
        try:
            with lock():
                end.wait(60)
                return True
        except UserError as error:
            end.wait(60)
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(try_lock, range(8)))
    assert found.count(True) == 1
    [line] = {each.partition("last sign")[0] for each in found if each is not True}
    assert line.startswith(f"another process works in mem://bucket/out (process {os.getpid()} on ")
    assert not MemoryStore.paths()


def test_the_lock_of_a_killed_process_of_this_machine_is_taken_at_once():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    leave(process=ended.pid)
    with lock() as is_exclusive:
        assert is_exclusive
    assert not MemoryStore.paths()


@pytest.mark.parametrize("changes", [{"process": 1}, {"process": 2**22 + 1, "machine": "other"}])
def test_the_lock_of_another_machine_is_taken_after_its_lease(changes, monkeypatch):
    leave(**changes)
    with (
        pytest.raises(UserError, match=r"last sign of life \d s ago\)\. Wait until it ends, or"),
        lock(),
    ):
        pass
    monkeypatch.setattr(locks, "LEASE_SECONDS", -1.0)
    with lock() as is_exclusive:
        assert is_exclusive


def test_a_process_that_lost_its_lock_says_so_and_keeps_the_lock_of_the_other(monkeypatch):
    monkeypatch.setattr(locks, "_RENEW_SECONDS", 0.01)
    held = lock()
    assert held.__enter__()
    leave(process=1)
    other = MemoryStore.read(PATH)
    while any(thread.name == "renew lock" for thread in threading.enumerate()):
        threading.Event().wait(0.01)
    with pytest.raises(UnfinishedError, match="another process took over mem://bucket/out"):
        held.__exit__(None, None, None)
    assert MemoryStore.read(PATH) == other


@pytest.mark.parametrize("content", [b"not JSON", b"\xff", b"[1]", b"1", b'{"host": "a"}'])
def test_a_lock_that_nobody_can_read_is_taken_after_its_lease(monkeypatch, content):
    MemoryStore.put(PATH, content)
    with (
        pytest.raises(UserError, match=r"works in mem://bucket/out \(last sign of life 0 s"),
        lock(),
    ):
        pass
    monkeypatch.setattr(locks, "LEASE_SECONDS", -1.0)
    with lock():
        assert b"process" in MemoryStore.read(PATH)
