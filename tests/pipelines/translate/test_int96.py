"""INT96 timestamps in Parquet: their values, their time zones, and values that do not fit."""

import datetime as dt
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from translation_jobs import (
    outputs,
    read,
    read_all,
    refused,
    translate,
    unit_statistics,
    write,
    write_like_spark,
)

from tt.pipelines.tables.parquet import read_footer

UTC = dt.UTC
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
FIRST = dt.datetime(1, 1, 1)
WHEN = [LAST, None, FIRST, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
US = pa.timestamp("us")


def in_utc(times):
    return [time and time.replace(tzinfo=UTC) for time in times]


def test_int96_becomes_timestamps_in_utc_with_the_same_values(tmp_path):
    table = pa.table({"text": list("abcd"), "when": pa.array(WHEN, US)})
    source = write_like_spark(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out")
    found = read_all(tmp_path / "out")
    assert found.schema.field("when").type == pa.timestamp("us", "UTC")
    assert found["when"].to_pylist() == in_utc(WHEN)
    # Spark and DuckDB read this annotation as an instant.
    [name] = outputs(tmp_path / "out")
    column = pq.ParquetFile(tmp_path / "out" / name).schema.column(1)
    assert column.physical_type == "INT64"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(column.logical_type)


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
    assert found["list"].to_pylist() == [in_utc([LAST, None]), None, [], in_utc([FIRST])]
    assert [row["a"]["b"] for row in found["struct"].to_pylist()] == in_utc(WHEN)
    assert found["map"].to_pylist() == [
        [("x", in_utc([LAST])[0])], None, [], [("y", in_utc([FIRST])[0])]
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
    assert read_all(tmp_path / "out")["when"].to_pylist() == in_utc(times)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_int96_that_arrow_wrote_keeps_the_time_zone_of_the_stored_schema(tmp_path, zone):
    """Arrow stores its schema next to INT96, but does not use it to restore the time zone."""
    when = pa.array([0], pa.timestamp("us", zone))
    pair = pa.array([[1, 2]], pa.list_(pa.int32(), 2))
    both = pa.StructArray.from_arrays([when, pair], ["when", "pair"])
    table = pa.table({"text": ["a"], "when": when, "both": both})
    source = write(tmp_path / "in.parquet", table, use_deprecated_int96_timestamps=True)
    assert b"ARROW:schema" in pq.read_metadata(source).metadata
    translate(source, tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out").schema.field("when").type == pa.timestamp("us", zone)
    assert read_footer(str(source)).schema.field("both").type.field("pair").type == pair.type


def test_int96_in_one_of_two_columns_with_the_same_name(tmp_path):
    arrays = [pa.array(["a"]), pa.array([LAST], US), pa.array([7]), pa.array([FIRST], US)]
    source = write_like_spark(
        tmp_path / "in.parquet", pa.Table.from_arrays(arrays, names=["text", "x", "x", "a"])
    )
    translate(source, tmp_path / "out")
    [name] = outputs(tmp_path / "out")
    found = read(tmp_path / "out" / name)
    assert found.column(1).to_pylist() == in_utc([LAST])
    assert found.column(2).to_pylist() == [7]
    assert found.column(3).to_pylist() == in_utc([FIRST])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"version": "3.5.0"}, False),
        ({"version": "3.5.0", "legacyINT96": ""}, True),
        ({"version": "3.5.0", "legacyDateTime": ""}, False),
        ({"version": "3.5.0", "legacyDateTime": "", "legacyINT96": ""}, True),
        ({"version": "3.0.1"}, True),
    ],
)
def test_spark_reads_the_calendar_of_int96_from_the_key_of_other_timestamps(
    tmp_path, keys, expected
):
    metadata = {f"org.apache.spark.{key}": value for key, value in keys.items()}
    table = pa.table({"text": ["a"], "when": pa.array([FIRST], US)})
    source = write_like_spark(tmp_path / "in.parquet", table.replace_schema_metadata(metadata))
    translate(source, tmp_path / "out")
    [name] = outputs(tmp_path / "out")
    found = pq.read_metadata(tmp_path / "out" / name).metadata
    assert (b"org.apache.spark.legacyDateTime" in found) == expected


def test_int96_and_dates_in_two_calendars_are_refused(tmp_path):
    days = pa.array([0], pa.date32())
    table = pa.table({"text": ["a"], "when": pa.array([FIRST], US), "day": days})
    keys = {"org.apache.spark.legacyINT96": "", "org.apache.spark.version": "3.5.0"}
    source = write_like_spark(tmp_path / "in.parquet", table.replace_schema_metadata(keys))
    assert refused(source, tmp_path / "out") == (
        f"{source} has INT96 timestamps in one calendar, and other dates and timestamps in another "
        "(org.apache.spark.legacyINT96 and org.apache.spark.legacyDateTime differ). "
        "Write the file with one calendar"
    )


def nanoseconds(path, value):
    """Write a file whose second timestamp is `value` nanoseconds after 1970."""
    values = pa.array([0, value], pa.timestamp("ns"))
    table = pa.table({"text": ["a", "b"], "when": values})
    return write_like_spark(path, table, use_dictionary=False, compression="none")


def test_nanoseconds_are_a_one_line_error_or_skipped(tmp_path):
    source = nanoseconds(tmp_path / "in.parquet", 1_000_001)
    problem = (
        f"{source} has an INT96 timestamp that microseconds cannot represent, in the column "
        "'when'. Write the column with microseconds, or skip such rows with `on_bad_file=skip`"
    )
    assert refused(source, tmp_path / "out") == problem
    assert outputs(tmp_path / "out") == []
    translate(source, tmp_path / "out", on_bad_file="skip")
    assert unit_statistics(tmp_path / "out")[0]["skipped"] == problem.partition(". ")[0]
    nanoseconds(tmp_path / "even.parquet", 1_000_000)
    translate(tmp_path / "even.parquet", tmp_path / "even")
    found = read_all(tmp_path / "even")["when"].cast(pa.int64()).to_pylist()
    assert found == [0, 1000]


def test_days_outside_the_range_of_microseconds_are_refused(tmp_path):
    source = nanoseconds(tmp_path / "in.parquet", 86_400_000_000_000)
    content = source.read_bytes()
    stored = struct.pack("<qI", 0, 2_440_588 + 1)  # nanoseconds, and the Julian day
    assert content.count(stored) == 1
    source.write_bytes(content.replace(stored, struct.pack("<qI", 0, 2**31 - 1)))
    message = refused(source, tmp_path / "out")
    assert "microseconds cannot represent, in the column 'when'" in message
