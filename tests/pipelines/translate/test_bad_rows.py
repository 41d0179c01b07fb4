"""An input row that cannot be read fails by itself, and its content is kept."""

import bz2
import gzip
import json

import pyarrow.parquet as pq
import pytest
from corpora import open_named
from fakes import crash_at
from translation_jobs import manifest, outputs, read_all, refused, request, translate

from tt.pipelines.tables import reading
from tt.pipelines.translate.manifest import summary_blocks

CSV = b'id,text\n1,one\n2\n3,"three\n4,four\n5,"a\nb"\n6,\xff\n7,a,b\n8,eight\n'
CSV_BAD = [
    (2, 3, "1 cell instead of 2", b"2"),
    (3, 4, "a quotation mark is not closed", b'3,"three'),
    (6, 8, "invalid UTF-8", b"6,\xff"),
    (7, 9, "3 cells instead of 2", b"7,a,b"),
]
JSONL = b"""{"id":"1","text":"one"}
{"id":2,
{"id":"3","text":"\\ud83d"}

{"id":"4","text":"four"}
{"id":"5","text":"a\\nb"}
{"id":"6","text":"\xff"}
[7]
{"text":"eight","id":"8"}
"""
JSONL_BAD = [
    (2, 2, "invalid JSON (Expecting property name enclosed in double quotes)", b'{"id":2,'),
    (3, 3, "half of a surrogate pair", b'{"id":"3","text":"\\ud83d"}'),
    (6, 7, "invalid UTF-8", b'{"id":"6","text":"\xff"}'),
    (7, 8, "no JSON object", b"[7]"),
]
# Several workers can read this file, because all quotation marks are closed.
CUT_CSV = b'id,text\r\n1,one\r\n2\r\n4,four\r\n\r\n5,"a\nb"\r\n6,\xff\r\n7,a,b\r\n8,eight\r\n'
CUT_BAD = [
    (2, 3, "1 cell instead of 2", b"2"),
    (5, 8, "invalid UTF-8", b"6,\xff"),
    (6, 9, "3 cells instead of 2", b"7,a,b"),
]
CASES = {
    "e.csv": (CUT_CSV, CUT_BAD),
    "a.csv": (CSV, CSV_BAD),
    "b.csv.gz": (gzip.compress(CSV), CSV_BAD),
    "c.jsonl": (JSONL, JSONL_BAD),
    "d.jsonl.bz2": (bz2.compress(JSONL), JSONL_BAD),
}


def bad_rows(folder):
    return pq.read_table(folder / "_tt/bad_rows.parquet").to_pylist()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("unit_rows", [2, 8192])
@pytest.mark.parametrize("head_bytes", [60, 1 << 20])
def test_bad_rows_fail_and_all_other_rows_are_translated(
    tmp_path, name, unit_rows, head_bytes, monkeypatch
):
    shorten_heads(monkeypatch, head_bytes)
    content, bad = CASES[name]
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "out"
    summary = translate(tmp_path / name, output, text_columns=("text",), unit_rows=unit_rows)
    rows = read_all(output).to_pylist()
    failed = [row for row in rows if row["translation_status"] == "failed"]
    assert [row["translation_error"] for row in failed] == [
        f"line {line}: {reason}" for _, line, reason, _ in bad
    ]
    assert {(row["id"], row["text"], row["translation"]) for row in failed} == {(None, None, None)}
    good = [(row["id"], row["translation"]) for row in rows if row["translation_status"] == "ok"]
    assert good == [("1", "eno"), ("4", "ruof"), ("5", "b\na"), ("8", "thgie")]
    assert bad_rows(output) == [
        {"file": name, "row": row, "line": line, "reason": reason, "content": text}
        for row, line, reason, text in bad
    ]
    assert manifest(output)["bad_rows"] == manifest(output)["failed_rows"] == len(bad)
    facts = dict(summary_blocks(summary)[0].rows)
    assert facts["unreadable rows, kept in _tt/bad_rows.parquet"] == len(bad)


def shorten_heads(monkeypatch, head_bytes):
    """Let the job count the rows of files that are larger than their head."""
    monkeypatch.setattr(reading, "HEAD_BYTES", head_bytes)
    monkeypatch.setattr(reading, "_HEAD_BUFFER_BYTES", 8)


def test_a_condition_and_a_key_do_not_hide_bad_rows(tmp_path):
    (tmp_path / "a.csv").write_bytes(CSV)
    options = {"text_columns": ("text",), "where": "id = '1'"}
    translate(tmp_path / "a.csv", tmp_path / "where", **options)
    statuses = read_all(tmp_path / "where")["translation_status"].to_pylist()
    assert statuses == ["ok", *["failed"] * 2, *["skipped"] * 2, *["failed"] * 2, "skipped"]
    options = {"text_columns": ("text",), "key": ("id",)}
    translate(tmp_path / "a.csv", tmp_path / "key", **options)
    (tmp_path / "a.csv").write_bytes(CSV.replace(b"8,eight", b"8,nine\n9"))
    summary = translate(tmp_path / "a.csv", tmp_path / "key", **options)
    assert summary.manifest["kept_rows"] == 3
    assert summary.manifest["bad_rows"] == len(bad_rows(tmp_path / "key")) == 5
    assert read_all(tmp_path / "key")["translation"].to_pylist()[-2:] == ["enin", None]


def test_other_formats_write_a_row_for_each_bad_row(tmp_path):
    (tmp_path / "a.csv").write_bytes(CSV)
    for kind in ("csv", "jsonl"):
        translate(tmp_path / "a.csv", tmp_path / kind, text_columns=("text",), format=kind)
    lines = (tmp_path / "jsonl/a-00000-of-00001.jsonl").read_text("utf-8").splitlines()
    assert json.loads(lines[1])["translation_error"] == "line 3: 1 cell instead of 2"
    found = (tmp_path / "csv/a-00000-of-00001.csv").read_text("utf-8").splitlines()
    assert found[2] == ',,,,"failed","line 3: 1 cell instead of 2",""'


@pytest.mark.parametrize(("content", "bad"), [(CSV, CSV_BAD), (CUT_CSV, CUT_BAD)])
@pytest.mark.parametrize("head_bytes", [60, 1 << 20])
def test_a_killed_job_keeps_the_content_of_bad_rows(
    tmp_path, content, bad, head_bytes, monkeypatch
):
    shorten_heads(monkeypatch, head_bytes)
    (tmp_path / "a.csv").write_bytes(content)
    options = {"text_columns": ("text",), "unit_rows": 3}
    crash_at.add("four")
    with pytest.raises(AssertionError, match="the worker dies here"):
        translate(tmp_path / "a.csv", tmp_path / "out", **options)
    crash_at.clear()
    translate(tmp_path / "a.csv", tmp_path / "out", **options)
    assert [row["row"] for row in bad_rows(tmp_path / "out")] == [row for row, *_ in bad]
    again = {**options, "retry_failed": True}
    assert translate(tmp_path / "a.csv", tmp_path / "out", **again).manifest["bad_rows"] == len(bad)
    assert [row["row"] for row in bad_rows(tmp_path / "out")] == [row for row, *_ in bad]
    summary = request(tmp_path / "a.csv", tmp_path / "out", **options).plan().run()
    assert summary.already_finished
    assert len(outputs(tmp_path / "out")) == 3


def test_a_changed_file_has_new_bad_rows(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_bytes(CSV)
    (tmp_path / "in/b.csv").write_bytes(b"id,text\n1\n2,two\n")
    options = {"text_columns": ("text",), "changed": "redo"}
    translate(tmp_path / "in", tmp_path / "out", **options)
    assert [row["file"] for row in bad_rows(tmp_path / "out")] == [*["a.csv"] * 4, "b.csv"]
    (tmp_path / "in/a.csv").write_bytes(b"id,text\n1,one\n")
    translate(tmp_path / "in", tmp_path / "out", **options)
    assert [row["file"] for row in bad_rows(tmp_path / "out")] == ["b.csv"]
    (tmp_path / "in/b.csv").write_bytes(b"id,text\n1,one\n")
    assert translate(tmp_path / "in", tmp_path / "out", **options).manifest["bad_rows"] == 0
    assert not list(tmp_path.rglob("bad_rows*/**/*.parquet"))
    assert not (tmp_path / "out/_tt/bad_rows.parquet").exists()


def test_a_corpus_may_have_a_file_without_any_good_row(tmp_path):
    for name in ("a.csv", "a.jsonl"):
        (tmp_path / name).write_bytes(b"source,target\n1,2,3\n")
        [source] = open_named(corpora=[str(tmp_path / name)])
        rows = [row for table in source.read_all() for row in table.to_pylist()]
        assert {row["fault"] for row in rows} == {"malformed"}


def test_a_file_without_any_good_row_is_a_bad_file(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,text\n1,2,3\n4,5,6\n")
    message = refused(tmp_path / "a.csv", tmp_path / "out", text_columns=("text",))
    assert message.startswith(
        f"{tmp_path}/a.csv has no row that tt can read. The first one is in line 2: 3 cells "
        "instead of 2"
    )


def test_a_bad_row_of_a_list_column_has_a_status(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"tags":["ab","cd"]}\n[1]\n{"tags":null}\n')
    options = {"text_columns": ("tags",), "max_failed": 0.4}
    summary = translate(tmp_path / "a.jsonl", tmp_path / "out", **options)
    found = read_all(tmp_path / "out")
    assert found["translation"].to_pylist() == [["ba", "dc"], [None], None]
    assert found["translation_error"].to_pylist()[1] == ["line 2: no JSON object"]
    assert summary.manifest["rows_by_status"]["tags"]["failed"] == 1
    again = translate(tmp_path / "a.jsonl", tmp_path / "out", retry_failed=True, **options)
    assert again.manifest["failed_rows"] == 1


def test_a_line_of_text_that_is_not_utf_8_is_a_bad_row(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\nthree\n")
    translate(tmp_path / "a.txt", tmp_path / "out")
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ["eno", None, "eerht"]
    assert bad_rows(tmp_path / "out") == [
        {"file": "a.txt", "row": 2, "line": 2, "reason": "invalid UTF-8", "content": b"\xff"}
    ]


def test_a_key_with_several_types_is_kept_as_json_but_is_not_translated(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text":"one","n":1}\n{"text":"two","n":["x"]}\n')
    translate(tmp_path / "a.jsonl", tmp_path / "out")
    assert read_all(tmp_path / "out")["n"].to_pylist() == ["1", '["x"]']
    assert "the values under the key 'n' of " in refused(
        tmp_path / "a.jsonl", tmp_path / "no", text_columns=("n",)
    )
