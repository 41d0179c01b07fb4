"""Finding the complete files in a watched folder."""

import os

import pytest

from tt.model.errors import UserError
from tt.pipelines.translate.inbox import Inbox


def inbox_of(pattern, output="/nowhere"):
    return Inbox(str(pattern), output=str(output))


def names(found):
    return [file.name for file in found]


def test_a_file_is_complete_if_it_did_not_change_between_two_listings(tmp_path):
    inbox = inbox_of(tmp_path)
    assert inbox.find_complete() == []
    (tmp_path / "a.csv").write_text("text\n")
    assert names(inbox.find_complete()) == []
    (tmp_path / "a.csv").write_text("text\nmore\n")
    assert names(inbox.find_complete()) == []
    assert names(inbox.find_complete()) == ["a.csv"]
    assert names(inbox.find_complete()) == ["a.csv"]


def test_only_tables_are_returned_and_the_oldest_is_first(tmp_path):
    times = {"b/x.parquet": 3, "c.jsonl": 1, "a.csv.gz": 2, "notes.txt": 0, "_t.csv": 0}
    for name, time in times.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time, time))
    inbox = inbox_of(tmp_path)
    inbox.find_complete()
    assert names(inbox.find_complete()) == ["c.jsonl", "a.csv.gz", "b/x.parquet"]


def test_a_glob_returns_all_matching_files(tmp_path):
    for name in ("a.parquet", "b.csv", "part-1"):
        (tmp_path / name).write_text("")
    inbox = inbox_of(f"{tmp_path}/*a*")
    inbox.find_complete()
    assert set(names(inbox.find_complete())) == {"a.parquet", "part-1"}
    assert inbox.base == f"{tmp_path}/"


def test_each_version_of_a_file_has_its_own_digest(tmp_path):
    inbox = inbox_of(tmp_path)
    path = tmp_path / "a.csv"
    digests = set()
    for text, time in (("one", 1), ("two", 2), ("three", 2)):
        path.write_text(text)
        os.utime(path, (time, time))
        inbox.find_complete()
        digests |= {file.digest for file in inbox.find_complete()}
    assert len(digests) == 3


@pytest.mark.parametrize("name", ["a.csv", "missing"])
def test_an_input_that_is_not_a_folder_is_refused(tmp_path, name):
    (tmp_path / "a.csv").write_text("text\n")
    with pytest.raises(UserError, match="`input` must be an existing folder to watch"):
        inbox_of(tmp_path / name)


@pytest.mark.parametrize("output", ["in", "in/out", "in/../in/out", ".", "in/..", "link"])
def test_input_and_output_must_not_contain_each_other(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="must not contain each other"):
        inbox_of("in", output)
    inbox_of("in", "out")
    inbox_of("in", "in2")


def test_files_in_the_output_are_ignored_even_if_a_link_points_to_them(tmp_path):
    for name in ("in", "out/deep", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("in/a.csv", "out/b.csv", "out/deep/c.csv", "other/d.csv"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "in/link").symlink_to(tmp_path / "out")
    (tmp_path / "in/below").symlink_to(tmp_path / "out/deep")
    (tmp_path / "in/others").symlink_to(tmp_path / "other")
    for pattern, found in (
        ("in", ["a.csv", "others/d.csv"]), ("in/others/*.csv", ["d.csv"]),
    ):  # fmt: skip
        inbox = inbox_of(tmp_path / pattern, tmp_path / "out")
        inbox.find_complete()
        assert sorted(names(inbox.find_complete())) == found


def test_an_output_that_is_inside_the_input_through_a_link_is_refused(tmp_path):
    (tmp_path / "real/out").mkdir(parents=True)
    (tmp_path / "in").symlink_to(tmp_path / "real")
    (tmp_path / "out").symlink_to(tmp_path / "real/out")
    for folder, output in (("in", "real/out"), ("real", "in/new"), ("in", "out"), ("real", "out")):
        with pytest.raises(UserError, match="must not contain each other"):
            inbox_of(tmp_path / folder, tmp_path / output)
    inbox_of(tmp_path / "in", tmp_path / "real2")
