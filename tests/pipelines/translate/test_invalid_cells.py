"""Cells that are not texts: invalid UTF-8, halves of surrogate pairs, and cells above the limit."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from translation_jobs import NO_ROWS, read_all, refused, translate

from tt.model.text.normalization import MAX_TEXT_BYTES


def invalid(values, kind=None):
    """Return an array of strings with the given bytes."""
    return pa.array(values, pa.binary()).view(pa.string()).cast(kind or pa.string())


BAD = [b"ab", b"caf\xe9", None, b"\xed\xa0\x80"]
STRINGS = invalid(BAD)
# For each column, the values in the output.
COLUMNS = {
    "string": (STRINGS, ["ab", None, None, None]),
    "large": (STRINGS.cast(pa.large_string()), ["ab", None, None, None]),
    "dictionary": (STRINGS.dictionary_encode(), ["ab", None, None, None]),
    "list": (
        pa.ListArray.from_arrays([0, 2, 2, 3, 4], STRINGS),
        [["ab", None], [], [None], [None]],
    ),
    "struct": (
        pa.StructArray.from_arrays([STRINGS, pa.array([1, 2, 3, 4])], ["a", "b"]),
        [{"a": "ab", "b": 1}, None, {"a": None, "b": 3}, None],
    ),
    "map": (
        pa.MapArray.from_arrays([0, 1, 2, 3, 4], pa.array(["k"] * 4), STRINGS),
        [[("k", "ab")], None, [("k", None)], None],
    ),
}


def test_every_reader_can_open_the_output(tmp_path):
    columns = {name: column for name, (column, _) in COLUMNS.items()}
    table = pa.table({"text": ["ab", "cd", "ef", "gh"], **columns})
    pq.write_table(table, tmp_path / "in.parquet")
    summary = translate(tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",))
    found = read_all(tmp_path / "out")
    found.validate(full=True)
    for name, (_, expected) in COLUMNS.items():
        assert found[name].to_pylist() == expected
        query = f"SELECT count(\"{name}\") FROM '{tmp_path}/out/*.parquet'"
        assert duckdb.sql(query).fetchall() == [(sum(value is not None for value in expected),)]
    assert found["translation"].to_pylist() == ["ba", "dc", "fe", "hg"]
    assert summary.manifest["invalid_cells"] == 2 * len(COLUMNS)


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_text_formats_write_null_too(tmp_path, file_format):
    table = pa.table({"text": STRINGS, "n": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "in.parquet")
    options = {"text_columns": ("text",), "format": file_format, "on_bad_file": "skip"}
    summary = translate(tmp_path / "in.parquet", tmp_path / "out", **options)
    assert summary.manifest["rows_by_status"]["text"] == {
        **NO_ROWS, "ok": 1, "failed": 2, "null": 1,
    }  # fmt: skip
    [path] = (tmp_path / "out").glob(f"*.{file_format}")
    content = path.read_text()
    assert "\ufffd" not in content
    assert summary.manifest["invalid_cells"] == 2


def test_where_null_is_not_allowed_invalid_bytes_are_replaced(tmp_path):
    schema = pa.schema([pa.field("text", pa.string(), nullable=False)])
    pq.write_table(pa.table([invalid([b"ab", b"x\xe9"])], schema=schema), tmp_path / "in.parquet")
    summary = translate(tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out")["text"].to_pylist() == ["ab", "x\ufffd"]
    assert summary.manifest["invalid_cells"] == 1


def test_a_failed_text_stays_failed_if_it_is_tried_again(tmp_path):
    pq.write_table(pa.table({"text": STRINGS}), tmp_path / "in.parquet")
    for retry_failed in (False, True):
        summary = translate(
            tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",),
            retry_failed=retry_failed,
        )  # fmt: skip
        found = read_all(tmp_path / "out")
        assert found["translation_status"].to_pylist() == ["ok", "failed", "null", "failed"]
        assert summary.manifest["rows_by_status"]["text"]["failed"] == 2


def test_half_of_a_surrogate_pair_fails_only_its_row(tmp_path):
    path = tmp_path / "in.jsonl"
    halves = (r"\ud800", r"\uDFFF", r"x\ud83dy", r"\ude00\ud83d")
    rows = [r'{"text": "ab", "x": "\\ud800"}', *(f'{{"text": "{half}"}}' for half in halves)]
    rows.append(r'{"text": "\ud83d\ude00"}')
    path.write_text("\n".join(rows) + "\n")
    summary = translate(path, tmp_path / "out", text_columns=("text",), format="jsonl")
    [path] = (tmp_path / "out").glob("*.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    statuses = ["ok", *["failed"] * 4, "copied"]
    assert [row["translation_status"] for row in found] == statuses
    assert [row.get("text") for row in found] == ["ab", *[None] * 4, "\N{GRINNING FACE}"]
    assert found[0]["x"] == r"\ud800"
    assert found[1]["translation_error"] == "line 2: half of a surrogate pair"
    assert summary.manifest["bad_rows"] == 4


def test_half_of_a_surrogate_pair_in_a_key_is_one_line(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "ab", "\\ud800": 1}\n')
    assert "line 1" in refused(path, tmp_path / "out", text_columns=("text",))


def test_a_cell_above_the_limit_fails_only_its_row(tmp_path):
    table = pa.table({"text": ["ab", "x" * (MAX_TEXT_BYTES + 1), "cd"]})
    path = tmp_path / "in.parquet"
    pq.write_table(table, path)
    translate(path, tmp_path / "out", text_columns=("text",))
    found = read_all(tmp_path / "out")
    assert found["translation"].to_pylist() == ["ba", None, "dc"]
    assert found["translation_error"].to_pylist() == [
        None, "67,108,865 bytes exceed the limit of 67,108,864 for a text", None,
    ]  # fmt: skip
    assert found["text"].to_pylist() == table["text"].to_pylist()


def test_a_null_list_of_a_fixed_length_is_not_called_damaged(tmp_path):
    vectors = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"text": ["ab", "cd"], "v": vectors}), tmp_path / "in.parquet")
    message = refused(tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",))
    assert "damaged" not in message
    assert "Arrow cannot read null values in a column of lists with a fixed length" in message
    assert "drop_columns" in message
    summary = translate(
        tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",), drop_columns=("v",)
    )
    assert summary.manifest["rows_by_status"]["text"]["ok"] == 2
