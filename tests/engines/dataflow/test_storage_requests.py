"""The exact requests of file operations to an object store."""

from __future__ import annotations

import gc
import re

import pytest

from tt.model.storage import files


def test_a_folder_is_deleted_in_few_requests(object_store):
    folder = f"{object_store.bucket}/data/_work"
    for number in range(48):
        files.write_text(f"{folder}/{number % 3}/{number}", "x")
    assert object_store.counts() == {"upload": 48}
    assert len(object_store.objects(folder)) == 48
    object_store.forget()
    output, _, name = folder.rstrip("/").rpartition("/")
    files.delete_folder(output, name, own=re.compile(".*"))
    assert not object_store.objects(folder)
    assert object_store.counts() == {"list": 1, "delete": 48}


@pytest.mark.parametrize(("size", "requests"), [(5, 1), (64_000_000, 1), (200 << 20, 6)])
def test_a_file_is_written_in_one_request_or_in_large_parts(object_store, size, requests):
    path = f"{object_store.bucket}/data/a.bin"
    with files.write_whole(path, temporary_folder="") as file:
        for begin in range(0, size, 8 << 20):
            file.write(b"x" * min(8 << 20, size - begin))
        assert not object_store.objects()
    assert {path: len(data) for path, data in object_store.objects().items()} == {path: size}
    assert object_store.counts() == {"upload": requests}


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
