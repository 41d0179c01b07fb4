"""Which files of a folder are whole."""

import os

import pytest

from model.errors import UserError
from pipelines.watching.inbox import Inbox, check_apart


def names(found):
    return [file.name for file in found[0]]


def test_a_file_is_whole_when_it_did_not_change_between_two_looks(tmp_path):
    inbox = Inbox(str(tmp_path))
    assert inbox.look() == ([], 0)
    (tmp_path / "a.csv").write_text("text\n")
    assert names(inbox.look()) == []
    (tmp_path / "a.csv").write_text("text\nmore\n")
    assert names(inbox.look()) == []
    assert names(inbox.look()) == ["a.csv"]
    assert names(inbox.look()) == ["a.csv"]


def test_the_oldest_comes_first_and_only_tables_count(tmp_path):
    times = {"b/x.parquet": 3, "c.jsonl": 1, "a.csv.gz": 2, "notes.txt": 0, "_t.csv": 0}
    for name, time in times.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time, time))
    inbox = Inbox(str(tmp_path))
    inbox.look()
    found = inbox.look()
    assert names(found) == ["c.jsonl", "a.csv.gz", "b/x.parquet"]
    assert found[1] == 3


def test_a_glob_counts_what_it_matches(tmp_path):
    for name in ("a.parquet", "b.csv", "part-1"):
        (tmp_path / name).write_text("")
    inbox = Inbox(f"{tmp_path}/*a*")
    inbox.look()
    assert set(names(inbox.look())) == {"a.parquet", "part-1"}
    assert inbox.base == f"{tmp_path}/"


def test_another_version_of_a_file_has_another_digest(tmp_path):
    inbox = Inbox(str(tmp_path))
    path = tmp_path / "a.csv"
    digests = set()
    for text, time in (("one", 1), ("two", 2), ("three", 2)):
        path.write_text(text)
        os.utime(path, (time, time))
        inbox.look()
        digests |= {file.digest for file in inbox.look()[0]}
    assert len(digests) == 3


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text\n")
    with pytest.raises(UserError, match="`input` must be a folder to watch"):
        Inbox(str(tmp_path / "a.csv"))
    with pytest.raises(UserError, match=r"there is no folder .*/missing to watch: make it first"):
        Inbox(str(tmp_path / "missing"))


@pytest.mark.parametrize("output", ["in", "in/out", "in/../in/out"])
def test_an_output_below_the_input_is_refused(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match="would be translated again"):
        check_apart(Inbox("in"), output)
    check_apart(Inbox("in"), "out")
    check_apart(Inbox("in"), "in2")


@pytest.mark.parametrize("output", [".", "in/..", "link"])
def test_an_output_around_the_input_is_refused(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="would stand among them"):
        check_apart(Inbox("in"), output)


def test_what_lies_in_the_output_is_not_taken_where_a_link_leads_to_it(tmp_path):
    for name in ("in", "out/deep", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("in/a.csv", "out/b.csv", "out/deep/c.csv", "other/d.csv"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "in/link").symlink_to(tmp_path / "out")
    (tmp_path / "in/below").symlink_to(tmp_path / "out/deep")
    (tmp_path / "in/others").symlink_to(tmp_path / "other")
    for pattern, found in (
        ("in", ["a.csv", "others/d.csv"]), ("in/others/*.csv", ["d.csv"]), ("in/link/*.csv", []),
    ):  # fmt: skip
        inbox = Inbox(str(tmp_path / pattern), output=str(tmp_path / "out"))
        inbox.look()
        assert sorted(names(inbox.look())) == found
        assert inbox.look()[1] == len(found)


def test_an_output_below_the_input_by_a_link_is_refused(tmp_path):
    (tmp_path / "real/out").mkdir(parents=True)
    (tmp_path / "in").symlink_to(tmp_path / "real")
    (tmp_path / "out").symlink_to(tmp_path / "real/out")
    for folder, output in (("in", "real/out"), ("real", "in/new"), ("in", "out"), ("real", "out")):
        with pytest.raises(UserError, match="would be translated again"):
            check_apart(Inbox(str(tmp_path / folder)), str(tmp_path / output))
    check_apart(Inbox(str(tmp_path / "in")), str(tmp_path / "real2"))
