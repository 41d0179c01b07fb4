"""Schemas of other programs in footers, and reading outputs with DuckDB, Polars and pandas."""

import datetime as dt
import json

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import Reverser
from translation_jobs import ADDED, outputs, read, read_all, translate, write, write_like_spark

from tt.model.transformer.search_options import Decoding
from tt.pipelines.translate.schemas import DROPPED, HUGGING_FACE, PANDAS, SPARK

TEXTS = ["ab", None, "cd"]


def spark_field(name, kind, **values):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}, **values}


def spark_list(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def with_metadata(table, **stored):
    metadata = {key: json.dumps(value) for key, value in stored.items()}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})


def footer(folder):
    """Return the metadata in the footer of the only output file."""
    [name] = outputs(folder)
    return pq.read_metadata(folder / name).metadata


def load_two_best():
    return Reverser(n_best=2)


def test_the_spark_schema_gets_the_new_columns(tmp_path):
    table = pa.table({"id": [1, 2], "text": ["ab", "é"], "tags": [["x"], None]})
    fields = [
        spark_field("id", "long", nullable=False),
        spark_field("text", "string", metadata={"comment": "Bücher"}),
        spark_field("tags", spark_list("string")),
    ]
    stored = {SPARK.decode(): {"type": "struct", "fields": fields}}
    source = write(tmp_path / "in.parquet", with_metadata(table, **stored))
    translate(
        source, tmp_path / "out", text_columns=("text", "tags"), decoding=Decoding(n_best=2),
        load=load_two_best,
    )  # fmt: skip
    kinds = {
        "translation": "string",
        "translation_score": "float",
        "translation_status": "string",
        "translation_error": "string",
        "translation_flags": spark_list("string"),
        "translation_n_best": spark_list(
            {
                "type": "struct",
                "fields": [spark_field("text", "string"), spark_field("score", "float")],
            }
        ),
    }
    assert json.loads(footer(tmp_path / "out")[SPARK]) == {
        "type": "struct",
        "fields": [
            *fields,
            *(spark_field(f"text_{name}", kind) for name, kind in kinds.items()),
            *(spark_field(f"tags_{name}", spark_list(kind)) for name, kind in kinds.items()),
        ],
    }


@pytest.mark.parametrize(
    "stored",
    [
        b"struct<text:string>", b'{"type":"struct","fields":[]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_spark_schema_with_another_form_or_other_columns_is_dropped(tmp_path, stored):
    table = pa.table({"text": TEXTS}).replace_schema_metadata({SPARK: stored, "owner": "me"})
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out")
    found = footer(tmp_path / "out")
    assert SPARK not in found
    assert found[b"owner"] == b"me"


def test_schemas_of_avro_and_iceberg_are_dropped_and_hudi_keys_are_kept(tmp_path):
    hudi = {"hoodie_min_record_key": "a", "org.apache.hudi.bloomfilter": "x"}
    metadata = {**dict.fromkeys(DROPPED, b"{}"), **hudi}
    table = pa.table({"text": TEXTS}).replace_schema_metadata(metadata)
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out")
    found = {key.decode() for key in footer(tmp_path / "out")}
    assert found == {"ARROW:schema", *hudi}


def test_field_ids_are_kept_and_new_columns_have_none(tmp_path):
    fields = [
        pa.field("text", pa.string(), metadata={"PARQUET:field_id": "7"}),
        pa.field("tags", pa.list_(
            pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "9"})
        ), metadata={"PARQUET:field_id": "8"}),
    ]  # fmt: skip
    table = pa.table({"text": TEXTS, "tags": [[1], None, []]}, schema=pa.schema(fields))
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out")
    schema = read_all(tmp_path / "out").schema
    ids = [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema]
    assert ids == [b"7", b"8", *[None] * len(ADDED)]
    assert schema.field("tags").type.value_field.metadata == {b"PARQUET:field_id": b"9"}


def test_hugging_face_features_get_the_new_columns(tmp_path):
    label = {"names": ["no", "yes"], "_type": "ClassLabel"}
    text = {"dtype": "string", "_type": "Value"}
    score = {"dtype": "float32", "_type": "Value"}
    stored = {"info": {"features": {"text": text, "label": label}}, "fingerprint": "f"}
    table = with_metadata(pa.table({"text": ["a"], "label": [1]}), huggingface=stored)
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out", decoding=Decoding(n_best=2), load=load_two_best)
    assert json.loads(footer(tmp_path / "out")[HUGGING_FACE]) == {
        "info": {
            "features": {
                "text": text,
                "label": label,
                "translation": text,
                "translation_score": score,
                "translation_status": text,
                "translation_error": text,
                "translation_flags": [text],
                "translation_n_best": [{"text": text, "score": score}],
            }
        },
        "fingerprint": "f",
    }


def test_pandas_restores_the_index_and_categories(tmp_path):
    index = pd.Index(["i", "j", "k"], name="key")
    frame = pd.DataFrame({"text": TEXTS, "kind": pd.Categorical(["u", "v", "u"])}, index=index)
    frame.to_parquet(tmp_path / "in.parquet")
    translate(tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",))
    [name] = outputs(tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out" / name)
    pd.testing.assert_frame_equal(found[["text", "kind"]], frame)
    assert list(found.columns) == ["text", "kind", *ADDED]
    assert found["translation"].tolist()[::2] == ["ba", "dc"]


@pytest.mark.parametrize(
    ("labels", "read_labels"),
    [
        (pd.Index([0, 1]), ["0", "1"]),
        (pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]), ["('a', 'x')", "('a', 'y')"]),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), None),
    ],
)
def test_pandas_reads_labels_that_were_not_text(tmp_path, labels, read_labels):
    """Otherwise pandas would convert all labels to the stored type, and fail at `translation`."""
    frame = pd.DataFrame([["ab", 1]], columns=labels)
    table = pa.Table.from_pandas(frame)
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out")
    [name] = outputs(tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out" / name)
    assert list(found.columns) == [*(read_labels or table.column_names), *ADDED]
    assert found["translation"].tolist() == ["ba"]


def test_pandas_ignores_the_stored_row_numbers_if_a_file_is_divided_into_units(tmp_path):
    frame = pd.DataFrame({"text": list("abcde")}, index=pd.RangeIndex(10, 15))
    frame.to_parquet(tmp_path / "in.parquet")
    translate(tmp_path / "in.parquet", tmp_path / "cut", unit_rows=3)
    frames = [pd.read_parquet(tmp_path / "cut" / name) for name in outputs(tmp_path / "cut")]
    assert [list(each.index) for each in frames] == [[0, 1, 2], [0, 1]]
    translate(tmp_path / "in.parquet", tmp_path / "whole")
    [name] = outputs(tmp_path / "whole")
    assert list(pd.read_parquet(tmp_path / "whole" / name).index) == [10, 11, 12, 13, 14]
    assert PANDAS in footer(tmp_path / "whole")


def test_duckdb_polars_and_pandas_read_the_translation_of_a_spark_file(tmp_path):
    """Each program reads the same values of the original columns from the input and the output."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "text": TEXTS,
            "tags": [["x", None], None, []],
            "when": pa.array([last, None, dt.datetime(1, 1, 1)], pa.timestamp("us")),
        }
    )
    fields = [
        spark_field("id", "integer"), spark_field("text", "string"),
        spark_field("tags", spark_list("string")), spark_field("when", "timestamp"),
    ]  # fmt: skip
    table = with_metadata(table, **{SPARK.decode(): {"type": "struct", "fields": fields}})
    source = write_like_spark(tmp_path / "in.parquet", table)
    assert set(pq.read_metadata(source).metadata) == {SPARK}
    translate(source, tmp_path / "out", text_columns=("text",))
    [name] = outputs(tmp_path / "out")
    output = str(tmp_path / "out" / name)
    names = ["id", "text", "tags", "when", *ADDED]
    statuses = ["ok", "null", "ok"]

    found = duckdb.sql(f"select * from '{output}'")
    assert found.columns == names
    columns = 'id, text, tags, epoch_us("when")'
    rows = f"select {columns} from '{output}' order by id"
    assert duckdb.sql(rows).fetchall() == duckdb.sql(rows.replace(output, str(source))).fetchall()
    assert duckdb.sql(f"select translation, translation_status from '{output}'").fetchall() == [
        ("ba", "ok"), (None, "null"), ("dc", "ok"),
    ]  # fmt: skip

    frame = pl.read_parquet(output)
    assert frame.columns == names
    assert frame["tags"].to_list() == [["x", None], None, []]
    assert frame["when"].to_list() == table["when"].to_pylist()
    assert frame["translation_status"].to_list() == statuses

    pandas_frame = pd.read_parquet(output)
    assert list(pandas_frame.columns) == names
    assert pandas_frame["when"][0] == pd.Timestamp(last).as_unit("us")
    assert pandas_frame["translation_status"].tolist() == statuses
    assert read(tmp_path / "out" / name).schema.field("when").type == pa.timestamp("us")
