"""Finding the table files in folders, and skipping some of them."""

import os

import pytest
from corpora import ENGLISH, GERMAN
from memory_store import MemoryStore
from translation_jobs import manifest, numbered, refused, request, write

from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.tables.finding import find_tables
from tt.pipelines.tables.formats import DEFAULTS


def test_a_notice_counts_the_skipped_files_of_a_folder(tmp_path):
    folder = tmp_path / "in"
    for name in ("a", "_a", ".h", "x/_b", "_old/c", "_tt/d"):
        write(folder / f"{name}.parquet", numbered(1))
    (folder / "_SUCCESS").touch()
    job = request(folder, tmp_path / "out").plan()
    skipped = (
        f"skipped 4 names starting with . or _ in {folder} (.h.parquet, _a.parquet, _old/, "
        "x/_b.parquet). To translate such files, choose their paths or a glob"
    )
    assert [notice for notice in job.notices if "skipped" in notice] == [skipped]
    assert job.run().rows == 1
    (folder / "a.parquet").unlink()
    assert refused(folder, tmp_path / "none").endswith(f"({skipped})")
    named = request(f"{folder}/*.parquet", tmp_path / "named").plan()
    assert not [notice for notice in named.notices if "skipped" in notice]
    assert named.run().rows == 2


def test_a_notice_counts_the_skipped_files_on_an_object_store():
    MemoryStore.clear()
    for name in ("a", "_a", "x/_b", "_old/c", "_old/d", "_tt/e"):
        MemoryStore.put(f"mem://b/in/{name}.jsonl", b"")
    lines = []
    found = find_tables("mem://b/in", options=DEFAULTS, warn=lines.append, unread=[])
    MemoryStore.clear()
    assert [file.relative_path for file in found] == ["a.jsonl"]
    assert lines == [
        "skipped 3 names starting with . or _ in mem://b/in (_a.jsonl, _old/, x/_b.jsonl). To "
        "translate such files, choose their paths or a glob"
    ]


OTHERS = {"b.txt.bak": 2, "c.PDF": 1, "README": 1, "d.txt": 1}
UNREAD = {".txt.bak": 2, ".pdf": 1, "no ending": 1, ".txt": 1}
UNREAD_LINE = "5 files in the input folders were not read: 2 .txt.bak, 1 .pdf, 1 no ending, 1 .txt"


def write_others(folder):
    for name, count in OTHERS.items():
        for number in range(count):
            path = folder / str(number) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("not a table")
    (folder / "_SUCCESS").touch()  # hidden files are skipped, not unread
    (folder / ".part.crc").touch()


def test_files_of_a_folder_that_are_no_tables_are_counted(tmp_path):
    write(tmp_path / "in/a.parquet", numbered(2))
    write_others(tmp_path / "in")
    job = request(tmp_path / "in", tmp_path / "out").plan()
    assert sorted(job.notices[-1]) == sorted(UNREAD_LINE)
    job.run()
    assert manifest(tmp_path / "out")["unread_files"] == UNREAD
    # A glob and a path name only the files that they match.
    named = request(tmp_path / "in/*.parquet", tmp_path / "named").plan()
    assert not [line for line in named.notices if "not read" in line]
    named.run()
    assert manifest(tmp_path / "named")["unread_files"] == {}


def test_files_of_a_folder_of_pairs_that_are_no_tables_are_counted(tmp_path):
    pairs = {"source": ENGLISH, "target": GERMAN}
    write(tmp_path / "in/a.parquet", pairs)
    write_others(tmp_path / "in")
    (tmp_path / "in/x.tsv").write_text("a\tb\n")
    options = PreprocessOptions(output=f"{tmp_path}/out", vocabulary_size=40)
    job = PreprocessRequest(corpora=(f"{tmp_path}/in/",), options=options).plan()
    [line] = [line for line in job.plan.notices if "not read" in line]
    assert line.startswith("6 files in the input folders were not read: 2 .txt.bak, ")
    assert job.run().unread_files == UNREAD | {".tsv": 1}


@pytest.mark.parametrize("name", ["a.jsonl", "*.jsonl", "b.parquet", "c.csv"])
def test_pipes_and_devices_are_refused_without_opening_them(tmp_path, name):
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.parquet").symlink_to("/dev/zero")
    (tmp_path / "c.csv").symlink_to("a.jsonl")
    path = tmp_path / name.replace("*", "a")
    assert refused(tmp_path / name, tmp_path / "out") == (
        f"the input {path} is a pipe or a device, but tt reads tables more than once. Write the "
        "table to a file first"
    )
