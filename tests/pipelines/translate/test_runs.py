"""Runs of several units of a file: translating, resuming and retrying them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from memory_store import MemoryStore
from translation_jobs import (
    TWO_WORKERS,
    manifest,
    numbered,
    output_bytes,
    outputs,
    read,
    translate,
    write,
)

from tt.pipelines.translate import plan as plans


@pytest.fixture
def long_runs(monkeypatch):
    """Let small jobs use the long runs of large jobs."""
    monkeypatch.setattr(plans, "_RUNS", 1)
    monkeypatch.setattr(plans, "_RUNS_PER_SLOT", 0)


def test_the_length_of_runs_does_not_change_the_output(tmp_path, long_runs, monkeypatch):
    source = write(tmp_path / "in.parquet", numbered(95), row_group_size=37)
    translate(source, tmp_path / "together", unit_rows=10, arguments=TWO_WORKERS)
    paths = (tmp_path / "together").glob("_tt/units/*.json")
    workers = {json.loads(path.read_text())["worker"]["thread"] for path in paths}
    assert len(workers) == 2, "one file keeps two workers busy"
    monkeypatch.setattr(plans, "MOST_AT_ONCE", 1)
    translate(source, tmp_path / "alone", unit_rows=10)
    assert output_bytes(tmp_path / "together") == output_bytes(tmp_path / "alone")


def test_only_the_missing_units_of_a_run_are_translated(tmp_path, long_runs):
    source, out = write(tmp_path / "in.parquet", numbered(80)), tmp_path / "out"
    translate(source, out, unit_rows=10)
    before = output_bytes(out)
    (out / "_tt/manifest.json").unlink()
    for index in (2, 5):
        (out / outputs(out)[index]).unlink()
    missing = sorted(set(before) - set(outputs(out)))
    times = {name: (out / name).stat().st_mtime_ns for name in outputs(out)}
    summary = translate(source, out, unit_rows=10)
    assert (summary.manifest["units"], summary.reused_units, summary.run_rows) == (8, 6, 20)
    assert output_bytes(out) == before
    assert {name: (out / name).stat().st_mtime_ns for name in times} == times
    assert len(missing) == 2


# Object stores.


@pytest.fixture
def memory():
    MemoryStore.clear()
    yield
    MemoryStore.clear()


def every_kind(rows):
    texts = [None if i % 5 == 3 else f"text {i % 13}" for i in range(rows)]
    return pa.table(
        {
            "text": pa.array(texts, pa.large_string()),
            "kind": pa.array(texts).dictionary_encode(),
            "list": pa.array([[i, None] for i in range(rows)]),
            "view": pa.array([b"v"] * rows, pa.binary_view()),
            "nothing": pa.nulls(rows),
            "pair": pa.array([{"a": text} for text in texts]),
        }
    )


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "with a changed page"])
def test_a_large_remote_row_group_is_read_once_and_gives_the_same_bytes(
    tmp_path, memory, monkeypatch, damaged
):
    path = tmp_path / "in.parquet"
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    pq.write_table(every_kind(100), path, row_group_size=60, **options)
    content = path.read_bytes()
    if damaged:
        second = pq.read_metadata(path).row_group(1).column(0).data_page_offset
        place = content.index(b"\x06\x00\x00\x00text 9", second)
        content = content[: place + 4] + b"T" + content[place + 5 :]
        path.write_bytes(content)
    MemoryStore.put("mem://b/in.parquet", content)
    decoded = []
    iter_batches = pq.ParquetFile.iter_batches

    def counted(self, **options):
        for batch in iter_batches(self, **options):
            decoded.append(batch.num_rows)
            yield batch

    asked = {"text_columns": ("text",), "unit_rows": 9, "on_bad_file": "skip"}
    translate(path, tmp_path / "out", **asked)
    expected = output_bytes(tmp_path / "out")
    assert len(expected) == (6 if damaged else 12)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    killed = "mem://b/out/_tt/rows/killed/in-00000-of-00012.arrow"
    MemoryStore.put(killed, b"rows")  # a new file of a killed run
    translate("mem://b/in.parquet", "mem://b/out", **asked)
    found = {name: MemoryStore.read(name) for name in MemoryStore.paths()}
    assert {
        name.removeprefix("mem://b/out/"): data
        for name, data in found.items()
        if name.startswith("mem://b/out/in-")
    } == expected
    if not damaged:  # planning and checking also decode the beginning of the file
        assert sum(decoded) <= 100 + 2 * 60
    assert not [name for name in found if "/_tt/rows/" in name]


# Rows that take much memory.


def test_units_have_fewer_rows_if_the_rows_are_large(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "UNIT_BYTES", 10_000)
    large = {"text": [f"{i:04d}" * 250 for i in range(40)]}  # 1,000 bytes per row
    write(tmp_path / "in/large.parquet", large, use_dictionary=False)
    write(tmp_path / "in/small.parquet", numbered(40))
    (tmp_path / "in/lines.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in large["text"])
    )
    out = tmp_path / "out"
    asked = {"text_columns": ("text",), "unit_rows": 30}
    summary = translate(tmp_path / "in", out, **asked)
    assert summary.rows == 120
    counts = {name: read(out / name).num_rows for name in outputs(out)}
    assert sum(count for name, count in counts.items() if name.startswith("large")) == 40
    assert [count for name, count in counts.items() if name.startswith("small")] == [30, 10]
    assert max(count for name, count in counts.items() if not name.startswith("small")) <= 10
    assert translate(tmp_path / "in", out, **asked).already_finished
    assert manifest(out)["rows"] == 120
