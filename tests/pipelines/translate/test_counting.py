"""Large files, of which a command reads only the head, and whose rows the job counts."""

import gzip
import os
import re

import pyarrow as pa
import pytest
from translation_jobs import (
    manifest,
    output_bytes,
    outputs,
    read,
    read_all,
    refused,
    request,
    translate,
    write,
)

from tt.model.errors import UserError
from tt.pipelines.tables import reading
from tt.pipelines.translate import counting, plan, unit_rows

COUNT = 300
OPTIONS = {"text_columns": ("text",), "unit_rows": 50}
LINES = "".join(f'{i},"text {i}"\n' for i in range(COUNT))
CSV = f"id,text\n{LINES}".encode()
JSONL = "".join(f'{{"id": {i}, "text": "text {i}"}}\n' for i in range(COUNT)).encode()


def arrow(count):
    sink = pa.BufferOutputStream()
    table = pa.table({"id": range(count), "text": [f"text {i}" for i in range(count)]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return sink.getvalue().to_pybytes()


@pytest.fixture(autouse=True)
def _short_heads(monkeypatch):
    monkeypatch.setattr(reading, "HEAD_BYTES", 600)
    monkeypatch.setattr(reading, "_HEAD_BUFFER_BYTES", 64)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_bytes(CSV)
    (tmp_path / "in/b.jsonl").write_bytes(JSONL)
    write(tmp_path / "in/c.parquet", {"id": [1, 2], "text": ["x", "y"]})
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", gzip.compress(CSV)),
        ("a.csv", CSV),
        ("b.csv", CSV.replace(b'text 9"', b'"text" 9')),
        ("a.tsv", CSV.replace(b",", b"\t").replace(b'"', b"")),
        ("a.jsonl", JSONL),
        ("a.txt", CSV.partition(b"\n")[2]),
        ("a.arrow", arrow(COUNT)),
    ],
)
def test_counting_in_the_job_does_not_change_the_output(tmp_path, monkeypatch, name, content):
    (tmp_path / name).write_bytes(content)
    copied = []
    write_rows = unit_rows._write_rows
    monkeypatch.setattr(
        unit_rows,
        "_write_rows",
        lambda tables, unit, options: (
            copied.append(unit.rows) or write_rows(tables, unit=unit, options=options)
        ),
    )
    assert translate(tmp_path / name, tmp_path / "out", **OPTIONS).rows == COUNT
    # Several workers read other files directly.
    assert bool(copied) == (name in ("a.csv.gz", "b.csv", "a.arrow"))
    monkeypatch.setattr(reading, "HEAD_BYTES", 1 << 20)
    assert translate(tmp_path / name, tmp_path / "whole", **OPTIONS).rows == COUNT
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "whole")
    assert manifest(tmp_path / "out")["files"] == manifest(tmp_path / "whole")["files"]


@pytest.mark.parametrize(("name", "content"), [("a.csv", CSV), ("a.jsonl", JSONL)])
def test_units_of_large_rows_have_fewer_rows(tmp_path, monkeypatch, name, content):
    (tmp_path / name).write_bytes(content)
    translate(tmp_path / name, tmp_path / "whole", **OPTIONS)
    monkeypatch.setattr(plan, "UNIT_BYTES", 400)
    translate(tmp_path / name, tmp_path / "out", **OPTIONS)
    assert len(outputs(tmp_path / "out")) > len(outputs(tmp_path / "whole"))
    assert read_all(tmp_path / "out") == read_all(tmp_path / "whole")


def test_a_dry_run_says_that_the_job_counts_rows(folder, tmp_path):
    job = request(folder, tmp_path / "out", **OPTIONS).plan()
    facts = dict(job.describe()[0].rows)
    assert facts["input"].startswith("3 files, 2 rows; the job counts the rows of 2 files, ")
    assert facts["units"] == "1 of up to 50 rows; the job counts the rows of 2 files"
    assert job.run().rows == 2 * COUNT + 2
    assert request(folder, tmp_path / "out", **OPTIONS).plan().is_finished


@pytest.mark.parametrize("limit", [5, COUNT, COUNT + 70, 2 * COUNT + 1])
def test_a_limit_selects_the_first_rows_of_all_files(folder, tmp_path, limit):
    summary = translate(folder, tmp_path / "out", limit=limit, **OPTIONS)
    assert summary.rows == limit
    rows = [*range(COUNT), *range(COUNT), 1][:limit]
    tables = [read(tmp_path / "out" / name) for name in outputs(tmp_path / "out")]
    assert [int(value) for table in tables for value in table["id"].to_pylist()] == rows


def test_with_a_limit_files_are_still_checked_to_their_end(folder, tmp_path):
    (folder / "a.csv").unlink()
    (folder / "a.csv.gz").write_bytes(gzip.compress(CSV)[:-9])
    (folder / "b.jsonl").write_bytes(JSONL + b'{"id": 1, "late": "one"}\n')
    options = {**OPTIONS, "limit": 5, "on_bad_file": "skip", "max_failed": 1.0}
    assert translate(folder, tmp_path / "out", **options).rows == 5
    [skipped] = manifest(tmp_path / "out")["skipped_files"]
    assert skipped["file"] == "a.csv.gz"
    assert "late" in read(tmp_path / "out/b-00000-of-00001.parquet").column_names


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv.gz", CSV), ("b.jsonl.gz", JSONL)],
)
def test_damage_that_the_job_finds_is_an_error_or_is_skipped(folder, tmp_path, name, content):
    path = folder / name
    path.with_suffix("").unlink()
    path.write_bytes(gzip.compress(content)[:-9])
    reason = "is cut off or damaged"
    message = refused(folder, tmp_path / "out", **OPTIONS)
    assert message.startswith(f"{path} {reason}: ")
    assert message.endswith("or skip such files with `on_bad_file=skip`")
    assert not (tmp_path / "out/_tt/manifest.json").exists()
    summary = translate(folder, tmp_path / "skipped", on_bad_file="skip", max_failed=0.1, **OPTIONS)
    assert (summary.rows, summary.has_failed) == (COUNT + 2, True)
    [skipped] = manifest(tmp_path / "skipped")["skipped_files"]
    assert (skipped["file"], skipped["rows"]) == (name, None)
    assert reason in skipped["reason"]


def test_a_file_that_changes_after_the_plan_is_refused(folder, tmp_path):
    job = request(folder, tmp_path / "out", **OPTIONS).plan()
    (folder / "a.csv").write_bytes(CSV + b"301,more\n")
    with pytest.raises(UserError, match=r"a\.csv has changed since the job was planned"):
        job.run()
    assert not outputs(tmp_path / "out")


@pytest.mark.parametrize("name", ["a.csv", "b.jsonl"])
@pytest.mark.parametrize("change", [b"", b"more\n", CSV[:200]])
def test_a_file_that_changes_after_its_rows_are_counted_is_refused(
    folder, tmp_path, monkeypatch, name, change
):
    path = folder / name
    write_counted = counting.write_counted

    def count_then_change(file, **options):
        write_counted(file, **options)
        if file.relative_path == name and change:
            path.write_bytes(path.read_bytes() + change if change == b"more\n" else change)
        elif file.relative_path == name:
            path.unlink()

    monkeypatch.setattr(counting, "write_counted", count_then_change)
    message = refused(folder, tmp_path / "out", **OPTIONS)
    assert re.search(rf"{name} (has changed|cannot be opened|no longer exists)", message)
    assert not (tmp_path / "out/_tt/manifest.json").exists()


def test_a_file_with_another_modification_time_is_another_input(folder, tmp_path):
    translate(folder, tmp_path / "out", **OPTIONS)
    os.utime(folder / "a.csv", (1, 1))
    assert "1 input file changed since the last run: a.csv" in refused(
        folder, tmp_path / "out", **OPTIONS
    )


def test_jsonl_keys_may_occur_only_after_the_head(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(JSONL + b'{"id": 1, "late": "one"}\n')
    summary = translate(path, tmp_path / "out", text_columns=("late",))
    assert summary.manifest["rows_by_status"]["late"]["ok"] == 1
    assert "has no column 'none'" in refused(path, tmp_path / "no", text_columns=("none",))
