"""Translation of rows of very different sizes in limited memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import fail_at, reverse
from translation_jobs import manifest, output_bytes, outputs, read, read_all, translate, write

from tt.pipelines.tables import writing
from tt.pipelines.translate import plan as plans

ROOT = Path(__file__).parents[3]
MB = 1 << 20
UNIT_MB = 16


def run_alone(source, output):
    """Translate in a separate process, with units of UNIT_MB."""
    folders = os.pathsep.join(map(str, (ROOT, ROOT / "tests/support")))
    command = [
        sys.executable,
        str(ROOT / "tests/support/skewed_tables.py"),
        str(source),
        str(output),
    ]
    ended = subprocess.run(
        [*command, str(UNIT_MB * MB)], env=os.environ | {"PYTHONPATH": folders},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def long_rows(count, *, among, megabytes):
    """Return a table of short texts, in which some rows in the middle have a large second column.

    Args:
      count: The number of large rows.
      among: The number of all rows.
      megabytes: The size of each large row.
    """
    ballast = [""] * among
    ballast[among // 2 : among // 2 + count] = ["x" * megabytes * MB] * count
    texts = [f"row {number}" for number in range(among)]
    return pa.table({"text": texts, "ballast": pa.array(ballast, pa.large_string())})


@pytest.mark.parametrize("use_dictionary", [False, True], ids=["long rows", "one long value"])
def test_only_a_limited_part_of_a_unit_is_in_memory(tmp_path, use_dictionary):
    """200 of 40,000 rows have 400 MB in total, which a dictionary stores only once in the file."""
    table = long_rows(200, among=40_000, megabytes=2)
    source = write(
        tmp_path / "in.parquet", table, use_dictionary=use_dictionary, compression="zstd",
        write_batch_size=16,
    )  # fmt: skip
    found = run_alone(source, tmp_path / "out")
    assert sum(rows for rows, _ in found["tables"]) == 40_000
    largest = max(size for _, size in found["tables"])
    print(f"most memory {found['most'] / MB:.0f} MB, largest table {largest / MB:.1f} MB, "
          f"{len(found['tables'])} tables for {len(outputs(tmp_path / 'out'))} files")  # fmt: skip
    assert largest <= (UNIT_MB + 2) * MB
    # The limit allows for 32 decoded rows of 2 MB, a few pieces, and the writer's buffers.
    assert found["most"] <= 300 * MB
    whole = read_all(tmp_path / "out")
    assert whole["text"].equals(table["text"])
    assert whole["ballast"].equals(table["ballast"])
    assert manifest(tmp_path / "out")["rows_by_status"]["text"]["ok"] == 40_000


@pytest.fixture
def skewed(tmp_path, monkeypatch):
    """A table with some long rows, so that a unit is divided into several tables."""
    monkeypatch.setattr(plans, "UNIT_BYTES", 20_000)
    monkeypatch.setattr(writing, "_GROUP_BYTES", 20_000)
    notes = [f"{number} " * (400 if 30 <= number < 60 else 1) for number in range(400)]
    texts = [f"row {number}" for number in range(400)]
    return pa.table({"id": range(400), "text": texts, "note": notes})


def write_as(path, table, kind):
    if kind == "parquet":
        return write(path.with_suffix(".parquet"), table, row_group_size=150)
    if kind == "dictionary":
        table = table.append_column("kind", table["note"].dictionary_encode())
        return write(path.with_suffix(".parquet"), table, row_group_size=150)
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


@pytest.mark.parametrize(
    ("kind", "output"), [("parquet", "jsonl"), ("dictionary", "parquet"), ("jsonl", "csv")]
)
def test_a_unit_in_several_tables_has_all_rows_in_order(tmp_path, skewed, kind, output):
    source = write_as(tmp_path / "in", skewed, kind)
    asked = {"text_columns": ("text",), "unit_rows": 100}
    summary = translate(source, tmp_path / "out", format=output, compression="none", **asked)
    assert summary.rows == 400
    if output == "parquet":
        assert read_all(tmp_path / "out")["id"].to_pylist() == list(range(400))
        groups = [
            pq.ParquetFile(tmp_path / "out" / name).num_row_groups
            for name in outputs(tmp_path / "out")
        ]
        assert max(groups) > 1
        turned = [reverse(text) for text in skewed["text"].to_pylist()]
        assert read_all(tmp_path / "out")["translation"].to_pylist() == turned
    else:
        lines = [line for path in sorted((tmp_path / "out").glob(f"*.{output}"))
                 for line in path.read_text().splitlines()]  # fmt: skip
        names = [line for line in lines if line.startswith('"id","text"')]
        assert len(names) == (len(list((tmp_path / "out").glob("*.csv"))) if output == "csv" else 0)
        assert len(lines) - len(names) == 400


def test_failed_rows_of_a_unit_in_several_tables_are_retried(tmp_path, skewed):
    source = write_as(tmp_path / "in", skewed, "parquet")
    asked = {"text_columns": ("text",), "unit_rows": 100}
    translate(source, tmp_path / "whole", **asked)
    fail_at.update({"row 35", "row 250"})
    summary = translate(source, tmp_path / "out", **asked)
    assert summary.manifest["failed_rows"] == 2
    fail_at.clear()
    summary = translate(source, tmp_path / "out", retry_failed=True, **asked)
    assert (summary.manifest["failed_rows"], summary.run_rows) == (0, 2)
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "whole")
    name = outputs(tmp_path / "out")[0]
    assert read(tmp_path / "out" / name).num_rows > 0
