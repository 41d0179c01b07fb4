"""Folders that are listed, and files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.errors import UserError
from pipelines.files import list_folder, list_with_links, write_text


def read_all(name):
    return False


def test_each_folder_is_read_once_whatever_links_lead_to_it(tmp_path):
    (tmp_path / "in/b").mkdir(parents=True)
    (tmp_path / "in/b/1").write_text("one")
    (tmp_path / "beside/below").mkdir(parents=True)
    (tmp_path / "beside/below/2").write_text("two")
    (tmp_path / "in/a").symlink_to(tmp_path / "in/b")  # comes first by name
    (tmp_path / "in/b/back").symlink_to(tmp_path / "in")
    (tmp_path / "in/c").symlink_to(tmp_path / "beside")
    (tmp_path / "in/d").symlink_to(tmp_path / "beside/below")
    (tmp_path / "beside/round").symlink_to(tmp_path / "in")
    (tmp_path / "in/3").symlink_to(tmp_path / "in/b/1")  # a file may have two names
    folder = str(tmp_path / "in")
    found = list_with_links(folder, leaves_out=read_all)
    assert [os.path.relpath(path, folder) for path in found] == ["3", "b/1", "c/below/2"]
    assert [os.path.relpath(path, folder) for path in list_folder(folder)] == ["3", "b/1"]
    nowhere = str(tmp_path / "nowhere")
    assert list_with_links(nowhere, leaves_out=read_all) == list_folder(nowhere) == []


def test_folders_that_link_to_each_other_are_read_once(tmp_path):
    names = [f"{i:02d}" for i in range(20)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        for other in names:
            if other != name:
                (tmp_path / name / other).symlink_to(tmp_path / other)
    assert len(list_with_links(str(tmp_path), leaves_out=read_all)) == len(names)


def test_a_link_to_nothing_is_listed_for_who_reads_all(tmp_path):
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    found = list_with_links(str(tmp_path), leaves_out=read_all)
    assert [Path(path).name for path in found] == ["lost", "round"]
    assert list_folder(str(tmp_path)) == []


def test_a_folder_that_cannot_be_read_is_refused_unless_it_has_no_part(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/1").touch()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"^the folder .*/a/b cannot be read: Permission denied"):
        list_with_links(str(tmp_path), leaves_out=read_all)
    left = list_with_links(str(tmp_path), leaves_out=lambda name: name == "b")
    assert left == list_folder(str(tmp_path)) == [str(tmp_path / "a/1")]


def test_a_file_may_have_the_longest_name(tmp_path):
    path = tmp_path / ("x" * 255)
    write_text(str(path), "whole", temporary_folder=str(tmp_path))
    assert path.read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 1
