"""Columns of rare types, which a translation job keeps unchanged or refuses."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from encryption import write_encrypted
from translation_jobs import outputs, read, refused, translate, write

ROWS = 40
TEXTS = [f"row {number}" for number in range(ROWS)]


def write_arrow(path, table, *, batch_rows=10):
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def translated(source, output, **options):
    """Translate in units of 15 rows, which do not align with batches; return the units' tables."""
    summary = translate(source, output, text_columns=("text",), unit_rows=15, **options)
    assert (summary.rows, summary.manifest["failed_rows"]) == (ROWS, 0)
    return [read(output / name) for name in outputs(output)]


def rows_of(tables, names):
    return [row for table in tables for row in table.select(names).to_pylist()]


def test_jsonl_keys_that_are_always_null(tmp_path):
    rows = [
        {"text": text, "a": None, "b": {"c": None, "d": number}, "e": [{"f": None}]}
        for number, text in enumerate(TEXTS)
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tables = translated(path, tmp_path / "out")
    assert rows_of(tables, ["text", "a", "b", "e"]) == [
        {key: row[key] for key in ("text", "a", "b", "e")} for row in rows
    ]


NULLS = pa.nulls(ROWS)
FLOATS = pa.array(range(4 * ROWS), pa.float32())
COLUMNS = {
    "struct of nulls": pa.StructArray.from_arrays([NULLS, pa.array(range(ROWS))], ["a", "b"]),
    "list of nulls": pa.ListArray.from_arrays(range(ROWS + 1), NULLS),
    "embedding": pa.FixedSizeListArray.from_arrays(
        FLOATS, type=pa.list_(pa.field("item", pa.float32(), nullable=False), 4)
    ),
    "list without nulls": pa.ListArray.from_arrays(
        range(ROWS + 1), FLOATS[:ROWS], type=pa.list_(pa.field("x", pa.float32(), nullable=False))
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_nested_arrow_columns(tmp_path, name):
    table = pa.table({"text": TEXTS, "x": COLUMNS[name]})
    tables = translated(write_arrow(tmp_path / "in.arrow", table), tmp_path / "out")
    assert rows_of(tables, ["text", "x"]) == table.to_pylist()
    if "without null" in name or name == "embedding":
        assert not tables[0].schema.field("x").type.value_field.nullable


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int16()])
@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_a_dictionary_per_batch(tmp_path, index, file_format):
    """Each batch has its own dictionary of 2 values, and the unit has 300 values in total."""
    path = tmp_path / "in.arrow"
    count = 150
    kind = pa.dictionary(index, pa.string())
    schema = pa.schema([("text", pa.string()), ("x", kind), ("y", pa.struct([("z", kind)]))])
    with pa.ipc.new_stream(str(path), schema) as writer:
        for number in range(count):
            codes = pa.array([1, 0, None], index)
            values = pa.DictionaryArray.from_arrays(codes, [f"a{number}", f"b{number}"])
            struct = pa.StructArray.from_arrays([values], ["z"])
            writer.write_batch(pa.record_batch([["ab"] * 3, values, struct], schema=schema))
    output = tmp_path / "out"
    translate(path, output, text_columns=("text",), format=file_format)
    expected = [
        {"x": value, "y": {"z": value}}
        for number in range(count)
        for value in (f"b{number}", f"a{number}", None)
    ]
    if file_format == "jsonl":
        [path] = output.glob("*.jsonl")
        lines = path.read_text().splitlines()
        found = [{key: json.loads(line)[key] for key in "xy"} for line in lines]
    else:
        [name] = outputs(output)
        found = read(output / name).select(["x", "y"]).to_pylist()
        assert read(output / name).schema.field("x").type.index_type == pa.int32()
    assert found == expected


def test_a_column_that_no_format_can_store_is_refused(tmp_path):
    codes = pa.array([0, 1] * (ROWS // 2), pa.int8())
    union = pa.UnionArray.from_sparse(codes, [pa.array(range(ROWS)), pa.array(TEXTS)])
    path = write_arrow(tmp_path / "in.arrow", pa.table({"text": TEXTS, "x": union}))
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
    table = pa.table({"text": TEXTS, "secret": range(ROWS)})
    write(tmp_path / "in/b.parquet", table)
    path = write_encrypted(tmp_path / "in/a.parquet", table, columns=[column])
    reason = f"{path} has encrypted columns, which tt cannot read. Write it without encryption"
    options = {"text_columns": ("text",)}
    assert reason in refused(tmp_path / "in", tmp_path / "out", **options)
    summary = translate(tmp_path / "in", tmp_path / "out", on_bad_file="skip", **options)
    assert summary.rows == ROWS
    assert [each["reason"] for each in summary.manifest["skipped_files"]] == [reason]
