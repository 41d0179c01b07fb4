"""Types of columns in the output: kept, changed as documented, or refused."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct
import uuid

import pyarrow as pa
import pytest
from encryption import write_encrypted
from translation_jobs import (
    ADDED,
    outputs,
    read,
    read_all,
    refused,
    request,
    translate,
    write,
    write_like_spark,
)

MOMENT = dt.datetime(2024, 2, 29, 12, 30, 1, 123456)
CENT = decimal.Decimal("-1.25")
FLOATS = pa.array(range(20), pa.float32())
PAIRS = pa.list_(pa.int32(), 2)
US = pa.timestamp("us")
DAY = dt.date(2024, 2, 29)


def every_parquet_type() -> pa.Table:
    columns = {
        "text": pa.array(["a", None, "b", "a", "c"], pa.large_string()),
        "category": pa.array(["x", "y", None, "x", "z"]).dictionary_encode(),
        "ordered": pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 0, 1], pa.int8()), ["low", "high"], ordered=True
        ),
        "view": pa.array([b"", None, b"\x00", b"1", b"2"], pa.binary_view()),
        "map": pa.array(
            [[("k", 1)], None, [], [("a", None), ("b", 2)], []], pa.map_(pa.string(), pa.int32())
        ),
        "nested": pa.array(
            [{"a": [1, 2], "b": {"c": "x"}}, None, {"a": None, "b": None}, {"a": [], "b": {}}, {}],
            pa.struct([("a", pa.list_(pa.int16())), ("b", pa.struct([("c", pa.large_string())]))]),
        ),
        "large_list": pa.array([[1.5], None, [], [None], [2.0]], pa.large_list(pa.float32())),
        "decimal": pa.array([CENT, None, CENT, CENT, CENT], pa.decimal128(20, 2)),
        "wide_decimal": pa.array([CENT, None, CENT, CENT, CENT], pa.decimal256(50, 2)),
        "zoned": pa.array([MOMENT, None, MOMENT, MOMENT, MOMENT], pa.timestamp("us", "Asia/Tokyo")),
        "nanoseconds": pa.array([1000, None, 3000, 4000, 5000], pa.timestamp("ns")),
        "duration": pa.array([1, None, 3, 4, 5], pa.duration("ms")),
        "time": pa.array([1, None, 3, 4, 5], pa.time32("ms")),
        "date": pa.array([1, None, 3, 4, 5], pa.date32()),
        "fixed": pa.array([b"ab", None, b"cd", b"ef", b"gh"], pa.binary(2)),
        "pair": pa.array([[1, 2], [3, 4], [5, 6], [7, 8], [9, None]], pa.list_(pa.int8(), 2)),
        "half": pa.array([1.5, None, 0.0, -1.0, 2.0], pa.float16()),
        "small": pa.array([1, None, 255, 0, 1], pa.uint8()),
        "truth": pa.array([True, None, False, True, True]),
        "nothing": pa.nulls(5),
    }
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    fields.append(pa.field("required", pa.int64(), nullable=False, metadata={"unit": "m"}))
    columns["required"] = pa.array(range(5))
    schema = pa.schema(fields, metadata={"owner": "someone", "pandas": '{"columns": []}'})
    return pa.table(list(columns.values()), schema=schema)


def test_parquet_types_values_and_metadata_are_kept(tmp_path):
    source = write(tmp_path / "t.parquet", every_parquet_type(), row_group_size=3)
    translate(source, tmp_path / "out", text_columns=("text",), unit_rows=2)
    expected = read(source)
    assert expected.schema.field("zoned").type == pa.timestamp("us", "Asia/Tokyo")
    assert expected.schema.field("ordered").type == pa.dictionary(pa.int8(), pa.string(), True)
    for index, name in enumerate(outputs(tmp_path / "out")):
        table = read(tmp_path / "out" / name)
        kept = table.drop(ADDED)
        assert kept.schema.equals(expected.schema, check_metadata=True)
        assert kept.to_pylist() == expected.slice(2 * index, 2).to_pylist()
        assert table.column_names == [*expected.column_names, *ADDED]
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ["a", None, "b", "a", "c"]


def five(*values, kind):
    """Return five rows with these values, and then null."""
    return pa.array([*values, *[None] * (5 - len(values))], kind)


def element(kind):
    return pa.list_(pa.field("element", kind))


# Columns of an Arrow file, and their types in the output according to docs/reference/columns.md.
CHANGED = {
    "seconds": (five(1, kind=pa.timestamp("s", "UTC")), pa.timestamp("ms", "UTC")),
    "time": (five(86_399, kind=pa.time32("s")), pa.time32("ms")),
    "date": (five(DAY, kind=pa.date64()), pa.date32()),
    "dictionary": (
        five("a", "b", kind=pa.dictionary(pa.int8(), pa.large_string())),
        pa.dictionary(pa.int32(), pa.string()),
    ),
    "numbers": (five(5, 7, kind=pa.dictionary(pa.int8(), pa.int64())), pa.int64()),
    "vector": (five([1, 2], None, [3, 4], kind=PAIRS), element(pa.int32())),
    "inner": (
        five({"pair": None}, None, {"pair": [5, 6]}, kind=pa.struct([("pair", PAIRS)])),
        pa.struct([("pair", element(pa.int32()))]),
    ),
    "lists": (
        five([[1, 2], None], None, [], kind=pa.large_list(PAIRS)),
        pa.large_list(pa.field("element", element(pa.int32()))),
    ),
    "embedding": (
        pa.FixedSizeListArray.from_arrays(
            FLOATS, type=pa.list_(pa.field("item", pa.float32(), nullable=False), 4)
        ),
        pa.list_(pa.field("element", pa.float32(), nullable=False)),
    ),
}
KEPT = {
    "nanoseconds": five(10**9 + 1, kind=pa.timestamp("ns")),
    "duration": five(1, kind=pa.duration("s")),
    "decimal32": five(CENT, kind=pa.decimal32(5, 2)),
    "decimal256": five(CENT, kind=pa.decimal256(50, 2)),
    "large_string": five("a", kind=pa.large_string()),
    "string_view": five("a", kind=pa.string_view()),
    "large_binary": five(b"a", kind=pa.large_binary()),
    "binary": five(b"abc", kind=pa.binary(3)),
    "uint32": five(2**32 - 1, kind=pa.uint32()),
    "uuid": five(uuid.UUID(int=1).bytes, kind=pa.uuid()),
    "strings": five("a", "b", kind=pa.dictionary(pa.int32(), pa.string())),
    "null": pa.nulls(5),
    "struct of nulls": pa.StructArray.from_arrays([pa.nulls(5), pa.array(range(5))], ["a", "b"]),
}


def write_arrow(path, table, **options):
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, **options)
    return path


def test_arrow_types_change_only_as_documented_and_keep_their_values(tmp_path):
    changed = {name: column for name, (column, _) in CHANGED.items()}
    table = pa.table({"text": list("abcde"), **KEPT, **changed})
    source = write_arrow(tmp_path / "in.arrow", table, max_chunksize=3)
    translate(source, tmp_path / "out", text_columns=("text",), unit_rows=2)
    tables = [read(tmp_path / "out" / name) for name in outputs(tmp_path / "out")]
    found = pa.concat_tables(tables)
    expected = {name: column.type for name, column in KEPT.items()}
    expected |= {name: kind for name, (_, kind) in CHANGED.items()}
    assert {name: found.schema.field(name).type for name in expected} == expected
    for name in table.column_names:
        assert found[name].to_pylist() == table[name].to_pylist(), name


def test_texts_of_every_string_type_are_translated(tmp_path):
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary("int8", "string"))
    columns = {
        f"t{number}": pa.array(["ab", None, "ab"], kind) for number, kind in enumerate(kinds)
    }
    source = write_arrow(tmp_path / "in.arrow", pa.table(columns))
    translate(source, tmp_path / "out", text_columns=tuple(columns))
    found = read_all(tmp_path / "out")
    for name in columns:
        assert found[name].to_pylist() == ["ab", None, "ab"]
        assert found[f"{name}_translation"].to_pylist() == ["ba", None, "ba"]


def test_a_dictionary_per_batch(tmp_path):
    """Each batch has its own dictionary of 2 values, and the unit has 300 values in total."""
    path = tmp_path / "in.arrow"
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("text", pa.string()), ("x", kind), ("y", pa.struct([("z", kind)]))])
    with pa.ipc.new_stream(str(path), schema) as writer:
        for number in range(150):
            codes = pa.array([1, 0, None], pa.int8())
            values = pa.DictionaryArray.from_arrays(codes, [f"a{number}", f"b{number}"])
            inner = pa.StructArray.from_arrays([values], ["z"])
            writer.write_batch(pa.record_batch([["ab"] * 3, values, inner], schema=schema))
    translate(path, tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out").select(["x", "y"]).to_pylist() == [
        {"x": value, "y": {"z": value}}
        for number in range(150)
        for value in (f"b{number}", f"a{number}", None)
    ]


def test_jsonl_keys_that_are_always_null(tmp_path):
    rows = [{"text": f"row {n}", "a": None, "b": {"c": None, "d": n}} for n in range(40)]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    translate(path, tmp_path / "out", text_columns=("text",), unit_rows=15)
    assert read_all(tmp_path / "out").select(["text", "a", "b"]).to_pylist() == rows


# Timestamps of Spark.

LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
FIRST = dt.datetime(1, 1, 1)
WHEN = [LAST, None, FIRST, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]


def test_int96_becomes_microseconds_with_the_same_values(tmp_path):
    inner = pa.struct([("a", pa.struct([("b", US)])), ("n", pa.int8())])
    table = pa.table(
        {
            "when": pa.array(WHEN, US),
            "list": pa.array([[LAST, None], None, [], [FIRST]], pa.list_(US)),
            "text": list("abcd"),
            "struct": pa.array([{"a": {"b": t}, "n": 1} for t in WHEN], inner),
            "map": pa.array([[("x", LAST)], None, [], [("y", FIRST)]], pa.map_(pa.string(), US)),
        }
    )
    source = write_like_spark(tmp_path / "in.parquet", table)
    job = request(source, tmp_path / "out", text_columns=("text",), unit_rows=3).plan()
    assert job.notices == (
        "tt reads INT96 timestamps as microseconds in UTC: 'when', 'list', 'struct', 'map'",
    )
    job.run()
    found = read_all(tmp_path / "out")
    assert found.schema.field("when").type == US
    assert found.select(table.column_names).to_pylist() == table.to_pylist()
    dropped = {"text_columns": ("text",), "keep_columns": ("text",)}
    assert request(source, tmp_path / "few", **dropped).plan().notices == ()


def test_nanoseconds_of_int96_are_cut_off(tmp_path):
    table = pa.table({"text": ["ab", "cd"], "when": pa.array([0, 86_400_000_000], US)})
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    path = tmp_path / "in.parquet"
    content = write_like_spark(path, table, **options).read_bytes()
    stored = struct.pack("<qI", 0, 2_440_588 + 1)  # nanoseconds of the day, and the Julian day
    assert content.count(stored) == 1
    path.write_bytes(content.replace(stored, struct.pack("<qI", 1_999, 2_440_588)))
    translate(path, tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out")["when"].cast(pa.int64()).to_pylist() == [0, 1]


# Refused types.


def test_a_column_that_no_format_can_store_is_refused(tmp_path):
    codes = pa.array([0, 1], pa.int8())
    union = pa.UnionArray.from_sparse(codes, [pa.array([1, 2]), pa.array(["a", "b"])])
    path = write_arrow(tmp_path / "in.arrow", pa.table({"text": ["a", "b"], "x": union}))
    for file_format in ("parquet", "jsonl", "csv"):
        message = refused(path, tmp_path / "out", text_columns=("text",), format=file_format)
        assert message == (
            f"{file_format} cannot store the column 'x' (sparse_union<0: int64=0, 1: string=1>) of "
            f"{path}. Leave the column out with `drop_columns`"
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("column", ["text", "secret"])
def test_a_file_with_encrypted_columns_is_bad(tmp_path, column):
    """The check must not ask Arrow for the metadata of these columns, which aborts the process."""
    table = pa.table({"text": ["a", "b"], "secret": range(2)})
    write(tmp_path / "in/b.parquet", table)
    path = write_encrypted(tmp_path / "in/a.parquet", table, columns=[column])
    reason = f"{path} has encrypted columns, which tt cannot read. Write it without encryption"
    options = {"text_columns": ("text",)}
    assert reason in refused(tmp_path / "in", tmp_path / "out", **options)
    summary = translate(tmp_path / "in", tmp_path / "out", on_bad_file="skip", **options)
    assert summary.rows == 2
    assert [each["reason"] for each in summary.manifest["skipped_files"]] == [reason]


def test_seconds_that_do_not_fit_milliseconds_are_refused(tmp_path):
    values = pa.array([0, 2**60], pa.timestamp("s"))
    source = write_arrow(tmp_path / "in.arrow", pa.table({"text": ["a", "b"], "x": values}))
    assert refused(source, tmp_path / "out") == (
        f"{source} contains values that Parquet cannot store: Casting from timestamp[s] to "
        "timestamp[ms] would result in out of bounds timestamp: 1152921504606846976. "
        "Remove or convert these values"
    )
    assert outputs(tmp_path / "out") == []
