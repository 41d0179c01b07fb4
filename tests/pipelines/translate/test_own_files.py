"""A job deletes only files that a job wrote, also in its own folder `_tt/`."""

import shutil

import pyarrow.csv as pa_csv
import pytest
from translation_jobs import files_below, numbered, outputs, read_all, refused, translate, turned

MINE = ("notes.txt", "notes.tmp", "rows/notes.txt", "memory/notes.txt", "units/notes.txt")


@pytest.fixture
def source(tmp_path):
    pa_csv.write_csv(numbered(20).select(["text"]), tmp_path / "in.csv")
    return tmp_path / "in.csv"


def write_notes(folder, names=MINE):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")


def notes(folder):
    return [name for name in files_below(folder) if (folder / name).read_bytes() == b"mine"]


def test_a_job_folder_of_the_user_is_refused(tmp_path, source):
    for number, name in enumerate(MINE):
        out = tmp_path / f"out{number}"
        (out / "_tt").mkdir(parents=True)
        write_notes(out / "_tt", [name])
        for overwrite in (False, True):
            message = refused(source, out, overwrite=overwrite)
            assert f"contains other files (_tt/{name})" in message
        assert files_below(out) == [f"_tt/{name}"]


def test_files_of_the_user_in_the_job_folder_are_kept(tmp_path, source):
    out, job = tmp_path / "out", tmp_path / "out/_tt"
    translate(source, out, unit_rows=10)
    write_notes(job)
    (job / "unfinished.0.1.tmp").write_text("of tt")
    (out / outputs(out)[0]).unlink()
    assert translate(source, out, unit_rows=10).rows == 20
    assert read_all(out)["translation"].to_pylist() == turned(20)
    assert notes(job) == sorted(MINE)
    assert not (job / "unfinished.0.1.tmp").exists()
    assert not list(job.glob("rows/*/"))


def test_files_of_the_user_in_a_linked_job_folder_are_kept(tmp_path, source):
    out, mine = tmp_path / "out", tmp_path / "mine"
    for path in (out, mine):
        path.mkdir()
    write_notes(mine)
    (out / "_tt").symlink_to(mine)
    translate(source, out)
    assert notes(mine) == sorted(MINE)
    assert not list(mine.glob("rows/*/"))


def test_an_output_folder_without_its_job_folder_is_refused(tmp_path, source):
    out = tmp_path / "out"
    translate(source, out)
    shutil.rmtree(out / "_tt")
    before = files_below(out)
    for overwrite in (False, True):
        assert "contains other files (in-00000" in refused(source, out, overwrite=overwrite)
    assert files_below(out) == before


def test_overwriting_refuses_files_of_the_user_in_the_job_folder(tmp_path, source):
    out = tmp_path / "out"
    translate(source, out)
    before = files_below(out)
    write_notes(out / "_tt", MINE[:1])
    message = refused(source, out, unit_rows=5, overwrite=True)
    assert "contains other files (_tt/notes.txt)" in message
    assert set(files_below(out)) == {*before, "_tt/notes.txt"}
