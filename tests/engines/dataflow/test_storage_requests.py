"""The exact requests of file operations to an object store."""

from __future__ import annotations

import gc
import re

import pytest

from tt.pipelines.storage import files
from tt.pipelines.storage.paths import file_systems


def test_a_folder_is_deleted_in_few_requests(object_store):
    folder = f"{object_store.bucket}/data/_work"
    for number in range(48):
        with file_systems().create(f"{folder}/{number % 3}/{number}") as file:
            file.write(b"x")
    assert object_store.counts() == {"upload": 2 * 48}, "one to begin an upload, and one to end it"
    assert len(object_store.objects(folder)) == 48
    object_store.forget()
    output, _, name = folder.rstrip("/").rpartition("/")
    files.delete_folder(output, name, own=re.compile(".*"))
    assert not object_store.objects(folder)
    assert object_store.counts() == {"list": 3, "batch": 1}


def test_writing_a_file_makes_only_the_two_requests_of_an_upload(object_store):
    path, work = f"{object_store.bucket}/data/a.bin", f"{object_store.bucket}/_work"
    with files.write_whole(path, temporary_folder=work) as file:
        file.write(b"whole")
        assert not object_store.objects()
    assert object_store.objects() == {path: b"whole"}
    assert object_store.counts() == {"upload": 2}


def begin_and_die(path, work, *, size):
    with files.write_whole(path, temporary_folder=work) as file:
        file.write(b"x" * size)
        raise KeyError("the writer dies")


@pytest.mark.parametrize("size", [0, 1000, 40 << 20], ids=["empty", "small", "several parts"])
def test_a_failed_write_keeps_the_old_object(object_store, size):
    path, work = f"{object_store.bucket}/data/a.bin", f"{object_store.bucket}/_work"
    files.write_text(path, "before", temporary_folder=work)
    with pytest.raises(KeyError, match="the writer dies"):
        begin_and_die(path, work, size=size)
    gc.collect()  # this closes a writer that no code closed
    assert object_store.objects() == {path: b"before"}
