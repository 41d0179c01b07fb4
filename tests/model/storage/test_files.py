"""Listing folders, reading parts of files, and writing and deleting files."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from corpora import open_named
from memory_store import MemoryStore

from tt.model.errors import UserError
from tt.model.storage import files
from tt.model.storage.files import (
    delete_folder,
    open_binary,
    read_bytes,
    read_range,
    read_ranges,
    write_whole,
)
from tt.model.storage.listing import exists, list_files, list_folder, list_with_links
from tt.model.storage.paths import check_searchable
from tt.pipelines.tables.finding import find_tables
from tt.pipelines.tables.formats import DEFAULTS


def read_all(name):
    return False


def test_a_folder_that_cannot_be_read_is_an_error_unless_it_is_skipped(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/1").touch()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"^the folder .*/a/b cannot be read: Permission denied"):
        list_with_links(str(tmp_path), is_skipped=read_all)
    left = list_with_links(str(tmp_path), is_skipped=lambda name: name == "b")
    assert left == list_files(str(tmp_path))
    assert list_folder(str(tmp_path)) == [str(tmp_path / "a/1")]


@pytest.fixture
def closed(tmp_path, monkeypatch):
    """A folder that the user may not search, simulated because root may search every folder."""
    folder = tmp_path / "a/closed"
    (folder / "in").mkdir(parents=True)
    (folder / "in/a.tsv").write_text("a\tb\n")
    pq.write_table(pa.table({"text": ["a"]}), folder / "in/a.parquet")
    stat, lstat, scandir = os.stat, os.lstat, os.scandir

    def refuse(path, is_refused):
        if is_refused(f"{path}"):
            raise PermissionError(13, "Permission denied", path)

    def closed_stat(path, *args, **kwargs):
        refuse(path, lambda text: text.startswith(f"{folder}/"))
        return stat(path, *args, **kwargs)

    def closed_lstat(path, *args, **kwargs):
        refuse(path, lambda text: text.startswith(f"{folder}/"))
        return lstat(path, *args, **kwargs)

    def closed_scandir(path="."):
        refuse(path, lambda text: text.startswith(f"{folder}"))
        return scandir(path)

    monkeypatch.setattr(os, "stat", closed_stat)
    monkeypatch.setattr(os, "lstat", closed_lstat)
    monkeypatch.setattr(os, "scandir", closed_scandir)
    return folder


@pytest.mark.parametrize("name", ["in/a.tsv", "in/*.tsv", "*/a.tsv", "nothing.tsv"])
def test_a_corpus_in_a_folder_without_permission_is_not_reported_as_missing(closed, name):
    with pytest.raises(UserError) as caught:
        open_named(corpora=[f"{closed}/{name}"])
    assert str(caught.value) == (f"{closed}/{name} cannot be looked up: permission denied")


@pytest.mark.parametrize("name", ["in/a.parquet", "in", "in/*.parquet", "*.parquet"])
def test_an_input_in_a_folder_without_permission_is_not_reported_as_missing(closed, name):
    with pytest.raises(UserError, match=f"^{re.escape(f'{closed}/{name}')} cannot be looked up: "
                       "permission denied$"):  # fmt: skip
        find_tables(f"{closed}/{name}", options=DEFAULTS, warn=print, unread=[])


def test_a_missing_file_in_a_searchable_folder_is_reported_as_missing(tmp_path):
    for path in ("nothing.tsv", "none/nothing.tsv", "*.tsv", "none/*.tsv"):
        check_searchable(str(tmp_path / path))
        with pytest.raises(UserError, match=r"no file matches .*\. Check the path"):
            open_named(corpora=[str(tmp_path / path)])


@pytest.mark.parametrize("look", [exists, open_binary, lambda path: open_named(corpora=[path])])
def test_the_error_for_an_unknown_file_system_does_not_ask_for_packages(look):
    with pytest.raises(UserError) as caught:
        look("nosuch://b/a.tsv")
    assert "tt does not support nosuch://. Choose a local path, or a path on abfss://, az://" in (
        str(caught.value)
    )


def test_a_folder_on_an_object_store_is_deleted_without_the_files_of_others():
    MemoryStore.clear()
    for i in range(48):
        MemoryStore.put(f"mem://b/out/_work/{i % 3}/{i}", b"x")
    for name in ("_worker", "_work/notes"):
        MemoryStore.put(f"mem://b/out/{name}", b"kept")
    own = re.compile(r"_work/(\d/)?\d+")
    for _ in range(2):
        delete_folder("mem://b/out", "_work", own=own)
        assert MemoryStore.paths() == ["mem://b/out/_work/notes", "mem://b/out/_worker"]
    MemoryStore.clear()


@pytest.mark.parametrize("place", ["local", "mem"])
def test_read_range_returns_exactly_these_bytes(tmp_path, place):
    content = bytes(range(256)) * 10
    path = "mem://ranges/file" if place == "mem" else str(tmp_path / "file")
    if place == "mem":
        MemoryStore.put(path, content)
    else:
        Path(path).write_bytes(content)
    ranges = [(0, 2560), (5, 9), (9, 9), (2000, 2560)]
    assert [read_range(path, *each) for each in ranges] == [content[a:b] for a, b in ranges]
    wanted = [(path, a, b) for a, b in ranges[::-1]]
    assert list(read_ranges(wanted)) == [content[a:b] for a, b in ranges[::-1]]
    assert list(read_ranges([])) == []
    with pytest.raises(EOFError, match="ends 40 bytes before byte 2,600"):
        read_range(path, 2000, 2600)
    with pytest.raises(FileNotFoundError):
        read_range(path + "x", 0, 1)


def test_few_ranges_are_requested_before_the_caller_takes_them(monkeypatch):
    requested = []
    monkeypatch.setattr(files, "read_range", lambda *each: requested.append(each) or bytes(1))
    blocks = read_ranges([("mem://ranges/file", first, first + 1) for first in range(500)])
    for taken in range(1, 20):
        next(blocks)
        time.sleep(0.005)  # the threads work on
        assert len(requested) < files.AT_ONCE + taken
    assert len([*blocks]) == 500 - 19
    assert sorted(requested) == [("mem://ranges/file", i, i + 1) for i in range(500)]


def test_an_upload_copies_buffers_that_the_caller_reuses(tmp_path):
    """Arrow writes every batch of a CSV file from the same buffer."""
    MemoryStore.clear()
    table = pa.table({"a": [f"row {number}" for number in range(5000)]})
    pa_csv.write_csv(table, tmp_path / "a.csv")
    with write_whole("mem://b/a.csv", temporary_folder="") as file:
        pa_csv.write_csv(table, file)
    assert read_bytes("mem://b/a.csv") == (tmp_path / "a.csv").read_bytes()
    MemoryStore.clear()
