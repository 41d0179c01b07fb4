"""Errors of run folders that cannot be read; `test_resume.py` trains on an object store."""

from __future__ import annotations

import errno
import os
import tempfile

import obstore
import pytest
from memory_store import MemoryStore
from toy import toy_config

from tt.model.errors import DiskFullError, UserError
from tt.model.training.run_folder import RunFolder

RUN = "mem://bucket/run"


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("head", RunFolder.check_place),
        ("list", RunFolder.check_place),
        ("list_with_delimiter", RunFolder.check_place),
        ("head", lambda run: run.resumed_config(dataset="")),
        ("get", RunFolder.load_config),
        ("list_with_delimiter", lambda run: run.check({"model": {"heads": 2}})),
    ],
)
def test_unreadable_remote_folder_gives_a_one_line_error(monkeypatch, name, look):
    MemoryStore.clear()
    run = RunFolder(RUN)
    if look is RunFolder.check_place:
        MemoryStore.put(RUN if name == "list" else f"{RUN}/other", b"a")
    else:
        model = toy_config().to_json()
        run.write_config({"model": model, "training": {}, "dataset": "toy", "replicas": 1})

    def fail(*given, **options):
        raise obstore.exceptions.GenericError("no such host\n\t when reading it")

    monkeypatch.setattr(obstore, name, fail)
    with pytest.raises(UserError) as caught:
        look(run)
    assert str(caught.value) == (
        "mem://bucket does not answer (no such host). Check the network, and run the same command "
        "again"
    )


def test_local_folder_without_permission_gives_a_one_line_error(tmp_path, monkeypatch):
    def fail(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("tt.model.storage.listing.list_names", fail)
    with pytest.raises(UserError) as caught:
        RunFolder(tmp_path).check_place()
    assert str(caught.value) == (
        f"the run folder {tmp_path} cannot be read (Permission denied). Check the path and your "
        "permissions, or choose another `run`"
    )


@pytest.mark.parametrize("path", [RUN, "run"])
def test_full_disk_is_the_disk_of_the_temporary_folder_for_a_run_on_a_store(path):
    disk = tempfile.gettempdir() if path == RUN else path
    with pytest.raises(DiskFullError) as caught, RunFolder(path).errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(caught.value) == (
        f"the disk of {disk} is full (No space left on device). Free some space; the same command "
        "resumes from the last checkpoint"
    )


@pytest.mark.parametrize("path", ["hdfs://node/run", "mem://bucket/a//run", "mem://", "/"])
def test_impossible_paths_are_refused(path):
    with pytest.raises(UserError, match=r"Choose another|`run` must|Choose a local"):
        RunFolder(path)
