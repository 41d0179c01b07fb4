"""The Parquet job, with a translator that reverses texts and does not need TensorFlow."""

from __future__ import annotations

import hashlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from block_reading import table_of
from damage import damage_text
from translation_jobs import (
    NO_FLAGS,
    NO_ROWS,
    TWO_WORKERS,
    files_below,
    load_nothing,
    loads,
    manifest,
    new_loader,
    numbered,
    outputs,
    read,
    read_all,
    translate,
    turned,
    unit_statistics,
    without_run,
    write,
)

from tt.pipelines.translate.manifest import (
    UnitStatistics,
    UnitTotals,
    make_manifest,
    summary_blocks,
)


def test_a_large_row_group_is_divided_into_units_with_all_columns(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(25), row_group_size=25)
    summary = translate(source, tmp_path / "out", unit_rows=10)
    assert (summary.rows, summary.manifest["units"], summary.reused_units) == (25, 3, 0)
    assert summary.manifest["rows_by_status"] == {"text": {**NO_ROWS, "ok": 25}}
    assert not summary.already_finished
    assert files_below(tmp_path / "out") == [
        "_tt/input.jsonl",
        "_tt/manifest.json",
        "_tt/plan.json",
        "_tt/units/input-00000-of-00003.json",
        "_tt/units/input-00001-of-00003.json",
        "_tt/units/input-00002-of-00003.json",
        "input-00000-of-00003.parquet",
        "input-00001-of-00003.parquet",
        "input-00002-of-00003.parquet",
    ]
    tables = [read(tmp_path / "out" / name) for name in outputs(tmp_path / "out")]
    assert [table.num_rows for table in tables] == [10, 10, 5]
    assert read_all(tmp_path / "out").to_pydict() == {
        **numbered(25).to_pydict(),
        "translation": turned(25),
        "translation_score": [-float(len(text)) for text in turned(25)],
        "translation_status": ["ok"] * 25,
        "translation_error": [None] * 25,
        "translation_flags": [[]] * 25,
    }


def test_statuses_are_counted_per_file_and_in_total(tmp_path):
    folder = tmp_path / "in"
    write(folder / "a.parquet", {"text": ["x", None, "", "  ", "toolong"]})
    write(folder / "b.parquet", {"text": pa.array([], pa.string())})
    write(folder / "c.parquet", {"text": pa.array([None, None], pa.string())})
    summary = translate(folder, tmp_path / "out", max_source_tokens=8)
    counts = {**NO_ROWS, "ok": 1, "null": 3, "empty": 2, "too_long": 1}
    assert (summary.rows, summary.manifest["units"]) == (7, 3)
    assert summary.manifest["rows_by_status"] == {"text": counts}
    written = manifest(tmp_path / "out")
    assert written["unit_seconds"] > 0
    no_flags = {"text": NO_FLAGS}
    kept = {"skipped_unit_rows": 0, "failed_rows": 0, "rows_by_flag": no_flags}

    def of_file(rows, **by_status):
        rows_by_status = {"text": {**NO_ROWS, **by_status}}
        return {
            "units": 1, "rows": rows, "rows_out": rows, "rows_by_status": rows_by_status, **kept
        }  # fmt: skip

    expected = {
        "files": {
            "a.parquet": of_file(5, ok=1, null=1, empty=2, too_long=1),
            "b.parquet": of_file(0),
            "c.parquet": of_file(2, null=2),
        },
        "rows": 7,
        "rows_out": 7,
        "rows_by_status": {"text": counts},
        **kept,
        "skipped_file_rows": 0,
        "max_failed": 1.0,
        "has_failed": False,
        "units": 3,
        "output_bytes": {
            name: (tmp_path / "out" / name).stat().st_size for name in outputs(tmp_path / "out")
        },
        "skipped_files": [],
        "skipped_units": [],
        "unread_files": {},
        "texts": 1,
        "distinct_texts": 1,
        "remembered_texts": 0,
        "source_characters": 10,  # "x", "  ", "toolong"
        "invalid_cells": 0,
        "terms": {"found": 0, "kept": 0},
        "model_fingerprint": "f0",
    }
    assert {name: written[name] for name in expected} == expected
    assert written["last_run"]["rows_by_worst_status"] == counts
    assert written["options"]["text_columns"] == ["text"]
    [versions] = written["versions"]
    assert versions["outputs"] == [f"{name}-00000-of-00001.parquet" for name in "abc"]
    empty = read(tmp_path / "out/b-00000-of-00001.parquet")
    assert empty.num_rows == 0
    assert empty.schema == pa.schema(
        [
            ("text", pa.string()),
            ("translation", pa.string()),
            ("translation_score", pa.float32()),
            ("translation_status", pa.string()),
            ("translation_error", pa.string()),
            ("translation_flags", pa.list_(pa.string())),
        ]
    )


def test_the_manifest_refuses_lost_rows():
    options = {"text_columns": ["text"]}
    plan = {"input": {"a.parquet": {"rows": 3}}, "bad_files": {}, "options": options}
    totals = UnitTotals()
    totals.add(
        UnitStatistics(
            output_path="a-00000-of-00001.parquet",
            relative_path="a.parquet",
            first_row=0,
            rows=2,
            rows_by_status={"text": {**NO_ROWS, "ok": 2}},
        )
    )
    with pytest.raises(RuntimeError, match="3 rows in, 2 out, 0 dropped and 0 skipped"):
        make_manifest(plan=plan, totals=totals, bad_rows={}, max_failed=0)


def test_unknown_texts_are_counted_but_not_as_failed(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": ["ж", "abc", "жжa", None]})
    summary = translate(source, tmp_path / "out", max_failed=0.0)
    [name] = outputs(tmp_path / "out")
    table = read(tmp_path / "out" / name)
    assert table["translation"].to_pylist() == [None, "cba", None, None]
    assert table["translation_score"].to_pylist() == [None, -3.0, None, None]
    assert table["translation_status"].to_pylist() == ["unknown", "ok", "unknown", "null"]
    assert table["translation_error"].to_pylist() == [
        "1 of 1 letters and symbols are unknown to the model",
        None,
        "2 of 3 letters and symbols are unknown to the model",
        None,
    ]
    assert manifest(tmp_path / "out")["rows_by_status"] == {
        "text": {**NO_ROWS, "unknown": 2, "ok": 1, "null": 1}
    }
    assert (summary.manifest["failed_rows"], summary.has_failed) == (0, False)
    assert table_of(summary_blocks(summary), "column") == [
        ["text", "ok", 1], ["text", "null", 1], ["text", "unknown", 2],
    ]  # fmt: skip


def test_outputs_mirror_folders_and_hidden_folders_are_skipped(tmp_path):
    folder = tmp_path / "in [1]"  # the brackets must not act as a glob
    write(folder / "top.parquet", numbered(1))
    write(folder / "lang=en" / "part.parquet", numbered(3))
    write(folder / "lang=de" / "part.parquet", numbered(2))
    write(folder / "_old" / "x.parquet", {"other": [1]})
    write(folder / ".cache" / "x.parquet", {"other": [1]})
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("not Parquet")
    summary = translate(folder, tmp_path / "out", unit_rows=2)
    assert outputs(tmp_path / "out") == [
        "lang=de/part-00000-of-00001.parquet",
        "lang=en/part-00000-of-00002.parquet",
        "lang=en/part-00001-of-00002.parquet",
        "top-00000-of-00001.parquet",
    ]
    assert (len(summary.manifest["files"]), summary.rows) == (3, 6)


def test_outputs_mirror_the_folders_below_the_fixed_part_of_a_glob(tmp_path):
    write(tmp_path / "in/x/a.parquet", numbered(1))
    write(tmp_path / "in/y/a.parquet", numbered(1))
    write(tmp_path / "in/y/b.parquet", numbered(1))
    translate(tmp_path / "in/*/a.parquet", tmp_path / "out")
    assert outputs(tmp_path / "out") == ["x/a-00000-of-00001.parquet", "y/a-00000-of-00001.parquet"]


def test_relative_paths_and_several_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "one.parquet", numbered(1))
    write(tmp_path / "two.parquet", numbered(2))
    translate(["one.parquet", "./two.parquet"], "out/")
    assert outputs(tmp_path / "out") == ["one-00000-of-00001.parquet", "two-00000-of-00001.parquet"]


def test_only_missing_and_damaged_outputs_are_written_again(tmp_path):
    source = write(tmp_path / "input.parquet", {"text": ["a", None, "", "b", "toolong", "c"]})
    out = tmp_path / "out"
    first = translate(source, out, unit_rows=2, max_source_tokens=8)
    names = outputs(out)
    before = [(out / name).read_bytes() for name in names]
    (out / names[0]).unlink()
    (out / names[1]).write_bytes(before[1][:-20])
    (out / "_tt/manifest.json").unlink()
    time = (out / names[2]).stat().st_mtime_ns
    second = translate(source, out, unit_rows=2, max_source_tokens=8)
    assert without_run(second.manifest) == without_run(first.manifest)
    last_run = second.manifest["last_run"]
    assert (last_run["units"], last_run["rows"], last_run["source_characters"]) == (2, 4, 2)
    assert [(out / name).read_bytes() for name in names] == before
    assert (out / names[2]).stat().st_mtime_ns == time


def test_input_and_output_folders_can_be_moved(tmp_path):
    """The files keep their modification times, as with `cp -p`."""
    write(tmp_path / "in/x/a.parquet", numbered(10))
    translate(tmp_path / "in", tmp_path / "out", unit_rows=4)
    shutil.copytree(tmp_path / "in", tmp_path / "elsewhere/copy")
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "out").rename(tmp_path / "moved")
    moved = {"unit_rows": 4, "load": load_nothing}
    assert translate(tmp_path / "elsewhere/copy", tmp_path / "moved", **moved).already_finished


def test_pages_of_the_output_have_checksums(tmp_path):
    source = write(tmp_path / "in.parquet", numbered(10))
    translate(source, tmp_path / "out", compression="none")
    path = tmp_path / "out" / outputs(tmp_path / "out")[0]
    damage_text(path, b"3 wor")
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


@pytest.mark.parametrize("file_format", ["parquet", "csv", "jsonl"])
def test_unit_records_have_the_sizes_and_checksums_of_the_output_files(tmp_path, file_format):
    source, out = write(tmp_path / "in.parquet", numbered(40)), tmp_path / "out"
    translate(source, out, text_columns=("text",), unit_rows=10, format=file_format)
    found = {path.name: path.read_bytes() for path in out.glob(f"*.{file_format}")}
    assert {
        unit["output_path"]: (unit["output_bytes"], unit["output_checksum"])
        for unit in unit_statistics(out)
    } == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in found.items()
    }
    assert len(found) == 4


def test_two_workers_share_one_model_and_write_the_same_files(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(200), row_group_size=200)
    translate(source, tmp_path / "one", unit_rows=10)
    loads.clear()
    two = tmp_path / "two"
    translate(source, two, unit_rows=10, arguments=TWO_WORKERS, load=new_loader())
    assert len(loads) == 1
    for name in outputs(tmp_path / "one"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert len(outputs(tmp_path / "two")) == 20
