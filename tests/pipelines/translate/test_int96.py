"""INT96 timestamps in Parquet: their values, the notice, and values that do not fit."""

import datetime as dt
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from translation_jobs import (
    NO_ROWS,
    outputs,
    read,
    read_all,
    request,
    translate,
    write,
    write_like_spark,
)

from tt.pipelines.translate.options import BackTranslation

LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
FIRST = dt.datetime(1, 1, 1)
WHEN = [LAST, None, FIRST, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
US = pa.timestamp("us")


def test_int96_becomes_microseconds_with_the_same_values(tmp_path):
    table = pa.table({"text": list("abcd"), "when": pa.array(WHEN, US)})
    source = write_like_spark(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out")
    found = read_all(tmp_path / "out")
    assert found.schema.field("when").type == US
    assert found["when"].to_pylist() == WHEN


def test_int96_inside_lists_structs_and_maps_keeps_its_values(tmp_path):
    table = pa.table(
        {
            "list": pa.array([[LAST, None], None, [], [FIRST]], pa.list_(US)),
            "text": list("abcd"),
            "struct": pa.array([{"a": {"b": t}, "n": 1} for t in WHEN], pa.struct(
                [("a", pa.struct([("b", US)])), ("n", pa.int8())]
            )),
            "map": pa.array([[("x", LAST)], None, [], [("y", FIRST)]], pa.map_(pa.string(), US)),
        }
    )  # fmt: skip
    source = write_like_spark(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out", text_columns=("text",))
    found = read_all(tmp_path / "out")
    assert found["list"].to_pylist() == [[LAST, None], None, [], [FIRST]]
    assert [row["a"]["b"] for row in found["struct"].to_pylist()] == WHEN
    assert found["map"].to_pylist() == [
        [("x", LAST)], None, [], [("y", FIRST)]
    ]  # fmt: skip


def test_int96_in_several_units_and_row_groups_keeps_its_order(tmp_path):
    times = [FIRST + dt.timedelta(days=300 * i, microseconds=i) for i in range(1000)]
    table = pa.table({"text": [f"t{i}" for i in range(1000)], "when": pa.array(times, US)})
    source = tmp_path / "in.parquet"
    with pq.ParquetWriter(
        source, table.schema, use_deprecated_int96_timestamps=True, store_schema=False
    ) as writer:
        writer.write_table(table, row_group_size=170)
    translate(source, tmp_path / "out", unit_rows=64)
    assert read_all(tmp_path / "out")["when"].to_pylist() == times


def test_int96_in_one_of_two_columns_with_the_same_name(tmp_path):
    arrays = [pa.array(["a"]), pa.array([LAST], US), pa.array([7]), pa.array([FIRST], US)]
    source = write_like_spark(
        tmp_path / "in.parquet", pa.Table.from_arrays(arrays, names=["text", "x", "x", "a"])
    )
    translate(source, tmp_path / "out")
    [name] = outputs(tmp_path / "out")
    found = read(tmp_path / "out" / name)
    assert found.column(1).to_pylist() == [LAST]
    assert found.column(2).to_pylist() == [7]
    assert found.column(3).to_pylist() == [FIRST]


def test_a_notice_names_each_column_with_int96_that_the_output_keeps(tmp_path):
    when = pa.array([0], US)
    nested = pa.array([[{"t": 0}]], pa.list_(pa.struct([("t", US)])))
    columns = {"text": ["a"], "when": when, "a.b": when, "nested": nested, "dropped": when}
    (tmp_path / "in").mkdir()
    write_like_spark(tmp_path / "in/a.parquet", pa.table(columns))
    write_like_spark(tmp_path / "in/b.parquet", pa.table({"text": ["a"], "when": when, "z": when}))
    write(tmp_path / "other.parquet", pa.table({"text": ["a"], "when": when}))
    options = {"text_columns": ("text",), "where": "text = 'a'"}
    job = request(tmp_path / "in", tmp_path / "out", **options).plan()
    assert [line for line in job.notices if "INT96" in line] == [
        "tt reads INT96 timestamps as microseconds in UTC: 'when', 'a.b', 'nested', 2 more columns"
    ]
    job = request(tmp_path / "in/b.parquet", tmp_path / "b", keep_columns=("z",), **options).plan()
    assert job.notices == ("tt reads INT96 timestamps as microseconds in UTC: 'z'",)
    corpus = BackTranslation()
    assert not request(tmp_path / "in", tmp_path / "c", corpus=corpus, **options).plan().notices
    assert not request(tmp_path / "other.parquet", tmp_path / "other", **options).plan().notices


def with_second(path, *, day, nanoseconds):
    """Write a file whose second timestamp is this Julian day and these nanoseconds."""
    when = pa.array([0, 86_400_000_000], US)
    table = pa.table({"text": ["ab", "cd"], "when": when})
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    content = write_like_spark(path, table, **options).read_bytes()
    stored = struct.pack("<qI", 0, 2_440_588 + 1)
    assert content.count(stored) == 1
    path.write_bytes(content.replace(stored, struct.pack("<qI", nanoseconds, day)))
    return path


def test_nanoseconds_are_cut_off(tmp_path):
    source = with_second(tmp_path / "in.parquet", day=2_440_588, nanoseconds=1_999)
    translate(source, tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out")["when"].cast(pa.int64()).to_pylist() == [0, 1]


@pytest.mark.parametrize("day", [2**31 - 1, 12_440_588], ids=["beyond", "within microseconds"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"format": "jsonl"},
        {"format": "csv"},
        {"where": "\"when\" > '1970-01-01'"},
        {"where": 'year("when") > 1970'},
    ],
    ids=str,
)
def test_a_year_that_python_cannot_represent_is_no_error(tmp_path, day, options):
    source = with_second(tmp_path / "in.parquet", day=day, nanoseconds=0)
    summary = translate(source, tmp_path / "out", text_columns=("text",), **options)
    skipped = int("where" in options)  # the first row
    expected = {**NO_ROWS, "ok": 2 - skipped, "skipped": skipped}
    assert summary.manifest["rows_by_status"] == {"text": expected}
