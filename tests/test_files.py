"""Folders that are listed, and files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.errors import UserError
from pipelines.files import list_files, list_folder, write_text


def test_links_are_followed_and_lead_nowhere_twice(tmp_path):
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/1").write_text("one")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/2").write_text("two")
    (tmp_path / "in/beside").symlink_to(tmp_path / "beside")
    (tmp_path / "in/a/back").symlink_to(tmp_path / "in")
    (tmp_path / "beside/round").symlink_to(tmp_path / "in")
    found = [os.path.relpath(path, tmp_path) for path in list_folder(str(tmp_path / "in"))]
    assert found == ["in/a/1", "in/beside/2"]
    assert list_folder(str(tmp_path / "nowhere")) == list_folder(str(tmp_path / "in/a/1")) == []


def test_a_link_to_nothing_is_listed_without_bytes(tmp_path):
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert [(Path(f.path).name, f.size) for f in list_files(str(tmp_path))] == [
        ("lost", 0),
        ("round", 0),
    ]


def test_a_folder_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"^the folder .*/a/b cannot be read: Permission denied$"):
        list_files(str(tmp_path))


def test_a_file_may_have_the_longest_name(tmp_path):
    path = tmp_path / ("x" * 255)
    write_text(str(path), "whole", temporary_folder=str(tmp_path))
    assert path.read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 1
