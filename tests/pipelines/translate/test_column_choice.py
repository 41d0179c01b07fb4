"""The name of the translation column, and the input columns that the output contains."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import fail_at
from translation_jobs import ADDED, manifest, outputs, read, read_all, refused, translate, write

from tt.pipelines.translate.schemas import HUGGING_FACE, PANDAS, SPARK

ROWS = {"id": [1, 2], "text": ["ab", "cd"], "note": ["x", None], "raw": [b"1", b"2"]}
GERMAN = ["german", *(f"german{name.removeprefix('translation')}" for name in ADDED[1:])]


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.parquet", ROWS)


def test_a_table_can_be_translated_into_a_second_column(tmp_path, source):
    translate(source, tmp_path / "one", text_columns=("text",))
    options = {"text_columns": ("text",), "output_column": "german"}
    translate(tmp_path / "one", tmp_path / "two", **options)
    found = read_all(tmp_path / "two")
    assert found.column_names == [*ROWS, *ADDED, *GERMAN]
    assert found["german"].to_pylist() == found["translation"].to_pylist() == ["ba", "dc"]
    assert found.select([*ROWS, *ADDED]).equals(read_all(tmp_path / "one"))
    assert refused(tmp_path / "two", tmp_path / "no", **options) == (
        f"{tmp_path}/two/{outputs(tmp_path / 'two')[0]} already has a column 'german', and tt adds "
        "a column with this name. Choose another name with `output_column`"
    )


def test_several_text_columns_get_the_name_as_a_suffix(tmp_path, source):
    translate(source, tmp_path / "out", text_columns=("text", "note"), output_column="german")
    added = [f"{column}_{name}" for column in ("text", "note") for name in GERMAN]
    assert read_all(tmp_path / "out").column_names == [*ROWS, *added]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"keep_columns": ("note", "id")}, ["id", "note"]),
        ({"drop_columns": ("text, raw",)}, ["id", "note"]),
        ({"drop_columns": tuple(ROWS)}, []),
    ],
)
def test_the_output_has_the_chosen_columns(tmp_path, source, options, kept):
    options = {"text_columns": ("text",), "unit_rows": 1, "where": "note = 'x'", **options}
    translate(source, tmp_path / "out", **options)
    found = read_all(tmp_path / "out")
    assert found.column_names == [*kept, *ADDED]
    assert found.select(kept).equals(read(source).select(kept))
    assert found["translation"].to_pylist() == ["ba", None]


def test_a_translation_can_replace_its_text(tmp_path, source):
    options = {"text_columns": ("text",), "drop_columns": ("text",), "output_column": "text"}
    fail_at.add("cd")
    translate(source, tmp_path / "out", **options)
    fail_at.clear()
    assert read_all(tmp_path / "out")["text"].to_pylist() == ["ba", None]
    # The output has no texts to retry, so the unit is translated again.
    translate(source, tmp_path / "out", retry_failed=True, **options)
    found = read_all(tmp_path / "out")
    assert found["text"].to_pylist() == ["ba", "dc"]
    assert found.column_names[:4] == ["id", "note", "raw", "text"]
    assert manifest(tmp_path / "out")["failed_rows"] == 0


def test_a_dropped_column_that_is_damaged_is_not_read(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": ["ab"], "note": ["x"]}, use_dictionary=False)
    content = bytearray(source.read_bytes())
    start = pq.read_metadata(source).row_group(0).column(1).data_page_offset
    content[start : start + 8] = b"\xff" * 8
    source.write_bytes(content)
    options = {"text_columns": ("text",)}
    assert "cannot be read" in refused(source, tmp_path / "whole", **options)
    translate(source, tmp_path / "drop", drop_columns=("note",), **options)
    assert read_all(tmp_path / "drop")["translation"].to_pylist() == ["ba"]


@pytest.mark.parametrize("name", ["a.b", "struct"])
def test_columns_are_dropped_after_reading_if_their_names_are_unclear(tmp_path, name):
    table = pa.table({"text": ["ab"], "a": [{"b": 1}]})
    table = table if name == "struct" else table.append_column("a.b", pa.array([2]))
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out", text_columns=("text",), drop_columns=("a",))
    found = read_all(tmp_path / "out")
    assert found.column_names == [*(each for each in table.column_names if each != "a"), *ADDED]


def test_a_column_that_the_format_cannot_store_can_be_dropped(tmp_path, source):
    assert "csv cannot store the column 'raw'" in refused(
        source, tmp_path / "csv", format="csv", text_columns=("text",)
    )
    translate(source, tmp_path / "csv", format="csv", text_columns=("text",), drop_columns=("raw",))
    union = pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    )
    table = pa.table({"text": pa.array(["ab"]), "union": union})
    with pa.ipc.new_file(str(tmp_path / "in.arrow"), table.schema) as writer:
        writer.write_table(table)
    message = refused(tmp_path / "in.arrow", tmp_path / "no", text_columns=("text",))
    assert message.endswith("Leave the column out with `drop_columns`")
    translate(tmp_path / "in.arrow", tmp_path / "out", drop_columns=("union",))
    assert read_all(tmp_path / "out").column_names == ["text", *ADDED]


def test_schemas_of_other_programs_lack_dropped_columns(tmp_path):
    frame = pd.DataFrame(
        {"text": ["ab", "cd"], "kind": pd.Categorical(["u", "v"]), "note": [1, 2]},
        index=pd.Index(["i", "j"], name="key"),
    )
    table = pa.Table.from_pandas(frame)
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {}}
        for name in table.column_names
    ]
    features = {name: {"dtype": "string", "_type": "Value"} for name in table.column_names}
    stored = {
        SPARK: json.dumps({"type": "struct", "fields": fields}),
        HUGGING_FACE: json.dumps({"info": {"features": features}}),
    }
    table = table.replace_schema_metadata({**table.schema.metadata, **stored})
    source = write(tmp_path / "in.parquet", table)
    for name, dropped in (("out", ("note",)), ("index", ("note", "key"))):
        options = {"text_columns": ("text",), "drop_columns": dropped}
        translate(source, tmp_path / name, **options)
        kept = [each for each in ("text", "kind", "note", "key") if each not in dropped]
        [path] = outputs(tmp_path / name)
        found = read(tmp_path / name / path).schema.metadata
        in_spark = json.loads(found[SPARK])["fields"]
        assert [field["name"] for field in in_spark] == [*kept, *ADDED]
        assert list(json.loads(found[HUGGING_FACE])["info"]["features"]) == [*kept, *ADDED]
        columns = json.loads(found[PANDAS])["columns"]
        assert [column["field_name"] for column in columns] == kept
        again = pd.read_parquet(tmp_path / name / path)
        expected = frame[["text", "kind"]]
        expected = expected.reset_index(drop=True) if "key" in dropped else expected
        pd.testing.assert_frame_equal(again[["text", "kind"]], expected)


def test_columns_that_a_file_lacks_are_refused(tmp_path, source):
    for option in ("keep_columns", "drop_columns"):
        assert refused(source, tmp_path / "out", text_columns=("text",), **{option: "id,nope"}) == (
            f"`{option}` names the column 'nope', but {source} has no such column. Its columns: "
            "id, text, note, raw. Correct `keep_columns` or `drop_columns`"
        )
    other = write(tmp_path / "other/a.parquet", {"text": ["ab"]})
    options = {"text_columns": ("text",), "drop_columns": ("id",), "on_bad_file": "skip"}
    translate([source, other], tmp_path / "out", **options)
    [skipped] = manifest(tmp_path / "out")["skipped_files"]
    assert skipped["file"] == "a.parquet"
