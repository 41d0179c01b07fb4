"""Listing folders, reading parts of files, and writing and deleting files."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import open_named
from memory_store import MemoryStore

from tt.model.errors import UnfinishedError, UserError
from tt.model.storage.files import (
    delete_folder,
    open_binary,
    read_range,
    read_ranges,
    write_text,
    write_whole,
)
from tt.model.storage.listing import exists, list_files, list_folder, list_with_links
from tt.model.storage.paths import check_searchable
from tt.pipelines.tables.finding import find_tables


def read_all(name):
    return False


def test_each_folder_is_listed_once_even_if_several_links_point_to_it(tmp_path):
    (tmp_path / "in/b").mkdir(parents=True)
    (tmp_path / "in/b/1").write_text("one")
    (tmp_path / "beside/below").mkdir(parents=True)
    (tmp_path / "beside/below/2").write_text("two")
    (tmp_path / "in/a").symlink_to(tmp_path / "in/b")  # sorts before the folder itself
    (tmp_path / "in/b/back").symlink_to(tmp_path / "in")
    (tmp_path / "in/c").symlink_to(tmp_path / "beside")
    (tmp_path / "in/d").symlink_to(tmp_path / "beside/below")
    (tmp_path / "beside/round").symlink_to(tmp_path / "in")
    (tmp_path / "in/3").symlink_to(tmp_path / "in/b/1")  # a file may be listed under two names
    folder = str(tmp_path / "in")
    found = list_with_links(folder, is_skipped=read_all)
    assert [os.path.relpath(file.path, folder) for file in found] == ["3", "b/1", "c/below/2"]
    assert [os.path.relpath(path, folder) for path in list_folder(folder)] == ["3", "b/1"]
    nowhere = str(tmp_path / "nowhere")
    assert list_with_links(nowhere, is_skipped=read_all) == list_folder(nowhere) == []


def test_only_list_with_links_lists_dangling_links(tmp_path):
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    found = list_with_links(str(tmp_path), is_skipped=read_all)
    assert [(Path(file.path).name, file.size) for file in found] == [("lost", 0), ("round", 0)]
    assert list_folder(str(tmp_path)) == []


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
        find_tables([f"{closed}/{name}"])


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


def test_a_file_name_may_have_the_maximum_length(tmp_path):
    path = tmp_path / ("x" * 255)
    write_text(str(path), "whole", temporary_folder=str(tmp_path))
    assert path.read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_deleted_before_a_file_gets_its_name_is_named(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()

    def write():
        with write_whole(str(tmp_path / "a"), temporary_folder=str(folder)):
            shutil.rmtree(folder)

    with pytest.raises(UnfinishedError, match=re.escape(f"{folder} was deleted while the job")):
        write()
    assert not list(tmp_path.iterdir())


def test_a_local_folder_is_deleted_without_the_files_of_others(tmp_path):
    (tmp_path / "_work/1/2").mkdir(parents=True)  # a killed deletion may leave empty folders
    delete_folder(str(tmp_path), "_work", own=re.compile(r"_work/.*\d"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "_work/1").mkdir(parents=True)
    for name in ("1/1", "notes"):
        (tmp_path / "_work" / name).touch()
    delete_folder(str(tmp_path), "_work", own=re.compile(r"_work/.*\d"))
    assert [path.name for path in tmp_path.rglob("*")] == ["_work", "notes"]


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
