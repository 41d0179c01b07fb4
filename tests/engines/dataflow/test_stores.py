"""What `tt` needs from an object store, with stand-ins of all stores."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import threading

import pytest

from tt.model.errors import UserError
from tt.model.storage import files, listing
from tt.model.storage.locks import lock_object
from tt.model.storage.stores import check_buckets

pytestmark = pytest.mark.headline

NAMES = ("a.txt", "b c/[1] d*?.txt", "b c/é/%20.txt", "q=1/#+&.txt", "b c-/x")


@pytest.fixture(params=["object_store", "s3_bucket", "azure_container"])
def folder(request):
    """A folder on a store, without files."""
    folder = f"{request.getfixturevalue(request.param).bucket}/tests"
    files.delete(listing.list_folder(folder))
    return folder


def write(path, content):
    with files.write_whole(path, temporary_folder="") as file:
        file.write(content)


def test_files_are_written_listed_read_and_deleted_by_any_name(folder):
    check_buckets([folder])
    for name in NAMES:
        write(f"{folder}/{name}", name.encode())
    write(f"{folder}/empty", b"")
    everything = sorted([*(f"{folder}/{name}" for name in NAMES), f"{folder}/empty"])
    assert listing.list_folder(folder) == everything
    assert listing.list_names(folder) == ["a.txt", "b c", "b c-", "empty", "q=1"]
    assert listing.list_folder(f"{folder}/b c") == sorted(f"{folder}/{n}" for n in NAMES[1:3])
    for listed in listing.list_files(folder):
        assert listing.find_file(listed.path) == listed, "a listing and a single file agree"
        assert listed.tag
        assert listed.changed
    for name in NAMES:
        assert files.read_bytes(f"{folder}/{name}") == name.encode()
    assert files.read_bytes(f"{folder}/empty") == b""
    found = listing.find_listed(f"{folder}/*/*.txt")
    assert [file.path for file in found] == [f"{folder}/b c/[1] d*?.txt", f"{folder}/q=1/#+&.txt"]
    assert listing.is_folder(f"{folder}/b c")
    assert not listing.is_folder(f"{folder}/b")
    assert not listing.exists(f"{folder}/b c")
    files.move(f"{folder}/a.txt", f"{folder}/new")
    files.delete([*everything[1:], f"{folder}/missing"])
    assert listing.list_folder(folder) == [f"{folder}/new"]


def test_parts_of_files_are_read_exactly(folder):
    path, content = f"{folder}/file", bytes(range(256)) * 100
    write(path, content)
    ranges = [(path, 0, 1), (path, 5, 9), (path, 7, 7), (path, 20_000, 25_600)]
    assert list(files.read_ranges(ranges)) == [content[a:b] for _, a, b in ranges]
    for begin, end in ((25_000, 25_601), (25_600, 25_601), (30_000, 30_001)):
        with pytest.raises(EOFError, match=f"^{path} ends "):
            files.read_range(path, begin, end)
    with files.open_binary(path) as file:
        file.seek(-100, os.SEEK_END)
        assert file.read() == content[-100:]
    for read in (files.read_bytes, files.open_binary, lambda path: files.read_range(path, 0, 1)):
        with pytest.raises(FileNotFoundError):
            read(f"{folder}/missing")


@pytest.mark.parametrize("size", [0, 1000, 130 << 20], ids=["empty", "small", "several parts"])
def test_a_writer_that_is_left_publishes_nothing(folder, size):
    path = f"{folder}/file"
    files.write_text(path, "before")

    def begin_and_die():
        with files.write_whole(path, temporary_folder="") as file:
            file.write(b"x" * size)
            raise KeyError("the writer dies")

    with pytest.raises(KeyError, match="the writer dies"):
        begin_and_die()
    left = files._Upload(path)
    left.write(b"y" * size)
    del left
    gc.collect()
    assert files.read_text(path) == "before"
    assert listing.list_folder(folder) == [path]


def test_only_one_process_creates_a_file_or_has_a_lock(folder):
    results = []

    def create(number):
        if files.write_new(f"{folder}/new", str(number)):
            results.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.read_text(f"{folder}/new") == str(*results)

    lock = {"folder": folder, "remedy": "wait"}
    with lock_object(f"{folder}/lock", **lock) as is_exclusive:
        assert is_exclusive
        with pytest.raises(UserError, match=f"another process works in {folder} "):
            lock_object(f"{folder}/lock", **lock).__enter__()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    held = lock_object(f"{folder}/lock", **lock)
    held.__enter__()
    holder = json.loads(files.read_bytes(f"{folder}/lock"))
    files.write_text(f"{folder}/lock", json.dumps({**holder, "process": ended.pid}))
    with lock_object(f"{folder}/lock", **lock) as is_exclusive:
        assert is_exclusive, "the process has ended"
    assert not listing.exists(f"{folder}/lock")


def test_a_missing_bucket_is_named(folder):
    bucket = re.sub("://[a-z]+", "://absent", folder).removesuffix("/tests")
    for look in (listing.list_folder, files.read_bytes, check_buckets):
        argument = [f"{bucket}/x"] if look is check_buckets else f"{bucket}/x"
        with pytest.raises(UserError) as raised:
            look(argument)
        assert str(raised.value).startswith(f"the bucket {bucket} does not exist")
